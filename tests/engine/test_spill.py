"""States that outgrow their memory go to files between slices, and are read key by key: nothing changes."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import timelapse as tl
from tests.depth import deep
from tests.engine.logs import logs
from tests.engine.programs import ALL, A, B
from tests.engine.test_windows import LOG, Found, Message, Views
from timelapse.analysis import analyse, final_pass
from timelapse.engine import spill
from timelapse.env import machine
from timelapse.errors import UsageError
from timelapse.kernels.native.lowered import event_bytes
from timelapse.kernels.native.memory import table
from timelapse.kernels.python import rowlog
from timelapse.log import MemoryLog
from timelapse.program.program import as_program, spec_of
from timelapse.run import replay, run_serial, slices
from timelapse.run.slices import least_slices
from timelapse.tables import lookup, merge, shelf
from timelapse.testing import random_log


class Stops:
    """Counts the stops, and the keys that were looked up."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.count = self.found = 0
        stop, find = spill.Spill.stop, lookup.MappedLevels.find

        def counted(own: spill.Spill) -> Any:
            self.count += 1
            return stop(own)

        def looked_up(own: lookup.MappedLevels, key: Any) -> Any:
            self.found += 1
            return find(own, key)

        patch.setattr(spill.Spill, "stop", counted)
        patch.setattr(lookup.MappedLevels, "find", looked_up)
        patch.setenv(machine.MEMORY, "1")


@pytest.mark.parametrize("program", ALL, ids=lambda p: p.__name__)
@settings(max_examples=deep(5))
@given(events=logs(), slices=st.sampled_from([2, 3, 1000]), strategy=st.sampled_from([None, "chain"]))
def test_replay_with_hardly_any_memory(
    program: type[tl.Program], events: list[tl.Event], slices: int, strategy: str | None
) -> None:
    """Every chain stops after every slice; the states at all boundaries are those of the serial meaning."""
    log = MemoryLog(events, [A, B])
    reference = run_serial(program, log)
    with pytest.MonkeyPatch.context() as patch:
        stops = Stops(patch)
        run = replay(program, log, slices=slices, spark=False, strategy=strategy)
        assert (
            stops.count
            or run.slices < 3
            or strategy is None
            or not any(reference.state(n).num_rows for n in spec_of(as_program(program)).states)
        )
    found = run.verify()
    assert found.ok, found.text
    assert (run.digest, run.state_digest) == (reference.digest, reference.state_digest)


Money = Annotated[Decimal, tl.scale(2)]


class Paid(tl.Event):
    k: Money


class Sums(tl.Program):
    n: tl.Counter[Money]
    both: tl.Set[tuple[str, Money]]

    @tl.on(Paid)
    def paid(self, e: Paid) -> None:
        self.n[e.k] += 1
        key = ("a", e.k * 2)
        if key in self.both:
            self.n[Decimal("-0.5")] += 1
        self.both.add(("a", e.k))


@pytest.mark.parametrize("kernel", ["python", "interpreted", "native"])
def test_keys_with_decimals_are_looked_up(monkeypatch: pytest.MonkeyPatch, kernel: str) -> None:
    """However they are written."""
    stops = Stops(monkeypatch)
    monkeypatch.setenv("TIMELAPSE_KERNEL", kernel)
    texts = ["1", "1.5", "15e-1", "0.50", "-0.5", "1e2", "0", "-0.0", "2.25"]
    events = [Paid(k=Decimal(text)) for text in texts * 4]
    log = MemoryLog([e._at(n, n) for n, e in enumerate(events)], [Paid])
    reference = run_serial(Sums, log)
    run = replay(Sums, log, slices=12, spark=False, strategy="chain")
    assert (run.digest, run.state_digest) == (reference.digest, reference.state_digest)
    assert run.certificate["memory"]["unbounded"] == []
    if kernel != "native":
        assert stops.count > 5
        assert stops.found > 20


class Named(tl.Program):
    n: tl.Counter[int]
    name: tl.Value[int, str] = tl.state(default="")

    @tl.on(A)
    def count(self, e: A) -> None:
        self.n[e.k] += 1
        if self.n[e.k] % 3 == 0:
            del self.name[e.k]
        else:
            self.name[e.k] = self.name[e.k] + str(self.n[e.k])


@pytest.mark.parametrize("is_full", [False, True])
def test_states_that_are_loaded_whole_are_loaded_in_pieces(
    monkeypatch: pytest.MonkeyPatch, is_full: bool
) -> None:
    """From a file, or from memory where the disk has no room for it."""
    merged = 0
    fold_to = merge.fold_to

    def fold(*args: Any, **named: Any) -> Any:
        nonlocal merged
        merged += 1
        if is_full and args[3].name == "state.arrow":
            raise OSError(28, "no space left on device")
        return fold_to(*args, **named)

    log = MemoryLog([A(k=n * n % 23, v=n, s="")._at(n, n) for n in range(120)], [A])
    reference = run_serial(Named, log)
    stops = Stops(monkeypatch)
    monkeypatch.setattr(merge, "fold_to", fold)
    monkeypatch.setattr(table, "_PIECE", 3)
    monkeypatch.setenv("TIMELAPSE_KERNEL", "native")
    run = replay(Named, log, slices=9, spark=False, strategy="chain")
    assert (run.digest, run.state_digest) == (reference.digest, reference.state_digest)
    assert stops.count > 3
    assert merged > 3


class Pair(NamedTuple):
    a: int
    b: str


class Held(tl.Program):
    """What takes more than sums and latest rows: operations, what beats them, what stood at a time, keys of several parts."""

    low: tl.Min[tuple[int, str], int] = tl.state(default=99)
    begun: tl.First[int, Pair | None]
    first: tl.Value[int, int] = tl.state(default=-1)
    pair: tl.Value[int, Pair | None]
    seen: tl.Set[tuple[int, str]]
    members: tl.SetOf[int, str]

    @tl.on(Message)
    def go(self, m: Message) -> None:
        key = m.user, str(m.to)
        self.low.add(key, m.seq % 7)
        self.begun.add(m.user, Pair(*key))
        self.first.setdefault(m.user, m.to)
        if m.to in (1, 2):
            del self.first[m.user]
        self.pair[m.user] = Pair(*key)
        self.seen.add(key)
        self.members.add(m.user, key[1])
        if self.low.last(2 * tl.SECOND)[key] == 3:
            self.reject("three")
        self.tell("low", m.user, self.low.last(tl.SECOND)[key])
        begun, pair = self.begun.last(tl.SECOND)[m.user], self.pair.ago(tl.SECOND)[m.to]
        self.tell("begun", m.user, -1 if begun is None else begun.a)
        self.tell("pair", m.user, -1 if pair is None else pair.a)
        self.tell("first", m.user, self.first.last(tl.SECOND)[m.user])
        self.tell("seen", m.user, int((m.to, str(m.user)) in self.seen.ago(tl.SECOND)))
        self.tell("members", m.user, self.members.ago(2 * tl.SECOND).count(m.user))

    def tell(self, what: str, user: int, value: int) -> None:
        self.emit(Found(what=what, user=user, value=value))


@pytest.mark.parametrize("program", [Views, Held])
@pytest.mark.parametrize("seed", range(deep(2, 1)))
def test_windows_with_hardly_any_memory(
    monkeypatch: pytest.MonkeyPatch, program: type[tl.Program], seed: int
) -> None:
    """As Python, what they have by key goes to a file after every slice, and rows do after a few; and where a slice begins with earlier rows."""
    away = 0
    put_away = shelf.Shelf.put_away

    def counted(own: shelf.Shelf) -> bool:
        nonlocal away
        away += 1
        return put_away(own)

    log = MemoryLog(random_log(LOG, seed=seed, count=60), LOG)
    reference = run_serial(program, log)
    monkeypatch.setattr(shelf.Shelf, "put_away", counted)
    monkeypatch.setattr(rowlog, "_LEAST", 4)
    monkeypatch.setenv(machine.MEMORY, "1")
    monkeypatch.setenv("TIMELAPSE_KERNEL", "interpreted")
    for count, strategy in ((2, "chain"), (20, "chain"), (3, "staged")):
        run = replay(program, log, slices=count, spark=False, strategy=strategy)
        assert (run.digest, run.state_digest) == (reference.digest, reference.state_digest)
        found = run.verify()
        assert found.ok, found.text
    assert away > 10


class Last(tl.Program):
    n: tl.Counter[int]
    best: tl.Max[int, int] = tl.state(default=0)

    @tl.on(A)
    def count(self, e: A) -> None:
        self.n[e.k] += 1
        self.best.add(e.k, self.n[e.k])


EVENTS: list[tl.Event] = [A(k=i % 7, v=i, s="", ts=i) for i in range(60)]


def test_only_what_is_touched_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stops happen, and keys are looked up afterwards; enough memory, and neither does."""
    log = MemoryLog(EVENTS, [A, B])
    stops = Stops(monkeypatch)
    small = replay(Last, log, slices=4, spark=False, strategy="chain")
    assert stops.count == 3
    assert stops.found > 0
    stops.found = stops.count = 0
    monkeypatch.setenv(machine.MEMORY, "1M")
    large = replay(Last, log, slices=4, spark=False, strategy="chain")
    assert (stops.count, stops.found) == (0, 0)
    assert small.digest == large.digest
    assert small.state_digest == large.state_digest


def test_a_disk_that_is_full_only_means_more_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """The chain goes on with what it has."""
    monkeypatch.setenv(machine.MEMORY, "1")
    log = MemoryLog(EVENTS, [A, B])

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(merge, "fold_to", full)
    monkeypatch.setattr(merge, "together_to", full)
    run = replay(Last, log, slices=4, spark=False, strategy="chain")
    assert run.digest == run_serial(Last, log).digest


def test_a_crash_while_states_are_written_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """No run, no files; and the next attempt succeeds."""
    monkeypatch.setenv(machine.MEMORY, "1")
    log = MemoryLog(EVENTS, [A, B])
    whole = merge.fold_to

    def crash(*_: Any) -> None:
        raise MemoryError

    monkeypatch.setattr(merge, "fold_to", crash)
    with pytest.raises(MemoryError):
        replay(Last, log, tmp_path / "run", slices=4, spark=False, strategy="chain")
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr(merge, "fold_to", whole)
    run = replay(Last, log, tmp_path / "run", slices=4, spark=False, strategy="chain")
    assert run.verify().ok
    assert not list((tmp_path / "run").rglob("spill"))


@pytest.mark.parametrize(
    ("text", "expected"), [("", None), ("123", 123), ("5k", 5 << 10), ("4 GiB", 4 << 30), ("7MB", 7 << 20)]
)
def test_the_memory_setting(monkeypatch: pytest.MonkeyPatch, text: str, expected: int | None) -> None:
    """Bytes, with a unit if wanted."""
    monkeypatch.setenv(machine.MEMORY, text)
    assert machine.memory_setting() == expected


def test_a_wrong_memory_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is said which, and what it should look like."""
    monkeypatch.setenv(machine.MEMORY, "lots")
    with pytest.raises(UsageError, match=r"TIMELAPSE_MEMORY is 'lots'"):
        replay(Last, EVENTS[:3], spark=False)


def test_tables_in_files_take_no_memory_of_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where windows look back and a budget is set."""

    class Looks(tl.Program):
        n: tl.Counter[int]

        @tl.on(A)
        def count(self, e: A) -> None:
            if self.n.last(5)[e.k] < 3:
                self.n[e.k] += 1

    for program, has_windows in ((Looks, True), (Last, False)):
        own, work = as_program(program), final_pass(analyse(program))
        monkeypatch.delenv(machine.MEMORY, raising=False)
        usual = event_bytes(own, work, mapped=True)
        monkeypatch.setenv(machine.MEMORY, "1M")
        found = event_bytes(own, work, mapped=True)
        assert usual is not None
        assert found is not None
        assert (found < usual) == has_windows


def test_slices_are_as_small_as_memory_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    """So many keys as its events could touch fit; large logs of compiled passes have larger slices."""
    work = final_pass(analyse(Last))
    own = as_program(Last)
    assert least_slices(own, work, 1000, 10**9) == 1
    # Flags, a key, two values; flags and values as the slice began; half of all rows are free.
    row = 2 * 8 * (4 + 3)
    drawer = 8 * (2 + 1 + 2)  # a hash, flags, a key, two values; twice, as rows and as columns
    effects = 8 * 2 * (2 + 1 + 1)  # of each state: hash, key, presence, value
    first, each = (event_bytes(own, work, mapped=mapped) for mapped in (False, True))
    assert first == row + 2 * drawer + effects
    assert each == first  # what is looked up is under the key that is written
    assert least_slices(own, work, 1000, 1000 * first) == 11  # as Python they take more
    monkeypatch.setattr(slices, "runs_compiled", lambda *_, **__: True)
    assert least_slices(own, work, 1000, 1000 * first) == 1
    assert least_slices(own, work, 1000, 2 * 100 * each) == 10  # one half is for what is carried on
    assert least_slices(own, work, 0, 1) == 1
    assert least_slices(own, work, 20_000_000, 10**12) == 2
    whole = machine.state_memory() * machine.cores()
    assert least_slices(own, work, 3 * 10**8, None) == least_slices(own, work, 3 * 10**8, whole)
    assert least_slices(own, work, 3 * 10**8, None, tasks=2) == least_slices(own, work, 3 * 10**8, whole // 2)
    monkeypatch.setattr(slices, "event_bytes", lambda *_, **__: None)
    assert least_slices(own, work, 1000, 2 * 1400 * 100) == 10
    assert least_slices(own, work, 10_000_000, 10**12) == 10
    monkeypatch.undo()
    monkeypatch.setenv(machine.MEMORY, str(2 * 10 * 1400))
    assert replay(Last, EVENTS, spark=False).slices == 6
