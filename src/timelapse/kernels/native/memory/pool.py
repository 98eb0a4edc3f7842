"""A pool of distinct strings as machine code sees it: a hash table over bytes.

A string's code is its number in the pool. The pool is four arrays that the caller owns and enlarges:

- `slots`: 2^n words, at most half full: 0, or the upper half of a hash and in the lower half a code plus 1;
- `starts`: where each string begins in `data`, and where the next one will;
- `data`: for each string a byte that tells its domain (text or bytes), then its bytes;
- `used`: how many strings there are.

Equal means the same domain and the same bytes; hashes only find candidates. The hash multiplies and folds
8 bytes at a time and ends with the finaliser of MurmurHash3 (A. Appleby, 2011).
"""

from __future__ import annotations

import numba as nb
import numpy as np

from timelapse.kernels.native.machine.jit import primitive
from timelapse.kernels.native.memory.arithmetic import mix
from timelapse.kernels.native.memory.intrinsics import load8, prefetch

_U = np.uint64
_ONE = np.uint64(1)
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_FACTOR = np.uint64(0x9FB21C651E98DF25)
AHEAD = 24
"""How many strings before one is looked up it is hashed."""


@primitive()
def _hash(data, start, end, domain):  # type: ignore[no-untyped-def]
    h = _U(end - start) * _FACTOR + _U(domain)
    i = start
    while i + 8 <= end:
        h = (h ^ load8(data, i)) * _FACTOR
        h ^= h >> _HALF
        i += 8
    last = _U(0)
    shift = _U(0)
    while i < end:
        last |= _U(data[i]) << shift
        shift += _U(8)
        i += 1
    return mix((h ^ last) * _FACTOR)


@primitive()
def _same(data, start, end, pool, at):  # type: ignore[no-untyped-def]
    i = start
    while i + 8 <= end:
        if load8(data, i) != load8(pool, at + i - start):
            return False
        i += 8
    while i < end:
        if data[i] != pool[at + i - start]:
            return False
        i += 1
    return True


@primitive(
    nb.int64(
        nb.types.Array(nb.int64, 1, "C", readonly=True), nb.types.Array(nb.uint8, 1, "C", readonly=True),
        nb.int64, nb.uint8, nb.uint64[::1], nb.int64[::1], nb.uint8[::1], nb.int64[::1], nb.uint64[::1], nb.int64[::1],
    ),
)  # fmt: skip
def intern(offsets, data, first, domain, slots, starts, pool, used, hashes, out):  # type: ignore[no-untyped-def]
    """The codes of strings, new ones put into the pool. Returns how many of `out` are done.

    String j is `data[offsets[j]:offsets[j + 1]]`. It begins at `first` and stops early where the next string
    may need more room than the pool has; call it again from there when the pool is larger. `hashes`: room for those of
    the next AHEAD strings: what a look-up needs is on its way by then.
    """
    mask = _U(slots.shape[0] - 1)
    most = min(slots.shape[0] // 2, starts.shape[0] - 1)
    rows = out.shape[0]
    for j in range(first, min(first + AHEAD, rows)):
        hashes[j % AHEAD] = _hash(data, offsets[j], offsets[j + 1], domain)
    for j in range(first, rows):
        start, end = offsets[j], offsets[j + 1]
        h = hashes[j % AHEAD]
        if j + AHEAD < rows:
            later = _hash(data, offsets[j + AHEAD], offsets[j + AHEAD + 1], domain)
            hashes[j % AHEAD] = later
            prefetch(slots, np.int64(later & mask))
            n = np.int64(slots[hashes[(j + AHEAD * 2 // 3) % AHEAD] & mask] & _LOW) - 1
            prefetch(starts, n)
            n = np.int64(slots[hashes[(j + AHEAD // 3) % AHEAD] & mask] & _LOW) - 1
            if n >= 0:
                prefetch(pool, starts[n])
        tag = h & ~_LOW
        i = h & mask
        while True:
            slot = slots[i]
            if slot == 0:
                n = used[0]
                at = starts[n]
                if n >= most or at + 1 + end - start > pool.shape[0]:
                    return j
                pool[at] = domain
                for b in range(end - start):
                    pool[at + 1 + b] = data[start + b]
                starts[n + 1] = at + 1 + end - start
                slots[i] = tag | _U(n + 1)
                used[0] = n + 1
                out[j] = n
                break
            if slot & ~_LOW == tag:
                n = np.int64(slot & _LOW) - 1
                at = starts[n]
                if (
                    starts[n + 1] - at - 1 == end - start
                    and pool[at] == domain
                    and _same(data, start, end, pool, at + 1)
                ):
                    out[j] = n
                    break
            i = (i + _ONE) & mask
    return out.shape[0]


@primitive(nb.void(nb.uint64[::1], nb.int64[::1], nb.uint8[::1], nb.int64))
def refill(slots, starts, pool, count):  # type: ignore[no-untyped-def]
    """Put all strings of a pool into empty `slots`."""
    mask = _U(slots.shape[0] - 1)
    for n in range(count):
        h = _hash(pool, starts[n] + 1, starts[n + 1], pool[starts[n]])
        i = h & mask
        while slots[i] != 0:
            i = (i + _ONE) & mask
        slots[i] = (h & ~_LOW) | _U(n + 1)


@primitive(nb.void(nb.int64[::1], nb.int64[::1], nb.uint8[::1], nb.int64[::1], nb.uint8[::1]))
def spell(codes, starts, pool, offsets, data):  # type: ignore[no-untyped-def]
    """The strings of these codes one after the other in `data`, which `offsets` already delimit."""
    for j in range(codes.shape[0]):
        at = starts[codes[j]] + 1
        to = offsets[j]
        for b in range(offsets[j + 1] - to):
            data[to + b] = pool[at + b]
