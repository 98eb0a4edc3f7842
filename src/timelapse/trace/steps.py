"""What happened at one event: reads, conditions, writes, records, in the order in which they came."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cached_property
from typing import Any, NamedTuple

from timelapse.display import written
from timelapse.ids import Phase
from timelapse.kinds.base import UNKEYED
from timelapse.kinds.grouped import Under
from timelapse.model.decimals import Units
from timelapse.model.events import Event, Record
from timelapse.moments import time_text
from timelapse.trace.margins import Margin
from timelapse.trace.views import Shown, View

_LONG = 120


class Tick(Event):
    """Stands for a tick where an event is told."""


class DatedWrite(Event):
    """Stands for a dated write, when it takes effect, where an event is told."""

    state: str


class Opaque:
    """A value that is no plain data, as it looked then."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Opaque) and other.text == self.text

    def __hash__(self) -> int:
        return hash(self.text)


def name_of(event: Event, phase: int = Phase.LOG_EVENT) -> str:
    """What happened, in few words: `Message 88034`, `tick at 2026-10-03 00:00:00.000000`."""
    if isinstance(event, Tick):
        return f"tick at {time_text(event.ts)}"
    if isinstance(event, DatedWrite):
        return f"write for {time_text(event.ts)}, dated by {'a tick' if event.seq < 0 else event.seq}"
    if phase == Phase.DATED_EVENT:
        return f"{type(event).__name__} at {time_text(event.ts)}, from {'a tick' if event.seq < 0 else event.seq}"
    return f"{type(event).__name__} {event.seq}"


def brief(value: Any, limit: int = _LONG) -> str:
    """A value as Python writes it, amounts as numbers, on one line, cut where it is long."""
    text = written(value)
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def place_text(state: str, key: Any) -> str:
    """A state's key as it is written: `sent['::1']`, `total`."""
    if isinstance(key, Under):
        key = key.key
    return state if key == UNKEYED else f"{state}[{brief(key)}]"


def plain(value: Any) -> Any:
    """A value as JSON can hold it; what it cannot as Python writes it."""
    if isinstance(value, Under):
        return plain(value.key)
    if isinstance(value, Decimal | Units):
        return str(value)
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if value - value == 0 else repr(value)
    if isinstance(value, Event | Record):
        return {f.name: plain(getattr(value, f.name)) for f in type(value).__fields__}
    if isinstance(value, tuple | list):
        return [plain(v) for v in value]
    return repr(value)


@dataclass(frozen=True)
class Read:
    """A handler looked at one key of a state.

    `value` is what it saw there: the default (0, None, or the declared one) where the key was not `present`. `every`:
    it went through all keys; `value` is their number. `own`: only in order to write the key (`x[k] += 1`). Of a SetOf or MapOf
    that is asked about all under a declared key, `key` is that (Under) and `value` how much stands there.
    """

    state: str
    key: Any
    value: Any
    present: bool
    line: int
    every: bool = False
    own: bool = False

    @property
    def text(self) -> str:
        if self.every:
            return f"every key of {self.state} ({self.value:,})"
        if isinstance(self.key, Under):
            return f"{place_text(self.state, self.key)} has {self.value:,}"
        return f"{place_text(self.state, self.key)} = {brief(self.value)}" + (
            "" if self.present else " (missing)"
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "step": "read", "line": self.line, "state": self.state, "key": plain(self.key),
            "value": plain(self.value), "present": self.present, "every_key": self.every, "to_write": self.own,
            **({"all_under_key": True} if isinstance(self.key, Under) else {}),
        }  # fmt: skip


class _Missing:
    def __repr__(self) -> str:
        return "nothing"


MISSING: Any = _Missing()
"""Stands in a Write where the key is not there."""


@dataclass(frozen=True)
class Write:
    """A handler changed one key of a state, from `before` to `after` (MISSING where there is no such key)."""

    state: str
    key: Any
    before: Any
    after: Any
    line: int

    @property
    def text(self) -> str:
        return f"{place_text(self.state, self.key)}: {brief(self.before)} -> {brief(self.after)}"

    def to_json(self) -> dict[str, Any]:
        def side(value: Any) -> dict[str, Any]:
            return {"present": value is not MISSING, "value": None if value is MISSING else plain(value)}

        return {
            "step": "write", "line": self.line, "state": self.state, "key": plain(self.key),
            "before": side(self.before), "after": side(self.after),
        }  # fmt: skip


class Texts(NamedTuple):
    """A condition as people read it: see `Condition`."""

    source: str
    text: str
    full: str
    values: str
    margin: Margin | None


@dataclass(frozen=True, eq=False)
class Condition:
    """Something that was found true or false: a comparison, or a part of a test.

    `texts` gives how it is written, when it is first asked for: a handler may loop over thousands.
    """

    line: int
    function: str
    outcome: bool
    reads: tuple[Read, ...]
    texts: Callable[[], Texts] = field(repr=False)

    @cached_property
    def _texts(self) -> Texts:
        return self.texts()

    @property
    def source(self) -> str:
        """As it stands in the program."""
        return self._texts.source

    @property
    def text(self) -> str:
        """With the keys filled in: `to_others[512] > ratio * to_friends[512]`."""
        return self._texts.text

    @property
    def full(self) -> str:
        """With the values as well: `to_others[512]=5 > ratio=2.0 * to_friends[512]=2`."""
        return self._texts.full

    @property
    def values(self) -> str:
        """What was compared: `5 > 4.0`."""
        return self._texts.values

    @property
    def margin(self) -> Margin | None:
        """How far it was from the other result, where that can be said."""
        return self._texts.margin

    def to_json(self) -> dict[str, Any]:
        return {
            "step": "condition", "line": self.line, "function": self.function, "source": self.source,
            "text": self.text, "values": self.values, "outcome": self.outcome,
            "margin": None if self.margin is None else self.margin.to_json(),
            "reads": [r.to_json() for r in self.reads],
        }  # fmt: skip


@dataclass(frozen=True)
class Branch:
    """The program took one of two ways.

    `parts` are the conditions that decided it, as far as they were evaluated. `blocks`: what would have been emitted
    on the other way was not.
    """

    line: int
    function: str
    source: str
    outcome: bool
    parts: tuple[Condition, ...] = ()
    blocks: bool = False

    def to_json(self) -> dict[str, Any]:
        return {
            "step": "branch", "line": self.line, "function": self.function, "source": self.source,
            "outcome": self.outcome, "blocks": self.blocks, "parts": [p.to_json() for p in self.parts],
        }  # fmt: skip


@dataclass(frozen=True)
class Emit:
    """A record was emitted."""

    record: Record
    line: int

    @property
    def text(self) -> str:
        return f"emit {brief(self.record)}"

    def to_json(self) -> dict[str, Any]:
        name = type(self.record).__name__
        return {"step": "emit", "line": self.line, "record": name, "fields": plain(self.record)}


Step = Read | Write | Condition | Branch | Emit


@dataclass(frozen=True)
class HandlerTrace:
    """What one handler did. `line` is where it is defined; `known`: its source is to be had, so conditions are told."""

    name: str
    line: int
    steps: tuple[Step, ...]
    known: bool = True
    rounds: Mapping[tuple[str, int], tuple[int, int]] = field(default_factory=dict)
    """By function and line how many conditions came out false, and how many true: of a loop not all are among the steps."""

    @property
    def reads(self) -> list[Read]:
        return [s for s in self.steps if isinstance(s, Read)]

    @property
    def conditions(self) -> list[Condition]:
        return [s for s in self.steps if isinstance(s, Condition)]

    @property
    def branches(self) -> list[Branch]:
        return [s for s in self.steps if isinstance(s, Branch)]

    @property
    def emits(self) -> list[Emit]:
        return [s for s in self.steps if isinstance(s, Emit)]

    def to_json(self) -> dict[str, Any]:
        return {
            "handler": self.name, "line": self.line, "source_known": self.known,
            "steps": [s.to_json() for s in self.steps],
        }  # fmt: skip


@dataclass(frozen=True)
class EventTrace:
    """One event of a run, done again under observation, from exactly the states that it met.

    `outputs` are the records that it put out, `rejected` is (handler, reason, line) where a handler rejected it: then
    its writes and emits were undone. `quarantined` is (handler, error, line) where a handler raised, and the event
    was taken out of the log. `cut`: there were more steps than are kept.
    """

    event: Event
    file: str | None
    handlers: tuple[HandlerTrace, ...]
    outputs: tuple[Record, ...]
    rejected: tuple[str, str, int] | None = None
    cut: bool = False
    slice: int = 0
    params: Mapping[str, Any] = field(default_factory=dict)
    quarantined: tuple[str, str, int] | None = None
    phase: int = Phase.LOG_EVENT
    """Of the instant: log events come last (design: the order of instants)."""
    calls: int = 0
    """How often handlers were called, if of most of these calls no more than the writes is kept, or nothing; or 0."""
    views: Mapping[str, View] = field(default_factory=dict)
    """What the names stand for under which windows and looks back tell their reads."""
    shown: Mapping[tuple[str, Any], Shown | None] = field(default_factory=dict)
    """By such a name and a key the operation whose value was read, where a window shows one of several."""

    @property
    def ts(self) -> int:
        """Microseconds since 1970, UTC."""
        return self.event.ts

    @property
    def seq(self) -> int:
        return self.event.seq

    def _steps(self) -> Iterator[Step]:
        for handler in self.handlers:
            yield from handler.steps

    @property
    def reads(self) -> list[Read]:
        """Every read, in order."""
        return [s for s in self._steps() if isinstance(s, Read)]

    @property
    def writes(self) -> list[Write]:
        return [s for s in self._steps() if isinstance(s, Write)]

    @property
    def conditions(self) -> list[Condition]:
        """Every comparison and every part of a test, in order."""
        return [s for s in self._steps() if isinstance(s, Condition)]

    @property
    def branches(self) -> list[Branch]:
        return [s for s in self._steps() if isinstance(s, Branch)]

    @property
    def text(self) -> str:
        """All of it, a line per step."""
        lines = [f"{time_text(self.ts)} seq {self.seq} {brief(self.event, 300)}"]
        for handler in self.handlers:
            lines.append(f"{handler.name}" + ("" if handler.known else " (its source is not to be had)"))
            lines += [f"  {line_of(step)}" for step in handler.steps]
        if self.rejected is not None:
            lines.append(
                f"rejected by {self.rejected[0]}:{self.rejected[2]}: {brief(self.rejected[1])}; nothing was kept"
            )
        if self.quarantined is not None:
            lines.append(
                f"{self.quarantined[0]}:{self.quarantined[2]} raised {brief(self.quarantined[1])}: taken out of the log"
            )
        if self.cut:
            lines.append("(more steps than are kept)")
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.text

    def to_json(self) -> dict[str, Any]:
        """The trace as JSON holds it."""
        return {
            "ts": self.ts, "seq": self.seq, "type": type(self.event).__name__, "event": plain(self.event),
            "handlers": [h.to_json() for h in self.handlers],
            "outputs": [{"record": type(r).__name__, "fields": plain(r)} for r in self.outputs],
            "rejected": None if self.rejected is None
            else {"handler": self.rejected[0], "reason": self.rejected[1], "line": self.rejected[2]},
            "quarantined": None if self.quarantined is None
            else {"handler": self.quarantined[0], "error": self.quarantined[1], "line": self.quarantined[2]},
            "cut": self.cut, "slice": self.slice, "phase": int(self.phase),
        }  # fmt: skip


def line_of(step: Step) -> str:
    """A step on one line."""
    match step:
        case Condition():
            outcome = "true" if step.outcome else "FALSE"
            margin = f"   {step.margin.text}" if step.margin is not None else ""
            return f"{step.line}: {outcome}   {step.full}   ({step.values}){margin}"
        case Branch():
            return f"{step.line}: {step.source} -> {'true' if step.outcome else 'false'}"
        case Read():
            return f"{step.line}: reads {step.text}"
        case Write():
            return f"{step.line}: writes {step.text}"
        case Emit():
            return f"{step.line}: {step.text}"
