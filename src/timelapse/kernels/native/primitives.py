"""What compiled passes call: hash tables over int64 words, one row per key.

A row is `flags, key words..., value, value at the slice's start`. Keys are never sentinels: OCCUPIED
says that a row holds one. A row whose key is absent has the value 0. Rows are never taken out within
a slice; a table has 2^n rows and the caller keeps it at most half full.
"""

from __future__ import annotations

import numpy as np

from timelapse.kernels.native.jit import primitive

OCCUPIED, PRESENT, TOUCHED, WAS_PRESENT = 1, 2, 4, 8
"""Flags. TOUCHED: written in this slice; then the last word and WAS_PRESENT tell what was there."""

_U = np.uint64
_ONE = np.uint64(1)


@primitive(inline="never")
def mix(x):  # type: ignore[no-untyped-def]
    """The finaliser of MurmurHash3."""
    x = _U(x)
    x ^= x >> _U(33)
    x *= _U(0xFF51AFD7ED558CCD)
    x ^= x >> _U(33)
    x *= _U(0xC4CEB9FE1A85EC53)
    x ^= x >> _U(33)
    return x


@primitive()
def find1(slots, mask, a):  # type: ignore[no-untyped-def]
    """The row of a key; an unoccupied row where it is not there."""
    i = mix(a) & mask
    while slots[i, 0] != 0 and slots[i, 1] != a:
        i = (i + _ONE) & mask
    return i


@primitive()
def find2(slots, mask, a, b):  # type: ignore[no-untyped-def]
    i = mix(_U(a) * _U(0x9E3779B97F4A7C15) + _U(b)) & mask
    while slots[i, 0] != 0 and (slots[i, 1] != a or slots[i, 2] != b):
        i = (i + _ONE) & mask
    return i


@primitive()
def find3(slots, mask, a, b, c):  # type: ignore[no-untyped-def]
    i = mix((_U(a) * _U(0x9E3779B97F4A7C15) + _U(b)) * _U(0xC2B2AE3D27D4EB4F) + _U(c)) & mask
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
def put(slots, i, place, value, present):  # type: ignore[no-untyped-def]
    """Write a row's value (at `place`) and presence; an absent key's value is 0."""
    flags = slots[i, 0]
    if flags & TOUCHED == 0:
        slots[i, place + 1] = slots[i, place]
        flags |= TOUCHED
        if flags & PRESENT:
            flags |= WAS_PRESENT
    slots[i, place] = value
    slots[i, 0] = flags | PRESENT if present else flags & ~PRESENT


@primitive()
def mark(slots, i, present):  # type: ignore[no-untyped-def]
    """Write the presence of a row without a value."""
    flags = slots[i, 0]
    if flags & TOUCHED == 0:
        flags |= TOUCHED
        if flags & PRESENT:
            flags |= WAS_PRESENT
    slots[i, 0] = flags | PRESENT if present else flags & ~PRESENT


@primitive()
def rehash(old, new, mask, width):  # type: ignore[no-untyped-def]
    """Copy all rows of a table into a larger, empty one."""
    for j in range(old.shape[0]):
        if old[j, 0] != 0:
            if width == 1:
                i = find1(new, mask, old[j, 1])
            elif width == 2:
                i = find2(new, mask, old[j, 1], old[j, 2])
            else:
                i = find3(new, mask, old[j, 1], old[j, 2], old[j, 3])
            for w in range(old.shape[1]):
                new[i, w] = old[j, w]


@primitive()
def load(slots, mask, width, keys, values):  # type: ignore[no-untyped-def]
    """Put distinct keys (rows of `keys`) into an empty table as present; no values for a set."""
    for j in range(keys.shape[0]):
        if width == 1:
            i = find1(slots, mask, keys[j, 0])
        elif width == 2:
            i = find2(slots, mask, keys[j, 0], keys[j, 1])
        else:
            i = find3(slots, mask, keys[j, 0], keys[j, 1], keys[j, 2])
        slots[i, 0] = OCCUPIED | PRESENT
        for w in range(width):
            slots[i, w + 1] = keys[j, w]
        if values.shape[0]:
            slots[i, width + 1] = values[j]


@primitive()
def untouch(slots):  # type: ignore[no-untyped-def]
    """A new slice begins."""
    for j in range(slots.shape[0]):
        slots[j, 0] &= OCCUPIED | PRESENT
