"""The meaning of a program: one loop, one event at a time, in log order. Kept dull on purpose.

Everything fast is tested against this file, so it shares no analysis, planner or execution code
with the rest; it uses only what users write with (events, programs, state kinds).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from timelapse.errors import EventOrderError, HandlerError
from timelapse.ids import Phase, Position
from timelapse.kinds.base import ABSENT
from timelapse.model.events import Event, Record
from timelapse.model.failure import handler_error, is_reproducible
from timelapse.model.program import HandlerSpec, Program, Rejection, as_program, bind, rejection, spec_of


@dataclass(frozen=True)
class Output:
    """One emitted record and where it stands."""

    position: Position
    record: Record


@dataclass(frozen=True)
class Refusal:
    """One rejected event: where it stood, its type's name, the handler, the reason given."""

    position: Position
    event: str
    handler: str
    reason: str


@dataclass
class SerialOutcome:
    """What the loop gave: outputs in order, rejected events, and the state after the last event.

    `quarantined`: the failures of the events that were taken out of the log, if that was asked for.
    """

    outputs: list[Output] = field(default_factory=list)
    refused: list[Refusal] = field(default_factory=list)
    quarantined: list[HandlerError] = field(default_factory=list)
    states: dict[str, dict[Any, Any]] = field(default_factory=dict)
    events: int = 0


class DictStore:
    """One state's values in a dict, with a journal so that a rejected event can be undone."""

    def __init__(self, journal: list[tuple[dict[Any, Any], Any, Any]]) -> None:
        self.data: dict[Any, Any] = {}
        self._journal = journal

    def get(self, key: Any, default: Any) -> Any:
        return self.data.get(key, default)

    def put(self, key: Any, value: Any) -> None:
        self._journal.append((self.data, key, self.data.get(key, ABSENT)))
        self.data[key] = value

    def drop(self, key: Any) -> None:
        if key in self.data:
            self._journal.append((self.data, key, self.data[key]))
            del self.data[key]

    def items(self) -> Iterable[tuple[Any, Any]]:
        return self.data.items()

    def side(self, table: dict[Any, Any], key: Any, value: Any) -> None:
        self._journal.append((table, key, table.get(key, ABSENT)))
        if value is ABSENT:
            table.pop(key, None)
        else:
            table[key] = value


def in_order(events: Iterable[Event]) -> Iterator[Event]:
    """The events with `seq` assigned where a list has none. Raises EventOrderError if out of order."""
    last: tuple[int, int] | None = None
    assigned: bool | None = None
    for index, event in enumerate(events):
        if assigned is None:
            assigned = event.seq < 0
        if assigned != (event.seq < 0):
            raise EventOrderError(
                f"event {index} {'has no' if event.seq < 0 else 'has a'} seq, unlike the ones before: {event!r}",
                hint="give every event a seq, or none",
            )
        placed = event._at(event.ts, index) if assigned else event
        here = (placed.ts, placed.seq)
        if last is not None and (here <= last or placed.seq <= last[1]):
            raise EventOrderError(
                f"event {index} is not after the one before it: {event!r}",
                hint="events are taken in the order (ts, seq): sort them, or ingest them with tl.Log.write",
            )
        last = here
        yield placed


class Loop:
    """The loop, event by event. `outcome` is what it has given so far; its states are live."""

    def __init__(self, program: Program | type[Program]) -> None:
        self.program = as_program(program)
        self.outcome = SerialOutcome()
        spec = spec_of(self.program)
        self._journal: list[tuple[dict[Any, Any], Any, Any]] = []
        self._emitted: list[Record] = []
        stores = {name: DictStore(self._journal) for name in spec.states}
        self.outcome.states = {name: store.data for name, store in stores.items()}
        states = {name: s.kind(s, stores[name]) for name, s in spec.states.items()}
        self._bound = bind(self.program, states, {"emit": self._emit, "reject": _reject, "now": 0})
        self._handlers: dict[type[Event], tuple[HandlerSpec, ...]] = {
            t: spec.handlers_of(t) for t in spec.events
        }

    def step(self, event: Event) -> None:
        """Process one event, which must come after all before. Raises HandlerError for a handler's exception;
        that event has then had no effect."""
        self.outcome.events += 1
        self._bound.__dict__["now"] = event.ts
        self._journal.clear()
        self._emitted.clear()
        name = ""
        try:
            for handler in self._handlers.get(type(event), ()):
                name = handler.name
                handler.function(self._bound, event)
        except Rejection as refusal:
            self._undo()
            self._emitted[:] = [] if refusal.record is None else [refusal.record]
            place = Position(event.ts, Phase.LOG_EVENT, event.seq, 0)
            self.outcome.refused.append(Refusal(place, type(event).__name__, name, refusal.reason))
        except Exception as error:
            self._undo()
            raise handler_error(self.program, event, name, error) from error
        for ordinal, record in enumerate(self._emitted):
            place = Position(event.ts, Phase.LOG_EVENT, event.seq, ordinal)
            self.outcome.outputs.append(Output(place, record))

    def _emit(self, record: Record) -> None:
        if not isinstance(record, Record):
            raise TypeError(f"emit takes a tl.Record, not {type(record).__name__}")
        self._emitted.append(record)

    def _undo(self) -> None:
        for table, key, old in reversed(self._journal):
            if old is ABSENT:
                table.pop(key, None)
            else:
                table[key] = old


def _reject(reason: str | Record = "") -> None:
    raise rejection(reason)


def run(
    program: Program | type[Program],
    events: Iterable[Event],
    *,
    before: int | None = None,
    watch: Callable[[Event, dict[str, dict[Any, Any]]], None] | None = None,
    quarantine: bool = False,
) -> SerialOutcome:
    """Process the events one by one, in log order.

    `before` stops ahead of everything at that time (microseconds). `watch` is called before each
    event with the live state; it must not change it. Raises HandlerError for a handler's
    exception, EventOrderError for events out of order.

    With `quarantine` an event at which a handler raises counts as if it had not been in the log; what was
    raised is listed. An end of memory or stack is no property of the event and is raised all the same.
    """
    loop = Loop(program)
    for event in in_order(events):
        if before is not None and event.ts >= before:
            break
        if watch is not None:
            watch(event, loop.outcome.states)
        try:
            loop.step(event)
        except HandlerError as failure:
            if not quarantine or failure.__cause__ is None or not is_reproducible(failure.__cause__):
                raise
            loop.outcome.quarantined.append(failure)
    return loop.outcome
