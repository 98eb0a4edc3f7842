"""How the loops that take out late failures have handlers run: as the serial loop does, a step at a time."""

from __future__ import annotations

from typing import Any

from timelapse.errors import HandlerError
from timelapse.program.failure import handler_error
from timelapse.serial import Loop


class QuickLoop(Loop):
    """Between two steps nothing is in its journal, nor emitted or derived: who runs one takes that away."""

    def _undo(self) -> None:
        """Nothing is left of what the step under way has done."""
        super()._undo()
        self._emitted.clear()
        self._derived.clear()

    def _failed(self, shown: Any, handler: str, error: Exception, place: tuple[int, int]) -> HandlerError:
        """Without the traceback, which takes longer than most handlers."""
        return handler_error(self.program, shown, handler, error, place, brief=True)
