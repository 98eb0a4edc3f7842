"""Whether the part of a program that decides which events fail later can be run ahead, where states decide (lowering/deciding.py).

That part has tables of its own. If all its steps that use them come equally long after their events, they come in the order of the events.
Then they can be run as events are read, long before their time (decider.py). If no step of an event has written to those tables before one
that fails, undoing the failed step is the same as taking the event out of the log.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from timelapse.analysis.result import PassProgram
from timelapse.kernels.lowered import lowered_pass, refused
from timelapse.kernels.native.unit import Column, Unit
from timelapse.model.program import Program, spec_of


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


def runs_ahead(decider: Unit) -> bool:
    """Whether what decides can be run as events are read. `decider`: the pass, which finds what fails later."""
    found = decider.deciding
    if isinstance(found, str) or decider.left or decider.ticks or found.kinds & decider.ticking.keys():
        return False
    lags = {_lag(decider, kind) for kind in found.uses}
    if len(lags) != 1 or not found.uses <= decider.later.keys() or not found.fails & decider.later.keys():
        return False
    (lag,), firsts = lags, set[int]()
    for kinds in in_order(decider).values():
        own = [kind for kind in kinds if kind in found.kinds]
        if not own:
            continue
        firsts.add(_lag(decider, kinds[0]))
        written = False
        for kind in own:
            if _lag(decider, kind) > lag or (written and kind in found.fails):
                return False
            written |= kind in found.writes
    head = 2 * len(decider.events)
    added = (n for own in found.adds for add in own for n in add.columns.values() if n >= head)
    return len(firsts) == 1 and is_read(decider.columns[n - head] for n in added)


def deciding_pass(program: Program, work: PassProgram) -> PassProgram | None:
    """What is to be run ahead of a final pass; None where that cannot be done, or is not needed."""
    called = any(use.what == "after" for use in spec_of(program).times)
    if not (called and work.takes_out) or work.decides or work.serial is not None:
        return None
    found = replace(work, takes_out=True, finds_late=True, decides=True, keeps=False, by_key=None)
    try:
        decider = lowered_pass(program, replace(found, decides=False, keeps=True), final=True)
        if not isinstance(decider.decided, str) or not runs_ahead(decider):
            return None
        unit = lowered_pass(program, found, final=True)
    except refused():
        return None
    return found if is_read(unit.columns) and unit.texts == decider.texts else None


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
