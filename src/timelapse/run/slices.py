"""Where a log is cut into slices, and into how many where nobody says."""

from __future__ import annotations

import itertools

from timelapse.analysis.result import PassProgram
from timelapse.env.machine import state_memory
from timelapse.errors import UsageError
from timelapse.kernels.choose import choice
from timelapse.log.reader import EventReader
from timelapse.model.program import Program, spec_of
from timelapse.plan import Plan
from timelapse.plan.schedule import cuts_at

_INTERPRETED_EVENTS = 1_000_000
"""Events per slice whose handlers run as Python: what it puts out is Python objects until its end."""

_COMPILED_EVENTS = 4_000_000
"""Events per slice of a compiled pass: at each slice's end, the keys that it wrote are sorted and written out."""

_KEY_BYTES = 128
"""What an event may add to each state's table at most, if it touches one key of it: a row, half of the rows free."""

_UNEVEN_EVENTS = 100_000
"""From this many events on the sizes of slices are chosen, and how many lead."""

_FINE = 4096
"""Boundaries are chosen among those of so many even parts."""


def least_slices(program: Program, final: PassProgram, events: int, memory: int | None) -> int:
    """So many slices that none is too large to hold.

    The keys that a slice touches stay in memory until its end, so there are at most so many of them as fit
    into `memory` bytes (None: what this machine has for a task's states), whatever the size of the whole state.
    """
    most = max(
        1,
        (state_memory() if memory is None else memory) // (_KEY_BYTES * max(1, len(spec_of(program).states))),
    )
    if events <= min(most, _INTERPRETED_EVENTS):
        return 1
    usual = _COMPILED_EVENTS if choice(program, final, final=True).compiled else _INTERPRETED_EVENTS
    return -(-events // min(usual, most))


def default_slices(least: int, cores: int, plan: Plan) -> int:
    """Number of slices where nobody says: enough for all cores, and at least so many that each can be held."""
    return least if plan.mode != "staged" else max(plan.slices(cores), least)


def cut(reader: EventReader, slices: int, plan: Plan) -> tuple[list[int], int]:
    """Slice boundaries, and how many slices lead. Slices of a staged run are not even if that is faster."""
    even = cuts(reader, slices)
    count = len(even) - 1
    if plan.mode != "staged" or count < 2:
        return even, 0
    if reader.count < _UNEVEN_EVENTS:
        return even, plan.lead or 0
    found = plan.arrange(count)
    return cuts_at(cuts(reader, _FINE), found.shares), found.lead


def cuts(reader: EventReader, slices: int) -> list[int]:
    """Slice boundaries; never more slices than events, and no empty one."""
    if slices < 1:
        raise UsageError(f"slices must be at least 1, not {slices}", code="TL810")
    found = reader.cuts(max(1, min(slices, reader.count)))
    return [found[0], *(b for a, b in itertools.pairwise(found) if b > a)] if reader.count else found
