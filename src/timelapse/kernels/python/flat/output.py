"""What a slice puts out while its handlers run as Python: rows of numbers as bytes, all others as tuples.

A tuple of numbers takes four times the memory, which the program's own dicts then lack in the processor's caches, and
the garbage collector looks at it and at what is in it.
"""

from __future__ import annotations

import operator
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from timelapse.ids import Phase
from timelapse.kernels.base import output_schema
from timelapse.model.events import Record
from timelapse.model.types import ScalarType

_SEQ = 1
"""The place in a row of the event's number; before it its time, after it which of the event's rows it is."""
_FORMATS = {"int": "q", "Time": "q", "float": "d", "bool": "?"}
_DTYPES = {"q": np.int64, "d": np.float64, "?": np.bool_}


def layout(cls: type[Record]) -> struct.Struct | None:
    """How a row is packed; None where not all its fields are numbers that are always there."""
    found = "<qqq"
    for field in cls.__fields__:
        if not isinstance(field.type, ScalarType) or field.type.name not in _FORMATS:
            return None
        found += _FORMATS[field.type.name]
    return struct.Struct(found)


class Tuples:
    """Rows as tuples: time, number of the event, number within it, and the fields."""

    def __init__(self, cls: type[Record]) -> None:
        self._schema = output_schema(cls)
        self._rows: list[tuple[Any, ...]] = []
        self.put: Callable[[Any], None] = self._rows.append

    def add(self, *row: Any) -> None:
        self._rows.append(row)

    def take_back(self, seq: int) -> None:
        """Leave out the rows of the last event."""
        while self._rows and self._rows[-1][_SEQ] == seq:
            self._rows.pop()

    def table(self) -> pa.Table:
        return _table(self._schema, len(self._rows), self._column)

    def _column(self, place: int, field: pa.Field) -> pa.Array:
        values = map(operator.itemgetter(place), self._rows)
        if pa.types.is_integer(field.type) and not field.nullable:  # they were checked to fit
            return pa.array(np.fromiter(values, field.type.to_pandas_dtype(), len(self._rows)))
        return pa.array(list(values), field.type)


class Packed:
    """The same rows as bytes, one after the other. `put` takes one that is packed."""

    def __init__(self, cls: type[Record], layout: struct.Struct) -> None:
        self._schema, self._layout = output_schema(cls), layout
        kinds = [_DTYPES[letter] for letter in layout.format.lstrip("<")]
        self._dtype = np.dtype([(str(place), kind) for place, kind in enumerate(kinds)])
        self._rows = bytearray()
        self.put: Callable[[Any], None] = self._rows.extend

    def add(self, *row: Any) -> None:
        self._rows += self._layout.pack(*row)

    def take_back(self, seq: int) -> None:
        """Leave out the rows of the last event."""
        size = self._layout.size
        while self._rows and self._layout.unpack_from(self._rows, len(self._rows) - size)[_SEQ] == seq:
            del self._rows[-size:]

    def table(self) -> pa.Table:
        found: npt.NDArray[np.void] = np.frombuffer(self._rows, self._dtype)

        def column(place: int, field: pa.Field) -> pa.Array:
            return pa.array(found[str(place)].copy()).cast(field.type)

        return _table(self._schema, len(found), column)


def rows_of(cls: type[Record]) -> Tuples | Packed:
    """What keeps a record type's rows."""
    packed = layout(cls)
    return Tuples(cls) if packed is None else Packed(cls, packed)


def _table(schema: pa.Schema, rows: int, column: Callable[[int, pa.Field], pa.Array]) -> pa.Table:
    """The rows as they are stored: with the phase, which is always the same, as their second column."""
    ts, phase, *rest = schema
    phases = pa.array(np.full(rows, int(Phase.LOG_EVENT), phase.type.to_pandas_dtype()))
    columns = [column(0, ts), phases, *(column(place, field) for place, field in enumerate(rest, 1))]
    return pa.table(columns, schema=schema)
