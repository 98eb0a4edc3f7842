"""Segments that end where a day, a week or a month does: the same log in files that a time has for itself, on whichever way it is made."""

from __future__ import annotations

import calendar
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import timelapse as tl
from tests.cli.run_cli import cli
from timelapse.errors import IngestError, UsageError
from timelapse.ids import DAY, HOUR, INT64_MAX, INT64_MIN
from timelapse.ingest import late, runs, task
from timelapse.log import Log, Source
from timelapse.segments import periods, segment
from timelapse.segments.periods import Period

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Pay(tl.Event):
    id: int
    who: str


class Mark(tl.Event):
    pass


EVENTS = "import timelapse as tl\nclass Pay(tl.Event):\n    id: int\n    who: str\nclass Mark(tl.Event):\n    pass\n"
START = 20_454 * DAY  # 2026-01-01


def _start(text: str, ts: int) -> object:
    """The period in which a time lies, by Python's calendar."""
    at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=ts)
    if text == "1mo":
        return at.year, at.month
    if text == "1w":
        return at.date() - timedelta(days=calendar.weekday(at.year, at.month, at.day))
    return ts // (DAY if text == "1d" else 6 * HOUR)


@pytest.mark.parametrize("text", ["6h", "1d", "1w", "1mo"])
def test_periods_are_those_of_the_calendar(text: str) -> None:
    rng = random.Random(text)
    times = sorted(rng.randrange(-200 * DAY, 800 * DAY) for _ in range(3000))
    times += [d * DAY - 1 for d in range(20_000, 20_100)] + [d * DAY for d in range(20_000, 20_100)]
    times.sort()
    period = Period.of(text)
    assert period.text == text
    expected = [n for n in range(1, len(times)) if _start(text, times[n]) != _start(text, times[n - 1])]
    assert period.starts(np.asarray(times)) == expected
    assert len(expected) > 20
    parts = period.parts(np.asarray(times))
    assert [lo for lo, _ in parts] == [0, *expected]
    assert parts[-1][1] == len(times)
    extremes = period.numbers(np.asarray([INT64_MIN + 1, 0, INT64_MAX]))
    assert (np.diff(extremes) > 0).all()


@pytest.mark.parametrize("text", ["", "1", "d", "0d", "-1d", "1.5d", "1m", "1 d", "1y", "10000d", 7, "1d\n"])
def test_what_is_no_period_is_an_error(text: Any, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="segment=") as raised:
        Log.write(tmp_path / "log", {Pay: _rows(tmp_path / "a.csv", [1])}, segment=text)
    assert raised.value.code == "TL808"
    assert not (tmp_path / "log").exists()


def _rows(path: Path, times: list[int], first: int = 0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("ts,id,who\n" + "".join(f"{ts},{first + n},u{n % 7}\n" for n, ts in enumerate(times)))
    return path


def _check(log: Log, text: str) -> None:
    """Each segment lies in one period; none but the first and those of a full size begins within one that the segment before has."""
    assert log.manifest.segment == text
    assert log.info().segment == text
    for one in log.manifest.segments:
        assert _start(text, one.ts_first[0]) == _start(text, one.ts_last[-1])


@pytest.mark.parametrize("seed", range(6))
def test_the_log_is_the_same_however_it_is_cut(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Written, appended to, with late rows and corrected files, in blocks and segments of any size."""
    rng = random.Random(seed)
    text = rng.choice(["6h", "1d", "1w", "1mo"])
    for module in (late, segment, task, runs):
        if hasattr(module, "BLOCK_EVENTS"):
            monkeypatch.setattr(module, "BLOCK_EVENTS", block := rng.choice([5, 40, 1000]))
        monkeypatch.setattr(module, "SEGMENT_EVENTS", rng.choice([block, 3 * block]))

    def times() -> list[int]:
        at = START + rng.randrange(40) * DAY
        most = rng.choice([HOUR, DAY, 20 * DAY])
        found = [at + rng.randrange(most) for _ in range(rng.randrange(1, 120))]
        return [t - t % DAY if rng.random() < 0.1 else t for t in found]

    files = [_rows(tmp_path / "raw" / f"{n}.csv", times(), 1000 * n) for n in range(5)]
    mark = tmp_path / "raw" / "mark.csv"
    mark.write_text("ts\n" + "".join(f"{t}\n" for t in times()))
    plain = Log.write(tmp_path / "plain", {Pay: files[:2], Mark: mark})
    cut = Log.write(tmp_path / "cut", {Pay: files[:2], Mark: mark}, segment=text)
    _check(cut, text)
    assert cut.id == plain.id
    for file in files[2:]:
        plain, cut = plain.append({Pay: file}), cut.append({Pay: file})
        _check(cut, text)
        assert cut.id == plain.id
    _rows(files[1], times(), 5000)
    again = {"Pay": [str(files[1])]}
    plain, cut = (log.append({Pay: files[1]}, corrected=again) for log in (plain, cut))
    _check(cut, text)
    assert cut.id == plain.id
    cut, plain = (log.forget("id == 1001 or id == 5000") for log in (cut, plain))
    _check(cut, text)
    assert cut.id == plain.id
    assert [e._values() for e in cut.events()] == [e._values() for e in plain.events()]
    cut, plain = cut.keep(5 * 86_400), plain.keep(5 * 86_400)
    _check(cut, text)
    assert cut.id == plain.id


@pytest.mark.parametrize("unique", [(), ("id",)])
def test_segments_are_cut_on_spark_too(unique: tuple[str, ...], tmp_path: Path, spark: SparkSession) -> None:
    rng = random.Random(3)
    times = [START + rng.randrange(12 * DAY) for _ in range(400)]
    source = Source(_rows(tmp_path / "a.csv", times), unique=unique)
    here = Log.write(tmp_path / "here", {Pay: source}, segment="1d")
    there = Log.write(tmp_path / "there", {Pay: source}, spark, partitions=3, segment="1d")
    _check(there, "1d")
    assert there.id == here.id
    assert len(here.manifest.segments) == len({t // DAY for t in times})
    assert len(here.manifest.segments) <= len(there.manifest.segments) <= len(here.manifest.segments) + 2


def test_events_at_hand_and_outputs_are_cut_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(4)
    times = sorted(START + rng.randrange(12 * DAY) for _ in range(300))
    events = [Pay(id=n, who="w", ts=t, seq=n) for n, t in enumerate(times)]
    plain, cut = (
        Log.from_events(tmp_path / "a", events),
        Log.from_events(tmp_path / "b", events, segment="1d"),
    )
    _check(cut, "1d")
    assert cut.id == plain.id
    assert cut.manifest.segment == "1d"
    run = tl.replay(Copy(), plain, tmp_path / "run")
    copies = {Copied: Pay}
    made = Log.from_run(run, copies, tmp_path / "c", segment="1w")
    _check(made, "1w")
    assert made.id == Log.from_run(run, copies, tmp_path / "d").id
    assert made.append({Pay: _rows(tmp_path / "a.csv", times)}).manifest.segment == "1w"
    with pytest.raises(UsageError, match="which is no period"):
        Log.from_events(tmp_path / "no", events, segment="day")
    monkeypatch.setattr(periods, "MOST", 3)
    with pytest.raises(IngestError, match="segments of these events, more than 3"):
        Log.from_events(tmp_path / "no", events, segment="1d")
    with pytest.raises(IngestError, match="segments of these events, more than 3"):
        Log.from_run(run, copies, tmp_path / "no", segment="1d")
    assert not (tmp_path / "no").exists()


class Copied(tl.Record):
    id: int
    who: str


class Copy(tl.Program):
    @tl.on(Pay)
    def copy(self, e: Pay) -> None:
        self.emit(Copied(id=e.id, who=e.who))


def test_a_log_of_outputs_is_cut_from_the_command_line(tmp_path: Path) -> None:
    """`derive --segment`: the log that Python makes, whose files end where days do; what is no period is refused."""
    times = sorted(START + n * DAY // 3 for n in range(20))
    log = Log.write(tmp_path / "log", {Pay: _rows(tmp_path / "a.csv", times)})
    run = tl.replay(Copy(), log, tmp_path / "run")
    (tmp_path / "events.py").write_text(EVENTS)
    derive = ("derive", tmp_path / "events.py", tmp_path / "cut", run.path, "Pay=Copied")
    assert "which is no period" in cli(*derive, "--segment", "day").err
    assert not (tmp_path / "cut").exists()
    made = cli(*derive, "--segment", "1d")
    assert made.code == 0, made.err
    cut = Log.open(tmp_path / "cut")
    _check(cut, "1d")
    assert len(cut.manifest.segments) == 7
    assert cut.manifest.segment == "1d"
    assert cut.id == Log.from_run(run, {Copied: Pay}, tmp_path / "plain").id


def test_a_time_that_is_asked_for_touches_its_files_alone(tmp_path: Path) -> None:
    rng = random.Random(5)
    times = [START + rng.randrange(8 * DAY) for _ in range(2000)]
    log = Log.write(tmp_path / "log", {Pay: _rows(tmp_path / "a.csv", times)}, segment="1d")
    since, before = START + 2 * DAY, START + 4 * DAY
    expected = sorted(t for t in times if since <= t < before)
    opened = Log.open(tmp_path / "log")
    for one in log.manifest.segments:
        if not since <= one.ts_first[0] < before:
            for file in (tmp_path / "log" / "segments" / one.folder).iterdir():
                file.unlink()
    part = opened.between(since, before)
    assert [e.ts for e in part.events(Pay)] == expected
    assert part.count == len(expected)


class Sum(tl.Program):
    paid: tl.Counter[str]

    @tl.on(Pay)
    def add(self, e: Pay) -> None:
        self.paid[e.who] += 1


def test_slices_of_a_replay_end_where_periods_do(tmp_path: Path) -> None:
    """Eight days of about as many events: four slices are two days each, in the whole log and in a part of it; late rows leave what is before their day."""
    rng = random.Random(7)
    times = [START + rng.randrange(8 * DAY) for _ in range(4000)]
    file = _rows(tmp_path / "a.csv", times)
    plain = Log.write(tmp_path / "plain", {Pay: file})
    log = Log.write(tmp_path / "log", {Pay: file}, segment="1d")
    run = tl.replay(Sum, log, slices=4, cache=False)
    starts = [sum(t < START + d * DAY for t in times) for d in range(9)]
    assert list(run._manifest.cuts) == [starts[0], starts[2], starts[4], starts[6], starts[8]]
    even = tl.replay(Sum, plain, slices=4, cache=False)
    assert list(even._manifest.cuts) == [0, 1000, 2000, 3000, 4000]
    assert run.digest == even.digest
    assert run.verify().ok
    part = log.between(START + 2 * DAY, START + 8 * DAY)
    assert set(tl.replay(Sum, part, slices=3, cache=False)._manifest.cuts) <= set(starts)
    # an odd number of slices has no boundary near a period's
    assert not set(tl.replay(Sum, log, slices=16, cache=False)._manifest.cuts[1:2]) & set(starts)


# --- the command ------------------------------------------------------------------------------------------


def test_the_command_and_a_definition_cut_by_time(tmp_path: Path) -> None:
    (tmp_path / "events.py").write_text(EVENTS)
    _rows(tmp_path / "raw" / "1.csv", [START + n * HOUR for n in range(72)])
    done = cli(
        "ingest", tmp_path / "events.py", tmp_path / "one", f"Pay={tmp_path}/raw/1.csv", "--segment", "1d"
    )
    assert done.code == 0, done.err
    assert len(Log.open(tmp_path / "one").manifest.segments) == 3
    assert "3 segments of at most 1d" in cli("log", tmp_path / "one").out
    assert cli("log", tmp_path / "one", "--json").json["segment"] == "1d"
    path = tmp_path / "log.toml"
    text = 'events = "events.py"\nlog = "log"\n{}[[source]]\ntype = "Pay"\nfiles = "raw/*.csv"\n'
    path.write_text(text.format('segment = "1 day"\n'))
    refused = cli("ingest", path)
    assert refused.code != 0
    assert "TL415" in refused.err
    assert "segment is '1 day', which is no period" in refused.err
    path.write_text(text.format('segment = "1d"\n'))
    assert cli("ingest", path).code == 0
    _rows(tmp_path / "raw" / "2.csv", [START + 60 * HOUR + n * HOUR for n in range(48)])
    assert cli("ingest", path).code == 0
    log = Log.open(tmp_path / "log")
    assert (log.version, log.count) == (2, 120)
    _check(log, "1d")
    path.write_text(text.format(""))
    said = cli("ingest", path)
    assert said.code == 0
    assert "for 1d each" in said.out
    assert "--overwrite" in said.out
    refused = cli("ingest", tmp_path / "events.py", tmp_path / "one", f"Pay={tmp_path}/raw/2.csv", "--append", "--segment", "1d")  # fmt: skip
    assert refused.code != 0
    assert "an append keeps to how the log is cut" in refused.err


def test_too_many_segments_are_an_error_that_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(periods, "MOST", 20)
    file = _rows(tmp_path / "a.csv", [START + n * DAY for n in range(30)])
    with pytest.raises(IngestError, match="1d makes 30 segments of these events, more than 20"):
        Log.write(tmp_path / "log", {Pay: file}, segment="1d")
    assert not (tmp_path / "log").exists()
    assert len(Log.write(tmp_path / "log", {Pay: file}, segment="1w").manifest.segments) == 5
