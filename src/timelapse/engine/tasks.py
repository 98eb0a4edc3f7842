"""What a task does. The same code runs in this process and in Spark's workers."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from timelapse.analysis.result import PassProgram
from timelapse.engine import resume, rows
from timelapse.engine.checked import Checked
from timelapse.engine.exchange import Merge, report_of
from timelapse.engine.job import (
    Failure,
    Job,
    RepairRow,
    SliceReport,
    Task,
    TaskResult,
    change_path,
)
from timelapse.engine.portions import Joined, Portions
from timelapse.engine.results import Keep, keep_beside, keep_results
from timelapse.engine.spill import Spill
from timelapse.env.garbage import collected_rarely, give_back, keep_little
from timelapse.env.machine import carried, cores, memory_setting, state_memory
from timelapse.errors import HandlerError
from timelapse.kernels.base import Abandoned, PassResult
from timelapse.kernels.budget import Spent
from timelapse.kernels.choose import SliceKernel, is_compiled_alone
from timelapse.kernels.iterate.recording import Recording, read, write
from timelapse.kernels.iterate.repair import RepairKernel, guess, specs_of
from timelapse.kernels.kernel import Kernel
from timelapse.kernels.native.foreseen import Foreseen, NotForeseen
from timelapse.kernels.once import passes_once
from timelapse.kernels.parts import Part
from timelapse.kernels.python.timed import TimedKernel
from timelapse.kernels.rowlog import Before
from timelapse.kernels.source import Source
from timelapse.kernels.takeout.kernel import TakingKernel
from timelapse.model.decimals import in_usual_context
from timelapse.model.events import Event
from timelapse.program.failure import Quarantined
from timelapse.program.program import spec_of
from timelapse.tables import merge
from timelapse.tables.apply import empty
from timelapse.tables.levels import Start
from timelapse.tables.sharing import Beside
from timelapse.tables.table import read_table, write_table

Starts = Callable[..., dict[str, pa.Table]]
"""Gives, for a job, a pass and a slice, states at the slice's start: all that the pass knows, or some by name."""
_BESIDE = 16
"""Results of a slice are written while the next one runs, as long as they take no more than this part of the budget."""
Report = Callable[[int], None]
"""Called with the number of events done since the last call."""


@collected_rarely()
@passes_once()
@in_usual_context
def execute(job: Job, task: Task, report: Report) -> TaskResult:
    """Do one task. A handler's exception is part of the result, not raised.

    Several threads may do tasks at the same time.
    """
    started = time.perf_counter()
    if job.memory is not None and memory_setting() is not None:
        keep_little()
    if task.kind == "merge":
        result = _merge(job, task)
    else:
        run = {
            "pass": _pass, "chain": _pass, "guess": _guess, "repair": _repair, "final": _final,
            "final_chain": _final_chain,
        }  # fmt: skip
        result = run[task.kind](job, task, report)
    result.seconds["total"] = time.perf_counter() - started
    return result


# --- passes that find start states ----------------------------------------------------------------


def _pass(job: Job, task: Task, report: Report) -> TaskResult:
    """Also a chain: one slice after the other."""
    return _run_slices(job, task, task.index, _exact(job, task), report, _keep_effects(job, task))


def _keep_effects(job: Job, task: Task) -> Keep:
    """Write what a pass found, under names of this attempt's own."""
    attempt = uuid.uuid4().hex

    def keep(report: SliceReport, result: PassResult | None) -> None:
        if result is None:
            resume.mark(job, task, report, task.start)
            return
        report.attempt = attempt
        for state in job.passes[task.index].targets:
            path = job.effects_path(attempt, report.slice, state)
            report.beside[path.relative_to(job.scratch).as_posix()] = write_table(result.effects[state], path)
        rows.keep_found(job, report, result.rows)
        resume.mark(job, task, report, task.start)

    return keep


def _guess(job: Job, task: Task, report: Report) -> TaskResult:
    """Run a pass from a start that may be wrong, and record it. Nothing that goes wrong is an error here."""
    work, files = job.passes[task.index], Checked(job, task)
    result = TaskResult(task.id)
    started = time.perf_counter()
    exact = sorted(work.exact - set(work.targets))
    starts = {} if task.seed == 0 else {n: files.table(job.start_path(task.seed, n)) for n in work.targets}
    if task.first:
        starts |= {name: files.table(job.start_path(task.first, name)) for name in exact}
    middle = time.perf_counter()
    source = Source(
        job.reader, job.cuts[task.first], job.cuts[task.last + 1], _classes(job, work), work.columns
    )
    memory = state_memory() if job.memory is None else job.memory
    recording = guess(job.program, work, starts, source, task.events, report, memory)
    ended = time.perf_counter()
    if not recording.reason:
        attempt = uuid.uuid4().hex
        write(recording, specs_of(job.program, work), job.recording_path(attempt))
        result.reports.append(SliceReport(task.first, attempt=attempt))
    result.seconds = {
        "load": middle - started, "kernel": ended - middle, "write": time.perf_counter() - ended
    }  # fmt: skip
    return result


def _repair(job: Job, task: Task, report: Report) -> TaskResult:
    """What a chain does, from recordings."""
    work = job.passes[task.index]
    states = specs_of(job.program, work)
    memory = state_memory() if job.memory is None else job.memory

    def recording(lo: int) -> Recording | None:
        attempt = task.attempts[job.cuts.index(lo) - task.first]
        return read(states, job.recording_path(attempt)) if attempt else None

    def begin(known: Mapping[str, Start]) -> Kernel:
        return RepairKernel(
            job.program,
            work,
            known,
            task.events,
            recording=recording,
            memory=memory,
            quarantine=job.quarantine,
        )

    return _run_slices(job, task, task.index, _exact(job, task), report, _keep_effects(job, task), begin)


def _merge(job: Job, task: Task) -> TaskResult:
    """One step of the exclusive prefix: the start of the next slice, and the change that this one is said to make."""
    started = time.perf_counter()
    merge, files = Merge.of(job, task), Checked(job, task)
    for path in merge.paths:
        files.need(path)
    return report_of(job, task, merge.here(), started)


# --- the final pass -------------------------------------------------------------------------------


def _final(job: Job, task: Task, report: Report) -> TaskResult:
    return _run_final(job, task, _exact(job, task), report)


def _final_chain(job: Job, task: Task, report: Report) -> TaskResult:
    def starts(job: Job, index: int, slice_id: int, states: Sequence[str] = ()) -> dict[str, pa.Table]:
        names = states or tuple(spec_of(job.program).states)
        return {name: _reached(job, name, slice_id) for name in names}

    return _run_final(job, task, starts, report)


def _run_final(job: Job, task: Task, starts: Starts, report: Report) -> TaskResult:
    with Beside(task.threads) as beside:
        keep = keep_results(job, task, beside)
        result = _run_slices(job, task, len(job.passes) - 1, starts, report, keep, written=beside.wait)
    result.seconds["write"] = result.seconds.get("write", 0.0) + beside.seconds
    return result


def _reached(job: Job, state: str, slice_id: int) -> pa.Table:
    """A state at a slice's start: from where it is a table already, by what each slice since has changed."""
    spec, first = spec_of(job.program).states[state], min(slice_id, job.given)
    path = job.start_path(first, state)
    start, first = (read_table(path), first) if first and path.exists() else (empty(spec), 0)
    changes = [change_path(job.out, index, state) for index in range(first, slice_id)]
    return merge.fold(spec, start, [read_table(change) for change in changes if change.exists()])


# --- both -----------------------------------------------------------------------------------------


def _exact(job: Job, task: Task) -> Starts:
    """The exact states of a pass at a slice's start, or those asked for, as files of the job have them."""
    files = Checked(job, task)

    def starts(job: Job, index: int, slice_id: int, states: Sequence[str] = ()) -> dict[str, pa.Table]:
        if slice_id == 0:
            return {}
        wanted = states or sorted(job.passes[index].exact)
        return {name: files.table(job.start_path(slice_id, name)) for name in wanted}

    return starts


def _run_slices(
    job: Job, task: Task, index: int, starts: Starts, report: Report, keep: Keep,
    kernel_of: Callable[[Mapping[str, Start]], Kernel] | None = None, *, given_up: bool = False, foresees: bool = True,
    written: Callable[[], None] = lambda: None,
) -> TaskResult:  # fmt: skip
    """Run a pass over the task's slices, one after the other. `given_up`: it could not do so compiled. `foresees`: events that fail
    later may be left out before that.

    `written` returns when all that `keep` was given is in its files.
    """
    with ExitStack() as opened:
        return _over_slices(
            job,
            task,
            index,
            starts,
            report,
            keep,
            kernel_of,
            given_up=given_up,
            foresees=foresees,
            written=written,
            opened=opened,
        )


def _over_slices(
    job: Job, task: Task, index: int, starts: Starts, report: Report, keep: Keep,
    kernel_of: Callable[[Mapping[str, Start]], Kernel] | None, *, given_up: bool, foresees: bool,
    written: Callable[[], None], opened: ExitStack,
) -> TaskResult:  # fmt: skip
    """The same. Kernels that it opens are closed by then, or with `opened`."""
    work = job.passes[index]
    classes = _classes(job, work)
    result = TaskResult(task.id)
    account = result.seconds
    memory = _budget(job, task)
    final = index == len(job.passes) - 1

    part = None if task.parts == 1 else Part.of(job.program, work, task.part, task.parts)
    events = task.events // task.parts
    share = max(events, task.share)

    spec = spec_of(job.program)
    serial = work.serial is not None and (
        given_up or not is_compiled_alone(job.program, work, share, job.tuning)
    )
    serial = serial or work.takes_late
    if serial:
        # Fields that only a later event's handler reads are read too: rows are kept whole.
        classes = job.classes

    gone: set[int] = set()
    taken: list[Quarantined] = []

    # What compiled passes keep of most windows begins with the log, and nobody is told of it.
    asked = job.resumable and bool(job.passes[-1].logs)
    alone = task.kind == "final_chain" and task.first == 0 and not asked
    from_start = task.kind == "final_chain" and task.first == 0 and not job.given
    foreseen = Foreseen(job.end_of(job.slices - 1)) if foresees and from_start else None
    if foreseen is not None:
        opened.callback(foreseen.close)

    def begin(known: Mapping[str, Start], before: Before | None) -> Kernel:
        kernel = made(known, before)
        opened.callback(kernel.close)
        return kernel

    def made(known: Mapping[str, Start], before: Before | None) -> Kernel:
        if kernel_of is not None:
            return kernel_of(known)
        if work.takes_late:
            assert job.quarantine is not None
            return TakingKernel(job.program, job.quarantine, job.until, job.tuning.taking)
        if serial:
            return TimedKernel(job.program, job.quarantine)
        return SliceKernel(
            job.program, work, known, events, final=final, prefetch=task.threads > 1, memory=memory,
            ahead=task.ahead,
            quarantine=job.quarantine, workers=task.threads if final else 1,
            before=before, rows=task.kind != "final_chain" or asked, folder=job.rows_folder, alone=alone, given_up=given_up,
            share=share, tuning=job.tuning, gone=gone, foreseen=foreseen,
            companions=job.aside.companions if final and job.aside is not None else (),
        )  # fmt: skip

    def starts_at(slice_id: int, state: str) -> pa.Table:
        return starts(job, index, slice_id, (state,))[state]

    started = time.perf_counter()
    known = starts(job, index, task.first)
    # Only states whose changes are in files can be brought up to date there.
    exact = sorted(spec_of(job.program).states if final else work.exact)
    spill = Spill(job, exact, known) if final or set(exact) <= set(work.targets) else None
    kernel: Kernel = begin(known, rows.Before(job, task.first, starts_at, Checked(job, task).table))
    accompanied = kernel.accompanied  # it may go on as Python, alone
    account.update(kernel.seconds)
    account["load"] = time.perf_counter() - started - sum(kernel.seconds.values())
    whole = kernel_of is not None or job.aside is not None or spill is None or bool(work.delta)
    portions = None
    if not (whole or work.takes_late):
        portions = Portions(job, work, share, memory, part=1 / task.parts, first=task.first)
    known_size = portions is not None and portions.known
    spans = [s for s in job.spans if task.first <= s[0] <= task.last]
    if final:
        spans = [(slice_id, slice_id) for slice_id in range(task.first, task.last + 1)]
    for slice_id, last in spans:
        lo, end = job.cuts[slice_id], job.cuts[last + 1]
        joined: Joined | None = None
        while True:
            hi = end if portions is None else min(end, lo + portions.size(end - lo))
            is_whole = hi == end and joined is None
            if not is_whole and joined is None:
                assert spill is not None
                written()
                joined = Joined(job, task, index, slice_id, {name: spill.now(name) for name in exact})
            started = time.perf_counter()
            source = Source(job.reader, lo, hi, classes, work.columns, part)
            if final and task.threads > 1 and is_whole and last < task.last and known_size:
                source = replace(source, later=memory // _BESIDE)
            if serial:
                fields = {name: tuple(f.name for f in cls.__fields__) for name, cls in classes.items()}
                source = replace(source, columns=fields)
            if spec.times:
                since = job.end_of(slice_id - 1) if slice_id else None
                if joined is not None and lo > job.cuts[slice_id]:
                    since = job.reader.ts_before(lo)
                source = replace(
                    source, begin=job.reader.ts_first, since=since,
                    end=job.end_of(last) if hi == end else job.reader.ts_before(hi),
                    is_last=last == job.slices - 1 and hi == end,
                )  # fmt: skip
            held = kernel.state_bytes
            try:
                done = kernel.run(source, report)
            except Spent:
                result.failure = Failure(
                    slice_id, "an event spent its budget in a pass that ran ahead", None, None, None, None, "", 0,
                    -1, "", "", "", spent=True,
                )  # fmt: skip
                return result
            except Abandoned as why:
                kernel.close()
                if spill is not None:
                    spill.close()
                if joined is not None:
                    joined.discard()
                if spec.times:
                    foresaw = isinstance(why, NotForeseen)
                    return _run_slices(
                        job, task, index, starts, report, keep, given_up=not foresaw, foresees=False, written=written
                    )  # fmt: skip
                plain = replace(job, passes=(*job.passes[:-1], replace(work, by_key=None)))
                again = _run_slices(plain, task, index, starts, report, keep, written=written)
                again.abandoned, again.abandoned_is_bug = why.reason, why.is_bug
                return again
            middle = time.perf_counter()
            _book(account, done.seconds, middle - started)
            result.compiled = kernel.compiled
            result.why_python = kernel.why_python
            result.workers = task.threads if kernel.workers else 1
            taken += done.quarantined
            if done.failure is not None:
                error = _with_whole_event(job, done.failure, done.failed_seq)
                result.failure = _failure(slice_id, error, guessed=not final)
                result.failure.before = tuple(taken)
                if joined is not None:
                    result.failure.taken = (*joined.taken, *result.failure.taken)
                    joined.discard()
                return result
            if joined is None:
                slice_report = SliceReport(slice_id, done.events, pending=done.pending)
                if done.repaired is not None:
                    slice_report.repaired = RepairRow(**vars(done.repaired))
                keep(slice_report, done)
                if job.aside is not None and accompanied:
                    slice_report.aside = keep_beside(job, job.aside, slice_id, done.beside, task.threads)
                changed: Mapping[str, Path | pa.Table] = {
                    name: _written(job, task, slice_report, name) for name in exact
                }
            else:
                written()
                changed = joined.add(done)
                slice_report = joined.report
                if hi == end:
                    joined.close()
                    keep(slice_report, None)
            if hi == end:
                result.reports.append(slice_report)
            if portions is not None:
                portions.took(hi - lo, done, kernel.state_bytes - held, compiled=kernel.compiled)
            goes_on = last < task.last or hi < end
            if goes_on and (joined is not None or done.nbytes > memory // _BESIDE):
                written()
                done = PassResult()
                give_back()
            ended = time.perf_counter()
            account["write"] = account.get("write", 0.0) + ended - middle
            if spill is not None and goes_on:
                for name, change in changed.items():
                    spill.add(name, change)
                if kernel.state_bytes > carried(memory):
                    written()
                    now = spill.stop()
                    if now is not None:
                        before = kernel.carried()
                        kernel.close()  # before the new one takes memory
                        del done
                        give_back(cycles=True)
                        kernel = begin(now, before)
                    account["exchange"] = account.get("exchange", 0.0) + time.perf_counter() - ended
            if hi == end:
                break
            lo = hi
    if spill is not None:
        spill.close()
    return result


def _budget(job: Job, task: Task) -> int:
    """Bytes for the states of a task. One that has the machine's cores for itself has their memory."""
    return state_memory() * min(task.threads, cores()) if job.memory is None else job.memory


def _classes(job: Job, work: PassProgram) -> dict[str, type[Event]]:
    """The event types that a pass reads."""
    # What handlers listen to comes first: a pass may have events of its own, with further columns. What is only sent
    # need not be in the log.
    heard = {e.__name__: e for h in work.handlers for e in h.events}
    return {name: heard.get(name, e) for name, e in job.classes.items() if name in work.columns}


def _written(job: Job, task: Task, report: SliceReport, state: str) -> Path:
    """Where a pass has put what a slice did to a state."""
    if task.kind.startswith("final"):
        return change_path(job.attempt_path(report.attempt), report.slice, state)
    return job.effects_path(report.attempt, report.slice, state)


def _book(account: dict[str, float], parts: Mapping[str, float], taken: float) -> None:
    """Add a pass's own account. What it does not tell apart (handlers as Python pull rows in) is the kernel's."""
    for phase, seconds in parts.items():
        account[phase] = account.get(phase, 0.0) + seconds
    account["kernel"] = account.get("kernel", 0.0) + max(0.0, taken - sum(parts.values()))


def _with_whole_event(job: Job, error: HandlerError, seq: int) -> HandlerError:
    """The error again with the whole event in it: the pass read only the fields that it needed."""
    whole = next(iter(job.reader.events(seq, seq + 1, job.classes)), None)
    if whole is not None:
        error.message = error.message.replace(error.event, repr(whole))
        error.event = repr(whole)
    return error


def _failure(slice_id: int, error: HandlerError, *, guessed: bool) -> Failure:
    """A failure as it travels. In a pass that finds start states one event too many is no failure of the run."""
    return Failure(
        slice=slice_id, message=error.message, file=error.place.file, line=error.place.line,
        what=error.place.what, hint=error.hint, code=error.code, ts=error.ts, seq=error.seq,
        handler=error.handler, event=error.event, traceback=error.user_traceback,
        event_type=error.event_type, cause=error.cause, reproducible=error.reproducible,
        spent=guessed and bool(error.taken), taken=error.taken,
    )  # fmt: skip
