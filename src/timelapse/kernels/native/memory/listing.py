"""What compiled passes call for `items()` and `top(n)`: every key with its value, listed in rows and put in order.

A list is as it was when it was made: its rows, of the key's words and the value's, lie one after the other in an array, from a
place on. Behind them is as much room again, for sorting. What does not fit is counted only; the caller makes room.
"""

from __future__ import annotations

import numpy as np

from timelapse.kernels.native.machine.jit import primitive
from timelapse.kernels.native.memory.arithmetic import minus, minus_left
from timelapse.kernels.native.memory.primitives import BARE, row_of
from timelapse.kernels.native.memory.sliding import WORD
from timelapse.kernels.native.windows import BASE, USED

_SEEN = 1 << 62
"""A flag of rows that is only set while a list is made."""
LEFT = -1
"""In place of a count: a difference lies outside of int64."""


@primitive()
def _copied(listed, n, slots, i, width, place, size):  # type: ignore[no-untyped-def]
    if n < listed.shape[0]:
        for w in range(width):
            listed[n, w] = slots[i, 1 + w]
        for w in range(size):
            listed[n, width + w] = slots[i, place + w]


@primitive()
def list_present(listed, first, slots, flag, width, place, size):  # type: ignore[no-untyped-def]
    """List the keys that are there."""
    n = first
    for i in range(slots.shape[0]):
        if slots[i, 0] & flag != 0:
            _copied(listed, n, slots, i, width, place, size)
            n += 1
    return n - first


@primitive()
def _listed(listed, n, slots, i, width, value):  # type: ignore[no-untyped-def]
    if n < listed.shape[0]:
        for w in range(width):
            listed[n, w] = slots[i, 1 + w]
        listed[n, width] = value


@primitive()
def list_past(listed, first, slots, width, at):  # type: ignore[no-untyped-def]
    """List the keys whose integer was not 0 a lag ago. `at`: where that stands in a row."""
    n = first
    for i in range(slots.shape[0]):
        if slots[i, 0] != 0 and slots[i, at] != 0:
            _listed(listed, n, slots, i, width, slots[i, at])
            n += 1
    return n - first


@primitive()
def _changed(log, marks, cursor, slots, n):  # type: ignore[no-untyped-def]
    """The n-th row that may have changed within a lag; -1 for one that was seen before, and for none.

    They are among those of the operations that the lag's cursor has not passed; where these are many, the table is shorter.
    """
    begin = marks[cursor]
    scan = marks[USED] - begin >= slots.shape[0]
    i = np.int64(n) if scan else log[begin + n, 1]
    if slots[i, 0] == 0 or slots[i, 0] & _SEEN != 0:
        return np.int64(-1)
    if not scan:
        slots[i, 0] |= _SEEN
    return i


@primitive()
def _unsee(log, marks, cursor, slots):  # type: ignore[no-untyped-def]
    """All are as they were."""
    begin, end = marks[cursor], marks[USED]
    if end - begin < slots.shape[0]:
        for operation in range(begin, end):
            slots[log[operation, 1], 0] &= ~_SEEN


@primitive()
def list_changed(listed, first, log, marks, cursor, slots, width, place, at):  # type: ignore[no-untyped-def]
    """List the keys whose integer is not what it was a lag ago, with by how much."""
    n, fits = first, True
    for number in range(min(marks[USED] - marks[cursor], slots.shape[0])):
        i = _changed(log, marks, cursor, slots, number)
        if i >= 0 and slots[i, place] != slots[i, at]:
            found = minus(slots[i, place], slots[i, at])
            fits &= not minus_left(found, slots[i, place], slots[i, at])
            _listed(listed, n, slots, i, width, found)
            n += 1
    _unsee(log, marks, cursor, slots)
    return n - first if fits else np.int64(LEFT)


@primitive()
def _beside(listed, n, slots, mask, i, width, other):  # type: ignore[no-untyped-def]
    """The row whose key differs in its last part, which is `other`."""
    for w in range(width - 1):
        listed[n, w] = slots[i, 1 + w]
    listed[n, width - 1] = other
    return row_of(slots, mask, listed, n, BARE, width)


@primitive()
def list_pairs(listed, first, slots, mask, width, at, part, other):  # type: ignore[no-untyped-def]
    """List declared keys under which two integers stand, in rows of their own, whose last part of the key is `part` or `other`.

    Those are listed of which the integer under `part` is not 0: first the other one, then it. Both stand in word `at`.
    """
    n = first
    for i in range(slots.shape[0]):
        if slots[i, 0] != 0 and slots[i, width] == part and slots[i, at] != 0:
            if n < listed.shape[0]:
                beside = slots[_beside(listed, n, slots, mask, i, width, other), at]
                listed[n, width - 1] = beside
                listed[n, width] = slots[i, at]
            n += 1
    return n - first


@primitive()
def list_changed_pairs(listed, first, log, marks, cursor, slots, mask, width, place, at, part, other):  # type: ignore[no-untyped-def]
    """The same with what was added within a lag. None of that leaves int64."""
    n = first
    for number in range(min(marks[USED] - marks[cursor], slots.shape[0])):
        i = _changed(log, marks, cursor, slots, number)
        if i >= 0 and slots[i, width] == part and slots[i, place] != slots[i, at]:
            if n < listed.shape[0]:
                j = _beside(listed, n, slots, mask, i, width, other)
                listed[n, width - 1] = slots[j, place] - slots[j, at]
                listed[n, width] = slots[i, place] - slots[i, at]
            n += 1
    _unsee(log, marks, cursor, slots)
    return n - first


@primitive()
def list_latest(listed, first, log, marks, cursor, slots, flag, width, place, size, at):  # type: ignore[no-untyped-def]
    """List the keys that are there, and whose latest operation is within a lag. `at`: where a row has its stamp."""
    n = first
    for operation in range(marks[cursor], marks[USED]):
        i = log[operation, 1]
        if slots[i, 0] & flag != 0 and slots[i, at] == marks[BASE] + operation:
            _copied(listed, n, slots, i, width, place, size)
            n += 1
    return n - first


@primitive()
def list_firsts(listed, first, log, marks, cursor, slots, width, at):  # type: ignore[no-untyped-def]
    """List the keys with the first value in their queue for a lag. `at`: where a row has the link to it."""
    n = first
    for operation in range(marks[cursor], marks[USED]):
        i = log[operation, 1]
        if slots[i, at] == marks[BASE] + operation:
            _listed(listed, n, slots, i, width, log[operation, WORD])
            n += 1
    return n - first


@primitive()
def _text_before(a, b, starts, spelt):  # type: ignore[no-untyped-def]
    """Whether one string comes before another, by their codes: code points are in the order of the bytes of UTF-8."""
    i, end = starts[a] + 1, starts[a + 1]
    j, stop = starts[b] + 1, starts[b + 1]
    while i < end and j < stop:
        if spelt[i] != spelt[j]:
            return spelt[i] < spelt[j]
        i += 1
        j += 1
    return i == end and j < stop


@primitive()
def _before(listed, a, b, width, texts, ranked, starts, spelt):  # type: ignore[no-untyped-def]
    """Whether a row comes before another: by its key, or first by its value, largest first.

    `texts`: a bit for each part of the key that is a string.
    """
    if ranked != 0 and listed[a, width] != listed[b, width]:
        return listed[a, width] > listed[b, width]
    for w in range(width):
        x, y = listed[a, w], listed[b, w]
        if x != y:
            if texts >> w & 1 != 0:
                return _text_before(x, y, starts, spelt)
            return x < y
    return False


@primitive()
def in_order(listed, first, count, width, texts, ranked, starts, spelt):  # type: ignore[no-untyped-def]
    """Sort a list, by merging ever longer parts of it."""
    words = listed.shape[1]
    source, target = first, first + count
    part = 1
    while part < count:
        for low in range(0, count, 2 * part):
            middle, high = min(low + part, count), min(low + 2 * part, count)
            a, b = low, middle
            for n in range(low, high):
                later = a >= middle
                if not later and b < high:
                    later = _before(listed, source + b, source + a, width, texts, ranked, starts, spelt)
                taken = source + (b if later else a)
                b += later
                a += not later
                for w in range(words):
                    listed[target + n, w] = listed[taken, w]
        source, target = target, source
        part *= 2
    if source != first:
        for n in range(count):
            for w in range(words):
                listed[first + n, w] = listed[source + n, w]


@primitive()
def _sink(heap, place):  # type: ignore[no-untyped-def]
    """Let a value sink to where no smaller one is below it."""
    value = heap[place]
    while True:
        below = 2 * place + 1
        if below >= len(heap):
            break
        if below + 1 < len(heap) and heap[below + 1] < heap[below]:
            below += 1
        if heap[below] >= value:
            break
        heap[place] = heap[below]
        place = below
    heap[place] = value


@primitive(arrays=True)
def largest(listed, first, count, most, width, texts, starts, spelt):  # type: ignore[no-untyped-def]
    """Keep the rows with the largest values, in that order, and where these are equal in that of their keys. How many there are."""
    if most <= 0:
        return np.int64(0)
    if most < count:  # what is smaller than the smallest that is asked for need not be sorted
        heap = np.empty(most, np.int64)
        for n in range(most):
            heap[n] = listed[first + n, width]
        for n in range(most // 2 - 1, -1, -1):
            _sink(heap, n)
        for n in range(most, count):
            if listed[first + n, width] > heap[0]:
                heap[0] = listed[first + n, width]
                _sink(heap, 0)
        kept = 0
        for n in range(count):
            if listed[first + n, width] >= heap[0]:
                for w in range(width + 1):
                    listed[first + kept, w] = listed[first + n, w]
                kept += 1
        count = kept
    in_order(listed, first, count, width, texts, 1, starts, spelt)
    return np.int64(min(most, count))
