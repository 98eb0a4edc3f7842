"""Single keys of a state table: found by their hash in the memory-mapped file, without loading the rest.

A slice that touches few of a large state's keys takes over just those, when it first touches them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from timelapse.kinds.base import ABSENT, StateSpec
from timelapse.model.types import TupleType
from timelapse.tables.levels import Levels, levels_of, whole
from timelapse.tables.loops import U64
from timelapse.tables.scalarhash import key_hash
from timelapse.tables.table import to_dict

Need = Callable[[int, int], None]


class MappedTable:
    """A state table to look single keys up in. It keeps nothing of what it found.

    `need` is called with the address and size of what is about to be read of the table's columns, where its file is
    checked on the way (store/parts.py).
    """

    def __init__(self, spec: StateSpec, table: pa.Table, need: Need | None = None) -> None:
        self._spec = spec
        self._need = need
        self._tuple = isinstance(spec.key, TupleType)
        self._tables: list[pa.Table] = []
        self._hashes: list[U64] = []
        self._first: list[int] = []
        self._table = table
        for batch in table.to_batches():
            if batch.num_rows:
                h = np.asarray(batch.column("h"), dtype=np.uint64)
                self._tables.append(pa.Table.from_batches([batch]))
                self._hashes.append(h)
                if need is not None:
                    need(h.ctypes.data, h.itemsize)
                self._first.append(int(h[0]))

    def find(self, key: Any) -> Any:
        """The value (True in a Set), or ABSENT."""
        row = self.row(key)
        return ABSENT if row is None else next(iter(to_dict(self._spec, row).values()))

    def hash(self, key: Any) -> np.uint64 | None:
        """What tables are sorted by; None for a key that no table can hold: half a surrogate pair."""
        parts = () if self._spec.key is None else key if self._tuple else (key,)
        try:
            return np.uint64(key_hash(parts))
        except UnicodeEncodeError:
            return None

    def row(self, key: Any) -> pa.Table | None:
        """The key's row."""
        h = self.hash(key)
        return None if h is None else self.row_of(h, key)

    def row_of(self, h: np.uint64, key: Any) -> pa.Table | None:
        """The row of a key with this hash."""
        at = bisect_right(self._first, int(h)) - 1
        # Rows of one hash may lie on both sides of a border: the first of them is in an earlier piece.
        while at > 0 and self._first[at] == h:
            at -= 1
        for piece in range(max(at, 0), len(self._tables)):
            if self._first[piece] > h:
                break
            hashes = self._hashes[piece]
            row = int(np.searchsorted(hashes, h)) if self._need is None else _search(hashes, h, self._need)
            while row < len(hashes) and hashes[row] == h:
                found = self._tables[piece].slice(row, 1)
                if self._need is not None:
                    _need_all(found, self._need)
                if key in to_dict(self._spec, found):
                    return found
                row += 1
        return None

    def whole(self) -> dict[Any, Any]:
        """Everything."""
        return to_dict(self._spec, self._table)


class MappedLevels:
    """A state in levels, to look single keys up in: the latest level that knows a key decides."""

    def __init__(self, state: Levels) -> None:
        self._state = state
        self._levels = [MappedTable(state.spec, level) for level in levels_of(state)]

    def find(self, key: Any) -> Any:
        """The value (True in a Set), or ABSENT."""
        h = self._levels[0].hash(key) if self._levels else None
        if h is None:
            return ABSENT
        for level in self._levels:
            row = level.row_of(h, key)
            if row is not None:
                gone = "present" in row.column_names and not row.column("present")[0].as_py()
                return ABSENT if gone else next(iter(to_dict(self._state.spec, row).values()))
        return ABSENT

    def whole(self) -> dict[Any, Any]:
        """Everything."""
        return to_dict(self._state.spec, whole(self._state))


_AT_ONCE = 1 << 13
"""Hashes that are checked together: to say of each what is read takes longer than to search."""


def _search(hashes: U64, h: np.uint64, need: Need) -> int:
    """`np.searchsorted`, which says what it reads. What stands at the place that it returns is checked too."""
    base, size, low, high = hashes.ctypes.data, hashes.itemsize, 0, len(hashes)
    while high - low > _AT_ONCE:
        middle = (low + high) // 2
        need(base + middle * size, size)
        if hashes[middle] < h:
            low = middle + 1
        else:
            high = middle
    last = min(high + 1, len(hashes))
    need(base + low * size, (last - low) * size)
    return low + int(np.searchsorted(hashes[low:high], h))


def _need_all(table: pa.Table, need: Need) -> None:
    """Say that all of a table's rows are about to be read."""
    for column in table.columns:
        for array in column.chunks:
            kind = array.type
            width = 8 if _text_is_large(kind) else 4 if _text_is_small(kind) else 0
            buffers = array.buffers()
            if width:
                valid, offsets, data = buffers
                need(offsets.address + width * array.offset, width * (len(array) + 1))
                places = np.frombuffer(offsets, np.int64 if width == 8 else np.int32)
                first, last = int(places[array.offset]), int(places[array.offset + len(array)])
                if data is not None and last > first:
                    need(data.address + first, last - first)
            elif len(buffers) == 2 and (pa.types.is_primitive(kind) or pa.types.is_boolean(kind)):
                valid, data = buffers
                first, last = array.offset * kind.bit_width // 8, (array.offset + len(array)) * kind.bit_width
                need(data.address + first, -(-last // 8) - first)
            else:  # nested: few, and then all of it
                valid = None
                for buffer in buffers:
                    if buffer is not None:
                        need(buffer.address, buffer.size)
            if valid is not None:
                first = array.offset // 8
                need(valid.address + first, (array.offset + len(array) + 7) // 8 - first)


def _text_is_large(kind: pa.DataType) -> bool:
    return bool(pa.types.is_large_string(kind) or pa.types.is_large_binary(kind))


def _text_is_small(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind))


class LazyDict(dict[Any, Any]):
    """A state as a dict, which takes a key over from the table when it is first asked for.

    What it holds under a key that is absent is ABSENT, so that the table is not asked again.
    Operations that see all keys load the whole table.
    """

    __slots__ = ("_start",)

    def __init__(self, start: MappedTable | MappedLevels | None) -> None:
        super().__init__()
        self._start: MappedTable | MappedLevels | None = start

    def _find(self, key: Any) -> Any:
        value = super().get(key, self)
        if value is self:
            value = ABSENT if self._start is None else self._start.find(key)
            super().__setitem__(key, value)
        return value

    def get(self, key: Any, default: Any = None) -> Any:
        value = self._find(key)
        return default if value is ABSENT else value

    def __getitem__(self, key: Any) -> Any:
        value = self._find(key)
        if value is ABSENT:
            raise KeyError(key)
        return value

    def __contains__(self, key: object) -> bool:
        return self._find(key) is not ABSENT

    def __delitem__(self, key: Any) -> None:
        if self._find(key) is ABSENT:
            raise KeyError(key)
        super().__setitem__(key, ABSENT)

    def pop(self, key: Any, *default: Any) -> Any:
        value = self._find(key)
        if value is ABSENT:
            if not default:
                raise KeyError(key)
            return default[0]
        super().__setitem__(key, ABSENT)
        return value

    def setdefault(self, key: Any, default: Any = None) -> Any:
        value = self._find(key)
        if value is ABSENT:
            super().__setitem__(key, default)
            return default
        return value

    def _load(self) -> None:
        """Take over the keys that were not asked for, and forget the absent ones."""
        start, self._start = self._start, None
        if start is not None:
            own = dict(super().items())
            super().update(start.whole())
            super().update(own)
        for key in [k for k, v in super().items() if v is ABSENT]:
            super().__delitem__(key)

    def items(self) -> Any:
        self._load()
        return super().items()

    def keys(self) -> Any:
        self._load()
        return super().keys()

    def values(self) -> Any:
        self._load()
        return super().values()

    def __iter__(self) -> Iterator[Any]:
        self._load()
        return super().__iter__()

    def __len__(self) -> int:
        self._load()
        return super().__len__()

    @property
    def held(self) -> int:
        """How many keys it has in memory."""
        return super().__len__()
