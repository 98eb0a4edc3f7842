"""One key of a state through time: what it held at a moment, and the events that wrote it."""

from __future__ import annotations

import ast
import contextlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from timelapse.errors import TimelapseError, UsageError
from timelapse.ids import Phase
from timelapse.kernels.once import passes_once
from timelapse.kernels.walk import Moment
from timelapse.kinds.base import ABSENT, UNKEYED, StateSpec
from timelapse.model.decimals import in_usual_context, of_text
from timelapse.model.events import Event
from timelapse.model.types import DecimalType, ScalarType, TupleType, ValueType
from timelapse.moments import time_text
from timelapse.progress import Progress
from timelapse.progress.notebook import default_progress
from timelapse.results.stored import StoredRun
from timelapse.trace import timed
from timelapse.trace.few import Few
from timelapse.trace.knowledge import Ask, Uncompiled, Unfocused
from timelapse.trace.logged import events_at
from timelapse.trace.moments import Past
from timelapse.trace.recorder import seen
from timelapse.trace.steps import MISSING, brief, name_of, place_text, plain
from timelapse.trace.ways import answered
from timelapse.trace.whole import past_of
from timelapse.trace.writers import shown_side, writers

if TYPE_CHECKING:
    from timelapse.charts.drawn import MatplotlibFigure

LAST = 20
"""Writes that are found when nobody says how many."""


@dataclass(frozen=True)
class Entry:
    """An event wrote the key. `before` and `after` are what it held, MISSING where it was not there."""

    event: Event
    before: Any
    after: Any
    phase: int = Phase.LOG_EVENT

    @property
    def name(self) -> str:
        """What wrote it, in few words."""
        return name_of(self.event, self.phase)


@dataclass(frozen=True)
class History:
    """The last events that wrote a key before a moment, oldest first, and what it held then (MISSING: nothing).

    `at` is the moment (None: after the last event). `older`: there were writes before those listed.
    """

    state: str
    key: Any
    at: int | None
    value: Any
    entries: tuple[Entry, ...]
    older: bool

    def table(self) -> pa.Table:
        """Columns `ts`, `seq`, `event` (the type), `before` and `after`: texts where the values are no numbers."""
        sides = [[e.before for e in self.entries], [e.after for e in self.entries]]
        columns = [_column(side) for side in sides]
        stamp = pa.timestamp("us", tz="UTC")
        return pa.table({
            "ts": pa.array([e.event.ts for e in self.entries], pa.int64()).cast(stamp),
            "seq": pa.array([e.event.seq for e in self.entries], pa.int64()),
            "event": pa.array([type(e.event).__name__ for e in self.entries], pa.string()),
            "before": columns[0], "after": columns[1],
        })  # fmt: skip

    @property
    def text(self) -> str:
        """The value, then a line per write."""
        lines = [self.head]
        lines += [
            f"{time_text(e.event.ts)}  {e.name}  {brief(e.before)} -> {brief(e.after)}" for e in self.entries
        ]
        return "\n".join(lines)

    @property
    def head(self) -> str:
        """`sent['::1'] = 5 before 2026-10-03 00:00:00`."""
        when = "at the end" if self.at is None else f"before {time_text(self.at)}"
        value = "is not there" if self.value is MISSING else f"= {brief(self.value)}"
        return f"{place_text(self.state, self.key)} {value} {when}"

    def __str__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        from html import escape

        return f"<pre>{escape(self.text)}</pre>"

    def to_json(self) -> dict[str, Any]:
        """The history as JSON holds it."""
        return {
            "state": self.state, "key": plain(self.key), "at": self.at, "present": self.value is not MISSING,
            "value": None if self.value is MISSING else plain(self.value), "older": self.older,
            "writes": [
                {"ts": e.event.ts, "phase": int(e.phase), "seq": e.event.seq, "type": type(e.event).__name__,
                 "before": None if e.before is MISSING else plain(e.before),
                 "after": None if e.after is MISSING else plain(e.after)}
                for e in self.entries
            ],
        }  # fmt: skip

    @property
    def numbers(self) -> list[float] | None:
        """What it held after each write, as numbers (0 where it was not there); None where these are no numbers."""
        values = [0 if e.after is MISSING else e.after for e in self.entries]
        if not all(isinstance(v, bool | int | float) for v in values):
            return None
        return [float(v) for v in values]

    def plot(self) -> MatplotlibFigure:
        """A figure (matplotlib): the value over time, in steps; where it is no number, whether it was there."""
        from timelapse.charts.drawn import steps

        numbers = self.numbers
        values = numbers or [float(e.after is not MISSING) for e in self.entries]
        label = "value" if numbers is not None else "there (1) or not (0)"
        return steps(place_text(self.state, self.key), label, [e.event.ts for e in self.entries], values)


def _column(values: list[Any]) -> pa.Array:
    plain_values = [None if v is MISSING else v for v in values]
    known = {type(v) for v in plain_values} - {type(None)}
    if known <= {int} or known <= {float} or known <= {bool} or known <= {str} or known <= {bytes}:
        return pa.array(plain_values)
    return pa.array([None if v is None else brief(v) for v in plain_values], pa.string())


@in_usual_context
@passes_once()
def history(
    run: StoredRun,
    state: str,
    key: Any = UNKEYED,
    *,
    at: int | None = None,
    last: int = LAST,
    progress: Progress | None = None,
) -> History:
    """What a state holds under a key before everything at a time, and the `last` events that wrote it before.

    `at`: int64 microseconds UTC; None: after the last event. A key of a kind that holds several things under one
    (SetOf, MapOf, Mean) is the key with what tells them apart, as one tuple. Raises RunError (TL603) for an unknown state, UsageError for a key
    that is none.
    """
    spec, progress = run.state_spec(state), progress or default_progress()
    checked = check_key(spec, key)
    found = _history(run, spec, checked, at, last, progress)

    def amount(value: Any) -> Any:
        return spec.kind.shown_stored(spec, checked, value)

    entries = tuple(replace(e, before=amount(e.before), after=amount(e.after)) for e in found.entries)
    return replace(found, value=amount(found.value), entries=entries)


def _history(
    run: StoredRun, spec: StateSpec, checked: Any, at: int | None, last: int, progress: Progress
) -> History:
    state = spec.name
    if at is None and not last:  # the run has it
        held = run.value_at_cut(state, checked, run.slices)
        return History(state, checked, at, shown_side(held), (), held is not ABSENT)
    past = past_of(run, progress)
    end = past.cuts[-1] if at is None else min(past.reader.seq_at(at), past.cuts[-1])
    return answered(
        past, end, lambda way: _stepped(run, way, state, checked, at, last), lambda: _compiled(past, spec, checked, at, last)
    )  # fmt: skip


def _stepped(run: StoredRun, way: timed.Way, state: str, key: Any, at: int | None, last: int) -> History:
    """The same for a program that reaches into other times: step by step. Raises Unfocused, if the way does."""
    ask = timed.Ask((state, key))
    rows = way.newest([ask], at, last + 1)[0][ask]
    value = rows[-1].after if rows else ABSENT
    if at is None and not isinstance(way, timed.All):
        held = run.value_at_cut(state, key, run.slices)
        if _counted(held) != _counted(value):
            raise (Unfocused if isinstance(way, Few) else Uncompiled)(f"{state} ends otherwise")  # never seen
    shown = rows[len(rows) - min(last, len(rows)) :]
    events = way.events(w.step for w in shown)
    entries = tuple(
        Entry(events[w.step.number], shown_side(w.before), shown_side(w.after), w.step.phase) for w in shown
    )
    return History(state, key, at, shown_side(value), entries, len(rows) > len(shown))


def _counted(held: Any) -> Any:
    """A count of 0 is none: compiled it is not kept."""
    return 0 if held is ABSENT else held


def _compiled(past: Past, spec: StateSpec, key: Any, at: int | None, last: int) -> History:
    """The same by going through slices. Raises Uncompiled."""
    end = past.cuts[-1] if at is None else min(past.reader.seq_at(at), past.cuts[-1])
    ask = Ask((spec.name, key), end)
    more = bool(past.spec.times)  # one more tells whether there are
    found = writers(past, [ask], last + more)[ask]
    older = len(found.found) > last if more else found.older
    if found.found:  # nothing wrote it after the last of these
        value = found.found[0].after
    else:
        held = value_at(past, spec, key, end)
        value = MISSING if held is ABSENT else seen(held)
    rows = found.found[:last]
    events = events_at(past.reader, past.program, sorted(w.seq for w in rows))
    entries = tuple(Entry(events[w.seq], w.before, w.after) for w in reversed(rows))
    return History(spec.name, key, at, value, entries, older)


def value_at(past: Past, spec: StateSpec, key: Any, seq: int) -> Any:
    """What a state held under a key before an event (ABSENT: nothing)."""
    seq = past.settled((spec.name, key), seq)
    if seq in past.run.manifest.cuts[:-1]:
        return past.run.value_at_cut(spec.name, key, past.run.manifest.cuts.index(seq))
    slice_id = past.slice_of(seq)
    if seq >= past.cuts[slice_id + 1]:
        slice_id += 1
    if seq <= past.cuts[slice_id]:
        return past.held(spec.name, key, slice_id)
    try:
        return past.focus(slice_id, seq).writes([(spec.name, key)])[1][spec.name, key]
    except Unfocused:
        pass
    found: list[Any] = []

    def visit(moment: Moment) -> bool:
        found.append(moment.value(spec.name, key))
        return False

    past.walk(slice_id, [seq], visit, places=[(spec.name, key)])
    return found[-1]


def check_key(spec: StateSpec, key: Any) -> Any:
    """A key as it is stored. Raises UsageError (TL841)."""
    if spec.key is None:
        if key != UNKEYED:
            raise UsageError(f"{spec.name} is a single value: it has no keys", code="TL841")
        return UNKEYED
    try:
        return spec.key.checker(f"a key of {spec.name}")(key)
    except TimelapseError as error:
        raise UsageError(
            error.message, hint=f"{spec.name} is {spec.text}; its keys are {spec.key.text}", code="TL841"
        ) from None


def read_key(spec: StateSpec, text: str | None) -> Any:
    """A key from the command line: `512`, `::1`, `1,2` or `(1, 2)`. Raises UsageError (TL841)."""
    if spec.key is None or text is None:
        return check_key(spec, UNKEYED if text is None else text)
    try:
        return check_key(spec, _from_text(spec.key, text))
    except (ValueError, SyntaxError, TypeError, MemoryError, KeyError):
        raise UsageError(
            f"{text!r} is no key of {spec.name}", hint=f"its keys are {spec.key.text}", code="TL841"
        ) from None


def read_group(spec: StateSpec, text: str) -> Any | None:
    """The declared key of a kind that holds several things under one (SetOf, MapOf, Mean), where a text is that alone.

    None for other kinds, and for a text that is a key with what stands under it.
    """
    if spec.outer is None or spec.key is None:
        return None
    with contextlib.suppress(UsageError):
        read_key(spec, text)
        return None
    try:
        return spec.outer.checker(f"a key of {spec.name}")(_from_text(spec.outer, text))
    except (ValueError, SyntaxError, TypeError, MemoryError, KeyError, TimelapseError):
        return None


def _from_text(kind: ValueType, text: str) -> Any:
    if isinstance(kind, TupleType):
        if text.strip().startswith("("):
            return ast.literal_eval(text.strip())
        parts = text.split(",")
        if len(parts) != len(kind.items):
            raise ValueError(text)
        return tuple(_from_text(k, p) for k, p in zip(kind.items, parts, strict=True))
    if isinstance(kind, ScalarType):
        if kind.name in ("int", "Time"):
            return int(text)
        if isinstance(kind, DecimalType):
            return of_text(text)
        if kind.name == "bool":
            return {"true": True, "false": False}[text.strip().lower()]
        if kind.name == "bytes":
            return bytes.fromhex(text)
        return text
    return ast.literal_eval(text)


__all__ = ["Entry", "History", "check_key", "history", "read_key", "value_at"]
