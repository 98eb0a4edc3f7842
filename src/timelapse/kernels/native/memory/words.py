"""Values as words and back, for tables: single Python values, and Arrow columns (layout.py says how)."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from timelapse.kernels.native.memory.layout import BoundedList, value_words
from timelapse.kernels.native.memory.strings import Interned
from timelapse.model.decimals import of_int, unscaled
from timelapse.model.types import DecimalType, ListType, OptionalType, ScalarType, TupleType, ValueType
from timelapse.tables.rowhash import whole_array
from timelapse.tables.table import wrap

Ints = npt.NDArray[np.int64]


def encode(value: Any, kind: ValueType, interned: Interned) -> list[int]:
    """The words of a value that has passed its type's check. Integers are taken modulo 2^64."""
    if isinstance(kind, OptionalType):
        if value is None:
            return [0] * value_words(kind)
        return [1, *encode(value, kind.inner, interned)]
    if isinstance(kind, BoundedList):
        words = [w for item in value for w in encode(item, kind.inner, interned)]
        return [len(words), *words, *[0] * (kind.most - len(words))]
    if isinstance(kind, TupleType):
        return [
            w for item, inner in zip(value, kind.items, strict=True) for w in encode(item, inner, interned)
        ]
    assert isinstance(kind, ScalarType)
    if kind.name in ("str", "bytes"):
        return [interned.code(value)]
    if kind.name == "float":
        return [struct.unpack("<q", struct.pack("<d", value))[0]]
    return [wrap(unscaled(value, kind.scale, "a value") if isinstance(kind, DecimalType) else int(value))]


def decode(words: list[int], kind: ValueType, interned: Interned) -> Any:
    """The value of these words."""
    if isinstance(kind, OptionalType):
        return decode(words[1:], kind.inner, interned) if words[0] else None
    if isinstance(kind, BoundedList):
        return tuple([decode([w], kind.inner, interned) for w in words[1 : 1 + words[0]]])
    if isinstance(kind, TupleType):
        found, at = [], 0
        for item in kind.items:
            size = value_words(item)
            found.append(decode(words[at : at + size], item, interned))
            at += size
        return tuple(found) if kind.cls is None else kind.cls._make(found)  # type: ignore[attr-defined]
    assert isinstance(kind, ScalarType)
    word = words[0]
    if kind.name in ("str", "bytes"):
        return interned.value(word)
    if kind.name == "float":
        return struct.unpack("<d", struct.pack("<q", word))[0]
    if isinstance(kind, DecimalType):
        return of_int(word, kind.scale)
    return bool(word) if kind.name == "bool" else word


def to_words(column: pa.Array | pa.ChunkedArray, kind: ValueType, interned: Interned) -> Ints:
    """A column as words, a row each. Null where the type has no None stands for anything: it gives zeros."""
    array = whole_array(column)
    if isinstance(kind, OptionalType):
        valid = np.asarray(array.is_valid()).astype(np.int64)
        return np.column_stack([valid, to_words(array, kind.inner, interned) * valid[:, None]])
    if isinstance(kind, BoundedList):
        lengths = array.value_lengths().fill_null(0).to_numpy().astype(np.int64)
        found = np.zeros((len(array), 1 + kind.most), np.int64)
        found[:, 0] = lengths
        found[:, 1:][_within(lengths, kind.most)] = to_words(array.flatten(), kind.inner, interned)[:, 0]
        return found
    if isinstance(kind, TupleType):
        if not kind.items:
            return np.zeros((len(array), 0), np.int64)
        return np.column_stack([to_words(f, t, interned) for f, t in zip(array.flatten(), kind.items)])
    assert isinstance(kind, ScalarType)
    if array.null_count and not isinstance(kind, DecimalType):
        array = (
            pc.fill_null(array, _FILL[kind.name])
            if kind.name != "Time"
            else array.cast(pa.int64()).fill_null(0)
        )
    if kind.name == "float":
        words: Ints = array.to_numpy().view(np.int64).reshape(-1, 1)
        return words
    return interned.words(array).reshape(-1, 1)


def _within(lengths: Ints, most: int) -> npt.NDArray[np.bool_]:
    """Which of a list's places are in use, row by row."""
    used: npt.NDArray[np.bool_] = np.arange(most) < lengths[:, None]
    return used


_FILL: dict[str, Any] = {"int": 0, "float": 0.0, "bool": False, "str": "", "bytes": b""}


def to_arrow(
    words: Ints, kind: ValueType, interned: Interned, missing: npt.NDArray[np.bool_] | None = None
) -> pa.Array:
    """Words as a column of the type; null where `missing`."""
    if isinstance(kind, OptionalType):
        none = words[:, 0] == 0
        return to_arrow(words[:, 1:], kind.inner, interned, none if missing is None else none | missing)
    if isinstance(kind, BoundedList):
        lengths = words[:, 0] if missing is None else np.where(missing, 0, words[:, 0])
        values = words[:, 1:][_within(lengths, kind.most)].reshape(-1, 1)
        ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)]).astype(np.int32)
        items = to_arrow(values, kind.inner, interned)
        mask = None if missing is None or not missing.any() else pa.array(missing)
        return pa.ListArray.from_arrays(pa.array(ends), items, type=kind.arrow, mask=mask)
    if isinstance(kind, ListType):  # of a state that no handler of the pass mentions
        assert not len(words)
        return pa.array([], kind.arrow)
    if isinstance(kind, TupleType):
        children, at = [], 0
        for item in kind.items:
            size = value_words(item)
            children.append(
                to_arrow(words[:, at : at + size], item, interned, missing if item.nullable else None)
            )
            at += size
        mask = None if missing is None else pa.array(missing)
        return pa.StructArray.from_arrays(children, fields=list(kind.arrow), mask=mask)
    assert isinstance(kind, ScalarType)
    column = np.ascontiguousarray(words[:, 0])
    if missing is not None and kind.name in ("str", "bytes"):
        column = np.where(missing, interned.code(_FILL[kind.name]), column)
    array = pa.array(column.view(np.float64)) if kind.name == "float" else interned.arrow(column, kind.arrow)
    if missing is None or not missing.any():
        return array
    return array.take(pa.array(np.arange(len(array)), mask=missing))
