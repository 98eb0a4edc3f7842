"""Sums of what was judged: exact, so that parts can be added in any order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from timelapse.compare.labels import I64, Bools

F64 = npt.NDArray[np.float64]
_UNIT = 1140
"""Sums of weights are whole numbers of 2^-1140: every double is one."""
_INFINITE = 1 << 6000


@dataclass
class Tally:
    """Items, or their weights: right and put out, judged and put out, of A and of B; and right, put out or not.

    `bare`: some that was put out has no weight; `lost`: some that is right has none.
    """

    right: list[int] = field(default_factory=lambda: [0, 0])
    judged: list[int] = field(default_factory=lambda: [0, 0])
    positives: int = 0
    bare: bool = False
    lost: bool = False

    def add(self, other: Tally) -> None:
        """What the other has counted, too."""
        for side in (0, 1):
            self.right[side] += other.right[side]
            self.judged[side] += other.judged[side]
        self.positives += other.positives
        self.bare |= other.bare
        self.lost |= other.lost


def amount(units: int, *, weighed: bool) -> float:
    """What a tally's number says: a count, or the sum of weights, rounded once."""
    if not weighed:
        return units
    try:
        return units / (1 << _UNIT)
    except OverflowError:
        return float("inf")


def exact(values: F64) -> int:
    """The sum of numbers that are 0 or more, in units."""
    finite = np.isfinite(values)
    parts, exponents = np.frexp(values[finite])
    whole, shift = (parts * (1 << 53)).astype(np.int64), exponents.astype(np.int64) + (_UNIT - 53)
    total = int((~finite).sum()) * _INFINITE
    for own in np.unique(shift).tolist():
        numbers = whole[shift == own]
        total += ((int((numbers >> 32).sum()) << 32) + int((numbers & 0xFFFFFFFF).sum())) << own
    return total


def tally(right: Bools, sides: Sequence[Bools], positives: Bools, weight: F64 | None) -> Tally:
    """Counts some items. `sides`: which A and B put out, of those that are judged."""
    if weight is None:
        goods, all_judged = ([int(m.sum()) for m in masks] for masks in ([s & right for s in sides], sides))
        return Tally(goods, all_judged, int(positives.sum()))
    bare = bool(np.isnan(weight[sides[0] | sides[1]]).any())
    lost = bool(np.isnan(weight[positives]).any())
    known = np.where(np.isnan(weight), 0.0, weight)
    goods = [exact(known[s & right]) for s in sides]
    return Tally(goods, [exact(known[s]) for s in sides], exact(known[positives]), bare, lost)


def tallies(
    groups: I64, which: Bools, right: Bools, sides: Sequence[Bools], positives: Bools, weight: F64 | None
) -> dict[int, Tally]:
    """The same for each group that has anything judged or right."""
    rows = np.flatnonzero(which & (sides[0] | sides[1] | positives))
    order = rows[np.argsort(groups[rows], kind="stable")]
    if not len(order):
        return {}
    values, starts = np.unique(groups[order], return_index=True)
    return {
        value: tally(
            right[part], [s[part] for s in sides], positives[part], None if weight is None else weight[part]
        )
        for value, part in zip(values.tolist(), np.split(order, starts[1:]), strict=True)
    }
