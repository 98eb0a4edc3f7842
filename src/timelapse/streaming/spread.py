"""An epoch of many rows as time slices: the engine of replays runs it from where the program stands, side by side where it can.

What it gives is what the open kernel gives, to the last bit, so either may take any epoch. The slices begin with what the program
has at the end of the epoch before, as tables: states, what is pending and dated, and the rows that views look back on, each part of which
is a slice that has run (`Job.given`). What they leave is where the open kernel goes on. Nothing of it is known to the run before its epoch is
committed: the files lie in a folder of their own, which goes when the slices are done.
"""

from __future__ import annotations

import shutil
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from timelapse.analysis import analyse
from timelapse.cache.rerun import Reuse
from timelapse.engine.checked import AGAIN
from timelapse.engine.executor import Executor, LocalExecutor
from timelapse.engine.job import (
    RESULTS,
    ROWS,
    STARTS,
    Job,
    SliceReport,
    change_path,
    outputs_path,
    rejected_path,
)
from timelapse.engine.outcome import Outcome
from timelapse.engine.results import read_quarantined
from timelapse.env.garbage import collected_rarely
from timelapse.env.machine import memory_setting
from timelapse.env.spark_failures import is_sparks
from timelapse.errors import HandlerError, TimelapseError, TooManyQuarantined
from timelapse.kernels.base import REJECTED_SCHEMA, PassResult
from timelapse.kernels.once import passes_once
from timelapse.model.decimals import in_usual_context
from timelapse.plan import Plan
from timelapse.program.failure import Quarantined
from timelapse.program.program import Program, spec_of
from timelapse.program.times import has_own_times
from timelapse.progress import Silent
from timelapse.run.foresight import compiling
from timelapse.run.slices import cut, default_slices, least_slices, task_memory
from timelapse.segments.types import EventType
from timelapse.store.parts import CheckedFile
from timelapse.store.scratch import scratch_folder
from timelapse.streaming.arrivals import Taken
from timelapse.streaming.choosing import LEAST_ROWS, Choosing, Slicing, Way
from timelapse.streaming.kernel import OpenKernel, is_restorable
from timelapse.streaming.place import LocalPlace, RunPlace
from timelapse.streaming.running import Closed
from timelapse.streaming.stand import Seen, Stand
from timelapse.streaming.sums import Emitted
from timelapse.streaming.window import JournalEnd
from timelapse.tables import merge
from timelapse.tables.apply import empty
from timelapse.tables.effectlog import PRESENT, rows_table
from timelapse.tables.table import read_table, write_table

STAGED = "staged"
"""A folder of the run: what Spark's executors read and write of epochs that are not committed yet."""


@dataclass(frozen=True)
class Done:
    """What the slices of an epoch have put out, and where the program stands at its end."""

    emitted: Emitted
    stand: Stand


@dataclass
class Told:
    """What went through slices since the run was opened, for people."""

    epochs: dict[str, int] = field(default_factory=dict)
    """How many epochs, by who ran them."""
    rows: int = 0
    last: bool = False
    """Whether the last epoch of many rows did."""
    why: str = ""
    """Why it did, or did not."""


class Spread:
    """Processes epochs of a live run as time slices. `tell` is told what is worth a line."""

    def __init__(
        self, place: RunPlace, program: Program, types: Sequence[EventType], slicing: Slicing, *, quarantine: int | None,
        tell: Callable[[str], None], folder: Path | None = None,
    ) -> None:  # fmt: skip
        self._place, self._program, self._types, self._slicing = place, program, tuple(types), slicing
        self._quarantine, self._tell, self._folder = quarantine, tell, folder
        self._choosing = Choosing(program, slicing, isinstance(place, LocalPlace))
        self._least = LEAST_ROWS if slicing.rows is None else slicing.rows
        self.told = Told()

    def way(self, taken: Taken, opened: OpenKernel | Closed, *, taken_out: int) -> Way | None:
        """How rows are processed here; None where that is not asked for, not possible or not quicker. `opened`: the program where it stands,
        `taken_out`: events that were taken out of the journal so far. Raises SetupError where Spark does not start."""
        if not self._least or taken.rows < self._least:
            return None
        told = self.told
        told.last, told.why = False, self._impossible(taken_out)
        if told.why:
            return None
        try:
            found = self._choosing.way(
                taken, self._own(taken), compiled=opened.compiled, state_bytes=opened.state_bytes
            )
        except TimelapseError:
            raise
        except Exception as error:  # Spark's JVM is gone: the run does without
            self._choosing.failed()
            told.last, told.why = False, f"slices were not planned: {error}"
            self._tell(f"Spark does not answer, and the open kernel takes the epoch: {error}")
            return None
        told.last, told.why = found is not None, self._choosing.why
        return found

    def took(self, seconds: float) -> None:
        """The epoch's rows are processed, and took so long, by the open kernel where not by slices."""
        self._choosing.in_kernel(seconds)

    def _own(self, taken: Taken) -> JournalEnd:
        """The epoch's rows as a journal of their own."""
        own = JournalEnd(self._types)
        own.add(renumbered(taken, 0).tables, taken.rows)
        return own

    @cached_property
    def _serially(self) -> bool:
        return analyse(self._program).serial_only is not None or not is_restorable(self._program)

    def _impossible(self, taken_out: int) -> str:
        """Why no epoch of the program can be processed in slices; empty where one can."""
        if self._serially:
            return "the program runs as the serial loop"
        if has_own_times(self._program) and (taken_out or self._quarantine is not None):
            return "an event that fails is taken out with all that would come of it later"
        return ""

    def run(
        self, number: int, way: Way, stand: Callable[[], Stand], journal: JournalEnd, taken: Taken, complete: int
    ) -> Done | None:  # fmt: skip
        """Process the rows that follow a journal, up to a time, from where the program stands; nothing is done to either. `number`: their epoch.

        None where it did not work: the open kernel then says why, or does it. Raises Abandoned, as `stand` does.
        """
        self.clean(number - 1)
        began = time.perf_counter()
        folder = self._new_folder(number, way)
        try:
            done = self._run(folder, way, stand(), journal, taken, complete)
        except (HandlerError, TooManyQuarantined):
            return None  # the open kernel meets it too
        except Exception as error:
            if not (isinstance(error, TimelapseError | OSError) or is_sparks(error)):
                raise
            self._choosing.failed()
            self.told.last, self.told.why = (
                False,
                f"slices did not work: {error}",
            )
            self._tell(f"epoch {number:,} was not processed in slices, and the open kernel takes it: {error}")
            return None
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        self._choosing.in_slices(time.perf_counter() - began)
        return done

    def _new_folder(self, number: int, way: Way) -> Path:
        """A folder that all who run tasks see, named by this attempt. Nothing lists it."""
        if way.executor.spreads and isinstance(self._place, LocalPlace):
            base = self._place.root / STAGED
        else:
            base = self._folder or scratch_folder("slices", large=True)
        folder = base / f"{number:020d}-{uuid.uuid4().hex}"
        folder.mkdir(parents=True)
        return folder

    def clean(self, number: int) -> None:
        """Remove what processes that died have left of epochs up to one, which are committed."""
        if not isinstance(self._place, LocalPlace):
            return
        folder = self._place.root / STAGED
        for path in folder.iterdir() if folder.is_dir() else ():
            if path.name.partition("-")[0].isdigit() and int(path.name.partition("-")[0]) <= number:
                shutil.rmtree(path, ignore_errors=True)

    @collected_rarely()
    @passes_once()
    @in_usual_context
    def _run(
        self, folder: Path, way: Way, stand: Stand, journal: JournalEnd, taken: Taken, complete: int
    ) -> Done:
        executor, plan = way.executor, way.plan
        reader = journal.followed_by(taken.tables, taken.rows)
        if executor.spreads:
            reader = reader.in_files(folder / "rows")
        job, lead = self._job(folder, stand, reader, plan, executor, journal.count, complete)
        put_start(job, stand)
        outcome = Reuse.none("it is an epoch of a live run").run(
            job, plan, executor, _Notes(self._tell), lead, lambda job: compiling(self._program, plan, job, executor.cores)
        )  # fmt: skip
        done = Done(emitted_of(job, outcome), stand_after(job, outcome, stand))
        where = self.told.epochs
        where[outcome.executor] = where.get(outcome.executor, 0) + 1
        self.told.rows += taken.rows
        return done

    def _job(
        self, folder: Path, stand: Stand, reader: JournalEnd, plan: Plan, executor: Executor, first: int, complete: int
    ) -> tuple[Job, int]:  # fmt: skip
        """What is to be run, and how many of its slices lead. `first`: the seq of the epoch's first row."""
        passes = (*(stage.work for stage in plan.stages), plan.last)
        if self._quarantine is not None:
            passes = tuple(replace(work, takes_out=True) for work in passes)
        memory = memory_setting()
        tasks = executor.cores if plan.mode == "staged" else 1
        own = task_memory(tasks) if memory is None and isinstance(executor, LocalExecutor) else memory
        least = least_slices(self._program, passes[-1], reader.count - first, own, tasks)
        slices = self._slicing.slices or default_slices(least, executor.cores, plan)
        cuts, lead = cut(reader, slices, plan, first)
        ends = ends_of(stand, logs=bool(passes[-1].logs))
        job = Job(
            self._program, passes, reader, (*(first for _ in ends), *cuts), folder / "scratch", folder / "run", own, memory is not None,
            quarantine=self._quarantine, until=complete, lasting=False, given=len(ends), ends=ends, resumable=True,
        )  # fmt: skip
        for path in (job.out, job.scratch, job.scratch / RESULTS, job.scratch / ROWS, job.scratch / STARTS):
            path.mkdir()
        return job, lead


class _Notes(Silent):
    """Tells what the engine notes."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell

    def note(self, text: str) -> None:
        self._tell(text)


def renumbered(taken: Taken, first: int) -> Taken:
    """The same rows, numbered from another seq on."""
    if not taken.rows:
        return taken
    by = first - min(int(table.column("seq")[0].as_py()) for table in taken.tables.values())
    tables = {
        name: table.set_column(0, "seq", pa.array(table.column("seq").to_numpy() + by))
        for name, table in taken.tables.items()
    }
    return replace(taken, tables=tables)


# --- from where the program stands, as slices that have run --------------------------------------------


def ends_of(stand: Stand, *, logs: bool) -> tuple[int | None, ...]:
    """The times up to which the slices go that stand for what was: one for all before the rows that views may still see, and one for each
    part of these. `logs`: whether the program looks back."""
    if stand.complete is None:
        return ()
    if not logs:
        return (stand.complete,)
    return (None, *(part.end for part in stand.seen[:-1]), stand.complete)


def put_start(job: Job, stand: Stand) -> None:
    """Write what the first slice that runs begins with."""
    if not job.given:
        return
    specs = spec_of(job.program).states
    for name, spec in specs.items():
        write_table(stand.states.get(name, empty(spec)), job.start_path(job.given, name))
    parts = stand.seen or (Seen(job.end_of(job.given - 1) or 0, {}),)
    for state, forms in job.passes[-1].logs.items():
        stood = stand.stood.get(state, empty(specs[state]))
        for number, part in enumerate(parts, 1):
            for form in forms:
                rows = part.rows.get((state, form))
                if rows is None:
                    rows = rows_table(specs[state], ([], [], []), form)
                write_table(rows, job.rows_path(number, state, form))
            if PRESENT in forms and number < job.given:
                write_table(stood, job.start_path(number, state))
                effects = part.effects.get(state)
                if effects is not None and effects.num_rows:
                    stood = merge.fold(specs[state], stood, [effects])


# --- what they did -------------------------------------------------------------------------------------


def emitted_of(job: Job, outcome: Outcome) -> Emitted:
    """What the slices put out, in the journal's order."""
    found = {}
    for name, schema in outcome.schemas.items():
        parts = [_rows(job, report, outputs_path(job.out, name, report.slice)) for report in outcome.reports]
        table = pa.concat_tables([schema.empty_table(), *(p.cast(schema) for p in parts if p is not None)])
        if table.num_rows:
            found[name] = table.combine_chunks()
    refused = [_rows(job, report, rejected_path(job.out, report.slice)) for report in outcome.reports]
    rejected = pa.concat_tables(
        [REJECTED_SCHEMA.empty_table(), *(p.cast(REJECTED_SCHEMA) for p in refused if p is not None)]
    )
    gone: list[Quarantined] = []
    for report in outcome.reports:
        if report.quarantined:
            gone += read_quarantined(job.out, report.slice)
    return Emitted(found, rejected, gone)


def _rows(job: Job, report: SliceReport, path: Path) -> pa.Table | None:
    """A file of what a slice put out, checked; None where it put out nothing of the kind."""
    part = report.parts.get(path.relative_to(job.out).as_posix())
    if part is None:
        return None
    with pq.ParquetFile(pa.BufferReader(CheckedFile(path, part, AGAIN).whole())) as file:
        return file.read()


def stand_after(job: Job, outcome: Outcome, stand: Stand) -> Stand:
    """Where the program stands behind the last slice."""
    parts = []
    for report in outcome.reports:
        effects: dict[str, pa.Table] = {}
        rows: dict[tuple[str, str], pa.Table] = {}
        for name in spec_of(job.program).states:
            path = change_path(job.out, report.slice, name)
            part = report.parts.get(path.relative_to(job.out).as_posix())
            if part is not None:
                CheckedFile(path, part, AGAIN).need()
                effects[name] = read_table(path)
        for state, forms in job.passes[-1].logs.items():
            rows |= {(state, form): read_table(job.rows_path(report.slice, state, form)) for form in forms}
        end = job.end_of(report.slice)
        assert end is not None
        parts.append((PassResult(effects=effects, rows=rows), end))
    return stand.after(job.program, parts).trimmed(job.program)
