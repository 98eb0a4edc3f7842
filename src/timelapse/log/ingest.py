"""Ingest in this process: for files that are done before Spark has started. The log is the same, to the last bit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from timelapse.log import lines as text_lines
from timelapse.log.convert import wire_type
from timelapse.log.noticed import Noticed, notice
from timelapse.log.parse import Batch
from timelapse.log.prepare import (
    PACKED_FACTOR,
    Prepared,
    number_lines,
    prepare_files,
    prepare_table,
    read_table,
    read_task,
)
from timelapse.log.segment import fields_table, write_ordered
from timelapse.log.source import Source, list_files
from timelapse.log.task import Note, Notes, TaskReport, notes_of
from timelapse.log.types import EventType

HERE_BYTES = 256 << 20
"""Sources of up to so many bytes are read in this process."""
HELD_BYTES = 4 * HERE_BYTES
"""What is read may take so many bytes of memory; files that unpack to more are left to Spark."""


def fits(sources: Sequence[Source]) -> bool:
    """Whether sources are files, few enough to be ingested in this process, or tables in it. Raises IngestError for none."""
    if not all(s.is_files or s.is_table for s in sources):
        return False
    found = [f for s in sources if s.is_files for f in list_files(s.paths)]
    return sum(f.size * (PACKED_FACTOR if f.packed else 1) for f in found) <= HERE_BYTES


def run(
    sources: Sequence[tuple[EventType, Source]], folder: Path, floor: int | None
) -> tuple[list[Prepared], TaskReport] | None:
    """Read files, sort them, write the segments below `folder`; None, and nothing written, where memory would not do.

    `floor` is the time after which all events must lie, when a log is appended to. Raises IngestError.
    """
    prepared: list[Prepared] = []
    for number, (kind, source) in enumerate(sources):
        base = sum(len(p.files) for p in prepared)
        prepared.append(
            prepare_table(number, kind, source, floor)
            if source.is_table
            else prepare_files(number, kind, source, floor, base)
        )
    number_lines(prepared, lambda pieces: [text_lines.count_line_ends(p) for p in pieces])
    held = 0
    tables: list[pa.Table] = []
    times: list[npt.NDArray[np.int64]] = []
    left_out: list[tuple[int, Note]] = []
    report = TaskReport()
    for number, one in enumerate(prepared):
        batches: list[Batch] = []
        for file, batch in _read(one, sum(len(p.files) for p in prepared[:number])):
            left_out += ((file, note) for note in notes_of(number, batch))
            report.noticed.setdefault(number, Noticed()).add(notice(one.plan, file, batch))
            batches.append(batch)
            times.append(batch.ts)
            held += batch.ts.nbytes + sum(c.nbytes for c in batch.columns)
            if held > HELD_BYTES and one.table is None:
                return None
        tables.append(_table(one.plan.kind, batches))
    kinds = [p.plan.kind for p in prepared]
    notes = Notes(report, folder / "quarantine", 0, kinds, [f.path for p in prepared for f in p.files])
    if left_out:
        notes.add(_noted(left_out))
    notes.close()
    ts = np.concatenate(times) if times else np.zeros(0, np.int64)
    # Sources, their files and the rows of these have been read in their order: only the times are left to sort by.
    order = np.argsort(ts, kind="stable")
    report.segments = list(write_ordered(folder / "segments", kinds, tables, ts, order))
    return prepared, report


def _read(one: Prepared, base: int) -> Iterator[tuple[int, Batch]]:
    """A source's rows in their order, with the number of their file; `base` is that of its first."""
    if one.table is not None:
        yield from read_table(one.table, one.plan, base)
    for task in one.tasks:
        yield from read_task(task, one.plan)


def _table(kind: EventType, batches: Sequence[Batch]) -> pa.Table:
    """The fields of all events of a source, in the log's Arrow types."""
    columns = [
        pa.chunked_array([b.columns[n] for b in batches], type=wire_type(f.type)).cast(f.type.arrow).combine_chunks()
        for n, f in enumerate(kind.fields)
    ]  # fmt: skip
    return fields_table(kind, columns, sum(len(b.ts) for b in batches))


def _noted(left_out: Sequence[tuple[int, Note]]) -> pa.RecordBatch:
    """Notes as Spark's shuffle would bring them."""
    ordered = sorted(left_out, key=lambda one: (one[1][0], one[0], one[1][1]))
    files = [file for file, _ in ordered]
    marks, rows, whys, raws = zip(*(note for _, note in ordered), strict=True)
    return pa.record_batch(
        [
            pa.array(marks, pa.int32()), pa.array(files, pa.int64()), pa.array(rows, pa.int64()),
            pa.array(whys, pa.string()), pa.array(raws, pa.string()),
        ],
        ["t", "f", "r", "why", "raw"],
    )  # fmt: skip
