"""Whether the part of a program that decides which events fail later can be run ahead, where states decide (lowering/deciding.py).

That part has tables of its own. It is run over the same steps as the whole program, some lags ahead of it, and goes back to before an event
of which a step has failed (decider.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from timelapse.analysis.result import PassProgram
from timelapse.kernels.native.lowered import lowered_pass, refused
from timelapse.kernels.native.lowering.unit import Column, Unit
from timelapse.program.program import Program, spec_of


def in_order(unit: Unit) -> dict[str, list[int]]:
    """For each event type the kinds of its steps, in the order in which they come: its own step, if it has one, then its calls."""
    found: dict[str, list[int]] = {}
    for kind in sorted(range(len(unit.events)), key=lambda n: (_lag(unit, n), n)):
        if kind not in unit.ticking:
            found.setdefault(unit.events[kind].__name__, []).append(kind)
    return found


def _lag(unit: Unit, kind: int) -> int:
    return unit.later[kind].lag if kind in unit.later else -1


def is_read(columns: Iterable[Column]) -> bool:
    """Whether columns are at hand as events are read. Columns that Python computes from each event would be computed twice."""
    return all(column.computed is None and column.part in ("", "valid") for column in columns)


def deciding_pass(program: Program, work: PassProgram) -> PassProgram | None:
    """What is to be run ahead of a final pass; None where that cannot be done, or is not needed."""
    called = any(use.what == "after" for use in spec_of(program).times)
    if not (called and work.takes_out) or work.decides or work.serial is not None:
        return None
    found = replace(work, takes_out=True, finds_late=True, decides=True, keeps=True, by_key=None)
    try:
        whole = lowered_pass(program, replace(found, decides=False), final=True)
        decided, deciding = whole.decided, whole.deciding
        if not isinstance(decided, str) or isinstance(deciding, str) or whole.left or whole.ticks:
            return None
        if deciding.kinds & whole.ticking.keys() or not deciding.fails & whole.later.keys():
            return None
        unit = lowered_pass(program, found, final=True)
    except refused():
        return None
    return found if is_read(unit.columns) and unit.texts == whole.texts else None


def deciding_alone(program: Program, work: PassProgram, whole: Unit) -> tuple[PassProgram, Unit] | None:
    """The part of a final pass that decides, which is run to find the events that fail late, many at a time (together.py). `whole`: the pass
    that finds them. None where that cannot be done, or is not needed."""
    found = whole.deciding
    if not isinstance(whole.decided, str) or isinstance(found, str) or whole.left or whole.ticks:
        return None
    if not whole.later or found.kinds & whole.ticking.keys():
        return None
    left = replace(work, takes_out=True, finds_late=True, decides=True, keeps=False, by_key=None)
    try:
        return left, lowered_pass(program, left, final=True)
    except refused():
        return None


def with_deciding(
    program: Program, passes: Iterable[tuple[PassProgram, int, bool]]
) -> Iterator[tuple[PassProgram, int, bool]]:
    """Passes (with their number of events, and whether final), and what is run ahead of them."""
    for work, events, final in passes:
        yield work, events, final
        if final and (found := deciding_pass(program, work)) is not None:
            yield found, events, final
