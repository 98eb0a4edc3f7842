"""Going through a slice with a compiled kernel to look at it: it stops between events, and between those that one sends."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from timelapse.ids import INT64_MAX
from timelapse.kernels.base import Tick, no_tick
from timelapse.kernels.native.decode import Batch
from timelapse.kernels.native.kernel import Ints, NativeKernel
from timelapse.kernels.native.leaving import Failed
from timelapse.kernels.native.within import Within
from timelapse.kernels.source import Source

Stops = Callable[[Batch], Iterable[tuple[int, Callable[[], bool]] | None]]
"""Where to stop in a batch, before which steps by index, with what to do there; None: go no further."""


class NativeWalk:
    """One way through a slice for its states alone, with a kernel that has done nothing yet."""

    def __init__(self, kernel: NativeKernel) -> None:
        self.kernel = kernel
        self._stopped: tuple[Batch, int, Ints] | None = None
        """Where it has stopped last."""

    def run(self, source: Source, stops: Stops, tick: Tick = no_tick) -> None:
        """For each batch `stops` gives where to stop, by index, and a visit. Of a program that is called at other times than those of the
        log's events too, stops are between steps; ticks that run as Python are no steps, and come before the step that they precede, and
        before a stop there.

        A visit that returns True has done the event there. None ends the walk. Raises TooOften and Abandoned as `NativeKernel.run` does,
        HandlerError.
        """
        kernel, shown = self.kernel, source.event
        chunks = kernel.steps_of(source) if kernel.unit.steps else source.chunks()
        kernel.begin()
        position: Ints = np.zeros(len(kernel.unit.events), np.int64)
        try:
            with kernel.decoder.batches(chunks, ahead=kernel.prefetch) as batches:
                for batch in batches:
                    position[:] = lo = 0
                    for stop in stops(batch):
                        if stop is None:
                            return
                        at, visit = stop
                        kernel.through(batch, lo, at, position, tick, shown)
                        lo = max(lo, at)
                        self._stopped = batch, at, position
                        if visit() and at < batch.events:
                            position[batch.kinds[at]] += 1
                            lo = at + 1
                        kernel.keep()
                    kernel.through(batch, lo, batch.events, position, tick, shown)
                    kernel.forget_outputs()
                kernel.tick_until(None, tick)
        except Failed as failed:
            raise failed.failure from None

    def go_into(
        self, until: int = INT64_MAX, *, records: int = INT64_MAX, writes: int = INT64_MAX
    ) -> Within | None:
        """Do the event at the last stop up to before the `until`-th of the events that it sends, or until after the one with which there
        are more than so many records, or writes; at most to its end. `go_back` undoes it. None: it cannot be left between them."""
        if self._stopped is None or self._stopped[1] >= self._stopped[0].events:
            return None
        return self.kernel.do_part(*self._stopped, until, records, writes)

    def go_back(self, within: Within) -> None:
        """What `go_into` did is undone."""
        assert self._stopped is not None
        batch, at, position = self._stopped
        self.kernel.take_back(batch, at, len(within.undo), position)


__all__ = ["NativeWalk", "Stops"]
