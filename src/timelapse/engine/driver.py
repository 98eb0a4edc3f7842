"""The driver: which passes run over which slices, and what proves the result.

The proof (design.md, section 3, "A run proves itself"): the final pass runs the whole program, so
it sees what each slice really changes. By induction over slices, if every slice's real change
equals the one that was used to find the next slice's start, all start states were exact, whatever
the analysis believed. Where they differ, everything from the next slice on runs again one slice
after the other from the state that was really reached, and the run says so.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.ipc

from timelapse.engine.executor import Executor
from timelapse.engine.job import (
    Failure,
    Job,
    SliceReport,
    SumRow,
    Task,
    TaskResult,
    Totals,
    same_name,
)
from timelapse.engine.progress import Progress
from timelapse.errors import HandlerError, Place
from timelapse.model.program import spec_of

if TYPE_CHECKING:
    from timelapse.plan.plan import Plan


@dataclass
class Fallback:
    """Why a part of the run was done again slice after slice."""

    from_slice: int
    reason: str
    is_bug: bool


@dataclass
class Outcome:
    """What the driver hands on to the commit."""

    totals: Totals
    schemas: dict[str, pa.Schema]
    events: int
    timings: dict[str, float] = field(default_factory=dict)
    validated: int = 0
    """Number of slices whose change was compared with the one predicted for it."""
    fallback: Fallback | None = None
    reports: list[SliceReport] = field(default_factory=list)
    """What each slice did, in order."""


class Driver:
    """Runs one job by a plan."""

    def __init__(
        self, job: Job, plan: Plan, executor: Executor, progress: Progress,
        known: Mapping[tuple[str, int], SumRow] | None = None,
    ) -> None:  # fmt: skip
        """`known`: what each slice changes of each state, where all start states are in place already."""
        self._job = job
        self._known = known
        self._plan = plan
        self._executor = executor
        self._progress = progress
        self._next_task = 0
        self._predicted: dict[tuple[str, int], SumRow] = dict(known or {})
        self._timings: dict[str, float] = {}
        self._work: dict[str, float] = {}

    def run(self) -> Outcome:
        """Run everything. Raises HandlerError for the first failing event in log order."""
        slices = self._job.slices
        known = slices
        fallback: Fallback | None = None
        reports: dict[int, SliceReport] = {}
        if slices > 1 and (self._known is not None or self._plan.mode == "staged"):
            known = slices if self._known is not None else self._find_starts()
            if known < slices:
                fallback = Fallback(known, "a handler raised in a pass that runs ahead", is_bug=False)
            result = self._final(known)
            reports, failure, broken = self._judge(result, known)
            if broken is not None:
                fallback = Fallback(broken + 1, self._blame(reports[broken]), is_bug=True)
                self._progress.note(
                    f"slice {broken}: the predicted change was wrong ({fallback.reason}); running on from "
                    f"slice {broken + 1} one by one. This is a bug in Timelapse, and the result is still exact"
                )
            elif failure is not None:
                raise handler_error(failure)
            validated = (known - 1) if broken is None else broken
            begin = slices if fallback is None else fallback.from_slice
        else:
            validated, begin = 0, 0
        reports = {i: r for i, r in reports.items() if i < begin}
        self._accept(reports)
        if begin < slices:
            rest = self._one_by_one(begin)
            self._accept(rest)
            reports |= rest
        return self._outcome([reports[i] for i in range(slices)], validated, fallback)

    # --- start states -----------------------------------------------------------------------------

    def _find_starts(self) -> int:
        """Run the delta and chain passes. Returns for how many slices the start state is known."""
        job, known = self._job, self._job.slices
        for index, stage in enumerate(self._plan.stages):
            if known == 1:
                break
            name = stage.name
            if stage.strategy == "chain":
                tasks = [self._task("chain", name, index=index, first=0, last=known - 2)]
            else:
                tasks = [self._task("pass", name, index=index, first=i, last=i) for i in range(known - 1)]
            results = self._execute(name, tasks)
            failed = [r.failure.slice for r in results if r.failure is not None]
            known = min([known, *(f + 1 for f in failed)])
            if known == 1:
                break
            merges = [
                self._task("merge", name, index=index, last=known - 1, state=state)
                for state in job.passes[index].targets
            ]
            for merge, result in zip(merges, self._execute(f"{name}: merge", merges), strict=True):
                for report in result.reports:
                    self._predicted[merge.state, report.slice] = report.moved[merge.state]
        return known

    # --- the final pass ---------------------------------------------------------------------------

    def _final(self, known: int) -> list[TaskResult]:
        return self._execute("final", [self._task("final", "final", first=i, last=i) for i in range(known)])

    def _judge(
        self, results: list[TaskResult], known: int
    ) -> tuple[dict[int, SliceReport], Failure | None, int | None]:
        """The slices' reports; the first failure that is real; the first slice that was mispredicted."""
        reports: dict[int, SliceReport] = {}
        for index, result in enumerate(results):
            if result.failure is not None:
                return reports, result.failure, None  # all slices before it are validated: it is real
            report = reports[index] = result.reports[0]
            if index < known - 1 and self._wrong_states(report):
                return reports, None, index
        return reports, None, None

    def _wrong_states(self, report: SliceReport) -> list[str]:
        names = spec_of(self._job.program).states
        return [n for n in names if self._predicted.get((n, report.slice)) != report.moved.get(n)]

    def _blame(self, report: SliceReport) -> str:
        return "state " + ", ".join(self._wrong_states(report))

    def _one_by_one(self, begin: int) -> dict[int, SliceReport]:
        name = "final" if begin == 0 else f"final, from slice {begin} one by one"
        task = self._task("final_chain", name, first=begin, last=self._job.slices - 1)
        (result,) = self._execute(name, [task])
        if result.failure is not None:
            raise handler_error(result.failure)
        return {report.slice: report for report in result.reports}

    def _accept(self, reports: dict[int, SliceReport]) -> None:
        """Move the results of these slices into the run. Those of no other attempt ever get there."""
        for report in reports.values():
            folder = self._job.attempt_path(report.attempt)
            for path in sorted(p for p in folder.rglob("*") if p.is_file()):
                target = self._job.out / path.relative_to(folder)
                target.parent.mkdir(parents=True, exist_ok=True)
                path.replace(target)

    # --- helpers ----------------------------------------------------------------------------------

    def _task(
        self, kind: str, name: str, *, index: int = 0, first: int = 0, last: int = 0, state: str = ""
    ) -> Task:
        cuts = self._job.cuts
        events = 0 if kind == "merge" else cuts[last + 1] - cuts[first]
        self._next_task += 1
        return Task(self._next_task, kind, name, index, first, last, state, events)  # type: ignore[arg-type]

    def _execute(self, name: str, tasks: list[Task]) -> list[TaskResult]:
        started = time.perf_counter()
        results = self._executor.run(name, tasks, self._progress)
        self._timings[name] = self._timings.get(name, 0.0) + time.perf_counter() - started
        return results

    def _outcome(self, reports: list[SliceReport], validated: int, fallback: Fallback | None) -> Outcome:
        totals, schemas = Totals(), {}
        classes: dict[str, str] = {}
        for report in reports:
            totals.add(report)
            for name, cls in report.classes.items():
                if classes.setdefault(name, cls) != cls:
                    raise same_name(name)
            for name, data in report.schemas.items():
                schemas[name] = pa.ipc.read_schema(pa.py_buffer(data))
        events = self._job.reader.count
        return Outcome(totals, schemas, events, self._timings, validated, fallback, reports)


def handler_error(failure: Failure) -> HandlerError:
    """The error that a task's failure stands for."""
    return HandlerError(
        failure.message, place=Place(failure.file, failure.line, failure.what), hint=failure.hint,
        code=failure.code, ts=failure.ts, seq=failure.seq, handler=failure.handler, event=failure.event,
        user_traceback=failure.traceback,
    )  # fmt: skip
