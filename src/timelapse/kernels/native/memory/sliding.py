"""What compiled passes call for windows: a log of what was done to a state, and cursors that follow a lag behind.

A log's row is (ts, row of the table, word). Its marks are described in windows.py. The word is what was added to the value
(states that are summed up), or twice what stood in the row's stamp before, and 1 if the operation leaves the key there (states of which only
the latest operation on a key counts). A stamp is the absolute place of the operation in the log: BASE + its place.

In the log of a Max or Min the word is the value that was offered, and a row has three more: links to the values before
and after it in its key's queue, and what was the queue's end before. Links are absolute places, 0 for none.
"""

from __future__ import annotations

import numpy as np

from timelapse.kernels.native.machine.jit import primitive
from timelapse.kernels.native.memory.arithmetic import unbits
from timelapse.kernels.native.memory.intrinsics import prefetch
from timelapse.kernels.native.memory.layout import PRESENT
from timelapse.kernels.native.memory.primitives import BARE, IN_ROW, row_of
from timelapse.kernels.native.windows import BASE, HEAD, KEPT, USED

WORD, BEFORE, AFTER, END = 2, 3, 4, 5
"""Where the value, the links, and the end of the queue before stand in a row of the log of a Max or Min."""
LINKED = 6
"""How many words such a row has."""
_DELETED = -1
"""In place of the link to the value before: the key was deleted."""
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
def stamp(log, marks, slots, i, at, ts, present):  # type: ignore[no-untyped-def]
    """Note an operation in the log, and its place in the row. `present`: 1 if it leaves the key there, else 0."""
    place = marks[BASE] + marks[USED]
    push(log, marks, ts, i, 2 * slots[i, at] + present)
    slots[i, at] = place


@primitive()
def unstamp(log, marks, slots, at):  # type: ignore[no-untyped-def]
    """Take back what the event has noted."""
    while marks[USED] > marks[KEPT]:
        marks[USED] -= 1
        n = marks[USED]
        slots[log[n, 1], at] = log[n, 2] >> 1


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
def slide_members(log, marks, cursor, slots, at, present, counts, mask, place, width, limit):  # type: ignore[no-untyped-def]
    """Members whose latest operation was up to a time leave the counts of their keys (`width` words each). `present`: the
    flag that says that a row's member is there. The counts have a table of their own."""
    n, used, base = _U(marks[cursor]), _U(marks[USED]), marks[BASE]
    while n < used and log[n, 0] <= limit:
        if n + _U(_SOON) < used:
            prefetch(slots, log[n + _U(_SOON), 1])
        i = _U(log[n, 1])
        if slots[i, 0] & present != 0 and slots[i, at] == base + np.int64(n):
            k = row_of(counts, mask, slots, np.int64(i), IN_ROW, width)
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
def beats(word, other, sign, real):  # type: ignore[no-untyped-def]
    """Whether a value comes before another: the larger one where `sign` is 1. `real`: the words are of floats."""
    if real != 0:
        return unbits(word) * sign > unbits(other) * sign
    return word > other if sign > 0 else word < other


@primitive()
def enqueue(log, marks, ts, slots, i, at, lags, word, sign, real):  # type: ignore[no-untyped-def]
    """A value is offered: it takes the place of those at the end of its key's queue that it beats.

    `at`: where the row has the queue's end; for each of `lags` lags its first link follows.
    """
    base, first = marks[BASE], marks[HEAD]
    for lag in range(1, lags):
        first = min(first, marks[HEAD + 2 * lag])
    oldest = base + first  # what stands before it has left every window
    end = slots[i, at]
    before = end
    while before >= oldest and beats(word, log[before - base, WORD], sign, real):
        before = log[before - base, BEFORE]
    if before < oldest:
        before = np.int64(0)
    n = marks[USED]
    push(log, marks, ts, i, word)
    log[n, BEFORE] = before
    log[n, AFTER] = 0
    log[n, END] = end
    if before != 0:
        log[before - base, AFTER] = base + n
    slots[i, at] = base + n
    for lag in range(lags):
        head = slots[i, at + 1 + lag]
        if head == 0 or head > before:
            slots[i, at + 1 + lag] = base + n


@primitive()
def empty(log, marks, ts, slots, i, at, lags):  # type: ignore[no-untyped-def]
    """A key is deleted: nothing before that counts."""
    n = marks[USED]
    push(log, marks, ts, i, 0)
    log[n, BEFORE] = _DELETED
    log[n, AFTER] = 0
    log[n, END] = slots[i, at]
    for word in range(lags + 1):
        slots[i, at + word] = 0


@primitive()
def take_back(log, marks, slots, at, lags, count):  # type: ignore[no-untyped-def]
    """Take the last operations back until there are so many."""
    base = marks[BASE]
    while marks[USED] > count:
        marks[USED] -= 1
        n = marks[USED]
        i, before, end = log[n, 1], log[n, BEFORE], log[n, END]
        slots[i, at] = end
        if before > 0:
            after, link = np.int64(0), end
            while link != before:
                after, link = link, log[link - base, BEFORE]
            log[before - base, AFTER] = after
        for lag in range(lags):
            if before == _DELETED or slots[i, at + 1 + lag] == base + n:
                edge = base + marks[HEAD + 2 * lag]
                head, link = np.int64(0), end
                while link >= edge:
                    head, link = link, log[link - base, BEFORE]
                slots[i, at + 1 + lag] = head


@primitive()
def slide_queues(log, marks, cursor, slots, at, limit):  # type: ignore[no-untyped-def]
    """What was offered up to a time leaves the queues. `at`: where a row has the first link of this lag."""
    n, used, base = _U(marks[cursor]), _U(marks[USED]), marks[BASE]
    while n < used and log[n, 0] <= limit:
        if n + _U(_SOON) < used:
            prefetch(slots, log[n + _U(_SOON), 1])
        i = _U(log[n, 1])
        if slots[i, at] == base + np.int64(n):
            slots[i, at] = log[n, AFTER]
        n += _U(1)
    marks[cursor] = np.int64(n)


@primitive()
def offered(log, marks, link):  # type: ignore[no-untyped-def]
    """The value at a link; 0 where there is none."""
    return log[link - marks[BASE], WORD] if link != 0 else np.int64(0)


@primitive()
def recall(log, keys, slots, mask, width):  # type: ignore[no-untyped-def]
    """Where the table has the keys of the log's first rows. Returns how many of them it does not have (-1 then)."""
    missing = 0
    for n in range(keys.shape[0]):
        i = row_of(slots, mask, keys, n, BARE, width)
        there = slots[i, 0] != 0
        log[n, 1] = np.int64(i) if there else np.int64(-1)
        missing += not there
    return missing


@primitive()
def restamp(log, marks, slots, at):  # type: ignore[no-untyped-def]
    """Put the places of the log's operations, of which there is whether they leave the key there, into their rows."""
    for n in range(marks[USED]):
        i = _U(log[n, 1])
        log[n, 2] = 2 * slots[i, at] + log[n, 2]
        slots[i, at] = marks[BASE] + n


@primitive()
def size_of(log, first, used):  # type: ignore[no-untyped-def]
    """The sum of the words of a log's rows without their signs."""
    size = 0.0
    for n in range(first, used):
        size += abs(np.float64(log[n, 2]))
    return size


@primitive()
def told(log, first, used, slots, width, idle, found):  # type: ignore[no-untyped-def]
    """What a log's rows say: each one's time, its key's words and its word, a column each in `found`. Returns how many there
    are, without those of nothing unless `idle`."""
    count = 0
    for n in range(first, used):
        if n + _SOON < used:
            prefetch(slots, log[n + _SOON, 1])
        word = log[n, 2]
        if word != 0 or idle:
            i = _U(log[n, 1])
            found[0, count] = log[n, 0]
            for w in range(1, width + 1):
                found[w, count] = slots[i, w]
            found[width + 1, count] = word
            count += 1
    return count


@primitive()
def furthest(slots, at):  # type: ignore[no-untyped-def]
    """How far the words in one place of all rows are from 0 at most."""
    most = 0.0
    for i in range(slots.shape[0]):
        most = max(most, abs(np.float64(slots[i, at])))
    return most


@primitive()
def withdraw(log, first, used, slots, at):  # type: ignore[no-untyped-def]
    """Take what was added back from the value of a lag."""
    for n in range(first, used):
        i = _U(log[n, 1])
        slots[i, at] = np.int64(_U(slots[i, at]) - _U(log[n, 2]))


@primitive()
def follow(log, into, further, first, used, old, slots, mask, width):  # type: ignore[no-untyped-def]
    """The table has moved: the log's rows `first` to before `used`, with where theirs are now, come to stand in an array, so much further there."""
    for n in range(first, used):
        if n + _SOON < used:
            prefetch(old, log[n + _SOON, 1])
        row = log[n, 1]
        for w in range(log.shape[1]):
            into[n + further, w] = log[n, w]
        into[n + further, 1] = np.int64(row_of(slots, mask, old, row, IN_ROW, width))
