"""`tl.replay`: from a program and a log to a published run."""

from __future__ import annotations

import shutil
import time
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from timelapse.analysis import Analysis, analyse
from timelapse.analysis.result import Severity
from timelapse.cache.rerun import Behind, Reuse
from timelapse.engine.executor import Executor, LocalExecutor
from timelapse.engine.job import RESULTS, ROWS, Job
from timelapse.engine.publish import PartialRun
from timelapse.engine.world import REAL, World
from timelapse.env.garbage import collected_rarely
from timelapse.env.machine import memory_setting
from timelapse.env.spark_failures import SparkError
from timelapse.errors import Cancelled, ImpureProgram, NoSpace, Place, StorageError, TimelapseError
from timelapse.ids import INT64_MAX
from timelapse.kernels.once import passes_once
from timelapse.log import Log
from timelapse.moments import Moment, micros
from timelapse.plan import Plan
from timelapse.program.failure import Quarantined, most_failures
from timelapse.program.kept import keep_sources
from timelapse.program.program import Program, as_program, spec_of
from timelapse.program.times import has_own_times, kept
from timelapse.progress import Progress
from timelapse.progress.notebook import default_progress
from timelapse.results.data import DirectoryData
from timelapse.results.manifest import read_manifest, write_manifest
from timelapse.results.stored import RunContext
from timelapse.run.describe import about, manifest_of
from timelapse.run.earlier import Earlier, keep_rows, open_after
from timelapse.run.foresight import compiling, foreseen
from timelapse.run.interrupted import Interrupted, demand, left_by_none, unable
from timelapse.run.late_rows import EndApart, end_apart_text
from timelapse.run.planning import Planner, in_threads
from timelapse.run.quarantine import all_taken_out, replay_without_failing
from timelapse.run.remembered import begun_again, end_for_late, remember_run, remembered
from timelapse.run.request import Engine, Request, Resume, Settings, Several, check_engine
from timelapse.run.run import Run
from timelapse.run.slices import (
    check_slices,
    cut,
    cut_behind,
    cut_in_runs,
    default_slices,
    least_slices,
    spans,
    task_memory,
)
from timelapse.run.source import Source, end_of, is_data, log_of, open_source, refuse_silence, spilled
from timelapse.run.twice import run_twice
from timelapse.store.failures import no_space
from timelapse.store.remote import RemotePath, place_path
from timelapse.store.scratch import scratch_folder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def replay(
    program: Program | type[Program],
    log: Any,
    out: str | Path | None = None,
    slices: int | None = None,
    spark: SparkSession | Literal[False] | None = None,
    *,
    strategy: str | Mapping[str, str] | None = None,
    progress: Progress | None = None,
    allow_impure: bool = False,
    overwrite: bool = False,
    cache: bool = True,
    quarantine: bool = False,
    max_quarantined: int | None = None,
    until: Moment | None = None,
    start_from: Run | str | Path | None = None,
    resumable: bool = False,
    engine: Engine = "auto",
    resume: Resume = "auto",
) -> Run:
    """Replay a program over a log. The result equals `tl.run_serial` to the last bit.

    `log` is a tl.Log, its path, a list of events in log order, or data of which a log is made that lasts as long as the Run: a Spark, pandas or
    Polars DataFrame or an Arrow table whose columns are the fields of the program's event type and `ts`, a `tl.Source`, or these by event
    class, as `tl.Log.write` takes them. `out` is the run's directory
    (default: a temporary one, removed with the Run). `slices` is the number of time slices
    (default: chosen by size and cores). `engine`: "spark" runs all passes as tasks of Spark, on the session that is given or active, or on
    one that is started; "local" never starts or uses Spark; "auto" uses the session that is given or active, and starts one only
    where slices gain more than its start takes. `spark` is the session to use; None takes the active one; False stays in this process. `strategy` forces "chain" (one pass in log order), "staged" (time slices), "scan", "by key" or "iterate" for all
    states, or strategies by state: `{"sent": "chain"}`. `until` (microseconds UTC, ISO 8601 text or a datetime) is the time to which the clock goes on
    after the last event: everything due until then happens.

    `start_from` is a run (tl.Run, or its folder) of the same program and parameters: the replay goes on where that ended. `log` is then
    the run's log, to which events were appended, or another one whose events follow it. The new run is whole: it has
    the outputs and states of one replay over all events, and the same digest. It does without the cache. With the cache on, a replay over
    another version of a log goes on of its own accord from the run that the last replay of the program made, if that is there as it was made. A program that looks
    back on states needs a run that was made `resumable`, which keeps the rows that its last slices left; otherwise, and where the
    program runs as the serial loop, everything is replayed, and the certificate says why.

    Where the process is killed, the slices that are done lie beside `out`. The same replay into the same place goes on with them, on any number of
    cores and with or without Spark, after comparing their files with their checksums; `resume=False` begins again. `resume=True` goes
    on also with what a process of another machine left, which has to be dead, and raises UsageError (TL822), which says why, where there
    is nothing to go on with. One that went on from a run does so again, behind what it had done since, where that run is there as it was. Replays of events in memory begin again; so do those of programs that
    look back on states, or write into the future, where they run as one pass and are not `resumable`.

    With `quarantine` an event at which a handler raises is taken out, as if it had not been in the log, and the
    replay goes on; `Run.quarantined` lists them. Such a replay does without the cache. At most `max_quarantined`
    events are taken out; by default 1,000, or one in twenty of the log's if that is more.

    Raises HandlerError naming the first event in log order at which a handler raised,
    TooManyQuarantined, ImpureProgram when a handler reads a clock, randomness or the like (unless `allow_impure`),
    Cancelled on Ctrl-C; UsageError for arguments that do not fit, LogError for a log that is not whole, PlanError for a strategy that is not exact. After an error nothing is left at `out`.
    """
    settings = Settings(
        slices, strategy, progress or default_progress(), allow_impure, overwrite, cache, quarantine,
        max_quarantined, None if until is None else micros(until, "until="), resumable, engine, resume,
    )  # fmt: skip
    check_engine(engine)
    if slices is not None:
        check_slices(slices)
    if max_quarantined is not None:
        most_failures(max_quarantined, 0)
    return replay_as(as_program(program), log, out, spark, settings, start_from)


def replay_one_of(
    several: Several, program: Program, log: Any, out: Path | None, spark: SparkSession | Literal[False] | None,
    progress: Progress, *, overwrite: bool = False, engine: Engine = "auto",
) -> Run:  # fmt: skip
    """`replay` as one of several."""
    check_engine(engine)
    settings = Settings(progress=progress, overwrite=overwrite, several=several, engine=engine)
    return replay_as(program, log, out, spark, settings)


@collected_rarely()
@passes_once()
def replay_as(
    program: Program, log: Any, out: str | Path | None, spark: SparkSession | Literal[False] | None,
    settings: Settings, start_from: Run | str | Path | None = None,
) -> Run:  # fmt: skip
    """`replay` by settings, also those that it does not offer."""
    place = None if out is None else place_path(out, "run")
    analysis = analyse(program)
    _refuse_impure(analysis, settings.allow_impure)
    if is_data(log):
        made = _TemporaryFolder(large=True)
        settings.progress.note("making a log of the data; tl.Log.write keeps one")
        log = log_of(log, program, made.path / "log", spark)
        run = replay_as(program, log, out, spark, settings, start_from)
        run.hold(made)
        return run
    earlier, last = None, None
    if start_from is None:
        source = open_source(log, program)
    else:
        source, earlier = open_after(start_from, log, program, analysis, quarantine=settings.quarantine)
        _tell_start(earlier, source, settings.progress)
    refuse_silence(program, source.reader)
    twice = None if settings.allow_impure else run_twice(program, analysis, source.reader)
    left, none = None, left_by_none(source, settings)
    if place is not None and settings.resume and not none:
        left = Interrupted.of(program, source, settings, place, start_from=earlier)
    if left is not None and left.how is not None and left.how.begun is not None and not left.finished:
        last = begun_again(left.how.begun, program, analysis, log, settings)
        if last.earlier is None:
            left = left.without(f"the run that it went on from, {last.place}: {last.reason}")
    demand(left, none, settings.resume, place)
    if left is not None and left.why:
        settings.progress.note(f"a replay into this place was killed, and this one begins again: {left.why}")
    if left is not None and left.finished and isinstance(place, RemotePath):
        settings.progress.note(
            f"the run was finished before, and is put into {place} (--no-resume begins again)"
        )
        if (put := left.put(place, overwrite=settings.overwrite)) is not None:
            return Run(
                manifest := read_manifest(put),
                DirectoryData(put, manifest),
                put,
                RunContext(program, source.reader, tuning=settings.tuned.kernels),
            )
    if left is not None and left.how is not None:
        settings.progress.note("going on with a replay that was killed (--no-resume begins again)")
        mode = left.how.mode if left.how.mode in ("chain", "staged") else None
        settings = replace(settings, slices=len(left.how.cuts) - 1, strategy=settings.strategy or mode)
    if start_from is None and (left is None or left.how is None):
        last = remembered(program, analysis, source, log, settings)
    if last is not None:
        if last.earlier is not None and last.source is not None:
            source, earlier = last.source, last.earlier
        settings.progress.note(last.text())
    request = Request(program, analysis, source, settings, twice, earlier, last, left)
    plan, executor, why = Planner(request).settle(spark)
    keep: list[Any] = []
    if place is None:
        keep.append(_TemporaryFolder(large=request.source.reader.count > _SMALL))
        place = keep[0].path / "run"
    if not settings.quarantine or not has_own_times(program):
        return run_plan(request, plan, executor, place, keep, why=why)

    def attempt(request: Request, plan: Plan, gone: Sequence[Quarantined], taking: bool) -> Run:
        refuse_silence(program, request.source.reader)
        return run_plan(request, plan, executor, place, keep, gone=gone, taking=taking, why=why)

    run = replay_without_failing(request, plan, attempt)
    run.use_reader(request.source.reader)
    return run


def _tell_start(earlier: Earlier, source: Source, progress: Progress) -> None:
    if earlier.reason:
        progress.note(f"everything is replayed, also what the run before has: {earlier.reason}")
        return
    if earlier.changed is not None:
        progress.note(
            f"the log has changed since that run, from event {earlier.changed.first:,} on: "
            f"{earlier.slices} of its {earlier.run.slices} slices stay"
        )
    progress.note(f"{earlier.events:,} events were replayed by the run before; {source.left:,} follow")


_SMALL = 100_000
"""A run over so many events may lie where temporary files are kept in memory."""


class _TemporaryFolder:
    """A folder that goes when nobody holds this object any more, or when the process ends."""

    def __init__(self, *, large: bool) -> None:
        self.path = scratch_folder("run", large=large)
        weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)


def run_plan(
    request: Request, plan: Plan, executor: Executor, out: Path, keep: list[Any] | None = None, *,
    gone: Sequence[Quarantined] = (), taking: bool = True, why: str = "", world: World = REAL,
) -> Run:  # fmt: skip
    """Replay by a given plan and publish the run at `out`. The run holds on to what `keep` holds.

    `gone`: the request's reader is without these events already. `taking`: where events at which a handler raises are to
    be taken out, tasks do so. Raises TimesMoved where that moves the times at which slices begin and end. `why`: why the executor is
    the one, for people. `world`: the driver's clock and disk.
    """
    program, source, settings = request.program, request.source, request.settings
    started = time.time()
    clock = time.perf_counter()
    end_of(source.reader.ts_before(INT64_MAX), settings.until)
    # What `keep` holds is where a run is that goes with this process: it need not wait for the disk.
    left = request.interrupted
    partial = PartialRun(
        out,
        overwrite=settings.overwrite,
        lasting=not keep,
        adopted=None if left is None else left.folder,
        disk=world.disk,
    )
    try:
        job, lead, reuse, apart = _job(request, plan, executor, partial, taking=taking, gone=len(gone))
        if left is not None:
            left.begin(job, plan, lead, None if request.remembered is None else request.remembered.begun)
            job = replace(job, marks=job.marks and not unable(job, plan))
        (partial.scratch / RESULTS).mkdir(exist_ok=True)
        if request.begun is not None:
            request.begun.begin(job)
            if plan.mode == "staged":
                request.begun.put_starts(job)
        foretold = foreseen(program, plan, job, executor.cores)
        prepared = time.perf_counter() - clock
        outcome = reuse.run(
            job, plan, executor, settings.progress, lead,
            lambda job: compiling(program, plan, job, executor.cores), world,
        )  # fmt: skip
        outcome.account.add("plan", prepared)
        if request.begun is not None:
            request.begun.add_to(outcome, job)
        seconds = time.perf_counter() - clock
        manifest = manifest_of(
            request,
            plan,
            job,
            outcome,
            reuse,
            foretold,
            started=started,
            seconds=seconds,
            why=why,
            apart=apart,
        )
        origin = {"fingerprint": manifest.fingerprint, "started": manifest.started, "run_seconds": seconds}
        reuse.keep(job, outcome, about(manifest), {**origin, "mode": plan.mode})
        if settings.quarantine and has_own_times(program):
            found = all_taken_out(request, job, gone, [r for r in outcome.reports if r.quarantined])
            manifest = msgspec.structs.replace(
                manifest, quarantined=found, events=source.reader.count - (found - len(gone))
            )
        keep_sources(type(program), manifest.source, partial.path)
        written = {name: part for r in outcome.reports for name, part in r.parts.items()}
        if request.begun is not None:
            written |= request.begun.known
        if settings.resumable and (unkept := keep_rows(job, partial.path)):
            settings.progress.note(f"a run that starts from this one will replay everything: {unkept}")
        files = partial.settle(written)
        whole = time.perf_counter() - clock
        outcome.account.add("publish", whole - seconds)
        account = outcome.account.close(whole, max(executor.cores, executor.threads))
        manifest = msgspec.structs.replace(manifest, seconds=whole, account=account, files=files)
        write_manifest(manifest, partial.path, lasting=partial.lasting, disk=world.disk)
        if isinstance(partial.out, RemotePath):
            size = sum(part.bytes for part in files.values())
            settings.progress.note(
                f"putting {len(files) + 1:,} files, {size / 1e6:,.1f} MB, into {partial.out}"
            )
        partial.commit()
        if not keep:
            remember_run(request, manifest, partial.out)
    except KeyboardInterrupt:  # wherever it comes; where results are waited for, it is Cancelled already
        partial.discard()
        raise Cancelled(
            "cancelled; its tasks were stopped and nothing was published",
            hint="run the same command again to start over",
        ) from None
    except (OSError, StorageError, SparkError) as error:
        failed = _storage_error(error, partial.path)
        if left is None or isinstance(failed, NoSpace) or failed.code == "TL933" or not partial.leave():
            partial.discard()
        else:
            settings.progress.note(
                "what is done is kept: the same command goes on with it (--no-resume begins again)"
            )
        raise failed from (None if failed is error else error)
    except BaseException:
        partial.discard()
        raise
    context = RunContext(program, source.reader, [] if keep is None else keep, tuning=settings.tuned.kernels)
    return Run(manifest, DirectoryData(partial.out, manifest), partial.out, context)


def _storage_error(error: Exception, folder: Path) -> TimelapseError:
    """The error for what happened to a disk, or to Spark, while a run was made in a folder."""
    if isinstance(error, TimelapseError):
        return error
    assert isinstance(error, OSError)
    place = folder if error.filename is None else Path(str(error.filename))
    return no_space(error, place) or StorageError(
        f"the run cannot be made: {error.strerror or error}", place=Place(str(place)), code="TL823",
        hint="run the same command again; if it goes on failing, check the disk or choose another place with --out",
    )  # fmt: skip


def _job(
    request: Request, plan: Plan, executor: Executor, partial: PartialRun, *, taking: bool, gone: int
) -> tuple[Job, int, Reuse, EndApart | None]:
    """What is to be run, how many of its slices lead, what of it is known from earlier replays, and what is cut off for late rows.

    `taking`: where it is asked for, tasks take out events whose handlers raise; so many are `gone` already.
    """
    source, settings, tuning = request.source, request.settings, request.settings.tuned
    reader = source.reader if isinstance(executor, LocalExecutor) else spilled(source.reader, partial.scratch)
    passes = (*(stage.work for stage in plan.stages), plan.last)
    if settings.quarantine and taking:
        passes = tuple(replace(work, takes_out=True) for work in passes)
    memory = memory_setting()
    careful = memory is not None
    tasks = -(-executor.cores // plan.machines) if plan.mode == "staged" else 1  # at a time, on one machine
    if memory is None and isinstance(executor, LocalExecutor):
        memory = task_memory(tasks)
    begun = request.begun
    least = least_slices(request.program, passes[-1], source.left, memory, tasks, tuning)
    slices = settings.slices or default_slices(least, executor.cores, plan)
    if begun is not None and request.remembered is not None:  # as many as the whole log would have
        slices = (
            settings.slices - begun.slices
            if settings.slices
            else max(least, -(-slices * source.left // reader.count))
        )
    cuts, lead = cut(reader, slices, plan, source.begin, tuning=tuning)
    runs: tuple[int, ...] = ()
    leading = lead
    if begun is None and in_threads(plan) and slices > 1 and not spec_of(request.program).times:
        together = spans(reader, slices, plan, max(executor.cores, executor.threads), least, tuning)
        if together < slices:
            cuts, leading, runs = cut_in_runs(reader, slices, together, plan, tuning)

    def behind(known: tuple[int, ...], starts: bool) -> list[int] | None:
        nonlocal lead
        asked = settings.slices is not None
        found = cut_behind(reader, known, slices, plan, least, exactly=asked, starts=starts, tuning=tuning)
        if found is not None:
            lead = found[1]
        return None if found is None else found[0]

    apart = end_for_late(request, plan, cuts) if partial.lasting else None
    if apart is not None:
        cuts = [*cuts[:-1], apart.place, cuts[-1]]
    reuse = _reuse(request, cuts, None if settings.slices is not None else least, behind)
    left = request.interrupted
    if left is not None and left.how is not None:
        own = 0 if begun is None else begun.slices
        cuts, lead, runs = list(left.how.cuts[own:]), left.how.lead, left.how.runs
    elif reuse.store is None:
        lead = leading
    else:  # what is kept for later replays has the start of every slice
        runs = ()
    most = most_failures(settings.max_quarantined, reader.count + gone)
    taken = 0 if begun is None else begun.taken
    job = Job(
        request.program,
        passes,
        reader,
        reuse.cuts(cuts) if begun is None else (*begun.cuts, *cuts[1:]),
        partial.scratch,
        partial.path,
        memory,
        careful,
        quarantine=most - gone - taken if settings.quarantine and taking else None,
        until=settings.until,
        lasting=partial.lasting,
        runs=runs,
        marks=left is not None,
        given=0 if begun is None else begun.slices,
        clock=None if begun is None else begun.clock,
        resumable=settings.resumable,
        tuning=tuning.kernels,
    )
    if settings.resumable:
        (partial.scratch / ROWS).mkdir(exist_ok=True)
    if apart is not None and apart.place not in job.cuts:  # what is kept has other slices
        apart = None
    if apart is not None:
        settings.progress.note(end_apart_text(apart.describe()))
    return job, lead, reuse, apart


def _reuse(request: Request, cuts: list[int], least: int | None, behind: Behind) -> Reuse:
    """What the cache has for a replay with these cuts, with any of `least` slices or more, or with those that `behind` gives."""
    if request.earlier is not None:
        return Reuse.none("the replay starts from a run")
    if request.interrupted is not None and request.interrupted.how is not None:
        return Reuse.none("it goes on with a replay that was killed")
    if request.settings.resumable and kept(request.program):
        return Reuse.none("the run keeps what one that starts from it looks back on")
    if not request.settings.reuses:
        return Reuse.none("it was not asked for")
    source, several = request.source, request.settings.several
    return Reuse.of(
        request.program, request.analysis, source.id, source.reader.count, cuts, least=least,
        several=several is not None, decoded=None if several is None else several.decoded,
        group=None if several is None else several.group, until=request.settings.until, log=source.path, behind=behind,
    )  # fmt: skip


def kept_of(program: Program, log: Log, plan: Plan | None = None) -> dict[str, Any]:
    """What a replay of the log, by a plan where it is known, could start from, or why nothing is kept: for `timelapse explain`."""

    def behind(known: tuple[int, ...], starts: bool) -> list[int] | None:
        assert plan is not None
        slices = default_slices(1, plan.cores, plan)
        found = cut_behind(log.reader, known, slices, plan, 1, exactly=False, starts=starts)
        return None if found is None else found[0]

    analysis = analyse(program)
    found = Reuse.of(
        program, analysis, log.id, log.count, log.reader.cuts(1), least=1, log=str(log.path),
        behind=None if plan is None else behind,
    ).describe()  # fmt: skip
    source = open_source(log, program)
    last = remembered(program, analysis, source, log, Settings())
    apart = None
    if plan is not None and (last is None or last.earlier is None):
        slices = default_slices(
            least_slices(program, plan.last, log.count, memory_setting()), plan.cores, plan
        )
        cuts, _ = cut(log.reader, slices, plan)
        apart = end_for_late(Request(program, analysis, source), plan, cuts)
    return {
        **found,
        "run": None if last is None else last.describe(),
        "end_apart": None if apart is None else apart.describe(),
    }


def _refuse_impure(analysis: Analysis, allowed: bool) -> None:
    bad = [d for d in analysis.diagnostics if d.severity is Severity.ERROR]
    if bad and not allowed:
        first, end = bad[0], "replay would differ from live"
        more = f" (and {len(bad) - 1} more: see `timelapse explain`)" if len(bad) > 1 else ""
        raise ImpureProgram(
            f"{first.message.removesuffix(f': {end}')}: a {end}{more}", place=first.place,
            hint=f"{first.remedy.removesuffix('.')}. allow_impure=True (--allow-impure) replays all the same",
            code=first.code,
        )  # fmt: skip
