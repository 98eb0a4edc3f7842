"""An open kernel, epoch after epoch, gives what the serial loop gives: also when it is begun again from its stand."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence

import pyarrow as pa
import pytest

import timelapse as tl
from tests.depth import deep, some
from tests.native.gradual import switches
from tests.programs.catalogue import CATALOGUE, Entry
from tests.programs.data import make
from tests.writers.anything import any_program
from tests.writers.sources import load_source, random_events
from timelapse.engine.digest import hash_outputs, hash_rejected, run_digest
from timelapse.errors import HandlerError
from timelapse.kernels.base import PassResult
from timelapse.kernels.tuning import USUAL, KernelTuning, NativeTuning
from timelapse.program.program import spec_of
from timelapse.run import Run, run_serial
from timelapse.segments.segment import table_of
from timelapse.segments.types import EventType, event_types
from timelapse.streaming.kernel import OpenKernel, is_restorable, lag_of
from timelapse.streaming.stand import Stand
from timelapse.streaming.window import JournalEnd
from timelapse.tables.rowhash import ZERO, HashSum


def block(types: Sequence[EventType], events: Sequence[tl.Event]) -> dict[str, pa.Table]:
    """Events as the journal has them."""
    found = {}
    for kind in types:
        own = [e for e in events if type(e).__name__ == kind.name]
        if own:
            table = table_of(kind, own) if kind.fields else pa.table({})
            seq, ts = (pa.array([getattr(e, n) for e in own], pa.int64()) for n in ("seq", "ts"))
            found[kind.name] = pa.table([seq, ts, *table.columns], ["seq", "ts", *table.column_names])
    return found


def epochs(events: Sequence[tl.Event], rng: random.Random, most: int) -> list[tuple[list[tl.Event], int]]:
    """Events in epochs, each with the time up to which it goes: some without events, and some beyond their last."""
    found: list[tuple[list[tl.Event], int]] = []
    at = 0
    while at < len(events):
        end = min(len(events), at + rng.randint(1, most))
        while end < len(events) and events[end].ts == events[end - 1].ts:
            end += 1
        part, last = list(events[at:end]), events[end - 1].ts
        ahead = events[end].ts - 1 if end < len(events) else last
        complete = rng.choice([last, last, ahead, rng.randint(last, ahead)])
        found.append((part, complete))
        if complete < ahead and rng.random() < 0.3:
            found.append(([], rng.randint(complete + 1, ahead)))
        at = end
    return found


def run_open(
    program: tl.Program, events: Sequence[tl.Event], classes: Sequence[type[tl.Event]], rng: random.Random, *,
    most: int = 40, restarts: float = 0.2, compiled: bool = True, read: bool = False,
    tuning: KernelTuning = USUAL,
) -> str:  # fmt: skip
    """The digest of what epochs give. `read`: the kernel keeps what readers of the epoch before may ask for."""
    types = event_types(classes)
    journal = JournalEnd(types, lag_of(program))
    kernel = OpenKernel(program, types, journal, compiled=compiled, tuning=tuning)
    stand, restorable = Stand(), is_restorable(program)
    sums: dict[str, HashSum] = {}
    schemas: dict[str, pa.Schema] = {}
    rejected, seq = ZERO, 0
    asked: list[tuple[PassResult, int]] = []
    for part, complete in epochs(events, rng, most):
        if part:
            part = [e._at(e.ts, seq + n) for n, e in enumerate(part)]
            journal.add(block(types, part), len(part))
        if read:
            kernel.settle()
        result = kernel.run(seq, seq + len(part), complete)
        if asked and rng.random() < 0.5:  # what was asked for is found now that the program has gone on
            stand, asked = stand.after(program, asked), []
        seq += len(part)
        for cls, table in result.outputs.items():
            name = cls.__name__
            sums[name] = sums.get(name, ZERO) + hash_outputs(name, table)
            schemas[name] = table.schema
        assert result.rejected is not None
        rejected = rejected + hash_rejected(result.rejected)
        journal.forget(complete)
        if restorable and rng.random() < restarts:
            asked.append((kernel.changes(later=rng.random() < 0.7), complete))
            if rng.random() < 0.4:
                continue
            stand, asked = stand.after(program, asked), []
            if rng.random() < 0.5:
                stand = stand.trimmed(program)
            if rng.random() < 0.6:
                again = JournalEnd(types, lag_of(program))
                again.begin(journal.count, journal.ts_first, journal.blocks)
                journal = again
                kernel = OpenKernel(program, types, journal, stand, compiled=compiled, tuning=tuning)
    return run_digest(sums, schemas, rejected)


def whole(program: tl.Program, events: Sequence[tl.Event]) -> Run:
    return run_serial(program, events)


@pytest.mark.parametrize(
    ("entry", "compiled"),
    some(itertools.product(CATALOGUE, [False, True]), first=1),
    ids=lambda v: getattr(v, "name", v),
)
def test_programs(entry: Entry, compiled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIMELAPSE_KERNEL", "native" if compiled else "interpreted")
    program, made = entry.program(), make(entry.mix(5), 300, seed=11)
    classes = entry.classes()
    events = made.events(classes)
    expected = whole(program, events).digest
    for seed in range(deep(3, 1)):
        rng = random.Random(seed)
        assert run_open(program, events, list(classes.values()), rng, compiled=compiled) == expected, seed


@pytest.mark.parametrize("entry", some(CATALOGUE), ids=lambda v: v.name)
def test_tables_that_grow_part_by_part(entry: Entry, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before every few events."""
    monkeypatch.setenv("TIMELAPSE_KERNEL", "native")
    rng = random.Random(7)
    tables, found = switches(monkeypatch, rng)
    tuning = KernelTuning(native=NativeTuning(watched_events=3, tables=tables))
    program, made = entry.program(), make(entry.mix(40), 300, seed=12)
    classes = entry.classes()
    events = made.events(classes)
    digest = run_open(program, events, list(classes.values()), rng, restarts=0.1, read=True, tuning=tuning)
    assert digest == whole(program, events).digest
    assert entry.name != "IpSpam" or len(found) > 3


@pytest.mark.parametrize("seed", range(deep(40)))
def test_random_programs(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(seed)
    program = load_source(any_program(rng))
    monkeypatch.setenv("TIMELAPSE_KERNEL", rng.choice(("interpreted", "python")))
    events = random_events(program, random.Random(seed), 40)
    try:
        expected = run_serial(program, events).digest
    except HandlerError:  # a few of these programs raise
        return
    classes = list(dict.fromkeys(type(e) for e in events))
    classes += [e for e in spec_of(program).events if e not in classes and e not in spec_of(program).sent]
    for number in range(deep(3, 1)):
        rng = random.Random(1000 * seed + number)
        assert run_open(program(), events, classes, rng, most=rng.choice((3, 12))) == expected


class Hit(tl.Event):
    n: int


class Seen(tl.Record):
    n: int


class FailsFirst(tl.Program):
    """Calls come later, but nothing ticks."""

    bad: int = 0
    hits: tl.Counter

    @tl.on(Hit)
    def at_once(self, h: Hit) -> None:
        self.hits += 1
        if h.n == self.bad:
            raise ValueError("no")

    @tl.on(Hit, after=5)
    def later(self, h: Hit) -> None:
        self.emit(Seen(n=h.n))


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("bad", [0, 1])
def test_nothing_comes_later_of_an_event_that_was_taken_out(bad: int, *, compiled: bool) -> None:
    """Also not in a later epoch, and also where it stands at the log's first instant."""
    program = FailsFirst(bad=bad)
    events = [Hit(n=n, ts=10 * (n + 1))._at(10 * (n + 1), n) for n in range(4)]
    types = event_types([Hit])
    journal = JournalEnd(types, lag_of(program))
    kernel = OpenKernel(program, types, journal, quarantine=10, compiled=compiled)
    found = []
    for event in events:
        journal.add(block(types, [event]), 1)
        result = kernel.run(journal.count - 1, journal.count, event.ts)
        found += [n for table in result.outputs.values() for n in table["n"].to_pylist()]
    serial = run_serial(program, events, quarantine=True)
    assert found == serial.table(Seen)["n"].to_pylist() == [n for n in range(3) if n != bad]
