"""Going through a slice and stopping between events: to look at states there, or to do an event differently.

Compiled where the final pass is, else as Python. Nothing is put out: what the handlers emit on the way is
what the run has put out already.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from timelapse.analysis.result import PassProgram
from timelapse.env.machine import cores
from timelapse.kernels.base import Tick
from timelapse.kernels.python.interpreted import InterpretedKernel
from timelapse.kernels.source import Source
from timelapse.kernels.tuning import USUAL, KernelTuning
from timelapse.kinds.base import ABSENT, StateSpec
from timelapse.kinds.effects import Journal
from timelapse.kinds.grouped import Under
from timelapse.model.events import Event
from timelapse.program.program import Program
from timelapse.tables.table import state_table

if TYPE_CHECKING:
    from timelapse.kernels.choose import SliceKernel
    from timelapse.kernels.native.decode import Batch
    from timelapse.kernels.native.walking import NativeWalk

_PATIENT = 2_000_000
"""Over so many events a pass that is cut down to what is asked for is worth compiling, though the whole program is compiled."""
WAYS = 3
"""So often a question goes through the log, about."""
_TOLD = 1024
"""Events that run as Python, between two times that progress is told; the first times come sooner, where each event takes long."""
Visit = Callable[["Moment"], bool]
"""Called at each stop. True: the event there has been done (through `Moment.live`), and is left out."""


class Untold(Exception):
    """How much stands under a declared key, and who changed it, is not told by this kernel."""


class Moment:
    """Between two events: all with a smaller `seq` have been processed, the others have not."""

    def __init__(
        self, seq: int, live: Callable[[str, Journal | None], Any], journal: Journal | None,
        written: Callable[[str, Any], bool], look_from: Callable[[int], None] = lambda ts: None,
        end: Callable[[], None] = lambda: None, native: NativeWalk | None = None,
    ) -> None:  # fmt: skip
        self.seq = seq
        self.end = end
        """Leaves all further stops out."""
        self.look_from = look_from
        """What looks back is asked for an event at this time from now on."""
        self.live = live
        """A state as handlers use it, by name. Writes go into the journal, if one is given, and are real."""
        self.journal = journal
        """The journal that the states write to already; None: to the one that is given."""
        self.native = native
        """The compiled pass that has stopped there, which may be able to go into the event; None: it runs as Python."""
        self._written = written

    def written(self, state: str, key: Any) -> bool:
        """Whether the key has been written since this was last asked, or since the walk began.

        Also where it got the value that it had, or where the event was rejected. Of all that stands under a declared key (Under):
        whether their number changed in between. Raises Untold where the kernel does not count them.
        """
        return self._written(state, key)

    def value(self, state: str, key: Any) -> Any:
        """What the state holds under the key (True in a Set), or ABSENT; of all that stands under a declared key (Under) how much."""
        live = self.live(state, None)
        return live.count(key.key) or ABSENT if isinstance(key, Under) else live._get(key, ABSENT)


def slower_start(
    program: Program, work: PassProgram, known: PassProgram, events: int, tuning: KernelTuning = USUAL
) -> bool:
    """Whether a pass over so many events waits for the compiler, or runs as Python, where a final pass that is `known` does not."""
    from timelapse.kernels.choose import choice, uncompiled

    own = choice(program, work, final=False).compiled
    if events >= _PATIENT and own:
        return False  # what is known would be lowered for nothing
    compiles = [choice(program, known, final=True).compiled, own]
    if compiles == [True, False] and WAYS * events >= tuning.cold_events:
        return True  # the compiler is waited for
    ready = [
        not any(uncompiled(program, [(w, events, final)], tuning))
        for w, final in ((known, True), (work, False))
    ]
    return compiles[0] and ready[0] and not (compiles[1] and ready[1])


def walker(
    program: Program, work: PassProgram, starts: Mapping[str, pa.Table], events: int, *, final: bool = True,
    quarantine: int | None = None, slow: int = 0, waits: bool = False, tuning: KernelTuning = USUAL,
) -> SliceKernel:  # fmt: skip
    """A kernel to walk with, over so many events: it is not asked what a slice did. `slow`: so many ran as Python for the same question.
    `waits`: for the compiler, however few events there are."""
    from timelapse.kernels.choose import SliceKernel

    # A question goes the same way several times, so machine code that is there is worth loading sooner, and the compiler worth
    # waiting for.
    many = events >= tuning.flat_events
    share = tuning.warm_events if waits or many else events
    waits = waits or (many and WAYS * (slow + events) >= tuning.cold_events)
    return SliceKernel(
        program, work, starts, events, final=final, prefetch=cores() > 1, quarantine=quarantine, asked=(), rows=False,
        share=share, tuning=replace(tuning, times=tuning.cold_events if waits else 1),
    )  # fmt: skip


def load() -> None:
    """Load the modules that a compiled way takes, and those that say whether it compiles: in a thread while something else is done."""
    import timelapse.kernels.native.kernel
    import timelapse.kernels.native.lowering.lower
    import timelapse.kernels.native.walking  # noqa: F401


class TooSlow(Exception):
    """A way was left that runs as Python: compiled it would be over sooner, the compiler's time with it."""


class Walk:
    """One way through a slice, from `source.lo` to before `source.hi`.

    `stops` are seqs in ascending order, within the slice or at its end. Raises HandlerError where a handler fails,
    unless with `quarantine`: then that event is undone. A program with windows goes from the log's first event on,
    compiled only; Abandoned is raised where it cannot go on so.
    """

    left = False
    """Set while it runs as Python: it ends before the next event, and raises TooSlow."""

    def __init__(self, kernel: SliceKernel, source: Source) -> None:
        self._source = source
        self._python, self._native = kernel.parts
        self._walk: NativeWalk | None = None
        self.compiled = self._native is not None
        """Whether it begins compiled."""
        self.why_python = kernel.why_python
        self._seqs: Iterator[int] = iter(())
        self._next: int | None = None
        self._tick: Tick = lambda events: None

    def run(self, stops: Iterable[int], visit: Visit, tick: Tick = lambda events: None) -> None:
        """Go through the slice up to the last stop. `tick` is told how many events were done, now and then."""
        self._seqs, self._tick = iter(stops), tick
        self._advance()
        if self._native is not None:
            from timelapse.kernels.native.leaving import TooOften
            from timelapse.kernels.native.walking import NativeWalk

            walk = self._walk = NativeWalk(self._native)
            try:
                walk.run(self._source, lambda b: self._stops(b, visit), tick)
            except TooOften as often:
                _, self._python = self._native.hand_over()
                self._native = self._walk = None
                self._source = replace(self._source, lo=often.seq)
            else:
                self._rest(visit)
                return
        assert self._python is not None
        self._interpreted(self._python, visit)

    def _advance(self) -> None:
        self._next = next(self._seqs, None)

    def _rest(self, visit: Visit) -> None:
        """Stops after the last event."""
        while self._next is not None:
            self._visit(visit)

    def _visit(self, visit: Visit) -> bool:
        assert self._next is not None
        seq = self._next
        self._advance()
        journal = None if self._python is None else self._python.journal
        return visit(Moment(seq, self._live, journal, self._written, self._look_from, self._end, self._walk))

    def _end(self) -> None:
        self._seqs, self._next = iter(()), None

    def _written(self, name: str, key: Any) -> bool:
        if not isinstance(key, Under):
            if self._native is not None:
                return self._native.take_written(name, key)
            assert self._python is not None
            return self._python.held.take_written(name, key)
        if self._native is None or (counted := self._native.unit.counted.get(name)) is None:
            raise Untold
        return self._native.take_written(counted, key.key)

    def _stops(self, batch: Batch, visit: Visit) -> Iterator[tuple[int, Callable[[], bool]] | None]:
        """Where to stop in a batch, by index, with what to do there; None once there are no further stops at all."""
        columns: list[Any] | None = None
        while self._next is not None and self._next < batch.chunk.seq_hi:
            if columns is None:
                columns = [t.column("seq").to_numpy() for t in batch.chunk.tables.values()]
            before = sum(int(np.searchsorted(seqs, self._next)) for seqs in columns)
            yield before, lambda: self._visit(visit)
        if self._next is None:
            yield None

    def _interpreted(self, kernel: InterpretedKernel, visit: Visit) -> None:
        events = counted(self._source.events(), self._tick)
        ahead: list[Event] = []

        def before(stop: int) -> Iterator[Event]:
            for event in itertools.chain(ahead[:], events):
                ahead[:] = [event]
                if event.seq >= stop or self.left:
                    return
                ahead.clear()
                yield event

        while self._next is not None:
            stop = self._next
            kernel.go_through(before(stop))
            if self.left:
                raise TooSlow
            if self._visit(visit) and (ahead or self._fill(events, ahead)) and ahead[0].seq == stop:
                ahead.clear()

    @staticmethod
    def _fill(events: Iterator[Event], ahead: list[Event]) -> bool:
        ahead.extend(itertools.islice(events, 1))
        return bool(ahead)

    def _look_from(self, ts: int) -> None:
        if self._native is not None:
            self._native.look_from(ts)

    def held(self, spec: StateSpec) -> pa.Table:
        """A state's keys and values where it stopped last, in no order; there may be no hashes."""
        if self._native is not None:
            return self._native.held(spec.name)
        assert self._python is not None
        return state_table(spec, self._python.states[spec.name]._items())

    def _live(self, name: str, journal: Journal | None) -> Any:
        if self._native is not None:
            return self._native.live(name, journal)
        assert self._python is not None
        return self._python.states[name]


def counted(events: Iterable[Event], tick: Tick) -> Iterator[Event]:
    """The events; `tick` is told of every so many, and of the first ones at each power of two."""
    told = 0
    for number, event in enumerate(events, 1):
        if number % _TOLD == 0 or (number < _TOLD and number & (number - 1) == 0):
            tick(number - told)
            told = number
        yield event


__all__ = [
    "WAYS", "Moment", "TooSlow", "Untold", "Visit", "Walk", "counted", "load", "slower_start", "walker",
]  # fmt: skip
