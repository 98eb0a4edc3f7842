"""The first lines of an explanation: how a replay runs, what it takes, and what would make it faster."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from timelapse.display import foretold, many
from timelapse.plan.strategy import Strategy

if TYPE_CHECKING:
    from timelapse.explanation.model import Explanation, StateRow

_SMALL = 10.0
"""Where a replay takes so many times the serial loop's time, starting it is what takes the time: ratios tell nothing then."""


def summary(e: Explanation) -> list[tuple[str, str]]:
    """What a reader wants first: a word, and what there is to say under it."""
    return [(word, text) for word, text in _lines(e) if text]


def _lines(e: Explanation) -> Iterator[tuple[str, str]]:
    yield "replay", f"{_how(e)}{_compiled(e)}"
    yield "time", time_text(e)
    yield "states", _states(e)
    yield "quarantine", f"what fails after its event's own time is found {e.late}" if e.late else ""
    yield "advice", _advice(e)
    yield "warnings", _warnings(e)


def _how(e: Explanation) -> str:
    if e.mode == "by key":
        return "one pass, events shared out by key"
    if e.mode == "chain":
        return "one pass in log order" if e.slices in (None, 1) else "slice after slice, in log order"
    if not e.stages:
        return "time slices, all at once"
    return f"time slices, all at once after {many(e.stages, 'pass', 'passes')} for the states that they start with"


def _compiled(e: Explanation) -> str:
    # The final pass is all that runs where nothing has to be found before it.
    run = [p for p in e.passes if p.kernel and (p.stage is None or e.mode == "staged")]
    done = sum(p.kernel == "compiled" for p in run)
    if not run:
        return ""
    if done == len(run):
        return "; compiled"
    why = next(p.why for p in run if p.kernel != "compiled")
    how = "as Python" if done == 0 else f"{done} of {many(len(run), 'pass', 'passes')} compiled"
    return f"; {how}: {why}"


def time_text(e: Explanation) -> str:
    """What a replay is predicted to take: where a log is known the seconds that a user waits, and what they are made of."""
    cores = f"on {many(e.cores, 'core', 'cores')}"
    if e.slices:
        cores += f", {many(e.slices, 'slice', 'slices')}"
    if e.seconds is None:
        return f"{e.ratio:.2f} of the serial time {cores}, for a large log"
    known = sum(n for n in e.events.values() if n is not None)
    around = f"around them {foretold(e.around + e.process)}: {'start, ' if e.process else ''}planning, files"
    if e.plan.law.compiled:
        around += ", loading of machine code"
    if e.to_compile:
        around += "; the first such replay also waits for the compiler, some seconds"
    passes = f"passes {foretold(e.seconds)}"
    if of_use(e):
        passes += f" ({e.ratio:.2f} of the serial time)"
    whole = e.seconds + e.around + e.process
    return f"about {foretold(whole)} {cores} for {many(known, 'event', 'events')}: {passes}, {around}"


def of_use(e: Explanation) -> bool:
    """Whether times relative to the serial loop tell something."""
    return e.seconds is None or e.ratio < _SMALL


def _states(e: Explanation) -> str:
    if not e.states:
        return "none: every slice runs by itself"
    found = Counter(row.strategy for row in e.states)
    parts = [f"{found[s.value]} {s.value}" for s in Strategy if found[s.value]]
    return f"{len(e.states)}: {', '.join(parts)}"


def _advice(e: Explanation) -> str:
    named = [row for row in e.states if row.rewrite is not None]
    if not named:
        return ""
    names = ", ".join(row.state for row in named)
    return f"{names} would be faster if written otherwise"


def _warnings(e: Explanation) -> str:
    found = Counter(note.severity for note in e.diagnostics)
    parts = [many(found[s], s, f"{s}s") for s in ("error", "warning") if found[s]]
    return f"{' and '.join(parts)}, below" if parts else ""


def advice_at(e: Explanation) -> dict[str, tuple[str, ...]]:
    """The states under which a rewrite is told, with those that it is for: once for all that depend on one another."""
    groups: dict[tuple[tuple[str, ...], str], list[StateRow]] = {}
    for row in e.states:
        if row.rewrite is not None:
            groups.setdefault((row.component or (row.state,), row.rewrite), []).append(row)
    return {rows[-1].state: tuple(row.state for row in rows) for rows in groups.values()}


def because_of(e: Explanation) -> dict[str, str]:
    """Why each state has its strategy. Of states that depend on one another what holds for several is said at the first."""
    told: dict[tuple[tuple[str, ...], str], str] = {}
    found = {}
    for row in e.states:
        first = told.setdefault((row.component or (row.state,), row.because), row.state)
        found[row.state] = row.because if first == row.state else f"as {first}"
    return found
