"""How many events would decide otherwise on a guessed state, and what they take: measured on a sample of the log."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa

from timelapse.analysis import Analysis
from timelapse.analysis.result import PassProgram
from timelapse.kernels.base import PassResult
from timelapse.kernels.iterate.repair import RepairKernel, guess, specs_of
from timelapse.kernels.python.interpreted import InterpretedKernel
from timelapse.kernels.source import Source
from timelapse.model.decimals import in_usual_context
from timelapse.plan import make_plan
from timelapse.plan.cost import IsCompiled, Measured
from timelapse.plan.plan import Plan
from timelapse.plan.strategy import Strategy
from timelapse.program.program import Program, spec_of
from timelapse.program.times import kept
from timelapse.run.foresight import compiled_facts, fewer_tasks
from timelapse.run.tuning import USUAL, Tuning
from timelapse.segments.reader import EventReader
from timelapse.segments.types import heard
from timelapse.tables.table import state_table

_QUARTER = 750
"""Events in each quarter of the sample."""


@in_usual_context
def measured(
    program: Program,
    plan: Plan,
    reader: EventReader,
    known: dict[str, Measured | None],
    tuning: Tuning = USUAL,
) -> Measured | None:
    """What iterate would meet in this program, where it could take the place of a chain; None where it could not.

    Handlers that compile are faster slice after slice than any repair of theirs, which runs as Python. `known` keeps
    what was found for a stage.
    """
    chains = [stage for stage in plan.stages if stage.strategy is Strategy.CHAIN]
    times = [use for use in spec_of(program).times if use.what != "derive"]
    compiled = any(plan.costs[i].compiled for i in (-1, *(stage.index for stage in chains)))
    if len(chains) != 1 or times or compiled or reader.count < tuning.sampled_events:
        return None
    (stage,) = chains
    # A pass that needs the states of others would have to be given them.
    if stage.work.exact != frozenset(stage.states):
        return None
    if stage.name not in known:
        if plan.cores < 2:
            return None
        known[stage.name] = _sample(program, stage.work, reader)
    return known[stage.name]


def reach_of(program: Program, reader: EventReader) -> float:
    """The share of a log's time that a program's windows look back at most."""
    first, last = reader.ts_first, reader.ts_before(reader.seq_after(reader.count))
    widest = max(kept(program).values(), default=0)
    return 1.0 if first is None or last is None or last <= first else min(1.0, widest / (last - first))


def plan_of(
    program: Program, analysis: Analysis, reader: EventReader, counts: Mapping[str, int] | None, *, cores: int,
    threads: int, slices: int | None = None, force: str | Mapping[str, str] | None = None,
    known: dict[str, Measured | None], machines: int = 1, tuning: Tuning = USUAL,
) -> Plan:  # fmt: skip
    """The plan of a replay, with iterate in it where that is foretold to be faster than a chain. `tuning`: its
    thresholds."""

    reach = reach_of(program, reader)

    def make(found: Measured | None, guessed: bool = True) -> Plan:
        """With a task for each core, or with fewer, of which each has enough events for machine code."""
        fewer = [] if slices is not None else fewer_tasks(program, reader.count, cores, tuning.kernels)
        plan = min((make_with(found, guessed, most) for most in (None, *fewer)), key=_seconds)
        if plan.most is None or plan.mode != "staged":
            return plan
        why = f"{plan.most} slices at most: in more of them passes have too few events each to run compiled"
        return replace(plan, reason=f"{plan.reason}; {why}")

    def make_with(found: Measured | None, guessed: bool, most: int | None) -> Plan:
        in_one, in_slices = (
            compiled_facts(program, reader.count, slices or most, cores, sliced=sliced, tuning=tuning.kernels)
            for sliced in (False, True)
        )

        def planned(compiled: IsCompiled | None) -> Plan:
            return make_plan(
                analysis, counts=counts, cores=cores, slices=slices, force=force, threads=threads, measured=found, guessed=guessed,
                compiled=compiled, reach=reach, machines=machines, most=most,
            )  # fmt: skip

        plan = planned(in_one)
        if plan.mode != "staged" or in_one is None or in_slices is None:
            return plan
        if in_one(plan.final, True) == in_slices(plan.final, True):
            return plan
        # In slices the final pass is Python too: what they take is compared with one compiled pass in seconds.
        apart = planned(in_slices)
        whole = plan.ratio("chain", slices) * plan.law.serial_seconds
        if force is None and slices is None and whole < apart.ratio("staged") * apart.law.serial_seconds:
            return replace(
                plan,
                mode="chain",
                reason="one compiled pass: slices have too few events to wait for the compiler",
            )
        return apart

    plan = make(None)
    found = None if force is not None else measured(program, plan, reader, known, tuning)
    if found is None:
        return plan
    # What the sample says of the handlers' work holds for both.
    plan, other = make(found, guessed=False), make(found)
    return other if other.mode == "staged" and _seconds(other) < _seconds(plan) else plan


def _seconds(plan: Plan) -> float:
    return plan.ratio() * plan.law.serial_seconds


def _sample(program: Program, work: PassProgram, reader: EventReader) -> Measured | None:
    """Four quarters: the first makes a state, from which the fourth is guessed; the second and third go on to the
    state from which it is repaired. None where a handler raises, or cannot be recorded."""
    cuts = [reader.seq_after(_QUARTER * i) for i in range(5)]
    names = {e.__name__: e for e in heard(spec_of(program), reader.types) if e.__name__ in work.columns}

    def source(at: int) -> Source:
        return Source(reader, cuts[at], cuts[at + 1], names, work.columns)

    kernel = InterpretedKernel(program, work, {}, final=False)
    specs = specs_of(program, work)

    def go(at: int) -> PassResult:
        kernel.begin()
        return kernel.go_on(source(at).events(), _untold)

    def states() -> dict[str, pa.Table]:
        return {
            name: state_table(spec, kernel.held.stores[name].data.items()) for name, spec in specs.items()
        }

    if go(0).failure is not None:
        return None
    old = states()
    began = time.thread_time()
    done = [go(1), go(2)]
    seconds = time.thread_time() - began
    events = sum(result.events for result in done)
    if any(result.failure is not None for result in done) or not events:
        return None
    recording = guess(program, work, old, source(3), _QUARTER, _untold)
    if recording.reason:
        return None
    repair = RepairKernel(program, work, states(), _QUARTER, recording=lambda _: recording)
    mended = repair.run(source(3), _untold)
    repair.close()
    if mended.failure is not None or mended.repaired is None:
        return None
    found = mended.repaired
    share = 1.0 if found.reason else found.again / max(1, found.events)
    return Measured(seconds / events, share)


def _untold(events: int) -> None:
    """Nobody watches."""
