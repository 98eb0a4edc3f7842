"""The loops in which hashing and merging tables spend their time.

Here they are written with NumPy. Where machine code is loaded anyway, `kernels/native/memory/loops.py` puts compiled ones in
their place: the same results to the last bit, a fraction of the time.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

U64 = npt.NDArray[np.uint64]
I64 = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

STEP = np.uint64(0x165667B19E3779F9)


class Loops(Protocol):
    """What can be exchanged."""

    def fold(self, h: U64, words: U64, salts: U64) -> None:
        """Add a column of words to the hashes of rows, in place. `h` has a row for each salt."""

    def places(self, have: U64, want: U64) -> tuple[I64, bool]:
        """For each of `want` its row in `have`, or -1; both ascend. Also: does either have a hash twice?"""

    def merged(self, have: U64, want: U64, place: I64, stays: Bools) -> I64:
        """Rows of `have` and, counted on after them, of `want`, in the order of their hashes.

        Left out are rows of `have` that `place` names, and rows of `want` that do not stay. No hash is there twice
        in either.
        """

    def gather(self, have: I64, want: I64, index: I64) -> I64:
        """Those elements of both, `want` counted on after `have`."""


_SHIFT, _FIRST, _SECOND = np.uint64(33), np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53)


def mixed(x: U64) -> U64:
    """Spread every input bit over all output bits (bijective), in place: the finaliser of MurmurHash3 (A. Appleby, 2011)."""
    shifted = np.right_shift(x, _SHIFT)
    x ^= shifted
    for factor in (_FIRST, _SECOND):
        x *= factor
        np.right_shift(x, _SHIFT, out=shifted)
        x ^= shifted
    return x


class NumpyLoops:
    """With NumPy."""

    def fold(self, h: U64, words: U64, salts: U64) -> None:
        h *= STEP
        h += mixed(words + salts)
        mixed(h)

    def places(self, have: U64, want: U64) -> tuple[I64, bool]:
        if not len(have) or not len(want):
            return np.full(len(want), -1, np.int64), _twice(have) or _twice(want)
        place = np.searchsorted(have, want).astype(np.int64)
        inside = np.minimum(place, len(have) - 1)
        return np.where(have[inside] == want, inside, -1), _twice(have) or _twice(want)

    def merged(self, have: U64, want: U64, place: I64, stays: Bools) -> I64:
        kept = np.ones(len(have), np.bool_)
        kept[place[place >= 0]] = False
        old, new = np.flatnonzero(kept), np.flatnonzero(stays)
        before = np.searchsorted(have[old], want[new])
        return np.insert(old, before, new + len(have)).astype(np.int64, copy=False)

    def gather(self, have: I64, want: I64, index: I64) -> I64:
        found: I64 = np.concatenate([have, want])[index]
        return found


def _twice(h: U64) -> bool:
    return bool((h[1:] == h[:-1]).any())


_current: Loops = NumpyLoops()


def loops() -> Loops:
    """Those in use."""
    return _current


def use(found: Loops) -> None:
    """Use these from now on, in this process."""
    global _current
    _current = found
