"""Keys that are looked for, by their hashes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from timelapse.tables.loops import U64

I64 = npt.NDArray[np.int64]


class Known(NamedTuple):
    """Distinct keys, by both lanes of their hashes (rowhash.py); `order`: their numbers, by the low lane."""

    low: U64
    high: U64
    order: I64

    @classmethod
    def of(cls, low: U64, high: U64) -> Known:
        return cls(low, high, np.argsort(low, kind="stable"))

    def codes(self, low: U64, high: U64) -> I64:
        """The number of each key; -1 for one that is not looked for."""
        if not len(self.order):
            return np.full(len(low), -1, np.int64)
        at = np.minimum(np.searchsorted(self.low[self.order], low), len(self.order) - 1)
        codes = self.order[at]
        return np.where((self.low[codes] == low) & (self.high[codes] == high), codes, -1)
