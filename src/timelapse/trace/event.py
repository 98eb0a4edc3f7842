"""One event of a run, done again under observation: `trace.event(run, seq)`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from timelapse.ids import Phase
from timelapse.kernels.walk import Moment
from timelapse.model.decimals import in_usual_context
from timelapse.model.events import Event
from timelapse.progress import Progress
from timelapse.results.stored import StoredRun
from timelapse.trace import timed
from timelapse.trace.knowledge import Uncompiled, Unfocused
from timelapse.trace.likely import Guess
from timelapse.trace.logged import events_at, reader_of
from timelapse.trace.moments import Past
from timelapse.trace.steps import EventTrace
from timelapse.trace.tracer import Tracer
from timelapse.trace.ways import TooLong, answered
from timelapse.trace.whole import past_of


def event(run: StoredRun, seq: int) -> EventTrace:
    """What the run did at one log event: every read, condition, write and record, from the states that it met.

    The slice that holds the event is run again up to it, compiled where the run was; the event itself runs as Python
    that tells what it does. What it puts out must be what the run has put out. Raises RunError when there is no
    such event, or program or log are not to be had; ReplayError where the outcome differs.
    """
    return events(run, [seq])[seq]


@in_usual_context
def events(run: StoredRun, seqs: Iterable[int], *, progress: Progress | None = None) -> dict[int, EventTrace]:
    """The same for several events, by seq: each slice is run once. `progress` is told how far that is."""
    wanted, tracer, past = sorted(set(seqs)), Tracer(run), past_of(run, progress)
    if not wanted:
        return {}
    return answered(
        past, wanted[-1] + 1, lambda way: _stepped(run, tracer, way, wanted), lambda: trace_all(past, tracer, wanted)[0]
    )  # fmt: skip


def _stepped(run: StoredRun, tracer: Tracer, way: timed.Way, wanted: Sequence[int]) -> dict[int, EventTrace]:
    """The same for a program that reaches into other times."""
    events_at(reader_of(run), run.need_program(), wanted)  # or an error for one that is not there
    seqs = set(wanted)
    told = way.observed(
        tracer, timed.Target(tuple(wanted)), lambda: lambda s: s.phase == Phase.LOG_EVENT and s.root in seqs,
        lambda found: len(found) == len(seqs),
    )  # fmt: skip
    return {step.root: trace for step, trace in told}


Place = tuple[int, int, int]
"""A step's time, phase and root."""


@in_usual_context
def steps(
    run: StoredRun, places: Iterable[Place], *, most: int | None = None
) -> tuple[dict[Place, EventTrace], set[Place]]:
    """The same for steps that need not be log events: ticks, dated events, calls of `after=` handlers. And what was left out.

    Several steps at one place are told as one. `most`: what only the serial loop tells is left out if the log has more events.
    """
    traces: dict[Place, EventTrace] = {}
    wanted = sorted(set(places))
    if not wanted:
        return traces, set()
    past, tracer = past_of(run), Tracer(run)
    ticks = sorted({ts for ts, phase, _ in wanted if phase == Phase.TICK})
    targets = [timed.Target((), ts, ts + 1) for ts in ticks]
    others = [place for place in wanted if place[1] != Phase.TICK]
    if others:
        seqs = {root for _, _, root in others if root >= 0}
        targets.append(timed.Target(tuple(sorted(seqs)), None, max(ts for ts, _, _ in others) + 1))
    left: list[Place] = []
    told: list[timed.Told] = []
    for target in targets:
        own = [p for p in wanted if p[1] == Phase.TICK and p[0] == target.tick] or others
        try:
            told += answered(past, past.first_after(target), _seen_at(tracer, target, own), _nowhere, most=0)
        except TooLong:
            left += own
    if left and (most is None or run.events <= most):
        target = timed.Target(before=max(ts for ts, _, _ in left) + 1)
        told += _seen_at(tracer, target, left)(timed.All(run))
        left.clear()
    for step, trace in told:
        place = _place_of(step)
        before = traces.get(place)
        traces[place] = trace if before is None else replace(
            before, handlers=before.handlers + trace.handlers, outputs=before.outputs + trace.outputs,
            rejected=before.rejected or trace.rejected,
        )  # fmt: skip
    return traces, set(left)


def _place_of(step: timed.Step) -> Place:
    return step.ts, int(step.phase), step.root


def _seen_at(
    tracer: Tracer, target: timed.Target, places: Sequence[Place]
) -> Callable[[timed.Way], list[timed.Told]]:
    """Asks a way for the steps of a target that stand at some places."""
    wanted = set(places)
    return lambda way: way.observed(
        tracer, target, lambda: lambda s: _place_of(s) in wanted, lambda found: False
    )


def _nowhere() -> list[timed.Told]:
    """Slices alone do not tell steps apart that are no log events."""
    raise Uncompiled("it is no event of the log")


def trace_all(
    past: Past, tracer: Tracer, wanted: Sequence[int], *, guessing: bool = False
) -> tuple[dict[int, EventTrace], Guess | None]:
    """The same for ascending seqs, with what is there already. Raises Uncompiled.

    `guessing`: where a slice has to be gone through, it is guessed on the way who wrote what the events read. Only
    that of one slice is kept: events are asked about that are near to one another.
    """
    found = events_at(past.reader, past.program, wanted)
    traces: dict[int, EventTrace] = {}
    guess: Guess | None = None
    for slice_id, stops in past.by_slice(wanted):
        visit = partial(_visit, found, tracer, traces, slice_id)
        try:
            past.focus_on(stops).walk(stops, partial(visit, None))
            guess = None
        except Unfocused:
            guess = Guess(past, [found[s] for s in stops]) if guessing else None
            also = () if guess is None else guess.stops
            places = () if guess is None else guess.places
            at = [found[s] for s in stops]
            past.walk(
                slice_id, sorted({*stops, *also}), partial(visit, guess),
                places=None if past.chooses else places, events=at,
            )  # fmt: skip
    return traces, guess


def _visit(
    events: Mapping[int, Event], tracer: Tracer, traces: dict[int, EventTrace], slice_id: int, guess: Guess | None,
    moment: Moment,
) -> bool:  # fmt: skip
    """Trace the event where a walk has stopped, if it is one of those that are asked about."""
    if guess is not None:
        guess.visit(moment)
    event = events.get(moment.seq)
    if event is not None:
        traces[event.seq], done = tracer.trace(event, moment, slice_id)
        return done
    return False


__all__ = ["Place", "event", "events", "steps"]
