"""What lies ahead as a state like any other: the events that are dated, and the timers among them.

Programs never see it. It has one entry per pending event, is carried from slice to slice with the declared states
and proven like them, and what handlers of dated events do depends on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from timelapse.model.events import Event
from timelapse.model.types import parse_key, parse_value

if TYPE_CHECKING:
    from timelapse.kinds.base import StateSpec
    from timelapse.model.program import TimeUse

PENDING = "~pending"
"""The state's name: no declared state can have it."""

HANDLED = ("after", "every", "derive", "send", "cancel")
"""Uses of other times that slices know: what lies ahead is in this state, or follows from the log and the calendar."""


class Place(NamedTuple):
    """Where a pending event stands: places compare by the order in which the events happen."""

    due: int
    root: int
    """The seq of the log event that it stems from; -1 for ticks."""
    issued: int
    """When it was sent, in microseconds."""
    number: int
    """Among those that were sent then and stem from the same root."""


def pending_states(times: Sequence[TimeUse]) -> dict[str, StateSpec]:
    """The state of a program with these uses of other times: none where it dates no events, or runs serially anyway."""
    found = {use.what for use in times}
    if not found & {"send", "cancel"} or not found <= set(HANDLED):
        return {}
    from timelapse.kinds.base import StateSpec
    from timelapse.kinds.value import Value

    return {PENDING: StateSpec(PENDING, Value, parse_key(tuple[int, int, int, int]), parse_value(bytes))}


def timer_code(timer: tuple[Any, ...]) -> bytes:
    """What identifies a timer (`times.timer_of`, without the event class) as bytes: equal if and only if it is."""
    return msgspec.msgpack.encode(timer)


def pack(kind: int, timer: bytes | None, event: Event) -> bytes:
    """An entry's value: the event's type (its place in ProgramSpec.events), the timer, the fields."""
    return msgspec.msgpack.encode((kind, timer, event._values()))


def unpack(value: bytes, kinds: Sequence[type[Event]], due: int, root: int) -> tuple[bytes | None, Event]:
    """The timer and the event of an entry."""
    kind, timer, fields = msgspec.msgpack.decode(value)
    return timer, kinds[kind]._raw((*map(_tuples, fields), due, root))


def kind_of(value: bytes, kinds: Sequence[type[Event]]) -> type[Event]:
    """The type of an entry's event."""
    number: int = msgspec.msgpack.decode(value)[0]
    return kinds[number]


def _tuples(value: Any) -> Any:
    """Fields that are lists read as tuples."""
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
