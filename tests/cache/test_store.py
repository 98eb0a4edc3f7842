"""The store: whole entries or none, checked, evicted, and never in the way."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.run_cli import cli
from timelapse.cache.store import Store, open_store, parse_size
from timelapse.errors import UsageError

ROOT = Path(__file__).parents[2]


def made(folder: Path, **content: bytes) -> dict[str, Path]:
    folder.mkdir(parents=True, exist_ok=True)
    files = {}
    for name, data in content.items():
        path = folder / name
        path.write_bytes(data)
        files[f"deep/{name}"] = path
    return files


def put(store: Store, folder: Path, key: str, size: int = 1000) -> None:
    assert store.publish(key, "states", made(folder / key, a=os.urandom(size)), {}, {"n": 1}) is None


def test_an_entry_comes_back_as_it_was(tmp_path: Path) -> None:
    """Files, data and what is said of it; hits are counted."""
    store = Store(tmp_path / "cache", 10**6)
    files = made(tmp_path / "src", a=b"one", b=b"")
    assert store.publish("k1", "states", files, {"program": "P"}, {"x": [1, 2**63]}) is None
    assert store.lease("k2", tmp_path / "none") is None
    for n in (1, 2):
        head = store.lease("k1", tmp_path / f"into{n}")
        assert head is not None
        assert (head.data, head.about) == ({"x": [1, 2**63]}, {"program": "P"})
        assert (tmp_path / f"into{n}" / "deep" / "a").read_bytes() == b"one"
        assert [e.hits for e in store.entries()] == [n]


@pytest.mark.parametrize("damage", ["cut", "change", "remove", "head", "empty head", "link"])
def test_a_damaged_entry_is_never_used_and_goes(damage: str, tmp_path: Path) -> None:
    """Whatever happened to it, the next lease finds nothing, and the entry can be made anew."""
    store = Store(tmp_path / "cache", 10**6)
    files = made(tmp_path / "src", a=b"0123456789", b=b"x")
    assert store.publish("k", "states", files, {}, {}) is None
    folder = tmp_path / "cache" / "entries" / "k"
    victim = folder / "deep" / "a"
    shutil.copy(victim, tmp_path / "copy")  # the source is the same file: leave it alone
    victim.unlink()
    shutil.copy(tmp_path / "copy", victim)
    if damage == "cut":
        victim.write_bytes(b"01234")
    elif damage == "change":
        victim.write_bytes(b"0123456780")
    elif damage == "remove":
        victim.unlink()
    elif damage == "link":
        victim.unlink()
        victim.symlink_to(tmp_path / "copy")
    elif damage == "head":
        text = (folder / "entry.json").read_text()
        (folder / "entry.json").write_text(text.replace('"kind":"states"', '"kind":"statez"'))
    else:
        (folder / "entry.json").write_bytes(b"")
    assert store.lease("k", tmp_path / "into") is None
    assert store.publish("k", "states", files, {}, {}) is None
    assert store.lease("k", tmp_path / "again") is not None


def test_the_one_used_longest_ago_goes_first(tmp_path: Path) -> None:
    """A use counts, not the making."""
    store = Store(tmp_path / "cache", 3500)
    for n, key in enumerate(("a", "b", "c")):
        put(store, tmp_path / "src", key)
        os.utime(tmp_path / "cache" / "entries" / key / "used", (1000 + n, 1000 + n))
    assert store.lease("a", tmp_path / "into") is not None
    put(store, tmp_path / "src", "d")
    assert {e.head.key for e in store.entries()} == {"a", "c", "d"}
    why = store.publish("big", "states", made(tmp_path / "src" / "big", a=b"x" * 4000), {}, {})
    assert why is not None
    assert "limit" in why
    assert len(store.entries()) == 3


def test_what_is_leased_stays_when_the_entry_goes(tmp_path: Path) -> None:
    """An eviction during a read takes nothing away."""
    store = Store(tmp_path / "cache", 10**6)
    put(store, tmp_path / "src", "a", 50_000)
    assert store.lease("a", tmp_path / "into") is not None
    before = (tmp_path / "into" / "deep" / "a").read_bytes()
    assert store.clear() == 1
    assert (tmp_path / "into" / "deep" / "a").read_bytes() == before
    assert store.lease("a", tmp_path / "later") is None


def _race(root: str, seed: int) -> int:
    store = Store(Path(root) / "cache", 40_000)
    found = 0
    for n in range(25):
        key = f"k{(n + seed) % 4}"
        folder = Path(root) / f"p{seed}-{n}"
        if store.lease(key, folder) is not None:
            data = (folder / "deep" / "a").read_bytes()
            assert data == key.encode() * 5000, "a lease gave something else"
            found += 1
        else:
            files = made(folder / "src", a=key.encode() * 5000)
            why = store.publish(key, "states", files, {}, {})
            assert why is None, why
        if n % 7 == 0:
            store.evict(15_000)
    return found


def test_processes_that_race_see_whole_entries(tmp_path: Path) -> None:
    """Readers, writers and evictions at the same time; in the end nothing is left lying about."""
    code = "import sys; from tests.cache.test_store import _race; print(_race(sys.argv[1], int(sys.argv[2])))"
    racing = [
        subprocess.Popen([sys.executable, "-c", code, tmp_path, str(seed)], cwd=ROOT, stdout=subprocess.PIPE, text=True)
        for seed in range(3)
    ]  # fmt: skip
    found = [int(one.communicate()[0]) for one in racing]
    assert sum(found) > 0
    store = Store(tmp_path / "cache", 40_000)
    store.evict(40_000)
    left = [p.name for p in (tmp_path / "cache" / "entries").iterdir()]
    assert sorted(left) == sorted(e.head.key for e in store.entries())


def test_a_place_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    """A file where the folder should be: nothing is kept, and nothing raises."""
    (tmp_path / "cache").write_text("in the way")
    store = Store(tmp_path / "cache")
    why = store.publish("k", "states", made(tmp_path / "src", a=b"1"), {}, {})
    assert why is not None
    assert store.lease("k", tmp_path / "into") is None
    assert store.entries() == []


def test_where_it_is_and_how_large_it_may_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment decides; a limit that was set holds for later processes."""
    monkeypatch.setenv("TIMELAPSE_STATES", "off")
    assert open_store() is None
    monkeypatch.delenv("TIMELAPSE_STATES")
    monkeypatch.delenv("TIMELAPSE_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    store = open_store()
    assert store is not None
    assert store.root == tmp_path / "timelapse" / "states"
    assert 0 < store.limit() <= 10_000_000_000
    store.set_limit(123)
    assert open_store().limit() == 123  # type: ignore[union-attr]
    monkeypatch.setenv("TIMELAPSE_STATES_LIMIT", "2.5 kB")
    assert store.limit() == 2500
    assert parse_size("5GB") == 5 * 10**9
    for wrong in ("", "5 apples", "-1", "nan", "GB"):
        with pytest.raises(UsageError):
            parse_size(wrong)


def test_thresholds_that_there_are_not_are_told(tmp_path: Path) -> None:
    """Those that are given hold; a file that says something else is named, not passed over."""
    place = tmp_path / "cache" / "tuning.json"
    place.parent.mkdir()
    assert Store(place.parent).tuning.least_events == 50_000
    place.write_text('{"least_events": 7}')
    assert Store(place.parent).tuning.least_events == 7
    for wrong in ('{"least": 7}', '{"least_events": "7"}', "{"):
        place.write_text(wrong)
        with pytest.raises(UsageError, match=r"TL810 .*tuning.json") as caught:
            _ = Store(place.parent).tuning
        assert caught.value.hint == "remove the file"


def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """List, limit, clear; JSON; what is no command is refused."""
    monkeypatch.setenv("TIMELAPSE_STATES", str(tmp_path / "cache"))
    store = open_store()
    assert store is not None
    files = made(tmp_path / "src", a=b"12345")
    assert store.publish("abc", "states", files, {"program": "P(x=1)", "log": "/l"}, {}) is None
    shown = cli("cache")
    assert (shown.code, "P(x=1)" in shown.out, "1 entry" in shown.out) == (0, True, True)
    listed = cli("cache", "--json").json
    assert [(e["program"], e["bytes"], e["hits"]) for e in listed["entries"]] == [("P(x=1)", 5, 0)]
    assert cli("cache", "limit", "1MB", "--json").json == {"limit": 10**6}
    assert cli("cache", "--json").json["limit"] == 10**6
    assert "removed 1 entry" in cli("cache", "clear").out
    assert cli("cache", "--json").json["entries"] == []
    assert [cli("cache", *a).code for a in (["limit"], ["clear", "x"], ["eat"])] == [2, 2, 2]
    monkeypatch.setenv("TIMELAPSE_STATES", "off")
    assert cli("cache").code == 2
