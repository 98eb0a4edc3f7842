"""The order of rows by a whole number."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

I64 = npt.NDArray[np.int64]


def stable_order(values: I64) -> I64:
    """The places of values from the least to the greatest, equal ones as they stand: what `np.argsort(values, kind="stable")` gives.

    A value's distance from the least, and its place below that, are sorted as one word where both have room in it: in a third of the time.
    Times of a log have, up to millions of rows of centuries.
    """
    rows = len(values)
    if rows < 2 or bool((values[1:] >= values[:-1]).all()):
        return np.arange(rows, dtype=np.int64)
    least, most = int(values.min()), int(values.max())
    bits = (rows - 1).bit_length()
    if (most - least).bit_length() + bits > 64:
        return np.argsort(values, kind="stable")
    words = values.view(np.uint64) - np.uint64(least & 0xFFFF_FFFF_FFFF_FFFF)  # modulo 2^64: never negative
    words <<= np.uint64(bits)
    words |= np.arange(rows, dtype=np.uint64)
    words.sort()
    words &= np.uint64((1 << bits) - 1)
    return words.view(np.int64)
