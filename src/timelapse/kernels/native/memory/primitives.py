"""What compiled passes call: hash tables over int64 words, one row per key.

A row is laid out by `timelapse.kernels.native.memory.layout`. Keys are never sentinels: OCCUPIED says that a
row holds one. Where a key is absent the live words are 0. Rows are never taken out within a slice; a table has 2^n
rows and the caller keeps it at most half full. Keys of more than three words get functions of their
own, written out from `wide`.
"""

from __future__ import annotations

import math

import numpy as np

from timelapse.kernels.native.machine.jit import primitive
from timelapse.kernels.native.memory.arithmetic import fold, mix, unbits
from timelapse.kernels.native.memory.intrinsics import prefetch
from timelapse.kernels.native.memory.layout import LASTING, OCCUPIED

_U = np.uint64
_ONE = np.uint64(1)
_STEP = np.uint64(0x9E3779B97F4A7C15)
BARE, IN_ROW = np.int64(0), np.int64(1)
"""Where a key's words begin: in a row of keys alone, in a row of a table. (Numba compiles a function anew for a literal.)"""
_SOON = 16
"""So many keys before its turn a key's row is asked for, where many are put into a table."""


@primitive()
def owner(h, workers):  # type: ignore[no-untyped-def]
    """Which of the workers a key belongs to, given its words folded into one. Tables use other bits."""
    return np.int64((((_U(h) * _STEP) >> _U(32)) * _U(workers)) >> _U(32))


@primitive()
def is_gone(takes, gone, turn, seq):  # type: ignore[no-untyped-def]
    """Whether an event is among those taken out of the log. Asked in log order; `takes[turn]` is how far that is."""
    at = takes[turn]
    while at < takes[2] and gone[at] < seq:
        at += 1
    takes[turn] = at
    return at < takes[2] and gone[at] == seq


@primitive()
def find1(slots, mask, a):  # type: ignore[no-untyped-def]
    """The row of a key; an unoccupied row where it is not there."""
    i = mix(a) & mask
    while slots[i, 0] != 0 and slots[i, 1] != a:
        i = (i + _ONE) & mask
    return i


@primitive()
def find2(slots, mask, a, b):  # type: ignore[no-untyped-def]
    i = mix(fold(a, b)) & mask
    while slots[i, 0] != 0 and (slots[i, 1] != a or slots[i, 2] != b):
        i = (i + _ONE) & mask
    return i


@primitive()
def find3(slots, mask, a, b, c):  # type: ignore[no-untyped-def]
    i = mix(fold(fold(a, b), c)) & mask
    while slots[i, 0] != 0 and (slots[i, 1] != a or slots[i, 2] != b or slots[i, 3] != c):
        i = (i + _ONE) & mask
    return i


@primitive()
def claim1(slots, mask, counts, t, a):  # type: ignore[no-untyped-def]
    """The row of a key, made if it is not there; `counts[t]` counts rows."""
    i = find1(slots, mask, a)
    if slots[i, 0] == 0:
        slots[i, 0] = OCCUPIED
        slots[i, 1] = a
        counts[t] += 1
    return i


@primitive()
def claim2(slots, mask, counts, t, a, b):  # type: ignore[no-untyped-def]
    i = find2(slots, mask, a, b)
    if slots[i, 0] == 0:
        slots[i, 0] = OCCUPIED
        slots[i, 1] = a
        slots[i, 2] = b
        counts[t] += 1
    return i


@primitive()
def claim3(slots, mask, counts, t, a, b, c):  # type: ignore[no-untyped-def]
    i = find3(slots, mask, a, b, c)
    if slots[i, 0] == 0:
        slots[i, 0] = OCCUPIED
        slots[i, 1] = a
        slots[i, 2] = b
        slots[i, 3] = c
        counts[t] += 1
    return i


@primitive()
def put(slots, i, place, value, present, flag):  # type: ignore[no-untyped-def]
    """Write a value of one word, and its presence, for which `flag` stands."""
    slots[i, place] = value
    flags = slots[i, 0] | flag << 1
    slots[i, 0] = flags | flag if present else flags & ~flag


@primitive()
def save(undo, u, t, slots, i, place, size):  # type: ignore[no-untyped-def]
    """Append a row's flags and live words to the undo log, of which u entries are in use."""
    undo[u, 0] = t
    undo[u, 1] = i
    undo[u, 2] = slots[i, 0]
    for w in range(size):
        undo[u, 3 + w] = slots[i, place + w]
    return u + 1


@primitive()
def restore(undo, u, slots, place, size):  # type: ignore[no-untyped-def]
    """Put back what entry u of the undo log holds. Rows stay where they are."""
    i = undo[u, 1]
    slots[i, 0] = undo[u, 2]
    for w in range(size):
        slots[i, place + w] = undo[u, 3 + w]


@primitive()
def put_back(undo, states, slots):  # type: ignore[no-untyped-def]
    """Put back what an undo log holds of one table's rows. `states` has whether a state is in it, its place and live words."""
    for u in range(undo.shape[0] - 1, -1, -1):
        t = undo[u, 0]
        if states[t, 0] != 0:
            restore(undo, u, slots, states[t, 1], states[t, 2])


@primitive()
def mark(slots, i, present, flag):  # type: ignore[no-untyped-def]
    """Write the presence of a row without a value."""
    flags = slots[i, 0] | flag << 1
    slots[i, 0] = flags | flag if present else flags & ~flag


@primitive()
def drop(slots, i, place, size, flag):  # type: ignore[no-untyped-def]
    """Make a row's key absent."""
    for w in range(place, place + size):
        slots[i, w] = 0
    slots[i, 0] = (slots[i, 0] | flag << 1) & ~flag


@primitive()
def push_newest(slots, i, place, most, word):  # type: ignore[no-untyped-def]
    """Append to a row's list, which has its length before its values. The oldest goes where it is full."""
    count = slots[i, place]
    if count == most:
        for w in range(place + 1, place + most):
            slots[i, w] = slots[i, w + 1]
        slots[i, place + most] = word
    else:
        slots[i, place] = count + 1
        slots[i, place + 1 + count] = word


@primitive()
def take_oldest(slots, i, place, most, flag):  # type: ignore[no-untyped-def]
    """Take the oldest value out of a row's list; an empty list is not there."""
    for w in range(place + 1, place + most):
        slots[i, w] = slots[i, w + 1]
    slots[i, place + most] = 0
    slots[i, place] -= 1
    flags = slots[i, 0] | flag << 1
    slots[i, 0] = flags if slots[i, place] != 0 else flags & ~flag


@primitive()
def faded(slots, i, place, now, half_life):  # type: ignore[no-untyped-def]
    """What is left of a Decayed's total, as Python computes it, with the C library's `pow`.

    The 2.0 is made of a flag that every row has that is in use, so that the compiler does not know it: of a constant it
    would make `exp2`, whose last bit may be another.
    """
    two = 1.0 + np.float64(slots[i, 0] & OCCUPIED)
    since = np.float64(now - slots[i, place + 1]) / np.float64(half_life)
    return unbits(slots[i, place]) * two**-since


@primitive()
def begin_of(mask, keys, j, at, width):  # type: ignore[no-untyped-def]
    """Where `row_of` begins to look."""
    h = _U(keys[j, at])
    for w in range(1, width):
        h = fold(h, keys[j, at + w])
    return mix(h) & mask


@primitive()
def row_of(slots, mask, keys, j, at, width):  # type: ignore[no-untyped-def]
    """`find` for a key of any width: the words from `at` on in row j of `keys`."""
    i = begin_of(mask, keys, j, at, width)
    while slots[i, 0] != 0:
        same = True
        for w in range(width):
            same &= slots[i, w + 1] == keys[j, at + w]
        if same:
            break
        i = (i + _ONE) & mask
    return i


@primitive()
def locate(slots, mask, key, width):  # type: ignore[no-untyped-def]
    """The row of one key (an array of one row), or -1."""
    i = row_of(slots, mask, key, BARE, BARE, width)
    return np.int64(i) if slots[i, 0] != 0 else np.int64(-1)


@primitive()
def rehash(old, new, old_base, new_base, mask, width, lo, hi):  # type: ignore[no-untyped-def]
    """Copy rows lo to hi of a table into a larger one, with what they held at the slice's start. Returns how many are new there."""
    rows = 0
    for j in range(lo, hi):
        soon = j + _SOON
        if soon < hi and old[soon, 0] != 0:
            prefetch(new, np.int64(begin_of(mask, old, soon, IN_ROW, width)))
        if old[j, 0] != 0:
            i = row_of(new, mask, old, j, IN_ROW, width)
            rows += new[i, 0] == 0
            for w in range(old.shape[1]):
                new[i, w] = old[j, w]
            if old_base.shape[0] != 0:
                for w in range(old_base.shape[1]):
                    new_base[i, w] = old_base[j, w]
    return rows


@primitive()
def rehash_some(old, new, old_base, new_base, mask, width, places):  # type: ignore[no-untyped-def]
    """The same with the rows at these places."""
    rows = 0
    for n in range(places.shape[0]):
        rows += rehash(old, new, old_base, new_base, mask, width, places[n], places[n] + 1)
    return rows


@primitive()
def load(slots, mask, width, keys, values, place, flag):  # type: ignore[no-untyped-def]
    """Put keys (rows of `keys`) with one state's values into a table, as present. Of a key that comes twice the last values stay. Returns how many are new."""
    new = 0
    for j in range(keys.shape[0]):
        soon = j + _SOON
        if soon < keys.shape[0]:
            prefetch(slots, np.int64(begin_of(mask, keys, soon, BARE, width)))
        i = row_of(slots, mask, keys, j, BARE, width)
        if slots[i, 0] == 0:
            new += 1
            for w in range(width):
                slots[i, w + 1] = keys[j, w]
        slots[i, 0] |= OCCUPIED | flag
        for w in range(values.shape[1]):
            slots[i, place + w] = values[j, w]
    return new


@primitive()
def override(slots, base, mask, width, rows, base_rows):  # type: ignore[no-untyped-def]
    """Put rows of an equal table in, over those of the same keys. Returns how many keys are new."""
    new = 0
    for j in range(rows.shape[0]):
        i = row_of(slots, mask, rows, j, IN_ROW, width)
        new += slots[i, 0] == 0
        for w in range(rows.shape[1]):
            slots[i, w] = rows[j, w]
        if base.shape[0] != 0:
            for w in range(base.shape[1]):
                base[i, w] = base_rows[j, w]
    return new


@primitive()
def renew(slots, base, first, lo, hi, again):  # type: ignore[no-untyped-def]
    """A new slice begins for rows lo to hi: none was written. `base`, where it has rows, keeps what they hold now: their flags (with those of
    what was written until now), and the words from `first` on. `again`: it has what they held when the slice before began, and only rows that
    were written since are looked at, whose flags are kept without those. Returns how many are in use."""
    rows = 0
    kept = base.shape[0] != 0
    for j in range(lo, hi):
        now = slots[j, 0]
        flags = now & LASTING
        if now != flags:
            slots[j, 0] = flags
        rows += flags != 0
        if kept and not (again and now == flags and base[j, 0] == flags):
            base[j, 0] = flags if again else now
            for w in range(1, base.shape[1]):
                base[j, w] = slots[j, first + w - 1]
    return rows


@primitive()
def nearest_quotient(a, b):  # type: ignore[no-untyped-def]
    """The float nearest to a / b, for integers up to 2^62 and b not 0: as Python divides those that floats do not hold.

    Long division gives 55 bits of the quotient at least, and the last one tells whether anything is left; so the conversion to a float rounds
    as the exact quotient would.
    """
    x, y = abs(a), abs(b)
    whole, rest, shift = x // y, x % y, 0
    while x and whole < 1 << 55:
        whole, rest, shift = whole * 2, rest * 2, shift + 1
        if rest >= y:
            whole, rest = whole + 1, rest - y
    if rest:
        whole |= 1
    found = math.ldexp(np.float64(whole), -shift)
    return -found if (a < 0) != (b < 0) else found
