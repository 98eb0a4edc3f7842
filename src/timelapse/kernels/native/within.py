"""An event that sends others, left between two of them: what it did until then, and what it has sent."""

from __future__ import annotations

from collections import Counter

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from timelapse.kernels.native.memory.strings import Interned
from timelapse.kernels.native.outputs import Outputs, sent_event
from timelapse.kernels.native.ticks import TickRoom
from timelapse.kernels.native.unit import Unit
from timelapse.model.events import Event, Record

Ints = npt.NDArray[np.int64]


class Within:
    """What there is when the compiled function was told to stop there (WalkingKernel.go_into)."""

    def __init__(self, unit: Unit, interned: Interned, room: TickRoom, undo: Ints, outputs: Outputs) -> None:
        self._unit, self._interned = unit, interned
        _, _, _, _, place, queued, records = room.paused.tolist()
        self.place, self.records = int(place), int(records)
        """How many of what was sent has been done, and how many records the event has put out."""
        self.undo: Ints = undo.copy()
        """The writes until then, in order, as the undo log has them."""
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


__all__ = ["Within"]
