"""A kernel that runs ahead of another one. It runs the part of the program that decides which events fail later (deciding.py).

The meaning is that of beginning again without each event from which something fails. So if a step fails, its event's other steps are undone, and those
later steps are done again that have used a row which is another one without them; and so on (memory/again.py). These come in their order before the
next step: so what fails first is found first. An event that has failed in its own step on the way stays out, as it does when the log begins again.

An event is settled some lags after its time: by then it is known whether it fails. What is held back until then is bounded by memory, and the
steps that are done again by their number. Beyond that it is not known which events fail.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from timelapse.analysis.result import PassProgram
from timelapse.env.machine import memory_alone
from timelapse.ids import INT64_MIN
from timelapse.kernels.base import Abandoned
from timelapse.kernels.native.columnwise import Unknown
from timelapse.kernels.native.deciding import deciding_pass
from timelapse.kernels.native.decode import Batch
from timelapse.kernels.native.failing import FailingKernel
from timelapse.kernels.native.foreseen import Foreseen
from timelapse.kernels.native.heldsteps import HeldSteps
from timelapse.kernels.native.kernel import Ints
from timelapse.kernels.native.lowering.unit import Unit
from timelapse.kernels.native.memory.again import MOST_NOTES
from timelapse.kernels.native.memory.strings import Interned
from timelapse.kernels.native.status import Back, left
from timelapse.kernels.tuning import NativeTuning
from timelapse.program.program import Program

_SHARE = 8
"""What it holds takes at most this part of the memory: one in so many."""
_BACK = 3
"""An event is settled so many of the longest lags after its time. One lag after its last call, no failure of an event undoes that call. The third
lag is for events that fail only because another one was taken out."""


class Decider(FailingKernel):
    """Finds the events that fail, from all steps of the log, in their order."""

    def __init__(
        self, program: Program, work: PassProgram, unit: Unit, interned: Interned, events: int,
        tuning: NativeTuning,
    ) -> None:  # fmt: skip
        super().__init__(program, work, unit, events, interned, tuning)
        deciding = unit.deciding
        assert not isinstance(deciding, str)
        self.most = memory_alone() // _SHARE
        """How many bytes it may hold, and what waits for it."""
        self.span = _BACK * max(later.lag for later in unit.later.values())
        """How long after an event's time it is settled."""
        words = max((table.slots.shape[1] for table in self._hashes), default=0)
        self._held = HeldSteps(unit, deciding.kinds, max(1, unit.keeps), words, self.span)
        self._back: Ints = np.zeros(len(Back), np.int64)
        self._again = self._settled = 0
        self.reached = INT64_MIN
        """The time of the last step that it has gone through."""
        self.ahead: int | None = None
        """It has gone through all steps up to this time. Those behind the end of a slice come again."""
        self.begin()

    def fits(self, interned: Interned) -> bool:
        """Whether it knows texts by the same words as another kernel. Constants have the same words everywhere."""
        return interned is self._interned or all(c.kind not in ("str", "bytes") for c in self._unit.columns)

    def go_on(self, batch: Batch, begins: int | None) -> Ints:
        """Go through the next steps. Returns the rows that the function puts out for events that fail (REFUSED), late or in their own steps.
        `begins`: as in `TakenOut`. Raises Unknown."""
        held, self._taken.begins = self._held, begins
        position: Ints = np.zeros(len(self._unit.events), np.int64)
        assert batch.when is not None
        try:
            most = self.tuning.finding.piece_steps
            for lo in range(0, batch.events, most):
                hi = min(lo + most, batch.events)
                at = held.add(batch, lo, hi, position, self._settled)
                some = held.batch
                while at < held.count or held.is_due:
                    at = self._some_more(some, at)
                self._done += hi - lo
                held.settle(int(batch.when[hi - 1]))
        except Abandoned as why:
            raise Unknown(str(why)) from None
        self.reached = int(batch.when[-1])
        if self._held.nbytes + sum(table.nbytes for table in self._hashes) > self.most:
            raise Unknown("what decides takes too much memory")
        found = self._outputs.take_raised_words()
        self._outputs.drop()
        return found

    def _some_more(self, batch: Batch, at: int) -> int:
        """Go on through the steps that are held, from one on, as far as tables have room. Returns how far it has come."""
        held, back, finding = self._held, self._back, self.tuning.finding
        aside = held.is_due
        end = int(back[Back.END]) if aside else held.end
        back[[Back.MOST_ASIDE, Back.MOST_DUE]] = held.make_room(end)
        if not aside:
            back[[Back.END, Back.FREE]] = end, 0
        back[[Back.BASE, Back.SETTLED]] = held.base, self._settled - held.base
        back[[Back.HELD, Back.NOTES]] = held.before + 1, held.before * held.each
        back[[Back.ALLOWED, Back.DONE, Back.STOP]] = finding.again_steps, 0, 0
        if end + int(back[Back.NOTES]) > MOST_NOTES:
            raise Unknown("there are too many steps")
        if self._kept is not None:
            self._kept.rows = held.copies
        _, _, why = left(self._call(batch, at, held.count, held.position, again=finding.again_steps))
        self._outputs.keep()
        if why:
            raise Unknown("only Python can tell whether an event fails")
        if back[Back.TOO_LATE] or held.copies[0, 2]:
            raise Unknown("it would have to go back too far")
        self._again += int(back[Back.DONE])
        if self._again > finding.again_more + finding.again_each * self._done:
            raise Unknown("too much would be done again")
        return int(back[Back.AT])

    def _time(self, batch: Batch, at: int, position: Ints) -> int:
        return 0  # it looks back at nothing

    def _kept_arguments(self, events: int) -> list[Any]:
        return [self._held.copies, *self._held.notes, self._back]

    def is_settled(self, batch: Batch) -> bool:
        """Whether all events of a batch's steps are settled."""
        return batch.when is None or not batch.events or int(batch.when[-1]) + self.span < self.reached

    def release(self, batch: Batch) -> None:
        """The rest of the program goes through these steps now: no event up to them can be taken out any more."""
        seqs = [int(own[-1]) for own in batch.arrays[1 : 2 * len(self._unit.events) : 2] if len(own)]
        self._settled = max([self._settled, *(seq + 1 for seq in seqs)])


def run_ahead(
    foreseen: Foreseen, program: Program, work: PassProgram, unit: Unit, interned: Interned, events: int,
    compiled: Callable[[PassProgram], Unit | None], tuning: NativeTuning,
) -> None:  # fmt: skip
    """Have the part that decides which events fail later run ahead of a final pass, if that can be done and `compiled` gives its unit."""
    if foreseen.is_off or foreseen.decider is not None:
        return
    deciding = deciding_pass(program, work)
    decider = None if deciding is None else compiled(deciding)
    if deciding is not None and decider is not None and decider.texts == unit.texts:
        foreseen.decider = Decider(program, deciding, decider, interned, events, tuning)
