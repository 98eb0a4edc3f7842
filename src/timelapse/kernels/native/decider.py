"""A kernel that runs ahead of another one. It runs the part of the program that decides which events fail later (deciding.py)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from timelapse.analysis.result import PassProgram
from timelapse.env.machine import memory_alone
from timelapse.kernels.base import Abandoned
from timelapse.kernels.foreseen import Foreseen
from timelapse.kernels.native.columnwise import Unknown
from timelapse.kernels.native.deciding import deciding_pass
from timelapse.kernels.native.decode import Batch
from timelapse.kernels.native.kernel import PIECE, Ints, NativeKernel
from timelapse.kernels.native.memory.strings import Interned
from timelapse.kernels.native.unit import Unit
from timelapse.model.program import Program

_SHARE = 8
"""Its tables take at most this part of the memory: one in so many."""
_ANY = 1 << 40
"""So many events may fail."""


class Decider(NativeKernel):
    """Finds the steps that fail, of all steps of the log, in their order."""

    def __init__(
        self, program: Program, work: PassProgram, unit: Unit, interned: Interned, events: int
    ) -> None:
        super().__init__(
            program, work, unit, {}, final=True, events=events, quarantine=_ANY, asked=(), interned=interned
        )
        self._taken.lists_late = True
        self._most = memory_alone() // _SHARE
        self.begin()

    def fits(self, interned: Interned) -> bool:
        """Whether it knows texts by the same words as another kernel. Constants have the same words everywhere."""
        return interned is self._interned or all(c.kind not in ("str", "bytes") for c in self._unit.columns)

    def failing(self, batch: Batch) -> Ints:
        """The next steps: those that fail, as the function puts them out (REFUSED). Raises Unknown."""
        position: Ints = np.zeros(len(self._unit.events), np.int64)
        at = 0
        try:
            while at < batch.events:
                at = self._some(batch, at, min(at + PIECE, batch.events), position, None)
        except Abandoned as why:
            raise Unknown(str(why)) from None
        if sum(table.nbytes for table in self._hashes) > self._most:
            raise Unknown("what decides takes too much memory")
        found = self._outputs.take_raised_words()
        self._outputs.drop()
        return found

    def take_back(self, batch: Batch, at: int, entries: int, position: Ints) -> None:
        raise Unknown("only Python can tell whether an event fails")


def run_ahead(
    foreseen: Foreseen, program: Program, work: PassProgram, unit: Unit, interned: Interned, events: int,
    compiled: Callable[[PassProgram], Unit | None],
) -> None:  # fmt: skip
    """Have the part that decides which events fail later run ahead of a final pass, if that can be done and `compiled` gives its unit."""
    if foreseen.is_off or foreseen.decider is not None:
        return
    deciding = deciding_pass(program, work)
    decider = None if deciding is None else compiled(deciding)
    if deciding is not None and decider is not None and decider.texts == unit.texts:
        foreseen.decider = Decider(program, deciding, decider, interned, events)
