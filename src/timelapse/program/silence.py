"""How long a log may be without an event while ticks go on, or timers that start themselves again.

One event with a wrong date, in the year 2900, would have a tick for every period until then. A gap between two
events that is longer than the program allows is an error, of whatever types they are. How far `until=` moves the
clock on is asked for, and not looked at.
"""

from __future__ import annotations

import ast
import types
from collections.abc import Iterator
from functools import lru_cache

from timelapse.code.source import all_nodes, function_source
from timelapse.display import moment, span
from timelapse.errors import Place, SilentLog
from timelapse.ids import DAY
from timelapse.model.events import Event
from timelapse.program.program import Program, spec_of
from timelapse.program.times import calendar_of, is_derived


def goes_on(program: Program) -> bool:
    """Whether something of the program goes on without events: ticks, or a timer that starts itself again."""
    return any(h.every is not None for h in spec_of(program).handlers) or rearmed(type(program)) is not None


@lru_cache(maxsize=64)
def rearmed(program: type[Program]) -> tuple[type[Event], Place] | None:
    """The first event type whose handling sends one like it to a later time, directly or by way of others; and where.

    What is sent is seen where a handler, or a method that it calls, says `self.send(Type(...), after=...)`: what is not seen is not
    counted. Whether the timer really starts itself again each time is not asked.
    """
    sent: dict[type[Event], dict[type[Event], Place]] = {}
    for handler in program.__spec__.handlers:
        found = dict(_sends(program, handler.function, set()))
        for event in handler.events:
            sent.setdefault(event, {}).update(found)
    for event, own in sent.items():
        for other, place in own.items():
            if event in _reached(sent, other):
                return event, place
    return None


def _reached(sent: dict[type[Event], dict[type[Event], Place]], event: type[Event]) -> set[type[Event]]:
    found, todo = {event}, [event]
    while todo:
        new = set(sent.get(todo.pop(), ())) - found
        found |= new
        todo += new
    return found


def _sends(
    program: type[Program], function: types.FunctionType, seen: set[types.CodeType]
) -> Iterator[tuple[type[Event], Place]]:
    """The types of events that a method sends to another time, it and those of `self` that it calls."""
    source = function_source(function)
    if source.node is None or function.__code__ in seen:
        return
    seen.add(function.__code__)
    for node in all_nodes(source.node):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        name = node.func.attr
        if name == "send" and node.args and not is_derived(node):
            made = _named(function, node.args[0].func) if isinstance(node.args[0], ast.Call) else None
            if isinstance(made, type) and issubclass(made, Event):
                yield made, Place(source.file, node.lineno, f"{program.__name__}.{function.__name__}")
        elif isinstance(method := getattr(program, name, None), types.FunctionType):
            yield from _sends(program, method, seen)


def _named(function: types.FunctionType, node: ast.expr) -> object:
    """What a name, or names with dots, stands for in a function; None where that is not seen."""
    if isinstance(node, ast.Attribute):
        return getattr(_named(function, node.value), node.attr, None)
    if not isinstance(node, ast.Name):
        return None
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    if node.id in cells:
        return cells[node.id].cell_contents
    return function.__globals__.get(node.id)


def is_silent(program: Program, before: int, at: int) -> bool:
    """Whether the gap between two events, at these times, is longer than ticks and timers may go on."""
    return at - before > spec_of(program).gap and goes_on(program)


def silent(program: Program, before: int, event: str, at: int, seq: int) -> SilentLog:
    """The error for a gap before an event of the type `event`."""
    ticks, timer = count_ticks(program, before, at), rearmed(type(program))
    what = [f"{ticks:,} ticks with no event between them"] if ticks else []
    if timer is not None:
        what.append(
            f"{timer[0].__name__}, a timer that may start itself again ({timer[1]}), would go on until then"
        )
    error = SilentLog(
        f"{event} at {moment(at)} (ts {at}, seq {seq}) comes {span(at - before)} after the event before it, at "
        f"{moment(before)}: {'; '.join(what)}",
        hint=f"is the time of that event right? If not, leave it out: --without FILE with {seq} in it. If so, "
        + allowing(program, before, at),
    )
    error.event, error.ts, error.before = event, at, before
    return error


def allowing(program: Program, before: int, at: int) -> str:
    """What to do so that there may be a gap between two times."""
    return (
        f"allow such gaps: class {spec_of(program).name}(tl.Program, gap={-(-(at - before) // DAY)} * tl.DAY)"
    )


def count_ticks(program: Program, after: int, to: int) -> int:
    """How many ticks there are after one time, up to another: exactly in UTC, within a few in other zones."""
    calendars = [calendar_of(program, h) for h in spec_of(program).handlers if h.every is not None]
    return sum(calendar.about(after, to) for calendar in calendars)
