"""Rows in the order of their hashes, as columns.

Hashes are spread evenly, so the upper bits of one tell about where its row belongs. Rows first go to the drawers of the
uppermost bits, of which a few hundred are open at a time; then each drawer, which fits into the processor's caches, is
ordered and written out as columns. To find the order first and then to fetch the rows in it takes twice as long: nearly
every row would be waited for.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from timelapse.kernels.native.machine.jit import primitive
from timelapse.tables.rowhash import hash_order

Ints = npt.NDArray[np.int64]
U64 = npt.NDArray[np.uint64]

_DRAWERS = 9
"""Bits that choose a drawer: memory is written to in 2**9 places at a time."""
_EACH = 4
"""About so many rows share the bits by which a drawer is ordered first; the rest is done by exchanging neighbours."""
_STEPS = 16
"""So many exchanges per row are many more than hashes need that are spread evenly."""


def columns_by_hash(rows: Ints, h: U64, wanted: Ints) -> Ints:
    """The hashes, ascending, and in that order these columns of the rows, each in one piece. Equal hashes stay in order.

    The rows' memory is used again for what is returned: memory that is touched for the first time is dear.
    """
    bits = max(1, (len(rows) // _EACH).bit_length())
    first = min(bits, _DRAWERS)
    ends: Ints = np.zeros((1 << first) + 1, np.int64)
    # Memory is asked for here: NumPy asks for large pages.
    drawers: Ints = np.empty((len(rows), 1 + len(wanted)), np.int64)
    put_in(rows, h, wanted, first, drawers, ends)
    found = rows.reshape(-1)[: drawers.size].reshape(drawers.shape[::-1])
    if not take_out(drawers, ends, first, bits - first, _STEPS * len(rows), found):
        found[:] = drawers[hash_order(drawers[:, 0].view(np.uint64))].T
    return found


@primitive()
def put_in(rows, h, wanted, bits, drawers, ends):  # type: ignore[no-untyped-def]
    """Put hashes and columns into drawers by the upper bits. `ends`: zeros, then where each drawer ends."""
    shift = np.uint64(64 - bits)
    for i in range(h.shape[0]):
        ends[np.int64(h[i] >> shift) + 1] += 1
    for drawer in range(1, ends.shape[0]):
        ends[drawer] += ends[drawer - 1]
    for i in range(h.shape[0]):
        own = np.int64(h[i] >> shift)
        at = ends[own]
        ends[own] = at + 1
        drawers[at, 0] = np.int64(h[i])
        for c in range(wanted.shape[0]):
            drawers[at, 1 + c] = rows[i, wanted[c]]


@primitive()
def take_out(drawers, ends, bits, more, steps, found):  # type: ignore[no-untyped-def]
    """Write columns out, drawer by drawer, each ordered first by the next bits (`more`), then altogether.

    False, and `found` is not to be used, where that takes more than so many steps.
    """
    most = lo = 0
    for drawer in range(1 << bits):
        most = max(most, ends[drawer] - lo)
        lo = ends[drawer]
    order = np.empty((most, 2), np.uint64)
    place = np.empty((1 << more) + 1, np.int64)
    shift = np.uint64(64 - bits - more)
    mask = np.uint64((1 << more) - 1)
    lo = 0
    for drawer in range(1 << bits):
        hi = ends[drawer]
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
        lo = hi
    return True
