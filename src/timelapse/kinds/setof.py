"""SetOf: a set of members per key.

| operation | effect on (key, member) |
|---|---|
| `add(k, m)` | -> present |
| `discard(k, m)` | -> absent |
| `del x[k]` | every member of k -> absent |

Delta: the last operation on each (key, member) wins. Composition: the later one. `del x[k]` depends on which
members there are: with it, a state does not scan.
"""

from __future__ import annotations

from typing import ClassVar, Generic

from timelapse.kinds.base import ABSENT, Op, Short
from timelapse.kinds.effects import PresenceDelta
from timelapse.kinds.grouped import Grouped
from timelapse.kinds.typevars import K, M


class SetOf(Grouped, Generic[K, M]):
    """`tl.SetOf[K, M]`: a set of members per key. A key without members is not there.

    `(k, m) in x` costs one look-up. `x[k]`, `count(k)` and `del x[k]` use an index of everything: a slice
    that uses them takes over the whole state.
    """

    has_value = False
    log_form = "present"
    window_form = "latest"
    columns = "`key`, `member`: one row per member"
    signs: ClassVar = {"contains": "(k, m) in x"}
    shape = "SetOf[Key, Member]"
    pairs = frozenset({"contains", "add", "discard"})
    given_pairs = frozenset({"contains"})
    ops = {
        "contains": Op(reads=True),
        "getitem": Op(reads=True),
        "count": Op(reads=True),
        "add": Op(effect="set", key=(0, 1)),
        "discard": Op(effect="del", key=(0, 1)),
        "delitem": Op(effect="clear"),
        "items": Op(reads=True, all_keys=True, key=None),
    }
    short = Short(
        "`add(k, m)`, `discard(k, m)`, `del x[k]`",
        "`(k, m) in x`, `x[k]`: the members in order, `count(k)`",
        "`()`",
        "as `Set`, for each member",
        "unless a whole key is cleared",
    )
    delta = PresenceDelta
    breaks = {"clear": "what `del {}[k]` removes depends on the members of the key"}

    __slots__ = ()

    def __contains__(self, pair: tuple[K, M]) -> bool:
        return bool(self._get(self._check_key(pair), False))

    def __getitem__(self, key: K) -> tuple[M, ...]:
        """The members of a key, in their order; () for none."""
        return tuple(sorted(self._under(key)))

    def count(self, key: K) -> int:
        """How many members the key has."""
        return self._number(key)

    def add(self, key: K, member: M = ABSENT, *, at: int | None = None) -> None:
        """Put a member in: `add(k, m)`. Nothing happens if it is in. With `at` it takes effect at that time."""
        checked = self._check_key((key, member))
        if at is None or not self._later(at, "add", key, member):
            self._put(checked, True)

    def discard(self, key: K, member: M = ABSENT, *, at: int | None = None) -> None:
        """Take a member out: `discard(k, m)`. Nothing happens if it is not in. With `at` it takes effect at that time."""
        checked = self._check_key((key, member))
        if at is None or not self._later(at, "discard", key, member):
            self._drop(checked)

    def __delitem__(self, key: K) -> None:
        self._clear(key)

    def items(self) -> list[tuple[K, M]]:
        """Every key with every member, in order of both."""
        return sorted(self._key_and_member(stored) for stored, _ in self._items())
