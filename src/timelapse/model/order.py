"""The order of the events of a list: taken as they come, numbered where they have no numbers, refused where out of order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from timelapse.errors import EventOrderError, UsageError
from timelapse.model.events import Event


def in_order(events: Iterable[Event]) -> Iterator[Event]:
    """The events with `seq` assigned where a list has none. Raises EventOrderError if out of order, UsageError (TL810) for what is no event."""
    last: tuple[int, int] | None = None
    assigned: bool | None = None
    for index, event in enumerate(events):
        if not isinstance(event, Event):
            raise UsageError(
                f"a list of events is needed, and number {index} of it is of type {type(event).__name__}",
                hint="make them events: [Login(user=1, ts=...), ...]; rows are data: pyarrow.Table.from_pylist(rows), or a DataFrame",
                code="TL810",
            )
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
