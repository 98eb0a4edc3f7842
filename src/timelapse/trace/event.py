"""One event of a run, done again under observation: `trace.event(run, seq)`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from timelapse.errors import RunError
from timelapse.ids import Phase
from timelapse.kernels.walk import Moment
from timelapse.log.reader import EventReader
from timelapse.log.rows import row_maker
from timelapse.log.types import bind as bind_types
from timelapse.log.types import heard
from timelapse.model.events import Event
from timelapse.model.program import Program, spec_of
from timelapse.run.run import Run
from timelapse.run.takeout import reader_without
from timelapse.trace import timed
from timelapse.trace.knowledge import Unfocused
from timelapse.trace.likely import Guess
from timelapse.trace.moments import Past
from timelapse.trace.steps import EventTrace
from timelapse.trace.tracer import Tracer
from timelapse.trace.whole import Uncompiled, past_of


def event(run: Run, seq: int) -> EventTrace:
    """What the run did at one log event: every read, condition, write and record, from the states that it met.

    The slice that holds the event is run again up to it, compiled where the run was; the event itself runs as Python
    that tells what it does. What it puts out must be what the run has put out. Raises RunError when there is no
    such event, or program or log are not to be had; ReplayError where the outcome differs.
    """
    return events(run, [seq])[seq]


def events(run: Run, seqs: Iterable[int]) -> dict[int, EventTrace]:
    """The same for several events, by seq: each slice is run once."""
    wanted = sorted(set(seqs))
    tracer = Tracer(run)
    try:
        return trace_all(past_of(run), tracer, wanted)[0]
    except Uncompiled:
        return stepped(run, tracer, wanted)


def stepped(run: Run, tracer: Tracer, wanted: Sequence[int]) -> dict[int, EventTrace]:
    """The same for a program that reaches into other times: by the serial loop, from the log's beginning."""
    events_at(reader_of(run), run.need_program(), wanted)  # or an error for one that is not there
    seqs = set(wanted)
    told = timed.All(run).observed(
        tracer, timed.Target(tuple(wanted)), lambda: lambda s: s.phase == Phase.LOG_EVENT and s.root in seqs,
        lambda found: len(found) == len(seqs),
    )  # fmt: skip
    return {step.root: trace for step, trace in told}


def reader_of(run: Run) -> EventReader:
    """The log as the run took it: without the events that were taken out."""
    return reader_without(run.need_reader(), run.stored_quarantined()["seq"].to_pylist())


Place = tuple[int, int, int]
"""A step's time, phase and root."""


def steps(run: Run, places: Iterable[Place]) -> dict[Place, EventTrace]:
    """The same for steps that need not be log events: ticks, dated events, calls of `after=` handlers.

    By the serial loop, from the log's beginning. Several steps at one place are told as one.
    """
    wanted = set(places)
    traces: dict[Place, EventTrace] = {}
    if not wanted:
        return traces
    end = max(ts for ts, _, _ in wanted) + 1
    told = timed.All(run).observed(
        Tracer(run), timed.Target(before=end), lambda: lambda s: (s.ts, int(s.phase), s.root) in wanted,
        lambda found: False,
    )  # fmt: skip
    for step, trace in told:
        place, before = (
            (step.ts, int(step.phase), step.root),
            traces.get((step.ts, int(step.phase), step.root)),
        )
        traces[place] = trace if before is None else replace(
            before, handlers=before.handlers + trace.handlers, outputs=before.outputs + trace.outputs,
            rejected=before.rejected or trace.rejected,
        )  # fmt: skip
    return traces


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
            past.focus(slice_id, stops[-1]).walk(stops, partial(visit, None))
            guess = None
        except Unfocused:
            guess = Guess(past, [found[s] for s in stops]) if guessing else None
            also = () if guess is None else guess.stops
            past.walk(slice_id, sorted({*stops, *also}), partial(visit, guess))
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
        traces[event.seq] = tracer.trace(event, moment, slice_id)
    return event is not None


def event_at(reader: EventReader, program: Program, seq: int) -> Event:
    """One event with all its fields. Raises RunError (TL606) where the log has none that the program listens to."""
    classes: dict[str, type[Event]] = {cls.__name__: cls for cls in heard(spec_of(program), reader.types)}
    found = next(iter(reader.events(seq, seq + 1, classes)), None)
    if found is not None:
        return found
    others: dict[str, list[str]] = {t.name: [] for t in reader.types if t.name not in classes}
    for chunk in reader.chunks(seq, seq + 1, others):
        for name, table in chunk.tables.items():
            if table.num_rows:
                raise RunError(
                    f"event {seq} is of type {name}, to which {spec_of(program).name} does not listen",
                    hint=f"it listens to {', '.join(classes)}", code="TL606",
                )  # fmt: skip
    raise RunError(
        f"the log has no event with seq {seq}", code="TL606",
        hint=f"it has {reader.count:,} events; `timelapse log` tells about them",
    )  # fmt: skip


_TOGETHER = 1 << 15
"""Events that are so near to one another are read together: a block of the log is read whole anyway."""


def events_at(reader: EventReader, program: Program, seqs: Sequence[int]) -> dict[int, Event]:
    """Several events with all their fields, by seq (ascending). Raises RunError (TL606)."""
    classes: dict[str, type[Event]] = {cls.__name__: cls for cls in heard(spec_of(program), reader.types)}
    bind_types(reader.types, classes.values())
    found: dict[int, Event] = {}
    wanted = np.asarray(seqs, np.int64)
    every = {name: [f.name for f in cls.__fields__] for name, cls in classes.items()}
    for group in np.split(wanted, np.flatnonzero(np.diff(wanted) >= _TOGETHER) + 1) if len(wanted) else ():
        for chunk in reader.chunks(int(group[0]), int(group[-1]) + 1, every):
            for name, table in chunk.tables.items():
                own = table.filter(pc.is_in(table["seq"], value_set=pa.array(group)))
                found |= {e.seq: e for e in row_maker(classes[name], every[name])(own)}
    for seq in seqs:
        if seq not in found:
            found[seq] = event_at(reader, program, seq)
    return found


__all__ = ["Place", "event", "event_at", "events", "steps"]
