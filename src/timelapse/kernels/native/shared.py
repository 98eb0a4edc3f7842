"""A compiled pass whose events are shared out by key among threads of one process.

All workers see all decoded events; each skips those of the others in the compiled function itself (a comparison of
a few bits of the key's hash), and has its own tables. What an event does is under its own key, so workers have no
key in common, and a key sees its events in log order: the same bits as one worker alone, floats too.

Nothing here is predicted, so nothing is validated afterwards. Instead every use of a state in the compiled
function, and in Python where an event leaves it, is checked to be under the event's key. Where one is not, or where
the compiled function is left so often that a plain loop is faster, the pass is given up (`Abandoned`) and runs
again without workers.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping

from timelapse.analysis.result import PassProgram
from timelapse.kernels.base import Abandoned, PassResult, Tick, no_tick
from timelapse.kernels.clock import Clock
from timelapse.kernels.native.decode import Batch
from timelapse.kernels.native.kernel import NativeKernel, Shown
from timelapse.kernels.native.leaving import Failed, TooOften
from timelapse.kernels.native.lowering.unit import Unit
from timelapse.kernels.native.memory.gathering import collect
from timelapse.kernels.native.memory.strings import Interned
from timelapse.kernels.native.views import Foreign
from timelapse.kernels.supply import Supply
from timelapse.kernels.tuning import NATIVE, NativeTuning
from timelapse.program.program import Program
from timelapse.segments.reader import Chunk
from timelapse.tables.levels import Start


class SharedKernel:
    """Runs one compiled pass in several threads. `starts` are state tables, as for NativeKernel."""

    def __init__(
        self, program: Program, work: PassProgram, unit: Unit, starts: Mapping[str, Start], *, workers: int,
        events: int, memory: int | None, quarantine: int | None, tuning: NativeTuning = NATIVE,
    ) -> None:  # fmt: skip
        interned = self._interned = Interned(unit.texts)
        self._workers = [
            NativeKernel(
                program, work, unit, starts, final=True, events=events, memory=memory, quarantine=quarantine,
                interned=interned, share=(index, workers), tuning=tuning,
            )
            for index in range(workers)
        ]  # fmt: skip

    @property
    def state_bytes(self) -> int:
        """What the states take that need not be in memory."""
        strings = (len(self._workers) - 1) * self._interned.nbytes  # they share them
        return sum(kernel.state_bytes for kernel in self._workers) - strings

    def close(self) -> None:
        """Let go of all workers' tables. Their threads end with each slice."""
        for worker in self._workers:
            worker.close()
        self._workers.clear()

    def run(self, chunks: Iterator[Chunk], tick: Tick, shown: Shown) -> PassResult:
        """Process one slice. After a failure the kernel is of no use. Raises Abandoned."""
        clock = Clock()
        first = self._workers[0]
        with first.decoder.batches(chunks, clock, ahead=False) as batches:
            supply = Supply(batches, len(self._workers))
            own, *others = hands = [
                _Hand(kernel, tick if number == 0 else no_tick, shown, supply, number)
                for number, kernel in enumerate(self._workers)
            ]
            threads = [
                threading.Thread(target=hand.work, name="timelapse-worker", daemon=True) for hand in others
            ]
            for thread in threads:
                thread.start()
            try:
                own.work()
            finally:
                supply.close()
                for thread in threads:
                    thread.join()
        supply.check()
        with clock.phase("write"):
            result = _together(hands)
            if result.failure is None:
                collect([w.collected() for w in self._workers], result, len(self._workers))
        result.seconds = clock.seconds
        for hand in hands:
            for phase, seconds in hand.clock.seconds.items():
                result.seconds[phase] = result.seconds.get(phase, 0.0) + seconds
        return result


class _Hand:
    """One worker. All but the first work in threads of their own."""

    def __init__(
        self, kernel: NativeKernel, tick: Tick, shown: Shown, supply: Supply[Batch], number: int
    ) -> None:
        self._kernel, self._tick, self._shown = kernel, tick, shown
        self._supply, self._number = supply, number
        self.result = PassResult()
        self.clock = Clock()
        self.error: BaseException | None = None
        kernel.begin()

    def work(self) -> None:
        """Process all events."""
        for batch in self._supply.of(self._number):
            self.feed(batch)
            if self.error is not None and not isinstance(self.error, Failed):
                self._supply.close()  # whatever the others do is of no use
        self.end()

    def feed(self, batch: Batch) -> None:
        """Process events, unless something has gone wrong before."""
        with self.clock.phase("kernel"):
            self._do(lambda: self._kernel.feed(batch, self._tick, self._shown))

    def end(self) -> None:
        """Collect what the worker put out."""
        with self.clock.phase("write"):
            self._do(lambda: self._kernel.end(self.result))

    def _do(self, work: Callable[[], None]) -> None:
        if self.error is None:
            try:
                work()
            except KeyboardInterrupt:
                raise
            except BaseException as error:
                self.error = error


def _together(hands: list[_Hand]) -> PassResult:
    """What all workers put out, as one result. The first failing event in log order is the failure."""
    errors = [hand.error for hand in hands if hand.error is not None]
    for error in errors:
        if isinstance(error, Foreign):
            raise Abandoned("an event uses a key that is not under its own", is_bug=True)
        if isinstance(error, TooOften):
            raise Abandoned("too many events leave the compiled function")
        if not isinstance(error, Failed):
            raise error
    failed = [error for error in errors if isinstance(error, Failed)]
    if failed:
        first = min(failed, key=lambda error: error.seq)
        return PassResult(failure=first.failure, failed_seq=first.seq)
    results = [hand.result for hand in hands]
    whole = results[0]
    for result in results[1:]:
        whole.join(result.outputs, result.rejected)
        whole.quarantined += result.quarantined
    whole.quarantined.sort(key=lambda row: row[2])
    return whole
