"""A newer version takes the place of the one before from a time on: its outputs replace what was put out."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import timelapse as tl
from tests.depth import deep
from tests.streaming import later_version as later
from tests.streaming import test_declared as declared
from tests.streaming.test_evolution import FAST, First, Hit, Second, Seen, Tied, Wake, Wider, fed, hits, rows
from timelapse.errors import HandlerError, RunError, UsageError
from timelapse.run import run_serial
from timelapse.streaming.evolution import Migration
from timelapse.streaming.reading import Reading
from timelapse.streaming.shadow import Shadow
from timelapse.streaming.sinks import Parquet


@pytest.fixture(autouse=True)
def _interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIMELAPSE_KERNEL", "interpreted")


def counted(table: pa.Table, columns: list[str]) -> Counter[tuple[Any, ...]]:
    return Counter(zip(*(table.column(c).to_pylist() for c in columns), strict=True))


def check_feed(found: Reading) -> tuple[int, int]:
    """Additions minus retractions are what counts. Returns how many of each there are."""
    feed = found.feed(Seen)
    keys = ["ts", "phase", "who", "n"]
    added, gone = (
        feed.filter(pa.array([c == change for c in feed.column("@change").to_pylist()])) for change in (1, -1)
    )
    assert counted(added, keys) - counted(gone, keys) == counted(found.outputs(Seen), keys)
    assert not counted(gone, keys) - counted(added, keys)
    return added.num_rows, gone.num_rows


@pytest.mark.parametrize("late", ["side", "correct"])
@pytest.mark.parametrize("seed", range(deep(4)))
def test_outputs_from_a_time_on_are_those_of_the_newer_version(seed: int, late: Any, tmp_path: Path) -> None:
    rng, out = random.Random(seed), tmp_path / "out"
    events = hits(rng, 90, 1_000)
    extra = [Hit(who=1, size=2, ts=1_003 + n * 70) for n in range(3)] if late == "correct" else []
    options: dict[str, Any] = {"late": late, "correct_rows": 3}
    fed(First(), out, events[:30], parts=6, **options)
    if extra:
        push = tl.Push()
        with tl.live(First(), {Hit: push}, out, **FAST, **options) as run:
            push.send(extra)
            run.until(lambda e: e.version > 0)
    fed(First(), out, events[30:50], parts=rng.choice([1, 4]), **options)
    before = Reading.open(out, First())
    since = rng.choice([0, 1_004, 1_100, 1_001 + rng.randrange(47 * 7)])
    last = before.last
    assert last is not None
    at = since - 1
    if any((p.about.complete or 0) >= since for p in before.epochs() if p.about.correction is not None):
        at = min(since, extra[0].ts) - 1  # it put rows in later: it begins with the first of them
    shadow = Shadow(out, Wider(), "beside")
    shadow.follow()
    evolve: Any = Migration(before=First())
    fed(Second(), out, events[50:70], evolve=evolve, reprocess_from=since, **options)
    fed(Second(), out, events[70:80], **options)
    fed(Second(), out, events[80:], rebuild=True, **options)
    found = Reading.open(out, Second())
    end = found.last
    assert end is not None
    journal = sorted([*events, *extra], key=lambda e: (e.ts, e not in events))
    done = [e for e in journal if e.ts <= (end.complete or 0)]
    serial = run_serial(Tied(at=at), done, until=end.complete)
    assert rows(found.outputs(Seen)) == rows(serial.table(Seen))
    added, gone = check_feed(found)
    assert added > gone
    changed = next(iter(found.epochs(end.last_change, end.last_change))).about
    assert changed.correction is not None
    assert "is processed again" in changed.decisions[-1]
    assert changed.end_seq == last.end_seq
    assert found.parity().same, found.parity().text
    assert found.journal().count == end.end_seq
    shadow.follow()
    assert shadow.progress().digest == run_serial(Wider(), done, until=end.complete).digest
    with pytest.raises(RunError, match="cannot process again what came before epoch") as caught:
        tl.live(
            First(),
            {Hit: tl.Push()},
            out,
            evolve=Migration(drop=["greatest"], before=Second()),
            reprocess_from=since,
            **FAST,
        ).wait()
    assert caught.value.code == "TL847"


def test_rows_between_two_versions_are_read_by_both(tmp_path: Path) -> None:
    """Event types grow, a record has a field more, `after=` handlers are called for rows of before: all outputs since are replaced."""
    out = tmp_path / "out"
    first, second, refunds = declared.made(5)
    declared.fed(declared.First(), out, {declared.Hit: first}, parts=6)
    since = first[30].ts + 3
    streams: dict[type[tl.Event], Any] = {later.Hit: second, later.Refund: refunds}
    evolve = Migration(before=declared.First())
    declared.fed(later.Later(), out, streams, evolve=evolve, reprocess_from=since)
    found = Reading.open(out, later.Later())
    last = found.last
    assert last is not None
    events = sorted(
        [*map(declared.as_later, first), *second, *refunds], key=lambda e: (e.ts, type(e) is later.Refund)
    )
    done = [e for e in events if e.ts <= (last.complete or 0)]
    serial = run_serial(later.Tied(at=since - 1), done, until=last.complete)
    assert declared.rows(found.outputs(Seen)) == declared.rows(serial.table(later.Seen))
    check_feed(found)
    assert found.parity().same


class Failing(tl.Program):
    """It cannot take some of the events that the version before could."""

    n: tl.Counter[int]
    marked: tl.Set[int]

    @tl.on(Hit)
    def hit(self, e: Hit) -> None:
        self.n[e.who] += e.size
        if e.size == 3 and e.who == 1:
            raise ValueError("not this one")
        self.emit(Seen(who=e.who, n=self.n[e.who]))


class Plain(tl.Program):
    n: tl.Counter[int]
    marked: tl.Set[int]

    @tl.on(Hit)
    def hit(self, e: Hit) -> None:
        self.n[e.who] += e.size


def test_events_that_fail_now_are_taken_out_or_nothing_changes(tmp_path: Path) -> None:
    out = tmp_path / "out"
    events = hits(random.Random(2), 60, 1_000)
    fed(Plain(), out, events[:40], parts=5)
    number = Reading.open(out, Plain()).last
    evolve: Any = Migration(before=Plain())
    with pytest.raises(HandlerError, match="not this one"):
        tl.live(Failing(), {Hit: tl.Push()}, out, evolve=evolve, reprocess_from=0, **FAST).wait()
    assert Reading.open(out, Plain()).last == number
    fed(Failing(), out, events[40:], evolve=evolve, reprocess_from=0, quarantine=True)
    found = Reading.open(out, Failing())
    end = found.last
    assert end is not None
    done = [e for e in events if e.ts <= (end.complete or 0)]
    serial = run_serial(Failing(), done, until=end.complete, quarantine=True)
    assert rows(found.outputs(Seen)) == rows(serial.table(Seen))
    assert serial.counts["Seen"] < len(done)


def test_the_version_before_had_taken_events_out(tmp_path: Path) -> None:
    """They stay out of its states, whether or not anything is processed again."""
    events = hits(random.Random(2), 80, 1_000)
    for number, since in enumerate((None, events[30].ts)):
        out = tmp_path / str(number)
        fed(Failing(), out, events[:60], parts=5, quarantine=True)
        evolve: Any = Migration(before=Failing())
        push = tl.Push()
        with tl.live(Counting(), {Hit: push}, out, evolve=evolve, reprocess_from=since, **FAST) as run:
            push.send(events[60:])
            run.until(lambda e: e.end_seq == len(events) - 1)
            last = run.last
            counts = run.state("n")
        assert last is not None
        changed = chain_at(run, last.last_change)
        at = changed.complete if since is None else since - 1
        expected: Counter[int] = Counter()
        for e in events[:-1]:
            if e.ts > (at or 0) or not (e.size == 3 and e.who == 1):
                expected[e.who] += e.size
        assert counts == {who: n for who, n in expected.items() if n}
        assert run.parity().same


def chain_at(run: Reading, number: int) -> Any:
    return next(iter(run.epochs(number, number))).about


class Counting(tl.Program):
    n: tl.Counter[int]
    marked: tl.Set[int]

    @tl.on(Hit)
    def hit(self, e: Hit) -> None:
        self.n[e.who] += e.size
        self.emit(Seen(who=e.who, n=self.n[e.who]))


def test_what_is_refused_and_said(tmp_path: Path) -> None:
    out, told = tmp_path / "out", list[str]()
    events = hits(random.Random(1), 40, 1_000)
    fed(First(), out, events[:20])

    class Told(tl.progress.Silent):
        def note(self, text: str) -> None:
            told.append(text)

    evolve: Any = Migration(before=First())
    with pytest.raises(UsageError, match="belongs to evolve"):
        tl.live(Second(), {Hit: tl.Push()}, out, reprocess_from=0, **FAST)
    with pytest.raises(UsageError, match="cannot take retractions") as caught:
        tl.live(
            Second(),
            {Hit: tl.Push()},
            out,
            evolve=evolve,
            reprocess_from=0,
            sinks=[Parquet(tmp_path / "to")],
            **FAST,
        )
    assert caught.value.code == "TL846"
    fed(Second(), out, events[20:30], evolve=evolve, reprocess_from="1970-01-01T00:00:00.001050")
    count = Reading.open(out, Second()).last
    with tl.live(
        Second(), {Hit: tl.Push()}, out, evolve=evolve, reprocess_from=0, progress=Told(), **FAST
    ) as run:
        run.until(lambda e: True)
    assert any("is of this version already: nothing is processed again" in line for line in told)
    assert count is not None
    assert count.last_change == run.last.last_change if run.last else False
    # A sink that begins later meets what was taken back.
    with tl.live(
        Second(), {Hit: tl.Push()}, out, sinks=[Parquet(tmp_path / "to")], progress=Told(), **FAST
    ) as run:
        run.until(lambda e: run.sinks[0][2] is not None)
    assert any("takes back outputs that were put out before" in line for line in told)


def test_a_time_that_is_still_to_come(tmp_path: Path) -> None:
    """Nothing is processed again."""
    out, events = tmp_path / "out", hits(random.Random(1), 40, 1_000)
    fed(First(), out, events[:20])
    fed(Second(), out, events[20:], evolve=Migration(before=First()), reprocess_from=5_000)
    found = Reading.open(out, Second())
    assert found.last is not None
    changed = next(iter(found.epochs(found.last.last_change, found.last.last_change))).about
    assert changed.correction is None
    assert check_feed(found)[1] == 0


def test_a_run_that_goes_on_from_a_replay(tmp_path: Path) -> None:
    """What the replay has put out stays; its end is where the newer version may begin."""
    events = hits(random.Random(6), 90, 1_000)
    log = tl.Log.from_events(tmp_path / "log", events[:30])
    tl.replay(First(), log, tmp_path / "run", resumable=True, spark=False)
    out = tmp_path / "out"
    fed(First(), out, events[30:60], parts=5, start_from=tmp_path / "run")
    evolve: Any = Migration(before=First())
    fed(Second(), out, events[60:], evolve=evolve, reprocess_from=0)
    found = Reading.open(out, Second())
    end = found.last
    assert end is not None
    done = [e for e in events if e.ts <= (end.complete or 0)]
    at = events[29].ts
    serial = run_serial(Tied(at=at), done, until=end.complete)
    assert rows(found.outputs(Seen)) == [r for r in rows(serial.table(Seen)) if r[0] > at]
    assert found.parity().same


class Ticking(tl.Program):
    by: int = 1
    n: tl.Counter[int]

    @tl.on(Hit)
    def hit(self, e: Hit) -> None:
        self.n[e.who] += e.size

    @tl.every(10)
    def tick(self) -> None:
        self.n[7] += self.by
        self.emit(Seen(who=7, n=self.n[7]))


class TickingTied(tl.Program):
    at: int = 0
    n: tl.Counter[int]

    @tl.on(Hit)
    def hit(self, e: Hit) -> None:
        self.n[e.who] += e.size

    @tl.every(10)
    def tick(self) -> None:
        self.n[7] += 1 if self.now <= self.at else 1000
        self.emit(Seen(who=7, n=self.n[7]))


def test_ticks_between_the_end_of_a_replay_and_the_first_row(tmp_path: Path) -> None:
    """Those before the time are the older version's."""
    events = hits(random.Random(6), 20, 1_000)
    rest = hits(random.Random(7), 20, 1_340)
    log = tl.Log.from_events(tmp_path / "log", events)
    tl.replay(Ticking(), log, tmp_path / "run", resumable=True, spark=False)
    out, end = tmp_path / "out", events[-1].ts
    fed(Ticking(), out, rest[:10], parts=1, start_from=tmp_path / "run")
    since = end + 100
    fed(Ticking(by=1000), out, rest[10:], evolve=Migration(before=Ticking()), reprocess_from=since)
    found = Reading.open(out, Ticking(by=1000))
    last = found.last
    assert last is not None
    done = [e for e in [*events, *rest] if e.ts <= (last.complete or 0)]
    serial = run_serial(TickingTied(at=since - 1), done, until=last.complete)
    assert rows(found.outputs(Seen)) == [r for r in rows(serial.table(Seen)) if r[0] > end]
    assert found.parity().same


class Quiet(tl.Program):
    """It puts out nothing any more."""

    n: tl.Counter[int]
    marked: tl.Set[int]

    @tl.on(Hit)
    def hit(self, e: Hit) -> None:
        self.n[e.who] += e.size
        self.send(Wake(who=e.who), after=25, key=e.who)

    @tl.on(Wake)
    def wake(self, e: Wake) -> None:
        self.marked.add(e.who)


@pytest.mark.parametrize("since", [None, 0])
def test_what_only_versions_before_have_put_out(since: int | None, tmp_path: Path) -> None:
    """No outputs of a record are none, and not an error, where a version before has put some out."""
    out, events = tmp_path / "out", hits(random.Random(1), 60, 1_000)
    fed(First(), out, events[:40])
    before = Reading.open(out, First())
    had = before.outputs(Seen)
    fed(Quiet(), out, events[40:], evolve=Migration(before=First()), reprocess_from=since)
    found = Reading.open(out, Quiet())
    last = found.last
    assert last is not None
    assert found.feed(Seen, after=last.last_change).num_rows == 0
    assert found.outputs(Seen, after=last.last_change).column_names == had.column_names
    assert found.outputs(Seen).num_rows == (had.num_rows if since is None else 0)
    assert found.newest(Seen).num_rows == (4 if since is None else 0)
    with tl.live(Quiet(), {Hit: tl.Push()}, out, **FAST) as run:
        run.until(lambda e: True)
        if since is None:
            newest = run.latest("Seen", 3)[0].column("ts").to_pylist()
            assert newest == had.column("ts").to_pylist()[:-4:-1]
    with pytest.raises(UsageError, match="records so far: Seen"):
        found.outputs("Nothing")


class Delayed(tl.Program):
    by: int = 1
    n: tl.Counter[int]

    @tl.on(Hit)
    def hit(self, e: Hit) -> None:
        self.n[e.who] += self.by

    @tl.on(Hit, after=100)
    def later(self, e: Hit) -> None:
        self.emit(Seen(who=e.who, n=self.n[e.who]))


def test_parity_after_a_change_calls_handlers_for_events_of_the_replay_before(tmp_path: Path) -> None:
    events = hits(random.Random(6), 40, 1_000)
    log = tl.Log.from_events(tmp_path / "log", events[:20])
    tl.replay(Delayed(), log, tmp_path / "run", resumable=True, spark=False)
    out = tmp_path / "out"
    fed(Delayed(), out, events[20:24], start_from=tmp_path / "run")
    fed(Delayed(by=2), out, events[24:], evolve=Migration(before=Delayed()))
    found = Reading.open(out, Delayed(by=2))
    parity = found.parity()
    assert parity.same, parity.text


def test_a_shadow_takes_the_past_from_nobody(tmp_path: Path) -> None:
    """It is said before anything is made or started."""
    with pytest.raises(UsageError, match="what the version before has put out stays"):
        tl.live(Delayed(), {Hit: tl.Push()}, tmp_path / "out", promote="next", reprocess_from=1)
    with pytest.raises(UsageError, match="exclude each other"):
        tl.live(Delayed(), {Hit: tl.Push()}, tmp_path / "out", promote="next", evolve=True)
    with pytest.raises(UsageError, match="belongs to evolve="):
        tl.live(Delayed(), {Hit: tl.Push()}, tmp_path / "out", reprocess_from=1)
    assert not list(tmp_path.iterdir())
