"""Looking back: what a state was, and what happened to it within a window.

`History` keeps each key's versions with the times from which they stood; `Done` the operations
that were done, with their times. Both forget what no reader can ask for any more. A view is an
ordinary state of the same kind over what they hold, and is only read.
"""

from __future__ import annotations

import functools
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable
from typing import Any

from timelapse.errors import UsageError
from timelapse.kinds.base import ABSENT, UNKEYED, State, StateSpec, Store
from timelapse.kinds.grouped import Grouped


class ReadOnly:
    """A store that is only read: `get` and `items` are given, writes are refused."""

    def __init__(
        self, get: Callable[[Any, Any], Any], items: Callable[[], Iterable[tuple[Any, Any]]]
    ) -> None:
        self.get = get
        self.items = items

    def put(self, key: Any, value: Any) -> None:
        raise _only_read()

    def drop(self, key: Any) -> None:
        raise _only_read()

    def side(self, table: dict[Any, Any], key: Any, value: Any) -> None:
        _beside(table, key, value)


def _beside(table: dict[Any, Any], key: Any, value: Any) -> None:
    """An entry of a kind's own index (see kinds.base.Store)."""
    if value is ABSENT:
        table.pop(key, None)
    else:
        table[key] = value


def _only_read() -> UsageError:
    return UsageError(
        "a view of the past is only read", hint="write to the state itself, without last(), ago()",
        code="TL207",
    )  # fmt: skip


class History:
    """Each key's versions, as far back as `keep` microseconds before the latest write of the key."""

    def __init__(self, keep: int) -> None:
        self.keep = keep
        self._versions: dict[Any, tuple[list[int], list[Any]]] = {}

    def add(self, ts: int, key: Any, value: Any) -> None:
        """The key has had this value (ABSENT: none) from `ts` on. Times do not go back."""
        times, values = self._versions.setdefault(key, ([], []))
        if times and times[-1] == ts:
            values[-1] = value
            return
        times.append(ts)
        values.append(value)
        # A tick reads what stood before everything at now - keep: that version must stay.
        old = bisect_left(times, ts - self.keep) - 1
        if old > 0:
            del times[:old], values[:old]

    def take(self, other: History) -> None:
        """Go on from the versions of another, which goes on by itself."""
        self._versions = {key: (times[:], values[:]) for key, (times, values) in other._versions.items()}

    def get(self, key: Any, default: Any, at: int, *, before: bool = False) -> Any:
        """What the key held after everything at a time, or before it."""
        found = self._versions.get(key)
        if found is None:
            return default
        place = bisect_left(found[0], at) if before else bisect_right(found[0], at)
        value = found[1][place - 1] if place else ABSENT
        return default if value is ABSENT else value

    def items(self, at: int, *, before: bool = False) -> list[tuple[Any, Any]]:
        """All keys that were there."""
        found = ((key, self.get(key, ABSENT, at, before=before)) for key in self.keys())
        return [(key, value) for key, value in found if value is not ABSENT]

    def keys(self) -> Iterable[Any]:
        """All keys of which versions may be known."""
        return self._versions

    def view(self, spec: StateSpec, at: int, *, before: bool = False) -> State:
        """The state as it was after everything at a time, or before it."""
        store = ReadOnly(
            lambda key, default: self.get(key, default, at, before=before),
            lambda: self.items(at, before=before),
        )
        state = spec.kind(spec, store)
        state._now = lambda: at
        return state

    def net(self, spec: StateSpec, now: Store, at: int, *, before: bool = False) -> State:
        """How much each key's integer has changed since."""

        def get(key: Any, default: Any) -> Any:
            change = now.get(key, 0) - self.get(key, 0, at, before=before)
            return change if change else default

        def items() -> list[tuple[Any, Any]]:
            keys = dict.fromkeys([*self.keys(), *(key for key, _ in now.items())])
            found = ((key, get(key, 0)) for key in keys)
            return [(key, change) for key, change in found if change]

        return spec.kind(spec, ReadOnly(get, items))


Operation = tuple[str, tuple[Any, ...], dict[str, Any]]
"""A method's name and what it was called with."""


class Done:
    """The operations done on each key, as far back as `keep` microseconds before the key's latest."""

    def __init__(self, keep: int) -> None:
        self._keep = keep
        self._done: dict[Any, tuple[list[int], list[Operation]]] = {}

    def add(self, ts: int, key: Any, operation: Operation) -> None:
        """An operation took effect at `ts`. Times do not go back."""
        times, operations = self._done.setdefault(key, ([], []))
        times.append(ts)
        operations.append(operation)
        old = bisect_left(times, ts - self._keep)
        if old > 0:
            del times[:old], operations[:old]

    def take(self, other: Done) -> None:
        """Go on from the operations of another, which goes on by itself."""
        self._done = {key: (times[:], done[:]) for key, (times, done) in other._done.items()}

    def take_back(self, key: Any) -> None:
        """The key's latest operation was not done after all."""
        times, operations = self._done[key]
        del times[-1], operations[-1]

    def of(self, key: Any, since: int, *, before: bool = False) -> tuple[list[int], list[Operation]]:
        """The times and operations of a key after everything at `since`; with `before` at it and after."""
        times, operations = self._done.get(key, ([], []))
        first = bisect_left(times, since) if before else bisect_right(times, since)
        return times[first:], operations[first:]

    def window(self, spec: StateSpec, since: int, now: int, *, before: bool = False) -> Any:
        """What the operations after everything at `since` (with `before`: at it and after) make of nothing."""

        def done(key: Any) -> Iterable[tuple[int, Operation]]:
            return zip(*self.of(key, since, before=before), strict=True)

        return rebuilding(spec, done, self.keys, lambda: now)

    def keys(self) -> list[Any]:
        """All keys of which operations are known."""
        return list(self._done)


def rebuilding(
    spec: StateSpec, done: Callable[[Any], Iterable[tuple[int, Operation]]], keys: Callable[[], list[Any]],
    now: Callable[[], int],
) -> Window:  # fmt: skip
    """What operations make of nothing: `done` gives those of a key, with their times, in order."""

    def rebuilt(wanted: Iterable[Any]) -> State:
        data: dict[Any, Any] = {}
        state = spec.kind(spec, _Plain(data))
        at = now()
        state._now = lambda: at
        for key in wanted:
            for at, (method, arguments, named) in done(key):  # noqa: B007 what `_now` gives
                getattr(state, method)(*arguments, **named)
        at = now()
        return state

    return Window(spec, rebuilt, keys)


class _Plain:
    def __init__(self, data: dict[Any, Any]) -> None:
        self.get = data.get
        self.put = data.__setitem__
        self.items = data.items
        self._data = data

    def drop(self, key: Any) -> None:
        self._data.pop(key, None)

    def side(self, table: dict[Any, Any], key: Any, value: Any) -> None:
        _beside(table, key, value)


class Members:
    """A window of a SetOf that is only asked for members and how many there are: `count` knows that by declared key."""

    def __init__(self, pairs: Any, count: Callable[[Any], int]) -> None:
        self._pairs, self._count = pairs, count

    def __contains__(self, pair: Any) -> bool:
        return pair in self._pairs

    def count(self, key: Any) -> int:
        """How many members the key has in the window."""
        return self._count(self._pairs._outer(key))

    def under(self, key: Any) -> State:
        """The members of one key, one by one, as a state."""
        pairs, spec = self._pairs, self._pairs._spec
        found = {k: v for k, v in pairs._items() if pairs._key_and_member(k)[0] == key}
        return spec.kind(spec, ReadOnly(found.get, found.items))  # type: ignore[no-any-return]


_SPECIAL = {
    "getitem": "__getitem__",
    "contains": "__contains__",
    "setitem": "__setitem__",
    "delitem": "__delitem__",
}


class Window:
    """A state that is rebuilt, key by key, from the operations in a window. Only reads."""

    def __init__(
        self, spec: StateSpec, rebuilt: Callable[[Iterable[Any]], State], keys: Callable[[], list[Any]]
    ) -> None:
        self._spec = spec
        self._rebuilt = rebuilt
        self._keys = keys

    def __getitem__(self, key: Any) -> Any:
        return self._one(key, "getitem")[key]

    def __contains__(self, key: Any) -> bool:
        return key in self._one(key, "contains")

    def _one(self, key: Any, operation: str) -> Any:
        return self._rebuilt([key_of(self._spec, key, operation)])

    def __getattr__(self, name: str) -> Any:
        op = self._spec.kind.ops.get(name)
        if op is None or op.effect is not None or not hasattr(self._spec.kind, name):
            raise _only_read()
        if op.all_keys:
            return getattr(self._rebuilt(self._keys()), name)

        def read(*arguments: Any, **named: Any) -> Any:
            key = _key_argument(self._spec, arguments, named)
            return getattr(self._one(key, name), name)(*arguments, **named)

        return read


def key_of(spec: StateSpec, key: Any, operation: str) -> Any:
    """What operations are kept under: the key as declared. Raises TypeMismatch for another type of key."""
    if spec.key is None:
        return UNKEYED
    if issubclass(spec.kind, Grouped):
        return spec.kind.declared_key(spec, key, operation)
    return spec.key.checker(f"a key of {spec.name}")(key)


def _key_argument(spec: StateSpec, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
    """The key that a method was called with: every kind has it first."""
    if spec.key is None:
        return UNKEYED
    return arguments[0] if arguments else named.get("key", UNKEYED)


def recording(spec: StateSpec, store: Store, told: Callable[[Any, Operation], None]) -> State:
    """The state of a spec that tells of every write, as (key, operation), after it was done."""
    kind: Any = spec.kind
    state: Any = _recording(kind)(spec, store)
    state._inside = False
    state._told = told
    return state  # type: ignore[no-any-return]


@functools.cache
def _recording(kind: Any) -> Any:
    members: dict[str, Any] = {"__slots__": ("_inside", "_told")}
    for name, op in kind.ops.items():
        method = _SPECIAL.get(name, name)
        if op.effect is not None and name not in ("iadd", "isub") and hasattr(kind, method):
            members[method] = _telling(method, getattr(kind, method))
    return type(kind)(kind.__name__, (kind,), members)


def _telling(method: str, plain: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(plain)
    def write(self: Any, *arguments: Any, at: int | None = None, **named: Any) -> Any:
        if at is not None and at != self._clock.now():
            return plain(self, *arguments, at=at, **named)  # it is told when it takes effect
        if self._inside:
            return plain(self, *arguments, **named)
        self._inside = True
        try:
            result = plain(self, *arguments, **named)
        finally:
            self._inside = False
        key = key_of(self._spec, _key_argument(self._spec, arguments, named), method.strip("_"))
        self._told(key, (method, arguments, named))
        return result

    return write
