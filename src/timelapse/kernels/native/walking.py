"""A compiled pass that somebody goes through to look at: it stops between events, and between those that one sends."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from timelapse.ids import INT64_MAX
from timelapse.kernels.base import Tick, no_tick
from timelapse.kernels.native.decode import Batch
from timelapse.kernels.native.kernel import Ints, NativeKernel, Shown
from timelapse.kernels.native.leaving import Failed
from timelapse.kernels.native.outputs import Outputs
from timelapse.kernels.native.unit import LINKS, LISTS, PAUSED, ROOM, SENDS, left
from timelapse.kernels.native.within import Within
from timelapse.kernels.source import Source
from timelapse.kinds.grouped import Under
from timelapse.log.reader import Chunk

Stops = Callable[[Batch], Iterable[tuple[int, Callable[[], bool]] | None]]
"""Where to stop in a batch, before which steps by index, with what to do there; None: go no further."""


class WalkingKernel(NativeKernel):
    """Stops where it is told to. `run` is as it was."""

    _stopped: tuple[Batch, int, Ints] | None = None
    """Where a walk has stopped last."""

    def walk(self, chunks: Iterator[Chunk], shown: Shown, stops: Stops, tick: Tick = no_tick) -> None:
        """Go through a slice for its states alone. For each batch `stops` gives where to stop, by index, and a visit.

        What returns True has done the event there. None ends the walk. Raises TooOften and Abandoned as `run` does,
        HandlerError.
        """
        for table in self._hashes:
            table.begin()
        position = np.zeros(len(self._unit.events), np.int64)
        self._done = self._spent_at = 0
        try:
            with self.decoder.batches(chunks, ahead=self._prefetch) as batches:
                for batch in batches:
                    position[:] = lo = 0
                    for stop in stops(batch):
                        if stop is None:
                            return
                        at, visit = stop
                        self._through(batch, lo, at, position, tick, shown)
                        lo = max(lo, at)
                        self._stopped = batch, at, position
                        if visit() and at < batch.events:
                            position[batch.kinds[at]] += 1
                            lo = at + 1
                        self._logs.keep()
                    self._through(batch, lo, batch.events, position, tick, shown)
                    self._outputs = Outputs(self._unit)
                self._tick_until(None, tick)
        except Failed as failed:
            raise failed.failure from None

    def walk_steps(self, source: Source, stops: Stops, tick: Tick = no_tick) -> None:
        """The same of a program that is called at other times than those of the log's events too: `stops` are between steps.
        Ticks that run as Python are no steps of a batch; they come before the step that they precede, and before a stop there."""
        self.walk(self._begun(source), source.event, stops, tick)

    def go_into(
        self, until: int = INT64_MAX, *, records: int = INT64_MAX, writes: int = INT64_MAX
    ) -> Within | None:
        """Do the event at the stop of a walk up to before the `until`-th of the events that it sends, or until after the one with which there
        are more than so many records, or writes; at most to its end. `go_back` undoes it. None: it cannot be left between them."""
        unit, room = self._unit, self._tick_room
        if self._stopped is None or not unit.sent or unit.rejects or unit.takes or self._logs:
            return None
        batch, at, position = self._stopped
        if at >= batch.events:
            return None
        while True:
            room.paused[:4] = 1, until, records, writes
            _, entries, why = left(self._call(batch, at, at + 1, position.copy()))
            room.paused[0] = 0
            if why == PAUSED:
                return Within(unit, self._interned, room, self._undo[:entries], self._outputs)
            full = self._outputs.full
            self._take_back(batch, at, entries, position)
            if why == ROOM:
                self._grow(entries, records=full)
            elif why in (LISTS, SENDS, LINKS):
                room.grow(why)
            else:
                return None

    def go_back(self, within: Within) -> None:
        """What `go_into` did is undone."""
        assert self._stopped is not None
        batch, at, position = self._stopped
        self._take_back(batch, at, len(within.undo), position)

    def entries(self, undo: Ints, name: str, key: Any) -> Ints:
        """Which entries of an undo log are of a stored key, or of anything under a declared one."""
        if name not in self._tables:
            return np.zeros(0, np.int64)
        own = np.flatnonzero(undo[:, 0] == list(self._tables).index(name))
        rows, table = undo[own, 1], self._tables[name]
        if isinstance(key, Under):
            some = np.unique(rows)
            stored = zip(some.tolist(), table.keys(some), strict=True)
            held = [row for row, one in stored if key.holds(one)]
        else:
            held = [table.find(key)]
        found: Ints = own[np.isin(rows, held)]
        return found


__all__ = ["Stops", "WalkingKernel"]
