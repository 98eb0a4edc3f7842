"""What a query can read: a run's outputs and states, a log's events. Each is cut into parts that tasks read by themselves.

Nothing here knows of Spark. A table travels to tasks: it holds where things are, no data and no open files.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from timelapse.errors import Place, RunError, UsageError, meant
from timelapse.frames.conditions import Condition, group_may_hold, span_of
from timelapse.frames.plain import plain, plain_schema
from timelapse.ids import INT64_MAX, INT64_MIN
from timelapse.kernels.base import QUARANTINED_SCHEMA, REJECTED_SCHEMA
from timelapse.log.log import Log
from timelapse.moments import Moment, micros
from timelapse.results.manifest import REMEDY
from timelapse.results.shown import presentable
from timelapse.results.stored import StoredRun
from timelapse.segments.reader import LogReader
from timelapse.store.parts import CheckedFile, Part
from timelapse.store.remote import RemotePath, path_of, pinned
from timelapse.tables import merge
from timelapse.tables.apply import empty
from timelapse.tables.table import table_of_buffer

_EVENTS = 1_000_000
"""Events of a log that a task reads."""
_STATE_BYTES = 32 << 20
"""Bytes of a state's files that a task reads, about."""
_INNER = ("phase", "ordinal")
"""Columns of outputs that order those of one event."""

Span = tuple[int, ...]
"""Which part of a table it is."""


class Piece(NamedTuple):
    """A part of a run's rows: row group `group` of file `file`. `before` rows stand before its `rows`, which take `bytes` when
    they are not compressed; their times are from `first` to `last`, as far as the file says."""

    file: int
    group: int
    before: int
    rows: int
    bytes: int
    first: int = INT64_MIN
    last: int = INT64_MAX


class Table(Protocol):
    """Rows in parts. `schema`: their columns, in Spark's types."""

    @property
    def schema(self) -> pa.Schema: ...
    def parts(self, conditions: Sequence[Condition]) -> list[Span]:
        """The parts that can hold rows that meet all conditions."""
        ...

    def read(self, part: Span, columns: Sequence[str], conditions: Sequence[Condition]) -> Iterator[pa.Table]:
        """A part's rows, in log order or in that of keys' hashes. Rows that fail a condition may be among them."""
        ...


@dataclass(frozen=True)
class Rows:
    """Outputs of one record type, or the rejected or quarantined events, of a run. A part is a row group of a file."""

    schema: pa.Schema
    stored: pa.Schema
    files: tuple[str, ...]
    sums: tuple[Part | None, ...]

    @classmethod
    def of(cls, run: StoredRun, folder: str, stored: pa.Schema, told: int) -> Rows:
        """Those in a folder of a run. Raises RunError (TL920) where they are not as many as the manifest tells."""
        root = _folder(run)
        known = run.manifest.files
        paths = sorted((root / folder).glob("part-*.parquet"))
        names = [p.relative_to(root).as_posix() for p in paths]
        own = [(p, n) for p, n in zip(paths, names, strict=True) if known is None or n in known]
        sums = tuple(None if known is None else known[n] for _, n in own)
        found = cls(_shown(stored), stored, tuple(pinned(p) for p, _ in own), sums)
        there = sum(found.groups(i)[0] for i in range(len(own)))
        if there != told:
            raise RunError(
                f"the run is not whole: {there:,} of {told:,} rows are there", place=Place(str(root / folder)),
                hint="put back what was removed from the run's folder, or replay again", code="TL920",
            )  # fmt: skip
        return found

    def groups(self, number: int) -> tuple[int, list[pq.RowGroupMetaData]]:
        """The rows of a file, and its row groups."""
        path = path_of(self.files[number])
        if isinstance(path, RemotePath):  # the end of the file will do
            size = 1 << 16
            end = path.tail(size)
            if (length := int.from_bytes(end[-8:-4], "little") + 8) > len(end):
                end = path.tail(length)
            found = pq.read_metadata(pa.BufferReader(end))
        else:
            with self._open(number) as file:
                found = file.metadata
        return found.num_rows, [found.row_group(i) for i in range(found.num_row_groups)]

    def parts(self, conditions: Sequence[Condition]) -> list[Span]:
        return [
            (number, at)
            for number in range(len(self.files))
            for at, group in enumerate(self.groups(number)[1])
            if group_may_hold(group, conditions)
        ]

    def pieces(self) -> list[Piece]:
        """All parts, in log order."""
        found: list[Piece] = []
        before = 0
        for number in range(len(self.files)):
            for at, group in enumerate(self.groups(number)[1]):
                found.append(Piece(number, at, before, group.num_rows, group.total_byte_size, *_times(group)))
                before += group.num_rows
        return found

    def read(self, part: Span, columns: Sequence[str], conditions: Sequence[Condition]) -> Iterator[pa.Table]:
        yield plain(self.stored_rows(part[0], part[1], columns))

    def stored_rows(self, number: int, group: int, columns: Sequence[str]) -> pa.Table:
        """Columns of a row group, checked, with their stored types."""
        with self._open(number, group, columns) as file:
            table = file.read_row_group(group, columns=list(columns), use_threads=False)
        return table.cast(pa.schema([self.stored.field(n) for n in columns]))

    def _open(self, number: int, group: int | None = None, columns: Sequence[str] = ()) -> pq.ParquetFile:
        """A file whose footer is checked, and so are the columns of a group."""
        path, part = path_of(self.files[number]), self.sums[number]
        try:
            if part is None:
                return pq.ParquetFile(path, memory_map=True)
            checked = CheckedFile(path, part, REMEDY)
            end = part.bytes - 8
            checked.need(max(end, 0))
            checked.need(max(end - int.from_bytes(checked.data[end : end + 4].to_pybytes(), "little"), 0))
            file = pq.ParquetFile(pa.BufferReader(checked.data))
        except MemoryError:
            raise
        except (OSError, pa.ArrowException) as error:
            raise RunError(
                f"the run is not whole: {str(error).partition(chr(10))[0]}", place=Place(str(path)), code="TL920",
                hint="put back what was removed from the run's folder, or replay again",
            ) from None  # fmt: skip
        if group is not None:
            held = file.metadata.row_group(group)
            for i in range(held.num_columns):
                column = held.column(i)
                if column.path_in_schema.partition(".")[0] in columns:
                    first = column.dictionary_page_offset or column.data_page_offset
                    checked.need(first, first + column.total_compressed_size)
        return file


@dataclass(frozen=True)
class State:
    """A state of a run after its last event, or, with `at`, before everything at that time. A part is a range of keys'
    hashes; that of a time within a slice is one part, which a task finds by running the slice up to there."""

    run: str
    name: str
    at: int | None
    schema: pa.Schema
    number: int

    @classmethod
    def of(cls, run: StoredRun, name: str, at: Moment | None) -> State:
        """Raises RunError (TL603) for a name that is none, UsageError for a time that is none."""
        spec = run.state_spec(name)
        root = _folder(run)
        when = None if at is None else micros(at, "at=")
        size = sum(p.stat().st_size for p in (root / "state" / name).glob("*.arrow"))
        # What is shown of a key may be put together of several rows, which may lie in different ranges.
        number = 1 if when is not None or spec.kind.parts else max(1, -(-size // _STATE_BYTES))
        return cls(pinned(root), name, when, plain_schema(presentable(spec, empty(spec)).schema), number)

    def parts(self, conditions: Sequence[Condition]) -> list[Span]:
        return [(i, self.number) for i in range(self.number)]

    def read(self, part: Span, columns: Sequence[str], conditions: Sequence[Condition]) -> Iterator[pa.Table]:
        run = StoredRun.open(path_of(self.run))
        if self.at is not None or self.number == 1:
            yield plain(run.state(self.name, self.at)).cast(self.schema).select(columns)
            return
        spec, known = run.state_spec(self.name), run.manifest.files
        changes = []
        for slice_id in range(run.slices):
            name = f"state/{self.name}/{slice_id:06d}.arrow"
            path = path_of(self.run) / name
            if known is not None and name not in known:
                continue
            if known is None and not path.exists():
                continue
            checked = CheckedFile(path, part_of_file(path) if known is None else known[name], REMEDY)
            changes.append(table_of_buffer(checked.whole()))
        bounds = merge.cut_points(changes, (part[0], part[1]))
        for at in range(len(bounds[0]) - 1):
            ranges = [t.slice(b[at], b[at + 1] - b[at]) for t, b in zip(changes, bounds, strict=True)]
            found = presentable(spec, merge.fold(spec, empty(spec), ranges))
            yield plain(found).cast(self.schema).select(columns)


@dataclass(frozen=True)
class Events:
    """A log's events of one type: `ts`, `seq`, then the fields. A part is a range of the log."""

    reader: LogReader
    name: str
    schema: pa.Schema

    @classmethod
    def of(cls, log: Log, name: str | None) -> Events:
        """Raises UsageError (TL842) where the type is not named and there are several, or there is none of that name."""
        names = [t.name for t in log.types]
        if name is None and len(names) == 1:
            (name,) = names
        if name not in names:
            raise UsageError(
                f"the log at {log.path} has no event type {name}" if name else "the log has several event types",
                hint=f"{meant(name, names) if name else ''}say which: {', '.join(names) or 'it has none'}", code="TL842",
            )  # fmt: skip
        kind = next(t for t in log.types if t.name == name)
        whole = [pa.field("ts", pa.int64(), nullable=False), pa.field("seq", pa.int64(), nullable=False)]
        return cls(log.reader, name, plain_schema(pa.schema([*whole, *kind.schema])))

    def parts(self, conditions: Sequence[Condition]) -> list[Span]:
        first, last = span_of(conditions)
        lo = 0 if first == INT64_MIN else self.reader.seq_at(first)
        hi = self.reader.seq_after(self.reader.count) if last == INT64_MAX else self.reader.seq_at(last + 1)
        return [(at, min(at + _EVENTS, hi)) for at in range(lo, hi, _EVENTS)]

    def read(self, part: Span, columns: Sequence[str], conditions: Sequence[Condition]) -> Iterator[pa.Table]:
        fields = [c for c in columns if c not in ("ts", "seq")]
        for chunk in self.reader.chunks(part[0], part[1], {self.name: fields}):
            for table in chunk.tables.values():
                yield plain(table.select(columns))


def _times(group: pq.RowGroupMetaData) -> tuple[int, int]:
    """The first and the last time of a row group, by its statistics."""
    for i in range(group.num_columns):
        column = group.column(i)
        if column.path_in_schema == "ts" and column.statistics is not None and column.statistics.has_min_max:
            return int(column.statistics.min), int(column.statistics.max)
    return INT64_MIN, INT64_MAX


def part_of_file(path: Path) -> Part:
    """Size and checksums of a file of a run that keeps none: nothing to compare with."""
    from timelapse.store.parts import part_at

    return part_at(path)


def filtered(table: pa.Table, conditions: Sequence[Condition]) -> pa.Table:
    """The rows that meet the conditions on columns that are there and can be compared. Others stay: Spark asks again."""
    compare = {"=": pc.equal, "<": pc.less, "<=": pc.less_equal, ">": pc.greater, ">=": pc.greater_equal}
    for one in conditions:
        index = table.schema.get_field_index(one.column)
        if index < 0:
            continue
        column = table.column(index)
        held = column.cast(pa.int64()) if one.column == "ts" else column
        whole = pa.types.is_integer(held.type) and type(one.value) is int
        text = pa.types.is_string(held.type) and type(one.value) is str
        if (whole and INT64_MIN <= one.value <= INT64_MAX) or text:
            table = table.filter(compare[one.sign](held, pa.scalar(one.value, held.type)))
    return table


def table_of(
    place: str | Path, *, record: str | None = None, state: str | None = None, event: str | None = None,
    at: Moment | None = None,
) -> Table:  # fmt: skip
    """What a place and a name mean: a run's `record` ("rejected" and "quarantined" too) or `state`, or a log's `event`.

    Raises UsageError (TL842) where they do not say one thing, RunError and LogError as opening does.
    """
    from timelapse.segments.manifest import NAME
    from timelapse.segments.place import as_path

    if sum(n is not None for n in (record, state, event)) > 1 or (at is not None and state is None):
        raise UsageError(
            "record, state and event exclude each other, and at goes with state", code="TL842",
            hint='one of .option("record", "Spam"), .option("state", "sent"), .option("event", "Message")',
        )  # fmt: skip
    place = path_of(place) if isinstance(place, str) else place
    if (as_path(place) / NAME).is_file():
        if record is not None or state is not None:
            raise UsageError(
                f"{place} is a log: it has events, no records and no states", hint='.option("event", "Message")', code="TL842",
            )  # fmt: skip
        return Events.of(Log.open(place), event)
    run = StoredRun.open(place)
    if state is not None:
        return State.of(run, state, at)
    return rows_of(run, record)


def rows_of(run: StoredRun, record: str | None) -> Rows:
    """A run's outputs of a record type; without a name those of the only one."""
    names = list(run.counts)
    if record is None and len(names) == 1:
        (record,) = names
    if record is None:
        raise UsageError(
            "the run has several record types, or none", code="TL842",
            hint=f'.option("record", NAME) or .option("state", NAME); records: {", ".join(names) or "none"}',
        )  # fmt: skip
    if record not in run.counts and record == "rejected":
        return Rows.of(run, "rejected", REJECTED_SCHEMA, run.rejected_count)
    if record not in run.counts and record == "quarantined":
        return Rows.of(run, "quarantined", QUARANTINED_SCHEMA, run.quarantined_count)
    return Rows.of(run, f"outputs/{record}", run.schema(record), run.counts.get(record, 0))


def _shown(stored: pa.Schema) -> pa.Schema:
    names = [f.name for f in stored if f.name not in _INNER]
    return plain_schema(pa.schema([stored.field(n) for n in names]))


def _folder(run: StoredRun) -> Path:
    if run.path is None:
        raise UsageError(
            "the run is in memory only",
            hint="replay with out= (--out), then its rows are files",
            code="TL842",
        )
    return run.path.absolute()
