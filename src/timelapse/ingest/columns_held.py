"""The fields of the events that are read in this process: each a column in one piece, which grows as batches come.

Batches are let go of at once: what they took is taken again by those that follow, and is still in the processor's cache. Holding all of
them, to put them together at the end, takes the memory twice, and new memory is dear.
"""

from __future__ import annotations

import contextlib
import mmap

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from timelapse.ingest.batches import Batch
from timelapse.ingest.convert import wire_type
from timelapse.log.segment import fields_table
from timelapse.log.types import EventType
from timelapse.tables.rowhash import one_array

_FIRST, _LARGE = 1 << 20, 4 << 20
"""So many bytes a buffer begins with, and so many are worth large pages."""


class HeldColumns:
    """The fields of one type's events, batch by batch in their order."""

    def __init__(self, kind: EventType) -> None:
        self._kind = kind
        self._fields = [_column(f.type.arrow) for f in kind.fields]
        self._rows = 0

    def add(self, batch: Batch) -> None:
        self._rows += len(batch.ts)
        for field, own, column in zip(self._kind.fields, self._fields, batch.columns, strict=True):
            if len(batch.ts):
                own.add(column.cast(wire_type(field.type)).cast(field.type.arrow))

    def table(self) -> pa.Table:
        """All of them, in the log's types. To be asked once."""
        return fields_table(self._kind, [own.whole() for own in self._fields], self._rows)


class _Bytes:
    """Bytes that grow, in memory of their own from the system. Growing moves pages, not what they hold. Where they are many, the system
    is asked for large ones: each page that is touched first costs a microsecond or more.
    """

    def __init__(self) -> None:
        self._map = _memory(_FIRST)
        self.used = 0

    def room(self, count: int) -> npt.NDArray[np.uint8]:
        """The next so many bytes, to be written to, and let go of, before more is asked for."""
        end = self.used + count
        if end > len(self._map):
            self._grow(max(end, 2 * len(self._map)))
        found = np.frombuffer(self._map, np.uint8, count, self.used)
        self.used = end
        return found

    def _grow(self, size: int) -> None:
        try:
            self._map.resize(size)
        except SystemError:  # a system that cannot move pages
            before, self._map = self._map, _memory(size)
            self._map[: self.used] = before[: self.used]
        except OSError as error:
            raise MemoryError(f"no room for {size:,} bytes") from error
        if size >= _LARGE and hasattr(mmap, "MADV_HUGEPAGE"):
            with contextlib.suppress(OSError):  # a kernel without them
                self._map.madvise(mmap.MADV_HUGEPAGE)

    def whole(self) -> pa.Buffer:
        return pa.py_buffer(self._map).slice(0, self.used)


def _memory(size: int) -> mmap.mmap:
    """So much memory, which is taken where it is written to."""
    try:
        return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError as error:
        raise MemoryError(f"no room for {size:,} bytes") from error


class _Valid:
    """Which rows have a value: None as long as all have."""

    def __init__(self) -> None:
        self._parts: list[pa.Array | int] = []
        self.missing = 0

    def add(self, column: pa.Array) -> None:
        self._parts.append(column.is_valid() if column.null_count else len(column))
        self.missing += column.null_count

    def whole(self) -> pa.Buffer | None:
        if not self.missing:
            return None
        parts = [np.ones(p, np.bool_) if isinstance(p, int) else np.asarray(p) for p in self._parts]
        return pa.array(np.concatenate(parts)).buffers()[1]


class _Words:
    """A column of values of one width."""

    def __init__(self, kind: pa.DataType) -> None:
        self._kind, self._width = kind, kind.bit_width // 8
        self._values, self._valid, self._rows = _Bytes(), _Valid(), 0

    def add(self, column: pa.Array) -> None:
        first = column.offset * self._width
        size = len(column) * self._width
        self._values.room(size)[:] = np.frombuffer(column.buffers()[1], np.uint8, size, first)
        self._valid.add(column)
        self._rows += len(column)

    def whole(self) -> pa.Array:
        buffers = [self._valid.whole(), self._values.whole()]
        return pa.Array.from_buffers(self._kind, self._rows, buffers, self._valid.missing)


class _Texts:
    """A column of large texts or bytes."""

    def __init__(self, kind: pa.DataType) -> None:
        self._kind = kind
        self._ends, self._data, self._valid, self._rows = _Bytes(), _Bytes(), _Valid(), 0
        self._ends.room(8)[:] = 0

    def add(self, column: pa.Array) -> None:
        _, offsets, data = column.buffers()
        own = np.frombuffer(offsets, np.int64, len(column) + 1, 8 * column.offset)
        moved = self._data.used - int(own[0])
        np.add(own[1:], moved, out=self._ends.room(8 * len(column)).view(np.int64))
        size = int(own[-1] - own[0])
        if size:
            self._data.room(size)[:] = np.frombuffer(data, np.uint8, size, int(own[0]))
        self._valid.add(column)
        self._rows += len(column)

    def whole(self) -> pa.Array:
        buffers = [self._valid.whole(), self._ends.whole(), self._data.whole()]
        return pa.Array.from_buffers(self._kind, self._rows, buffers, self._valid.missing)


class _Others:
    """A column of anything else, in the pieces that came."""

    def __init__(self, kind: pa.DataType) -> None:
        self._kind = kind
        self._parts: list[pa.Array] = []

    def add(self, column: pa.Array) -> None:
        self._parts.append(column)

    def whole(self) -> pa.Array:
        return one_array(pa.chunked_array(self._parts, self._kind))


def _column(kind: pa.DataType) -> _Words | _Texts | _Others:
    if pa.types.is_large_string(kind) or pa.types.is_large_binary(kind):
        return _Texts(kind)
    plain = (
        pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_timestamp(kind)
        or pa.types.is_decimal(kind)
    )
    return _Words(kind) if plain else _Others(kind)
