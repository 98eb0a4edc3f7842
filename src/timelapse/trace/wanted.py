"""Values that are looked for in columns of events."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from timelapse.trace.lookup import Ints, Lookup, numbers

Mask = npt.NDArray[np.bool_]
_HASHED = 1000
"""So many texts are hashed for each block."""


class Wanted:
    """Values that a part of a key may have, and where they can come from."""

    def __init__(self, part: Any, values: list[Any]) -> None:
        self._part = part
        self.fields, self._values = sorted(part.fields), values
        self._alike = len(set(map(type, values))) == 1
        self._places = dict(zip(self._named(values), range(len(values)), strict=True))
        self.count = len(values)
        self._arrays: dict[pa.DataType, tuple[pa.Array | None, Ints]] = {}
        self._lookups: dict[pa.DataType, Lookup | None] = {}
        self.always = any(c == v and type(c) is type(v) for c in part.constants for v in values)

    def only(self, values: list[Any]) -> Wanted:
        """The same for these values."""
        return Wanted(self._part, values)

    def of(self, values: Sequence[Any]) -> Ints:
        """Where values stand among them."""
        return np.fromiter(map(self._places.__getitem__, self._named(values)), np.int64, len(values))

    def _named(self, values: Sequence[Any]) -> Iterable[Any]:
        """Values as they are told apart: equal ones of several types are not the same."""
        return values if self._alike else zip(map(type, values), values, strict=True)

    def places(self, table: pa.Table) -> list[Ints] | None:
        """For each field where its value stands among them, by row; -1 where it is none. None: that is not known."""
        found: list[Ints] = []
        for field in self.fields:
            column = table.column(field)
            kind = _plain(column.type)
            values, at = self._of(kind)
            if values is None:
                return None
            lookup, own = self._lookup(kind), numbers(column)
            if lookup is not None and own is not None:
                found.append(at[lookup.places(own)])
                continue
            index = pc.index_in(column.cast(kind), value_set=values)
            found.append(at[np.asarray(pc.fill_null(index, len(at) - 1))])
        return found

    def rows(self, table: pa.Table) -> Mask:
        """The rows in which one of the fields holds one of the values."""
        total = np.zeros(table.num_rows, np.bool_)
        for field in self.fields:
            column = table.column(field)
            kind = _plain(column.type)
            values, _ = self._of(kind)
            if values is None:
                return np.ones(table.num_rows, np.bool_)
            lookup, own = self._lookup(kind), numbers(column)
            total |= _among(column, values) if lookup is None or own is None else lookup.among(own)
        return total

    def soon(self, table: pa.Table) -> bool:
        """Whether a table is looked through without hashing the values for it."""
        kinds = [table.schema.field(field).type for field in self.fields]
        few = self.count <= _HASHED
        return all((few and pa.types.is_dictionary(k)) or self._lookup(_plain(k)) is not None for k in kinds)

    def _lookup(self, kind: pa.DataType) -> Lookup | None:
        if kind not in self._lookups:
            values, _ = self._of(kind)
            self._lookups[kind] = None if values is None else Lookup.of(values)
        return self._lookups[kind]

    def _of(self, kind: pa.DataType) -> tuple[pa.Array | None, Ints]:
        """Those that a column of a type may hold (None: that is not known), and where they stand among all, then -1."""
        if kind not in self._arrays:
            asked = self._values[:1] if self._alike else self._values
            fitting = [v for v in asked if _fits(v, kind)]
            if self._alike and fitting:
                fitting = self._values
            at = np.append(self.of(fitting), -1)
            try:
                self._arrays[kind] = pa.array(fitting, kind), at
            except (pa.ArrowInvalid, OverflowError, UnicodeEncodeError):
                self._arrays[kind] = None, at
        return self._arrays[kind]


def _plain(kind: pa.DataType) -> pa.DataType:
    """The type of a column's values as keys have them."""
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return pa.int64() if pa.types.is_timestamp(kind) else kind


def _among(column: pa.ChunkedArray, values: pa.Array) -> Mask:
    if not len(values):
        return np.zeros(len(column), np.bool_)
    if not pa.types.is_dictionary(column.type):
        return _is_in(column, values)
    found = []
    for chunk in column.chunks:
        known = np.append(_is_in(chunk.dictionary, values), False)
        found.append(known[chunk.indices.fill_null(len(known) - 1).to_numpy(zero_copy_only=False)])
    return np.concatenate([np.zeros(0, np.bool_), *found])


def _is_in(array: pa.Array | pa.ChunkedArray, values: pa.Array) -> Mask:
    if pa.types.is_timestamp(array.type):
        array = array.cast(pa.int64())
    if array.type != values.type:
        array = array.cast(values.type)
    if len(values) == 1:
        return np.asarray(pc.fill_null(pc.equal(array, values[0]), False))
    return np.asarray(pc.is_in(array, value_set=values))


def _fits(value: Any, kind: pa.DataType) -> bool:
    """Whether a column of this type can hold a value of a key: keys are never converted."""
    if isinstance(value, bool):
        return bool(pa.types.is_boolean(kind))
    if isinstance(value, int):
        return bool(pa.types.is_integer(kind))
    if isinstance(value, str):
        return bool(pa.types.is_large_string(kind) or pa.types.is_string(kind))
    return isinstance(value, bytes) and bool(pa.types.is_large_binary(kind) or pa.types.is_binary(kind))


__all__ = ["Mask", "Wanted"]
