"""Corrections: late rows in their places. The newest version of the journal is a sort of all rows, its replay gives the digest, and
additions minus retractions are its outputs: whatever the batches, crashes, lost answers and rival processes."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import timelapse as tl
from tests.depth import deep
from tests.streaming.simulator import Crash, Disk, SimulatedPlace
from tests.streaming.test_head import TYPES, Hit, Mark, Plain, Row, Seen, Timed, World, declare, opened, packs
from timelapse.errors import UsageError
from timelapse.program.program import as_program
from timelapse.run import run_serial
from timelapse.streaming.arrivals import PLACE
from timelapse.streaming.chain import Overtaken
from timelapse.streaming.checkpoints import compact
from timelapse.streaming.collecting import collect
from timelapse.streaming.correction import refuse_seq
from timelapse.streaming.format import Epoch
from timelapse.streaming.head import Head
from timelapse.streaming.live import Live
from timelapse.streaming.pack import Pack
from timelapse.streaming.reading import Reading
from timelapse.streaming.rules import Rules
from timelapse.streaming.sinks.callback import Callback
from timelapse.streaming.streams import Limits
from timelapse.streaming.sums import digest_of
from timelapse.streaming.versions import (
    EPOCH,
    REJECTED,
    REMOVED,
    Inserted,
    Shift,
    common,
    journalled,
    net,
    with_seq,
)


class Failing(tl.Program):
    """An event fails by what came before it: a correction changes which ones are taken out."""

    n: tl.Counter[int]

    @tl.on(Hit)
    def hit(self, e: Hit) -> None:
        self.n[e.who] += e.size
        if self.n[e.who] % 7 == 3 and e.ts > 1_010:  # not at the first instant: such events are not taken out
            raise ValueError("three")
        self.emit(Noted(who=e.who, n=self.n[e.who], recent=0))

    @tl.on(Mark, after=9)
    def marked(self, e: Mark) -> None:
        self.emit(Noted(who=e.who, n=-1, recent=self.n[e.who]))


class Noted(tl.Record):
    who: int
    n: int
    recent: int


def expected(world: World, rules: Rules) -> tuple[list[Row], list[Row]]:
    """The journal's newest version and the rows that are older than the horizon, by the rule, row by row."""
    journal, stale = [], []
    for rows in world.rows.values():
        greatest = None
        for row in rows:
            if row.bad or (rules.limits.ahead is not None and row.ts > 1_000 + rules.limits.ahead):
                continue
            mark: int | None = None if greatest is None else greatest - rules.lateness - 1
            if mark is not None and rules.horizon is not None and mark - row.ts >= rules.horizon:
                stale.append(row)  # or in its place, where its time was still to come
            journal.append(row)
            greatest = row.ts if greatest is None else max(greatest, row.ts)
    return journal, stale


def counted(rows: Sequence[Row], rules: Rules) -> list[Row]:
    """The rows that count, of those of the journal in its order: of several with the same values the first, and what is later than it by more than `within`."""
    known: dict[Any, int] = {}
    found = []
    for row in rows:
        fields = rules.once.get("Mark" if row.stream == 2 else "Hit")
        key = None if fields is None else (row.stream == 2, *(getattr(row, name) for name in fields))
        if key is None or key not in known or row.ts - known[key] > rules.within:
            found.append(row)
            known[key] = row.ts
    return found


def place_of(row: Row) -> tuple[int, int, int]:
    return row.stream, int(row.partition), row.offset


def newest_journal(whole: Sequence[Pack[Epoch]]) -> list[tuple[Any, ...]]:
    """The newest version of the journal, from the epochs: seq, place, time, who, and the size of a Hit."""
    inserted = Inserted(TYPES)
    inserted.add_all([p for p in whole if p.about.correction is not None])
    found: list[tuple[Any, ...]] = []
    before = None
    for pack in whole:
        if pack.about.correction is None and pack.about.complete is not None:
            taken = journalled(TYPES, pack, inserted, before, len(found))
            before = pack.about.complete
            found += [
                (r["seq"], r["@stream"], r["@partition"], r["@offset"], r["ts"], r["who"], r.get("size"))
                for table in taken.tables.values()
                for r in table.to_pylist()
            ]
    return found


def check(disk: Disk, world: World, program: tl.Program, rules: Rules, *, quarantine: bool = False) -> Epoch:
    """All that must hold at the end."""
    rows, doubtful = expected(world, rules)
    whole = list(packs(disk))
    last = whole[-1].about
    aside = {
        (r["@stream"], r["@partition"], r["@offset"])
        for pack in whole
        for name in pack.names("stale")
        for r in pack.table(f"stale/{name}").to_pylist()
    }
    assert aside <= {place_of(r) for r in doubtful}
    assert sum(p.stale for p in last.partitions) == len(aside)
    number = {0: 1, 1: 1, 2: 0}
    rows = [r for r in rows if place_of(r) not in aside]
    rows.sort(key=lambda r: (r.ts, number[r.stream], r.stream, int(r.partition), r.offset))
    whole_rows, rows = rows, counted(rows, rules)
    assert sum(p.duplicates for p in last.partitions) == len(whole_rows) - len(rows)
    # The journal as the epochs have it, version after version.
    found = newest_journal(whole)
    wanted = [(n, *place_of(r), r.ts, r.who, r.size if r.stream < 2 else None) for n, r in enumerate(rows)]
    assert sorted(found) == wanted
    assert last.end_seq == len(rows)
    events: list[tl.Event] = [
        Mark(who=r.who, ts=r.ts) if r.stream == 2 else Hit(who=r.who, size=r.size, ts=r.ts) for r in rows
    ]
    serial = run_serial(program, events, until=last.complete if events else None, quarantine=quarantine)
    assert digest_of(last) == serial.digest
    # Additions minus retractions, row by row.
    feed = net(iter(whole))
    classes: dict[str, type[tl.Record]] = {"Seen": Seen, "Noted": Noted}
    assert set(feed.names) - {REJECTED} == {name for name, count in serial.counts.items() if count}
    for name, count in serial.counts.items():
        if count:
            published = feed.of(name)
            assert published is not None
            ours = with_seq(published)
            theirs = serial.table(classes[name])
            columns = [c for c in theirs.column_names if c in ours.column_names and c != "ts"]
            assert ours.select(columns).to_pylist() == theirs.select(columns).to_pylist()
    # What a reader has that takes additions and retractions as they come, and knows nothing of versions.
    kept: Counter[tuple[Any, ...]] = Counter()
    for pack in whole:
        for name in pack.names("out"):
            for r in pack.table(f"out/{name}").to_pylist():
                kept[pack.about.number, name, *r.values()] += 1
        for name in pack.names("retracted"):
            for r in pack.table(f"retracted/{name}").to_pylist():
                kept[r.pop(EPOCH), name, *r.values()] -= 1
    assert all(count in (0, 1) for count in kept.values())
    assert sum(kept.values()) == sum(serial.counts.values())
    return last


def drive(
    world: World, disk: Disk, program: tl.Program, rules: Rules, *, crash: float = 0.0, trouble: float = 0.0, rivals: int = 1,
    often: float = 0.15, follows: bool = False, watch: Callable[[Head], None] = lambda _: None,
) -> int:  # fmt: skip
    """Run heads over a world until everything is read, committed and corrected. Returns how many corrections were tried. `watch` is called behind each epoch."""
    rng, told, tried = world.rng, list[str](), 0
    heads: list[Any] = [None] * rivals
    begun: list[Any] = [None] * rivals
    for _ in range(6_000):
        number = rng.randrange(rivals)
        place: Any = SimulatedPlace(disk, rng, crash, trouble)
        try:
            head = heads[number]
            if head is None:
                begun[number] = None
                head = heads[number] = opened(place, program, rules, told)
                if head.last is None or not head.partitions:
                    declare(head, world)
            if follows and head.follow():
                begun[number] = None
            positions = {at: p.position for at, p in head.partitions.items()}
            ended = world.done(positions)
            head.epoch(world.batches(positions), 1_000, ended=ended)
            if begun[number] is not None and (rng.random() < 0.4 or ended):
                head.correct(begun[number], 1_000)
                begun[number] = None
            elif begun[number] is None and (rng.random() < often or ended) and (plan := head.plan()):
                begun[number] = head.prepare(plan)
                tried += 1
            watch(head)
            if rng.random() < 0.3:
                head.checkpoint()
            if rng.random() < 0.1:
                compact(place, program)
                collect(place, corrected=rules.late == "correct", horizon=rules.horizon)
            if ended and not head.late.rows:
                return tried
            if rng.random() < 0.1:
                heads[number] = None
        except (Crash, OSError):
            heads[number] = None
        except Overtaken:
            heads[number] = None
    raise AssertionError("it does not end")


@pytest.mark.parametrize("program", [Plain, Timed])
@pytest.mark.parametrize("seed", range(deep(6)))
def test_the_newest_version_is_a_replay_of_all_rows(
    seed: int, program: type[tl.Program], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In other batches, with other restarts and at other times of correction: the same journal, the same digest."""
    monkeypatch.setenv("TIMELAPSE_KERNEL", "interpreted")
    rng = random.Random(seed)
    rules = Rules(lateness=rng.choice([0, 3]), late="correct", limits=Limits(rng.choice([None, 2_000]), None))
    rows = World.of(rng, 60, 30).rows
    digests = set()
    for again in range(2):
        disk = Disk()
        world = World(random.Random(again), rows)
        drive(world, disk, as_program(program), rules)
        digests.add(digest_of(check(disk, world, as_program(program), rules)))
    assert len(digests) == 1


@pytest.mark.parametrize("program", [Plain, Timed])
@pytest.mark.parametrize("seed", range(deep(8)))
def test_crashes_and_rivals(seed: int, program: type[tl.Program], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIMELAPSE_KERNEL", "interpreted")
    rng = random.Random(seed)
    rules = Rules(lateness=rng.choice([0, 5]), late="correct", horizon=rng.choice([None, 12]))
    world, disk = World.of(rng, 40, 30), Disk()
    drive(
        world, disk, as_program(program), rules, crash=rng.choice([0.0, 0.1, 0.3]), trouble=rng.choice([0.0, 0.2]),
        rivals=rng.randint(1, 3),
    )  # fmt: skip
    check(disk, world, as_program(program), rules)


@pytest.mark.parametrize("seed", range(deep(5)))
def test_events_that_fail(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which events are taken out is decided anew in each version."""
    monkeypatch.setenv("TIMELAPSE_KERNEL", "interpreted")
    rng = random.Random(seed)
    rules = Rules(late="correct", quarantine=10_000)
    world, disk = World.of(rng, 40, 30), Disk()
    drive(world, disk, as_program(Failing), rules, crash=rng.choice([0.0, 0.1]))
    check(disk, world, as_program(Failing), rules, quarantine=True)


@pytest.mark.parametrize("program", [Plain, Timed])
@pytest.mark.parametrize("seed", range(deep(10)))
def test_rows_that_came_twice(seed: int, program: type[tl.Program], monkeypatch: pytest.MonkeyPatch) -> None:
    """Of rows with the same values the first in the order of all rows counts, whenever late ones were put into their places, and whoever did it."""
    monkeypatch.setenv("TIMELAPSE_KERNEL", "interpreted")
    rng = random.Random(seed)
    once = rng.choice([{"Hit": ["who", "size"]}, {"Hit": ["who"], "Mark": ["who"]}, {"Hit": ["size"]}])
    rules = Rules(rng.choice([0, 3]), "correct", once=once, within=rng.choice([0, 2, 8, 25, 1_000]))
    rows = World.of(rng, 50, 40).rows
    digests = set()
    for again in range(2):
        disk, world = Disk(), World(random.Random(again), rows)
        drive(
            world, disk, as_program(program), rules, crash=rng.choice([0.0, 0.1]), rivals=rng.randint(1, 3), often=rng.choice([0.1, 0.6]),
            follows=rng.random() < 0.5,
        )  # fmt: skip
        digests.add(digest_of(check(disk, world, as_program(program), rules)))
    assert len(digests) == 1


def test_rows_lose_their_places_and_have_others() -> None:
    """The test above is not vacuous: rows of the journal are removed, rows that were left out count, late ones count nothing, and corrections change nothing."""
    removed = again = left = nothing = 0
    for seed in range(8):
        rng = random.Random(seed)
        world, disk = World.of(rng, 50, 40), Disk()
        rules = Rules(late="correct", once={"Hit": ["who"]}, within=8)
        drive(world, disk, as_program(Plain), rules, often=0.8, follows=True, rivals=2)
        out: set[tuple[int, ...]] = set()
        before: Epoch | None = None
        for pack in packs(disk):
            for part in ("inserted", "duplicate", "removed"):
                for name in pack.names(part):
                    table = pack.table(f"{part}/{name}")
                    at = list(zip(*(table.column(c).to_pylist() for c in PLACE), strict=True))
                    removed += len(at) if part == "removed" else 0
                    again += len(out & set(at)) if part == "inserted" else 0
                    left += len(at) if part == "duplicate" and pack.about.correction else 0
                    out = out - set(at) if part == "inserted" else out | set(at)
            if pack.about.correction is not None and not pack.names("inserted"):
                nothing += 1
                assert before is not None
                assert (pack.about.version, pack.about.last_correction) == (
                    before.version,
                    before.last_correction,
                )
            before = pack.about
    assert min(removed, left, again, nothing) > 1


def test_corrections_happen() -> None:
    """The tests above are not vacuous: some histories have several versions, retractions and rows beyond the horizon."""
    versions, retracted, stale = 0, 0, 0
    for seed in range(8):
        rng = random.Random(seed)
        world, disk = World.of(rng, 50, 30), Disk()
        drive(world, disk, as_program(Timed), Rules(late="correct", horizon=15), often=0.8)
        whole = list(packs(disk))
        versions = max(versions, whole[-1].about.version)
        retracted += sum(s.rows for p in whole for n, s in p.sections.items() if n.startswith("retracted/"))
        stale += sum(p.stale for p in whole[-1].about.partitions)
    assert versions >= 2
    assert retracted > 20
    assert stale > 5


def test_a_shift_is_what_a_correction_does() -> None:
    rng = random.Random(3)
    for _ in range(200):
        union = [rng.choice(["stays", "stays", "inserted", "removed"]) for _ in range(rng.randint(1, 40))]
        old = [kind for kind in union if kind != "inserted"]
        new = [kind for kind in union if kind != "removed"]
        sections = {
            f"{part}/Hit": pa.table({"seq": np.array([n for n, kind in enumerate(rows) if kind == part], np.int64)[::-1]})
            for part, rows in (("inserted", new), ("removed", old))
        }  # fmt: skip
        moved = Shift.of(sections)(np.arange(len(old))).tolist()
        kept = iter(n for n, kind in enumerate(new) if kind == "stays")
        assert moved == [next(kept) if kind == "stays" else REMOVED for kind in old]
        assert Shift.of(sections)(np.array([-1, REMOVED])).tolist() == [-1, REMOVED]


def test_common_rows_count_how_often() -> None:
    left = [
        pa.chunked_array([pa.array([1, 1, 2, 3, 3])]),
        pa.chunked_array([pa.array([0.0, 0.0, 1.0, -0.0, 2.0])]),
    ]
    right = [pa.chunked_array([pa.array([1, 3, 3, 4])]), pa.chunked_array([pa.array([0.0, 0.0, 2.0, 9.0])])]
    ours, theirs = common(left, right)
    assert ours.tolist() == [True, False, False, False, True]
    assert theirs.tolist() == [True, False, True, False]


class ReadsSeq(tl.Program):
    last: tl.Value[int, int | None]

    @tl.on(Hit)
    def hit(self, e: Hit) -> None:
        self.last[e.who] = place(e)


def place(e: Hit) -> int:
    return e.seq


def test_programs_that_read_seq_are_refused() -> None:
    with pytest.raises(UsageError, match="reads `seq`") as caught:
        refuse_seq(as_program(ReadsSeq))
    assert caught.value.code == "TL846"
    refuse_seq(as_program(Timed))


class Total(tl.Record, key="who"):
    who: int
    n: int


class Sums(tl.Program):
    n: tl.Counter[int]

    @tl.on(Hit)
    def hit(self, e: Hit) -> None:
        self.n[e.who] += e.size
        if self.n[e.who] % 2 == 0:
            self.emit(Total(who=e.who, n=self.n[e.who]))


def hits(rng: random.Random, count: int, start: int, step: int) -> list[Hit]:
    return [Hit(who=rng.randint(0, 3), size=rng.randint(0, 3), ts=start + n * step) for n in range(count)]


def same_as_replay(run: Reading) -> None:
    """Outputs are those of a replay of the journal, which parity compares to the last bit."""
    found = run.parity()
    assert found.same, found.text
    replayed = run.replay()
    ours = run.outputs(Total).drop_columns(["phase"])
    theirs = replayed.table(Total)
    assert ours.column("seq").to_pylist() == theirs.column("seq").to_pylist()
    assert ours.select(["who", "n"]).to_pylist() == theirs.select(["who", "n"]).to_pylist()
    feed = run.feed(Total).to_pylist()
    counted: Counter[tuple[int, ...]] = Counter()
    for row in feed:
        counted[row["@of"], row["ts"], row["phase"], row["seq"], row["ordinal"], row["who"], row["n"]] += row[
            "@change"
        ]
    assert set(counted.values()) <= {0, 1}
    left = sorted((at[1], at[5], at[6]) for at, count in counted.items() if count)
    assert left == sorted((r["ts"], r["who"], r["n"]) for r in run.outputs(Total).to_pylist())
    assert run.feed(Total, additions=True).num_rows == sum(r["@change"] == 1 for r in feed)
    newest = {r["who"]: r["n"] for r in run.newest(Total).to_pylist()}
    assert newest == {r["who"]: r["n"] for r in run.outputs(Total).to_pylist()}


def shown_as_it_counts(run: Live) -> None:
    """The last outputs are without rows that were retracted, and who follows the stream is told of those."""
    rows = run.outputs(Total).select(["ts", "who", "n"]).to_pylist()
    shown, _ = run.latest("Total", 1000)
    assert sorted(map(str, shown.select(["ts", "who", "n"]).to_pylist())) == sorted(map(str, rows))
    counted: Counter[tuple[int, ...]] = Counter()
    gone = 0
    for number, added, retracted in run.published_after("Total", 0, 10_000):
        place = ("ts", "phase", "seq", "ordinal")
        for row in [] if retracted is None else retracted.to_pylist():
            counted[row["@of"], *(row[n] for n in place)] -= 1
            gone += 1
        for row in [] if added is None else added.to_pylist():
            counted[number, *(row[n] for n in place)] += 1
    assert gone
    assert set(counted.values()) == {0, 1}
    assert sum(counted.values()) == len(rows)


@pytest.mark.parametrize("kernel", ["interpreted", "native"])
def test_a_live_run_is_corrected(kernel: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While it runs, after a restart, at its end; the journal as a log gets new versions, and parity holds at each moment."""
    monkeypatch.setenv("TIMELAPSE_KERNEL", kernel)
    rng, out = random.Random(1), tmp_path / "out"
    options: dict[str, Any] = {
        "late": "correct",
        "trigger": "5ms",
        "ahead": None,
        "correct_every": "20ms",
        "idle": None,
    }
    push = tl.Push()
    with tl.live(Sums, {Hit: push}, out, **options) as run:
        push.send(hits(rng, 200, 1_000, 10))
        run.until(lambda e: e.end_seq == 199)
        same_as_replay(run)
        push.send(hits(rng, 20, 1_505, 20))
        run.until(lambda e: e.version == 1)
        same_as_replay(run)
        shown_as_it_counts(run)
        push.send(hits(rng, 5, 1_207, 3))
        push.send(hits(rng, 40, 3_000, 10))
        run.until(lambda e: e.version >= 2 and e.end_seq > 230)
    stopped = run.last
    push = tl.Push()
    with tl.live(Sums, {Hit: push}, out, **{**options, "correct_rows": 2, "correct_every": "1h"}) as run:
        assert run.last == stopped
        push.send(hits(rng, 3, 500, 7))
        last = run.until(lambda e: stopped is not None and e.version > stopped.version)
        assert last.begin == 500
        push.close()
        run.wait()
    same_as_replay(Reading.open(out, Sums()))
    assert [entry.rewritten is not None for entry in run.journal().manifest.ingests].count(True) >= 2
    with pytest.raises(UsageError, match="was corrected since"):
        run.outputs(Total, after=2)


def test_what_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="reads `seq`"):
        tl.live(ReadsSeq, {Hit: tl.Push()}, tmp_path / "a", late="correct")
    with pytest.raises(UsageError, match="cannot take retractions"):
        tl.live(Sums, {Hit: tl.Push()}, tmp_path / "b", late="correct", sinks=[Callback(print)])
    with pytest.raises(UsageError, match="correct_rows"):
        tl.live(Sums, {Hit: tl.Push()}, tmp_path / "c", late="correct", correct_rows=0)
    assert not list(tmp_path.iterdir())
