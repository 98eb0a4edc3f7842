"""Reading a log: ranges of it, only the columns that are asked for, in any process, without Spark.

`LogReader` is a small description (paths and block tables) that travels to workers; `MemoryLog` offers the
same over a list of events.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, Protocol, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from timelapse.errors import LogError, Place, meant
from timelapse.model.events import Event
from timelapse.segments.beside import BESIDE, columns_beside
from timelapse.segments.footers import first_rows, footer, unreadable
from timelapse.segments.manifest import FileEntry, Manifest, SegmentEntry
from timelapse.segments.periods import Period
from timelapse.segments.rows import InRows
from timelapse.segments.types import EventType
from timelapse.segments.without import kept
from timelapse.store.remote import path_of, pinned

Columns = Mapping[str, Sequence[str] | None]
"""Event types by name, with the fields wanted: None is all, an empty list only `seq` and `ts`."""


class Chunk(NamedTuple):
    """A contiguous range of the log, `seq_lo` to before `seq_hi`.

    `tables` has, for each type that occurs in it, the columns `seq`, `ts` (both int64) and the fields.
    """

    seq_lo: int
    seq_hi: int
    tables: dict[str, pa.Table]


class EventReader(Protocol):
    """What a replay reads from."""

    @property
    def types(self) -> tuple[EventType, ...]: ...
    @property
    def count(self) -> int: ...
    def cuts(self, n: int) -> list[int]:
        """`n + 1` seq boundaries of `n` ranges with as equal numbers of events as possible."""
        ...

    def seq_at(self, ts: int) -> int:
        """The first seq whose event is at `ts` or later; the end of the log if there is none."""
        ...

    def seq_after(self, events: int) -> int:
        """A seq before which there are exactly so many events."""
        ...

    def ts_before(self, seq: int) -> int | None:
        """The time of the last event before `seq`, of whatever type; None if there is none."""
        ...

    @property
    def ts_first(self) -> int | None:
        """The time of the first event; None where the log is empty."""
        ...

    def rows(self, name: str, lo: int, hi: int) -> int:
        """How many events of a type there are with lo <= seq < hi."""
        ...

    def chunks(self, lo: int, hi: int, columns: Columns) -> Iterator[Chunk]:
        """The events with lo <= seq < hi, in log order, as columns."""
        ...

    def events(
        self, lo: int, hi: int, classes: Mapping[str, type[Event]], columns: Columns | None = None
    ) -> Iterator[Event]:
        """The events of the named types with lo <= seq < hi, in log order.

        With `columns`, only those fields are read; the others may hold None.
        """
        ...


@dataclass(frozen=True)
class SameEvents(InRows):
    """A part of readers that give the events of another at the same places, in other columns or from elsewhere."""

    base: EventReader

    @property
    def count(self) -> int:
        return self.base.count

    def cuts(self, n: int) -> list[int]:
        return self.base.cuts(n)

    def seq_after(self, events: int) -> int:
        return self.base.seq_after(events)

    def seq_at(self, ts: int) -> int:
        return self.base.seq_at(ts)

    def ts_before(self, seq: int) -> int | None:
        return self.base.ts_before(seq)

    def rows(self, name: str, lo: int, hi: int) -> int:
        return self.base.rows(name, lo, hi)

    @property
    def ts_first(self) -> int | None:
        return self.base.ts_first


_MOST_FOUND = 4096
_FEW = 16
"""Of a block's events at most one in so many: then only the pages that have them are read."""


@dataclass(frozen=True)
class LogReader(InRows):
    """A stored log's events. Picklable and small: it holds where things are, no data and no open files."""

    root: str
    types: tuple[EventType, ...]
    segments: tuple[SegmentEntry, ...]
    count: int
    _bases: tuple[int, ...] = field(repr=False)
    encoded: bool = False
    """Whether chunks may hold strings as dictionary arrays, where values repeat: nothing is spelt out then."""
    excluded: tuple[int, ...] = field(default=(), repr=False)
    """Events that are left out, by rising seq. `count` is without them; the others keep their seq."""
    beside: bool = False
    """Whether chunks also have what is kept beside the events (segments/beside.py)."""
    period: Period | None = None
    """The period of time in which each segment lies, where they are cut by time."""
    spared: frozenset[str] = frozenset()
    """Of `seq` and `ts` those that chunks need not have: all rows of a block are the same ones each time."""

    @classmethod
    def of(cls, root: Path, manifest: Manifest, excluded: tuple[int, ...] = ()) -> LogReader:
        segments = tuple(manifest.segments)
        bases = tuple(s.base for s in segments)
        count = manifest.count - len(excluded)
        return cls(
            pinned(root), manifest.event_types, segments, count, bases, excluded=excluded, period=manifest.period
        )  # fmt: skip

    def period_starts(self) -> list[int]:
        """The seqs at which a segment of another period begins than that of the one before; none where segments are not cut by time."""
        if self.period is None or not self.segments:
            return []
        ends = np.asarray([t for s in self.segments for t in (s.ts_first[0], s.ts_last[-1])], np.int64)
        return [self._bases[n // 2] for n in self.period.starts(ends)]

    @cached_property
    def _found(self) -> dict[tuple[str, int], int]:
        """What `seq_at` and `ts_before` found by reading a block: every pass of a replay asks the same of a slice's ends."""
        return {}

    def _keep(self, what: str, asked: int, found: int) -> int:
        if len(self._found) >= _MOST_FOUND:
            self._found.clear()
        self._found[what, asked] = found
        return found

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_found"}

    @property
    def _end(self) -> int:
        return self.count + len(self.excluded)

    @property
    def _shown(self) -> str:
        """Where the log is, for people."""
        return str(path_of(self.root))

    def cuts(self, n: int) -> list[int]:
        even = even_cuts(self.count, n)
        return [0, *map(self.seq_after, even[1:])] if self.excluded else even

    def seq_after(self, events: int) -> int:
        if events >= self.count:
            return self._end
        if not self.excluded:
            return events
        gone = np.asarray(self.excluded) - np.arange(len(self.excluded))
        return events + int(np.searchsorted(gone, events, side="right"))

    def seq_at(self, ts: int) -> int:
        known = self._found.get(("seq", ts))
        if known is not None:
            return known
        for segment in self.segments:
            if segment.ts_last[-1] < ts:
                continue
            block = bisect_left(segment.ts_last, ts)
            lo = segment.base + segment.starts[block]
            if segment.ts_first[block] >= ts:
                return lo
            parts = [self._read(segment, block, file, ()) for file in segment.files if file.rows[block]]
            return self._keep(
                "seq", ts, lo + sum(int(np.searchsorted(np.asarray(p["ts"]), ts)) for p in parts)
            )
        return self._end

    def ts_before(self, seq: int) -> int | None:
        last = min(seq, self._end) - 1
        place = bisect_right(self.excluded, last) - 1
        while place >= 0 and self.excluded[place] == last:
            last, place = last - 1, place - 1
        if last < 0:
            return None
        known = self._found.get(("ts", last))
        if known is not None:
            return known
        segment = self.segments[bisect_right(self._bases, last) - 1]
        block = bisect_right(segment.starts, last - segment.base) - 1
        if last + 1 - segment.base == [*segment.starts, segment.count][block + 1]:
            return segment.ts_last[block]
        for file in segment.files:
            if file.rows[block]:
                part = self._read(segment, block, file, ())
                row = int(np.searchsorted(part["seq"].to_numpy(), last))
                if row < part.num_rows and part["seq"][row].as_py() == last:
                    return self._keep("ts", last, int(part["ts"].cast(pa.int64())[row].as_py()))
        raise LogError(f"the log has no event {last}", place=Place(self._shown), code="TL405")

    @property
    def ts_first(self) -> int | None:
        if self.excluded:
            return self.ts_before(self.seq_after(0) + 1)
        return next((s.ts_first[0] for s in self.segments if s.count), None)

    def rows(self, name: str, lo: int, hi: int) -> int:
        if self.excluded:
            return rows_read(self, name, lo, hi)
        (kind,) = self._wanted({name: ()})
        count = 0
        for segment in self.segments:
            ends = [*segment.starts[1:], segment.count]
            for file in (f for f in segment.files if f.type == kind):
                for block, (start, end) in enumerate(zip(segment.starts, ends, strict=True)):
                    first, last = max(lo, segment.base + start), min(hi, segment.base + end)
                    if first >= last or not file.rows[block]:
                        continue
                    whole = last - first == end - start
                    part = None if whole else cut_rows(self._read(segment, block, file, ()), first, last)
                    count += file.rows[block] if part is None else part.num_rows
        return count

    def chunks(self, lo: int, hi: int, columns: Columns) -> Iterator[Chunk]:
        wanted = self._wanted(columns)
        encodings = _Encodings(self.types) if self.encoded else None
        lo, hi = max(lo, 0), min(hi, self._end)
        excluded = np.asarray(self.excluded, np.int64)
        if lo >= hi:
            return
        for segment in self.segments[bisect_right(self._bases, lo) - 1 :]:
            if segment.base >= hi:
                return
            with _Files(
                self.root, segment, self.types, encodings, beside=self.beside, times="ts" not in self.spared
            ) as files:
                entries = [f for f in segment.files if f.type in wanted]
                ends = [*segment.starts[1:], segment.count]
                for block, (start, end) in enumerate(zip(segment.starts, ends, strict=True)):
                    first, last = max(lo, segment.base + start), min(hi, segment.base + end)
                    if first >= last:
                        continue
                    whole = last - first == end - start and not self.excluded
                    indexed = not whole or "seq" not in self.spared
                    few = first == segment.base + start and (last - first) * _FEW <= end - start
                    head = last - first if few else None
                    tables = {}
                    for number, table in files.blocks(entries, block, wanted, indexed=indexed, head=head):
                        part = kept(cut_rows(table, first, last), excluded, first, last) if indexed else table
                        if part.num_rows:
                            tables[self.types[number].name] = part
                    yield Chunk(first, last, tables)

    def _read(self, segment: SegmentEntry, block: int, entry: FileEntry, names: Sequence[str]) -> pa.Table:
        with _Files(self.root, segment, self.types) as files:
            return files.block(entry, block, names)

    def _wanted(self, columns: Columns) -> dict[int, Sequence[str]]:
        known = {t.name: n for n, t in enumerate(self.types)}
        wanted: dict[int, Sequence[str]] = {}
        for name, fields in columns.items():
            kind = type_named(self.types, name, self._shown)
            _check_fields(kind, fields, self._shown)
            wanted[known[name]] = [f.name for f in kind.fields] if fields is None else list(fields)
        return wanted


class _Encodings:
    """Which text columns are read as dictionaries: those whose values were seen to repeat."""

    def __init__(self, types: Sequence[EventType]) -> None:
        text = (pa.large_string(), pa.large_binary())
        self._names = {n: [f.name for f in t.schema if f.type in text] for n, t in enumerate(types)}

    def of(self, kind: int) -> list[str]:
        return list(self._names[kind])

    def judge(self, kind: int, field: pa.Field, column: pa.ChunkedArray) -> pa.ChunkedArray:
        """The column as it goes on. One that hardly repeats is spelt out, and not read so from the next file on."""
        if column.num_chunks == 1 and REPEATED * len(column.chunk(0).dictionary) <= len(column):
            return column
        if field.name in self._names[kind] and len(column) >= _TELLING:
            self._names[kind].remove(field.name)
        return pa.chunked_array([c.dictionary_decode() for c in column.chunks]).cast(field.type)


_SEQ, _TS = (pa.field(name, pa.int64(), nullable=False) for name in ("seq", "ts"))
REPEATED = 2
"""How often a value stands in a block on average for its column to stay a dictionary."""
_TELLING = 1000


class _Files:
    """A segment's Parquet files while they are read: each is opened when first needed."""

    def __init__(
        self,
        root: str,
        segment: SegmentEntry,
        types: Sequence[EventType],
        encodings: _Encodings | None = None,
        *,
        beside: bool = False,
        times: bool = True,
    ) -> None:
        self._beside, self._first = beside, ("ts",) if times else ()
        self._root, self._segment, self._types, self._encodings = root, segment, types, encodings
        self._open: dict[int, pq.ParquetFile] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._open.values():
            file.close()

    def blocks(
        self, entries: Sequence[FileEntry], block: int, names: Mapping[int, Sequence[str]], *, indexed: bool = True,
        head: int | None = None,
    ) -> Iterator[tuple[int, pa.Table]]:  # fmt: skip
        """The types' parts of a block, in the order of `entries`: `seq` (only if `indexed`), `ts` and the named fields.

        Where these are all its events, the type that has most of them stands wherever the others do not:
        its index column is not read. `head`: only so many rows of each type, which have the block's first `head` events.
        """
        present = [entry for entry in entries if entry.rows[block]]
        start, end = self._range(block)
        if not indexed:
            for entry in present:
                if self._first or names[entry.type]:
                    yield entry.type, self.block(entry, block, names[entry.type], indexed=False)
            return
        if head is not None or sum(entry.rows[block] for entry in present) != end - start:
            for entry in present:
                yield entry.type, self.block(entry, block, names[entry.type], rows=head)
            return
        most = max(present, key=lambda entry: entry.rows[block])
        free = np.ones(end - start, np.bool_)
        tables = {}
        for entry in present:
            if entry is not most:
                table = tables[entry.type] = self.block(entry, block, names[entry.type])
                places = table["seq"].to_numpy() - (self._segment.base + start)
                if places.min() < 0 or places.max() >= len(free):
                    raise unreadable(self._path(entry), "an index is outside its block")
                free[places] = False
        left = np.flatnonzero(free) + (self._segment.base + start)
        tables[most.type] = self.block(most, block, names[most.type], left)
        for entry in present:
            yield entry.type, tables[entry.type]

    def _range(self, block: int) -> tuple[int, int]:
        segment = self._segment
        return segment.starts[block], [*segment.starts, segment.count][block + 1]

    def _path(self, entry: FileEntry) -> Path:
        folder = path_of(self._segment.folder)  # of logs that are joined: with all that is before it
        if not folder.is_absolute():
            folder = path_of(self._root) / "segments" / folder
        return folder / entry.name

    def block(
        self, entry: FileEntry, block: int, names: Sequence[str], seq: npt.NDArray[np.int64] | None = None, *, indexed: bool = True,
        rows: int | None = None,
    ) -> pa.Table:  # fmt: skip
        """One type's part of a block, which has some, or the first `rows` of it: `seq` (read if it is not given, and only if `indexed`),
        `ts` and the named fields."""
        path = self._path(entry)
        group = sum(1 for n in entry.rows[:block] if n)
        try:
            if entry.type not in self._open:
                text = self._encodings.of(entry.type) if self._encodings else []
                self._open[entry.type] = pq.ParquetFile(
                    path,
                    memory_map=True,
                    page_checksum_verification=True,
                    read_dictionary=text,
                    metadata=footer(path, entry),
                )
            stored = [*self._first, *names, *(entry.beside if self._beside else ())]
            if indexed and seq is None:
                stored = ["_i", *stored]
            file, count = self._open[entry.type], entry.rows[block]
            if rows is None or rows >= count:
                table = file.read_row_group(group, columns=stored, use_threads=False)
            else:
                count, table = rows, first_rows(file, group, stored, rows)
        except (OSError, pa.ArrowInvalid) as error:
            raise unreadable(path, error) from error
        if table.num_rows != count:
            raise unreadable(path, f"row group {group} has {table.num_rows} rows, not {count}")
        if indexed and seq is None:
            seq = table["_i"].to_numpy() + self._segment.base
        elif seq is not None and len(seq) != table.num_rows:
            raise unreadable(path, "an index occurs twice in a block")
        own = [self._types[entry.type].schema.field(name) for name in names]
        columns = [table[name] for name in names]
        if self._encodings is not None:
            columns = [
                self._encodings.judge(entry.type, f, c) if pa.types.is_dictionary(c.type) else c
                for f, c in zip(own, columns, strict=True)
            ]
        places = [] if seq is None else [pa.array(seq)]
        fields = [_SEQ] * len(places) + [_TS] * len(self._first)
        fields += [f.with_type(c.type) for f, c in zip(own, columns, strict=True)]
        if self._beside:
            there = {name: table[name] for name in entry.beside}
            columns += columns_beside(there, BESIDE.names, table.num_rows)
            fields += list(BESIDE)
        times = [table[name] for name in self._first]
        return pa.table([*places, *times, *columns], schema=pa.schema(fields))


def type_named(types: Sequence[EventType], name: str, where: str) -> EventType:
    for kind in types:
        if kind.name == name:
            return kind
    raise LogError(
        f"no event type {name} in the log", place=Place(where), code="TL402",
        hint=f"{meant(name, [t.name for t in types])}types: {', '.join(t.name for t in types) or 'none'}",
    )  # fmt: skip


def _check_fields(kind: EventType, fields: Sequence[str] | None, where: str) -> None:
    for name in fields or ():
        if kind.field(name) is None:
            raise LogError(
                f"{kind.name} has no field {name} in the log", place=Place(where), code="TL402",
                hint=f"{meant(name, [f.name for f in kind.fields])}fields: {', '.join(f.name for f in kind.fields) or 'none'}",
            )  # fmt: skip


def cut_rows(table: pa.Table, lo: int, hi: int) -> pa.Table:
    """The rows with lo <= seq < hi of a table sorted by seq."""
    if table.num_rows == 0:
        return table
    seq = table["seq"]
    if seq[0].as_py() >= lo and seq[-1].as_py() < hi:
        return table
    first, last = np.searchsorted(seq.to_numpy(), [lo, hi])
    return table.slice(first, last - first)


def rows_read(reader: EventReader, name: str, lo: int, hi: int) -> int:
    """`EventReader.rows` where only reading tells."""
    return sum(
        table.num_rows for chunk in reader.chunks(lo, hi, {name: ()}) for table in chunk.tables.values()
    )


def even_cuts(count: int, n: int) -> list[int]:
    """Boundaries of `n` ranges of `count` events whose sizes differ by one at most."""
    if n < 1:
        raise LogError(
            f"a log is cut into one slice or more, not {n}", hint="give slices=1 (--slices 1) or higher"
        )
    return [count * k // n for k in range(n + 1)]
