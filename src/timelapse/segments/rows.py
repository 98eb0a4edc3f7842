"""From columns to events as objects, and to the values that handlers see."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from timelapse.model import decimals
from timelapse.model.events import Event
from timelapse.model.types import DecimalType, ListType, OptionalType, ValueType
from timelapse.segments.types import bind

if TYPE_CHECKING:
    from timelapse.segments.reader import Columns, EventReader


def rows_of(
    reader: EventReader, lo: int, hi: int, classes: Mapping[str, type[Event]], columns: Columns | None = None
) -> Iterator[Event]:
    """Events as objects. The loop over events is in C: chunks are chained, rows are made by `map` and `zip`."""
    if not classes:
        return iter(())
    bind(reader.types, classes.values())
    wanted: dict[str, list[str]] = {}
    for name, cls in classes.items():
        some = None if columns is None else columns.get(name)
        wanted[name] = [f.name for f in cls.__fields__ if some is None or f.name in some]
    makers = {name: row_maker(cls, wanted[name]) for name, cls in classes.items()}

    def parts() -> Iterator[Iterable[Event]]:
        for chunk in reader.chunks(lo, hi, wanted):
            if len(chunk.tables) == 1:
                ((name, table),) = chunk.tables.items()
                yield makers[name](table)
            elif chunk.tables:
                rows: list[Event] = []
                for name, table in chunk.tables.items():
                    rows.extend(makers[name](table))
                seqs = np.concatenate([table["seq"].to_numpy() for table in chunk.tables.values()])
                order = np.argsort(seqs, kind="stable")
                yield itemgetter(*order.tolist())(rows)

    return itertools.chain.from_iterable(parts())


class InRows:
    """A part of readers whose events are made of their chunks."""

    def events(
        self: EventReader,
        lo: int,
        hi: int,
        classes: Mapping[str, type[Event]],
        columns: Columns | None = None,
    ) -> Iterator[Event]:
        return rows_of(self, lo, hi, classes, columns)


def row_maker(cls: type[Event], wanted: Sequence[str]) -> Callable[[pa.Table], Iterable[Event]]:
    """A function from a chunk's table (`seq`, `ts`, the wanted fields) to the events, in the table's order."""
    make = cls._raw_maker()
    fields = [(f.name, f.type, f.name in wanted) for f in cls.__fields__]

    def rows(table: pa.Table) -> Iterable[Event]:
        unread = [None] * table.num_rows
        columns = [python_values(table[name], kind) if read else unread for name, kind, read in fields]
        return map(make, zip(*columns, ints(table["ts"]), ints(table["seq"]), strict=True))

    return rows


def ints(column: pa.ChunkedArray) -> list[int]:
    """An int64 column without nulls as a list."""
    values: npt.NDArray[np.int64] = column.to_numpy()
    return values.tolist()  # type: ignore[no-any-return]


def python_values(column: pa.ChunkedArray, kind: ValueType) -> list[Any]:
    """A column as the values that handlers see: times as int microseconds, lists as tuples."""
    inner = kind.inner if isinstance(kind, OptionalType) else kind
    if pa.types.is_dictionary(column.type) and column.num_chunks == 1:
        chunk = column.chunk(0)
        if len(chunk) >= len(chunk.dictionary):
            known = [*chunk.dictionary.to_pylist(), None]
            indices = chunk.indices.fill_null(len(known) - 1) if chunk.null_count else chunk.indices
            return list(map(known.__getitem__, indices.to_numpy().tolist()))
    if isinstance(inner, ListType):
        return [value for chunk in column.chunks for value in _lists(chunk, inner)]
    if isinstance(inner, DecimalType):
        return [value for chunk in column.chunks for value in decimals.to_list(chunk, inner.scale)]
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        return column.to_numpy().tolist()  # type: ignore[no-any-return]  # None where there is none
    if pa.types.is_primitive(column.type) and not column.null_count:
        return column.to_numpy().tolist()  # type: ignore[no-any-return]
    return column.to_pylist()  # type: ignore[no-any-return]


def _lists(array: pa.ListArray, kind: ListType) -> list[Any]:
    """A column of lists as tuples: slices of one tuple of all that is in them."""
    # What stands under nulls is left out here, and counts as nothing.
    values = tuple(python_values(pa.chunked_array([array.flatten()]), kind.inner))
    lengths = array.value_lengths()
    ends = np.cumsum(lengths.fill_null(0).to_numpy()).tolist()
    found = [values[start:end] for start, end in zip([0, *ends], ends, strict=False)]
    if array.null_count:
        return [v if ok else None for v, ok in zip(found, array.is_valid().to_pylist(), strict=True)]
    return found
