"""Ingest in this process: for files that are done before Spark has started. The log is the same, to the last bit."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from timelapse.env.garbage import memory_reused
from timelapse.env.machine import cores, memory_alone
from timelapse.ingest.batches import Batch
from timelapse.ingest.columns_held import HeldColumns, Words
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
from timelapse.ingest.source import Source
from timelapse.ingest.task import BAD, GONE, SAME, TWICE, Note, Notes, TaskReport, event_text, noted, notes_of
from timelapse.ingest.unique import NO_FILE, Before, Rows, known_events, place_of, rule_of, why_left_out
from timelapse.ingest.unique import left_out as left_out_of
from timelapse.progress import Progress, Silent
from timelapse.segments.beside import FILE, LATE, known_late, with_beside
from timelapse.segments.periods import Period
from timelapse.segments.quarantine import NOT_KEPT
from timelapse.segments.segment import fields_table, write_ordered
from timelapse.segments.types import EventType
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


def room(sources: Sequence[tuple[EventType, Source]], before: Before | None = None) -> Room:
    """What the events of the sources would take in this process, by rows and width. Tables in memory are here already.
    `before`: the log that is appended to.

    Raises IngestError for files that are not there, and for what can be seen to be wrong with them.
    """
    most = min(HELD_BYTES, memory_alone() // _COPIES)
    if not all(s.is_files or s.is_table for _, s in sources):
        return Room(None, most)
    needed = 0
    for number, (kind, source) in enumerate(sources):
        if source.is_files:
            one = prepare_files(number, kind, source, None, 0, before)
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
    before: Before | None = None,
    progress: Progress | None = None,
    period: Period | None = None,
) -> tuple[list[Prepared], TaskReport] | None:
    """Read files, sort them, write the segments below `folder`; None, and nothing written, where memory would not do.

    `most`: the bytes that the events may take. `before`: the log that is appended to. `floor` is the time after which all events must lie, when a log is appended to.
    `period`: each segment lies in one. Raises IngestError.
    """
    prepared: list[Prepared] = []
    try:
        with memory_reused():
            return _run(prepared, sources, folder, floor, most, before, progress or Silent(), period)
    finally:
        for one in prepared:
            one.close()


def _run(
    prepared: list[Prepared], sources: Sequence[tuple[EventType, Source]], folder: Path, floor: int | None, most: int,
    before: Before | None, progress: Progress, period: Period | None,
) -> tuple[list[Prepared], TaskReport] | None:  # fmt: skip
    """The work of `run`; what it prepares it puts into `prepared`, which the caller closes."""
    for number, (kind, source) in enumerate(sources):
        base = sum(len(p.files) for p in prepared)
        prepared.append(
            prepare_table(kind, source, floor)
            if source.is_table
            else prepare_files(number, kind, source, floor, base, before)
        )
    tell = _Telling(progress, sum(p.rows for p in prepared))
    front_to_back(prepared)
    take_prints(prepared)
    held = 0
    tables: list[pa.Table] = []
    times = Words(pa.int64(), sum(p.rows for p in prepared))
    files: list[int] = []
    counts: list[int] = []
    late: list[pa.Array] = []
    beside = beside_of(prepared)
    origins: list[_Origins] = []
    left_out: list[tuple[int, Note]] = []
    report = TaskReport()
    once = {one.plan.kind for one in prepared if one.source.unique}
    several = Counter(one.plan.kind for one in prepared)
    for number, one in enumerate(prepared):
        if one.plan.kind not in once and several[one.plan.kind] == 1:
            one.plan = replace(one.plan, codes=True)
        columns = HeldColumns(one.plan.kind, one.rows)
        for file, batch in _read(one, sum(len(p.files) for p in prepared[:number])):
            left_out += ((file, note) for note in notes_of(number, batch))
            report.noticed.setdefault(number, Noticed()).add(notice(one.plan, file, batch))
            columns.add(batch)
            tell.read(batch.read or len(batch.ts))
            times.add(pa.array(batch.ts))
            files.append(file)
            counts.append(len(batch.ts))
            if LATE in beside:
                late.append(
                    pa.nulls(len(batch.ts), pa.int64()) if batch.late is None else pa.array(batch.late)
                )
            if one.plan.kind in once:  # said of one source of a type it holds for all
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
    ts = times.whole().to_numpy()
    arrived = pa.chunked_array(late, pa.int64()) if LATE in beside else None
    kept, tables = _once(prepared, ts, tables, arrived, origins, left_out, before)
    if beside:
        numbers = file_numbers(prepared, before)[np.asarray(files, np.int64)].astype(np.int32)
        own = {FILE: pa.array(np.repeat(numbers, counts), pa.int32())}
        if arrived is not None:
            own[LATE] = arrived
        if not kept.all():
            own = {name: column.filter(pa.array(kept)) for name, column in own.items()}
        tables = _beside(tables, {name: own[name] for name in beside})
    ts = ts if kept.all() else ts[kept]
    kinds = [p.plan.kind for p in prepared]
    files_ = [f.path for p in prepared for f in p.files]
    if before is not None:
        files_ += [path for _, _, path in before.files]
    notes = Notes(report, folder / "quarantine", 0, kinds, files_, None if before is None else before.beaten)
    if left_out:
        notes.add(noted(left_out))
    notes.close()
    # Sources, their files and the rows of these have been read in their order: only the times are left to sort by.
    order = stable_order(ts, cores())
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
            period=period,
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
    prepared: Sequence[Prepared], ts: npt.NDArray[np.int64], tables: list[pa.Table], late: pa.ChunkedArray | None,
    origins: Sequence[_Origins], left_out: list[tuple[int, Note]], before: Before | None,
) -> tuple[npt.NDArray[np.bool_], list[pa.Table]]:  # fmt: skip
    """Which events stay, of those that `unique` makes one only the one, and their fields; the others are noted, and so are those of the log
    whose place they take."""
    stays = np.ones(len(ts), np.bool_)
    if not origins:  # no source is unique, or none has events
        return stays, tables
    first = 0
    made: list[pa.Table] = []
    bases = np.cumsum([0, *(len(p.files) for p in prepared)]).tolist()
    for kind, table in zip(types_of(prepared), tables, strict=True):
        own, here = ts[first : first + table.num_rows], slice(first, first + table.num_rows)
        numbers = [n for n, one in enumerate(prepared) if one.plan.kind == kind]
        rule = rule_of(kind, [prepared[n].source for n in numbers])
        if rule is not None:
            batches = [o for o in origins if o.source in numbers]
            where = np.repeat(np.arange(len(batches)), [len(o.rows) for o in batches])
            lines = np.concatenate([np.zeros(0, np.int64), *(o.rows for o in batches)])
            own_places = [
                place_of(o.file) if prepared[o.source].source.is_files else NO_FILE for o in batches
            ]
            rows = Rows(
                own, table, own if late is None else own + known_late(pa.table({LATE: late.slice(first, len(own))})),
                np.asarray(own_places, np.int64)[where], np.zeros(len(own), np.bool_),
            )  # fmt: skip
            hidden = any(prepared[n].plan.private is not None for n in numbers)
            known = None
            if before is not None:
                known = known_events(before.reader, kind, rule, own, table)
                of_files = [n for n in numbers if prepared[n].source.is_files]
                new = [
                    (max(prepared[n].source.position, 0), f.path) for n in of_files for f in prepared[n].files
                ]
                places = before.places(kind, new, bases[of_files[0]] if of_files else 0)
                rows = _behind(kind, known, places, rows)
            told = 0 if known is None else known.num_rows
            found = left_out_of(rule, kind, rows)
            why = why_left_out(rule)
            for place, same, hashed, by in zip(
                found.rows.tolist(), found.same.tolist(), found.hashes, found.instead, strict=True
            ):
                text = SAME if same else f"conflict {hashed.hex()} {why}"
                raw = None
                if not same:
                    at = rows.fields.slice(place, 1)
                    raw = NOT_KEPT if hidden else event_text(kind, int(rows.ts[place]), at)
                if known is not None and place < told:
                    number = known[FILE][place].as_py()
                    seq = known["seq"][place].as_py()
                    note: Note = (GONE, seq, f"{numbers[0]} {by.hex()} {text}", raw)
                    left_out.append((number if number < 0 else bases[-1] + number, note))
                    continue
                batch, line = batches[where[place - told]], int(lines[place - told])
                note = (TWICE if same else BAD, line, f"{batch.source} {text}", raw)
                left_out.append((batch.file, note))
            gone = found.rows[found.rows >= told] - told
            if len(gone):
                stays[here][gone] = False
                keep = stays[here]
                table = fields_table(kind, table.filter(pa.array(keep)).columns, int(keep.sum()))
        first += len(own)
        made.append(table)
    return stays, made


def _behind(kind: EventType, known: pa.Table, places: npt.NDArray[np.int64], new: Rows) -> Rows:
    """Events that a log has, and new ones behind them."""
    ts = known["ts"].to_numpy()
    fields = fields_table(kind, [known[f.name] for f in kind.fields], known.num_rows)
    return Rows(
        np.concatenate([ts, new.ts]),
        pa.concat_tables([fields, new.fields]),
        np.concatenate([ts + known_late(known), new.arrived]),
        np.concatenate([places[known[FILE].to_numpy()], new.place]),
        np.concatenate([np.ones(len(ts), np.bool_), new.known]),
    )


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
