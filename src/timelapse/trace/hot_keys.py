"""Which keys a program's states are used under most: what makes some of them hot."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from timelapse.program.program import Program, as_program, spec_of
from timelapse.segments.profile import HotKey, HotKeys, HotState
from timelapse.trace.critical import accesses_over

MOST = 10
"""So many keys are told of a state."""


def hot_keys(
    program: Program | type[Program], log: Any, *, events: int | None = None, advance: Callable[[int], None] = lambda events: None
) -> HotKeys:  # fmt: skip
    """The keys that a program uses most over the first events of a log (`events`: how many, 0 for all): operations on them, read or write.

    The program runs as the serial loop. Raises UsageError for a negative number, HandlerError for a handler's exception.
    """
    bound = as_program(program)
    found, total = accesses_over(bound, log, events=events, advance=advance)
    used: Counter[int] = Counter()
    every: Counter[int] = Counter()
    operations: Counter[int] = Counter()
    for step in found.steps:
        for access in step.accesses:
            operations[access.state] += 1
            if access.place < 0:
                every[access.state] += 1
            else:
                used[access.place] += 1
    states = []
    for number, name in enumerate(found.states):
        own = [(place, used[place]) for place in used if found.places[place].state == number]
        top = sorted(((found.text(p, number), n) for p, n in own), key=lambda row: (-row[1], row[0]))[:MOST]
        states.append(
            HotState(name, operations[number], len(own), every[number], tuple(HotKey(k, n) for k, n in top))
        )
    return HotKeys(spec_of(bound).name, found.events, total, tuple(states))
