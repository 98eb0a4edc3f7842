"""How long a log may be without an event while ticks go on.

One event with a wrong date, in the year 2900, would have a tick for every period until then. A gap between two
events that is longer than the program allows is an error, of whatever types they are. How far `until=` moves the
clock on is asked for, and not looked at.
"""

from __future__ import annotations

from timelapse.display import moment, span
from timelapse.errors import SilentLog
from timelapse.ids import DAY
from timelapse.model.program import Program, spec_of
from timelapse.model.times import calendar_of


def has_ticks(program: Program) -> bool:
    """Whether the program has handlers that the calendar calls."""
    return any(h.every is not None for h in spec_of(program).handlers)


def is_silent(program: Program, before: int, at: int) -> bool:
    """Whether the gap between two events, at these times, is longer than ticks may go on."""
    return at - before > spec_of(program).gap and has_ticks(program)


def silent(program: Program, before: int, event: str, at: int, seq: int) -> SilentLog:
    """The error for a gap before an event of the type `event`."""
    spec = spec_of(program)
    ticks = count_ticks(program, before, at)
    return SilentLog(
        f"{event} at {moment(at)} (ts {at}, seq {seq}) comes {span(at - before)} after the event before it, at "
        f"{moment(before)}: {ticks:,} ticks with no event between them",
        hint=f"is the time of that event right? Leave it out where it is not (--without FILE with {seq} in it), or "
        f"allow such gaps: class {spec.name}(tl.Program, gap={-(-(at - before) // DAY)} * tl.DAY)",
    )  # fmt: skip


def count_ticks(program: Program, after: int, to: int) -> int:
    """How many ticks there are after one time, up to another: exactly in UTC, within a few in other zones."""
    calendars = [calendar_of(program, h) for h in spec_of(program).handlers if h.every is not None]
    return sum(calendar.about(after, to) for calendar in calendars)
