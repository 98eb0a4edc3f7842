"""Events that others send at their own time: they belong to the same transaction."""

from __future__ import annotations

from collections import deque

from timelapse.model.events import Event
from timelapse.program.program import ProgramSpec
from timelapse.program.times import loop_bound


class Derived:
    """What the transaction under way has sent."""

    def __init__(self, spec: ProgramSpec) -> None:
        self._spec = spec
        self.waiting: deque[Event] = deque()
        """Still to be handled."""
        self.current: Event | None = None
        """The one that is being handled, or at which a handler has raised."""
        self._count = 0

    def add(self, event: Event) -> None:
        """An event is sent."""
        self._count += 1
        if self._count > self._spec.loop:
            raise loop_bound(self._spec)
        self.waiting.append(event)

    def next(self, ts: int, root: int) -> Event:
        """The event whose turn it is."""
        self.current = current = self.waiting.popleft()._at(ts, root)
        return current

    def settle(self) -> None:
        """The transaction is over, in one way or the other."""
        self.waiting.clear()
        self._count = 0
        self.current = None
