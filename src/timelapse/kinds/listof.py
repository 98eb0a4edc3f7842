"""ListOf: a list of values per key, in the order in which they were appended.

| operation | effect on the list (empty when missing) |
|---|---|
| `append(k, v)` | its end gains v; with `tl.state(last=n)` only the newest n stay |
| `del x[k]` | -> empty |
| `pop(k)` | its oldest value goes |

Delta: (cleared or not, the values appended since, the newest n of them). Composition: (c, a) then (c', a') is
(c', a') if c' else (c, a + a'), cut to the newest n. `pop` depends on what is there: with it, a state does
not scan.
"""

from __future__ import annotations

from typing import Any, Generic

from timelapse.errors import DefinitionError
from timelapse.kinds.base import ABSENT, UNKEYED, Op, Short, State, StateOptions, StateSpec, Store
from timelapse.kinds.effects import Delta, Journal
from timelapse.kinds.typevars import K, V
from timelapse.model.types import ListType, OptionalType, ScalarType, ValueType


class ListDelta(Delta):
    """Values appended, perhaps after the list was emptied. Columns: reset, v."""

    form = "list"
    __slots__ = ("_check_item", "_keep", "_lists")

    def __init__(self, spec: StateSpec, journal: Journal | None) -> None:
        super().__init__(spec, journal)
        self._check_item = item_type(spec).checker(f"a value of {spec.name}")
        self._keep: int | None = spec.option("last")
        self._lists: dict[Any, tuple[bool, tuple[Any, ...]]] = {}

    def _e_append(self, key: Any, value: Any) -> None:
        checked = self._check_key(key)
        reset, values = self._lists.get(checked, (False, ()))
        self._put(self._lists, checked, (reset, newest((*values, self._check_item(value)), self._keep)))

    def _e_del(self, key: Any) -> None:
        self._put(self._lists, self._check_key(key), (True, ()))

    def clear(self) -> None:
        self._lists.clear()

    def columns(self) -> tuple[list[Any], dict[str, list[Any]]]:
        found = list(self._lists.values())
        return list(self._lists), {"reset": [r for r, _ in found], "v": [values for _, values in found]}


def item_type(spec: StateSpec) -> ValueType:
    """The type of a list's values."""
    assert isinstance(spec.value, ListType)
    return spec.value.inner


def newest(values: tuple[Any, ...], keep: int | None) -> tuple[Any, ...]:
    """The last `keep` of them (None: all)."""
    return values if keep is None or len(values) <= keep else values[-keep:]


class ListOf(State, Generic[K, V]):
    """`tl.ListOf[K, V]`: the values appended for a key, oldest first. `tl.ListOf[V]` has no key.

    With `tl.state(last=n)` the newest n per key are kept. Without, an append costs the length of the list. An empty list
    is not there. V is int, float, bool, str, bytes, tl.Time, or an optional of those.
    """

    plain_reads = False
    columns = "`key`, `value` (a list)"
    allowed = frozenset({"last"})
    ops = {
        "getitem": Op(reads=True),
        "get": Op(reads=True),
        "tail": Op(reads=True),
        "count": Op(reads=True),
        "contains": Op(reads=True),
        "append": Op(effect="append", value=1),
        "pop": Op(effect="pop", reads=True),
        "delitem": Op(effect="del"),
        "items": Op(reads=True, all_keys=True, key=None),
    }
    short = Short(
        "`append(k, v)`, `pop(k)` the oldest, `del x[k]`; `tl.state(last=n)` keeps the newest n",
        "`x[k]`, `tail(k, n)`, `count(k)`",
        "`()`",
        "the values appended, perhaps after `del`",
        "unless `pop` is used",
    )
    delta = ListDelta
    breaks = {"pop": "what {}.pop() removes depends on what the list holds"}

    __slots__ = ("_check_item", "_keep")

    def __init__(self, spec: StateSpec, store: Store) -> None:
        super().__init__(spec, store)
        self._check_item = item_type(spec).checker(f"a value of {spec.name}")
        self._keep: int | None = spec.option("last")

    @classmethod
    def declare(cls, name: str, args: tuple[Any, ...], options: StateOptions, line: int | None) -> StateSpec:
        if options.default is not ABSENT:
            raise DefinitionError("ListOf takes no default", hint="a missing key reads as ()")
        if options.last is not None and (type(options.last) is not int or options.last < 1):
            raise DefinitionError("last= is the number of values kept, 1 or more", hint="tl.state(last=20)")
        spec = super().declare(name, args, options, line)
        value = spec.value
        scalar = value.inner if isinstance(value, OptionalType) else value
        if not isinstance(scalar, ScalarType):
            raise DefinitionError(
                f"a list cannot hold {value.text if value else 'nothing'}",
                hint="int, float, bool, str, bytes, tl.Time or optionals of those; keep two lists, or a tl.MapOf",
            )
        assert value is not None
        return StateSpec(name, cls, spec.key, ListType(value), (), line, options=spec.options)

    @classmethod
    def arguments(cls, spec: StateSpec) -> list[ValueType]:
        return [t for t in (spec.key, item_type(spec)) if t is not None]

    @classmethod
    def join(cls, spec: StateSpec, before: Any, more: Any) -> Any:
        return newest((*before, *more), spec.option("last"))

    @classmethod
    def most_kept(cls, spec: StateSpec) -> int | None:
        return spec.option("last")  # type: ignore[no-any-return]

    def __getitem__(self, key: K) -> tuple[V, ...]:
        """The values, oldest first; () where there are none."""
        values: tuple[V, ...] = self._get(self._check_key(key), ())
        return values

    def get(self, key: K = UNKEYED) -> tuple[V, ...]:  # type: ignore[assignment]
        """The same, also for a state without a key."""
        return self[key]

    def tail(self, key: Any = ABSENT, n: Any = ABSENT) -> tuple[V, ...]:
        """The newest n values, oldest first: `tail(k, n)`, or `tail(n)` where the state has no key."""
        if n is ABSENT and self._spec.key is None:
            key, n = UNKEYED, key
        values = self[key]
        return values[max(0, len(values) - n) :]

    def count(self, key: K = UNKEYED) -> int:  # type: ignore[assignment]
        """How many values there are."""
        return len(self[key])

    def __contains__(self, key: K) -> bool:
        return bool(self[key])

    def append(self, key: Any = ABSENT, value: Any = ABSENT, *, at: int | None = None) -> None:
        """Add a value at the end: `append(k, v)`, or `append(v)` where the state has no key.

        With `at` it takes effect at that time.
        """
        if value is ABSENT and self._spec.key is None:
            key, value = UNKEYED, key
        checked, item = self._check_key(key), self._check_item(value)
        if at is None or not self._later(at, "append", checked, item):
            self._put(checked, newest((*self._get(checked, ()), item), self._keep))

    def pop(self, key: K = UNKEYED) -> V | None:  # type: ignore[assignment]
        """Remove the oldest value and give it; None where there is none."""
        checked = self._check_key(key)
        values: tuple[V, ...] = self._get(checked, ())
        if not values:
            return None
        if len(values) == 1:
            self._drop(checked)
        else:
            self._put(checked, values[1:])
        return values[0]

    def __delitem__(self, key: K) -> None:
        self._drop(self._check_key(key))

    def items(self) -> list[tuple[K, tuple[V, ...]]]:
        """Every key with values, in key order."""
        return sorted(self._items(), key=lambda item: item[0])
