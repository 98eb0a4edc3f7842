"""Hashes of what a slice did, straight from a table's words: what `tables/rowhash.py` gives for the Arrow columns.

Only for scalar keys and values, which nearly all states have. Each row is hashed in one go, so that nothing in
between is written to memory: a fifth of the time.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from timelapse.kernels.native.machine.jit import primitive
from timelapse.kernels.native.memory.primitives import mix, unbits
from timelapse.kernels.native.memory.strings import Interned
from timelapse.kernels.native.memory.touch import FIRST, STEP_U, TEXT, load64, text_hash
from timelapse.kinds.base import StateSpec
from timelapse.model.types import ScalarType, ValueType
from timelapse.tables.apply import Change
from timelapse.tables.rowhash import LANE_SALTS, NAN_BITS, NULL, HashSum, seed_of
from timelapse.tables.table import key_types

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_WORD, _FLOAT = 0, 1
_U = np.uint64
_SALTS = np.array(LANE_SALTS, np.uint64)
_NULL = np.uint64(NULL)
_NAN = np.int64(NAN_BITS)


def _kind(kind: ValueType) -> int | None:
    """How an element is hashed; None if not here."""
    if not isinstance(kind, ScalarType):
        return None
    return {"float": _FLOAT, "str": TEXT, "bytes": TEXT}.get(kind.name, _WORD)


class Hashing:
    """Hashes what was written to one state (`primitives.written`)."""

    def __init__(self, spec: StateSpec, stored: ValueType | None, width: int, interned: Interned) -> None:
        keys = [_kind(kind) for kind in key_types(spec)]
        value = -1 if stored is None else _kind(stored)
        self.keys_known = None not in keys
        self.known = self.keys_known and value is not None
        """Whether changes can be hashed here, and before it whether the keys can."""
        self._keys = np.array([k or 0 for k in keys], np.int64)
        self._value = -1 if value is None else value
        self._seed = np.uint64(seed_of(f"state:{spec.name}"))
        self._width, self._interned = width, interned

    def keys(self, rows: Ints) -> npt.NDArray[np.uint64]:
        """As `tables.table.key_hashes`."""
        found: npt.NDArray[np.uint64] = key_hashes(rows, self._keys, *self._pool())
        return found

    def change(self, rows: Ints) -> tuple[Change, Bools]:
        """As `tables.apply.change_of`, of rows that may have changed."""
        moved: Bools = np.ones(rows.shape[0], np.bool_)
        sums, counts = change_sums(
            rows, self._width, self._keys, self._value, self._seed, _SALTS, *self._pool(), moved
        )
        added, gone, removed = (HashSum(int(sums[i, 0]), int(sums[i, 1]), int(counts[i])) for i in range(3))
        content = HashSum(
            (added.low - removed.low) % 2**64, (added.high - removed.high) % 2**64, added.rows - removed.rows
        )
        return Change(added + gone, content), moved

    def _pool(self) -> tuple[np.int64, np.int64]:
        self._kept = self._interned.buffers
        starts, data = self._kept
        return np.int64(starts.ctypes.data), np.int64(data.ctypes.data)


@primitive()
def _element(word, kind, salt, starts, data):  # type: ignore[no-untyped-def]
    if kind == TEXT:
        begin = load64(starts + 8 * word) + 1
        return text_hash(data + begin, load64(starts + 8 * word + 8) - begin, salt)
    if kind == _FLOAT and unbits(word) != unbits(word):
        word = _NAN
    return mix(_U(word) + salt)


@primitive()
def key_hashes(rows, kinds, starts, data):  # type: ignore[no-untyped-def]
    """The hash that tables are sorted by, for each of these rows."""
    found = np.empty(rows.shape[0], np.uint64)
    for n in range(rows.shape[0]):
        h = FIRST
        for c in range(kinds.shape[0]):
            h = mix(h * STEP_U + _element(rows[n, 2 + c], kinds[c], _SALTS[0], starts, data))
        found[n] = h
    return found


@primitive()
def change_sums(rows, width, kinds, value, seed, salts, starts, data, moved):  # type: ignore[no-untyped-def]
    """The sums, both lanes, and the number of what was added (or became another), what is gone, what was there before.

    `moved` loses those that hash as before: NaN is one value, whatever its bits.
    """
    sums = np.zeros((3, 2), np.uint64)
    counts = np.zeros(3, np.int64)
    live = 2 + width
    for n in range(rows.shape[0]):
        now, was = rows[n, 0], rows[n, 1]
        if value == _FLOAT and now != 0 and was != 0:
            a, b = unbits(rows[n, live]), unbits(rows[n, live + 1])
            if a != a and b != b:
                moved[n] = False
                continue
        to = 0 if now != 0 else 1
        counts[to] += 1
        counts[2] += was != 0
        for lane in range(2):
            salt = salts[lane]
            own = seed ^ salt
            for c in range(kinds.shape[0]):
                own = mix(own * STEP_U + _element(rows[n, 2 + c], kinds[c], salt, starts, data))
            after = mix(own * STEP_U + mix(_U(now) + salt))
            if value >= 0:
                part = _element(rows[n, live], value, salt, starts, data) if now != 0 else _NULL ^ salt
                after = mix(after * STEP_U + part)
            sums[to, lane] += after
            if was != 0:
                before = mix(own * STEP_U + mix(_ONE + salt))
                if value >= 0:
                    before = mix(before * STEP_U + _element(rows[n, live + 1], value, salt, starts, data))
                sums[2, lane] += before
    return sums, counts


_ONE = np.uint64(1)
