"""What the analysis knows of a program: the contract between analysis, plan and kernels."""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from timelapse.errors import Place
from timelapse.model.events import Event
from timelapse.program.program import TimeUse


class Severity(StrEnum):
    """How much a diagnostic matters."""

    INFO = "info"
    """Costs speed at most (a handler is opaque, a call is trusted)."""
    WARNING = "warning"
    """Probably not meant."""
    ERROR = "error"
    """A replay could differ from run to run: it is refused unless explicitly allowed."""


@dataclass(frozen=True)
class Diagnostic:
    """One finding: code, place, what is the matter, what to do."""

    code: str
    severity: Severity
    place: Place
    message: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.code} {self.place} {self.message}\n      {self.remedy}"


@dataclass(frozen=True)
class Write:
    """One place in a handler or method that writes a state."""

    state: str
    effect: str
    """The effect's name: set, del, add, first, up, up_always, down, down_always, top, bottom; or
    "opaque" for what composes in no known way (`x[k] *= 2`), "dated" for a write with `at=`."""
    place: Place
    reads: frozenset[str]
    """States on which its key, its value or the conditions around it depend, idioms taken out."""
    idiom: str | None = None
    """The recogniser that took the state's own read out, by name."""


@dataclass(frozen=True)
class Dependency:
    """State `target` depends on state `source`; the line that makes it so."""

    target: str
    source: str
    place: Place
    via: str
    """key, value, condition, reject, or opaque."""


@dataclass(frozen=True)
class PassHandler:
    """One handler as a pass runs it."""

    name: str
    events: tuple[type[Event], ...]
    function: types.FunctionType = field(compare=False)
    text: str = ""
    """Its source, for people."""


@dataclass(frozen=True)
class EventKey:
    """The expression over an event of one type by whose value such events are shared out among workers."""

    text: str
    """In terms of `self` (parameters) and `e`."""
    fields: tuple[str, ...]
    """The fields it reads, in declared order."""
    plain: tuple[str, ...]
    """The fields whose values are its parts, where it is nothing else."""
    function: types.FunctionType = field(compare=False, repr=False)
    """`(self, e) -> value`."""
    place: Place = field(default_factory=Place, compare=False)


@dataclass(frozen=True)
class ByKey:
    """How the events of a pass are shared out; see analysis/keys.py.

    `keys`: by event type's name; events of a type that is not in it are run by every worker. `states`: those
    of which each worker has a part, with the place of the value in their tuple key (None: it is the key).
    """

    keys: Mapping[str, EventKey]
    states: Mapping[str, int | None]

    @property
    def text(self) -> str:
        """`Reading: e.sensor`, for people."""
        return ", ".join(f"{name} by {key.text}" for name, key in self.keys.items())


@dataclass(frozen=True)
class PassProgram:
    """What one pass over a slice executes, and which state it needs.

    `targets`: states whose effects the pass collects. Those in `delta` start unknown and are
    written through the effect methods `_e_<effect>(key, value)` of a delta object (never read);
    all other states in `exact` start from the state at the slice's start and behave fully.
    A state in `ignored` is written by kept statements but matters to nobody: writes are dropped.
    `members` replaces methods of the program (helpers cut down to what the pass needs).
    `columns`: per event type name the fields that are read, in declared order.
    `rejects`: names of event types whose handlers may reject in this pass.
    """

    name: str
    targets: tuple[str, ...]
    delta: frozenset[str]
    exact: frozenset[str]
    ignored: frozenset[str]
    handlers: tuple[PassHandler, ...]
    members: Mapping[str, Any]
    columns: Mapping[str, tuple[str, ...]]
    rejects: frozenset[str]
    by_key: ByKey | None = None
    """How its events can be shared out among workers, where somebody asked."""
    logs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The logs of states that are looked back on, by what their rows say (analysis/views.py)."""
    serial: TimeUse | None = None
    """Where the program reaches into other times in a way that only the serial loop knows; it is the pass."""
    timeless: bool = False
    """Whether it runs at the log's events alone and looks at no other time, whatever the rest of the program does."""
    takes_out: bool = False
    """Whether events at which a handler raises may be taken out of the log."""
    takes_late: bool = False
    """Whether those too of which only what stems from them fails: then it runs as the serial loop, over the whole log as one slice."""
    keeps: bool = False
    """Whether somebody reads states, while it runs, as they were at some moment before."""
    finds_late: bool = False
    """Whether it may list the events of which a call fails long after them, undo that call, and go on."""
    decides: bool = False
    """Whether only that is wanted of it which decides which events those are, of those that `finds_late` lists."""


@dataclass(frozen=True)
class StateFacts:
    """What is known of one state."""

    name: str
    writes: tuple[Write, ...]
    effects: frozenset[str]
    depends_on: frozenset[str]
    """States on which any write depends (may include itself)."""
    composes: str | None
    """None when its effects compose exactly; else the reason why not."""
