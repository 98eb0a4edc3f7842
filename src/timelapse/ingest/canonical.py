"""The canonical bytes of an event's fields: the order of a DataFrame's events of one time and type."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from timelapse.model import decimals
from timelapse.model.types import DecimalType, ListType, OptionalType, ValueType


def canonical_bytes(columns: list[pa.Array], kinds: list[ValueType], rows: int) -> pa.Array:
    """The bytes that order a DataFrame's events of one time and type: field by field, in declared order.

    Each field is a byte 1 and the value, or for null a byte 0 and zeros in the value's place: int, Time and decimals (as whole
    numbers of their smallest unit) as 8 bytes big-endian with the sign bit flipped, float as the 8 bytes of its bits, bool as 1 byte, str and bytes as an 8-byte big-endian length
    and the bytes, a list as an 8-byte length and its elements.
    """
    parts: list[pa.Array] = []
    for column, kind in zip(columns, kinds, strict=True):
        parts.extend(_parts(column, kind, rows))
    if not parts:
        return pa.array([b""] * rows, type=pa.binary())
    return pc.binary_join_element_wise(*parts, pa.scalar(b"", pa.binary()))


def _parts(column: pa.Array, kind: ValueType, rows: int) -> list[pa.Array]:
    inner = kind.inner if isinstance(kind, OptionalType) else kind
    if isinstance(inner, ListType):
        data = [_bytes_of(value, kind) for value in column.to_pylist()]
        return [pa.array(data, type=pa.binary())]
    present = np.asarray(column.is_valid()).astype(np.uint8)
    head = np.zeros((rows, 9), np.uint8)
    head[:, 0] = present
    if inner.text in ("str", "bytes"):
        raw = pc.fill_null(column.cast(pa.binary()), b"")
        lengths = np.asarray(pc.binary_length(raw)).astype(">u8")
        head[:, 1:] = lengths.view(np.uint8).reshape(rows, 8)
        return [_fixed(head), raw]
    if inner.text == "bool":
        head = head[:, :2]
        head[:, 1] = np.asarray(pc.fill_null(column, False)).astype(np.uint8)
    else:
        if isinstance(inner, DecimalType):
            column = pa.array(decimals.to_words(column))
        words = np.asarray(pc.fill_null(column, 0)).view(np.uint64)
        if inner.text != "float":
            words = words ^ np.uint64(1 << 63)
        head[:, 1:] = words.astype(">u8").view(np.uint8).reshape(rows, 8)
        head[present == 0, 1:] = 0
    return [_fixed(head)]


def _fixed(matrix: npt.NDArray[np.uint8]) -> pa.Array:
    """Rows of bytes of equal length as a binary array."""
    rows, width = matrix.shape
    offsets = np.arange(0, (rows + 1) * width, width, dtype=np.int32)
    data = np.ascontiguousarray(matrix)
    return pa.Array.from_buffers(pa.binary(), rows, [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def _bytes_of(value: Any, kind: ValueType) -> bytes:
    """The canonical bytes of one value (see canonical_bytes)."""
    inner = kind.inner if isinstance(kind, OptionalType) else kind
    if value is None:
        return bytes(1 if isinstance(inner, ListType) else 2 if inner.text == "bool" else 9)
    if isinstance(inner, ListType):
        return b"\1" + len(value).to_bytes(8, "big") + b"".join(_bytes_of(v, inner.inner) for v in value)
    if isinstance(inner, DecimalType):
        value = decimals.unscaled(value, inner.scale, "a value")
    if isinstance(value, bool):
        return b"\1\1" if value else b"\1\0"
    if isinstance(value, int):
        return b"\1" + ((value + (1 << 63)) & ((1 << 64) - 1)).to_bytes(8, "big")
    if isinstance(value, float):
        return b"\1" + np.float64(value).view(np.uint64).item().to_bytes(8, "big")
    raw = value.encode() if isinstance(value, str) else value
    return b"\1" + len(raw).to_bytes(8, "big") + raw
