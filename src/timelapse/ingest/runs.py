"""An ingest in two steps of tasks: each task reads some of the files and writes its events sorted, as *runs*; then each range of
the log is merged out of all runs by one task, which writes its segments.

Rows do not travel through Spark: runs are files beside the log to be, which all tasks see. Where ranges begin and end follows from the
runs' own times, counted exactly: nothing is parsed for it, and ranges are even, whatever times there are. (External sorting by
splitting at exact ranks: Varman et al., "Merging multiple lists on hierarchical-memory multiprocessors", 1991.)
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from uuid import uuid4

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from timelapse.ingest.batches import Batch
from timelapse.ingest.convert import wire_type
from timelapse.ingest.estimate import held_bytes
from timelapse.ingest.noticed import Noticed, notice
from timelapse.ingest.plan import Plan
from timelapse.ingest.prepare import Task, read_task
from timelapse.ingest.task import Note, Notes, TaskReport, noted, notes_of
from timelapse.model.events import Field
from timelapse.segments.beside import BESIDE, FILE, LATE, with_beside
from timelapse.segments.periods import Period
from timelapse.segments.segment import SEGMENT_EVENTS, fields_table, write_ordered
from timelapse.segments.types import EventType
from timelapse.tables.ordering import stable_order
from timelapse.tables.rowhash import whole_array
from timelapse.tables.sharing import at_once

I64 = npt.NDArray[np.int64]

FOLDER = ".runs"
RUN_BYTES = 192 << 20
"""A task that has read so much begins another run."""
RANGE_BYTES = 512 << 20
"""A range is made smaller than a segment where its events take more."""
_LEAST = 100_000
"""Fewer events are not shared out among tasks."""


class RunEntry(msgspec.Struct, frozen=True):
    """A run: its file below the folder of runs, its event type's number, events, and what they take in memory."""

    name: str
    type: int
    rows: int
    bytes: int


class Read(msgspec.Struct):
    """What a task of the first step did: what it counted and left out, and its runs in the order of what it read."""

    report: TaskReport
    runs: list[RunEntry]


class Range(msgspec.Struct, frozen=True):
    """A range of the log: of each run with events in it (by its number) the rows from one to before another."""

    parts: list[tuple[int, int, int]]

    @property
    def rows(self) -> int:
        return sum(hi - lo for _, lo, hi in self.parts)


# --- the first step -------------------------------------------------------------------------------------


def read(
    number: int, task: Task, plan: Plan, type_: int, folder: Path, kinds: Sequence[EventType], files: Sequence[str],
    beside: Sequence[str], numbers: I64,
) -> Read:  # fmt: skip
    """Read what a task has to, and write its runs below `folder`, where `.runs` and `quarantine` are. Raises IngestError.

    `kinds`: the type of each source; `files`: the paths of all of them. `beside`: what is kept beside the fields; `numbers`: each file's
    number in the log.
    """
    found = Read(TaskReport(), [])
    left_out: list[tuple[int, Note]] = []
    batches: list[tuple[int, Batch]] = []
    held = 0

    def flush() -> None:
        nonlocal held, batches
        if (
            batches
            and (run := _write(folder / FOLDER, plan.kind, type_, batches, beside, numbers)) is not None
        ):
            found.runs.append(run)
        batches, held = [], 0

    for file, batch in read_task(task, plan):
        left_out += ((file, note) for note in notes_of(task.source, batch))
        found.report.noticed.setdefault(task.source, Noticed()).add(notice(plan, file, batch))
        batches.append((file, batch))
        held += held_bytes(batch)
        if held >= RUN_BYTES:
            flush()
    flush()
    notes = Notes(found.report, folder / "quarantine", number, kinds, files)
    if left_out:
        notes.add(noted(left_out))
    notes.close()
    return found


def fields_of(kind: EventType, batches: Sequence[Batch], threads: int = 1) -> pa.Table:
    """The fields of the events of batches, in the log's Arrow types; columns at the same time."""

    def column(n: int, field: Field) -> pa.Array:
        return (
            pa.chunked_array([b.columns[n] for b in batches], type=wire_type(field.type))
            .cast(field.type.arrow)
            .combine_chunks()
        )

    columns = at_once([(1, partial(column, n, f)) for n, f in enumerate(kind.fields)], threads)
    return fields_table(kind, columns, sum(len(b.ts) for b in batches))


def _write(
    folder: Path, kind: EventType, type_: int, batches: Sequence[tuple[int, Batch]], beside: Sequence[str], numbers: I64
) -> RunEntry | None:  # fmt: skip
    """Events in one run, by time; those of one time in the order in which they were read."""
    ts = np.concatenate([b.ts for _, b in batches])
    if not len(ts):
        return None
    own = {
        FILE: pa.array(
            np.concatenate([np.full(len(b.ts), numbers[file]) for file, b in batches]), pa.int32()
        ),
        LATE: pa.chunked_array([_late(b) for _, b in batches], pa.int64()),
    }
    fields = with_beside(fields_of(kind, [b for _, b in batches]), {name: own[name] for name in beside})
    if not bool((ts[1:] >= ts[:-1]).all()):
        order = stable_order(ts)
        ts = ts[order]
        fields = fields.take(pa.array(order)) if fields.num_columns else fields
    schema = pa.schema([_TS, *fields.schema])
    columns = [pa.array(ts), *map(whole_array, fields.columns)]
    name = f"{uuid4().hex}.arrow"
    with pa.OSFile(str(folder / name), "wb") as sink, pa.ipc.new_file(sink, schema) as out:
        out.write_batch(pa.record_batch(columns, schema=schema))
    return RunEntry(name, type_, len(ts), sum(int(c.nbytes) for c in columns))


_TS = pa.field("ts", pa.int64(), nullable=False)


def _late(batch: Batch) -> pa.Array:
    return pa.nulls(len(batch.ts), pa.int64()) if batch.late is None else pa.array(batch.late)


@contextmanager
def _opened(folder: Path, run: RunEntry) -> Iterator[pa.RecordBatch]:
    """A run's events: of its file is read what is used."""
    with pa.memory_map(str(folder / FOLDER / run.name)) as source:
        yield pa.ipc.open_file(source).get_batch(0)


# --- between the steps ----------------------------------------------------------------------------------


def ranges(folder: Path, runs: Sequence[RunEntry], partitions: int | None, cores: int) -> list[Range]:
    """Ranges of the log, in order, none empty; as many as `partitions` says, else of a segment each, or less for the sake of
    memory and cores."""
    total = sum(run.rows for run in runs)
    if not total:
        return []
    if partitions is not None:
        ranks = [total * n // partitions for n in range(1, partitions)]
    else:
        size = sum(run.bytes for run in runs)
        step = min(SEGMENT_EVENTS, max(1, RANGE_BYTES * total // max(size, 1)))
        even = min(cores, total // _LEAST)
        if math.ceil(total / step) < even:
            step = math.ceil(total / even)
        ranks = list(range(step, total, step))
    cuts = _cuts(folder, runs, sorted(set(ranks) - {0, total}))
    bounds = [[0] * len(runs), *cuts, [run.rows for run in runs]]
    made = [
        Range([(n, lo, hi) for n, (lo, hi) in enumerate(zip(a, b, strict=True)) if lo < hi])
        for a, b in itertools.pairwise(bounds)
    ]
    return [one for one in made if one.parts]


def _cuts(folder: Path, runs: Sequence[RunEntry], ranks: Sequence[int]) -> list[list[int]]:
    """For each rank how many events of each run are among the log's first so many."""
    if not ranks:
        return []
    times: list[I64] = []
    for run in runs:
        with _opened(folder, run) as batch:
            times.append(batch.column(0).to_numpy())
    wanted = np.asarray(ranks, np.int64)
    # For each rank the time of the first event behind it: the greatest time before which there are at most so many events.
    low = np.full(len(ranks), min(int(t[0]) for t in times), np.int64)
    high = np.full(len(ranks), max(int(t[-1]) for t in times), np.int64)
    while (low < high).any():
        middle = (low | high) - ((low ^ high) >> 1)  # between them, rounded up, without overflow
        before = sum(np.searchsorted(t, middle) for t in times)
        low, high = np.where(before <= wanted, middle, low), np.where(before <= wanted, high, middle - 1)
    firsts = [np.searchsorted(t, low) for t in times]
    lasts = [np.searchsorted(t, low, side="right") for t in times]
    made: list[list[int]] = []
    for n, rank in enumerate(ranks):
        cut = [int(first[n]) for first in firsts]
        left = rank - sum(cut)
        # Events of one time are ordered by type, file and row, which is the order of the runs.
        for at in sorted(range(len(runs)), key=lambda at: (runs[at].type, at)):
            more = min(left, int(lasts[at][n]) - cut[at])
            cut[at] += more
            left -= more
        made.append(cut)
    return made


# --- the second step ------------------------------------------------------------------------------------


def write(
    number: int, part: Range, runs: Sequence[RunEntry], folder: Path, types: Sequence[EventType], beside: Sequence[str],
    period: Period | None = None,
) -> TaskReport:  # fmt: skip
    """Merge a range of the log out of the runs, and write its segments below `folder`. `period`: each segment lies in one."""
    own: list[list[pa.Table]] = [[] for _ in types]
    times: list[list[I64]] = [[] for _ in types]
    for at, lo, hi in part.parts:
        run = runs[at]
        with _opened(folder, run) as batch:
            rows = pa.Table.from_batches([batch.slice(lo, hi - lo)])
        times[run.type].append(rows["ts"].to_numpy())
        own[run.type].append(rows.drop_columns(["ts"]))
    tables = []
    for kind, found, spans in zip(types, own, times, strict=True):
        schema = pa.schema([*kind.schema, *(BESIDE.field(name) for name in beside)])
        if schema.names:
            tables.append(pa.concat_tables([schema.empty_table(), *(t.cast(schema) for t in found)]))
        else:
            tables.append(fields_table(kind, [], sum(len(t) for t in spans)))
    ts = np.concatenate([t for spans in times for t in spans])
    order = stable_order(ts)
    segments = write_ordered(
        folder / "segments", types, tables, ts, order, beside, name=f"{number:06d}-", period=period
    )
    return TaskReport(segments=list(segments))
