"""A tiny driver for passes: dicts, and effects applied at once, by their definition in result.Write."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import timelapse as tl
from timelapse.analysis import Analysis, PassProgram
from timelapse.kinds.base import ABSENT, StateSpec
from timelapse.kinds.counter import Counter
from timelapse.kinds.distinct import with_member
from timelapse.kinds.quantiles import bits_of, bucket_of
from timelapse.model.types import ListType
from timelapse.program.binding import bind
from timelapse.program.program import Rejection, rejection, spec_of
from timelapse.serial import DictStore

State = dict[Any, Any]
Journal = list[tuple[State, Any, Any]]


class Effects:
    """Stands in for a state in `delta`: can only be written, through effect methods."""

    def __init__(self, spec: StateSpec, store: DictStore) -> None:
        self._spec = spec
        self._store = store
        self._default = 0 if spec.kind is Counter else None if spec.default is ABSENT else spec.default

    def _apply(self, key: Any, value: Any) -> None:
        key = self._stored(key)
        if self._spec.key is None:
            assert key == ()
        if value is ABSENT or (self._spec.kind is Counter and value == 0):
            self._store.drop(key)
        else:
            self._store.put(key, value)

    def _stored(self, key: Any) -> Any:
        """Kinds with several things under a key store each by itself."""
        return key if self._spec.outer is None else self._spec.kind.key_check(self._spec)(key)

    def _now(self, key: Any) -> tuple[Any, Any]:
        found = self._store.get(self._stored(key), ABSENT)
        return found, self._default if found is ABSENT else found

    def _e_set(self, key: Any, *value: Any) -> None:
        """Without a value: a member is there, a counter is back at zero."""
        [found] = value or [self._spec.kind is not Counter]
        self._apply(key, found)

    def _e_del(self, key: Any) -> None:
        if self._spec.kind is tl.Mean:
            self._apply((key, 0), ABSENT)
            self._apply((key, 1), ABSENT)
        else:
            self._apply(key, ABSENT)

    def _e_add(self, key: Any, n: int) -> None:
        self._apply(key, self._now(key)[1] + n)

    def _e_sketch(self, key: Any, member: int) -> None:
        found, size = self._now(key)[0], self._spec.option("size")
        assert self._spec.inner is not None
        self._apply(key, with_member(size, self._spec.inner, b"" if found is ABSENT else found, member))

    def _e_more(self, key: Any, value: int, number: int = 1) -> None:
        if self._spec.kind is tl.Quantiles:
            self._e_bucket(key, value, number)
            return
        for part, n in ((0, value * number), (1, number)):
            found = self._now((key, part))[0]
            total = (0 if found is ABSENT else found) + n
            self._apply((key, part), total if total else ABSENT)

    def _e_less(self, key: Any, value: int) -> None:
        self._e_more(key, value, -1)

    def _e_bucket(self, key: Any, value: float, number: int) -> None:
        at = key, bucket_of(value, bits_of(self._spec.option("error")))
        found = self._now(at)[0]
        total = (0 if found is ABSENT else found) + number
        self._apply(at, total if total else ABSENT)

    def _e_append(self, key: Any, value: int) -> None:
        found = self._now(key)[0]
        kept = (*(() if found is ABSENT else found), value)
        self._apply(key, kept[-(self._spec.option("last") or len(kept)) :])

    def _e_first(self, key: Any, value: Any) -> None:
        if self._now(key)[0] is ABSENT:
            self._apply(key, value)

    def _e_up(self, key: Any, value: Any) -> None:
        if value > self._now(key)[1]:
            self._apply(key, value)

    def _e_down(self, key: Any, value: Any) -> None:
        if value < self._now(key)[1]:
            self._apply(key, value)

    def _e_up_always(self, key: Any, value: Any) -> None:
        now = self._now(key)[1]
        self._apply(key, value if value > now else now)

    def _e_down_always(self, key: Any, value: Any) -> None:
        now = self._now(key)[1]
        self._apply(key, value if value < now else now)

    def _e_top(self, key: Any, value: Any) -> None:
        found = self._now(key)[0]
        self._apply(key, value if found is ABSENT or value > found else found)

    def _e_bottom(self, key: Any, value: Any) -> None:
        found = self._now(key)[0]
        self._apply(key, value if found is ABSENT or value < found else found)


class Unreadable:
    """Stands in for a state that the pass has no business with."""

    def _used(self, *_: Any) -> Any:
        raise AssertionError("the pass uses a state that it does not name")

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"the pass uses a state that it does not name: .{name}")

    __getitem__ = __setitem__ = __delitem__ = __contains__ = _read = _write = _delete = _used


class Ignored(DictStore):
    """A state whose writes are dropped."""

    def put(self, key: Any, value: Any) -> None:
        """Dropped."""


def run_pass(
    program: type[tl.Program], work: PassProgram, events: Sequence[tl.Event],
    perturb: dict[str, Callable[[StateSpec, Any], Any]] | None = None,
) -> dict[str, State]:  # fmt: skip
    """The target states after a pass over the events, from empty states."""
    spec = spec_of(program)
    journal: Journal = []
    stores: dict[str, Any] = {}
    states: dict[str, Any] = {}
    for name, state in spec.states.items():
        store = stores[name] = (Ignored if name in work.ignored else DictStore)(journal)
        if perturb and name in perturb:
            store = Perturbed(journal, state, perturb[name])
        if name in work.delta:
            states[name] = Effects(state, store)
        elif name in work.exact | work.ignored:
            states[name] = state.kind(state, store)
        else:
            states[name] = Unreadable()

    def reject(reason: Any = "") -> None:
        raise rejection(reason)

    bound = bind(program(), states, {"emit": lambda _: None, "reject": reject, "now": 0}, work.members)
    for event in events:
        bound.__dict__["now"] = event.ts
        journal.clear()
        seen = restricted(event, work.columns.get(type(event).__name__, ()))
        try:
            for handler in work.handlers:
                if type(event) in handler.events:
                    handler.function(bound, seen)
        except Rejection:
            assert type(event).__name__ in work.rejects, "a rejection that the pass does not announce"
            for table, key, old in reversed(journal):
                if old is ABSENT:
                    table.pop(key, None)
                else:
                    table[key] = old
    return {name: stores[name].data for name in work.targets}


class Unread:
    """A field that the pass does not read."""


def restricted(event: tl.Event, columns: Sequence[str]) -> tl.Event:
    """The event with only the named fields; the others hold something useless."""
    values = [getattr(event, f.name) if f.name in columns else Unread() for f in event.__fields__]
    return type(event)._raw([*values, event.ts, event.seq])


class Perturbed(DictStore):
    """A state whose reads lie."""

    def __init__(self, journal: Journal, spec: StateSpec, lie: Callable[[StateSpec, Any], Any]) -> None:
        super().__init__(journal)
        self._spec, self._lie = spec, lie

    def get(self, key: Any, default: Any) -> Any:
        return self._lie(self._spec, super().get(key, default))


def lies(rng: random.Random) -> Callable[[StateSpec, Any], Any]:
    """Random values of the right type."""

    def lie(spec: StateSpec, truth: Any) -> Any:
        if spec.kind in (tl.Set, tl.SetOf):
            return rng.random() < 0.5
        if isinstance(spec.value, ListType):
            check = spec.value.inner.checker("a lie")
            return rng.choice([truth, (check(1),), tuple(map(check, (2, 3, 0)))])
        if spec.kind in (tl.Smoothed, tl.Decayed) and isinstance(truth, tuple):
            return (rng.choice([truth[0], 1.0, 2.5]), *truth[1:])
        return rng.choice([truth, truth, 0, 1, 2, 3, 5, -1])

    return lie


def scannable(analysis: Analysis, component: Sequence[str]) -> bool:
    """Whether the planner may compute the component by deltas."""
    facts = analysis.facts[component[0]]
    return len(component) == 1 and facts.composes is None and component[0] not in facts.depends_on


def above(analysis: Analysis, state: str) -> set[str]:
    """All states that a state depends on, through others too."""
    found: set[str] = set()
    todo = [state]
    while todo:
        for source in analysis.facts[todo.pop()].depends_on - found:
            found.add(source)
            todo.append(source)
    return found
