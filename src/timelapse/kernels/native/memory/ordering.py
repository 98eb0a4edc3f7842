"""Rows in the order of their hashes, as columns.

Hashes are spread evenly, so the upper bits of one tell about where its row belongs. Rows first go to the drawers of the
uppermost bits, of which a few hundred are open at a time; then each drawer, which fits into the processor's caches, is
ordered and written out as columns. To find the order first and then to fetch the rows in it takes twice as long: nearly
every row would be waited for.
"""

from __future__ import annotations

import itertools
from functools import partial

import numpy as np
import numpy.typing as npt

from timelapse.kernels.native.machine.jit import primitive
from timelapse.kernels.native.memory import blocks
from timelapse.tables.rowhash import hash_order
from timelapse.tables.sharing import at_once

Ints = npt.NDArray[np.int64]
U64 = npt.NDArray[np.uint64]

_DRAWERS = 9
"""Bits that choose a drawer: memory is written to in 2**9 places at a time."""
_EACH = 4
"""About so many rows share the bits by which a drawer is ordered first; the rest is done by exchanging neighbours."""
_STEPS = 16
"""So many exchanges per row are many more than hashes need that are spread evenly."""


def drawer_bits(rows: int) -> tuple[int, int]:
    """How many bits of the hashes choose a drawer for so many rows, and by how many more each drawer is ordered first."""
    bits = max(1, (rows // _EACH).bit_length())
    first = min(bits, _DRAWERS)
    return first, bits - first


def columns_of(drawers: Ints, ends: Ints, bits: tuple[int, int], threads: int) -> Ints:
    """Rows in drawers, which end where `ends` says, as columns in the order of their hashes, which are the first.

    Equal hashes stay in order. Threads share the drawers out.
    """
    first, more = bits
    # Memory is asked for here: NumPy asks for large pages.
    found: Ints = blocks.empty(drawers.size).reshape(drawers.shape[::-1])
    cuts = [(1 << first) * n // threads for n in range(threads + 1)]
    most = int(np.diff(ends).max())
    calls = []
    for lo, hi in itertools.pairwise(cuts):
        order: U64 = np.empty((most, 2), np.uint64)
        place: Ints = np.empty((1 << more) + 1, np.int64)
        given = (drawers, ends, lo, hi, first, more, _STEPS * len(drawers), order, place, found)
        calls.append((0, partial(take_out, *given)))
    if not all(at_once(calls, threads)):
        found[:] = drawers[hash_order(drawers[:, 0].view(np.uint64))].T
    return found


@primitive()
def take_out(drawers, ends, first, last, bits, more, steps, order, place, found):  # type: ignore[no-untyped-def]
    """Write columns out, from drawer `first` to before `last`, each ordered first by the next bits (`more`) after those that
    chose it, then altogether. `ends`: zero, then where each drawer ends. `order`: room for the hashes and rows of the fullest
    one; `place`: for 2^more numbers and one.

    False, and `found` is not to be used, where that takes more than so many steps.
    """
    shift = np.uint64(64 - bits - more)
    mask = np.uint64((1 << more) - 1)
    for drawer in range(first, last):
        lo, hi = ends[drawer], ends[drawer + 1]
        place[:] = 0
        for i in range(lo, hi):
            place[np.int64((np.uint64(drawers[i, 0]) >> shift) & mask) + 1] += 1
        for part in range(1, place.shape[0]):
            place[part] += place[part - 1]
        for i in range(lo, hi):
            h = np.uint64(drawers[i, 0])
            own = np.int64((h >> shift) & mask)
            order[place[own], 0] = h
            order[place[own], 1] = np.uint64(i)
            place[own] += 1
        for i in range(1, hi - lo):
            h, row, at = order[i, 0], order[i, 1], i
            while at > 0 and order[at - 1, 0] > h:
                order[at, 0] = order[at - 1, 0]
                order[at, 1] = order[at - 1, 1]
                at -= 1
            order[at, 0] = h
            order[at, 1] = row
            steps -= i - at
            if steps < 0:
                return False
        for i in range(hi - lo):
            row = np.int64(order[i, 1])
            for c in range(found.shape[0]):
                found[c, lo + i] = drawers[row, c]
    return True
