"""Counters that no event changes by much, and that are therefore known to be small.

A handler that adds one to a counter could, by what the code says, leave int64, or pass the integers that a float
holds exactly; then Python must go on, so each write is kept in the undo log and each sum is tested. But where all that
a pass does to a counter is to add small constants, it can have grown by no more than their sum in each event. The pass
counts that (`NativeKernel`), hands over to Python should it ever reach LIMIT, and its code needs neither.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pyarrow.compute as pc

from timelapse.kernels.native.lowering.numbers import bound_of
from timelapse.kernels.native.lowering.values import Value
from timelapse.tables.levels import Start, levels_of

LIMIT = 2**50
"""How far such a counter may come."""
BOUND = 2 * LIMIT
"""What is known of its values. The rest is for events that are done apart from the pass, when it is looked into."""
MOST = 2**20
"""The largest constant, and what a counter may be set to at any time."""


@dataclass(frozen=True)
class Steps:
    """What one pass does to a counter, as its code is written. `most`: by how much an event can change it."""

    most: int = 0
    steady: bool = True

    def adds(self, amount: Value, *, in_loop: bool) -> Steps:
        """Something is added or taken away."""
        bound = bound_of(amount) if amount.kind == "int" else None
        return self._and(bound if not in_loop else None)

    def sets(self, value: Value) -> Steps:
        """It becomes something."""
        return self._and(0 if (bound := bound_of(value)) is not None and bound <= MOST else None)

    def else_(self) -> Steps:
        """Anything else may happen to it."""
        return self._and(None)

    def _and(self, more: int | None) -> Steps:
        return Steps(self.most + (more or 0), self.steady and more is not None and more <= MOST)


class Reach:
    """How far a pass's steady counters can have come. `steady`: their steps per event."""

    def __init__(self, steady: Mapping[str, int], starts: Mapping[str, Start]) -> None:
        self._step = max(steady.values(), default=0)
        self.most = max([MOST, *(_largest(starts[name]) for name in steady if name in starts)])

    def goes_on(self, events: int) -> bool:
        """So many more events. False: LIMIT may be passed, and what was compiled must not run."""
        self.most += events * self._step
        return self.most <= LIMIT


def _largest(start: Start) -> int:
    found = [pc.min_max(level.column("v")).as_py() for level in levels_of(start)]
    ends: Iterable[int] = (end for one in found for end in one.values() if end is not None)
    return max(map(abs, ends), default=0)
