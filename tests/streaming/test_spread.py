"""Epochs in time slices, handed over to the open kernel and back at any epoch, give what the serial loop gives."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

import timelapse as tl
from tests.depth import deep
from tests.programs.catalogue import CATALOGUE, Entry
from tests.programs.data import make
from tests.streaming.simulator import Disk, SimulatedPlace
from tests.streaming.test_head import Plain, Timed, World, check, drive
from tests.streaming.test_kernel import block, epochs
from tests.writers.looking import looking
from tests.writers.sending import sending
from tests.writers.sources import in_other_times, load_source, random_events, random_program
from timelapse.engine.digest import run_digest
from timelapse.errors import HandlerError
from timelapse.log.types import event_types
from timelapse.model.program import as_program, spec_of
from timelapse.run import run_serial
from timelapse.streaming.arrivals import Taken
from timelapse.streaming.kernel import OpenKernel, lag_of
from timelapse.streaming.rules import Rules
from timelapse.streaming.spread import Slicing, Spread
from timelapse.streaming.stand import Stand
from timelapse.streaming.sums import Emitted, Sums
from timelapse.streaming.window import JournalEnd

NOWHERE: Any = SimulatedPlace(Disk(), random.Random(0))


def run_both(
    program: tl.Program, events: Sequence[tl.Event], classes: Sequence[type[tl.Event]], rng: random.Random, *,
    most: int, slicing: Slicing, compiled: bool,
) -> tuple[str, int]:  # fmt: skip
    """The digest of what epochs give of which some are sliced, in no order; and how many were, -1 where none can be."""
    types = event_types(classes)
    journal, told = JournalEnd(types, lag_of(program)), list[str]()
    spread = Spread(NOWHERE, program, types, slicing, quarantine=None, tell=told.append)
    kernel: OpenKernel | None = None
    stand, sums, sliced = Stand(), Sums(), 0
    for part, complete in epochs(events, rng, most):
        part = [e._at(e.ts, journal.count + n) for n, e in enumerate(part)]
        tables = block(types, part)
        taken = Taken(tables, len(part), part[0].ts if part else 0)
        if spread.takes(taken, taken_out=0) and rng.random() < 0.5:
            if kernel is not None:
                stand, kernel = stand.then(program, kernel.changes(), kernel.complete or 0), None
            done = spread.run(1, stand, journal, taken, complete)
            assert done is not None, told
            stand, emitted = done.stand, done.emitted
            journal.add(tables, len(part))
            sliced += 1
        else:
            kernel = kernel or OpenKernel(program, types, journal, stand, compiled=compiled)
            first = journal.count
            journal.add(tables, len(part))
            emitted = Emitted.of(kernel.run(first, first + len(part), complete))
        journal.forget(complete)
        sums = sums.then(emitted)
    assert not told
    schemas = {name: pa.ipc.read_schema(pa.py_buffer(data)) for name, data in sums.schemas.items()}
    digest = run_digest({n: s.sum() for n, s in sums.outputs.items()}, schemas, sums.rejected.sum())
    return digest, -1 if spread.told.why else sliced


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("entry", CATALOGUE, ids=lambda e: e.name)
def test_programs(entry: Entry, compiled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIMELAPSE_KERNEL", "native" if compiled else "interpreted")
    program, made = entry.program(), make(entry.mix(5), 300, seed=11)
    classes = entry.classes()
    events = made.events(classes)
    expected = run_serial(program, events).digest
    for number, strategy in enumerate(("staged",) if compiled else ("staged", None)):
        found, sliced = run_both(
            program, events, list(classes.values()), random.Random(number), most=120, slicing=Slicing(1, 3, strategy),
            compiled=compiled,
        )  # fmt: skip
        assert found == expected, strategy
        assert sliced


@pytest.mark.parametrize("seed", range(deep(40)))
def test_random_programs(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(seed)
    text = random_program(rng, 3, further=rng.random() < 0.5)
    if rng.random() < 0.5:
        text = sending(rng, text, later=rng.random() < 0.6)
    if rng.random() < 0.6:
        made = in_other_times(rng, text)
        text = made if "@tl.on(" in made else text
    if rng.random() < 0.6:
        text = looking(rng, text, dated=rng.choice((0.0, 0.3)))
    program = load_source(text)
    monkeypatch.setenv("TIMELAPSE_KERNEL", rng.choice(("interpreted", "python")))
    events = random_events(program, random.Random(seed), 40)
    try:
        expected = run_serial(program, events).digest
    except HandlerError:  # a few of these programs raise
        return
    classes = list(dict.fromkeys(type(e) for e in events))
    classes += [e for e in spec_of(program).events if e not in classes and e not in spec_of(program).sent]
    for number in range(2):
        rng = random.Random(1000 * seed + number)
        slicing = Slicing(1, rng.choice((1, 2, 3)), rng.choice(("staged", "chain", None)))
        found, _ = run_both(
            program(), events, classes, rng, most=rng.choice((4, 12)), slicing=slicing, compiled=True
        )
        assert found == expected, slicing


@pytest.mark.parametrize("program", [Plain, Timed])
@pytest.mark.parametrize("seed", range(deep(12)))
def test_crashes_and_rivals(seed: int, program: type[tl.Program], monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes that die before, in and after every write, each of which takes each epoch in slices or in its kernel."""
    monkeypatch.setenv("TIMELAPSE_KERNEL", "interpreted")
    rng, sliced = random.Random(seed), list[bool]()
    takes = Spread.takes

    def maybe(self: Spread, taken: Taken, **how: Any) -> bool:
        sliced.append(takes(self, taken, **how) and rng.random() < 0.5)
        return sliced[-1]

    monkeypatch.setattr(Spread, "takes", maybe)
    rules = Rules(lateness=rng.choice([0, 5]))
    world, disk = World.of(rng, 40, 8), Disk()
    told = drive(
        world, disk, as_program(program), rules, crash=rng.choice([0.0, 0.1, 0.3]), trouble=rng.choice([0.0, 0.2]),
        rivals=rng.randint(1, 3), slicing=Slicing(1, rng.choice((1, 3)), rng.choice(("staged", None))),
    )  # fmt: skip
    check(disk, world, as_program(program), rules)
    assert any(sliced) or len(sliced) < 9
    assert not any("in slices" in line for line in told)
