"""What runs how: which passes will be compiled, on which executor, and what did run compiled in the end."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import PurePath
from typing import Any

from timelapse.analysis.result import PassProgram
from timelapse.engine.driver import repair_name
from timelapse.engine.job import Job
from timelapse.env.cores import usable_cores
from timelapse.errors import UsageError
from timelapse.kernels.choose import (
    COLD_EVENTS,
    SWITCH,
    TOO_FEW,
    WARM_EVENTS,
    Choice,
    choice,
    foresee,
    is_repeated,
    share_of,
    uncompiled,
)
from timelapse.model.program import Program, as_program, spec_of
from timelapse.plan import make_plan
from timelapse.plan.cost import IsCompiled, writes_of
from timelapse.plan.explanation import Explanation, HandlerRow, PassRow, counts_of, explain_analysis
from timelapse.plan.plan import Plan
from timelapse.plan.scale import ScaleRow
from timelapse.plan.scale import scale as foretold
from timelapse.plan.strategy import Strategy


def compiled_facts(program: Program, events: int, slices: int | None, cores: int) -> IsCompiled | None:
    """Tells of a pass whether it will run compiled; None where none will."""
    if os.environ.get(SWITCH, "auto") == "auto" and events < WARM_EVENTS:
        return None
    each = share_of(events, slices or cores, cores)

    def compiled(work: PassProgram, final: bool) -> bool:
        return foresee(program, work, events if final else each, final=final).compiled

    return compiled


@contextmanager
def compiling(program: Program, plan: Plan, job: Job, cores: int) -> Iterator[None]:
    """Compile what the job's passes lack at the same time, each in a process of its own: the compiler does one
    thing at a time. A task that needs a pass that is being made waits for it.

    Passes that run as Python because nobody should wait for the compiler are compiled too, after the others and for
    the next run: the compiler may go on when this one is done.
    """
    each = share_of(job.reader.count, job.slices if plan.mode == "staged" else 1, cores)
    works = [(job.passes[-1], each, True)]
    if plan.mode == "staged" and job.slices > 1:
        works += [(s.work, each, False) for s in plan.stages if s.strategy is not Strategy.ITERATE]
    if job.reader.count < WARM_EVENTS:
        yield
        return
    now, later = uncompiled(program, works)
    if now and is_repeated():  # workers do not know that, and load what is there
        from timelapse.kernels.native.parallel import compile_all

        compile_all(now, max(cores, 1))
        now = []
    if len(now) < 2 and not later:  # a single one is made where it is needed
        yield
        return
    from timelapse.kernels.native.parallel import Compiling, compile_later

    with Compiling(now if len(now) > 1 else [], max(cores, 1)):
        compile_later(later)
        yield


def foreseen(program: Program, plan: Plan, job: Job, cores: int) -> dict[str, str]:
    """For each pass "compiled", or "Python" and why, as it looks before the run."""
    if job.reader.count < WARM_EVENTS and os.environ.get(SWITCH, "auto") == "auto":
        why = f"Python: {TOO_FEW}"
        return {**{stage.name: why for stage in plan.stages}, "final": why, **_guessed(plan)}
    guessed = [stage.name for stage in plan.stages if stage.strategy is Strategy.ITERATE]
    works = [(s.name, s.work, False) for s in plan.stages if s.name not in guessed] + [
        ("final", job.passes[-1], True)
    ]
    events = share_of(job.reader.count, job.slices if plan.mode == "staged" else 1, cores)
    found = _guessed(plan)
    for name, work, final in works:
        why_not = foresee(program, work, events, final=final)
        found[name] = "compiled" if why_not.compiled else f"Python: {why_text(work, why_not)}"
    return found


def _guessed(plan: Plan) -> dict[str, str]:
    """How stages run whose slices are guessed and repaired."""
    names = [stage.name for stage in plan.stages if stage.strategy is Strategy.ITERATE]
    why = "Python: what its events read and write is recorded"
    return {name: why for stage in names for name in (stage, repair_name(stage))}


def used_kernels(before: Mapping[str, str], ran: Mapping[str, bool]) -> dict[str, str]:
    """For each pass that ran "compiled", or "Python" and why."""
    found = {}
    for name, compiled in ran.items():
        why = before.get(name, "")
        found[name] = "compiled" if compiled else "Python: an event needed it" if why == "compiled" else why
    return found


def why_text(work: PassProgram, why: Choice) -> str:
    """The reason with its place."""
    file = next((_file(h.function) for h in work.handlers), "")
    return f"{why.reason} ({file}:{why.line})" if why.line else why.reason


class Compiler:
    """What the compiler makes of a program's passes, for `explain`."""

    def __init__(self, program: Program, events: int | None, slices: int | None, cores: int) -> None:
        """`events`: the log's, or None for one that is large enough for everything."""
        self._program = program
        self._events = COLD_EVENTS * max(1, cores) if events is None else events
        self._each = share_of(self._events, slices or cores, cores)

    def _choice(self, work: PassProgram, *, final: bool) -> Choice:
        return foresee(self._program, work, self._events if final else self._each, final=final)

    def compiled(self, work: PassProgram, final: bool) -> bool:
        """Whether a pass will run compiled."""
        return self._choice(work, final=final).compiled

    def describe(self, row: PassRow, work: PassProgram) -> PassRow:
        """The row with how the pass runs, and why, handler by handler."""
        final = row.stage is None
        found = self._choice(work, final=final)
        handlers = []
        for handler in work.handlers:
            alone = choice(self._program, dataclasses.replace(work, handlers=(handler,)), final=final)
            at = f"{_file(handler.function)}:{alone.line}" if alone.line else ""
            names = tuple(event.__name__ for event in handler.events)
            handlers.append(HandlerRow(handler.name, names, alone.compiled, alone.reason, at))
        return dataclasses.replace(
            row,
            kernel="compiled" if found.compiled else "Python",
            why=why_text(work, found),
            handlers=tuple(handlers),
        )


def explain(
    program: Program | type[Program], log: Any = None, *, slices: int | None = None, cores: int | None = None,
    force: str | Mapping[str, str] | None = None,
) -> Explanation:  # fmt: skip
    """Explain how a program would be replayed: states, dependencies, stages, strategies, costs, and what is not seen.

    `log` is a tl.Log (or anything that counts its events): costs are then weighted with its event counts, seconds are
    predicted, and what will be compiled is said for a log of this size. `slices`, `cores` and `force` are as for
    `replay`; `cores` defaults to this machine's. Raises UsageError for something that is not a program or a log,
    PlanError for a forced strategy that is not exact.
    """
    from timelapse.analysis import analyse
    from timelapse.run.conflicts import plan_of

    bound = as_program(program)
    counts = counts_of(log)
    cores = cores or usable_cores()
    events = None if counts is None else sum(counts.get(e.__name__, 0) for e in spec_of(bound).events)
    plan, reader = None, getattr(log, "reader", None)
    if reader is not None and force is None:
        found = plan_of(
            bound, analyse(bound), reader, counts, cores=cores, threads=cores, slices=slices, known={}
        )
        plan = found if any(s.strategy is Strategy.ITERATE for s in found.stages) else None
    return explain_analysis(
        bound, analyse(bound), log, slices=slices, cores=cores, force=force,
        kernels=Compiler(bound, events, slices, cores), plan=plan,
    )  # fmt: skip


def scale(
    program: Program | type[Program], log: Any, machines: Sequence[int], cores: int | None = None, *,
    slices: int | None = None, force: str | None = None,
) -> list[ScaleRow]:  # fmt: skip
    """What a replay of the log would take on each of these numbers of machines, with `cores` cores each (this machine's).

    `slices` and `force` are as for `replay`. Raises UsageError for numbers of machines below 1, or a log that does not count its events.
    """
    from timelapse.analysis import analyse

    bound = as_program(program)
    analysis = analyse(bound)
    counts = counts_of(log)
    if counts is None:
        raise UsageError(
            "--scale needs a log", hint="timelapse explain rules.py:Program LOG --scale 1,2,4", code="TL810"
        )
    cores = cores or usable_cores()
    events = sum(counts.get(e.__name__, 0) for e in spec_of(bound).events)

    def make(total: int) -> Plan:
        compiler = Compiler(bound, events, slices, total)
        return make_plan(
            analysis,
            counts=counts,
            cores=total,
            slices=slices,
            force=force,
            threads=cores,
            compiled=compiler.compiled,
        )

    writes = sum(writes_of(stage.work, counts) for stage in make(cores).stages) / max(1, events)
    return foretold(make, events, writes, machines, cores, slices)


def _file(function: Any) -> str:
    return PurePath(function.__code__.co_filename).name
