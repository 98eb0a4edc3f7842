"""Which row of one table is which row of another.

Rows are the same thing when their identity columns are equal to the last bit; where an identity occurs several times
the first of one side belongs to the first of the other, and so on. Identities are compared by their 128-bit row hash
(tables/rowhash.py), as digests are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from timelapse.tables.loops import U64
from timelapse.tables.rowhash import both_lanes, differ, hash_order, one_array

Rows = npt.NDArray[np.int64]

IDENTITY_SEED = 0x646966665F726F77


class Matching(NamedTuple):
    """Row numbers. `left` and `right` are of one length: row left[i] of A is row right[i] of B, in A's order."""

    only_a: Rows
    only_b: Rows
    left: Rows
    right: Rows


@dataclass(frozen=True)
class Found:
    """How many rows are gone, new and changed, and which: None where they are too many to say. `left` and `right` of the numbers
    are the pairs that are changed."""

    counts: tuple[int, int, int]
    numbers: Matching | None

    @classmethod
    def of(cls, numbers: Matching) -> Found:
        return cls((len(numbers.only_a), len(numbers.only_b), len(numbers.left)), numbers)

    @classmethod
    def nothing(cls) -> Found:
        none = np.zeros(0, np.int64)
        return cls.of(Matching(none, none, none, none))


def match(a: pa.Table, b: pa.Table, identity: Sequence[str]) -> Matching:
    """Match two tables' rows by identity columns. Row numbers of one side rise."""
    return match_lanes(_lanes(a, identity), _lanes(b, identity))


def match_lanes(a: tuple[U64, U64], b: tuple[U64, U64]) -> Matching:
    """Match rows by both lanes of the hash of their identity."""
    rows_a, rows_b = len(a[0]), len(b[0])
    low, high = (np.concatenate(pair) for pair in zip(a, b, strict=True))
    found = _single(low, high, rows_a)
    if found is None:
        found = _several(low, high, rows_a, rows_b)
    left, right = found
    of = np.full(rows_a, -1, np.int64)  # the row of B for each of A: into A's order without sorting
    of[left] = right
    left = np.flatnonzero(of >= 0)
    return Matching(np.flatnonzero(of < 0), _others(rows_b, right), left, of[left])


def _single(low: U64, high: U64, rows: int) -> tuple[Rows, Rows] | None:
    """Pairs where no identity occurs twice on one side, in any order; None where that is not so. `rows`: of A."""
    order = hash_order(low)
    sorted_low = low[order]
    same = sorted_low[1:] == sorted_low[:-1]
    first = np.flatnonzero(same)
    left, right = order[first], order[first + 1] - rows
    single = not (same[1:] & same[:-1]).any() and bool(((left < rows) & (right >= 0)).all())
    return (left, right) if single and bool((high[left] == high[right + rows]).all()) else None


def _several(low: U64, high: U64, rows_a: int, rows_b: int) -> tuple[Rows, Rows]:
    """Pairs where identities occur any number of times."""
    side = np.repeat(np.array([0, 1], np.int8), [rows_a, rows_b])
    occurrence = _occurrences(low, high, side)
    order = np.lexsort((side, occurrence, low, high))
    key = [x[order] for x in (low, high, occurrence)]
    same = np.ones(max(0, len(order) - 1), np.bool_)
    for x in key:
        same &= x[1:] == x[:-1]
    first = np.flatnonzero(same)  # the next one in order is its counterpart
    return order[first], order[first + 1] - rows_a


def unequal(a: pa.Table, b: pa.Table, names: Sequence[str]) -> dict[str, npt.NDArray[np.bool_]]:
    """For two tables of one length and schema, row by row and column by column whether they differ in a bit."""
    return {name: differ(*(one_array(t.column(name)) for t in (a, b))) for name in names}


def unequal_pairs(a: pa.Table, b: pa.Table, found: Matching, names: Sequence[str]) -> Rows:
    """The matched pairs, by number, that differ in a bit of these columns."""
    changed = np.zeros(len(found.left), np.bool_)
    left, right = (
        t if len(rows) == t.num_rows and _rises_by_one(rows) else t.take(pa.array(rows))
        for t, rows in ((a.select(names), found.left), (b.select(names), found.right))
    )
    for mask in unequal(left, right, names).values():
        changed |= mask
    return np.flatnonzero(changed)


def _rises_by_one(rows: Rows) -> bool:
    """Whether row numbers of which none occurs twice, as many as there are rows, stand in their order."""
    return bool((rows[1:] > rows[:-1]).all())


def _lanes(table: pa.Table, names: Sequence[str]) -> tuple[U64, U64]:
    return both_lanes([one_array(table.column(n)) for n in names], table.num_rows, IDENTITY_SEED)


def _occurrences(low: U64, high: U64, side: npt.NDArray[np.int8]) -> Rows:
    """How many rows of the same side with the same identity come before each."""
    order = np.lexsort((np.arange(len(low)), side, low, high))
    keys = [x[order] for x in (low, high, side)]
    starts = np.ones(len(order), np.bool_)
    if len(order):
        starts[1:] = False
        for x in keys:
            starts[1:] |= x[1:] != x[:-1]
    place = np.arange(len(order), dtype=np.int64)
    first = np.maximum.accumulate(np.where(starts, place, 0)) if len(order) else place
    found = np.empty(len(order), np.int64)
    found[order] = place - first
    return found


def _others(rows: int, taken: Rows) -> Rows:
    free = np.ones(rows, np.bool_)
    free[taken] = False
    return np.flatnonzero(free)
