"""Counter: an integer per key; a counter that returns to 0 is gone.

| operation | effect on (value; 0 when missing) |
|---|---|
| `x[k] += n`, `add(k, n=1)` | v -> v + n |
| `x[k] = n`, `set(k, n)` | v -> n |
| `del x[k]`, `discard(k)` | v -> 0 |

Delta: v -> v + n, or v -> n after a reset. Composition: (reset, n) then (reset', n') is
(reset', n') if reset' else (reset, n + n').
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import nlargest
from operator import itemgetter
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal

from timelapse.errors import IntRange
from timelapse.ids import INT64_MAX, INT64_MIN
from timelapse.kinds.base import UNKEYED, Op, Short, State, StateOptions, StateSpec, Store
from timelapse.kinds.effects import NetDelta
from timelapse.kinds.typevars import K
from timelapse.model.types import INT


class Counter(State, Generic[K]):
    """`tl.Counter[K]`: integers that are added up, 0 where nothing was added.

    Without a key (`total: tl.Counter`) it is one integer: `self.total += 1`.
    """

    has_value = False
    attribute_style = True
    net_window = True
    one_way: ClassVar[Literal["", "added", "set"]] = "added"
    rewritten = frozenset({"add"})
    adds = "integers"
    log_form = "net"
    window_form = "net"
    effect_words: ClassVar = {"set": "reset"}
    ops = {
        "getitem": Op(reads=True),
        "contains": Op(reads=True),
        "setitem": Op(effect="set", value=1),
        "delitem": Op(effect="set"),
        "iadd": Op(effect="add", value=1),
        "isub": Op(effect="add", value=1),
        "add": Op(effect="add", value=1),
        "set": Op(effect="set", value=1),
        "discard": Op(effect="set"),
        "get": Op(reads=True),
        "top": Op(reads=True, all_keys=True, key=None),
        "items": Op(reads=True, all_keys=True, key=None),
    }
    short = Short(
        "`x[k] += n`, `x[k] -= n`, `add(k, n=1)`, `x[k] = n` or `set(k, n)`, `del x[k]` or `discard(k)`",
        "`x[k]`, `get(k)`, `k in x` (not 0), `top(n)`, `items()`",
        "0",
        "v -> v + n, or v -> n",
        "always",
    )
    delta = NetDelta
    breaks = {}

    __slots__ = ("_largest",)

    def __init__(self, spec: StateSpec, store: Store) -> None:
        super().__init__(spec, store)
        self._default = 0
        self._largest: Callable[[int], Iterable[tuple[Any, int]]] | None = getattr(store, "largest", None)

    @classmethod
    def declare(cls, name: str, args: tuple[Any, ...], options: StateOptions, line: int | None) -> StateSpec:
        spec = super().declare(name, args, options, line)
        return StateSpec(spec.name, cls, spec.key, INT, 0, line)

    if TYPE_CHECKING:

        def __iadd__(self, n: int) -> Counter[K]: ...

        def __isub__(self, n: int) -> Counter[K]: ...

    def __getitem__(self, key: K) -> int:
        value: int = self._get(self._check_key(key), 0)
        return value

    def __contains__(self, key: K) -> bool:
        return bool(self._get(self._check_key(key), 0) != 0)

    def __setitem__(self, key: K, value: int) -> None:
        self._store(self._check_key(key), value)

    def __delitem__(self, key: K) -> None:
        self._drop(self._check_key(key))

    def get(self, key: K, *, at: int | None = None) -> int:
        """The key's count; with `at` as it was at that time (microseconds), after everything at it."""
        value: int = self._as_of(at)._get(self._check_key(key), 0)
        return value

    def set(self, key: K, value: int, *, at: int | None = None) -> None:
        """`x[key] = value`; with `at` it takes effect at that time."""
        checked, stored = self._check_key(key), self._check_value(value)
        if at is None or not self._later(at, "set", checked, stored):
            self._store(checked, stored)

    def discard(self, key: K, *, at: int | None = None) -> None:
        """`del x[key]`; with `at` it takes effect at that time."""
        checked = self._check_key(key)
        if at is None or not self._later(at, "discard", checked):
            self._drop(checked)

    def add(self, key: K, n: int = 1, *, at: int | None = None) -> None:
        """Add n to the key's count; with `at` it takes effect at that time."""
        checked = self._check_key(key)
        if at is not None and self._later(at, "add", checked, self._check_value(n)):
            return
        self._store(checked, self._get(checked, 0) + n)

    def _store(self, key: Any, value: Any) -> None:
        if type(value) is not int:
            value = self._check_value(value)
        if not INT64_MIN <= value <= INT64_MAX:
            raise IntRange(
                f"{self._spec.name}[{key!r}] would become {value}, outside int64",
                hint="stored integers are int64; count in a coarser unit",
            )
        if value == 0:
            self._drop(key)
        else:
            self._put(key, value)

    def items(self) -> list[tuple[K, int]]:
        """Every key with a count that is not 0, in key order."""
        return sorted(self._items())

    def top(self, n: int) -> list[tuple[K, int]]:
        """The n largest counts, largest first; ties in key order."""
        items = list(
            self._items() if self._largest is None or type(n) is not int or n < 1 else self._largest(n)
        )
        if 0 < n < len(items) // 4:  # most need not be sorted
            least = nlargest(n, map(itemgetter(1), items))[-1]
            items = [item for item in items if item[1] >= least]
        return sorted(items, key=lambda item: (-item[1], item[0]))[:n]

    def _read(self) -> int:
        """The value of an un-keyed counter."""
        value: int = self._get(UNKEYED, 0)
        return value

    def _write(self, value: int) -> None:
        self._store(UNKEYED, value)

    def _delete(self) -> None:
        self._drop(UNKEYED)
