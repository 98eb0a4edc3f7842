"""Why an event put something out, or did not: what an explanation holds, and how it reads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from timelapse.ids import Phase
from timelapse.kinds.grouped import Under
from timelapse.model.events import Event
from timelapse.moments import time_text
from timelapse.trace.recorder import MOST_CALLS
from timelapse.trace.steps import (
    MISSING,
    Branch,
    Condition,
    Emit,
    EventTrace,
    HandlerTrace,
    Read,
    Tick,
    Write,
    brief,
    name_of,
    place_text,
    plain,
)

_ROUNDS = 8
"""Conditions of one line that are shown: a handler may loop."""
_RECORDS = 20
"""Records that are named where an event put out more."""
Line = tuple[str, str]
"""A line of text, and what it is: true, false, source, emit, head, note."""


@dataclass
class Source:
    """An event that wrote what was read: what the key held before and after. `trace`: how it came to, if asked for."""

    event: Event
    before: Any
    after: Any
    trace: Cause | None = None
    phase: int = Phase.LOG_EVENT

    def to_json(self) -> dict[str, Any]:
        return {
            "seq": self.event.seq, "ts": self.event.ts, "phase": int(self.phase), "type": type(self.event).__name__,
            "event": plain(self.event),
            "before": None if self.before is MISSING else plain(self.before),
            "after": None if self.after is MISSING else plain(self.after),
            "why": None if self.trace is None else self.trace.to_json(),
        }  # fmt: skip


@dataclass
class Seen:
    """A read with the events that wrote what it saw, newest first.

    `here`: what this event itself had written there before. `older`: there were writes before those listed.
    """

    read: Read
    here: list[Write]
    sources: list[Source] = field(default_factory=list)
    older: bool = False

    def to_json(self) -> dict[str, Any]:
        return {
            **self.read.to_json(), "written_here": len(self.here), "sources": [s.to_json() for s in self.sources],
            "older": self.older,
        }  # fmt: skip


@dataclass
class Cause:
    """An event's trace, with who wrote what it read."""

    trace: EventTrace
    handlers: tuple[HandlerTrace, ...]
    """Those that the question is about."""
    seen: list[Seen]

    def of(self, read: Read) -> Seen | None:
        """The sources of a read."""
        return next((s for s in self.seen if s.read is read), None)

    def to_json(self) -> dict[str, Any]:
        return {"event": self.trace.to_json(), "reads": [s.to_json() for s in self.seen]}


@dataclass
class Explanation:
    """Why an event put something out, or did not.

    `asked` is "why" or "why-not"; `holds` says whether the question fits (a why-not of an event that put something out
    does not). `text` is for people, `to_json` for programs.
    """

    asked: str
    cause: Cause
    record: str | None
    holds: bool
    others: int = 0
    notes: tuple[str, ...] = ()
    """What was not looked at, and why."""

    @property
    def trace(self) -> EventTrace:
        """Everything that the event did."""
        return self.cause.trace

    @property
    def lines(self) -> list[Line]:
        """The text, line by line, each with what it is."""
        return list(_explain(self))

    @property
    def text(self) -> str:
        return "\n".join(text for text, _ in self.lines)

    def __str__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        from html import escape

        return f"<pre>{escape(self.text)}</pre>"

    def to_json(self) -> dict[str, Any]:
        """The explanation as JSON holds it."""
        return {
            "notes": list(self.notes), "question": self.asked, "holds": self.holds, "record": self.record, "other_matches": self.others,
            **self.cause.to_json(),
        }  # fmt: skip


def _explain(found: Explanation) -> Iterator[Line]:
    trace = found.trace
    yield event_text(trace.event, trace.phase), "head"
    if found.others:
        yield f"the first of {found.others + 1:,} that this fits", "note"
    if trace.rejected is not None:
        yield f"{trace.rejected[0]}:{trace.rejected[2]} rejected it: {brief(trace.rejected[1])}", "false"
    if trace.quarantined is not None:
        at, error, line = trace.quarantined
        yield (
            f"{at}:{line} raised {brief(error)}: the event was taken out of the log, and had no effect",
            "false",
        )
    if found.asked == "why-not" and trace.outputs:
        more = len(trace.outputs) - _RECORDS
        put = ", ".join(brief(r) for r in trace.outputs[:_RECORDS]) + (
            f" and {more:,} more" if more > 0 else ""
        )
        yield f"it did put out {put}: ask why", "note"
    if found.asked == "why-not" and trace.quarantined is None and not _any_emit(found.cause):
        what = "the tick" if isinstance(trace.event, Tick) else type(trace.event).__name__
        yield f"no handler of {what} emits anything", "note"
    yield from _cause_lines(found.cause, "", found.asked == "why-not")
    for note in found.notes:
        yield note, "note"
    if trace.calls:
        yield (
            f"handlers were called {trace.calls:,} times, with what was sent: the call that put this record out is told",
            "note",
        )
    elif len(trace.handlers) > len(found.cause.handlers) == MOST_CALLS:
        yield (
            f"handlers were called {len(trace.handlers):,} times: the first {MOST_CALLS} calls are told",
            "note",
        )
    if trace.cut:
        yield "(it did more than is kept)", "note"


def _any_emit(cause: Cause) -> bool:
    return any(b.blocks for h in cause.handlers for b in h.branches) or bool(cause.trace.outputs) or any(
        h.emits for h in cause.handlers
    )  # fmt: skip


def _cause_lines(cause: Cause, indent: str, blocking: bool) -> Iterator[Line]:
    shown: set[int] = set()
    for handler in cause.handlers:
        if not handler.known:
            yield f"{indent}{handler.name}: its source is not to be had, so conditions are not told", "note"
        rounds: dict[tuple[str, int], list[int]] = {}
        for step in handler.steps:
            if isinstance(step, Condition | Branch):
                known = rounds.setdefault((step.function, step.line), [0, 0])
                if isinstance(step, Condition):
                    known[step.outcome] += 1
                if sum(known) > _ROUNDS:  # told in sum
                    known[step.outcome] -= isinstance(step, Condition)
                    continue
            if isinstance(step, Condition):
                yield from _condition_lines(cause, step, indent, shown)
            elif isinstance(step, Branch) and blocking and step.blocks:
                way = "is true" if step.outcome else "is false"
                yield (
                    f"{indent}{_at(step.function, step.line)} so nothing was put out: {step.source} {way}",
                    "false",
                )
            elif isinstance(step, Emit):
                yield from _more_rounds(handler, rounds, indent)
                yield f"{indent}{_at(handler.name, step.line)} {step.text}", "emit"
            elif isinstance(step, Write) and indent:
                yield f"{indent}{_at(handler.name, step.line)} writes {step.text}", "emit"
        yield from _more_rounds(handler, rounds, indent)
        own = {id(step) for step in handler.steps}
        for seen in cause.seen:
            if id(seen.read) in own and id(seen.read) not in shown:
                shown.add(id(seen.read))
                yield from _source_lines(seen, f"{indent}  ")


def _more_rounds(
    handler: HandlerTrace, told: dict[tuple[str, int], list[int]], indent: str
) -> Iterator[Line]:
    """How often the conditions of loops came out how, beside those that were told; once for each."""
    for at, known in told.items():
        false, true = handler.rounds.get(at, known)
        more = (false - known[0], true - known[1])
        if sum(more):
            known[:] = [false, true]
            yield f"{indent}{_at(*at)} {sum(more):,} more times: {more[1]:,} true, {more[0]:,} false", "note"


def _condition_lines(cause: Cause, step: Condition, indent: str, shown: set[int]) -> Iterator[Line]:
    at = _at(step.function, step.line)
    outcome = "true " if step.outcome else "FALSE"
    margin = "" if step.margin is None else f"   {step.margin.text}"
    values = "" if step.values in (step.full, step.text) else f"   ({step.values})"
    yield f"{indent}{at} {outcome} {step.full}{values}{margin}", "true" if step.outcome else "false"
    for read in step.reads:
        seen = next((s for s in cause.seen if (s.read.state, s.read.key) == (read.state, read.key)), None)
        if seen is not None and id(seen.read) not in shown:
            shown.add(id(seen.read))
            yield from _source_lines(seen, f"{indent}  ")


def _source_lines(seen: Seen, indent: str) -> Iterator[Line]:
    read = seen.read
    if read.every:
        yield f"{indent}{read.text}", "source"
        return
    parts = [
        f"{place_text(read.state, read.key)} {'has' if isinstance(read.key, Under) else '='} {brief(read.value)}"
    ]
    parts += ["this event"] * bool(seen.here)
    parts += [name_of(s.event, s.phase) for s in seen.sources]
    if seen.older:
        parts.append("earlier ones")
    if len(parts) == 1:
        parts[0] += "" if read.present else " (missing)"
    yield f"{indent}{' <- '.join(parts)}", "source"
    for source in seen.sources:
        if source.trace is not None:
            yield f"{indent}  {event_text(source.event, source.phase)}", "head"
            yield from _cause_lines(source.trace, f"{indent}    ", False)


def _at(function: str, line: int) -> str:
    return f"{function}:{line}"


def event_text(event: Event, phase: int = Phase.LOG_EVENT) -> str:
    """An event with its time and place, on one line."""
    fields = ", ".join(f"{f.name}={brief(getattr(event, f.name), 60)}" for f in type(event).__fields__)
    name = "tick" if isinstance(event, Tick) else f"{type(event).__name__} {event.seq}"
    if phase == Phase.DATED_EVENT:
        name = f"{type(event).__name__} dated by {'a tick' if event.seq < 0 else f'event {event.seq}'}"
    return f"{time_text(event.ts)}   {name}   {fields}".rstrip()
