"""Whole numbers that are looked for in long columns, by a table with a place for each number between the least and the largest.

Arrow's search hashes every row. Keys are mostly numbers that lie near each other, and then a table says the same in a seventh of the time.
NumPy's `unique` hashes, too; `merged` sorts, which takes next to nothing where most ascends.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from timelapse.tables.ordering import distinct

Ints = npt.NDArray[np.int64]
NO_INTS: Ints = np.zeros(0, np.int64)
_Entry = TypeVar("_Entry", bound=np.generic)
_LEAST = -(1 << 63)
_SPAN = 1 << 24
"""So far apart the least and the largest may be."""
_FEW = 4
"""A column is compared with each of so few numbers in less time than it takes to look its own up."""


class Lookup:
    """Some numbers, each with its place; of equal ones with that of the last."""

    def __init__(self, values: Ints) -> None:
        self._values = values
        self._before, self._last = int(values.min()) - 1, int(values.max())

    @classmethod
    def of(cls, values: pa.Array) -> Lookup | None:
        """None where they are no numbers of 64 bits, or lie too far apart."""
        if values.type != pa.int64() or not len(values):
            return None
        return cls.within(values.to_numpy(), _SPAN)

    @classmethod
    def within(cls, values: Ints, span: int) -> Lookup | None:
        """None where they lie further apart."""
        least = int(values.min())
        return cls(values) if least > _LEAST and int(values.max()) - least < span else None

    def among(self, column: Ints) -> npt.NDArray[np.bool_]:
        """Which rows hold one of them."""
        if len(self._values) > _FEW:
            return looked_up(self._there, column - self._before)
        found: npt.NDArray[np.bool_] = column == self._values[0]
        for one in self._values[1:]:
            found |= column == one
        return found

    def places(self, column: Ints) -> Ints:
        """For each row the place of its number; -1 where it is none of them."""
        return looked_up(self._places, column - self._before).astype(np.int64)

    # An entry on either side stands for all numbers outside.

    @cached_property
    def _there(self) -> npt.NDArray[np.bool_]:
        found = np.zeros(self._last - self._before + 2, np.bool_)
        found[self._values - self._before] = True
        return found

    @cached_property
    def _places(self) -> npt.NDArray[np.int32]:
        found = np.full(self._last - self._before + 2, -1, np.int32)
        found[self._values - self._before] = np.arange(len(self._values))
        return found


def looked_up(table: npt.NDArray[_Entry], at: Ints) -> npt.NDArray[_Entry]:
    """The entries at some places: the first or the last one where there is no such place. In half the time that an array of
    indices takes."""
    return table.take(at, mode="clip")


def chosen(values: Ints, mask: npt.NDArray[np.bool_]) -> Ints:
    """Those of the values that a mask is true for: in a quarter of the time that the mask as an index takes where it is true here and there."""
    return values.take(np.flatnonzero(mask))


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
    """All of them, ascending, once each. What is one part, or the same ones several times, is not sorted, and may be that part itself."""
    own: list[Ints] = []
    for part in parts:
        if len(part) and not any(_same(part, other) for other in own):
            own.append(part)
    if not own:
        return NO_INTS
    if len(own) == 1 and bool((own[0][1:] > own[0][:-1]).all()):
        return own[0]
    return distinct(np.concatenate(own), runs=True)


def _same(one: Ints, other: Ints) -> bool:
    ends = len(one) == len(other) and one[0] == other[0] and one[-1] == other[-1]
    return bool(ends and np.array_equal(one, other))


__all__ = ["Lookup", "chosen", "looked_up", "merged", "numbers"]
