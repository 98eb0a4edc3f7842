"""What was used last is kept, in a bounded number."""

from __future__ import annotations

from timelapse.kept import Kept


def test_what_was_asked_for_longest_ago_goes_first() -> None:
    made: list[str] = []
    kept: Kept[str, list[str]] = Kept(2)

    def get(key: str) -> list[str]:
        def make() -> list[str]:
            made.append(key)
            return [key]

        return kept.get(key, make)

    first = get("a")
    get("b")
    assert get("a") is first
    get("c")  # b goes
    assert get("a") is first
    assert get("b") == ["b"]
    assert made == ["a", "b", "c", "b"]
    kept.clear()
    assert get("a") is not first


def test_who_is_first_counts() -> None:
    """A value that somebody else has put in while it was made is the one that both get."""
    kept: Kept[str, int] = Kept(2)
    assert kept.get("a", lambda: kept.get("a", lambda: 1) + 1) == 1
