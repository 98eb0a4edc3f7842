"""What compiled passes call for windows: a log of what was done to a state, and cursors that follow a lag behind.

A log's row is (ts, row of the table, word). Its marks are described in windows.py. The word is what was added to the value (states that are summed up), or what
stood in the row's stamp before (states of which only the latest operation on a key counts). A stamp is the absolute
place of the operation in the log: BASE + its place.
"""

from __future__ import annotations

import numpy as np

from timelapse.kernels.native.machine.jit import primitive
from timelapse.kernels.native.memory.intrinsics import prefetch
from timelapse.kernels.native.memory.layout import PRESENT
from timelapse.kernels.native.memory.primitives import row_of
from timelapse.kernels.native.windows import BASE, KEPT, USED

_SOON = 8

_U = np.uint64


@primitive()
def push(log, marks, ts, row, word):  # type: ignore[no-untyped-def]
    """Note an operation."""
    n = _U(marks[USED])
    log[n, 0] = ts
    log[n, 1] = np.int64(row)
    log[n, 2] = word
    marks[USED] += 1


@primitive()
def stamp(log, marks, slots, i, at, ts):  # type: ignore[no-untyped-def]
    """Note an operation in the log, and its place in the row."""
    place = marks[BASE] + marks[USED]
    push(log, marks, ts, i, slots[i, at])
    slots[i, at] = place


@primitive()
def unstamp(log, marks, slots, at):  # type: ignore[no-untyped-def]
    """Take back what the event has noted."""
    while marks[USED] > marks[KEPT]:
        marks[USED] -= 1
        n = marks[USED]
        slots[log[n, 1], at] = log[n, 2]


@primitive()
def slide(log, marks, cursor, slots, at, limit):  # type: ignore[no-untyped-def]
    """What was added up to a time, this time included, comes to the value of the lag."""
    n, used = _U(marks[cursor]), _U(marks[USED])
    while n < used and log[n, 0] <= limit:
        if n + _U(_SOON) < used:
            prefetch(slots, log[n + _U(_SOON), 1])
        i = _U(log[n, 1])
        slots[i, at] = np.int64(_U(slots[i, at]) + _U(log[n, 2]))
        n += _U(1)
    marks[cursor] = np.int64(n)


@primitive()
def slide_members(log, marks, cursor, slots, at, counts, mask, place, width, limit):  # type: ignore[no-untyped-def]
    """Members whose latest operation was up to a time leave the counts of their keys (`width` words each)."""
    n, used, base = _U(marks[cursor]), _U(marks[USED]), marks[BASE]
    while n < used and log[n, 0] <= limit:
        if n + _U(_SOON) < used:
            prefetch(slots, log[n + _U(_SOON), 1])
        i = _U(log[n, 1])
        if slots[i, 0] & PRESENT != 0 and slots[i, at] == base + np.int64(n):
            k = row_of(counts, mask, slots, np.int64(i), 1, width)
            counts[k, place] -= 1
            if counts[k, place] == 0:
                counts[k, 0] &= ~PRESENT
        n += _U(1)
    marks[cursor] = np.int64(n)


@primitive()
def skip(log, marks, cursor, limit):  # type: ignore[no-untyped-def]
    """The cursor goes on to a time, where that is all that matters."""
    n, used = _U(marks[cursor]), _U(marks[USED])
    while n < used and log[n, 0] <= limit:
        n += _U(1)
    marks[cursor] = np.int64(n)


@primitive()
def follow(log, first, used, old, slots, mask, width):  # type: ignore[no-untyped-def]
    """The table has moved: where the log's rows are now."""
    for n in range(first, used):
        log[n, 1] = np.int64(row_of(slots, mask, old, log[n, 1], 1, width))
