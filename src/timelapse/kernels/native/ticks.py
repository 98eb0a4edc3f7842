"""What compiled handlers of ticks take beside tables and logs."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from timelapse.ids import INT64_MIN
from timelapse.kernels.native.memory.strings import Interned
from timelapse.kernels.native.unit import Unit

Ints = npt.NDArray[np.int64]

_FEW = 1024


class TickRoom:
    """Room for what they list (memory/listing.py), and how far the records of one tick are numbered."""

    def __init__(self, unit: Unit) -> None:
        self._unit = unit
        self._listed: Ints = np.zeros((_FEW, unit.lists), np.int64)
        self._ticked: Ints = np.array([INT64_MIN, 0], np.int64)

    def arguments(self, interned: Interned) -> list[Any]:
        """What the compiled function takes. Records are numbered through all handlers of one tick."""
        listed = [self._listed, *interned.buffers] if self._unit.lists else []
        return [*listed, self._ticked] if self._unit.ticking else listed

    def grow(self) -> None:
        """What was listed takes more room."""
        self._listed = np.zeros((2 * len(self._listed), self._unit.lists), np.int64)

    def records(self, ts: int) -> int:
        """How many records the tick at a time has put out so far."""
        at, count = self._ticked.tolist()
        return int(count) if at == ts else 0

    def put_out(self, ts: int, count: int) -> None:
        """The tick has put out so many by now."""
        self._ticked[:] = ts, count
