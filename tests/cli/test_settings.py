"""--set, run references, numbers as people read them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import timelapse as tl
from timelapse.cli import places, view
from timelapse.cli.run_commands import _amount
from timelapse.cli.settings import build_program
from timelapse.errors import TimelapseError, UsageError


class Ping(tl.Event):
    n: int


class Tunable(tl.Program):
    ratio: float = 2.0
    limit: int = 10
    name: str = "x"
    strict: bool = False
    most: int | None = None
    pair: tuple[int, str] = (1, "a")

    seen: tl.Set[int]

    @tl.on(Ping)
    def see(self, e: Ping) -> None:
        self.seen.add(e.n)


@pytest.mark.parametrize(
    ("setting", "name", "value"),
    [
        ("ratio=3", "ratio", 3.0), ("ratio=1e-3", "ratio", 0.001), ("limit=-5", "limit", -5), ("limit=1_000", "limit", 1000),
        ("name=", "name", ""), ("name=a=b", "name", "a=b"), ("name= 7", "name", " 7"), ("strict=Yes", "strict", True),
        ("strict=0", "strict", False), ("most=None", "most", None), ("most=4", "most", 4), ("pair=(2, 'b')", "pair", (2, "b")),
    ],
)  # fmt: skip
def test_values_are_read_by_the_declared_type(setting: str, name: str, value: object) -> None:
    """Each type has its own reading; text stays as it is."""
    got: Any = getattr(build_program(Tunable, [setting]), name)
    assert got == value
    assert type(got) is type(value)


@pytest.mark.parametrize(
    "setting",
    ["ratio", "ratio=", "ratio=two", "limit=2.5", "limit=99999999999999999999", "limit=1" + "0" * 5000, "strict=maybe",
     "nope=1", "=1", "pair=(1", "pair=__import__('os')", "pair=(1,)", "most=x"],
)  # fmt: skip
def test_values_that_do_not_fit(setting: str) -> None:
    """TL806, naming the parameter; nothing is evaluated."""
    with pytest.raises(UsageError) as caught:
        build_program(Tunable, [setting])
    assert caught.value.code == "TL806"


def test_a_parameter_is_set_once() -> None:
    """Two values for one parameter are a mistake."""
    with pytest.raises(UsageError, match="twice"):
        build_program(Tunable, ["limit=1", "limit=2"])


def test_runs_are_numbered_over_all_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """@n is one run, @last the newest, and the next number is free."""
    monkeypatch.chdir(tmp_path)
    with places.new_run("A") as place:
        assert place == Path("runs/A-1")
    assert list(tmp_path.iterdir()) == []
    for name in ("A-1", "B-2", "demo", ".A-9.partial-ab", "A-x"):
        (tmp_path / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / name / "run.json").touch()
    with places.new_run("A") as place:
        assert place == Path("runs/A-3")
    assert places.find_run("@1").name == "A-1"
    assert places.find_run("@last").name == "B-2"
    assert places.find_run("somewhere/else") == Path("somewhere/else")
    assert places.label(tmp_path / "runs" / "B-2") == "@2"
    for wrong in ("@3", "@", "@last-1", "@-1", "@²"):
        with pytest.raises(UsageError) as caught:
            places.find_run(wrong)
        assert caught.value.code == "TL807"


def test_runs_that_are_made_at_once_have_numbers_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A place is taken from the start of a replay, is no run until it holds one, and is given back."""
    monkeypatch.chdir(tmp_path)
    with places.new_run("A") as a, places.new_run("B") as b, places.new_run("A") as c:
        assert [p.name for p in (a, b, c)] == ["A-1", "B-2", "A-3"]
        (b / "run.json").touch()
        assert places.find_run("@last") == b
        with pytest.raises(UsageError):
            places.find_run("@3")
    assert places.numbered() == {2: b}


@pytest.mark.parametrize(
    ("text", "total", "events"),
    [("1%", 1000, 10), ("0.1%", 1, None), ("100%", 10, None), ("all", 10, None), ("5", 10, 5), ("1,000", 5000, 1000), ("50", 10, None),
     ("33%", 100, 33), ("0.01%", 100, 1)],
)  # fmt: skip
def test_amounts(text: str, total: int, events: int | None) -> None:
    """A share is rounded up to at least one event; all of it is None."""
    assert _amount(text, total) == events


@pytest.mark.parametrize("text", ["0", "-1", "0%", "101%", "x", "", "%", "nan%", "inf%", "1e3"])
def test_amounts_that_are_none(text: str) -> None:
    """TL813."""
    with pytest.raises(TimelapseError) as caught:
        _amount(text, 100)
    assert caught.value.code == "TL813"


def test_numbers_for_people() -> None:
    """Times, durations, sizes, rates, shares and small charts."""
    assert view.moment(0) == "1970-01-01 00:00:00"
    assert view.moment(2**62) == f"{2**62} us"
    assert [view.took(s) for s in (0.421, 12.34, 112, 7260)] == ["0.42 s", "12.3 s", "1m52s", "2h01m"]
    assert [view.size(n) for n in (5, 1500, 2_100_000_000)] == ["5 bytes", "1.5 kB", "2.1 GB"]
    assert view.rate(5_400_000, 1.0) == "5.4 M events/s"
    assert view.rate(10, 0.0) == "0 events/s"
    assert view.share(312, 48_201_337) == "0.0006%"
    assert view.sparkline([0, 1, 8]) == " ▁█"
    assert view.sparkline([]) == ""
    assert view.sparkline([963, 967, 971], low=962) == "▁▅█"
    assert view.sparkline([-3, -1], low=-3) == " █"
    assert len(view.sparkline([1] * 1000)) == 62
    assert view.bar(1, 1000, 10) == "▏"
    assert view.bar(10, 10, 4) == "████"
    assert view.bar(0, 0) == ""
