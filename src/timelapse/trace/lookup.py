"""Whole numbers that are looked for in long columns, by a table with a place for each number between the least and the largest.

Arrow's search hashes every row. Keys are mostly numbers that lie near each other, and then a table says the same in a seventh of the time.
NumPy's `unique` hashes, too; `merged` sorts, which takes next to nothing where most ascends.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from timelapse.tables.ordering import distinct

Ints = npt.NDArray[np.int64]
_SPAN = 1 << 24
"""So far apart the least and the largest may be."""


class Lookup:
    """Some numbers, each with its place; of equal ones with that of the last."""

    def __init__(self, values: Ints) -> None:
        self._least = values.min()
        self._span = np.uint64(int(values.max()) - int(self._least) + 1)
        self._places: npt.NDArray[np.int32] = np.zeros(int(self._span) + 1, np.int32)
        self._places[values - self._least] = np.arange(1, len(values) + 1)
        self._there = self._places != 0

    @classmethod
    def of(cls, values: pa.Array) -> Lookup | None:
        """None where they are no numbers of 64 bits, or lie too far apart."""
        if values.type != pa.int64() or not len(values):
            return None
        own = values.to_numpy()
        return cls(own) if int(own.max()) - int(own.min()) < _SPAN else None

    def among(self, column: Ints) -> npt.NDArray[np.bool_]:
        """Which rows hold one of them."""
        found: npt.NDArray[np.bool_] = (
            column == self._least if self._span == 1 else self._there[self._at(column)]
        )
        return found

    def places(self, column: Ints) -> Ints:
        """For each row the place of its number; -1 where it is none of them."""
        return self._places[self._at(column)].astype(np.int64) - 1

    def _at(self, column: Ints) -> Ints:
        """Where the table is looked at: the last entry stands for all numbers outside."""
        at: npt.NDArray[np.uint64] = (column - self._least).view(np.uint64)  # what is less is very large then
        np.minimum(at, self._span, out=at)
        return at.view(np.int64)


def numbers(column: pa.ChunkedArray) -> Ints | None:
    """A column's values where they are numbers or times that are all there, and lie together: no copy. Else None."""
    if column.num_chunks != 1 or column.null_count:
        return None
    own = column.chunk(0)
    if pa.types.is_timestamp(own.type):
        own = own.view(pa.int64())
    found: Ints | None = own.to_numpy() if own.type == pa.int64() else None
    return found


def merged(parts: Iterable[Ints]) -> Ints:
    """All of them, ascending, once each."""
    return distinct(np.concatenate([np.zeros(0, np.int64), *parts]), runs=True)


__all__ = ["Lookup", "merged", "numbers"]
