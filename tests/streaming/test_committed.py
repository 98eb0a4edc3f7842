"""States are read as of the last committed epoch, whatever the next one has done so far: never a mix of two."""

from __future__ import annotations

import itertools
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import timelapse as tl
from tests.depth import deep, some
from tests.native.gradual import switches
from tests.patience import LONG
from tests.programs.catalogue import CATALOGUE, Entry
from tests.programs.data import make
from tests.streaming.test_asking import Adding, Put
from tests.streaming.test_kernel import block, epochs
from tests.streaming.test_live import FAST
from tests.writers.anything import any_program
from tests.writers.sources import load_source, random_events
from timelapse.errors import HandlerError, StorageError
from timelapse.kernels.former import Former, Guard, NeedsAll
from timelapse.kernels.native.memory import hashtable, keeping
from timelapse.kernels.tuning import USUAL, KernelTuning, NativeTuning, TableTuning
from timelapse.kinds.base import ABSENT
from timelapse.program.program import spec_of
from timelapse.run import run_serial
from timelapse.segments.types import event_types
from timelapse.streaming import recovery
from timelapse.streaming.head import Head
from timelapse.streaming.kernel import OpenKernel, lag_of
from timelapse.streaming.place import LocalPlace
from timelapse.streaming.window import JournalEnd

States = dict[str, dict[Any, Any]]


@pytest.fixture
def often() -> Iterator[None]:
    """Threads take turns very often."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def held(kernel: OpenKernel, names: Sequence[str]) -> States:
    return {name: dict(kernel.items(name)) for name in names}


def check(former: Former, expected: dict[Any, Any], rng: random.Random, others: set[Any]) -> None:
    """All that can be asked of a state as it was."""
    assert former.taken()() == expected
    keys = rng.sample(sorted({*expected, *others}, key=repr), min(8, len({*expected, *others})))
    for key in keys:
        assert former.get(key, ABSENT) == expected.get(key, ABSENT)
    most = rng.randint(1, 6)
    some = former.some(most)
    assert len({key for key, _ in some}) == len(some) == min(most, len(expected))
    assert all(expected[key] == value for key, value in some)
    if former.stored_under is not None:
        for key in keys:
            assert set(former.stored_under(key[:1])) == {k for k in expected if k[:1] == key[:1]}
    with pytest.raises(NeedsAll):
        former.items()  # type: ignore[attr-defined]


class Looking(Guard):
    """Somebody looks whenever the kernel may be looked into."""

    now: Looking

    def __init__(self) -> None:
        super().__init__()
        self.look: Any = lambda: None
        Looking.now = self

    @property
    def is_free(self) -> bool:
        """Whether a reader would get it at once."""
        return not self._held.locked()

    def __exit__(self, *error: object) -> None:
        self.look()
        super().__exit__(*error)


def looked_into(
    program: tl.Program,
    events: Sequence[tl.Event],
    classes: Sequence[type[tl.Event]],
    rng: random.Random,
    most: int,
    tuning: KernelTuning = USUAL,
) -> tuple[int, int, OpenKernel]:
    """How often states were looked at that were not known, how often in all; the kernel."""
    types = event_types(classes)
    journal = JournalEnd(types, lag_of(program))
    kernel = OpenKernel(program, types, journal, tuning=tuning)
    names = list(spec_of(program).declared)
    made: Any = kernel._kernel
    guard = Looking()
    made.guard = guard
    if made.__dict__.get("_native") is not None:
        made._native.guard = guard
    seen: dict[str, set[Any]] = {name: set() for name in names}
    expected = held(kernel, names)
    unknown = times = 0

    def look() -> None:
        nonlocal unknown, times
        for name in names:
            former = kernel.former(name)
            times += 1
            if former is None:
                unknown += 1
            else:
                check(former, expected[name], rng, seen[name])

    guard.look = look
    with guard:
        kernel.settle()
    seq = 0
    for part, complete in epochs(events, rng, most):
        if part:
            part = [e._at(e.ts, seq + n) for n, e in enumerate(part)]
            journal.add(block(types, part), len(part))
        kernel.run(seq, seq + len(part), complete)
        seq += len(part)
        journal.forget(complete)
        look()  # it is processed, and not committed
        if rng.random() < 0.2 and kernel._work.serial is None:
            kernel.changes(later=rng.random() < 0.7)
            look()
        guard.look = lambda: None
        with guard:
            expected = held(kernel, names)
            kernel.settle()
        guard.look = look
        look()
        for name, state in expected.items():
            seen[name] |= set(state)
        if rng.random() < 0.3 and kernel._work.serial is None:
            kernel.changes()
            look()
    return unknown, times, kernel


@pytest.mark.parametrize(
    ("entry", "way"),
    some(itertools.product(CATALOGUE, ["native", "python", "interpreted"]), 4),
    ids=lambda v: getattr(v, "name", v),
)
def test_programs(entry: Entry, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before, within and after each epoch; machine code is interrupted after every few events."""
    monkeypatch.setenv("TIMELAPSE_KERNEL", way)
    program, made = entry.program(), make(entry.mix(5), 200, seed=3)
    classes = entry.classes()
    rng = random.Random(5)
    tables, _ = switches(monkeypatch, rng)
    tuning = KernelTuning(native=NativeTuning(watched_events=3, tables=tables))
    unknown, times, kernel = looked_into(
        program,
        made.events(classes),
        list(classes.values()),
        rng,
        rng.choice((10, 40)),
        tuning,
    )
    assert times > 20 or not spec_of(program).declared
    if kernel._work.serial is None and kernel.compiled == (way == "native"):
        assert not unknown


@pytest.mark.parametrize("seed", range(deep(30)))
def test_random_programs(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(seed)
    program = load_source(any_program(rng))
    monkeypatch.setenv("TIMELAPSE_KERNEL", rng.choice(("interpreted", "python")))
    events = random_events(program, random.Random(seed), 40)
    classes = list(dict.fromkeys(type(e) for e in events))
    classes += [e for e in spec_of(program).events if e not in classes and e not in spec_of(program).sent]
    try:
        run_serial(program, events)
    except HandlerError:
        return
    looked_into(program(), events, classes, rng, 12)


def test_rows_that_do_not_fit_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where more is written than is kept, nothing is said of what was there before, until the epoch is over."""
    monkeypatch.setenv("TIMELAPSE_KERNEL", "native")
    tables = TableTuning(first_copies=3, copied_bytes=200)
    tuning = KernelTuning(native=NativeTuning(watched_events=3, tables=tables))
    entry = next(e for e in CATALOGUE if e.name == "IpSpam")
    classes = entry.classes()
    rng = random.Random(2)
    unknown, times, _ = looked_into(
        entry.program(),
        make(entry.mix(50), 300, seed=3).events(classes),
        list(classes.values()),
        rng,
        40,
        tuning,
    )
    assert 0 < unknown < times


def test_readers_are_not_kept_out_while_room_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables become larger, and copies of what rows held are forgotten, while readers look."""
    monkeypatch.setenv("TIMELAPSE_KERNEL", "native")
    tables = TableTuning(first_rows=4, first_copies=3)
    tuning = KernelTuning(native=NativeTuning(watched_events=3, tables=tables))
    found = {"larger": 0, "release": 0}

    def beside(owner: Any, name: str) -> None:
        does = getattr(owner, name)

        def done(*given: Any) -> Any:
            made = does(*given)
            guard = Looking.now
            if guard.is_free and (name == "release" or made is not None):
                found[name] += 1
                with guard:  # who leaves it looks
                    pass
            return made

        monkeypatch.setattr(owner, name, done)

    beside(hashtable.HashTable, "larger")
    beside(keeping, "release")
    entry = next(e for e in CATALOGUE if e.name == "IpSpam")
    classes = entry.classes()
    events = make(entry.mix(50), 300, seed=3).events(classes)
    unknown, _, _ = looked_into(entry.program(), events, list(classes.values()), random.Random(2), 40, tuning)
    assert not unknown
    assert found["larger"] > 3
    assert found["release"] > 10


READS = """
from timelapse.kernels.native.machine.jit import COUNTS
from timelapse.kernels.native.memory.hashtable import HashTable
from timelapse.kernels.native.memory.keeping import Kept
from timelapse.kernels.native.memory.layout import Layout
from timelapse.kernels.native.memory.strings import Interned
table = HashTable([Layout(1, None, "exact", tracked=False)])
kept = Kept([table], 1)
table.claim([7])
kept.settle()
none = Interned().buffers
before = +COUNTS
kept.reserve(1)
assert COUNTS == before, "where copies are forgotten"
row = table.find([7], *none)
assert (COUNTS, row >= 0) == (before, True), "a read"
kept.add(0, row)
table.slots[row, 0] |= 2
before = +COUNTS
assert kept.copy(0, row)[0] == 1
assert COUNTS == before, "of a row that was written"
before = +COUNTS
table.take(table.larger(1 << 12))
table.rebase()
assert kept.copy(0, table.find([7], *none))[0] == 1
assert COUNTS == before, "where a table becomes larger, and where a slice begins"
"""


def test_nothing_is_compiled_under_the_guard() -> None:
    """Who holds it while it compiles, or waits for another thread that does, keeps all others waiting: seconds where the cache is empty."""
    subprocess.run([sys.executable, "-c", READS], check=True, timeout=LONG)


def test_a_guard_that_is_waited_for_briefly() -> None:
    guard = Guard()
    with guard.within(0) as has:
        assert has
        with guard.within(0) as again:
            assert not again
    with guard, guard.within(0.001) as has:
        assert not has
    there = threading.Event()

    def hold() -> None:
        with guard:
            there.set()
            while not guard._next.locked():  # until somebody waits
                time.sleep(0.001)

    other = threading.Thread(target=hold)
    other.start()
    there.wait()
    with guard.within(60) as has:
        assert has
    other.join()
    with guard.within(0) as has:
        assert has


class Hit(tl.Event):
    who: int
    size: int


class Seen(tl.Record):
    who: int


class Pairs(tl.Program):
    """Every event changes several states, and the same in all."""

    n: tl.Counter[int]
    total: tl.Value[int] = tl.state(default=0)
    known: tl.Set[int]
    sizes: tl.SetOf[int, int]
    longest: int = 1000

    @tl.on(Hit)
    def hit(self, e: Hit) -> None:
        self.n[e.who] += 1
        self.total += 1
        self.known.add(e.who)
        self.sizes.add(e.who, e.size)
        if e.size > self.longest:
            raise ValueError(e.size)


def hits(count: int, first: int = 0) -> list[Hit]:
    return [Hit(who=n * 7 % 23, size=n % 5, ts=1000 + n) for n in range(first, first + count)]


def watch(run: Any, found: list[Any], stop: threading.Event) -> None:
    """Read this and that, and note what it was at which epoch."""
    rng = random.Random(7)
    while not stop.is_set():
        key = rng.randrange(25)
        for name, asked in (("n", key), ("total", ()), ("known", key), ("sizes", key)):
            value, epoch = run.read(name, asked)
            found.append((name, asked, value, epoch))
            if (seen := run.states.glance(name, lambda _, key=asked: key)) is not None:
                found.append((name, asked, *seen))
        rows, more, epoch = run.listed("n", 100)
        assert not more
        found.append(("n", None, dict(rows), epoch))
        values, epoch = run.look({"n": [key, 3], "sizes": [key]})
        found.append(("several", key, values, epoch))


def checked(found: list[Any], events: list[Hit]) -> set[int]:
    """Each is what the serial loop has at the end of that epoch. The epochs that were seen."""
    states: dict[int, Any] = {}
    for name, asked, value, epoch in found:
        number, count = (0, 0) if epoch is None else (epoch.number, epoch.end_seq)
        if count not in states:
            done = events[:count]
            states[count] = (
                {w: sum(e.who == w for e in done) for w in range(25)},
                {w: tuple(sorted({e.size for e in done if e.who == w})) for w in range(25)},
            )
        n, sizes = states[count]
        expected: Any = {
            "n": n.get(asked), "total": count, "known": n.get(asked, 0) > 0, "sizes": sizes.get(asked), "several": None,
        }[name]  # fmt: skip
        if name == "several":
            expected = {"n": [n[asked], n[3]], "sizes": [sizes[asked]]}
        elif asked is None:
            expected = {w: c for w, c in n.items() if c}
        assert value == expected, (name, asked, number)
    return {0 if epoch is None else epoch.number for *_, epoch in found}


@pytest.mark.parametrize("way", ["native", "python", "interpreted", "slices"])
@pytest.mark.usefixtures("often")
def test_readers_beside_a_run(way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads that read all the time see what some epoch left, in all states and under all keys at once."""
    monkeypatch.setenv("TIMELAPSE_KERNEL", "interpreted" if way == "slices" else way)
    tuning = KernelTuning(native=NativeTuning(watched_events=7))
    monkeypatch.setattr(recovery, "OpenKernel", partial(OpenKernel, tuning=tuning))
    push, stop = tl.Push(), threading.Event()
    found: list[list[Any]] = [[], []]
    events = hits(1200)
    with tl.live(
        Pairs(), {Hit: push}, tmp_path / "out", trigger="1ms", ahead=None, checkpoint="50ms",
        slice_rows=1 if way == "slices" else 0, engine="local",
    ) as run:  # fmt: skip
        while run._loop.head is None:
            time.sleep(0.01)
        threads = [threading.Thread(target=watch, args=(run, own, stop)) for own in found]
        for thread in threads:
            thread.start()
        for at in range(0, 1200, 40):
            push.send(events[at : at + 40])
            if at % 120 == 0:
                run.until(lambda e, end=at + 39: e.end_seq >= end)  # type: ignore[misc]
        run.until(lambda e: e.end_seq >= 1199)
        stop.set()
        for thread in threads:
            thread.join()
    epochs_seen = [checked(own, events) for own in found]
    assert len(set[int]().union(*epochs_seen)) > 2


@pytest.mark.parametrize("way", ["native", "python", "interpreted"])
def test_a_kernel_is_closed_once_nobody_reads_it(
    way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each correction brings another kernel. Who reads has the guard of the one before until it is done, and asks the next one from then on."""
    monkeypatch.setenv("TIMELAPSE_KERNEL", way)
    closed, reading, corrected = list[OpenKernel](), threading.Event(), threading.Event()
    close, former, correct = OpenKernel.close, OpenKernel.former, Head.correct
    found: list[tuple[Any, Any]] = []
    thread = threading.Thread(target=lambda: found.append(run.read("total", 1)), name="reader")

    def closing(this: OpenKernel) -> None:
        close(this)
        closed.append(this)

    def slowly(this: OpenKernel, name: str) -> Any:
        if threading.current_thread() is thread and not reading.is_set():
            reading.set()
            corrected.wait(60)
            assert this not in closed
        return former(this, name)

    def correcting(this: Head, *given: Any) -> Any:
        thread.start()
        assert reading.wait(60)
        return correct(this, *given)

    monkeypatch.setattr(OpenKernel, "close", closing)
    monkeypatch.setattr(OpenKernel, "former", slowly)
    monkeypatch.setattr(Head, "correct", correcting)
    push = tl.Push()
    with tl.live(
        Adding, {Put: push}, tmp_path, idle=None, **{**FAST, "late": "correct", "correct_every": "10ms"}
    ) as run:
        push.send([Put(who=1, size=1, ts=1_000 + n) for n in range(9)])
        run.until(lambda e: e.end_seq >= 8)
        assert run._loop.head is not None
        before = run._loop.head.kernel
        push.send([Put(who=1, size=100, ts=990)])
        run.until(lambda e: e.version > 0)
        assert before not in closed
        corrected.set()
        thread.join()
        (value, epoch), now = found[0], run.get("total", 1)
        assert (value, epoch.version, now) == (8, 0, 108)
        run.stop()
    assert closed[0] is before


def test_reads_go_on_while_nothing_can_be_committed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The program has processed an epoch whose manifest cannot be written: readers do not wait, and see the one before."""
    monkeypatch.setenv("TIMELAPSE_KERNEL", "interpreted")
    push, away, tried, create = tl.Push(), threading.Event(), threading.Event(), LocalPlace.create

    def created(place: LocalPlace, name: str, data: bytes) -> None:
        if away.is_set() and name.startswith("epochs/"):
            tried.set()
            raise OSError(28, "no space")
        create(place, name, data)

    monkeypatch.setattr(LocalPlace, "create", created)
    with tl.live(Pairs(), {Hit: push}, tmp_path / "out", trigger="1ms", ahead=None) as run:
        push.send(hits(100))
        run.until(lambda e: e.end_seq >= 99)
        before = run.state("n")
        away.set()
        push.send(hits(100, 100))
        assert tried.wait(LONG)
        for _ in range(3):
            assert run.state("n") == before
            value, epoch = run.read("total", ())
            assert (value, epoch.end_seq if epoch else 0) == (99, 99)
        away.clear()
        run.until(lambda e: e.end_seq >= 199)
        assert run.get("total", ()) == 199


@pytest.mark.parametrize("way", ["native", "interpreted"])
def test_a_run_that_failed_within_an_epoch_has_the_states_of_the_one_before(
    way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIMELAPSE_KERNEL", way)
    push = tl.Push()
    run = tl.live(Pairs(), {Hit: push}, tmp_path / "out", trigger="1ms", ahead=None)
    push.send(hits(100))
    run.until(lambda e: e.end_seq >= 99)
    push.send([*hits(50, 100), Hit(who=1, size=2000, ts=5000), Hit(who=1, size=1, ts=5001)])
    with pytest.raises((HandlerError, StorageError)):
        run.wait(LONG)
    value, epoch = run.read("total", ())
    assert epoch is not None
    assert value == epoch.end_seq < 150
