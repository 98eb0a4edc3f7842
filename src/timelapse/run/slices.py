"""Where a log is cut into slices, and into how many where nobody says."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from timelapse.analysis.result import PassProgram
from timelapse.engine.portions import python_bytes
from timelapse.env import machine
from timelapse.errors import UsageError
from timelapse.kernels.choose import runs_compiled
from timelapse.kernels.native.lowered import event_bytes
from timelapse.log.part import PartReader, rank
from timelapse.plan import Plan
from timelapse.plan.schedule import cuts_at
from timelapse.program.program import Program, spec_of
from timelapse.run.tuning import USUAL, Tuning
from timelapse.segments.reader import EventReader, LogReader

_CARRIED = 2
"""Where there are several slices, one gets this part of the memory: the rest is for states that are carried on."""

_NEAR = 1 / 8

_FINE = 4096
"""Boundaries are chosen among those of so many even parts."""


def least_slices(
    program: Program,
    final: PassProgram,
    events: int,
    memory: int | None,
    tasks: int = 1,
    tuning: Tuning = USUAL,
) -> int:
    """So many slices that none is too large to hold where `tasks` of them run at a time.

    The keys that a slice touches stay in memory until its end, and so does what it puts out. So a slice has at most so
    many events as fit with all that into `memory` bytes (None: a task's budget here), whatever the size of the whole state.
    """
    if memory is None:
        memory = task_memory(tasks)
    interpreted = python_bytes(len(spec_of(program).states))
    if events <= min(memory // interpreted, tuning.interpreted_events):
        return 1
    first, each = (event_bytes(program, final, mapped=mapped) for mapped in (False, True))
    most = tuning.compiled_events
    if first is None or each is None:
        first = each = interpreted
        most = tuning.interpreted_events
    elif not runs_compiled(program, final, events // tasks, final=True, tuning=tuning.kernels):
        first = each = interpreted
    if events <= min(most, memory // max(1, first)):
        return 1
    return -(-events // max(1, min(most, memory // _CARRIED // max(1, each))))


def task_memory(tasks: int) -> int:
    """A task's budget on this machine where nobody says, and `tasks` of them run at a time."""
    return machine.state_memory() * machine.cores() // tasks


def default_slices(least: int, cores: int, plan: Plan) -> int:
    """Number of slices where nobody says: enough for all cores, and at least so many that each can be held."""
    return least if plan.mode != "staged" else max(plan.slices(cores), least)


def cut(
    reader: EventReader, slices: int, plan: Plan, since: int = 0, *, tuning: Tuning = USUAL
) -> tuple[list[int], int]:
    """Slice boundaries, and how many slices lead. Slices of a staged run are not even if that is faster. In a log whose segments are cut by
    time a boundary stands where a period begins, if that is near.

    The first `since` events are in slices already.
    """
    even = cuts(reader, slices, since)
    count = len(even) - 1
    if plan.mode != "staged" or count < 2:
        return _at_periods(reader, even), 0
    if reader.count - since < tuning.uneven_events:
        return _at_periods(reader, even), plan.lead or 0
    found = plan.arrange(count, apart=True)
    return _at_periods(reader, cuts_at(cuts(reader, _FINE, since), found.shares)), found.lead


def _at_periods(reader: EventReader, found: list[int]) -> list[int]:
    """Boundaries, those inside moved to where a period of the log's segments begins, by less than `_NEAR` of the slices on both sides: a slice
    then reads files of its own, and late rows of an earlier period leave it as it is."""
    whole = reader.base if isinstance(reader, PartReader) else reader
    if len(found) < 3 or not isinstance(whole, LogReader) or whole.excluded:
        return found
    starts = np.asarray(whole.period_starts(), np.int64)
    moved = [found[0]]
    for before, at, after in zip(found, found[1:], found[2:], strict=False):
        near = int(starts[np.abs(starts - at).argmin()]) if len(starts) else at
        moved.append(near if abs(near - at) < _NEAR * min(at - before, after - at) else at)
    return [*moved, found[-1]]


def cut_behind(
    reader: EventReader,
    known: Sequence[int],
    slices: int,
    plan: Plan,
    least: int,
    *,
    exactly: bool,
    starts: bool,
    tuning: Tuning = USUAL,
) -> tuple[list[int], int] | None:
    """Boundaries of slices of which the first are given, and how many lead behind these; None where they are of no use.

    `known`: where these begin, and where the last of them ends. `slices`: how many the whole log would have, `least`: at least; `exactly`:
    so many it is to have. `starts`: whether all is known that these slices begin with, and not only what they change.
    """
    if plan.mode == "by key" or (plan.last.logs and (plan.mode != "staged" or not starts)):
        return None  # events are shared out among threads; what windows have seen is not there
    known = list(known[:slices] if exactly else known)
    while len(known) > 1 and (events := rank(reader, known[-1])) >= reader.count:
        known.pop()
    first = len(known) - 1
    if not first or first * reader.count < (least - 1) * events:
        return None
    left = slices - first if exactly else -(-slices * (reader.count - events) // reader.count)
    found, lead = cut(reader, left, plan, events, tuning=tuning)
    return [*known, *found[1:]], lead


def in_one_task(reader: EventReader, slices: int, plan: Plan, tuning: Tuning = USUAL) -> bool:
    """Whether one task takes all slices, each of which goes on with the states as the one before left them: where none has a pass ahead
    that is worth it. Of small logs nobody asks what is."""
    if plan.lead is None and reader.count < tuning.uneven_events:
        return False
    return plan.hands_on and plan.arrange(slices).lead >= slices - 1


def cut_in_runs(
    reader: EventReader, slices: int, runs: int, plan: Plan, tuning: Tuning = USUAL
) -> tuple[list[int], int, tuple[int, ...]]:
    """Boundaries of more slices than tasks run at a time, each of which takes several, one after the other: then start
    states have to be found for so many `runs` only. Also how many of these lead, and the slices at which they begin."""
    whole, lead = cut(reader, runs, plan, tuning=tuning)
    fine = cuts(reader, _FINE)
    count = len(whole) - 1
    found, begins = [whole[0]], []
    for at, (lo, hi) in enumerate(itertools.pairwise(whole)):
        begins.append(len(found) - 1)
        left, others = slices - len(found) + 1, count - 1 - at
        own = max(1, min(round(left * (hi - lo) / max(1, whole[-1] - lo)), left - others))
        inside = [seq for seq in fine if lo < seq < hi]
        own = min(own, len(inside) + 1)
        found += [inside[(len(inside) + 1) * n // own - 1] for n in range(1, own)]
        found.append(hi)
    return found, lead, tuple(begins)


def spans(
    reader: EventReader, slices: int, plan: Plan, cores: int, least: int, tuning: Tuning = USUAL
) -> int:
    """How many tasks take so many slices, where each may take several, one after the other; at least so many that each can be held.

    One, where it goes on with the states as each slice leaves them. Two, where halves one after the other are quicker than tasks on all cores: both
    are run by final passes only, which hold no more than a slice at a time.
    """
    if in_one_task(reader, slices, plan, tuning):
        return 1
    found, halves = max(cores, least, 2), plan.arrange(2, apart=True)
    if halves.lead and halves.seconds <= plan.arrange(found, apart=True).seconds:
        found = 2
    return min(found, slices)


def check_slices(slices: int) -> None:
    """Raises UsageError where somebody asks for less than one slice."""
    if slices < 1:
        raise UsageError(
            f"slices= (--slices) is {slices}", hint="1 or more; without it the number is chosen by size and cores", code="TL810"
        )  # fmt: skip


def cuts(reader: EventReader, slices: int, since: int = 0) -> list[int]:
    """Slice boundaries; never more slices than events, and no empty one."""
    check_slices(slices)
    left = reader.count - since
    count = max(1, min(slices, left))
    found = (
        [reader.seq_after(since + left * n // count) for n in range(count + 1)]
        if since
        else reader.cuts(count)
    )
    return [found[0], *(b for a, b in itertools.pairwise(found) if b > a)] if left else found
