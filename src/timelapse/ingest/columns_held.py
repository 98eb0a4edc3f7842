"""The fields of the events that are read in this process: each a column in one piece, which grows as batches come.

Batches are let go of at once: what they took is taken again by those that follow, and is still in the processor's cache. Holding all of
them, to put them together at the end, takes the memory twice, and new memory is dear.
"""

from __future__ import annotations

import mmap

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from timelapse.ingest.batches import Batch
from timelapse.ingest.convert import wire_type
from timelapse.segments.segment import fields_table
from timelapse.segments.types import EventType
from timelapse.tables.coded import codes_of, is_coded
from timelapse.tables.rowhash import one_array

_FIRST, _MOST_AT_FIRST = 1 << 20, 64 << 20
"""So many bytes a buffer begins with at least and at most."""


class HeldColumns:
    """The fields of one type's events, batch by batch in their order."""

    def __init__(self, kind: EventType, rows: int = 0) -> None:
        """`rows`: about how many will come."""
        self._kind, self._expected = kind, rows
        self._fields: list[_Held | None] = [None for _ in kind.fields]
        self._rows = 0

    def add(self, batch: Batch) -> None:
        self._rows += len(batch.ts)
        for n, (field, column) in enumerate(zip(self._kind.fields, batch.columns, strict=True)):
            if not len(batch.ts):
                continue
            own = self._fields[n]
            if is_coded(column) and (own is None or isinstance(own, _Codes)):
                own = own or _Codes(self._expected)
            else:
                kind = field.type.arrow
                own = _as_values(own, kind, self._expected)
                if column.type != kind:
                    column = column.dictionary_decode() if is_coded(column) else column
                    column = column.cast(wire_type(field.type)).cast(kind)
            self._fields[n] = own
            own.add(column)

    def table(self) -> pa.Table:
        """All of them, in the log's types, but texts that always came as codes as such. To be asked once."""
        whole = [
            (_column(f.type.arrow, 0) if own is None else own).whole()
            for f, own in zip(self._kind.fields, self._fields, strict=True)
        ]
        if not any(map(is_coded, whole)):
            return fields_table(self._kind, whole, self._rows)
        return pa.table(whole, self._kind.schema.names)


class _Bytes:
    """Bytes that grow, in memory of their own from the system. Growing moves pages, not what they hold. `expected`: about how many there will be;
    memory is taken only as they come. The system is not asked for large pages: where a virtual machine gives free ones back to its host, which
    it does with large ones only, they take several times as long to come as small ones.
    """

    def __init__(self, expected: int) -> None:
        self._map = _memory(min(max(_FIRST, expected), _MOST_AT_FIRST))
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


class Words:
    """A column of values of one width."""

    def __init__(self, kind: pa.DataType, expected: int) -> None:
        self._kind, self._width = kind, kind.bit_width // 8
        self._values, self._valid, self._rows = _Bytes(expected * self._width), _Valid(), 0

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

    def __init__(self, kind: pa.DataType, expected: int) -> None:
        self._kind = kind
        self._ends, self._data, self._valid, self._rows = _Bytes(expected * 8), _Bytes(0), _Valid(), 0
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

    def __init__(self, kind: pa.DataType, expected: int) -> None:
        self._kind = kind
        self._parts: list[pa.Array] = []

    def add(self, column: pa.Array) -> None:
        self._parts.append(column)

    def whole(self) -> pa.Array:
        return one_array(pa.chunked_array(self._parts, self._kind))


class _Codes:
    """A column of texts as codes of one dictionary, by first occurrence."""

    def __init__(self, expected: int) -> None:
        self._texts = pa.array([], pa.string())
        self._codes, self._valid, self._rows = _Bytes(expected * 4), _Valid(), 0

    def add(self, column: pa.DictionaryArray) -> None:
        codes, _ = codes_of(column)
        np.take(
            self._known(column.dictionary),
            codes,
            out=self._codes.room(4 * len(column)).view(np.int32),
            mode="clip",
        )
        self._valid.add(column)
        self._rows += len(column)

    def _known(self, texts: pa.Array) -> npt.NDArray[np.int32]:
        """The codes of texts, some of which may be new."""
        found = pc.index_in(texts, value_set=self._texts)
        if found.null_count:
            self._texts = pa.concat_arrays([self._texts, texts.filter(found.is_null()).unique()])
            found = pc.index_in(texts, value_set=self._texts)
        return np.append(np.asarray(found), np.int32(0))  # one more: all rows may be without a value

    def whole(self) -> pa.DictionaryArray:
        codes = pa.Array.from_buffers(
            pa.int32(), self._rows, [self._valid.whole(), self._codes.whole()], self._valid.missing
        )
        return pa.DictionaryArray.from_arrays(codes, self._texts.cast(pa.large_string()), safe=False)


_Held = Words | _Texts | _Others | _Codes


def _as_values(held: _Held | None, kind: pa.DataType, expected: int) -> _Held:
    """A column of values: a new one, or what it was, also where that was codes."""
    if held is not None and not isinstance(held, _Codes):
        return held
    made = _column(kind, expected)
    if held is not None:
        made.add(held.whole().dictionary_decode())
    return made


def _column(kind: pa.DataType, expected: int) -> Words | _Texts | _Others:
    if pa.types.is_large_string(kind) or pa.types.is_large_binary(kind):
        return _Texts(kind, expected)
    plain = (
        pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_timestamp(kind)
        or pa.types.is_decimal(kind)
    )
    return Words(kind, expected) if plain else _Others(kind, expected)
