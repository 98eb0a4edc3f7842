"""How the loops that take out late failures have handlers run: as the serial loop does, with fewer calls for each step."""

from __future__ import annotations

from typing import Any

from timelapse.errors import HandlerError
from timelapse.ids import Position
from timelapse.model.events import Event
from timelapse.model.failure import handler_error
from timelapse.model.program import HandlerSpec, Program, Rejection
from timelapse.serial import Backing, Loop, Refusal


class QuickLoop(Loop):
    """Between two steps nothing is in its journal, nor emitted or derived: who runs one takes that away."""

    def __init__(self, program: Program, backing: Backing) -> None:
        super().__init__(program, backing)
        self._live = self.bound.__dict__

    def _handle(
        self, event: Event | None, handlers: tuple[HandlerSpec, ...], ts: int, phase: int, root: int
    ) -> Refusal | None:
        """Run the handlers of an event with those of the events derived from it, or one of a tick: how it was rejected, if it was. Raises
        HandlerError."""
        bound = self.bound
        self._now, self._phase, self._root = ts, phase, root
        self._live["now"] = ts
        current = event
        try:
            for handler in handlers:
                self._handler = handler.name
                if current is None:
                    handler.function(bound)
                else:
                    handler.function(bound, current)
            if self._derivations:
                while self._derived:
                    current = self._derived.popleft()
                    for handler in self.handlers.get(type(current), ()):
                        self._handler = handler.name
                        handler.function(bound, current)
                self._derivations = 0
        except Rejection as refused:
            self._undo()
            self._emitted[:] = [] if refused.record is None else [refused.record]
            name = "tick" if event is None else type(event).__name__
            return Refusal(Position(ts, phase, root, 0), name, self._handler, refused.reason)
        except Exception as error:
            self._undo()
            shown = "a tick" if current is None else current
            raise self._failed(shown, self._handler, error, (ts, root)) from error
        return None

    def _undo(self) -> None:
        """Nothing is left of what the step under way has done."""
        super()._undo()
        self._emitted.clear()
        self._derived.clear()
        self._derivations = 0

    def _failed(self, shown: Any, handler: str, error: Exception, place: tuple[int, int]) -> HandlerError:
        """Without the traceback, which takes longer than most handlers."""
        return handler_error(self.program, shown, handler, error, place, brief=True)
