"""`tl.replay`: from a program and a log to a published run."""

from __future__ import annotations

import datetime
import inspect
import itertools
import shutil
import tempfile
import time
import weakref
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from timelapse import __version__
from timelapse.analysis import Analysis, analyse
from timelapse.analysis.result import Severity
from timelapse.cache.rerun import Reuse
from timelapse.engine.digest import run_digest, state_digest
from timelapse.engine.driver import Outcome
from timelapse.engine.executor import Executor, LocalExecutor
from timelapse.engine.job import Job, schema_bytes
from timelapse.engine.notebook import default_progress
from timelapse.engine.progress import Progress
from timelapse.engine.publish import PartialRun
from timelapse.engine.tasks import write_quarantined
from timelapse.env.cores import usable_cores
from timelapse.env.machine import memory_setting
from timelapse.errors import ImpureProgram, UsageError
from timelapse.ids import INT64_MAX
from timelapse.kernels.base import Quarantined, output_schema
from timelapse.kernels.choose import lowered_once
from timelapse.log import Log, MemoryLog
from timelapse.log.reader import EventReader
from timelapse.log.types import heard
from timelapse.model.events import Event
from timelapse.model.fingerprint import fingerprint
from timelapse.model.kept import keep_sources
from timelapse.model.program import Program, as_program, spec_of
from timelapse.model.versions import origin_of
from timelapse.plan import Plan
from timelapse.plan.cost import Measured
from timelapse.plan.schedule import cuts_at
from timelapse.run.conflicts import plan_of
from timelapse.run.data import DirectoryData
from timelapse.run.foresight import compiling, foreseen, used_kernels
from timelapse.run.manifest import FORMAT, RecordEntry, RunManifest, StateEntry, write_manifest
from timelapse.run.records import record_types
from timelapse.run.run import Run, RunContext, params_text
from timelapse.run.slices import least_slices
from timelapse.run.takeout import taken_out
from timelapse.tables.rowhash import ZERO

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

IN_PROCESS_EVENTS = 200_000
"""Logs up to this size are replayed in this process when no Spark session is there already."""
SPARK_START_SECONDS = 8.0
"""What it takes to start a local session and to run its first job (measured: 6 to 9 s)."""

_SHIPPED_EVENTS = 20_000
"""Events in memory that may travel to Spark's workers inside the job."""

_UNEVEN_EVENTS = 100_000
"""From this many events on the sizes of slices are chosen, and how many lead."""

_FINE = 4096
"""Boundaries are chosen among those of so many even parts."""


@dataclass(frozen=True)
class Source:
    """What a replay reads: the reader, and where the log is, if it is stored."""

    reader: EventReader
    counts: Mapping[str, int] | None
    path: str | None
    id: str | None
    without: tuple[int, ...] = ()


def open_source(log: Any, program: Program) -> Source:
    """A log, its path, or a list of events, checked against the program's event types."""
    if isinstance(log, str | Path):
        log = Log.open(log)
    events = spec_of(program).events
    if isinstance(log, Log):
        log.bind(heard(spec_of(program), log.types))
        counts = {t.name: t.count for t in log.info().types}
        return Source(log.reader, counts, str(log.path), log.id, log.left_out)
    if isinstance(log, Iterable) and not isinstance(log, MemoryLog):
        listed: list[Event] = list(log)
        log = MemoryLog(listed, list(dict.fromkeys([*events, *(type(e) for e in listed)])))
    if isinstance(log, MemoryLog):
        return Source(log, None, None, None)
    raise UsageError(
        f"a log is needed, not {type(log).__name__}",
        hint="a tl.Log, the path of one, or a list of events", code="TL810",
    )  # fmt: skip


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
    until: int | None = None,
) -> Run:
    """Replay a program over a log. The result equals `tl.run_serial` to the last bit.

    `log` is a tl.Log, its path, or a list of events in log order. `out` is the run's directory
    (default: a temporary one, removed with the Run). `slices` is the number of time slices
    (default: chosen by size and cores). `spark` is the session to use; None takes the active one, or
    starts a local one where that is worth its start; False stays in this process. A local session is not used
    for a plan with a single task. `strategy` forces "chain",
    "staged", or strategies by state. `until` (int64 microseconds UTC) is the time to which the clock goes on
    after the last event: everything due until then happens.

    With `quarantine` an event at which a handler raises is taken out, as if it had not been in the log, and the
    replay goes on; `Run.quarantined` lists them. Such a replay does without the cache.

    Raises HandlerError naming the first event in log order at which a handler raised,
    ImpureProgram when a handler reads a clock, randomness or the like (unless `allow_impure`),
    Cancelled on Ctrl-C. After an error nothing is left at `out`.
    """
    return _replay(
        as_program(program), log, out, slices, spark, strategy, progress or default_progress(), allow_impure, overwrite,
        cache, quarantine, None, until,
    )  # fmt: skip


@dataclass(frozen=True)
class Several:
    """A replay is one of several over a log, of programs that may differ in their last rules only.

    Then what the last rules read of the states is recorded by the first of them, whatever that costs. `decoded` is a
    folder for what they share beyond the cache, as long as they take.
    """

    decoded: Path | None = None


def replay_one_of(
    several: Several, program: Program, log: Any, out: Path | None, spark: SparkSession | Literal[False] | None,
    progress: Progress, *, overwrite: bool = False,
) -> Run:  # fmt: skip
    """`replay` as one of several."""
    return _replay(
        program, log, out, None, spark, None, progress, False, overwrite, True, False, several, None
    )


@lowered_once()
def _replay(
    program: Program, log: Any, out: str | Path | None, slices: int | None, spark: SparkSession | Literal[False] | None,
    strategy: str | Mapping[str, str] | None, listener: Progress, allow_impure: bool, overwrite: bool, cache: bool,
    quarantine: bool, several: Several | None, until: int | None,
) -> Run:  # fmt: skip
    analysis = analyse(program)
    _refuse_impure(analysis, allow_impure)
    source = open_source(log, program)
    planner = _Planner(program, analysis, source, slices, strategy)
    plan, executor = planner.settle(spark, listener)
    keep: list[Any] = []
    if out is None:
        keep.append(_TemporaryFolder())
        out = keep[0].path / "run"
    cache = cache and strategy is None and not allow_impure and not quarantine
    place = Path(out)

    def attempt(reader: EventReader, gone: list[Quarantined] | None) -> Run:
        return run_plan(
            program, analysis, replace(source, reader=reader), plan, executor, place, slices, listener, overwrite,
            keep, cache=cache, quarantine=quarantine, several=several, until=until, gone=gone,
        )  # fmt: skip

    if not quarantine or not spec_of(program).times:
        return attempt(source.reader, None)
    run, _, _ = taken_out(source.reader, attempt)
    run.use_reader(source.reader)
    return run


class _TemporaryFolder:
    """A folder that goes when nobody holds this object any more, or when the process ends."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="timelapse-run-"))
        weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)


def run_plan(
    program: Program, analysis: Analysis, source: Source, plan: Plan, executor: Executor, out: Path,
    slices: int | None, progress: Progress, overwrite: bool, keep: list[Any], *, cache: bool = False,
    quarantine: bool = False, several: Several | None = None, until: int | None = None,
    gone: list[Quarantined] | None = None,
) -> Run:  # fmt: skip
    """Replay by a given plan and publish the run at `out`.

    `gone`: the source's reader is without these events already, and where a handler raises the run fails.
    """
    started = time.time()
    clock = time.perf_counter()
    cores = max(executor.cores, executor.threads)
    end_of(source.reader.ts_before(INT64_MAX), until)
    partial = PartialRun(out, overwrite=overwrite)
    try:
        reader = (
            source.reader if isinstance(executor, LocalExecutor) else _spilled(source.reader, partial.scratch)
        )
        passes = (*(stage.work for stage in plan.stages), plan.last)
        memory = memory_setting()
        least = least_slices(program, passes[-1], reader.count, memory)
        count = slices or default_slices(least, executor.cores, plan)
        boundaries, lead = cut(reader, count, plan)
        reuse = Reuse.none("it was not asked for")
        times = spec_of(program).times
        if times:
            reuse = Reuse.none(f"the program reaches into other times ({times[0].text_of_what})")
        elif cache:
            anywhere = least if slices is None else None
            reuse = Reuse.of(
                program, analysis, source.id, reader.count, boundaries, least=anywhere, several=several is not None,
                decoded=None if several is None else several.decoded,
            )  # fmt: skip
        places = reuse.cuts(boundaries)
        job = Job(
            program,
            passes,
            reader,
            places,
            partial.scratch,
            partial.path,
            memory,
            quarantine and gone is None,
            until,
        )
        (partial.scratch / "results").mkdir()
        before = foreseen(program, plan, job)
        prepared = time.perf_counter() - clock
        outcome = reuse.run(
            job, plan, executor, progress, lead, lambda job: compiling(program, plan, job, executor.cores)
        )
        outcome.account.add("plan", prepared)
        seconds = time.perf_counter() - clock
        manifest = _manifest(program, analysis, source, plan, job, outcome, started, seconds, reuse, before)
        origin = {"fingerprint": manifest.fingerprint, "started": manifest.started, "run_seconds": seconds}
        reuse.keep(job, outcome, _about(manifest), {**origin, "mode": plan.mode})
        if gone is not None:
            manifest = msgspec.structs.replace(manifest, quarantined=len(gone))
            write_quarantined(gone, partial.path, 0)
        keep_sources(type(program), manifest.source, partial.path)
        partial.settle()
        whole = time.perf_counter() - clock
        outcome.account.add("publish", whole - seconds)
        account = outcome.account.close(whole, cores)
        manifest = msgspec.structs.replace(manifest, seconds=whole, account=account)
        write_manifest(manifest, partial.path)
        partial.commit()
    except BaseException:
        partial.discard()
        raise
    context = RunContext(program, source.reader, keep)
    return Run(manifest, DirectoryData(partial.out), partial.out, context)


def end_of(last: int | None, until: int | None) -> int | None:
    """The time at which a run's clock stops. Raises UsageError for an `until` before the last event."""
    if until is None:
        return last
    if type(until) is not int or (last is not None and until < last):
        raise UsageError(
            f"until={until!r} is no time after the last event, at {last}", code="TL810",
            hint="until= is a time in int64 microseconds UTC: it moves the clock on after the log's end",
        )  # fmt: skip
    return until


def kept_of(program: Program, log: Log) -> dict[str, Any]:
    """What a replay of the log could start from, or why nothing is kept: for `timelapse explain`."""
    if times := spec_of(program).times:
        return Reuse.none(f"the program reaches into other times ({times[0].text_of_what})").describe()
    return Reuse.of(program, analyse(program), log.id, log.count, log.reader.cuts(1), least=1).describe()


def _about(manifest: RunManifest) -> dict[str, str]:
    """What `timelapse cache` says of an entry."""
    params = ", ".join(f"{name}={text}" for name, text in manifest.params.items())
    return {
        "program": f"{manifest.program}({params})"[:200],
        "log": manifest.log or "",
        "events": str(manifest.events),
        "slices": str(len(manifest.cuts) - 1),
    }


def _spilled(reader: EventReader, scratch: Path) -> EventReader:
    """Many events in memory as a log in files, so that they are not shipped inside every task."""
    if not isinstance(reader, MemoryLog) or reader.count <= _SHIPPED_EVENTS:
        return reader
    events = list(reader.events(0, INT64_MAX, {cls.__name__: cls for cls in reader.classes}))
    if events[0].seq != 0 or events[-1].seq != len(events) - 1:
        return reader  # a stored log numbers its events without gaps, and seq must stay what it is
    return Log.from_events(scratch / "log", events, reader.classes).reader


def default_slices(least: int, cores: int, plan: Plan) -> int:
    """Number of slices where nobody says: enough for all cores, and at least so many that each can be held."""
    return least if plan.mode != "staged" else max(plan.slices(cores), least)


def cut(reader: EventReader, slices: int, plan: Plan) -> tuple[list[int], int]:
    """Slice boundaries, and how many slices lead. Slices of a staged run are not even if that is faster."""
    even = cuts(reader, slices)
    count = len(even) - 1
    if plan.mode != "staged" or count < 2:
        return even, 0
    if reader.count < _UNEVEN_EVENTS:
        return even, plan.lead or 0
    found = plan.arrange(count)
    return cuts_at(cuts(reader, _FINE), found.shares), found.lead


def cuts(reader: EventReader, slices: int) -> list[int]:
    """Slice boundaries; never more slices than events, and no empty one."""
    if slices < 1:
        raise UsageError(f"slices must be at least 1, not {slices}", code="TL810")
    found = reader.cuts(max(1, min(slices, reader.count)))
    return [found[0], *(b for a, b in itertools.pairwise(found) if b > a)] if reader.count else found


@dataclass(frozen=True)
class _Planner:
    """Decides how and where a replay runs: one depends on the other."""

    program: Program
    analysis: Analysis
    source: Source
    slices: int | None
    strategy: str | Mapping[str, str] | None
    measured: dict[str, Measured | None] = field(default_factory=dict)

    def plan(self, cores: int, threads: int) -> Plan:
        reader, counts = self.source.reader, self.source.counts
        return plan_of(
            self.program,
            self.analysis,
            reader,
            counts,
            self.slices,
            self.strategy,
            cores,
            threads,
            self.measured,
        )

    def settle(
        self, spark: SparkSession | Literal[False] | None, progress: Progress
    ) -> tuple[Plan, Executor]:
        """The plan and who runs it. A local session is started where the replay would be faster by more than
        the start takes."""
        from timelapse.env.spark_session import existing, session

        own = usable_cores()
        local = LocalExecutor(threads=own)
        found = None if spark is False else spark if spark is not None else existing()
        if found is None:
            if spark is False or self.source.reader.count <= IN_PROCESS_EVENTS:
                return self.plan(1, own), local
            plan = self.plan(own, own)
            if plan.mode != "staged":
                return plan, local
            if self.slices is None and self.strategy is None:
                alone = self.plan(1, own)
                if (alone.ratio() - plan.ratio()) * plan.law.serial_seconds < SPARK_START_SECONDS:
                    return alone, local
            progress.note("starting Spark (a few seconds) ...")
            found = session()
        from timelapse.engine.spark_executor import SparkExecutor

        executor = SparkExecutor(found)
        return self.plan(executor.cores, executor.threads), executor


def _refuse_impure(analysis: Analysis, allowed: bool) -> None:
    bad = [d for d in analysis.diagnostics if d.severity is Severity.ERROR]
    if bad and not allowed:
        first = bad[0]
        more = f" (and {len(bad) - 1} more: see `timelapse explain`)" if len(bad) > 1 else ""
        raise ImpureProgram(
            f"{first.message}: a replay would differ from live{more}", place=first.place,
            hint=f"{first.remedy}. allow_impure=True (--allow-impure) replays all the same",
            code=first.code,
        )  # fmt: skip


def source_of(program: Program) -> str | None:
    """`FILE:Class`, where the class can be found again by name."""
    cls = type(program)
    if (origin := origin_of(cls)) is not None:
        return origin
    try:
        file = inspect.getsourcefile(cls)
    except (TypeError, OSError):  # OSError: a class of a notebook
        return None
    if file is None or "<" in cls.__qualname__ or not Path(file).is_file():
        return None
    return f"{Path(file).resolve()}:{cls.__qualname__}"


def _manifest(
    program: Program, analysis: Analysis, source: Source, plan: Plan, job: Job,
    outcome: Outcome, started: float, seconds: float, reuse: Reuse,
    before: Mapping[str, str],
) -> RunManifest:  # fmt: skip
    spec = spec_of(program)
    totals, schemas = outcome.totals, dict(outcome.schemas)
    keys: dict[str, tuple[str, ...]] = {}
    for cls in record_types(program):
        schemas.setdefault(cls.__name__, output_schema(cls))
        keys[cls.__name__] = cls.__key__
    records = [
        RecordEntry(name, found.rows, found.hex, schema_bytes(schemas[name]), keys.get(name, ()))
        for name in sorted(schemas)
        for found in [totals.outputs.get(name, ZERO)]
    ]
    content = {name: totals.content.get(name, ZERO) for name in spec.declared}
    certificate: dict[str, Any] = {
        "mode": plan.mode,
        "slices": job.slices,
        "leading_slices": outcome.lead,
        "validated_slices": outcome.validated,
        "by_key": None
        if plan.mode != "by key" or plan.whole is None
        else {"keys": plan.whole.text, "workers": outcome.workers, "abandoned": outcome.abandoned},
        "repairs": outcome.repair_account,
        "fallback": None
        if outcome.fallback is None
        else {
            "from_slice": outcome.fallback.from_slice,
            "reason": outcome.fallback.reason,
            "is_bug": outcome.fallback.is_bug,
        },
        "trusted": [str(t) for t in analysis.trusted],
        "diagnostics": [
            {"code": d.code, "severity": d.severity.value, "place": str(d.place), "message": d.message}
            for d in analysis.diagnostics
        ],
        "cache": reuse.certificate(seconds),
        "passes": used_kernels(before, outcome.compiled),
    }
    return RunManifest(
        format=FORMAT,
        timelapse=__version__,
        program=spec.name,
        source=source_of(program),
        fingerprint=fingerprint(program),
        params=params_text(program),
        log=source.path,
        log_id=source.id,
        events=source.reader.count,
        cuts=list(job.cuts),
        records=records,
        states=[StateEntry.of(s) for s in spec.declared.values()],
        rejected=totals.rejected.rows,
        digest=run_digest(totals.outputs, schemas, totals.rejected),
        state_digest=state_digest(content),
        started=datetime.datetime.fromtimestamp(started, datetime.UTC).isoformat(timespec="seconds"),
        seconds=seconds,
        timings=outcome.timings,
        executor=outcome.executor,
        certificate=certificate,
        plan=plan.text(),
        without=list(source.without),
        quarantined=totals.quarantined if job.quarantine else None,
        pending=outcome.pending,
        until=job.until,
    )
