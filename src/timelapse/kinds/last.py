"""Last: the last value added, per key; the mirror of First.

| operation | absent -> | present v -> |
|---|---|---|
| `add(k, c)` | c | c |

Delta: the slice's last value. Composition: the later one.

Its only write never reads, so a slice always knows what it leaves. A `Value` may also be added to, or written where
nothing is yet; some of these do not compose with each other, or with floats, and then it runs by key or slice after slice.
"""

from __future__ import annotations

from typing import Any

from timelapse.kinds.base import ABSENT, Op, Short
from timelapse.kinds.typevars import K, V
from timelapse.kinds.value import _READS, ValueLike


class Last(ValueLike[K, V]):
    """`tl.Last[K, V]`: the last value added for the key. `tl.Last[V]` has no key."""

    log_form = "present"
    window_form = "latest"
    shows_declared = True
    ops = {**_READS, "add": Op(effect="set", value=1)}
    short = Short("`add(k, v)`: the last one stays", "as `Value`", "as `Value`", "the last write", "always")
    breaks = {}

    __slots__ = ()

    def add(self, key: Any = ABSENT, value: Any = ABSENT, *, at: int | None = None) -> None:
        """Write a value: `add(k, v)`, or `add(v)` where the state has no key. With `at` it takes effect then."""
        checked, stored = self._checked(key, value)
        if at is None or not self._later(at, "add", checked, stored):
            self._put(checked, stored)
