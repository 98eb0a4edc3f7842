"""What a task does with its sorted range of the log: segments, and a quarantine file for the bad rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from uuid import uuid4

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from timelapse.decoding import decoded
from timelapse.ingest.batches import Batch, show
from timelapse.ingest.convert import plain
from timelapse.ingest.noticed import Noticed
from timelapse.moments import time_text
from timelapse.segments.beside import FILE, LATE, with_beside
from timelapse.segments.manifest import SegmentEntry
from timelapse.segments.periods import Period
from timelapse.segments.quarantine import KEPT, NOT_KEPT, TAKEN
from timelapse.segments.segment import BLOCK_BYTES, BLOCK_EVENTS, SEGMENT_EVENTS, SegmentWriter
from timelapse.segments.types import EventType
from timelapse.store.parts import Part, PartWriter

I64 = npt.NDArray[np.int64]
SHOWN = 5
# In place of a type's index: rows that carry something else through the shuffle.
BAD, SKIPPED, FATAL, NOTICED, TWICE, GONE = -1, -2, -3, -4, -5, -6
SAME = "same"
"""In place of a rule's name: an event of the log goes since one that is the same takes its place."""


class BadRow(msgspec.Struct, frozen=True):
    """A bad row as an error message shows it; `line` is None where rows have no number."""

    file: str
    line: int | None
    type: str
    reason: str
    raw: str
    event: bytes | None = None
    """A hash of the event, where another was taken instead of it."""


Note = tuple[int, int, str | None, str | None]
"""What a row that is no event carries: mark, source row, the source's number and why, raw text."""


def notes_of(number: int, batch: Batch) -> list[Note]:
    """The notes of what was left out of a batch of source `number`."""
    notes: list[Note] = [(BAD, bad.row, f"{number} {bad.rule} {bad.reason}", bad.raw) for bad in batch.bad]
    if batch.skipped:
        notes.append((SKIPPED, batch.skipped, f"{number} ", None))
    return notes


def event_text(kind: EventType, ts: int, fields: pa.Table) -> str:
    """The text of an event in the quarantine: its time, and the fields of a table of one row."""
    values = {name: plain(fields.column(name)[0]) for name in kind.schema.names}
    return show(repr({"ts": time_text(ts), **values}).encode("utf-8", "backslashreplace"))


def noticed_note(number: int, noticed: Noticed) -> Note:
    """What was noticed of a batch of source `number`."""
    return NOTICED, 0, f"{number} {msgspec.json.encode(noticed).decode()}", None


class TaskReport(msgspec.Struct):
    """What one task wrote and counted. Counts are per source (its number)."""

    segments: list[SegmentEntry] = []
    bad: dict[int, int] = {}
    skipped: dict[int, int] = {}
    first_bad: list[BadRow] = []
    first_early: list[BadRow] = []
    early: int = 0
    outside: dict[int, int] = {}
    duplicates: dict[int, int] = {}
    conflicts: dict[int, int] = {}
    gone: list[int] = []
    """The seqs of events of the log whose place others take."""
    displaced: dict[int, int] = {}
    """How many these are."""
    noticed: dict[int, Noticed] = {}
    quarantine: str | None = None
    """The name of the file of its bad rows."""
    quarantine_part: Part | None = None
    """That file's checksums."""
    fatal: list[str | None] | None = None


def write_partition(
    batches: Iterable[pa.RecordBatch],
    folder: Path,
    partition: int,
    types: Sequence[EventType],
    kinds: Sequence[EventType],
    files: Sequence[str],
    beside: Sequence[str] = (),
    numbers: I64 | None = None,
    beaten: Mapping[str, frozenset[bytes]] | None = None,
    period: Period | None = None,
) -> TaskReport:
    """Write a sorted range below `folder` (its `segments` and `quarantine` exist). `kinds`: the type of each source.

    `beside`: what is kept beside the fields; `numbers`: each file's number in the log. `beaten`: as of `Before`.
    `period`: each segment lies in one.
    """
    report = TaskReport()
    notes = Notes(report, folder / "quarantine", partition, kinds, files, beaten)
    out = _Segments(folder / "segments", partition, types, beside, numbers, period)
    for batch in batches:
        marks = batch.column("t").to_numpy()
        # what is not an event is sorted first, but a batch may hold some of each
        if len(marks) and marks[0] < 0 and (others := int((marks < 0).sum())):
            notes.add(batch.slice(0, others))
            batch = batch.slice(others)
        out.add(batch)
    notes.close()
    report.segments = out.close()
    return report


class _Segments:
    """Collects rows into blocks, and blocks into segments."""

    def __init__(
        self,
        folder: Path,
        partition: int,
        kinds: Sequence[EventType],
        beside: Sequence[str],
        numbers: I64 | None,
        period: Period | None,
    ) -> None:
        self._folder, self._partition, self._kinds = folder, partition, kinds
        self._period = period
        self._last: int | None = None
        self._beside = beside
        self._numbers = np.asarray([-1]) if numbers is None else numbers
        self._waiting: list[pa.RecordBatch] = []
        self._rows = self._bytes = 0
        self._writer: SegmentWriter | None = None
        self._done: list[SegmentEntry] = []

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows, which are later than those before."""
        if self._period is None or not batch.num_rows:
            self._add(batch)
            return
        ts = batch.column("ts").to_numpy()
        for lo, hi in self._period.parts(ts):
            if self._last is not None and self._period.starts(np.asarray([self._last, ts[lo]])):
                self._flush()
                self._finish()
            self._add(batch.slice(lo, hi - lo))
            self._last = int(ts[hi - 1])

    def _add(self, batch: pa.RecordBatch) -> None:
        while batch.num_rows:
            part = batch.slice(0, BLOCK_EVENTS - self._rows)
            batch = batch.slice(part.num_rows)
            self._waiting.append(part)
            self._rows += part.num_rows
            self._bytes += part.nbytes
            if self._rows >= BLOCK_EVENTS or self._bytes >= BLOCK_BYTES:
                self._flush()

    def _flush(self) -> None:
        if not self._rows:
            return
        if self._writer is None:
            name = f"{self._partition:06d}-{len(self._done):04d}"
            self._writer = SegmentWriter(self._folder, name, self._kinds, self._beside)
        table = pa.Table.from_batches(self._waiting)
        marks = table["t"].to_numpy().astype(np.int64)
        self._writer.write(
            table["ts"].to_numpy(),
            marks,
            {n: self._fields(table, marks, n) for n in np.unique(marks).tolist()},
        )
        self._waiting, self._rows, self._bytes = [], 0, 0
        if self._writer.count + BLOCK_EVENTS > SEGMENT_EVENTS:
            self._finish()

    def _fields(self, table: pa.Table, marks: npt.NDArray[np.int64], number: int) -> pa.Table:
        """The fields of one type's events, in the log's Arrow types, and what is kept beside them."""
        kind = self._kinds[number]
        own = table[f"e{number}"]
        files = table["f"].to_numpy()
        if not (marks == number).all():
            own = own.take(pa.array(np.flatnonzero(marks == number)))
            files = files[marks == number]
        whole = own.combine_chunks()
        chunks = whole.chunks if isinstance(whole, pa.ChunkedArray) else [whole]
        tables = [
            pa.table([c.field(f.name) for f in kind.fields], [f.name for f in kind.fields]) for c in chunks
        ]
        late = pa.chunked_array([c.field("_") for c in chunks], pa.int64())
        found = {FILE: pa.array(self._numbers[files], pa.int32()), LATE: late}
        return with_beside(
            pa.concat_tables(tables).cast(kind.schema), {name: found[name] for name in self._beside}
        )

    def _finish(self) -> None:
        if self._writer is not None:
            self._done.append(self._writer.close())
            self._writer = None

    def close(self) -> list[SegmentEntry]:
        self._flush()
        self._finish()
        return self._done


class Notes:
    """Counts and keeps what was not an event. Batches come in the order (t, f, r) of their rows."""

    def __init__(
        self,
        report: TaskReport,
        folder: Path,
        partition: int,
        kinds: Sequence[EventType],
        files: Sequence[str],
        beaten: Mapping[str, frozenset[bytes]] | None = None,
    ) -> None:
        self._report, self._kinds, self._files, self._beaten = report, kinds, files, beaten or {}
        self._path = folder / f"{partition:06d}-{uuid4().hex[:12]}.parquet"
        self._writer: pq.ParquetWriter | None = None
        self._file: PartWriter | None = None

    def add(self, batch: pa.RecordBatch) -> None:
        report = self._report
        kept: list[BadRow] = []
        columns = (batch.column(name).to_pylist() for name in ("t", "f", "r", "why", "raw"))
        for at, (mark, file, row, why, raw) in enumerate(zip(*columns, strict=True)):
            if mark == FATAL:
                report.fatal = report.fatal or msgspec.json.decode(why)
                continue
            number_text, _, reason = why.partition(" ")
            number = int(number_text)
            if mark == SKIPPED:
                report.skipped[number] = report.skipped.get(number, 0) + row
                continue
            if mark == TWICE:
                report.duplicates[number] = report.duplicates.get(number, 0) + 1
                continue
            if mark == NOTICED:
                report.noticed.setdefault(number, Noticed()).add(decoded(reason, Noticed))
                continue
            kind, _, reason = reason.partition(" ")
            event = None
            if mark == GONE:
                kept += self._taken(number, kind)
                kind, _, reason = reason.partition(" ")
                report.gone.append(row)
                report.displaced[number] = report.displaced.get(number, 0) + 1
                row = -1  # the log does not know it
            if kind == "conflict":
                text, _, reason = reason.partition(" ")
                event = bytes.fromhex(text)
                if mark != GONE and event in self._beaten.get(self._kinds[number].name, ()):
                    kind = SAME
            if kind == SAME:
                report.duplicates[number] = report.duplicates.get(number, 0) + 1
                continue
            if (
                kind == "conflict" and "e0" in batch.schema.names and raw != NOT_KEPT
            ):  # its time; the fields are beside it
                raw = self._text(batch, at, self._kinds[number], int(raw))
            path = self._files[file] if file >= 0 else "DataFrame"
            bad = BadRow(path, row if row >= 0 else None, self._kinds[number].name, reason, raw, event)
            if kind == "early":
                report.early += 1
                if len(report.first_early) < SHOWN:
                    report.first_early.append(bad)
                continue
            kept.append(bad)
            if kind == "conflict":
                report.conflicts[number] = report.conflicts.get(number, 0) + 1
                continue
            if kind == "outside":
                report.outside[number] = report.outside.get(number, 0) + 1
                continue
            report.bad[number] = report.bad.get(number, 0) + 1
            if len(report.first_bad) < SHOWN:
                report.first_bad.append(bad)
        if kept:
            self._write(kept)

    def _taken(self, number: int, hashed: str) -> list[BadRow]:
        """What says that an event is taken which another had been taken instead of: it has been sent twice, and conflicts no more."""
        name = self._kinds[number].name
        if not hashed or bytes.fromhex(hashed) not in self._beaten.get(name, ()):
            return []
        self._report.duplicates[number] = self._report.duplicates.get(number, 0) + 1
        self._report.conflicts[number] = self._report.conflicts.get(number, 0) - 1
        return [BadRow(TAKEN, None, name, "", "", bytes.fromhex(hashed))]

    def _text(self, batch: pa.RecordBatch, at: int, kind: EventType, ts: int) -> str:
        types = [k for n, k in enumerate(self._kinds) if not n or self._kinds[n - 1] != k]
        own = batch.column(f"e{types.index(kind)}").slice(at, 1)
        fields = pa.table([own.field(f.name) for f in kind.fields], [f.name for f in kind.fields])
        return event_text(kind, ts, fields.cast(kind.schema))

    def _write(self, rows: list[BadRow]) -> None:
        if self._writer is None:
            self._file = PartWriter(self._path, lasting=True)
            self._writer = pq.ParquetWriter(self._file, KEPT, compression="zstd")
            self._report.quarantine = self._path.name
        self._writer.write_table(pa.Table.from_pylist([msgspec.structs.asdict(r) for r in rows], schema=KEPT))

    def close(self) -> None:
        if self._writer is not None and self._file is not None:
            self._writer.close()
            self._report.quarantine_part = self._file.finish()


def noted(left_out: Sequence[tuple[int, Note]]) -> pa.RecordBatch:
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
