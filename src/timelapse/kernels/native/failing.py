"""A compiled final pass from nothing that lists all events that fail, also after their own time."""

from __future__ import annotations

from timelapse.analysis.result import PassProgram
from timelapse.kernels.native.kernel import NativeKernel
from timelapse.kernels.native.lowering.unit import Unit
from timelapse.kernels.native.memory.strings import Interned
from timelapse.kernels.tuning import NativeTuning
from timelapse.program.program import Program

_ANY = 1 << 40
"""So many events may fail."""


class FailingKernel(NativeKernel):
    """Goes through steps, and lists all that fail."""

    def __init__(
        self, program: Program, work: PassProgram, unit: Unit, events: int, interned: Interned, tuning: NativeTuning
    ) -> None:  # fmt: skip
        super().__init__(
            program, work, unit, {}, final=True, events=events, quarantine=_ANY, asked=(), interned=interned,
            tuning=tuning,
        )  # fmt: skip
        self._taken.lists_late = True
