"""Writing a segment: one Parquet file per event type, in blocks of consecutive events.

A block is a row group in every file that has events in it, so that a range of the log is the same
few row groups in all files.
"""

from __future__ import annotations

import inspect
import itertools
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from timelapse.errors import LogError, Place
from timelapse.ids import DAY
from timelapse.model.events import Event
from timelapse.segments.beside import BESIDE, FILE, columns_beside, with_beside
from timelapse.segments.manifest import ContentHash, FileEntry, SegmentEntry
from timelapse.segments.periods import Period, check_number, ranges
from timelapse.segments.types import EventType
from timelapse.store.parts import PartWriter, Written
from timelapse.tables.coded import coded_type, codes_of, fitted, is_coded, plain_bytes
from timelapse.tables.ordering import scattered, taker
from timelapse.tables.parquet import differences
from timelapse.tables.rowhash import both_lanes, seed_of, whole_array
from timelapse.tables.sharing import Beside

I64 = npt.NDArray[np.int64]

BLOCK_EVENTS = 128 * 1024
BLOCK_BYTES = 64 << 20
SEGMENT_EVENTS = 1024 * 1024
_HANDED_OVER = 512 * 1024
"""Bytes that another thread writes at a time. They are made durable once, at the end: that waits for what else the disk has to do, each time."""
_PAGES = (
    {"max_rows_per_page": BLOCK_EVENTS}
    if "max_rows_per_page" in inspect.signature(pq.ParquetWriter).parameters
    else {}
)
"""Blocks are read as a whole: pages that end after 20,000 rows, as Arrow has them since it can say this, only take longer to write."""
_INDEX = pa.field("_i", pa.int64(), nullable=False)
_TS = pa.field("ts", pa.int64(), nullable=False)


def file_schema(kind: EventType, beside: Sequence[str] = ()) -> pa.Schema:
    """The stored columns: index in the segment, time, fields, and what is kept beside them (segments/beside.py). No field starts with an underscore."""
    return pa.schema([_INDEX, _TS, *kind.schema, *(BESIDE.field(name) for name in beside)])


class SegmentWriter:
    """Writes one segment into a folder of its own, block by block. The folder's parent must exist.

    It does not create the parent: a task that Spark gave up on must not bring a removed folder back.
    `beside`: the columns that are kept beside the fields (segments/beside.py); tables that lack one are filled. `encoding`, `hashing`, `disk`: the threads that
    encode blocks, hash them, and write what is encoded, if others do: this one goes on meanwhile.
    """

    def __init__(
        self,
        parent: Path,
        name: str,
        types: Sequence[EventType],
        beside: Sequence[str] = (),
        encoding: Beside | None = None,
        hashing: Beside | None = None,
        disk: Beside | None = None,
    ) -> None:
        self._types = types
        self._encoding, self._hashing, self._disk = encoding or Beside(1), hashing or Beside(1), disk
        self._beside = list(beside)
        self._seeds = [seed_of(str(t)) for t in types]
        self._folder = parent / f"{name}-{uuid4().hex[:12]}"
        self._folder.mkdir()
        self._writers: dict[int, pq.ParquetWriter] = {}
        self._files: dict[int, PartWriter] = {}
        self._later: dict[int, _Later] = {}
        self._rows: list[dict[int, int]] = []
        self._starts: list[int] = []
        self._first: list[int] = []
        self._last: list[int] = []
        self._content = ContentHash()
        self._days: dict[int, dict[int, int]] = {}
        self._empty: dict[int, dict[str, dict[int, int]]] = {}
        self.count = 0

    def write(self, ts: I64, kinds: I64, tables: Mapping[int, pa.Table], *, fit: bool = True) -> None:
        """Add a block: the events' times and type indices in log order, and each type's fields in that order.

        `fit`: whether the fields may be of other types, or their dictionaries have more than occurs (`fitted`).
        """
        if len(ts) == 0:
            return
        rows: dict[int, int] = {}
        writes: list[Callable[[], None]] = []
        parts: list[_Rows] = []
        for number, table in sorted(tables.items()):
            places = np.flatnonzero(kinds == number)
            if len(places) == 0:
                continue
            kind, own_ts = self._types[number], ts[places] if len(places) < len(ts) else ts
            beside = columns_beside(
                {name: table[name] for name in self._beside if name in table.column_names},
                self._beside,
                len(places),
            )
            fields = {
                f.name: fitted(table[f.name], f.type) if fit else whole_array(table[f.name])
                for f in kind.schema
            }
            rows[number] = len(places)
            writer = self._writer(number, [name for name, c in fields.items() if is_coded(c)])
            stored = [
                _stored(c, f.type) for c, f in zip(fields.values(), list(writer.schema)[2:], strict=False)
            ]
            columns = [pa.array(self.count + places), pa.array(own_ts), *stored, *beside]
            whole = pa.table(columns, schema=writer.schema)
            writes.append(partial(writer.write_table, whole, row_group_size=len(places)))
            parts.append(_Rows(number, places, own_ts, fields))
        self._encoding.do(partial(_each, writes))
        self._hashing.do(partial(self._sum_up, len(ts), parts))
        self._rows.append(rows)
        self._starts.append(self.count)
        self._first.append(int(ts[0]))
        self._last.append(int(ts[-1]))
        self.count += len(ts)

    def _sum_up(self, count: int, parts: Sequence[_Rows]) -> None:
        """Count and hash a block of so many events."""
        sums, placed = [0, 0], [0, 0]
        for number, places, ts, fields in parts:
            self._count_days(number, fields, ts)
            hashed = [pa.array(ts), *fields.values()]
            for lane, (sum_, moved) in enumerate(content_sums(hashed, places, self._seeds[number])):
                sums[lane] += sum_
                placed[lane] += moved
        mask = (1 << 64) - 1
        self._content = self._content.then(
            ContentHash(count, (sums[0] & mask, sums[1] & mask), (placed[0] & mask, placed[1] & mask))
        )

    def _count_days(self, number: int, fields: Mapping[str, pa.Array], ts: I64) -> None:
        """Count a block's events, whose times rise, by their days, and those without a value."""
        per_day = self._days.setdefault(number, {})
        for day, n in _per_day(ts):
            per_day[day] = per_day.get(day, 0) + n
        for name, column in fields.items():
            found = emptiness(column)
            if found.any():
                own = self._empty.setdefault(number, {}).setdefault(name, {})
                for day, n in _per_day(ts[found]):
                    own[day] = own.get(day, 0) + n

    def _writer(self, number: int, coded: Sequence[str]) -> pq.ParquetWriter:
        """The writer of a type's file; a new one takes these columns as codes of a dictionary, from the first block to the last."""
        if number not in self._writers:
            kind = self._types[number]
            # Dictionaries cost more to read than they save, but where values repeat and are long.
            wide = [f.name for f in kind.fields if f.type.arrow in (pa.large_string(), pa.large_binary())]
            wide += [name for name in self._beside if name == FILE]
            schema = file_schema(kind, self._beside)
            given = pa.schema([f.with_type(coded_type(f.type)) if f.name in coded else f for f in schema])
            file = self._files[number] = PartWriter(self._folder / f"{kind.name}.parquet", lasting=True)
            if self._disk is not None:
                self._later[number] = _Later(file, self._disk)
            writer = self._writers[number] = pq.ParquetWriter(
                self._later.get(number, file),
                given,
                compression="lz4",
                use_dictionary=wide,
                column_encoding=differences(schema),
                write_statistics=["_i", "ts"],
                version="2.6",
                write_page_checksum=True,  # a bit that flips on the disk must not change a replay
                store_schema=False,  # below: that of the values, however they came
                **_PAGES,
            )
            writer.add_key_value_metadata({"ARROW:schema": b64encode(schema.serialize()).decode()})
        return self._writers[number]

    def close(self) -> SegmentEntry:
        """Finish the files and make them durable. The entry's base is set when the log is put together."""
        self._encoding.wait()
        files = []
        for number, writer in sorted(self._writers.items()):
            writer.close()
            if number in self._later:
                self._later[number].end()
            part = self._files[number].finish()
            rows = [block.get(number, 0) for block in self._rows]
            name = self._files[number].path.name
            files.append(FileEntry(number, name, part.bytes, rows, part.crc32, self._beside))
        self._hashing.wait()  # the last block is hashed while the files are synced
        return SegmentEntry(
            folder=self._folder.name, base=0, count=self.count, starts=self._starts,
            ts_first=self._first, ts_last=self._last, files=files, content=self._content, days=self._days,
            empty=self._empty,
        )  # fmt: skip


class _Rows(NamedTuple):
    """The events of one type in a block: their places in the segment, times and fields."""

    number: int
    places: I64
    ts: I64
    fields: dict[str, pa.Array]


def _each(calls: Sequence[Callable[[], None]]) -> None:
    for call in calls:
        call()


class _Later(Written):
    """A file for Parquet to write to: what it writes goes to the file in another thread, some of it at a time."""

    def __init__(self, file: PartWriter, disk: Beside) -> None:
        self._file, self._disk = file, disk
        self._held: list[bytes] = []
        self._holding = 0
        self._failed = False

    def write(self, data: bytes | pa.Buffer) -> int:
        """Raises what writing something before this has raised; once. A writer that is given up ends its file all the same."""
        own = bytes(data)
        if self._failed:
            return len(own)
        self._held.append(own)
        self._holding += len(own)
        self._position += len(own)
        if self._holding >= _HANDED_OVER:
            self._hand_over()
        return len(own)

    def _hand_over(self) -> None:
        held, self._held, self._holding = self._held, [], 0
        self._failed = True
        self._disk.do(partial(self._write, held))
        self._failed = False

    def _write(self, held: Sequence[bytes]) -> None:
        for data in held:
            self._file.write(data)

    def end(self) -> None:
        """Wait until all is written. Raises what that raised."""
        self._hand_over()
        self._disk.wait()


def _per_day(ts: I64) -> Iterator[tuple[int, int]]:
    """The days of times, which rise, and how many each has."""
    first, last = int(ts[0]) // DAY, int(ts[-1]) // DAY
    if last - first < len(ts):
        ends = np.searchsorted(ts, np.arange(first + 1, last + 1) * DAY).tolist()
        days = list(range(first, last + 1))
    else:  # mostly days without events
        each = ts // DAY
        ends = (np.flatnonzero(np.diff(each)) + 1).tolist()
        days = each[[0, *ends]].tolist()
    for day, (lo, hi) in zip(days, itertools.pairwise([0, *ends, len(ts)]), strict=True):
        if hi > lo:
            yield day, hi - lo


def _stored(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """A column as its file takes it: as codes, or as values."""
    if is_coded(column) and not pa.types.is_dictionary(kind):
        return column.dictionary_decode()
    return column.dictionary_encode() if pa.types.is_dictionary(kind) and not is_coded(column) else column


def content_sums(hashed: list[pa.Array], places: I64, seed: int) -> list[tuple[int, int]]:
    """For each lane of the hash of some rows: the sum of the rows' hashes, and that of place times hash."""
    own = places.view(np.uint64)
    with np.errstate(over="ignore"):
        return [
            (int(h.sum(dtype=np.uint64)), int((h * own).sum(dtype=np.uint64)))
            for h in both_lanes(hashed, len(places), seed)
        ]


def emptiness(column: pa.Array) -> npt.NDArray[np.bool_]:
    """In which rows a column holds nothing: None, an empty text, NaN."""
    if is_coded(column):
        codes, valid = codes_of(column)
        empty = emptiness(column.dictionary)
        # one more: all rows may be None
        own = np.append(empty, False)[codes] if empty.any() else np.zeros(len(column), np.bool_)
        return own if valid is None else own | ~valid
    missing = np.asarray(column.is_null()) if column.null_count else np.zeros(len(column), np.bool_)
    kind = column.type
    if pa.types.is_floating(kind):
        missing = missing | np.isnan(np.asarray(column, np.float64))
    elif pa.types.is_large_string(kind) or pa.types.is_large_binary(kind):
        offsets = np.frombuffer(column.buffers()[1], np.int64)[
            column.offset : column.offset + len(column) + 1
        ]
        missing = missing | (np.diff(offsets) == 0) if len(column) else missing
    return missing


def write_events(
    parent: Path, types: Sequence[EventType], events: Sequence[Event], block: int = BLOCK_EVENTS, period: Period | None = None
) -> Iterator[SegmentEntry]:  # fmt: skip
    """Write events, which are in log order, without Spark. Yields the finished segments. `period`: each lies in one. Raises IngestError
    where these would be too many."""
    numbers = {t.name: n for n, t in enumerate(types)}
    segments = list(
        ranges(np.fromiter((e.ts for e in events), np.int64, len(events)), period, SEGMENT_EVENTS)
    )
    check_number(period, segments)
    for number, (first, last) in enumerate(segments):
        writer = SegmentWriter(parent, f"{number:06d}", types)
        run = events[first:last]
        for lo in range(0, len(run), block):
            part = run[lo : lo + block]
            kinds = [_number(numbers, e) for e in part]
            by_type: dict[int, list[Event]] = {}
            for kind, event in zip(kinds, part, strict=True):
                by_type.setdefault(kind, []).append(event)
            tables = {n: table_of(types[n], own) for n, own in by_type.items()}
            writer.write(
                np.fromiter((e.ts for e in part), np.int64, len(part)), np.asarray(kinds, np.int64), tables
            )
        yield writer.close()


def _number(numbers: Mapping[str, int], event: Event) -> int:
    try:
        return numbers[type(event).__name__]
    except KeyError:
        raise LogError(
            f"{type(event).__name__} is not a type of this log", place=Place(what=repr(event)),
            hint=f"types: {', '.join(numbers)}",
        ) from None  # fmt: skip


def table_of(kind: EventType, events: Sequence[Event]) -> pa.Table:
    """The fields of events of one type as a table."""
    columns = zip(*(e._values() for e in events), strict=True) if kind.fields else ()
    arrays = [pa.array(column, type=f.type.arrow) for f, column in zip(kind.fields, columns, strict=True)]
    return fields_table(kind, arrays, len(events))


def fields_table(kind: EventType, arrays: Sequence[pa.Array], rows: int) -> pa.Table:
    """A table of fields that keeps its number of rows when the type has no field."""
    if arrays:
        return pa.table(list(arrays), schema=kind.schema)
    return pa.table({"_": pa.nulls(rows)}).select([])


def write_ordered(
    parent: Path, types: Sequence[EventType], tables: Sequence[pa.Table], ts: I64, order: I64,
    beside: Sequence[str] = (), *, threads: int = 1, name: str = "", written: Callable[[int], None] = lambda events: None,
    period: Period | None = None,
) -> Iterator[SegmentEntry]:  # fmt: skip
    """Write events that are held as one table of fields per type. Yields the finished segments.

    `ts` has the times of the tables' rows, one table after the other; `order` the places of these rows in log order.
    `beside`: the columns of the tables that are kept beside the fields. `name`: what the segments' names begin with. `written` is told
    how many events have been, after each block. `period`: each segment lies in one. Raises IngestError where these would be too many.
    """
    counts = [t.num_rows for t in tables]
    firsts = np.cumsum([0, *counts])
    far = scattered(order)
    own = [[taker(column, far=far) for column in table.columns] for table in tables]
    times = taker(pa.array(ts), far=far)
    held = sum(plain_bytes(column) for table in tables for column in table.columns)
    step = min(BLOCK_EVENTS, max(1, BLOCK_BYTES * len(ts) // max(held, 1)))
    segments = list(ranges(ts if period is None else ts[order], period, SEGMENT_EVENTS))
    check_number(period, segments)
    # A block is put together while the one before is encoded and hashed, and what is encoded is written.
    with Beside(threads) as disk, Beside(threads) as encoding, Beside(threads) as hashing:
        for number, (first, last) in enumerate(segments):
            writer = SegmentWriter(
                parent, f"{name}{number:06d}", types, beside, encoding, hashing, disk if threads > 1 else None
            )
            for lo in range(first, last, step):
                hi = min(lo + step, last)
                rows = order[lo:hi]
                of = (
                    np.searchsorted(firsts[1:], rows, side="right")
                    if len(tables) > 1
                    else np.zeros(hi - lo, np.int64)
                )
                block: dict[int, pa.Table] = {}
                for n, table in enumerate(tables):
                    kinds = {f.name: f.type for f in types[n].schema}
                    places = rows[of == n] - firsts[n] if len(tables) > 1 else rows
                    block[n] = _block(own[n], places, kinds, table) if own[n] else table
                writer.write(np.asarray(times(rows)), of, block, fit=False)
                written(lo)
            written(last)
            yield writer.close()


def _block(
    takers: Sequence[Callable[[I64], pa.Array]],
    places: I64,
    kinds: Mapping[str, pa.DataType],
    table: pa.Table,
) -> pa.Table:
    """Rows of a table. Nothing else holds them: a block's memory is free once it is written."""
    columns = zip(takers, table.column_names, strict=True)
    return pa.table([_taken(take, places, kinds.get(name)) for take, name in columns], table.column_names)


def _taken(take: Callable[[I64], pa.Array], places: I64, kind: pa.DataType | None) -> pa.Array:
    """Rows of a column, those of a field as they are stored."""
    found = take(places)
    return found if kind is None else fitted(found, kind)


def next_block(
    types: Sequence[EventType], kinds: I64, tables: Mapping[int, pa.Table], done: dict[int, int]
) -> dict[int, pa.Table]:
    """The fields of the next events of ordered tables, whose types are `kinds`. `done`: the rows that are taken of each table."""
    block = {}
    for n, table in tables.items():
        count, first = int(np.count_nonzero(kinds == n)), done.get(n, 0)
        columns = [table.column(f.name).slice(first, count) for f in types[n].fields]
        beside = {
            name: table[name].slice(first, count) for name in BESIDE.names if name in table.column_names
        }
        block[n] = with_beside(fields_table(types[n], columns, count), beside)
        done[n] = first + count
    return block
