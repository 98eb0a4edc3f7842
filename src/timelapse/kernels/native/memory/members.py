"""The lists of what stands under keys of a SetOf or MapOf (linking.py) as a compiled pass begins with them, and where an event runs as Python."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from timelapse.kernels.native.memory import blocks
from timelapse.kernels.native.memory.linking import NEXT, link, link_rows
from timelapse.kernels.native.memory.table import NativeTable

Ints = npt.NDArray[np.int64]

_FEW = 1024
_AT_ONCE = 1 << 16


class Members:
    """The lists of one SetOf or MapOf. `table` has its pairs, `heads` where the lists begin."""

    def __init__(self, table: NativeTable, heads: NativeTable) -> None:
        self._table, self.heads = table, heads
        self.nodes: Ints = np.zeros((_FEW, 1 + table.layout.width), np.int64)
        self.marks: Ints = np.array([1, 0], np.int64)
        self._build()

    def _build(self) -> None:
        """Put all pairs in that are there."""
        table, heads = self._table, self.heads
        rows = np.flatnonzero(table.slots[:, 0] & table.layout.present)
        self.reserve(len(rows))
        for at in range(0, len(rows), _AT_ONCE):
            some = rows[at : at + _AT_ONCE]
            keys = np.ascontiguousarray(table.slots[some, 1 : 1 + heads.layout.width])
            # Keys come several times: telling them apart would cost more than all else here, and they have no values.
            heads.hash.load(heads.layout, keys, np.zeros((len(keys), 0), np.int64))
            link_rows(
                self.nodes, self.marks, heads.slots, heads.mask, heads.layout.place, table.slots, some,
                table.layout.width, heads.layout.width,
            )  # fmt: skip

    def reserve(self, more: int) -> None:
        """Make room for so many pairs."""
        used, room = int(self.marks[NEXT]), len(self.nodes)
        if used + more <= room:
            return
        while room < used + more:
            room *= 2
        words = self.nodes.shape[1]
        nodes = blocks.zeros(room * words, most=self._table.hash.filed).reshape(room, words)
        nodes[:used] = self.nodes[:used]
        self.nodes = nodes

    def grow(self) -> None:
        """Make more room, if there is none."""
        self.reserve(1)

    def put(self, row: int, head: int) -> None:
        """A pair, by its row, is there; `head`: the row of its key."""
        self.reserve(1)
        heads = self.heads
        link(
            self.nodes, self.marks, heads.slots, head, heads.layout.place, self._table.slots, row,
            self._table.layout.width,
        )  # fmt: skip

    def under(self, key: Any) -> list[Any]:
        """All pairs that were ever there under a key, as they are stored."""
        heads, found = self.heads, []
        row = heads.find(key)
        node = int(heads.slots[row, heads.layout.place]) if row >= 0 else 0
        while node:
            found.append(node)
            node = int(self.nodes[node, 0])
        return self._table.keys_in(self.nodes[np.array(found, np.int64)])
