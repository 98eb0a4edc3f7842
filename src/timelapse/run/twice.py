"""Whether handlers are what a replay takes them for: a sample of events is processed twice, on the same state, and compared.

Analysis trusts calls that it cannot see through to depend on their arguments alone, and closures and objects to keep nothing
from event to event. What differs the second time breaks that, however the handlers are run: compiled, or as columns that Python
computes beforehand. The serial loop does it, over the first events of the log, so the states are those that they really meet.

Each event is processed twice at once, and the whole sample once more from its beginning: what an object that outlives the events
keeps of an event (`seen[e.who] = 1`) may leave the second time as it was the first, and still be there when the sample begins again.
"""

from __future__ import annotations

import time
from typing import Any

from timelapse.analysis import Analysis
from timelapse.errors import HandlerError, ImpureProgram, Place
from timelapse.model.decimals import in_usual_context
from timelapse.model.events import Event
from timelapse.program.program import Program, spec_of
from timelapse.program.times import calendar_of
from timelapse.segments.reader import EventReader
from timelapse.segments.types import heard
from timelapse.serial import Loop

SAMPLE = 256
"""Events, at most, that are processed twice."""
_SEEN = 32
"""The same where analysis trusts nothing: then it is analysis itself that is checked."""
_SECONDS = 0.14
"""No further event is begun after so long in handlers, without the first event's, which may have to import. Slow handlers get a
smaller sample. To process it from its beginning takes half as long again."""
_TICKS = 64
"""So many ticks between two events are too many to be part of a sample."""


@in_usual_context
def run_twice(program: Program, analysis: Analysis, reader: EventReader) -> int:
    """Process the log's first events twice, and return how many. Raises ImpureProgram (TL113) at the first difference.

    An event at which the handlers raise counts as well: they have to raise the same.
    """
    spec = spec_of(program)
    calendars = [calendar_of(program, h) for h in spec.handlers if h.every is not None]
    classes = {cls.__name__: cls for cls in heard(spec, reader.types)}
    most = SAMPLE if analysis.trusted else min(SAMPLE, _SEEN)
    end = reader.seq_after(min(most, reader.count))
    loops = Loop(program), Loop(program)
    spent, last, begin = 0.0, reader.ts_first, reader.ts_first
    sample: list[tuple[Event, _Effects]] = []
    for event in reader.events(0, end, classes):
        if last is not None and any(_many(c, last, event.ts) for c in calendars):
            break
        if not sample and last is not None:
            for loop in loops:
                loop.begin(last)
        last = event.ts
        began = time.perf_counter()
        first, second = (_effects(loop, event) for loop in loops)
        spent += time.perf_counter() - began if sample else 0.0
        if (what := _difference(first, second)) is not None:
            raise _differs(program, analysis, event, "on the same state", *what)
        sample.append((event, first))
        if spent > _SECONDS:
            break
    _begin_again(program, analysis, sample, begin)
    return len(sample)


def _begin_again(
    program: Program, analysis: Analysis, sample: list[tuple[Event, _Effects]], begin: int | None
) -> None:
    """Process the sample from its beginning, and compare what each event gave and the states at the end."""
    loop = Loop(program)
    if begin is not None:
        loop.begin(begin)
    for n, (event, first) in enumerate(sample, 1):
        given = _effects(loop, event)
        of = (
            first if n == len(sample) else {name: first[name] for name in _GIVEN}
        )  # tables are live, and so the last
        if (what := _difference(of, given)) is not None:
            again = f"after all of the first {len(sample)} events had been processed once"
            raise _differs(program, analysis, event, again, *what)


def _many(calendar: Any, at: int, to: int) -> bool:
    for _ in range(_TICKS):
        at = calendar.after(at)
        if at > to:
            return False
    return True


_Effects = dict[str, Any]
"""What an event did, by what it is called in messages."""
_GIVEN = ("raises", "rejects", "emits")


def _effects(loop: Loop, event: Event) -> _Effects:
    outcome = loop.outcome
    outputs, refused = len(outcome.outputs), len(outcome.refused)
    raised = ""
    try:
        loop.step(event)
    except HandlerError as failure:
        raised = failure.cause
    return {
        "raises": raised, "rejects": outcome.refused[refused:], "emits": outcome.outputs[outputs:],
        **{f"leaves {name}": table for name, table in outcome.states.items()},
    }  # fmt: skip


def _difference(first: _Effects, second: _Effects) -> tuple[str, str, str] | None:
    """What differs, and how it was the first and the second time."""
    for name, one in first.items():
        other = second[name]
        if one == other or repr(one) == repr(other):  # NaN is not equal to itself
            continue
        if isinstance(one, dict):
            key = next((k for k in {**one, **other} if repr(one.get(k)) != repr(other.get(k))), None)
            if key is None:  # another order, and NaN
                continue
            where = name if key == () else f"{name}[{key!r}]"
            return where, repr(one.get(key)), repr(other.get(key))
        if isinstance(one, list):
            pairs = zip([*one, *[None] * len(other)], [*other, *[None] * len(one)], strict=False)
            a, b = next(p for p in pairs if repr(p[0]) != repr(p[1]))
            return name, _shown(a), _shown(b)
        return name, one or "nothing", other or "nothing"
    return None


def _shown(found: Any) -> str:
    return "nothing" if found is None else repr(getattr(found, "record", getattr(found, "reason", found)))


def _differs(
    program: Program, analysis: Analysis, event: Event, again: str, what: str, first: str, second: str
) -> ImpureProgram:
    spec = spec_of(program)
    handlers = [h for h in spec.handlers if type(event) in h.events and h.after is None]
    names = {f"{spec.name}.{h.name}" for h in handlers}
    calls = [t for t in analysis.trusted if t.place.what in names] or list(analysis.trusted)
    state = what.removeprefix("leaves ").partition("[")[0]
    writes = [w.place for w in analysis.facts[state].writes] if state in analysis.facts else []
    places: list[Place] = [c.place for c in calls] or writes or [h.place for h in handlers]
    suspects = ", ".join(
        dict.fromkeys(f"{c.message.split(' is trusted')[0]} (line {c.place.line})" for c in calls)
    )
    by = (
        f"; not analysed, and so suspect: {suspects}"
        if suspects
        else "; a closure, an object or an iterator keeps something"
    )
    return ImpureProgram(
        f"{' and '.join(sorted(names)) or spec.name} did something else when the same event was processed again {again}: "
        f"it {what} {first} the first time and {second} the second, at {event!r}{by}",
        place=places[0] if places else None, code="TL113",
        hint="what it keeps or draws must be a declared state, a parameter, or derived from the event. "
        "allow_impure=True (--allow-impure) replays all the same",
    )  # fmt: skip
