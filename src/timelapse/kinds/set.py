"""Set: keys that are present or absent.

| operation | effect |
|---|---|
| `add(k)` | -> present |
| `discard(k)` | -> absent |

Delta: the last operation wins. Composition: the later one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic

from timelapse.kinds.base import Op, State, StateSpec
from timelapse.kinds.effects import Delta, Journal, SetDelta

if TYPE_CHECKING:
    from typing_extensions import TypeVar  # with defaults: PEP 696
else:
    from timelapse.kinds.base import TypeVar

K = TypeVar("K", default=Any)


class Set(State, Generic[K]):
    """`tl.Set[K]`: a set of keys."""

    has_value = False
    needs_key = True
    ops = {
        "contains": Op(reads=True),
        "add": Op(effect="set"),
        "discard": Op(effect="del"),
        "items": Op(reads=True, all_keys=True, key=None),
    }

    __slots__ = ()

    @classmethod
    def delta(cls, spec: StateSpec, journal: Journal | None) -> Delta:
        return SetDelta(spec, journal)

    @classmethod
    def composes(cls, spec: StateSpec, effects: frozenset[str]) -> str | None:
        return None

    def __contains__(self, key: K) -> bool:
        return bool(self._get(self._check_key(key), False))

    def add(self, key: K) -> None:
        """Put the key in. Nothing happens if it is in."""
        self._put(self._check_key(key), True)

    def discard(self, key: K) -> None:
        """Take the key out. Nothing happens if it is not in."""
        self._drop(self._check_key(key))

    def items(self) -> list[K]:
        """Every key, in key order."""
        return sorted(k for k, _ in self._items())

    def __getitem__(self, key: K) -> Any:
        raise TypeError(f"{self._spec.name} is a Set: write `k in self.{self._spec.name}`")
