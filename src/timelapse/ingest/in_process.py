"""Ingest in this process: for files that are done before Spark has started. The log is the same, to the last bit."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from timelapse.env.garbage import memory_reused
from timelapse.env.machine import cores, memory_alone
from timelapse.ingest.batches import Batch
from timelapse.ingest.columns_held import HeldColumns
from timelapse.ingest.estimate import held_bytes, memory_of
from timelapse.ingest.known import take_prints
from timelapse.ingest.noticed import Noticed, notice
from timelapse.ingest.prepare import (
    Prepared,
    beside_of,
    blocks_of,
    file_numbers,
    front_to_back,
    prepare_files,
    prepare_table,
    read_table,
    types_of,
)
from timelapse.ingest.private import NOT_KEPT
from timelapse.ingest.source import Source
from timelapse.ingest.task import BAD, TWICE, Note, Notes, TaskReport, event_text, noted, notes_of
from timelapse.ingest.unique import known_events, rule_of, why_left_out
from timelapse.ingest.unique import left_out as left_out_of
from timelapse.log.beside import FILE, LATE, with_beside
from timelapse.log.reader import LogReader
from timelapse.log.segment import fields_table, write_ordered
from timelapse.log.types import EventType
from timelapse.progress import Progress, Silent
from timelapse.tables.ordering import stable_order

HELD_BYTES = 1 << 30
"""Events are read in this process as long as they take no more than so many bytes as columns: beyond that a sort on all
cores gains more than starting Spark takes."""
_COPIES = 3
"""So many times what events take is in memory when they are sorted, at most."""
_ROUGH = 1.25
"""An estimate may be off by so much before what was read is left, and read again on Spark."""


@dataclass(frozen=True)
class Room:
    """Whether this process holds the events of an ingest, and why. `needed`: the bytes that they take (about), None for
    Spark DataFrames, whose rows are not here. `most`: the bytes that they may."""

    needed: int | None
    most: int

    @property
    def here(self) -> bool:
        return self.needed is not None and self.needed <= self.most

    @property
    def why(self) -> str:
        """For the user."""
        if self.needed is None:
            return "a Spark DataFrame is read where it is"
        about = f"events of about {_size(self.needed)}"
        return (
            f"{about}, of up to {_size(self.most)}" if self.here else f"{about}, more than {_size(self.most)}"
        )


def room(sources: Sequence[tuple[EventType, Source]]) -> Room:
    """What the events of the sources would take in this process, by rows and width. Tables in memory are here already.

    Raises IngestError for files that are not there, and for what can be seen to be wrong with them.
    """
    most = min(HELD_BYTES, memory_alone() // _COPIES)
    if not all(s.is_files or s.is_table for _, s in sources):
        return Room(None, most)
    needed = 0
    for number, (kind, source) in enumerate(sources):
        if source.is_files:
            one = prepare_files(number, kind, source, None, 0)
            try:
                needed += memory_of(one)
            finally:
                one.close()
    return Room(needed, most)


def _size(count: int) -> str:
    return f"{count / 2**30:.1f} GB" if count >= 2**30 else f"{-(-count // 2**20):,} MB"


def run(
    sources: Sequence[tuple[EventType, Source]],
    folder: Path,
    floor: int | None,
    most: int,
    log: LogReader | None = None,
    progress: Progress | None = None,
) -> tuple[list[Prepared], TaskReport] | None:
    """Read files, sort them, write the segments below `folder`; None, and nothing written, where memory would not do.

    `most`: the bytes that the events may take. `log`: the one that is appended to. `floor` is the time after which all events must lie, when a log is appended to. Raises IngestError.
    """
    prepared: list[Prepared] = []
    try:
        with memory_reused():
            return _run(prepared, sources, folder, floor, most, log, progress or Silent())
    finally:
        for one in prepared:
            one.close()


def _run(
    prepared: list[Prepared], sources: Sequence[tuple[EventType, Source]], folder: Path, floor: int | None, most: int,
    log: LogReader | None, progress: Progress,
) -> tuple[list[Prepared], TaskReport] | None:  # fmt: skip
    """The work of `run`; what it prepares it puts into `prepared`, which the caller closes."""
    for number, (kind, source) in enumerate(sources):
        base = sum(len(p.files) for p in prepared)
        prepared.append(
            prepare_table(number, kind, source, floor)
            if source.is_table
            else prepare_files(number, kind, source, floor, base)
        )
    tell = _Telling(progress, sum(p.rows for p in prepared))
    front_to_back(prepared)
    take_prints(prepared)
    held = 0
    tables: list[pa.Table] = []
    times: list[npt.NDArray[np.int64]] = []
    files: list[int] = []
    late: list[pa.Array] = []
    beside = beside_of(prepared)
    origins: list[_Origins] = []
    left_out: list[tuple[int, Note]] = []
    report = TaskReport()
    for number, one in enumerate(prepared):
        columns = HeldColumns(one.plan.kind)
        for file, batch in _read(one, sum(len(p.files) for p in prepared[:number])):
            left_out += ((file, note) for note in notes_of(number, batch))
            report.noticed.setdefault(number, Noticed()).add(notice(one.plan, file, batch))
            columns.add(batch)
            tell.read(batch.read or len(batch.ts))
            times.append(batch.ts)
            files.append(file)
            if LATE in beside:
                late.append(
                    pa.nulls(len(batch.ts), pa.int64()) if batch.late is None else pa.array(batch.late)
                )
            if one.source.unique:
                origins.append(_Origins(number, file, batch.rows))
            if one.table is None:
                held += held_bytes(batch)
                if held > _ROUGH * most:
                    return None
        table = columns.table()
        if number and prepared[number - 1].plan.kind == one.plan.kind:
            both = pa.concat_tables([tables[-1], table]).columns
            tables[-1] = fields_table(one.plan.kind, both, tables[-1].num_rows + table.num_rows)
        else:
            tables.append(table)
    ts = np.concatenate(times) if times else np.zeros(0, np.int64)
    kept, tables = _once(prepared, ts, tables, origins, left_out, log)
    if beside:
        numbers = file_numbers(prepared, log)[np.asarray(files, np.int64)].astype(np.int32)
        own = {FILE: pa.array(np.repeat(numbers, [len(t) for t in times]), pa.int32())}
        if LATE in beside:
            own[LATE] = pa.chunked_array(late, pa.int64())
        if not kept.all():
            own = {name: column.filter(pa.array(kept)) for name, column in own.items()}
        tables = _beside(tables, {name: own[name] for name in beside})
    ts = ts if kept.all() else ts[kept]
    kinds = [p.plan.kind for p in prepared]
    notes = Notes(report, folder / "quarantine", 0, kinds, [f.path for p in prepared for f in p.files])
    if left_out:
        notes.add(noted(left_out))
    notes.close()
    # Sources, their files and the rows of these have been read in their order: only the times are left to sort by.
    order = stable_order(ts)
    report.segments = list(
        write_ordered(
            folder / "segments",
            types_of(prepared),
            tables,
            ts,
            order,
            beside,
            threads=cores(),
            written=tell.writing(len(ts)),
        )
    )
    return prepared, report


def _beside(tables: Sequence[pa.Table], columns: Mapping[str, pa.Array]) -> list[pa.Table]:
    """Tables with what is kept beside their fields: columns of the rows of one table after the other."""
    firsts = np.cumsum([0, *(t.num_rows for t in tables)]).tolist()
    return [
        with_beside(table, {name: c.slice(first, table.num_rows) for name, c in columns.items()})
        for table, first in zip(tables, firsts, strict=False)
    ]


class _Telling:
    """Tells how far reading and writing are. `rows`: about how many there are, which is not told as a number."""

    def __init__(self, progress: Progress, rows: int) -> None:
        self._progress, self._rows, self._done = progress, max(rows, 1), 0
        self._began = time.perf_counter()
        progress.stage("read", 0)

    def read(self, rows: int) -> None:
        self._done += rows
        # where there are more than was thought, it is not done either
        self._progress.advance("read", self._done, max(self._rows, self._done * 21 // 20))

    def writing(self, events: int) -> Callable[[int], None]:
        self._progress.finish("read", time.perf_counter() - self._began)
        self._progress.stage("write", events)
        return lambda done: self._progress.advance("write", done, events)


class _Origins(NamedTuple):
    """Where the events of a batch come from: source, file, rows."""

    source: int
    file: int
    rows: npt.NDArray[np.int64]


def _once(
    prepared: Sequence[Prepared], ts: npt.NDArray[np.int64], tables: list[pa.Table], origins: Sequence[_Origins],
    left_out: list[tuple[int, Note]], log: LogReader | None,
) -> tuple[npt.NDArray[np.bool_], list[pa.Table]]:  # fmt: skip
    """Which events stay, of those that `unique` makes one only the one, and their fields; the others are noted."""
    stays = np.ones(len(ts), np.bool_)
    if not origins:  # no source is unique, or none has events
        return stays, tables
    first = 0
    made: list[pa.Table] = []
    for kind, table in zip(types_of(prepared), tables, strict=True):
        own = ts[first : first + table.num_rows]
        numbers = [n for n, one in enumerate(prepared) if one.plan.kind == kind]
        rule = rule_of(kind, [prepared[n].source for n in numbers])
        if rule is not None:
            rank = np.empty(len(own), np.int64)
            rank[stable_order(own)] = np.arange(len(own))
            known_ts, known = (
                (np.zeros(0, np.int64), table.slice(0, 0))
                if log is None
                else known_events(log, kind, rule, own, table)
            )
            both = pa.concat_tables([known, table])
            ranks = np.concatenate([np.arange(-len(known_ts), 0), rank])
            found = left_out_of(rule, np.concatenate([known_ts, own]), both, ranks)
            same, conflict, in_log = (which[len(known_ts) :] for which in found)
            batches = [o for o in origins if o.source in numbers]
            where = np.repeat(np.arange(len(batches)), [len(o.rows) for o in batches])
            rows = np.concatenate([o.rows for o in batches]) if batches else np.zeros(0, np.int64)
            for place in np.flatnonzero(same | conflict).tolist():
                batch = batches[where[place]]
                note: Note = (TWICE, int(rows[place]), f"{batch.source} ", None)
                if conflict[place]:
                    why = why_left_out(rule, in_log=bool(in_log[place]))
                    hidden = prepared[batch.source].plan.private is not None
                    raw = NOT_KEPT if hidden else event_text(kind, int(own[place]), table.slice(place, 1))
                    note = (BAD, int(rows[place]), f"{batch.source} conflict {why}", raw)
                left_out.append((batch.file, note))
            keep = ~(same | conflict)
            stays[first : first + len(own)] = keep
            table = fields_table(kind, table.filter(pa.array(keep)).columns, int(keep.sum()))
        first += len(own)
        made.append(table)
    return stays, made


def _read(one: Prepared, base: int) -> Iterator[tuple[int, Batch]]:
    """A source's rows in their order, with the number of their file; `base` is that of its first. Blocks are parsed in several threads."""
    if one.table is not None:
        yield from read_table(one.table, one.plan, base)
    blocks = (block for task in one.tasks for block in blocks_of(task, one.plan))
    threads = cores()
    if threads < 2:
        yield from ((number, parse()) for number, parse in blocks)
        return
    waiting: deque[tuple[int, Future[Batch]]] = deque()
    with ThreadPoolExecutor(threads, "timelapse-parse") as pool:
        try:
            for number, parse in blocks:
                waiting.append((number, pool.submit(parse)))
                if len(waiting) > threads:
                    number, done = waiting.popleft()
                    yield number, done.result()
            while waiting:
                number, done = waiting.popleft()
                yield number, done.result()
        finally:
            pool.shutdown(cancel_futures=True)
