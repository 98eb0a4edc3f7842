"""First: the first value added, per key; later ones change nothing.

| operation | absent -> | present v -> |
|---|---|---|
| `add(k, c)` | c | v |

Delta: the slice's first value. Composition: the earlier one.
"""

from __future__ import annotations

from typing import Any

from timelapse.kinds.base import ABSENT, Op, Short
from timelapse.kinds.typevars import K, V
from timelapse.kinds.value import _READS, ValueLike


class First(ValueLike[K, V]):
    """`tl.First[K, V]`: the first value added for the key."""

    window_form = "first"
    shows_declared = True
    settling = frozenset({"first"})
    in_place = "first values"
    ops = {**_READS, "add": Op(effect="first", value=1)}
    short = Short(
        "`add(k, v)`: the first one stays",
        "as `Value`",
        "as `Value`",
        "the first write",
        "always",
    )
    breaks = {}

    __slots__ = ()

    def add(self, key: Any = ABSENT, value: Any = ABSENT, *, at: int | None = None) -> None:
        """Offer a value: `add(k, v)`, or `add(v)` where the state has no key. With `at` it takes effect then."""
        checked, stored = self._checked(key, value)
        if at is not None and self._later(at, "add", checked, stored):
            return
        if self._get(checked, ABSENT) is ABSENT:
            self._put(checked, stored)
