"""How windows' logs (effectlog.py) go along where a table grows part by part: that of the states they are about, or that of a window's counters of members.

As time goes on, and as operations are noted, words of views change in rows that nobody has copied before (keeping.py), and so do counts. Which ones is known from
how far the log and its cursors have gone on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from timelapse.kernels.native.memory import sliding
from timelapse.kernels.native.memory.hashtable import Along

if TYPE_CHECKING:
    from timelapse.kernels.native.memory.effectlog import NativeLog
    from timelapse.kernels.native.memory.table import NativeTable

Ints = npt.NDArray[np.int64]


class PassedRows(Along):
    """Asks which rows the log has got, and its cursors have passed, since it was last asked; until then the log keeps them. `which`: of these, by their
    place in `NativeLog.reached`."""

    slots: Ints | None = None
    """The larger array, where the log is there."""

    def __init__(self, log: NativeLog, which: slice) -> None:
        self.log, self._which, self._until = log, which, log.reached[which]
        log.along.add(self)

    @property
    def first(self) -> int:
        """The number of the first row that is still to be asked for."""
        return int(self._until.min())

    def written(self) -> Ints:
        log, before = self.log, self._until
        self._until = log.reached[self._which]
        spans = zip((before - log.base).tolist(), (self._until - log.base).tolist(), strict=True)
        return np.concatenate([log.rows[lo:hi, 1] for lo, hi in spans])


class LogAlong(PassedRows):
    """The table is that of the log's own state: its rows are copied into another array, with their places in the larger one."""

    def __init__(self, log: NativeLog, which: slice) -> None:
        super().__init__(log, which)
        self._first = self._at = log.base + log.first_needed
        """The numbers of the first row that is copied, and of the next one."""
        self._room = log.room_for(0)

    def find(self) -> None:
        self._into = self.log.new_rows(self._room)

    @property
    def is_there(self) -> bool:
        return self._at == self.log.count

    def go_on(self, slots: Ints, most: int) -> int:
        log, base = self.log, self.log.base
        if base + log.first_needed > self._at:  # nothing of what is copied is needed any more
            self._first = self._at = base + log.first_needed
        at, end = self._at, min(log.count, self._at + most)
        if end - self._first > len(self._into):
            into = log.new_rows(2 * (end - self._first))
            into[: at - self._first] = self._into[: at - self._first]
            self._into = into
        log.copy_moved(at - base, end - base, slots, self._into, at - self._first)
        self._at, self.slots = end, slots
        return end - at

    def take(self) -> None:
        self.log.take(self._into, self._first)


class CountsAlong(PassedRows):
    """The table is that of the counters of members within a lag."""

    def __init__(self, log: NativeLog, which: slice, counter: NativeTable) -> None:
        super().__init__(log, which)
        self._counter = counter

    def written(self) -> Ints:
        counter, width = self._counter, self._counter.layout.width
        members = self.log.table.slots[super().written()]
        found: Ints = np.zeros((len(members), 2), np.int64)
        sliding.recall(
            found, np.ascontiguousarray(members[:, 1 : 1 + width]), counter.slots, counter.mask, width
        )
        places: Ints = found[found[:, 1] >= 0, 1]
        return places
