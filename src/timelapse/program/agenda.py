"""What lies ahead of the serial loop: dated writes, dated events, timers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from heapq import heappop, heappush
from typing import Any

from timelapse.kinds.base import State
from timelapse.model.events import Event
from timelapse.program.program import HandlerSpec


@dataclass(eq=False, slots=True)
class Dated:
    """Something that is to happen at a time: a write, an event, or the call of an `after=` handler."""

    due: int
    root: int
    """The seq of the log event that it stems from; -1 for what ticks date."""
    issue: Any
    """Its number among all dated things, in the order of issue."""
    name: str
    """What it is counted under: a state, an event type, a handler."""
    handler: str
    """Which handler dated it."""
    write: tuple[State, str, tuple[Any, ...]] | None = None
    event: Event | None = None
    handlers: tuple[HandlerSpec, ...] = ()
    timer: Any = None
    alive: bool = True
    note: Any = None
    """What somebody who watches the loop keeps of it."""


class Agenda:
    """Dated writes and events, by the order in which they are due, and which events are timers.

    Whoever runs a transaction clears `taken_back` before it; where the transaction is undone, `undo` takes back what it
    dated and disarmed. Entries that were taken back stay in their heap, and are dead.
    """

    def __init__(self) -> None:
        self.writes: list[tuple[int, Any, Dated]] = []
        self.events: list[tuple[int, int, Any, Dated]] = []
        self.taken_back: list[Callable[[], None]] = []
        """How to undo what the transaction did here, in the order in which it did it."""
        self._timers: dict[Any, Dated] = {}
        self._issued = 0

    def copy(self, states: Mapping[str, State]) -> Agenda:
        """What lies ahead, to go on with by itself, between two transactions: writes go to the `states` of these names."""
        other = Agenda()
        own: dict[Dated, Dated] = {}
        for dated in (*(entry[-1] for entry in self.writes), *(entry[-1] for entry in self.events)):
            write = dated.write
            if write is not None:
                write = (states[write[0]._spec.name], *write[1:])
            own[dated] = replace(dated, write=write)
        other.writes = [(due, issue, own[dated]) for due, issue, dated in self.writes]
        other.events = [(due, root, issue, own[dated]) for due, root, issue, dated in self.events]
        other._timers = {timer: own[dated] for timer, dated in self._timers.items()}
        other._issued = self._issued
        return other

    def oldest_root(self) -> int | None:
        """The first log event that something pending stems from; None where nothing does."""
        found = (h[-1] for heap in (self.writes, self.events) for h in heap)
        return min((dated.root for dated in found if dated.alive and dated.root >= 0), default=None)

    def date(self, dated: Dated) -> None:
        """Put in a write or an event. One with a timer takes its name; `disarm` the earlier one before."""
        dated.issue = self._next_issue()
        self.put(dated)
        if dated.timer is not None:
            self._timers[dated.timer] = dated

        def never() -> None:
            dated.alive = False
            if self._timers.get(dated.timer) is dated:
                del self._timers[dated.timer]

        self.taken_back.append(never)

    def _next_issue(self) -> Any:
        self._issued += 1
        return self._issued

    def put(self, dated: Dated) -> None:
        """Have it among what lies ahead."""
        if dated.write is not None:
            heappush(self.writes, (dated.due, dated.issue, dated))
        else:
            heappush(self.events, (dated.due, dated.root, dated.issue, dated))

    def disarm(self, timer: Any) -> None:
        """Take back a timer, if it is pending."""
        pending = self._timers.pop(timer, None)
        if pending is not None:
            pending.alive = False

            def again() -> None:
                pending.alive = True
                self._timers[timer] = pending

            self.taken_back.append(again)

    def undo(self) -> None:
        """Everything since `taken_back` was cleared did not happen."""
        for back in reversed(self.taken_back):
            back()

    def times(self) -> list[int]:
        """When the next write and the next event are due, dead ones too."""
        return [heap[0][0] for heap in (self.writes, self.events) if heap]

    def writes_due(self, at: int) -> Iterator[Dated]:
        """The writes due at a time that all before it has been taken from, in the order of issue."""
        while self.writes and self.writes[0][0] == at:
            dated = heappop(self.writes)[-1]
            if dated.alive:
                yield dated

    def events_due(self, at: int) -> Iterator[Dated]:
        """The events due at that time, by root and order of issue; those too that are put in meanwhile. They are then
        pending no more."""
        while self.events and self.events[0][0] == at:
            dated = heappop(self.events)[-1]
            if dated.alive:
                dated.alive = False
                if self._timers.get(dated.timer) is dated:
                    del self._timers[dated.timer]
                yield dated

    def count(self) -> dict[str, int]:
        """What lies ahead, counted by state, event type and handler."""
        alive = [h[-1].name for heap in (self.writes, self.events) for h in heap if h[-1].alive]
        return dict(sorted(Counter(alive).items()))
