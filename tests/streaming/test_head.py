"""Epochs against what they mean: the journal against a sort of all rows that are not late, outputs against the serial loop over
it, every row exactly once: whatever the batches, crashes, lost answers and rival processes."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import timelapse as tl
from tests.depth import deep
from tests.streaming.simulator import Crash, Disk, SimulatedPlace
from timelapse.errors import StorageError
from timelapse.kernels.base import PassResult
from timelapse.kernels.native.memory import gathering
from timelapse.program.fingerprint import fingerprint
from timelapse.program.program import as_program
from timelapse.run import run_serial
from timelapse.segments.types import event_types
from timelapse.streaming import chain
from timelapse.streaming.chain import Overtaken
from timelapse.streaming.checkpoints import compact
from timelapse.streaming.choosing import IN_KERNEL, Slicing
from timelapse.streaming.collecting import collect
from timelapse.streaming.format import FORMAT, Epoch, LiveRun
from timelapse.streaming.head import Head
from timelapse.streaming.pack import Pack, hash_of
from timelapse.streaming.rows import Bad, Batch
from timelapse.streaming.rules import Rules
from timelapse.streaming.running import Saving
from timelapse.streaming.streams import Limits, StreamEntry
from timelapse.streaming.sums import digest_of


class Hit(tl.Event):
    who: int
    size: int


class Mark(tl.Event):
    who: int


class Seen(tl.Record):
    who: int
    n: int
    recent: int


class Plain(tl.Program):
    n: tl.Counter[int]
    marked: tl.Set[int]

    @tl.on(Hit)
    def hit(self, e: Hit) -> None:
        self.n[e.who] += e.size
        if e.who in self.marked:
            self.emit(Seen(who=e.who, n=self.n[e.who], recent=0))

    @tl.on(Mark)
    def mark(self, e: Mark) -> None:
        if self.n[e.who] % 3 == 2:
            self.reject("two")
        self.marked.add(e.who)


class Wake(tl.Event):
    who: int


class Windowed(tl.Program):
    n: tl.Counter[int]
    marked: tl.Set[int]

    @tl.on(Hit)
    def hit(self, e: Hit) -> None:
        self.n[e.who] += e.size
        self.emit(Seen(who=e.who, n=self.n[e.who], recent=self.n.last(20)[e.who]))

    @tl.on(Mark, after=7)
    def mark(self, e: Mark) -> None:
        self.marked.add(e.who)
        self.emit(Seen(who=e.who, n=-1, recent=self.n.last(20)[e.who]))


class Timed(tl.Program):
    n: tl.Counter[int]
    last: tl.Value[int, int | None]

    @tl.on(Hit)
    def hit(self, e: Hit) -> None:
        self.n[e.who] += e.size
        self.last[e.who] = e.size
        self.send(Wake(who=e.who), after=13, key=e.who)
        self.emit(Seen(who=e.who, n=self.n[e.who], recent=self.n.last(20)[e.who]))

    @tl.on(Mark, after=7)
    def mark(self, e: Mark) -> None:
        self.emit(Seen(who=e.who, n=-1, recent=self.last.ago(5)[e.who] or 0))

    @tl.on(Wake)
    def wake(self, e: Wake) -> None:
        self.emit(Seen(who=e.who, n=-2, recent=self.n[e.who]))

    @tl.every(tl.SECOND // 100_000)
    def tick(self) -> None:
        self.n[-1] += 1
        self.emit(Seen(who=-1, n=self.n[-1], recent=0))


TYPES = event_types([Mark, Hit])
STREAMS = [StreamEntry(0, "Hit", "a", "x"), StreamEntry(1, "Hit", "b", "y"), StreamEntry(2, "Mark", "", "z")]
START = 1_000


@dataclass
class Row:
    stream: int
    partition: str
    offset: int
    ts: int
    who: int
    size: int
    bad: bool


@dataclass
class World:
    """Sources with all their rows, and what they give at a time."""

    rng: random.Random
    rows: dict[tuple[int, str], list[Row]] = field(default_factory=dict)
    shown: dict[tuple[int, str], int] = field(default_factory=dict)

    @classmethod
    def of(cls, rng: random.Random, most: int, disorder: int) -> World:
        world = cls(rng)
        for stream in STREAMS:
            for partition in ["0", "1"][: rng.randint(1, 2)]:
                ts, offset, rows = START + rng.randint(0, 9), -1, []
                for _ in range(rng.randint(0, most)):
                    ts += rng.choice([0, 0, 1, 2, 5])
                    offset += rng.choice([1, 1, 1, 3])
                    jitter = rng.randint(0, disorder) if rng.random() < 0.3 else 0
                    far = 5_000 if rng.random() < 0.01 else 0
                    rows.append(
                        Row(
                            stream.number,
                            partition,
                            offset,
                            ts - jitter + far,
                            rng.randint(0, 3),
                            rng.randint(0, 4),
                            rng.random() < 0.02,
                        )
                    )
                world.rows[stream.number, partition] = rows
        return world

    def batches(self, positions: dict[tuple[int, str], int]) -> list[Batch]:
        """Some of what comes after positions, perhaps with rows that were there before."""
        found = []
        for (stream, partition), rows in self.rows.items():
            position = positions.get((stream, partition), -1)
            if self.rng.random() < 0.3:
                continue
            back = self.rng.choice([0, 0, 3])
            first = next((n for n, r in enumerate(rows) if r.offset > position), len(rows))
            part = rows[max(0, first - back) : first + self.rng.choice([0, 1, 4, 30])]
            if part:
                found.append(batch_of(stream, partition, part))
        self.rng.shuffle(found)
        return found

    def done(self, positions: dict[tuple[int, str], int]) -> bool:
        return all(not rows or positions.get(at, -1) >= rows[-1].offset for at, rows in self.rows.items())


def batch_of(stream: int, partition: str, rows: Sequence[Row]) -> Batch:
    good = [r for r in rows if not r.bad]
    columns: dict[str, Any] = {"who": pa.array([r.who for r in good], pa.int64())}
    if STREAMS[stream].type == "Hit":
        columns["size"] = pa.array([r.size for r in good], pa.int64())
    return Batch(
        stream, partition, np.array([r.ts for r in good], np.int64), pa.table(columns),
        np.array([r.offset for r in good], np.int64), rows[-1].offset,
        [Bad(r.offset, "no", "?") for r in rows if r.bad],
    )  # fmt: skip


def expected(world: World, lateness: int, limits: Limits) -> tuple[list[Row], list[Row], list[Row]]:
    """The journal, the late rows and the absurd ones, by the rule, row by row."""
    journal, late, absurd = [], [], []
    for rows in world.rows.values():
        greatest = None
        for row in rows:
            if row.bad:
                continue
            if limits.ahead is not None and row.ts > limits.ahead:
                absurd.append(row)
                continue
            if greatest is not None and row.ts <= greatest - lateness - 1:
                late.append(row)
            else:
                journal.append(row)
            greatest = row.ts if greatest is None else max(greatest, row.ts)
    number = {0: 1, 1: 1, 2: 0}
    journal.sort(key=lambda r: (r.ts, number[r.stream], r.stream, int(r.partition), r.offset))
    return journal, late, absurd


def run_of(program: tl.Program) -> LiveRun:
    types = [(kind.name, list(kind.texts)) for kind in TYPES]
    return LiveRun(FORMAT, "0", "run", "P", None, fingerprint(program), {}, types, "")


def opened(
    place: SimulatedPlace, program: tl.Program, rules: Rules, told: list[str], slicing: Slicing = IN_KERNEL
) -> Head:
    def wait(what: str, seconds: float) -> None:
        told.append(what)

    run = run_of(program)
    head = Head(
        place, program, run, hash_of(b"run"), TYPES, rules, wait=wait, tell=told.append, slicing=slicing
    )
    for stream in STREAMS:
        head.stream(stream)
    return head


def declare(head: Head, world: World) -> None:
    for stream, partition in world.rows:
        head.partition(stream, partition)


def packs(disk: Disk) -> Iterator[Pack[Epoch]]:
    place: Any = SimulatedPlace(disk, random.Random(0))
    yield from chain.epochs(place, 1, chain.newest(place))


def check(disk: Disk, world: World, program: tl.Program, rules: Rules) -> Epoch:
    """All that must hold at the end."""
    journal, late, absurd = expected(world, rules.lateness, rules.limits)
    found: list[tuple[Any, ...]] = []
    aside: dict[str, list[tuple[int, int, int]]] = {"late": [], "absurd": []}
    bad = []
    last = None
    for pack in packs(disk):
        last = pack.about
        for name in pack.names("journal"):
            for r in pack.table(f"journal/{name}").to_pylist():
                found.append(
                    (r["seq"], r["@stream"], r["@partition"], r["@offset"], r["ts"], r["who"], r.get("size"))
                )
        for what, into in aside.items():
            for name in pack.names(what):
                into += [
                    (r["@stream"], r["@partition"], r["@offset"])
                    for r in pack.table(f"{what}/{name}").to_pylist()
                ]
        if "bad" in pack.sections:
            bad += [(r["@stream"], r["@partition"], r["@offset"]) for r in pack.table("bad").to_pylist()]
    assert last is not None
    found.sort()
    wanted = [
        (n, r.stream, int(r.partition), r.offset, r.ts, r.who, r.size if r.stream < 2 else None)
        for n, r in enumerate(journal)
    ]
    assert found == wanted
    assert sorted(aside["late"]) == sorted((r.stream, int(r.partition), r.offset) for r in late)
    assert sorted(aside["absurd"]) == sorted((r.stream, int(r.partition), r.offset) for r in absurd)
    assert sorted(bad) == sorted(
        (r.stream, int(r.partition), r.offset) for rows in world.rows.values() for r in rows if r.bad
    )
    events: list[tl.Event] = [
        Mark(who=r.who, ts=r.ts) if r.stream == 2 else Hit(who=r.who, size=r.size, ts=r.ts) for r in journal
    ]
    whole = run_serial(program, events, until=last.complete if events else None)
    assert digest_of(last) == whole.digest
    assert sum(s.rows for s in last.outputs.values()) == sum(whole.counts.values())
    return last


def checkpoint(head: Head, savings: dict[Head, Saving], rng: random.Random) -> None:
    """Write one, or begin one that is written some epochs later; it may fail then."""
    begun = savings.pop(head, None)
    if begun is not None:
        with suppress(OSError, StorageError):
            begun.write()
        begun.done()
    elif rng.random() < 0.5:
        head.checkpoint()
    elif (saving := head.saving()) is not None:
        savings[head] = saving


def drive(
    world: World,
    disk: Disk,
    program: tl.Program,
    rules: Rules,
    *,
    crash: float = 0.0,
    trouble: float = 0.0,
    late: float = 0.0,
    rivals: int = 1,
    slicing: Slicing = IN_KERNEL,
) -> list[str]:
    """Run heads over a world until everything is read and committed, however often they die."""
    rng, told = world.rng, list[str]()
    heads: list[Head | None] = [None] * rivals
    savings: dict[Head, Saving] = {}
    ended = False
    for _ in range(5_000):
        number = rng.randrange(rivals)
        place: Any = SimulatedPlace(disk, rng, crash, trouble, late)
        try:
            head = heads[number]
            if head is None:
                head = heads[number] = opened(place, program, rules, told, slicing)
                if head.last is None or not head.partitions:
                    declare(head, world)
            positions = {at: p.position for at, p in head.partitions.items()}
            ended = world.done(positions)
            head.epoch(world.batches(positions), 1_000, ended=ended)
            if rng.random() < 0.3:
                checkpoint(head, savings, rng)
            if rng.random() < 0.1:
                compact(place, program)
                collect(place, corrected=rules.late == "correct", horizon=rules.horizon)
            if ended:
                return told
            if rng.random() < 0.1:
                heads[number] = None
        except (Crash, OSError, StorageError) as gone:
            told.append(repr(gone))
            heads[number] = None
        except Overtaken:
            told.append("overtaken")
            heads[number] = None
    raise AssertionError("it does not end")


def test_what_was_committed_stands_while_rows_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who reads the last epoch of a run that was opened again sees nothing of one that is not committed."""
    monkeypatch.setenv("TIMELAPSE_KERNEL", "interpreted")
    rng = random.Random(3)
    disk, world, rules = Disk(), World.of(rng, 60, 8), Rules()
    drive(world, disk, as_program(Plain), rules, rivals=1)
    there = list(packs(disk))[-1].about
    more = World.of(random.Random(4), 90, 8)
    place: Any = SimulatedPlace(disk, rng, 0.0, 0.0)
    head = opened(place, as_program(Plain), rules, [])
    monkeypatch.setattr(chain, "put", lambda *_: (_ for _ in ()).throw(Crash()))
    with pytest.raises(Crash):
        head.epoch(more.batches({at: p.position for at, p in head.partitions.items()}), 1_000, ended=True)
    assert head.last == there


@pytest.mark.parametrize("program", [Plain, Timed])
@pytest.mark.parametrize("seed", range(deep(75)))
def test_batches_do_not_matter(seed: int, program: type[tl.Program], monkeypatch: pytest.MonkeyPatch) -> None:
    """The same rows in other batches and with other restarts: the same journal, the same late rows, the same digest."""
    monkeypatch.setenv("TIMELAPSE_KERNEL", "interpreted")
    rng = random.Random(seed)
    rules = Rules(lateness=rng.choice([0, 3, 10]), limits=Limits(rng.choice([None, 2_000]), None))
    rows = World.of(rng, 60, 8).rows
    digests = set()
    for again in range(3):
        disk = Disk()
        world = World(random.Random(again), rows)
        drive(world, disk, as_program(program), rules)
        digests.add(digest_of(check(disk, world, as_program(program), limited(rules))))
    assert len(digests) == 1


def limited(rules: Rules) -> Rules:
    """`ahead` as a time: all is received at 1,000."""
    ahead = rules.limits.ahead
    return Rules(rules.lateness, rules.late, Limits(None if ahead is None else 1_000 + ahead, None))


@pytest.mark.parametrize("program", [Plain, Timed])
@pytest.mark.parametrize("seed", range(deep(120)))
def test_crashes_and_rivals(seed: int, program: type[tl.Program], monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes that die before, in and after every write, answers that get lost, two or three processes at a time."""
    monkeypatch.setenv("TIMELAPSE_KERNEL", "interpreted")
    rng = random.Random(seed)
    rules = Rules(lateness=rng.choice([0, 5]))
    world, disk = World.of(rng, 40, 8), Disk()
    drive(
        world, disk, as_program(program), rules, crash=rng.choice([0.0, 0.1, 0.3]), trouble=rng.choice([0.0, 0.2]),
        rivals=rng.randint(1, 3),
    )  # fmt: skip
    check(disk, world, as_program(program), rules)


@pytest.mark.parametrize("program", [Plain, Windowed])
def test_processes_that_die_before_their_checkpoint_is_found(
    program: type[tl.Program], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compiled, what a checkpoint has is found while the next epochs are made, or never. It has what was done up to its own epoch, whatever
    has happened to the tables since; a process after one that died begins with the checkpoint before."""
    monkeypatch.setenv("TIMELAPSE_KERNEL", "native")
    begun, found = list[object](), list[object]()

    class Later(gathering._Later):
        def __init__(self, *args: Any, **named: Any) -> None:
            super().__init__(*args, **named)
            begun.append(self)

        def __call__(self, result: PassResult, threads: int) -> None:
            found.append(self)
            super().__call__(result, threads)

    monkeypatch.setattr(gathering, "_Later", Later)
    for seed in range(deep(20)):
        rng = random.Random(seed)
        world, disk, rules = World.of(rng, 40, 8), Disk(), Rules(lateness=rng.choice([0, 5]))
        drive(
            world, disk, as_program(program), rules, crash=rng.choice([0.02, 0.1]), rivals=rng.randint(1, 2)
        )
        check(disk, world, as_program(program), rules)
    assert 0 < len(set(map(id, found))) < len(begun)


@pytest.mark.parametrize("program", [Plain, Timed])
@pytest.mark.parametrize("seed", range(deep(120)))
def test_a_store_whose_writes_land_later(
    seed: int, program: type[tl.Program], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An object store: writes without an answer may land much later, also those of processes that are gone; reads may give no answer."""
    monkeypatch.setenv("TIMELAPSE_KERNEL", "interpreted")
    rng = random.Random(seed)
    rules = Rules(lateness=rng.choice([0, 5]))
    world, disk = World.of(rng, 40, 8), Disk()
    drive(
        world, disk, as_program(program), rules, crash=rng.choice([0.0, 0.1]), trouble=rng.choice([0.0, 0.2]),
        late=rng.choice([0.05, 0.2]), rivals=rng.randint(1, 3),
    )  # fmt: skip
    check(disk, world, as_program(program), rules)
