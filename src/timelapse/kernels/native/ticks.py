"""What compiled handlers take beside tables and logs: room for what they list and send, the numbers of ticks' records."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
import numpy.typing as npt

from timelapse.ids import INT64_MIN
from timelapse.kernels.native.lowering.unit import Unit
from timelapse.kernels.native.memory.members import Members
from timelapse.kernels.native.memory.strings import Interned
from timelapse.kernels.native.status import LINKS, LISTS, SENDS

Ints = npt.NDArray[np.int64]

_FEW = 1024


class TickRoom:
    """Room for what they list (memory/listing.py) and send, and how far the records of one tick are numbered.

    `members`: those of SetOfs, in the order of `Unit.indexed`.
    """

    def __init__(self, unit: Unit, members: Collection[Members]) -> None:
        self._unit, self._members = unit, members
        self._listed: Ints = np.zeros((_FEW, unit.lists), np.int64)
        self._sent: Ints = np.zeros((_FEW, unit.sends), np.int64)
        self._ticked: Ints = np.array([INT64_MIN, 0], np.int64)
        self.paused: Ints = np.zeros(7, np.int64)
        """Whether and where an event is to be left between those that it sends, and where that was (within.py)."""

    def arguments(self, interned: Interned) -> list[Any]:
        """What the compiled function takes. Records are numbered through all handlers of one tick."""
        listed = [self._listed, *interned.buffers] if self._unit.lists else []
        ticked = [self._ticked] if self._unit.ticking else []
        nodes = [array for members in self._members for array in (members.nodes, members.marks)]
        return [*nodes, *listed, *ticked, *([self._sent, self.paused] if self._unit.sends else [])]

    @property
    def sent(self) -> Ints:
        """What the event under way, or the last one, has sent, each with the number of its type."""
        return self._sent

    def grow(self, why: int) -> bool:
        """Make room for what was listed, sent, or put into SetOfs; False: the function was left for something else."""
        if why == LINKS:
            for members in self._members:
                members.grow()
        elif why == LISTS:
            self._listed = np.zeros((2 * len(self._listed), self._unit.lists), np.int64)
        elif why == SENDS:
            self._sent = np.zeros((2 * len(self._sent), self._unit.sends), np.int64)
        else:
            return False
        return True

    def records(self, ts: int) -> int:
        """How many records the tick at a time has put out so far."""
        at, count = self._ticked.tolist()
        return int(count) if at == ts else 0

    def put_out(self, ts: int, count: int) -> None:
        """The tick has put out so many by now."""
        self._ticked[:] = ts, count
