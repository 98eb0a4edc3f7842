"""What a replay would do, said before it is done: the explanation, and what more machines would gain."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from timelapse.analysis.result import PassProgram
from timelapse.env.cores import usable_cores
from timelapse.env.master import wanted
from timelapse.env.spark_session import existing
from timelapse.errors import SilentLog, UsageError
from timelapse.explanation.model import (
    LAW_CORES,
    Explanation,
    HandlerRow,
    Note,
    PassRow,
    counts_of,
    explain_analysis,
)
from timelapse.kernels.choose import (
    NOT_ALONE,
    Choice,
    choice,
    foresee,
    share_of,
    uncompiled,
)
from timelapse.kernels.native.lowered import kept_whole
from timelapse.kernels.tuning import USUAL as KERNELS
from timelapse.kernels.tuning import KernelTuning
from timelapse.plan import make_plan
from timelapse.plan.cost import Measured, writes_of
from timelapse.plan.plan import Plan
from timelapse.plan.scale import ScaleRow
from timelapse.plan.scale import scale as foretold
from timelapse.program.program import Program, as_program, spec_of
from timelapse.run.foresight import file_of, why_text
from timelapse.run.planning import plan_here
from timelapse.run.source import refuse_silence
from timelapse.run.takeout import how_found
from timelapse.run.tuning import USUAL, Tuning


class Compiler:
    """What the compiler makes of a program's passes, for `explain`."""

    def __init__(
        self,
        program: Program,
        events: int | None,
        slices: int | None,
        cores: int,
        tuning: KernelTuning = KERNELS,
    ) -> None:
        """`events`: the log's, or None for one that is large enough for everything."""
        self._program, self._tuning = program, tuning
        self._events = tuning.cold_events * max(1, cores) if events is None else events
        self._each = share_of(self._events, slices or cores, cores)

    def _choice(self, work: PassProgram, *, final: bool, sliced: bool = False) -> Choice:
        events = self._events if final and not sliced else self._each
        return foresee(self._program, work, events, final=final, tuning=self._tuning)

    def compiled(self, work: PassProgram, final: bool) -> bool:
        """Whether a pass will run compiled."""
        return self._choice(work, final=final).compiled

    def describe(self, row: PassRow, work: PassProgram, *, sliced: bool) -> PassRow:
        """The row with how the pass runs, and why, handler by handler. `sliced`: in time slices."""
        final = row.stage is None
        found = self._choice(work, final=final, sliced=sliced)
        whole = final and sliced and bool(kept_whole(self._program, work))
        if whole and found.compiled:
            found = Choice(False, NOT_ALONE)
        handlers = []
        for handler in work.handlers:
            alone = choice(self._program, dataclasses.replace(work, handlers=(handler,)), final=final)
            if whole and alone.compiled:
                alone = Choice(False, NOT_ALONE)
            at = f"{file_of(handler.function)}:{alone.line}" if alone.line else ""
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
    predicted, and what will be compiled is said for a log of this size. `slices` is as for `replay`, `force` is its `strategy`. Without `cores`
    it is the plan of a replay on this machine. Raises UsageError for something that is not a program or a log,
    PlanError for a forced strategy that is not exact.
    """
    return explain_as(program, log, slices, cores, force, USUAL)


def explain_as(
    program: Program | type[Program], log: Any, slices: int | None, cores: int | None,
    force: str | Mapping[str, str] | None, tuning: Tuning,
) -> Explanation:  # fmt: skip
    """`explain` with other thresholds."""
    from timelapse.analysis import analyse

    bound = as_program(program)
    counts = counts_of(log)
    given, cores = cores, cores or usable_cores()
    events = None if counts is None else sum(counts.get(e.__name__, 0) for e in spec_of(bound).events)
    reader = getattr(log, "reader", None)
    if reader is None:
        found = explain_analysis(
            bound, analyse(bound), log, slices=slices, cores=cores, force=force,
            kernels=Compiler(bound, events, slices, cores, tuning.kernels),
        )  # fmt: skip
        many = tuning.kernels.cold_events * max(1, cores) if events is None else events
        return dataclasses.replace(found, late=how_found(bound, analyse(bound), many, tuning.kernels))
    make = planner(bound, log, slices, force, tuning)
    plan = make(cores, cores)
    if given is None and existing() is None and wanted() is None:
        forced = slices is not None or force is not None
        plan = (plan_here(make, cores, reader.count, asked=True, forced=forced, tuning=tuning) or (plan,))[0]
    whole = plan.law.serial_seconds

    def relative(n: int) -> float:
        found = plan if n == cores else make(n, n)
        return found.ratio(None, slices) * found.law.serial_seconds / whole if whole else 1.0

    found = explain_analysis(
        bound, analyse(bound), log, slices=slices, cores=cores, force=force,
        kernels=Compiler(bound, reader.count, slices or plan.most, cores, tuning.kernels), plan=plan,
        foretold={n: relative(n) for n in sorted({*LAW_CORES, cores})},
    )  # fmt: skip
    each = share_of(reader.count, slices or plan.most or cores, cores)
    passes = [(s.work, each, False) for s in plan.stages] if plan.mode == "staged" else []
    found = dataclasses.replace(
        found, to_compile=len(uncompiled(bound, [*passes, (plan.last, reader.count, True)], tuning.kernels)[0]),
        late=how_found(bound, analyse(bound), reader.count, tuning.kernels),
    )  # fmt: skip
    try:
        refuse_silence(bound, reader)
    except SilentLog as error:
        note = Note(error.code, "error", str(getattr(log, "path", "")), error.message, error.hint or "")
        found = dataclasses.replace(found, diagnostics=(*found.diagnostics, note))
    return found


def planner(
    program: Program,
    log: Any,
    slices: int | None,
    force: str | Mapping[str, str] | None,
    tuning: Tuning = USUAL,
) -> Callable[..., Plan]:
    """What plans a replay of a log, as `replay` does: for so many tasks at once, threads of a task that runs alone, and machines."""
    from timelapse.analysis import analyse
    from timelapse.run.conflicts import plan_of

    analysis, counts = analyse(program), counts_of(log)
    known: dict[str, Measured | None] = {}

    def make(cores: int, threads: int, machines: int = 1) -> Plan:
        return plan_of(
            program,
            analysis,
            log.reader,
            counts,
            cores=cores,
            threads=threads,
            slices=slices,
            force=force,
            known=known,
            machines=machines,
            tuning=tuning,
        )

    return make


def scale(
    program: Program | type[Program], log: Any, machines: Sequence[int], cores: int | None = None, *,
    slices: int | None = None, force: str | None = None, tuning: Tuning = USUAL,
) -> list[ScaleRow]:  # fmt: skip
    """What a replay of the log would take on each of these numbers of machines, with `cores` cores each (this machine's).

    `slices` and `force` are as for `replay`. Raises UsageError for numbers of machines below 1, or a log that does not count its events.
    """
    from timelapse.analysis import analyse

    bound = as_program(program)
    counts = counts_of(log)
    if counts is None:
        raise UsageError(
            "--scale needs a log", hint="timelapse explain rules.py:Program LOG --scale 1,2,4", code="TL810"
        )
    cores = cores or usable_cores()
    events = sum(counts.get(e.__name__, 0) for e in spec_of(bound).events)
    planned = None if getattr(log, "reader", None) is None else planner(bound, log, slices, force, tuning)

    def make(total: int, on: int) -> Plan:
        if planned is not None:
            return planned(total, cores, on)
        compiler = Compiler(bound, events, slices, total, tuning.kernels)
        return make_plan(
            analyse(bound),
            counts=counts,
            cores=total,
            slices=slices,
            force=force,
            threads=cores,
            machines=on,
            compiled=compiler.compiled,
        )

    writes = sum(writes_of(stage.work, counts) for stage in make(cores, 1).stages) / max(1, events)
    return foretold(make, events, writes, machines, cores, slices)
