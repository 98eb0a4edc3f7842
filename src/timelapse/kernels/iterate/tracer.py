"""Handlers, run event by event on states that note what each event has read, decided and written.

Nothing is written until an event is through: what it did to each key is a step from what the key held before it
(kernels/iterate/bounds.py), and the same step holds as long as the key holds something for which the event would have
decided alike.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, NamedTuple, NoReturn

from timelapse.analysis.result import PassProgram
from timelapse.ids import INT64_MAX, INT64_MIN
from timelapse.kernels.iterate.bounds import (
    ABSENT_KEY,
    ADD,
    DELETE,
    NOTHING,
    PRESENT,
    SET,
    Int,
    Read,
    plain,
)
from timelapse.kernels.python.interpreted import refuse_dated
from timelapse.kernels.python.stores import NullStore
from timelapse.kinds.base import ABSENT, State, StateSpec
from timelapse.kinds.grouped import Grouped
from timelapse.kinds.registry import forms
from timelapse.model.events import Event, Record
from timelapse.model.types import INT, TIME
from timelapse.program.binding import bind
from timelapse.program.program import Program, Rejection, rejection, spec_of
from timelapse.program.times import check_sent, loop_bound

Base = Callable[[Any], Any]
"""What a key holds before the event under way, or ABSENT."""


class Untraceable(BaseException):
    """A handler did what cannot be told key by key: why."""


class Failed(Exception):
    """A handler raised; the cause is its exception."""


class Form(NamedTuple):
    """How a kind is traced that has a file in `kinds/`. `counts`: a key that is not there is one that holds 0."""

    kind: type[State]
    counts: bool = False


@cache
def _forms() -> dict[type[State], Form]:
    return forms("timelapse.kernels.iterate.kinds")


class TracedStore:
    """What a state stands on while an event is under way. `reads`: the keys that it has touched."""

    def __init__(self, spec: StateSpec, base: Base) -> None:
        self.spec, self._base = spec, base
        form = _forms().get(spec.kind)
        self.counts = form is not None and form.counts
        """A key that is not there is one that holds 0."""
        self._presence_only = spec.kind.presence
        self.integers = spec.value in (INT, TIME) or self.counts
        self.reads: dict[Any, Read] = {}
        self.exact = False
        """Whether values are given as they are: where a handler stumbles over the other ones."""

    def read(self, key: Any) -> Read:
        found = self.reads.get(key)
        if found is None:
            base = self._base(key)
            if base is ABSENT and self.counts:
                base = 0
            found = self.reads[key] = Read(base)
        return found

    def get(self, key: Any, default: Any) -> Any:
        read = self.read(key)
        if read.effect == SET:
            return read.amount
        if read.effect == DELETE:
            return default
        base = read.base
        if base is ABSENT:
            read.needs = ABSENT_KEY
            return default
        if not self.counts:
            read.needs = PRESENT
        if self._presence_only:
            return base
        if self.integers and type(base) is int and not self.exact:
            return Int(read, 1, read.amount if read.effect == ADD else 0)
        read.pin()
        return base + read.amount if read.effect == ADD else base

    def put(self, key: Any, value: Any) -> None:
        read = self.read(key)
        if type(value) is Int:
            if value.read is read and value.factor == 1:
                read.effect, read.amount = (ADD, value.plus) if value.plus else (NOTHING, 0)
                return
            value = value.plain()
        read.effect, read.amount = SET, value

    def drop(self, key: Any) -> None:
        read = self.read(key)
        read.effect, read.amount = (SET, 0) if self.counts else (DELETE, 0)

    def items(self) -> NoReturn:
        raise Untraceable(f"{self.spec.name} is asked for every key")

    def side(self, table: Any, key: Any, value: Any) -> NoReturn:
        raise Untraceable(f"{self.spec.name} is asked for everything under a key")

    def take_back(self) -> None:
        """The event was rejected: it has read, and written nothing."""
        for read in self.reads.values():
            read.effect, read.amount = NOTHING, 0

    @staticmethod
    def after(read: Read) -> Any:
        """What the key holds after the event."""
        if read.effect == ADD:
            return read.base + read.amount
        if read.effect == SET:
            return read.amount
        return ABSENT if read.effect == DELETE else read.base


_PLAIN = (int, str, bytes, bool)


def _traced(spec: StateSpec, store: TracedStore | NullStore) -> State:
    form = _forms().get(spec.kind)
    kind: Any = spec.kind if form is None else form.kind
    state: State = kind(spec, store)
    integers = isinstance(store, TracedStore) and store.integers
    check_key, check_value = state._check_key, state._check_value

    def value_of(value: Any) -> Any:
        if type(value) is Int:
            if integers and INT64_MIN <= value.value <= INT64_MAX:
                return value  # its read says within which bounds: see `settle`
            value = value.plain()
        return check_value(plain(value))

    state._check_key = lambda key: check_key(key if type(key) in _PLAIN else plain(key))
    state._check_value = value_of
    if isinstance(state, Grouped):
        check_outer = state._outer
        state._outer = lambda key: check_outer(plain(key))
    return state


class Tracer:
    """Runs a pass's handlers, one event at a time. `bases` gives what keys hold, by state.

    States that the pass ignores are empty and stay so.
    """

    def __init__(self, program: Program, work: PassProgram, bases: Mapping[str, Base]) -> None:
        self._work = work
        self.stores = {name: TracedStore(spec_of(program).states[name], base) for name, base in bases.items()}
        self._all = list(self.stores.values())
        states = {
            name: _traced(spec, self.stores.get(name) or NullStore())
            for name, spec in spec_of(program).states.items()
        }
        self._spec = spec_of(program)
        self._derived: deque[Event] = deque()
        """Events that the one under way has sent, and that are still to be handled with it."""
        self._derivations = 0
        runtime = {"emit": _drop, "reject": _reject, "now": 0, "send": self._send, "cancel": refuse_dated}
        self._bound = bind(program, states, runtime, work.members)
        self._live = self._bound.__dict__
        self._by_type: dict[type[Event], tuple[Any, ...]] = {}
        for handler in work.handlers:
            for event in handler.events:
                self._by_type[event] = (*self._by_type.get(event, ()), handler.function)
        self._turn = 0

    def _send(self, event: Event, **dated: Any) -> None:
        if dated:
            refuse_dated()
        check_sent(self._spec, event)
        self._derivations += 1
        if self._derivations > self._spec.loop:
            raise loop_bound(self._spec)
        self._derived.append(event)

    @property
    def turn(self) -> object:
        """What is under way, for a budget: see kernels/budget.py."""
        return (self._turn, self._live["now"]) if self._turn % 2 else None

    def run(self, event: Event) -> None:
        """One event. Its reads are in the stores until the next one. Raises Failed, Untraceable."""
        try:
            self._once(event)
        except Exception:
            # Perhaps it only stumbled over an integer that is none.
            self._exact(True)
            try:
                self._once(event)
            except Exception as error:
                raise Failed from error
            finally:
                self._exact(False)

    def _exact(self, exact: bool) -> None:
        for store in self._all:
            store.exact = exact

    def _once(self, event: Event) -> None:
        for store in self._all:
            store.reads.clear()
        self._live["now"] = event.ts
        self._turn += 1
        by_type, bound, derived = self._by_type, self._bound, self._derived
        derived.clear()
        self._derivations = 0
        try:
            for handler in by_type.get(type(event), ()):
                handler(bound, event)
            while derived:
                current = derived.popleft()._at(event.ts, event.seq)
                for handler in by_type.get(type(current), ()):
                    handler(bound, current)
        except Rejection as refusal:
            if not self._work.rejects:
                raise RuntimeError("an event was rejected in a pass that rejects none") from refusal
            for store in self._all:
                store.take_back()
        finally:
            self._turn += 1

    def touched(self) -> list[tuple[TracedStore, Any, Read]]:
        """What the last event has read and written."""
        return [(store, key, read) for store in self._all for key, read in store.reads.items()]


def _drop(record: Record) -> None:
    """What a pass puts out goes nowhere."""
    if not isinstance(record, Record):
        raise TypeError(f"emit takes a tl.Record, not {type(record).__name__}")


def _reject(reason: str | Record = "") -> None:
    raise rejection(reason)
