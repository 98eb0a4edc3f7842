"""Resolved reads: what handlers read of the states, one value per event, in columns beside the log.

A recording pass puts them out like records of a class made by `reads_class`: one for each event of a
type, so that the n-th row belongs to the n-th event of that type in the slice. They are stored one
file per column and slice, integers as narrow as they fit. `ReadsReader` gives them to a pass as further
fields of the event.
"""

from __future__ import annotations

import types
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from timelapse.errors import LogError, Place
from timelapse.model.events import Event, Field, Record
from timelapse.model.types import OptionalType, ScalarType, Time, ValueType
from timelapse.segments.reader import Chunk, Columns, SameEvents
from timelapse.segments.types import EventType
from timelapse.tables.rowhash import one_array
from timelapse.tables.table import read_table, write_tables

_PLAIN: dict[str, Any] = {"int": int, "float": float, "bool": bool, "str": str, "bytes": bytes, "Time": Time}
_NARROW = [(pa.int8(), 7), (pa.int16(), 15), (pa.int32(), 31)]


def reads_class(event: str, number: int, fields: Mapping[str, ValueType]) -> type[Record]:
    """A record class for what is read at one point of an event's handlers."""
    made: Any = _row_class(Record, f"tl_reads_{event}_{number}", fields)
    made.__reads__ = event
    return made  # type: ignore[no-any-return]


def event_class(event: type[Event], names: Sequence[str], reads: Mapping[str, ValueType]) -> type[Event]:
    """The event with some of its fields, and with what is read as further ones. It has the event's name."""
    kept = {f.name: f.type for f in event.__fields__ if f.name in names}
    meta: Any = type(event)
    # Without a qualified name the fields are ours to define: they need not be spelled as annotations.
    made: Any = meta(event.__name__, (Event,), {"__module__": __name__, "__slots__": ()})
    _define(made, {**kept, **reads})
    return made  # type: ignore[no-any-return]


def _row_class(base: type, name: str, fields: Mapping[str, ValueType]) -> type:
    annotations = {n: _annotation(kind) for n, kind in fields.items()}

    def body(namespace: dict[str, Any]) -> None:
        namespace.update({"__annotations__": annotations, "__qualname__": name, "__module__": __name__})

    return types.new_class(name, (base,), {}, body)


def _define(cls: Any, fields: Mapping[str, ValueType]) -> None:
    from collections import _tuplegetter  # type: ignore[attr-defined]

    cls.__fields__ = tuple(Field(n, kind) for n, kind in fields.items())
    for index, name in enumerate([*fields, "ts", "seq"]):
        setattr(cls, name, _tuplegetter(index, name))


def _annotation(kind: ValueType) -> Any:
    if isinstance(kind, OptionalType):
        return _annotation(kind.inner) | None
    assert isinstance(kind, ScalarType)
    return _PLAIN[kind.name]


def is_reads(cls: type[Record]) -> bool:
    """Whether records of this class are resolved reads."""
    return bool(cls.__reads__)


def column_path(folder: Path, event: str, name: str, slice_id: int) -> Path:
    """Where a column of a slice is, below a folder."""
    return folder / event / name / f"{slice_id:06d}.arrow"


def write_reads(table: pa.Table, cls: type[Record], folder: Path, slice_id: int) -> None:
    """Write what a pass put out as reads: a file per column."""
    join_reads([narrowed(table, cls)], cls, folder, slice_id)


def narrowed(table: pa.Table, cls: type[Record]) -> pa.Table:
    """What a pass put out as reads, without its places, integers as narrow as they fit."""
    return pa.table({f.name: narrow(one_array(table.column(f.name))) for f in cls.__fields__})


def join_reads(tables: Sequence[pa.Table], cls: type[Record], folder: Path, slice_id: int) -> None:
    """Write what the portions of a slice put out as reads, one after the other: a file per column. They are `narrowed`."""
    event = cls.__reads__
    for f in cls.__fields__:
        kind = max((t.schema.field(f.name).type for t in tables), key=_width)
        path = column_path(folder / "reads", event, f.name, slice_id)
        for parent in (
            folder / "reads",
            folder / "reads" / event,
        ):  # not the job's own folder: it may be gone
            parent.mkdir(exist_ok=True)
        parts = (pa.table({"v": t.column(f.name).cast(kind)}) for t in tables)
        write_tables(parts, pa.schema([("v", kind)]), path)


def _width(kind: pa.DataType) -> int:
    """Of integers the bits; other columns of a field have one type."""
    return int(kind.bit_width) if pa.types.is_integer(kind) else 0


def narrow(values: pa.Array) -> pa.Array:
    """Integers in the smallest type that holds them all."""
    if not pa.types.is_int64(values.type):
        return values
    ends = pc.min_max(values).as_py()
    for kind, bits in _NARROW:
        if ends["min"] is None or (-(2**bits) <= ends["min"] and ends["max"] < 2**bits):
            return values.cast(kind)
    return values


@dataclass(frozen=True)
class ReadsReader(SameEvents):
    """A log with resolved reads as further fields of its events; a range lies within one of the slices."""

    folder: str
    starts: tuple[int, ...]
    """Where slices begin."""
    reads: Mapping[str, Mapping[str, ValueType]]
    """By event type: the columns."""

    @property
    def types(self) -> tuple[EventType, ...]:
        return tuple(
            EventType(
                t.name, (*t.fields, *(Field(n, kind) for n, kind in self.reads.get(t.name, {}).items()))
            )
            for t in self.base.types
        )

    def chunks(self, lo: int, hi: int, columns: Columns) -> Iterator[Chunk]:
        plain: dict[str, Sequence[str] | None] = {}
        added: dict[str, list[str]] = {}
        for name, fields in columns.items():
            known = self.reads.get(name, {})
            plain[name] = None if fields is None else [f for f in fields if f not in known]
            added[name] = [f for f in fields or () if f in known]
        if not any(added.values()):
            yield from self.base.chunks(lo, hi, plain)
            return
        slice_id = bisect_right(self.starts, lo) - 1
        start = self.starts[slice_id]
        end = [*self.starts, self.base.seq_after(self.base.count)][slice_id + 1]
        files = {
            (name, field): self._column(name, field, slice_id)
            for name, fields in added.items() for field in fields
        }  # fmt: skip
        done = {name: self.base.rows(name, start, lo) if lo > start else 0 for name in added}
        for chunk in self.base.chunks(lo, hi, plain):
            tables = dict(chunk.tables)
            for name, fields in added.items():
                table = tables.get(name)
                if table is None:
                    continue
                for field in fields:
                    part = files[name, field].slice(done[name], table.num_rows)
                    if len(part) != table.num_rows:
                        raise self._unfit(name, field)
                    kind = self.reads[name][field]
                    column = pa.field(field, kind.arrow, nullable=kind.nullable)
                    table = table.append_column(column, part.cast(kind.arrow))
                tables[name] = table
                done[name] += table.num_rows
            yield Chunk(chunk.seq_lo, chunk.seq_hi, tables)
        for (name, field), values in files.items():
            if hi >= end and len(values) != done[name]:
                raise self._unfit(name, field)

    def _column(self, event: str, name: str, slice_id: int) -> pa.Array:
        path = column_path(Path(self.folder), event, name, slice_id)
        if not path.exists():
            return pa.array([], self.reads[event][name].arrow)  # no such event in the slice
        return one_array(read_table(path).column("v"))

    def _unfit(self, event: str, name: str) -> LogError:
        path = Path(self.folder, event, name)
        return LogError("the resolved reads are not those of this log", place=Place(str(path)))
