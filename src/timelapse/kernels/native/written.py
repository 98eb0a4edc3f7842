"""Whether keys were written since it was last asked, where the same keys are asked for at each stop."""

from __future__ import annotations

from typing import Any
from weakref import ref

from timelapse.kernels.native.memory.table import NativeTable


class Written:
    """A key's row is looked up once for as long as the rows stay in the same array."""

    def __init__(self) -> None:
        self._rows: dict[str, tuple[ref[Any], dict[Any, int]]] = {}

    def take(self, table: NativeTable, key: Any) -> bool:
        """Whether a key was written since the slice began, or since this was last asked."""
        name, slots = table.spec.name, table.slots
        known = self._rows.get(name)
        row = known[1].get(key, -1) if known is not None and known[0]() is slots else -1
        if row < 0:
            row = table.find(key)
            if row < 0:
                return False
            if known is None or known[0]() is not table.slots:
                known = self._rows[name] = ref(table.slots), {}
            known[1][key] = row
        slots, touched = table.slots, table.layout.touched
        if not slots[row, 0] & touched:
            return False
        slots[row, 0] &= ~touched
        return True
