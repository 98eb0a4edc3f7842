"""What is counted of a field whose values need not fit into memory: exact as long as they are few, and then with a stated error.

All of them take whole columns, by Arrow and NumPy. Ranks of numbers are datasketches' (KLL).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from timelapse.tables.ordering import distinct
from timelapse.tables.rowhash import row_hashes

U64 = npt.NDArray[np.uint64]


class Distinct:
    """How many different values there are: the smallest `size` of their hashes are kept (Bar-Yossef et al., "Counting distinct elements in
    a data stream", 2002). Exact below that; else the relative standard error is 1 / sqrt(size - 2)."""

    def __init__(self, size: int = 4096) -> None:
        self.size = size
        self._least: U64 = np.zeros(0, np.uint64)

    def add(self, hashes: U64) -> None:
        if len(self._least) == self.size:
            hashes = hashes[hashes <= self._least[-1]]
        if len(hashes):
            self._least = distinct(np.concatenate([self._least, hashes]))[: self.size]

    @property
    def exact(self) -> bool:
        return len(self._least) < self.size

    @property
    def count(self) -> int:
        if self.exact:
            return len(self._least)
        return round((self.size - 1) / ((float(self._least[-1]) + 1.0) / 2.0**64))

    @property
    def error(self) -> float:
        """The relative standard error; 0 where the count is exact."""
        return 0.0 if self.exact else float((self.size - 2) ** -0.5)


class Heavy:
    """The values that occur most often, with counts: Misra and Gries' summary (1982), merged as in Agarwal et al., "Mergeable summaries"
    (PODS 2012). Exact while at most `size` values occur; else each count is too small by `error` at most."""

    def __init__(self, kind: pa.DataType, size: int = 2048) -> None:
        self.size = size
        self.error = 0
        self._held = pa.table({"v": pa.array([], kind), "n": pa.array([], pa.int64())})

    def add(self, column: pa.Array) -> None:
        """Values without nulls."""
        if not len(column):
            return
        found = pc.value_counts(column)
        own = pa.table({"v": found.field(0), "n": found.field(1)})
        both = pa.concat_tables([self._held, own.cast(self._held.schema)])
        both = both.group_by("v").aggregate([("n", "sum")]).rename_columns(["v", "n"])
        if both.num_rows > self.size:
            counts = np.sort(both["n"].to_numpy())[::-1]
            less = int(counts[self.size])
            self.error += less
            both = both.set_column(1, "n", pc.subtract(both["n"], less))
            both = both.filter(pc.greater(both["n"], 0))
        self._held = both

    def top(self, most: int) -> list[tuple[Any, int]]:
        """The most frequent values whose count is above the error; of the same count in the order of their texts."""
        found = self._held.filter(pc.greater(self._held["n"], self.error))
        places = np.argsort(-found["n"].to_numpy(), kind="stable")
        kept = found["n"].to_numpy()[places[:most]]
        if not len(kept):
            return []
        # all with the count of the last one, so that ties do not depend on the order of reading
        among = found.filter(pc.greater_equal(found["n"], int(kept[-1])))
        rows = list(zip(among["v"].to_pylist(), among["n"].to_pylist(), strict=True))[: 50 * most]
        return sorted(rows, key=lambda row: (-row[1], repr(row[0])))[:most]


def hashes_of(column: pa.Array) -> U64:
    """A hash of each value: equal for equal ones."""
    return row_hashes([column], len(column), 0, 0)
