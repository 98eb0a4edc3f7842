"""Set: keys that are present or absent.

| operation | effect |
|---|---|
| `add(k)` | -> present |
| `discard(k)` | -> absent |

Delta: the last operation wins. Composition: the later one.
"""

from __future__ import annotations

from operator import itemgetter
from typing import Any, ClassVar, Generic

from timelapse.kinds.base import Op, Short, State
from timelapse.kinds.effects import PresenceDelta
from timelapse.kinds.typevars import K


class Set(State, Generic[K]):
    """`tl.Set[K]`: a set of keys."""

    has_value = False
    needs_key = True
    log_form = "present"
    window_form = "latest"
    presence = True
    settling = frozenset({"set"})
    effect_words: ClassVar = {"set": "set add", "del": "set discard"}
    columns = "`key`"
    ops = {
        "contains": Op(reads=True),
        "get": Op(reads=True),
        "add": Op(effect="set"),
        "discard": Op(effect="del"),
        "items": Op(reads=True, all_keys=True, key=None),
    }
    short = Short(
        "`add(k)`, `discard(k)`",
        "`k in x`, `get(k)` (bool), `items()`",
        "absent",
        "-> present, or -> absent",
        "always",
    )
    delta = PresenceDelta
    breaks = {}

    __slots__ = ()

    def __contains__(self, key: K) -> bool:
        return bool(self._get(self._check_key(key), False))

    def get(self, key: K, *, at: int | None = None) -> bool:
        """Whether the key is in; with `at` whether it was at that time (microseconds), after everything at it."""
        return bool(self._as_of(at)._get(self._check_key(key), False))

    def add(self, key: K, *, at: int | None = None) -> None:
        """Put the key in. Nothing happens if it is in. With `at` it takes effect at that time."""
        checked = self._check_key(key)
        if at is None or not self._later(at, "add", checked):
            self._put(checked, True)

    def discard(self, key: K, *, at: int | None = None) -> None:
        """Take the key out. Nothing happens if it is not in. With `at` it takes effect at that time."""
        checked = self._check_key(key)
        if at is None or not self._later(at, "discard", checked):
            self._drop(checked)

    def items(self) -> list[K]:
        """Every key, in key order."""
        return sorted(map(itemgetter(0), self._items()))

    def __getitem__(self, key: K) -> Any:
        raise TypeError(f"{self._spec.name} is a Set: write `k in self.{self._spec.name}`")
