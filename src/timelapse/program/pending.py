"""What lies ahead as states like any other: the events that are dated, with the timers among them, and dated writes.

Programs never see them. They have one entry per pending event or write, are carried from slice to slice with the declared
states and proven like them. What handlers of dated events do depends on the first, states with dated writes on the second.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from timelapse.model.decimals import packable, unpackable
from timelapse.model.events import Event
from timelapse.model.types import parse_key, parse_value

if TYPE_CHECKING:
    from timelapse.kinds.base import StateSpec
    from timelapse.program.program import TimeUse

PENDING = "~pending"
"""The name of the state of dated events: no declared state can have it."""
WRITES = "~writes"
"""That of dated writes."""

HANDLED = ("after", "every", "derive", "send", "cancel", "dated")
"""Uses of other times that slices know: what lies ahead is in these states, or follows from the log and the calendar."""


class WritePlace(NamedTuple):
    """Where a dated write stands: places compare by the order in which writes take effect, which is that of issue."""

    due: int
    issued: int
    """When it was issued, in microseconds."""
    root: int
    """The seq of the log event that it stems from; -1 for ticks."""
    number: int
    """Among those that were issued then and stem from the same root."""


class DatedWrite(NamedTuple):
    """A write that takes effect at a later time."""

    state: str
    method: str
    arguments: tuple[Any, ...]
    handler: str
    """Which handler issued it."""


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
    """The states of a program with these uses of other times: none where it dates nothing, or runs serially anyway."""
    found = {use.what for use in times}
    if any(is_hidden(use) for use in times):
        return {}
    from timelapse.kinds.registry import entries

    names = [PENDING] * bool(found & {"send", "cancel"}) + [WRITES] * ("dated" in found)
    key, value = parse_key(tuple[int, int, int, int]), parse_value(bytes)
    return {name: entries(name, key, value) for name in names}


def is_hidden(use: TimeUse) -> bool:
    """Whether a method whose text cannot be read may date writes: of which states, nobody knows."""
    return use.what == "dated" and not use.state


def pack_write(write: DatedWrite) -> bytes:
    """A dated write as an entry's value."""
    return msgspec.msgpack.encode((write.state, write.method, _plain(write.arguments), write.handler))


def unpack_write(value: bytes) -> DatedWrite:
    """The dated write of an entry. NamedTuples come back as tuples: the state makes them what they were."""
    state, method, arguments, handler = msgspec.msgpack.decode(value)
    return DatedWrite(state, method, tuple(map(tuples, arguments)), handler)


def timer_code(timer: tuple[Any, ...]) -> bytes:
    """What identifies a timer (`times.timer_of`, without the event class) as bytes: equal if and only if it is."""
    return msgspec.msgpack.encode(timer)


def pack(kind: int, timer: bytes | None, event: Event) -> bytes:
    """An entry's value: the event's type (its place in ProgramSpec.events), the timer, the fields."""
    return msgspec.msgpack.encode((kind, timer, _plain(event._values())))


def unpack(value: bytes, kinds: Sequence[type[Event]], due: int, root: int) -> tuple[bytes | None, Event]:
    """The timer and the event of an entry."""
    kind, timer, fields = msgspec.msgpack.decode(value)
    return timer, kinds[kind]._raw((*map(tuples, fields), due, root))


def kind_of(value: bytes, kinds: Sequence[type[Event]]) -> type[Event]:
    """The type of an entry's event."""
    number: int = msgspec.msgpack.decode(value)[0]
    return kinds[number]


def tuples(value: Any) -> Any:
    """Fields that are lists read as tuples, and decimals as themselves."""
    return tuple(map(tuples, value)) if isinstance(value, list) else unpackable(value)


def _plain(value: Any) -> Any:
    """The same value as MessagePack has it."""
    if isinstance(value, tuple | list):
        return [_plain(v) for v in value]
    return packable(value) if isinstance(value, Decimal) else value
