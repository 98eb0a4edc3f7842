"""What a slice wrote to states that share a table, straight from the table's words, with the hashes of
`tables/rowhash.py`: those that tables are sorted by, and the sums of what changed.

Hashes are summed here where values are scalars, which nearly all are; of others by way of Arrow (gathering.py).
"""

from __future__ import annotations

import numpy as np

from timelapse.kernels.native.machine.jit import primitive
from timelapse.kernels.native.memory.arithmetic import mix, unbits
from timelapse.kernels.native.memory.touch import FIRST, STEP_U, TEXT, load64, text_hash
from timelapse.model.types import ScalarType, ValueType
from timelapse.tables.rowhash import LANE_SALTS, NAN_BITS, NULL

NOTHING, UNKNOWN = -1, -2
"""In place of how a value is hashed: there is none; it is not hashed here."""
_WORD, _FLOAT = 0, 1
_U = np.uint64
_SALTS = np.array(LANE_SALTS, np.uint64)
_NULL = np.uint64(NULL)
_NAN = np.int64(NAN_BITS)
_ONE = np.uint64(1)
STATES = 30
"""Bits that say which states were written: no more share a row (layout.py)."""


def hashed_as(kind: ValueType | None) -> int:
    """How values of this type are hashed."""
    if kind is None:
        return NOTHING
    if not isinstance(kind, ScalarType):
        return UNKNOWN
    return {"float": _FLOAT, "str": TEXT, "bytes": TEXT}.get(kind.name, _WORD)


@primitive()
def _element(word, kind, salt, starts, data):  # type: ignore[no-untyped-def]
    if kind == TEXT:
        begin = load64(starts + 8 * word) + 1
        return text_hash(data + begin, load64(starts + 8 * word + 8) - begin, salt)
    if kind == _FLOAT and unbits(word) != unbits(word):
        word = _NAN
    return mix(_U(word) + salt)


@primitive()
def _changed(now, base, j, place, live, base_place, flag):  # type: ignore[no-untyped-def]
    """Whether a state's part of a row is not what it was."""
    was = base[j, 0] & flag if base.shape[0] != 0 else 0
    if was != now[j, 0] & flag:
        return True
    if was == 0:
        return False
    same = True
    for w in range(live):
        same &= base[j, base_place + w] == now[j, place + w]
    return not same


@primitive()
def look(  # type: ignore[no-untyped-def]
    image, lo, hi, exact, states, seeds, kinds, starts, data, shift, found, ends, counts, sums, elements
):
    """Look through rows lo to hi of a table for those that were written (`exact`: and are not what they were).

    `image`: the keys, flags and live words, what they were (hashtable.py, Image). `states` has for each state: where its words begin
    beside the flags, their number, where they begin in `base`, its flag, how its values are hashed. `kinds`: how the parts of the key are. Of what is found the arrays in `found` get the keys' hashes, and the row with, in
    the STATES lower bits, which states were written; `ends` counts them by their hashes' upper bits. Returns how many.

    `counts` and `sums` (both lanes) are of each state: what was added or became another, what is gone, what was there
    before; `counts` last how many were written. Of states that are hashed elsewhere only that. `elements`: room for the
    hashes of a key's parts, both lanes.
    """
    slots, live_now, base = image
    hashes, marks = found
    n = 0
    parts = kinds.shape[0]
    for j in range(lo, hi):
        flags = live_now[j, 0]
        if flags == 0:
            continue
        bits = np.int64(0)
        for s in range(states.shape[0]):
            flag = states[s, 3]
            if flags & flag << 1 == 0:
                continue
            if exact:
                place, live, base_place = states[s, 0], states[s, 1], states[s, 2]
                if not _changed(live_now, base, j, place, live, base_place, flag):
                    continue
                if states[s, 4] == _FLOAT and flags & flag and base.shape[0] != 0 and base[j, 0] & flag:
                    a, b = unbits(live_now[j, place]), unbits(base[j, base_place])
                    if a != a and b != b:  # NaN is one value, whatever its bits
                        continue
            bits |= np.int64(1) << s
            counts[s, 3] += 1
        if bits == 0:
            continue
        h = FIRST
        for c in range(parts):
            element = _element(slots[j, 1 + c], kinds[c], _SALTS[0], starts, data)
            elements[0, c] = element
            h = mix(h * STEP_U + element)
        hashes[n] = h
        marks[n] = j << STATES | bits
        ends[np.int64(h >> shift) + 1] += 1
        n += 1
        if not exact:
            continue
        for c in range(parts):
            elements[1, c] = _element(slots[j, 1 + c], kinds[c], _SALTS[1], starts, data)
        for s in range(states.shape[0]):
            value = states[s, 4]
            if bits >> s & 1 == 0 or value == UNKNOWN:
                continue
            flag = states[s, 3]
            now = flags & flag != 0
            was = base.shape[0] != 0 and base[j, 0] & flag != 0
            to = 0 if now else 1
            counts[s, to] += 1
            counts[s, 2] += was
            for lane in range(2):
                salt = _SALTS[lane]
                own = seeds[s] ^ salt
                for c in range(parts):
                    own = mix(own * STEP_U + elements[lane, c])
                after = mix(own * STEP_U + mix(_U(now) + salt))
                if value != NOTHING:
                    part = _NULL ^ salt
                    if now:
                        part = _element(live_now[j, states[s, 0]], value, salt, starts, data)
                    after = mix(after * STEP_U + part)
                sums[s, to, lane] += after
                if was:
                    before = mix(own * STEP_U + mix(_ONE + salt))
                    if value != NOTHING:
                        part = _element(base[j, states[s, 2]], value, salt, starts, data)
                        before = mix(before * STEP_U + part)
                    sums[s, 2, lane] += before
    return n


@primitive()
def put_in(image, skip, states, hashes, marks, shift, places, width, words, drawers):  # type: ignore[no-untyped-def]
    """Put what `look` found into drawers: the hash, the flags (touched: of states that were written), the row's `words`
    words after its flags, of which the first `width` are the key's, and the row of `base` (zeros where it is empty) where there is room
    for it. `skip`: live words stand so much further left than behind the key. `places`: the next free row of each drawer.
    """
    slots, live_now, base = image
    below = (np.int64(1) << STATES) - 1
    before = drawers.shape[1] - 2 - words
    for n in range(hashes.shape[0]):
        own = np.int64(hashes[n] >> shift)
        at = places[own]
        places[own] = at + 1
        j = marks[n] >> STATES
        flags = np.int64(0)
        for s in range(states.shape[0]):
            flag = states[s, 3]
            flags |= live_now[j, 0] & flag | ((marks[n] & below) >> s & 1) * flag << 1
        drawers[at, 0] = np.int64(hashes[n])
        drawers[at, 1] = flags
        for w in range(width):
            drawers[at, 2 + w] = slots[j, 1 + w]
        for w in range(width, words):
            drawers[at, 2 + w] = live_now[j, 1 + w - skip]
        for w in range(before):
            drawers[at, 2 + words + w] = base[j, w] if base.shape[0] != 0 else 0


@primitive()
def only(found, flag, wanted, chosen):  # type: ignore[no-untyped-def]
    """These columns of the rows that have a flag (in column 1)."""
    n = 0
    for i in range(found.shape[1]):
        if found[1, i] & flag:
            for c in range(wanted.shape[0]):
                chosen[c, n] = found[wanted[c], i]
            n += 1
