"""The driver: which passes run over which slices, and what proves the result.

The proof (docs/architecture.md, "A run proves itself by induction"): the final pass runs the whole program, so
it sees what each slice really changes. By induction over slices, if every slice's real change
equals the one that was used to find the next slice's start, all start states were exact, whatever
the analysis believed. Where they differ, everything from the next slice on runs again one slice
after the other from the state that was really reached, and the run says so.

Leading slices (plan/schedule.py) have no prediction that could be wrong: what was used to find the
next slice's start is what their final pass changed, from a start that the induction says is exact.
They are a chain, and the argument for the slices after them begins at the state that they reached. Where all slices but the last would lead,
one task may take them all (`Job.runs`): each goes on with the states as the one before left them, and nothing is merged.

What slices change may be known from an earlier replay, of all of them or of those at the beginning. It is a prediction like any other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from timelapse.engine import rows
from timelapse.engine.executor import Executor
from timelapse.engine.job import (
    Failure,
    Job,
    RepairRow,
    SliceReport,
    SumRow,
    Task,
    TaskResult,
    Totals,
    quarantined_path,
    same_name,
    schema_of,
)
from timelapse.engine.known import Known, chained
from timelapse.engine.loop import Loop
from timelapse.engine.outcome import Fallback, Outcome
from timelapse.engine.results import read_quarantined
from timelapse.engine.resume import Finished
from timelapse.engine.stages import Stages
from timelapse.engine.world import REAL, World
from timelapse.errors import HandlerError, Place
from timelapse.kernels.choose import share_of
from timelapse.plan.schedule import Schedule, Step, is_alone
from timelapse.program.failure import Quarantined, quarantined_row, too_many
from timelapse.program.program import spec_of
from timelapse.program.silence import count_ticks
from timelapse.progress import Progress
from timelapse.store.parts import Part
from timelapse.tables.rowhash import ZERO

if TYPE_CHECKING:
    from timelapse.plan.plan import Plan


class Driver:
    """Runs one job by a plan.

    What it schedules are *spans*: slices that a task takes together, most often one (`Job.runs`). `lead` is the number
    of leading spans. A single span is a chain: its slices lead, all but the last. `known`: what slices change of each state, of all or of the first so many, where the states at their
    starts, and behind the last of them, are in place already. No pass runs ahead over these. In a run that is not staged a task takes
    all slices behind them.
    """

    def __init__(
        self, job: Job, plan: Plan, executor: Executor, progress: Progress, *, lead: int = 0,
        known: Mapping[tuple[str, int], SumRow] | None = None, world: World = REAL,
    ) -> None:  # fmt: skip
        self._job = job
        self._plan = plan
        self._executor = executor
        self._progress = progress
        self._disk = world.disk
        self._states = tuple(spec_of(job.program).states)
        self._staged = job.slices - job.given > 1 and (known is not None or plan.mode == "staged")
        self._in_one = self._staged and known is None and len(job.spans) == 1
        self._staged = self._staged and not self._in_one
        held = 0 if known is None else 1 + max((at for _, at in known), default=-1)
        spans = job.spans if self._staged and known is None else [(i, i) for i in range(job.slices)]
        if known is not None and held < job.slices and plan.mode != "staged":
            spans = [*spans[:held], (held, job.slices - 1)]
        self._spans = tuple(span for span in spans if span[0] >= job.given)
        self._schedule = Schedule(plan.shapes, len(self._spans), lead if self._staged else 0, held)
        self._known = Known(job, dict(known or {}))
        self._predicted = self._known.predicted
        """What spans change of states: of a slice each change, of several what their changes come to."""
        self._source = {name: stage.index for stage in plan.stages for name in stage.states}
        self._finals: dict[int, TaskResult] = {}
        self._workers, self._abandoned = 1, ""
        self._repairs: dict[str, list[RepairRow]] = {}
        self._standing = 0
        """So many spans are known to stand: their final pass succeeded and changed what was predicted."""
        self._stopped = "a handler raised in a pass that runs ahead"
        """Why passes that run ahead did not reach a slice, where one did not."""
        self._next_task = 0
        self._stages = Stages(progress, self._totals(), self._steps)
        self._finished = Finished(job, world.disk)
        self._loop = Loop(executor, self._stages, self._finished, world)

    def run(self) -> Outcome:
        """Run everything. Raises HandlerError for the first failing event in log order."""
        slices, given = self._job.slices, self._job.given
        ticks = self._ticks(-1, given, slices - 1)
        if ticks > self._job.reader.count:
            self._progress.note(f"{ticks:,} ticks beside {self._job.reader.count:,} events")
        reports: dict[int, SliceReport] = {}
        begin, fallback = given, None
        try:
            if self._staged:
                self._run_ahead()
                reports, fallback = self._judge()
                begin = slices if fallback is None else fallback.from_slice
            self._accept(reports)
            if begin < slices:
                reports |= self._taken_over(begin, reports)
            first = begin + sum(at >= begin for at in reports)
            if first < slices:
                rest = self._one_by_one(first, reports)
                self._accept(rest)
                reports |= rest
        finally:
            self._loop.close()
        self._check_taken_out(reports.values(), accepted=True)
        outcome = self._outcome([reports[i] for i in range(given, slices)])
        first, behind = (self._spans[at][0] for at in (self._schedule.held, self._schedule.lead))
        outcome.lead = slices - given - 1 if self._in_one else max(0, min(begin, behind) - first)
        outcome.validated = max(0, min(begin - 1, self._spans[-1][0]) - given - outcome.lead)
        outcome.predicted = max(0, self._spans[-1][0] - given - outcome.lead)
        outcome.fallback = fallback
        outcome.taken_over, outcome.torn = (
            (self._finished.slices, self._finished.passes),
            tuple(self._finished.torn),
        )
        outcome.again = self._loop.again
        if self._finished.some:
            self._progress.note(self._finished.text())
        return outcome

    def _taken_over(self, begin: int, before: Mapping[int, SliceReport]) -> dict[int, SliceReport]:
        """The slices from `begin` on, one after the other, with which a replay was done that was killed."""
        last, start = self._job.slices - 1, chained([before[i] for i in sorted(before)])
        found = self._finished.chain(self._task("final_chain", "final", first=begin, last=last, start=start))
        self._accept({report.slice: report for report in found})
        return {report.slice: report for report in found}

    # --- passes, merges and final passes, each as soon as it may ------------------------------------

    def _run_ahead(self) -> None:
        loop, schedule = self._loop, self._schedule
        running: dict[int, Step] = {}
        while True:
            stopped = not self._look()
            if not stopped:
                for state, at in schedule.mergeable():
                    loop.here(self._merge_task(state, at))
                if not loop.merging or self._executor.remote:
                    tasks = []
                    ready = schedule.ready()
                    alone = is_alone(loop.running, ready)
                    for step in self._taken(ready):
                        task = self._step_task(step, alone=alone)
                        running[task.id] = step
                        tasks.append(task)
                    loop.submit(tasks)
            if not loop.running and not loop.merging:
                return
            task, result = loop.wait()
            self._known.take(task, result)
            if task.kind == "merge":
                at = self._span_of(task.first)
                found = self._change(result.reports, at, task.state)
                if found is not None:
                    self._predicted[task.state, at] = found
                schedule.merged(task.state)
                continue
            step = running.pop(task.id)
            if result.failure is not None and result.failure.spent:
                self._stopped = result.failure.message
            if step.kind == "repair":
                self._repairs[self._plan.stages[step.stage].name] = [
                    report.repaired for report in result.reports if report.repaired is not None
                ]
            schedule.done(step, None if result.failure is None else self._span_of(result.failure.slice))
            if step.kind == "final":
                self._finals[step.first] = result

    def _taken(self, ready: Sequence[Step]) -> Iterator[Step]:
        """Steps to begin now: a ready one for each free core, and those that come next in any case, which wait for a core."""
        schedule, room = self._schedule, self._loop.room
        for step in ready[: self._loop.free]:
            schedule.take(step)
            yield step
        while room and (following := schedule.following()) is not None:
            schedule.take(following)
            yield following
            room -= 1

    def _step_task(self, step: Step, *, alone: bool) -> Task:
        name = "final" if step.kind == "final" else self._plan.stages[step.stage].name
        if step.kind == "repair":
            name = repair_name(name)
        ahead = step.kind != "final" or step.first > self._standing
        parts = 1 if step.stage < 0 else self._schedule.parts(step.stage)
        first, last = self._spans[step.first][0], self._spans[step.last][1]
        seed = self._spans[self._schedule.seed][0] if step.kind == "guess" else 0
        states = self._states if step.stage < 0 else sorted(self._job.passes[step.stage].exact)
        guesses: tuple[str, ...] = ()
        if step.kind == "repair":
            guesses = tuple(self._known.found(step.stage, i, 1)[0] for i in range(first, last + 1))
        return self._task(
            step.kind, name, index=max(0, step.stage), first=first, last=last, ahead=ahead, part=step.part, parts=parts,
            seed=seed, attempts=guesses, files=self._known.starts(states, first, seed), start=self._known.start(states, step.first),
            alone=alone and step.kind == "final",
        )  # fmt: skip

    def _merge_task(self, state: str, at: int) -> Task:
        leads = self._schedule.leads(at)
        stage, (first, last) = self._source[state], self._spans[at]
        parts = self._schedule.parts(stage)
        if leads:
            attempts = tuple(report.attempt for report in self._finals[at].reports)
        else:
            attempts = self._known.found(stage, first, parts)
        task = self._task(
            "merge",
            "merge",
            index=stage,
            first=first,
            last=last,
            state=state,
            attempts=attempts,
            parts=parts,
            leads=leads,
        )
        return msgspec.structs.replace(task, files=self._known.merged(task))

    def _look(self) -> bool:
        """Whether every span stands as far as is known: if not, nothing more is done ahead."""
        while self._standing in self._finals and self._is_judged(self._standing):
            result = self._finals[self._standing]
            if result.failure is not None or self._wrong_states(self._standing):
                return False
            self._standing += 1
        return True

    # --- the verdict --------------------------------------------------------------------------------

    def _judge(self) -> tuple[dict[int, SliceReport], Fallback | None]:
        """The slices' reports that stand, and from where and why the rest runs one by one.

        Raises HandlerError for a failure that is real.
        """
        reports: dict[int, SliceReport] = {}
        for at, (first, last) in enumerate(self._spans):
            result = self._finals.get(at)
            if result is None:
                return reports, Fallback(first, self._stopped, is_bug=False)
            reports |= {report.slice: report for report in result.reports}
            if result.failure is not None and result.failure.spent:
                return reports, Fallback(result.failure.slice, result.failure.message, is_bug=False)
            if result.failure is not None:  # all slices before it are validated: it is real
                self._check_taken_out(reports.values(), failure=result.failure)
                raise handler_error(result.failure)
            wrong = self._wrong_states(at) if self._is_judged(at) else []
            quarantined = sum(report.quarantined for report in result.reports)
            what = f"slice {first}" if first == last else f"slices {first} to {last}"
            if wrong and quarantined:
                self._progress.note(
                    f"{what}: {quarantined:,} events were taken out of the log, whose writes had been "
                    f"counted on; running on from slice {last + 1} one by one"
                )
                return reports, Fallback(last + 1, "events were taken out of the log", is_bug=False)
            if wrong:
                reason = "state " + ", ".join(wrong)
                self._progress.note(
                    f"{what}: the predicted change was wrong ({reason}); running on from "
                    f"slice {last + 1} one by one. This is a bug in Timelapse, and the result is still exact"
                )
                return reports, Fallback(last + 1, reason, is_bug=True)
        return reports, None

    def _is_judged(self, at: int) -> bool:
        """Whether there is nothing to predict for a span, or all of it is predicted.

        Where a pass ahead raised, some states have no prediction, and no span was started from it.
        """
        if self._schedule.leads(at) or at == len(self._spans) - 1:
            return True
        if self._finals[at].failure is not None:
            return True
        return all((name, at) in self._predicted for name in self._states)

    def _wrong_states(self, at: int) -> list[str]:
        if self._schedule.leads(at) or at == len(self._spans) - 1:
            return []
        reports = self._finals[at].reports
        return [n for n in self._states if self._predicted.get((n, at)) != self._change(reports, at, n)]

    def _change(self, reports: Sequence[SliceReport], at: int, state: str) -> SumRow | None:
        """What a span changes of a state, as it is compared. Of several slices, each of which may change the same
        keys, it is by how much the sum of what the state holds is another: it begins alike, so it ends alike."""
        if self._spans[at][0] == self._spans[at][1]:
            return reports[0].moved.get(state)
        return SumRow.of(sum((r.content[state].sum() for r in reports if state in r.content), ZERO))

    def _span_of(self, slice_id: int) -> int:
        """The span that a slice is in."""
        return next(at for at, (_, last) in enumerate(self._spans) if slice_id <= last)

    # --- slice after slice --------------------------------------------------------------------------

    def _one_by_one(self, begin: int, before: Mapping[int, SliceReport]) -> dict[int, SliceReport]:
        name = (
            "final"
            if begin == self._job.given or not self._staged
            else f"final, from slice {begin} one by one"
        )
        start = chained([before[i] for i in sorted(before)])
        self._loop.submit(
            [self._task("final_chain", name, first=begin, last=self._job.slices - 1, start=start)]
        )
        _, result = self._loop.wait()
        if result.failure is not None:
            self._check_taken_out(result.reports, failure=result.failure)
            raise handler_error(result.failure)
        self._workers, self._abandoned = result.workers, result.abandoned
        if result.abandoned:
            bug = (
                ". This is a bug in Timelapse, and the result is still exact"
                if result.abandoned_is_bug
                else ""
            )
            self._progress.note(
                f"not by key after all: {result.abandoned}; events ran one after the other{bug}"
            )
        return {report.slice: report for report in result.reports}

    def _check_taken_out(
        self, reports: Iterable[SliceReport], *, failure: Failure | None = None, accepted: bool = False
    ) -> None:
        """Raise TooManyQuarantined where slices, and one that ended at a `failure`, took more events out than they may."""
        most = self._job.quarantine
        if most is None:
            return
        last: list[Quarantined] = []
        if failure is not None and failure.taken:
            last = [*failure.taken, quarantined_row(handler_error(failure))]
        whole = sum(report.quarantined for report in reports) + len(last)
        if whole <= most and not last:
            return
        found: list[Quarantined] = []
        for report in reports:
            folder = self._job.out if accepted else self._job.attempt_path(report.attempt)
            if report.quarantined:
                found += read_quarantined(folder, report.slice)
        earlier: list[Quarantined] = []  # by the run that this one starts from: `most` is without them
        for index in range(self._job.given):
            if quarantined_path(self._job.out, index).exists():
                earlier += read_quarantined(self._job.out, index)
        raise too_many(earlier + found + last, most + len(earlier))

    def _accept(self, reports: Mapping[int, SliceReport]) -> None:
        """Move the results of these slices into the run. Those of no other attempt ever get there."""
        for report in reports.values():
            folder = self._job.attempt_path(report.attempt)
            for name in self._disk.files(folder):
                target = self._job.out / name
                self._disk.make_all(target.parent)
                self._disk.move(folder / name, target)
            rows.accept(self._job, report)

    # --- helpers ------------------------------------------------------------------------------------

    def _totals(self) -> dict[str, int]:
        """The number of events and ticks that each stage processes if all goes well."""
        cuts, lead = self._job.cuts, min(self._schedule.lead, len(self._spans) - 1)
        first, end = self._spans[lead][0], self._spans[-1][0]
        ahead = cuts[end] - cuts[first]
        passes = {
            s.name: (ahead + self._ticks(s.index, first, end - 1)) * self._schedule.parts(s.index)
            for s in self._plan.stages
        }
        return {
            **passes,
            "final": cuts[-1]
            - cuts[self._job.given]
            + self._ticks(-1, self._job.given, self._job.slices - 1),
        }

    def _steps(self, task: Task) -> int:
        final = task.kind.startswith("final")
        return task.events + self._ticks(-1 if final else task.index, task.first, task.last)

    def _ticks(self, index: int, first: int, last: int) -> int:
        """How many ticks a pass goes through in these slices, about."""
        ticking = {h.name for h in spec_of(self._job.program).handlers if h.every is not None}
        if (
            not ticking
            or last < first
            or not any(h.name in ticking for h in self._job.passes[index].handlers)
        ):
            return 0
        since = self._job.reader.ts_first if first == 0 else self._job.end_of(first - 1)
        end = self._job.end_of(last)
        return 0 if since is None or end is None else count_ticks(self._job.program, since, end)

    def _task(
        self, kind: str, name: str, *, index: int = 0, first: int = 0, last: int = 0, state: str = "",
        attempts: tuple[str, ...] = (), ahead: bool = False, part: int = 0, parts: int = 1, seed: int = 0,
        leads: bool = False, files: Mapping[str, Part] | None = None, start: str = "", alone: bool = False,
    ) -> Task:  # fmt: skip
        cuts = self._job.cuts
        events = 0 if kind == "merge" else cuts[last + 1] - cuts[first]
        self._next_task += 1
        alone = alone or kind == "final_chain" or (kind == "final" and len(self._spans) == 1)
        alone = alone or (last > first and self._plan.mode != "staged")  # behind slices that are known
        threads = self._executor.threads if alone else 1
        share = share_of(
            self._job.reader.count, len(self._spans) if self._staged else 1, self._executor.cores, parts
        )
        return Task(
            self._next_task, kind, name, index, first, last, state, events, attempts, threads, ahead,  # type: ignore[arg-type]
            part, parts, seed, share, leads, dict(files or {}), start,
        )  # fmt: skip

    def _outcome(self, reports: list[SliceReport]) -> Outcome:
        totals, schemas = Totals(), {}
        classes: dict[str, str] = {}
        for report in reports:
            totals.add(report)
            for name, cls in report.classes.items():
                if classes.setdefault(name, cls) != cls:
                    raise same_name(name)
            for name, data in report.schemas.items():
                schemas[name] = schema_of(data)
        loop, count = self._loop, self._job.reader.count
        return Outcome(
            totals,
            schemas,
            count,
            loop.account,
            self._stages.seconds(),
            loop.compiled,
            loop.why_python,
            reports=reports,
            pending=dict(reports[-1].pending) if reports else {},
            executor=self._executor.text,
            counted=self._executor.counted(),
            workers=self._workers,
            abandoned=self._abandoned,
            repairs=self._repairs,
        )


def repair_name(stage: str) -> str:
    """What progress calls the repair of a stage's slices."""
    return f"{stage}, repair"


def handler_error(failure: Failure) -> HandlerError:
    """The error that a task's failure stands for."""
    error = HandlerError(
        failure.message, place=Place(failure.file, failure.line, failure.what), hint=failure.hint,
        code=failure.code, ts=failure.ts, seq=failure.seq, handler=failure.handler, event=failure.event,
        user_traceback=failure.traceback, event_type=failure.event_type, cause=failure.cause,
        reproducible=failure.reproducible,
    )  # fmt: skip
    error.before = failure.before
    return error
