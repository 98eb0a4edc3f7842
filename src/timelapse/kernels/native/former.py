"""States of a compiled pass, as they were when the kernel was last settled."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from timelapse.kernels.former import Former, ReadOnly
from timelapse.kernels.native.memory.hashtable import HashTable
from timelapse.kernels.native.memory.keeping import Kept
from timelapse.kernels.native.memory.layout import COPIED
from timelapse.kernels.native.memory.members import Members
from timelapse.kernels.native.memory.table import NativeTable
from timelapse.kernels.python.former import FormerDict
from timelapse.kinds.base import ABSENT, StateSpec
from timelapse.model.types import TupleType
from timelapse.tables.table import to_dict

Ints = npt.NDArray[np.int64]
_AT_ONCE = 1 << 14


class FormerTable(ReadOnly):
    """One state. `number`: of its table among those of which rows are kept. `members`: where those under a key are listed."""

    def __init__(self, table: NativeTable, kept: Kept, number: int, members: Members | None) -> None:
        self._table, self._kept, self._number = table, kept, number
        self._members = members
        if members is not None:
            self.stored_under = self._under

    def get(self, key: Any, default: Any) -> Any:
        table = self._table
        row = table.find(key)
        words = self._kept.copy(self._number, row) if row >= 0 else None
        if words is None or not words[0] & table.layout.present:
            return default
        if table.layout.stored is None:
            return True
        place = table.layout.place
        return table.decoded(words[place : place + table.layout.size].tolist())

    def _under(self, head: tuple[Any, ...]) -> Iterable[Any]:
        assert self._members is not None
        key = head if isinstance(self._table.spec.outer, TupleType) else head[0]
        return [pair for pair in self._members.under(key) if self.get(pair, ABSENT) is not ABSENT]

    def some(self, most: int) -> list[tuple[Any, Any]]:
        slots, present = self._table.slots, self._table.layout.present
        found: list[Ints] = []
        for at in range(0, len(slots), _AT_ONCE):
            part = slots[at : at + _AT_ONCE]
            for row in np.flatnonzero(part[:, 0] & (present | COPIED)).tolist():
                words = self._kept.copy(self._number, at + row)
                if words[0] & present:
                    found.append(words)
                    if len(found) == most:
                        return self._pairs(np.array(found))
        return self._pairs(np.array(found)) if found else []

    def taken(self) -> Callable[[], dict[Any, Any]]:
        present = self._table.layout.present
        parts = self._kept.same(self._number), self._kept.copies(self._number)
        now, was = (rows[rows[:, 0] & present != 0] for rows in parts)
        return lambda: dict(self._pairs(np.concatenate([now, was])))

    def _pairs(self, rows: Ints) -> list[tuple[Any, Any]]:
        table = self._table
        keys, values = table.keys_in(rows), table.values_in(rows)
        return list(zip(keys, values, strict=True))


def former_of(
    spec: StateSpec, kept: Kept | None, hashes: Sequence[HashTable], table: NativeTable | None, start: pa.Table | None,
    members: Members | None,
) -> Former | None:  # fmt: skip
    """A state; None where not all rows that were written have been kept. `table`: None where no handler mentions it."""
    if kept is None or not kept.whole:
        return None
    if table is None:
        return FormerDict(to_dict(spec, start), {})
    return FormerTable(table, kept, hashes.index(table.hash), members)
