"""The compiled form of a pass: its generated source and what its function takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from timelapse.kernels.native.computed import Computed
from timelapse.kernels.native.memory.layout import Layout, gathered_bytes, row_bytes
from timelapse.kernels.native.windows import Sliding
from timelapse.kinds.base import StateSpec
from timelapse.model.decimals import as_word
from timelapse.model.events import Event, Record
from timelapse.model.types import OptionalType

if TYPE_CHECKING:
    from timelapse.kernels.native.lowering.decided import Decision


@dataclass(frozen=True)
class Column:
    """One column that the function reads.

    `test`: "" for the field itself, else what is computed from the field for each row beforehand:
    contains, startswith, endswith (with `operand`, giving a bool) or length. `computed`: what Python
    computes, from any fields. `part`: of an optional `valid`, whether there is a value; of a list `items`
    and `offsets`; of what is computed also `valid` and `raised`; "" for the value.
    """

    event: int
    field: str
    kind: str
    test: str = ""
    operand: str | bytes = ""
    part: str = ""
    computed: Computed | None = None


class Later(NamedTuple):
    """A handler that is called so long after an event: its name, and its place in the program."""

    lag: int
    handler: str
    place: int


class Ticking(NamedTuple):
    """A handler that is called at times of its own: its name, and its place in the program."""

    handler: str
    place: int

    @property
    def seq(self) -> int:
        """Stands for the seq of its ticks, which have none: before all of the log's, in the order of the handlers."""
        return self.place - (1 << 30)


class Instant(Event):
    """Stands for the event of a tick, which has none."""

    __abstract__ = True


class Word(NamedTuple):
    """A part of an error's text that is a word of the compiled function's: its kind, and how it is written."""

    kind: str
    conversion: int = -1
    spec: str = ""


class Raised(NamedTuple):
    """A place at which a handler raises: of which event's handlers, where, and what.

    `text` is the error's, where it is always the same. Else `error` is its class, with an argument for each of `args`:
    a constant, a word, or in a list the parts of an f-string.
    """

    event: str
    handler: str
    file: str
    line: int
    text: str
    error: type[Exception] | None = None
    args: tuple[Any, ...] = ()

    @property
    def words(self) -> int:
        """How many words it takes to tell the text."""
        parts = [p for arg in self.args for p in (arg if isinstance(arg, list) else [arg])]
        return sum(isinstance(part, Word) for part in parts)


class Touch(NamedTuple):
    """A row that an event may look up: of a table, under a key, whose words are written over columns of the event's type.
    `writes`: whether it may be changed. `columns`: the numbers of columns, by their names there."""

    table: int
    key: tuple[str, ...]
    writes: bool
    columns: dict[str, int]


class Deciding(NamedTuple):
    """What decides which steps fail, by event type's number.

    `tables`: those on which it depends. `kinds`: the types with code that is part of deciding. Of these, `writes` write to the
    tables, and `fails` may fail. `adds`: what is added to tables whose sums are compared with int64, as if none left it.
    """

    tables: frozenset[int]
    kinds: frozenset[int]
    writes: frozenset[int]
    fails: frozenset[int]
    adds: tuple[tuple[Touch, ...], ...]


@dataclass
class Unit:
    """One pass. The function's arguments, in order: see `Lowering.arguments`.

    `tables`: the states of each table, with the layouts of all of them in `layouts`; those in `states` are used.

    `claims` bounds how many rows one event can add to a table (by its first state) outside of loops, `finds` how many
    more where the table's start state is mapped (touch.py), `emits` how many
    records of each class it can put out. `undo`: how many writes it can make that may have to be undone
    (0: none, in loops each counts once). `handlers`: names, for events that are rejected. `loops`: whether an event
    may go round a loop.
    """

    events: list[type[Event]] = field(default_factory=list)
    columns: list[Column] = field(default_factory=list)
    states: list[str] = field(default_factory=list)
    layouts: dict[str, Layout] = field(default_factory=dict)
    tables: list[tuple[str, ...]] = field(default_factory=list)
    params: list[tuple[str, str]] = field(default_factory=list)
    records: list[type[Record]] = field(default_factory=list)
    texts: list[str | bytes] = field(default_factory=list)
    claims: dict[str, int] = field(default_factory=dict)
    finds: dict[str, int] = field(default_factory=dict)
    windows: dict[str, Sliding] = field(default_factory=dict)
    """States with views. Their logs and marks are arguments."""
    pushes: dict[str, int] = field(default_factory=dict)
    """How many operations on such a state one event can do outside of loops."""
    hidden: dict[str, StateSpec] = field(default_factory=dict)
    """States that the program has not declared (windows.py)."""
    counted: dict[str, str] = field(default_factory=dict)
    """SetOfs whose members are counted by key, and the hidden counters that do."""
    indexed: dict[str, str] = field(default_factory=dict)
    """SetOfs whose members are listed by key, and the hidden states that say where each key's begin (memory/linking.py)."""
    emits: dict[type[Record], int] = field(default_factory=dict)
    undo: int = 0
    rejects: bool = False
    raising: list[Raised] = field(default_factory=list)
    """Where a handler raises, and the function itself takes the event out of the log."""
    keeps: int = -1
    """How many rows an event can write outside of loops, where they are copied before they are (memory/keeping.py); -1: they are not."""
    takes: bool = False
    """Whether it does so, or is told which events are taken out (`TAKES`)."""
    goes_back: bool = False
    """Whether it goes back to before an event of which a step has failed, and on from there without it: what decides alone (lowering/rejecting.py)."""
    loops: bool = False
    shared: bool = False
    """Several workers share out the events by key: the last arguments list its own, its number, and how many."""
    steady: Mapping[str, int] = field(default_factory=dict)
    """Counters that the function takes to be small, and how much an event can change them by (steady.py)."""
    handlers: list[str] = field(default_factory=list)
    later: dict[int, Later] = field(default_factory=dict)
    """The events that are those of the log a lag later, by their number."""
    ticks: bool = False
    """Whether handlers are called at times of their own: as Python, on the tables of this pass."""
    ticking: dict[int, Ticking] = field(default_factory=dict)
    """The events that are ticks of compiled handlers, by their number."""
    touches: tuple[tuple[Touch, ...], ...] | str = "nobody asked"
    """By event which rows it can look up at most (lowering/touches.py); or why that is not known."""
    decided: tuple[Decision, ...] | str = "nobody asked"
    """By event what decides whether its steps fail, where it follows from each event alone; else why it does not follow (lowering/decided.py)."""
    deciding: Deciding | str = "nobody asked"
    """Otherwise what decides it, or why that is not known (lowering/deciding.py)."""
    lists: int = 0
    """How many words a row of what handlers list takes (listing.py); 0: they list nothing."""
    sends: int = 0
    """How many words an event that handlers send takes in the queue (lowering/sending.py); 0: they send nothing."""
    sent: list[type[Event]] = field(default_factory=list)
    """Their types that something is done at, by the numbers that they have in the queue."""
    left: dict[str, str] = field(default_factory=dict)
    """Event types that always run as Python, on the tables of this pass, and why."""
    source: str = ""

    def table_of(self, event: int) -> str:
        """The name of an event's table in a chunk."""
        if event in self.ticking:
            return f"tick {self.ticking[event].handler}"
        name = self.events[event].__name__
        return f"{name} {self.later[event].handler}" if event in self.later else name

    def table_with(self, state: str) -> int:
        """The number of the table that has a state's rows."""
        return next(number for number, states in enumerate(self.tables) if state in states)

    def settings(self, params: Mapping[str, Any]) -> list[Any]:
        """The parameters that the function takes, as it takes them."""
        return [as_word(params[name]) for name, _ in self.params]

    @property
    def most_rows(self) -> list[tuple[int, int]]:
        """By table how many rows one event can add outside of loops, and how many more where the table's start state is mapped."""
        return [
            (sum(self.claims.get(n, 0) for n in names), sum(self.finds.get(n, 0) for n in names))
            for names in self.tables
        ]

    def event_bytes(self, *, mapped: bool, filed: bool = False) -> int:
        """The memory that an event can take until its slice's end, outside of loops, if all keys that it touches are new: rows,
        what becomes of them there, and what it puts out. `mapped`: looking a key up may take a row too (touch.py). `filed`: tables lie in
        files (starting.py)."""
        found = 0
        for names, (claims, finds) in zip(self.tables, self.most_rows, strict=True):
            layouts = [self.layouts[name] for name in names]
            rows = claims + mapped * finds
            kept = 0 if filed else row_bytes(layouts, tracked=layouts[0].tracked)
            found += rows * (kept + gathered_bytes(layouts))
        for name in self.indexed:  # a node of its list, where that is as full as it gets
            found += self.claims.get(name, 0) * 2 * 8 * (1 + self.layouts[name].width)
        for record, rows in self.emits.items():
            optional = sum(isinstance(f.type, OptionalType) for f in record.__fields__)
            found += rows * _PUT_OUT * 8 * (3 + len(record.__fields__) + optional)
        return max(found, _REJECTED if self.rejects else 0)

    @property
    def steps(self) -> bool:
        """Whether there is more than the log's events."""
        return self.ticks or bool(self.later) or bool(self.ticking)


_PUT_OUT = 3
"""What was put out is there so many times where it becomes a file."""
_REJECTED = 160
"""Bytes that a rejected event takes, with its reason's text."""

REFUSED = 5
"""Words that tell of an event that is rejected, or taken out: time, seq, type, handler, reason. Where the handler is
below 0 it is taken out: -1 stands for the first of `Unit.raising`, and the words of its text follow; the reason is 1 where it has
had effects before."""
TAKES, LATE = 4, 3
"""So many words say how many events may be taken out, the time at which none may, how many are, and whether calls that fail later than
their events are listed (`PassProgram.finds_late`). After them: for each of `Unit.later` which of those taken out comes next."""


LISTED = 2048
"""By key: so many events are looked through at a time for a worker's own. Their list stays in the nearest cache."""
