"""An event that sends others, left between two of them: what it did until then, and what it has sent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from timelapse.kernels.native.lowering.unit import Unit
from timelapse.kernels.native.memory.strings import Interned
from timelapse.kernels.native.memory.table import NativeTable
from timelapse.kernels.native.outputs import Outputs, sent_event
from timelapse.kernels.native.ticks import TickRoom
from timelapse.kinds.grouped import Under
from timelapse.model.events import Event, Record

Ints = npt.NDArray[np.int64]


class Within:
    """What there is when the compiled function was told to stop there (NativeWalk.go_into)."""

    def __init__(
        self, unit: Unit, interned: Interned, room: TickRoom, tables: Mapping[str, NativeTable], undo: Ints,
        outputs: Outputs,
    ) -> None:  # fmt: skip
        self._unit, self._interned, self._tables = unit, interned, tables
        _, _, _, _, place, queued, records = room.paused.tolist()
        self.place, self.records = int(place), int(records)
        """How many of what was sent has been done, and how many records the event has put out."""
        self.undo: Ints = undo.copy()
        """The writes until then, in order: the entries of the undo log."""
        self._sent: Ints = room.sent[:queued].copy()
        self._outputs = outputs

    def counts(self) -> Counter[type[Event]]:
        """How many events of each type were sent, of those that something is done at."""
        numbers, counts = np.unique(self._sent[:, 0], return_counts=True)
        known = zip(numbers.tolist(), counts.tolist(), strict=True)
        return Counter({self._unit.sent[n]: count for n, count in known if n >= 0})

    def sent(self, place: int, ts: int, root: int) -> Event | None:
        """One of the events that were sent; None: nothing is done at it."""
        number, *words = self._sent[place].tolist()
        if number < 0:
            return None
        return sent_event(self._unit.sent[number], words, ts, root, self._interned)

    def outputs(self) -> dict[type[Record], pa.Table]:
        """The records so far, in the stored columns."""
        return self._outputs.last(self._interned)

    def entries(self, name: str, key: Any) -> Ints:
        """Which writes are of a stored key, or of anything under a declared one."""
        if name not in self._tables:
            return np.zeros(0, np.int64)
        own = np.flatnonzero(self.undo[:, 0] == list(self._tables).index(name))
        rows, table = self.undo[own, 1], self._tables[name]
        if isinstance(key, Under):
            some = np.unique(rows)
            stored = zip(some.tolist(), table.keys(some), strict=True)
            held = [row for row, one in stored if key.holds(one)]
        else:
            held = [table.find(key)]
        found: Ints = own[np.isin(rows, held)]
        return found


__all__ = ["Within"]
