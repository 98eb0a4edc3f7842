"""Versions of a log: what each is, forgetting events, removing old versions, and days that look as if something were missing."""

from __future__ import annotations

import fcntl
import random
import shutil
from pathlib import Path

import pytest

import timelapse as tl
from tests.cli.run_cli import cli
from timelapse.errors import LogError, UsageError
from timelapse.log import Log
from timelapse.segments import manifest
from timelapse.segments.gaps import gaps_of
from timelapse.segments.place import locked


class Pay(tl.Event):
    user: int
    name: str | None


class Seen(tl.Event):
    page: str


def _log(path: Path, parts: int = 3) -> Log:
    log = None
    for part in range(parts):
        file = path.parent / f"{path.name}-{part}.csv"
        file.write_text(
            "ts,user,name\n" + "".join(f"{part * 100 + n},{(n * 7 + part) % 5},n{n}\n" for n in range(40))
        )
        seen = path.parent / f"{path.name}-{part}-seen.csv"
        seen.write_text("ts,page\n" + "".join(f"{part * 100 + n},p{n}\n" for n in range(0, 40, 4)))
        log = Log.write(path, {Pay: file, Seen: seen}) if log is None else log.append({Pay: file, Seen: seen})
    assert log is not None
    return log


def test_a_persons_events_are_forgotten(tmp_path: Path) -> None:
    log = _log(tmp_path / "log")
    left = [
        (e.ts, repr(e._values()))
        for e in log.events()
        if not (type(e).__name__ == "Pay" and e._values()[0] == 3)
    ]
    less = log.forget("user == 3")
    assert [(e.ts, repr(e._values())) for e in less.events()] == left
    assert (less.version, less.manifest.ingests[-1].rewritten is not None) == (4, True)
    assert Log.open(tmp_path / "log", 3).id == log.id
    whole = Log.from_events(tmp_path / "other", list(less.events()), list(less.classes.values()))
    assert whole.id == less.id
    with pytest.raises(LogError, match="TL409"):
        less.forget("user == 3")
    with pytest.raises(UsageError):
        less.forget("nobody == 3")
    shown = cli("log", tmp_path / "log", "--versions", "--json").json["versions"]
    assert [(v["number"], v["count"]) for v in shown] == [(1, 50), (2, 100), (3, 150), (4, less.count)]
    assert less.expire(3600) == []
    assert less.expire(0) == [1, 2, 3]
    with pytest.raises(LogError, match=r"no version 2\n.*it was removed; there is 4"):
        Log.open(less.path, 2)
    with pytest.raises(LogError, match=r"no version 9\n *there is 4"):
        Log.open(less.path, 9)
    folders = {p.name for p in (tmp_path / "log" / "segments").iterdir()}
    assert folders == {s.folder for s in less.manifest.segments}
    assert [(e.ts, repr(e._values())) for e in Log.open(tmp_path / "log").events()] == left
    with pytest.raises(LogError, match="no version 2"):
        Log.open(tmp_path / "log", 2)


def test_only_segments_that_have_such_events_are_written_anew(tmp_path: Path) -> None:
    log = _log(tmp_path / "log")
    before = [s.folder for s in log.manifest.segments]
    less = log.forget("ts >= 100 and ts < 200 and page is not None")
    after = [s.folder for s in less.manifest.segments]
    assert [a == b for a, b in zip(before, after, strict=True)] == [True, False, True]
    assert less.count == 140
    gone = less.forget("ts < 100 and user >= 0").forget("ts < 100 and page is not None")
    assert len(gone.manifest.segments) == 2
    assert gone.reader.ts_first == 100


def test_the_command_checks_what_it_is_told(tmp_path: Path) -> None:
    log = _log(tmp_path / "log")
    assert "no age" in cli("log", log.path, "--expire", "soon").err
    assert cli("log", log.path, "--forget", "user == 99").code == 2
    assert cli("log", log.path, "--forget", "ts < 'soon'").err.startswith("TL841 --forget 'soon'")
    assert "newest" in cli("log", log.path, "--forget", "user == 1", "--version", "1").err
    done = cli("log", log.path, "--forget", "user == 1", "--expire", "0d")
    assert done.code == 0, done.err
    assert "removed versions: 1, 2, 3" in done.out


def _days(counts: list[int]) -> dict[str, dict[str, int]]:
    return {f"2026-10-{n + 1:02}": ({"A": count} if count else {}) for n, count in enumerate(counts)}


def test_gaps_are_told_with_their_place() -> None:
    assert gaps_of(_days([100] * 10), ["A"]) == []
    said = "A has 7 events on 2026-10-04, and about 100 on the days around it"
    assert gaps_of(_days([100, 100, 100, 7, 100, 100]), ["A"]) == [said]
    days = _days([100] * 10)
    for n in range(10):
        if n < 7:
            days[f"2026-10-{n + 1:02}"]["B"] = 50
    assert gaps_of(days, ["A", "B"]) == ["B ends on 2026-10-07, 3 days before the log does"]
    rng = random.Random(5)
    assert gaps_of(_days([rng.randrange(80, 120) for _ in range(28)]), ["A"]) == []
    assert gaps_of(_days([3, 0, 1, 2, 0, 5]), ["A"]) == []  # few events: by chance
    assert gaps_of(_days([5, 100, 100, 100, 9]), ["A"]) == []  # parts of days


def test_gaps_are_judged_where_the_events_are_when_some_times_are_absurd() -> None:
    """One in the year 1 is told with the times; it said that the type ended then."""
    days = {"0001-01-01": {"A": 30}, "1899-12-30": {"A": 30}, "9999-12-31": {"B": 3}} | _days(
        [100, 100, 7, 100, 100, 100]
    )
    assert gaps_of(days, ["A", "B"]) == gaps_of(_days([100, 100, 7, 100, 100, 100]), ["A", "B"]) != []


def test_a_log_that_somebody_appends_to_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Replaced between an append's segments and its manifest it would have a manifest of files that are gone."""
    log = _log(tmp_path / "log", parts=1)
    other = tmp_path / "other.csv"
    other.write_text("ts,user,name\n" + "".join(f"{200 + n},1,n\n" for n in range(9)))
    told: list[str] = []
    keep = manifest.keep

    def meanwhile(folder: Path, one: manifest.Manifest) -> None:
        with pytest.raises(LogError) as refused:
            Log.write(log.path, {Pay: other}, overwrite=True)
        told.append(refused.value.code)
        keep(folder, one)

    monkeypatch.setattr(manifest, "keep", meanwhile)
    assert len(log.append({Pay: other})) == len(log) + 9
    assert told == ["TL406"]
    assert len(Log.open(log.path)) == len(log) + 9
    assert len(Log.write(log.path, {Pay: other}, overwrite=True)) == 9
    assert len(Log.open(log.path)) == 9


def test_the_lock_of_a_log_that_was_replaced_holds_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who opened the lock before the folder was replaced, and takes it afterwards, would change the new log beside others."""
    place, new = tmp_path / "log", tmp_path / "new"
    place.mkdir()
    new.mkdir()
    flock = fcntl.flock

    def late(handle: int, how: int) -> None:
        shutil.rmtree(place)
        new.rename(place)
        flock(handle, how)

    monkeypatch.setattr(fcntl, "flock", late)
    with pytest.raises(LogError) as refused, locked(place):
        pass
    assert refused.value.code == "TL406"
    monkeypatch.setattr(fcntl, "flock", flock)
    with locked(place):
        pass
