"""Every access to a state, in log order: which step, which key, read or written, at which line.

The serial loop goes over the log, with states that tell of every operation. Nothing else changes: what the loop gives is what it
gives without.
"""

from __future__ import annotations

import dis
import functools
import os
import sys
import types
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import timelapse
from timelapse.ids import Phase, Position
from timelapse.kinds.base import UNKEYED, Op, State
from timelapse.kinds.grouped import Grouped, Under
from timelapse.model.decimals import in_usual_context
from timelapse.model.events import Event
from timelapse.observed import Did, ObservedLoop, Observer
from timelapse.program.program import HandlerSpec, Program
from timelapse.trace.steps import place_text


class Place(NamedTuple):
    """A state and one of its keys; `group` is the place of all that stands under the same declared key, -1 where keys hold one thing."""

    state: int
    key: Any
    group: int


class Line(NamedTuple):
    """A place in the program's text."""

    file: str
    line: int
    function: str


class Access(NamedTuple):
    """One operation on a key, as numbers: see `Accesses`. `place` is -1 for a read of all keys."""

    reads: bool
    """Whether the program sees something of the state by it."""
    writes: bool
    state: int
    place: int
    line: int


class Step(NamedTuple):
    """A log event with what derives from it, a dated event, a dated write, or a tick: what happens at once or not at all."""

    ts: int
    phase: int
    root: int
    name: str
    accesses: tuple[Access, ...]


@dataclass
class Accesses:
    """What a program's steps did to its states; numbers are indices into the lists."""

    program: Program
    states: list[str]
    places: list[Place] = field(default_factory=list)
    lines: list[Line] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    events: int = 0
    """Log events among the steps."""

    def text(self, place: int, state: int) -> str:
        """A place as it is written: `sent[3]`."""
        return f"every key of {self.states[state]}" if place < 0 else self.place_text(self.places[place])

    def place_text(self, place: Place) -> str:
        return place_text(self.states[place.state], place.key)


@in_usual_context
def accesses_of(
    program: Program,
    events: Iterable[Event],
    *,
    begin: int | None = None,
    tick: Callable[[int], None] = lambda events: None,
) -> Accesses:
    """Run events one by one and note every access. `begin`: the time at which the log begins. `tick` is told of events done.

    Writes of a step that was rejected are left out: they did not happen. Raises HandlerError for a handler's exception.
    """
    recorder = _Recorder(program)
    loop = recorder.loop
    if begin is not None:
        loop.begin(begin)
    for event in events:
        loop.step(event)
        loop.outcome.outputs.clear()
        loop.outcome.refused.clear()
        recorder.found.events += 1
        if not recorder.found.events & 1023:
            tick(1024)
    tick(recorder.found.events & 1023)
    return recorder.found


_OWN_METHODS = {
    "getitem": "__getitem__", "contains": "__contains__", "setitem": "__setitem__", "delitem": "__delitem__",
}  # fmt: skip
_ATTRIBUTE = {"_read": Op(reads=True), "_write": Op(effect="set"), "_delete": Op(effect="set")}
_INSIDE = tuple(
    os.path.join(os.path.dirname(timelapse.__file__), part)
    for part in ("kinds" + os.sep, "model" + os.sep, "program" + os.sep, "trace" + os.sep)
)
_SERIAL = os.path.join(os.path.dirname(timelapse.__file__), "serial.py")
_IN_PLACE = ("+=", "-=")


class _Recorder(Observer):
    """Notes what the states of a loop are asked."""

    def __init__(self, program: Program) -> None:
        loop = self.loop = ObservedLoop(program, self)
        self.found = Accesses(loop.program, list(loop.states))
        self._pending: list[Access] = []
        self._places: dict[tuple[int, Any], int] = {}
        self._sites: dict[tuple[types.CodeType, int], tuple[int, bool]] = {}
        self._quiet = False
        for number, state in enumerate(loop.states.values()):
            state.__class__ = _telling(type(state), self, number)

    def step(
        self, at: Position, event: Event | None, handlers: tuple[HandlerSpec, ...],
        do: Callable[[tuple[HandlerSpec, ...]], Did],
    ) -> None:  # fmt: skip
        """See Observer."""
        name = (
            "dated event"
            if at.phase == Phase.DATED_EVENT
            else "tick"
            if event is None
            else type(event).__name__
        )
        self._over(at, name, do(handlers))

    def write(self, at: Position, state: str, do: Callable[[], Did]) -> None:
        """See Observer."""
        self._over(at, "dated write", do())

    def _over(self, at: Position, name: str, did: Did) -> None:
        found = self._pending if did.kept else [a._replace(writes=False) for a in self._pending if a.reads]
        self.found.steps.append(Step(at.ts, at.phase, at.seq, name, tuple(found)))
        self._pending = []

    def call(
        self, number: int, state: Any, name: str, op: Op, plain: Callable[..., Any], arguments: tuple[Any, ...], named: Any
    ) -> Any:  # fmt: skip
        """Do an operation, and note it where it is the handler's own."""
        if self._quiet:
            return plain(state, *arguments, **named)
        self._quiet = True
        try:
            result = plain(state, *arguments, **named)
        finally:
            self._quiet = False
        later = op.effect is not None and named.get("at") not in (None, self.loop.now())
        if not later:  # what is dated is noted when it takes effect
            self._note(number, state, name, op, arguments, named)
        return result

    def _note(
        self, number: int, state: Any, name: str, op: Op, arguments: tuple[Any, ...], named: Any
    ) -> None:
        line, in_place = self._site()
        reads = op.reads and not (in_place and "iadd" in state._spec.kind.ops)
        if op.all_keys:
            place = -1
        else:
            place = self._place(number, *_key_of(state, name, op, arguments, named))
        if reads or op.effect is not None:
            self._pending.append(Access(reads, op.effect is not None, number, place, line))

    def _place(self, state: int, key: Any, declared: Any) -> int:
        known = self._places.get((state, key))
        if known is not None:
            return known
        places = self.found.places
        if isinstance(key, Under):
            group = len(places)
        else:
            group = -1 if declared is None else self._place(state, declared, None)
        self._places[state, key] = len(places)
        places.append(Place(state, key, group))
        return len(places) - 1

    def _site(self) -> tuple[int, bool]:
        """The line of the program that runs, and whether it is about to change in place what it reads (`x[k] += 1`)."""
        frame: types.FrameType | None = sys._getframe(2)
        while frame is not None and frame.f_code.co_filename.startswith(_INSIDE):
            frame = frame.f_back
        if frame is None or frame.f_code.co_filename == _SERIAL:
            return -1, False
        site = frame.f_code, frame.f_lasti
        known = self._sites.get(site)
        if known is None:
            line = Line(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)
            if line in self.found.lines:
                number = self.found.lines.index(line)
            else:
                number = len(self.found.lines)
                self.found.lines.append(line)
            known = self._sites[site] = number, _changes_in_place(*site)
        return known


def _changes_in_place(code: types.CodeType, at: int) -> bool:
    """Whether the instruction reads the target of an augmented assignment with + or -.

    The assignment and its target begin at the same place of the text, and no other operation in place does.
    """
    begins: dict[int, tuple[int | None, int | None]] = {}
    adds: set[tuple[int | None, int | None]] = set()
    for instruction in dis.get_instructions(code):
        where = instruction.positions
        start = (None, None) if where is None else (where.lineno, where.col_offset)
        begins[instruction.offset] = start
        if instruction.opname == "BINARY_OP" and instruction.argrepr in _IN_PLACE:
            adds.add(start)
    found = begins.get(at, (None, None))
    return found != (None, None) and found in adds


def _key_of(
    state: Any, name: str, op: Op, arguments: tuple[Any, ...], named: dict[str, Any]
) -> tuple[Any, Any]:
    """The key of an operation as it is stored, and what it stands under where its kind holds several things."""
    spec = state._spec
    if spec.key is None:
        return UNKEYED, None
    if not isinstance(state, Grouped):
        first = arguments[0] if arguments else named.get("key", UNKEYED)
        return state._check_key(first), None
    first = arguments[0] if arguments else named["key"]
    declared = Under(state._outer(first[0] if name in spec.kind.given_pairs else first))
    if not spec.kind.asks_pair(name):
        return declared, None
    pair = first
    if isinstance(op.key, tuple):
        pair = (first, arguments[1] if len(arguments) > 1 else named["member"])
    return state._check_key(pair), declared


@functools.lru_cache(maxsize=1024)
def _ops(kind: type[State]) -> tuple[tuple[str, str, Op], ...]:
    """Operations of a kind that are methods: name, method, what it does."""
    found = [(name, _OWN_METHODS.get(name, name), op) for name, op in kind.ops.items()]
    found += [(name, name, op) for name, op in _ATTRIBUTE.items()]
    return tuple((n, m, op) for n, m, op in found if n not in ("iadd", "isub") and hasattr(kind, m))


def _telling(kind: Any, recorder: _Recorder, number: int) -> Any:
    """The class of a state, telling of its operations."""
    members: dict[str, Any] = {"__slots__": ()}

    def telling(name: str, op: Op, plain: Callable[..., Any]) -> Any:
        @functools.wraps(plain)
        def told(self: Any, *arguments: Any, **named: Any) -> Any:
            return recorder.call(number, self, name, op, plain, arguments, named)

        return told

    for name, method, op in _ops(kind):
        members[method] = telling(name, op, getattr(kind, method))

    def view(plain: Callable[[Any, int], Any]) -> Any:
        def look(self: Any, length: int) -> Any:
            return _View(plain(self, length), self, recorder, number)

        return look

    members["last"], members["ago"] = view(kind.last), view(kind.ago)
    return type(kind)(kind.__name__, (kind,), members)


class _View:
    """A window or a look back, telling its reads as reads of its state."""

    def __init__(self, view: Any, state: Any, recorder: _Recorder, number: int) -> None:
        self._view, self._state, self._recorder, self._number = view, state, recorder, number

    def _told(self, name: str, method: str) -> Callable[..., Any]:
        op = self._state._spec.kind.ops.get(name) or Op(reads=True)

        def read(_: Any, *arguments: Any, **named: Any) -> Any:
            return getattr(self._view, method)(*arguments, **named)

        return functools.partial(self._call, name, op, read)

    def _call(self, name: str, op: Op, read: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        return self._recorder.call(self._number, self._state, name, op, read, arguments, named)

    def __getitem__(self, key: Any) -> Any:
        return self._told("getitem", "__getitem__")(key)

    def __contains__(self, key: Any) -> bool:
        return bool(self._told("contains", "__contains__")(key))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            return getattr(self._view, name)
        return self._told(name, name)
