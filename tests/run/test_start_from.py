"""A replay that starts from a run gives what one replay over all events gives: to the last bit, for every program."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import timelapse as tl
from tests.cli.run_cli import cli
from tests.depth import FULL, deep, some
from tests.programs.catalogue import CATALOGUE, Entry
from tests.programs.data import make
from tests.tuned import tune_cache
from tests.writers.anything import any_program
from tests.writers.sources import load_source, random_events
from timelapse.analysis import analyse
from timelapse.errors import (
    EventOrderError,
    HandlerError,
    ReplayError,
    StorageError,
    TooManyQuarantined,
    UsageError,
)
from timelapse.log import Log
from timelapse.program.program import spec_of
from timelapse.program.times import kept
from timelapse.run import Run, replay, run_serial
from timelapse.run.files import check_files
from timelapse.testing import assert_same

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EVENTS, KEYS = 300, 5


def _same(whole: Run, found: Run, what: str) -> None:
    assert_same(whole, found, names=("serial", what))
    assert (found.digest, found.state_digest, found.pending) == (
        whole.digest,
        whole.state_digest,
        whole.pending,
    )
    assert (found.counts, found.rejected_count, found.events) == (
        whole.counts,
        whole.rejected_count,
        whole.events,
    )


@pytest.mark.parametrize("entry", some(CATALOGUE, first=0), ids=lambda e: e.name)
def test_going_on_equals_one_replay(entry: Entry, tmp_path: Path) -> None:
    """From several cuts, one pass and slices on either side, twice in a row."""
    program, made = entry.program(), make(entry.mix(KEYS), EVENTS, seed=11)
    events = made.events(entry.classes())
    whole = run_serial(program, events)
    looks = bool(kept(program))
    ways = [
        (EVENTS // 2, 1, 1, None), (EVENTS // 3, 3, 1, None), (EVENTS // 2, 1, 3, None), (EVENTS - 7, 2, 2, "chain"),
        (EVENTS // 3, 2, 3, None if spec_of(program).times else "staged"),
    ]  # fmt: skip
    for at, before, after, strategy in some(ways, 2, CATALOGUE.index(entry) // FULL % 2):
        first = replay(
            program, events[:at], tmp_path / f"a{at}-{before}{after}", before, spark=False, resumable=looks
        )
        found = replay(
            program, events[at:], tmp_path / f"b{at}-{before}{after}", after, spark=False, strategy=strategy,
            start_from=first,
        )  # fmt: skip
        _same(whole, found, f"{at} events in {before} slices, then {after}, {strategy}")
        told = found.certificate["start_from"]
        assert bool(told["reason"]) == (analyse(type(program)).serial_only is not None), told["reason"]
        if not told["reason"]:
            assert found.manifest.cuts[: before + 1] == first.manifest.cuts
            assert found.certificate["fallback"] is None
    parts = [events[:70], events[70:80], events[80:80], events[80:]]
    run: Run | None = None
    for number, part in enumerate(parts):
        run = replay(program, part, tmp_path / f"c{number}", 2, spark=False, start_from=run, resumable=looks)
    assert run is not None
    _same(whole, run, "four replays, one of nothing")


@pytest.mark.parametrize("seed", range(deep(12)))
def test_random_programs_go_on(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(seed)
    program = load_source(any_program(rng))
    monkeypatch.setenv("TIMELAPSE_KERNEL", rng.choice(("interpreted", "python")))
    events = random_events(program, random.Random(seed), 24)
    try:
        whole = run_serial(program, events)
    except HandlerError:  # a few of these programs raise
        return
    for number in range(2):
        at, before, after = rng.randint(1, 23), rng.randint(1, 3), rng.randint(1, 4)
        first = replay(program, events[:at], tmp_path / f"a{number}", before, spark=False, resumable=True)
        found = replay(program, events[at:], tmp_path / f"b{number}", after, spark=False, start_from=first)
        _same(whole, found, f"seed {seed}: {at} events in {before} slices, then {after}")


class Hit(tl.Event):
    who: int
    size: int


class Late(tl.Record):
    who: int
    n: int
    recent: int


class Watch(tl.Program):
    most: int = 3
    seen: tl.Counter[int]
    names: tl.Set[int]

    @tl.on(Hit)
    def hit(self, e: Hit) -> None:
        self.seen[e.who] += e.size
        recent = self.seen.last(100)[e.who]
        if recent > self.most and e.who not in self.names:
            self.names.add(e.who)
            self.emit(Late(who=e.who, n=self.seen[e.who], recent=recent))

    @tl.on(Hit, after=15)
    def forget(self, e: Hit) -> None:
        self.names.discard(e.who)

    @tl.every(tl.SECOND // 50_000)
    def tick(self) -> None:
        self.seen[-1] += 1


class Plain(tl.Program):
    seen: tl.Counter[int]

    @tl.on(Hit)
    def hit(self, e: Hit) -> None:
        if e.size == 13:
            raise ValueError("unlucky")
        self.seen[e.who] += 1
        if self.seen[e.who] % 7 == 0:
            self.emit(Late(who=e.who, n=self.seen[e.who], recent=0))


def _path(run: Run) -> Path:
    assert run.path is not None
    return run.path


def _hits(count: int, start: int = 0) -> list[Hit]:
    return [Hit(who=n * 7 % 11, size=n % 3, ts=start + n * 3 // 2) for n in range(count)]


def test_a_log_that_grew_and_a_log_that_follows(tmp_path: Path) -> None:
    """Events appended to the run's log, and another stored log: both can be opened, verified and asked again."""
    events = _hits(200)
    whole = run_serial(Watch, events)
    log = Log.from_events(tmp_path / "log", events[:120])
    first = replay(Watch, log, tmp_path / "first", spark=False, resumable=True)
    rest = tmp_path / "rest.csv"
    rest.write_text("ts,who,size\n" + "".join(f"{e.ts},{e.who},{e.size}\n" for e in events[120:]))
    other = Log.from_events(tmp_path / "other", events[120:])
    apart = replay(Watch, other, tmp_path / "apart", 2, spark=False, start_from=first.path, resumable=True)
    grown = log.append({Hit: rest})
    assert grown.count == 200
    same = replay(Watch, grown, tmp_path / "same", 2, spark=False, start_from=first)
    for run in (apart, same):
        _same(whole, run, "log")
        assert run.path is not None
        opened = Run.open(run.path)
        assert opened.verify().ok
        late = opened.stored("Late")["who"][0].as_py()
        assert opened.state("seen") == whole.state("seen")
        at = events[150].ts
        assert opened.state("seen", at=at) == whole.state("seen", at=at)
        assert opened.why(f"Late:who={late}").text
    assert Run.of(_path(first)).verify().ok, "the run over the log as it was"
    more = _hits(50, events[-1].ts + 1)
    third = replay(
        Watch, Log.from_events(tmp_path / "third", more), tmp_path / "3", spark=False, start_from=apart
    )
    _same(run_serial(Watch, [*events, *more]), third, "a third log")
    assert Run.of(_path(third)).verify().ok
    for run in (apart, same, third):
        assert check_files(run).ok, "files are what the manifest says"
    nothing = replay(Watch, grown, tmp_path / "nothing", spark=False, start_from=same, resumable=True)
    _same(whole, nothing, "nothing new")


def test_without_what_windows_need_everything_is_replayed(tmp_path: Path) -> None:
    events = _hits(80)
    first = replay(Watch, events[:50], tmp_path / "first", spark=False)
    found = replay(Watch, events[50:], tmp_path / "second", spark=False, start_from=first)
    _same(run_serial(Watch, events), found, "all again")
    assert "resumable" in found.certificate["start_from"]["reason"]
    assert "resumable" in found._repr_html_()


def test_a_cache_does_not_stand_in_the_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that was found in the cache has no rows to keep: one that is to be gone on from does without."""
    monkeypatch.setenv("TIMELAPSE_STATES", str(tmp_path / "cache"))
    tune_cache(tmp_path / "cache")
    events = _hits(200)
    log = Log.from_events(tmp_path / "log", events[:150])
    for number in range(3):
        first = replay(Watch, log, tmp_path / f"first{number}", 3, spark=False, resumable=True)
    found = replay(Watch, events[150:], tmp_path / "second", spark=False, start_from=first)
    _same(run_serial(Watch, events), found, "cache")
    assert not found.certificate["start_from"]["reason"]


def test_the_clock_goes_on_from_where_it_stood(tmp_path: Path) -> None:
    """`until` of the first run; an event before it is refused."""
    events = _hits(60)
    until = events[39].ts + 37
    later = [Hit(who=1, size=1, ts=until + n) for n in range(20)]
    first = replay(Watch, events[:40], tmp_path / "first", 2, spark=False, until=until, resumable=True)
    for slices in (1, 3):
        found = replay(
            Watch, later, tmp_path / f"s{slices}", slices, spark=False, start_from=first, until=until + 99
        )
        _same(run_serial(Watch, [*events[:40], *later], until=until + 99), found, "until")
    with pytest.raises(EventOrderError) as early:
        replay(Watch, [Hit(who=1, size=1, ts=until - 1)], tmp_path / "no", spark=False, start_from=first)
    assert early.value.code == "TL408"
    assert not (tmp_path / "no").exists()


def test_events_that_fail_are_taken_out_on_both_sides(tmp_path: Path) -> None:
    events = [Hit(who=n % 5, size=13 if n % 10 == 4 else 1, ts=n) for n in range(60)]
    whole = replay(Plain, events, tmp_path / "whole", spark=False, quarantine=True)
    first = replay(Plain, events[:30], tmp_path / "first", 2, spark=False, quarantine=True)
    found = replay(Plain, events[30:], tmp_path / "second", 2, spark=False, quarantine=True, start_from=first)
    _same(whole, found, "quarantine")
    assert found.quarantined_count == whole.quarantined_count == 6
    assert found.quarantined.equals(whole.quarantined)
    with pytest.raises(TooManyQuarantined):
        replay(
            Plain,
            events[30:],
            tmp_path / "few",
            spark=False,
            quarantine=True,
            start_from=first,
            max_quarantined=5,
        )
    with pytest.raises(ReplayError) as refused:
        replay(Plain, events[30:], tmp_path / "no", spark=False, start_from=first)
    assert refused.value.code == "TL515"


def test_what_cannot_be_gone_on_from(tmp_path: Path) -> None:
    """Another program, other parameters, a run in memory, earlier events, a file that was altered."""
    events = _hits(60)
    first = replay(Watch, events[:40], tmp_path / "first", spark=False, resumable=True)
    for program in (Plain, Watch(most=4)):
        with pytest.raises(ReplayError) as other:
            replay(program, events[40:], tmp_path / "no", spark=False, start_from=first)
        assert other.value.code == "TL515"
    with pytest.raises(UsageError):
        replay(Watch, events[40:], tmp_path / "no", spark=False, start_from=run_serial(Watch, events[:40]))
    with pytest.raises(EventOrderError):
        replay(Watch, events[:5], tmp_path / "no", spark=False, start_from=first)
    assert first.path is not None
    (path,) = (first.path / "state" / "seen").iterdir()
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(StorageError) as altered:
        replay(Watch, events[40:], tmp_path / "no", spark=False, start_from=first)
    assert altered.value.code == "TL931"
    assert not (tmp_path / "no").exists()


def test_a_run_goes_on_in_its_own_place(tmp_path: Path) -> None:
    events = _hits(90)
    run = replay(Plain, events[:30], tmp_path / "run", spark=False)
    for lo in (30, 60):
        run = replay(
            Plain, events[lo : lo + 30], tmp_path / "run", spark=False, start_from=run, overwrite=True
        )
    _same(run_serial(Plain, events), Run.open(tmp_path / "run"), "in place")


def test_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernels that are compiled begin with the states at the run's end too."""
    monkeypatch.setenv("TIMELAPSE_KERNEL", "native")
    events = _hits(400)
    for program in (Watch, Plain):
        whole = run_serial(program, events)
        first = replay(
            program, events[:250], tmp_path / f"{program.__name__}-1", 2, spark=False, resumable=True
        )
        for slices in (1, 2):
            out = tmp_path / f"{program.__name__}-2{slices}"
            found = replay(program, events[250:], out, slices, spark=False, start_from=first)
            _same(whole, found, "compiled")
            assert not found.certificate["start_from"]["reason"]
            assert program is Watch or set(found.passes.values()) == {"compiled"}


def test_tasks_of_spark_go_on(tmp_path: Path, spark: SparkSession) -> None:
    events = _hits(300)
    for program in (Watch, Plain):
        whole = run_serial(program, events)
        log = Log.from_events(tmp_path / program.__name__ / "a", events[:200])
        rest = Log.from_events(tmp_path / program.__name__ / "b", events[200:])
        first = replay(program, log, tmp_path / program.__name__ / "1", 2, spark, resumable=True)
        found = replay(program, rest, tmp_path / program.__name__ / "2", 3, spark, start_from=first)
        _same(whole, found, "Spark")
        assert not found.certificate["start_from"]["reason"]


def test_on_the_command_line(tmp_path: Path) -> None:
    rules = tmp_path / "rules.py"
    rules.write_text(
        "import timelapse as tl\n\nclass Hit(tl.Event):\n    who: int\n    size: int\n\n"
        "class P(tl.Program):\n    n: tl.Counter[int]\n\n    @tl.on(Hit)\n    def hit(self, e):\n"
        "        self.n[e.who] += e.size\n"
    )
    events = _hits(60)
    Log.from_events(tmp_path / "a", events[:40])
    Log.from_events(tmp_path / "b", events[40:])
    made = cli("replay", f"{rules}:P", tmp_path / "a", "--out", tmp_path / "first", "--resumable")
    assert made.code == 0, made.err
    found = cli(
        "replay",
        f"{rules}:P",
        tmp_path / "b",
        "--out",
        tmp_path / "second",
        "--start-from",
        tmp_path / "first",
    )
    assert found.code == 0, found.err
    assert "40 events in 1 slice are of that run" in " ".join(found.out.split())
    checked = cli("verify", tmp_path / "second")
    assert checked.code == 0, checked.err
