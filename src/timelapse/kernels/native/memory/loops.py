"""Compiled loops for hashing and merging tables (`timelapse.tables.loops`)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from timelapse.kernels.native.machine.jit import primitive
from timelapse.kernels.native.memory.arithmetic import mix
from timelapse.tables import loops
from timelapse.tables.loops import I64, STEP, U64, Bools

_STEP = np.uint64(STEP)


def _array(kind: Any, *, written: bool = False) -> Any:
    return types.Array(kind, 1, "C", readonly=not written)


_WORDS, _INTS, _BOOLS = _array(types.uint64), _array(types.int64), _array(types.boolean)


@primitive(types.void(_array(types.uint64, written=True), _WORDS, types.uint64))
def _fold(h, words, salt):  # type: ignore[no-untyped-def]
    for i in range(len(h)):
        h[i] = mix(h[i] * _STEP + mix(words[i] + salt))


@primitive(types.boolean(_WORDS, _WORDS, _array(types.int64, written=True)))
def _places(have, want, place):  # type: ignore[no-untyped-def]
    twice = False
    for i in range(1, len(have)):
        twice |= have[i] == have[i - 1]
    at = 0
    for j in range(len(want)):
        h = want[j]
        if j and h == want[j - 1]:
            twice = True
        while at < len(have) and have[at] < h:
            at += 1
        place[j] = at if at < len(have) and have[at] == h else -1
    return twice


@primitive(types.int64(_WORDS, _WORDS, _INTS, _BOOLS, _array(types.int64, written=True)))
def _merged(have, want, place, stays, found):  # type: ignore[no-untyped-def]
    at = rows = 0
    for j in range(len(want)):
        h = want[j]
        while at < len(have) and have[at] < h:
            found[rows] = at
            rows += 1
            at += 1
        if place[j] >= 0:
            at += 1
        if stays[j]:
            found[rows] = len(have) + j
            rows += 1
    while at < len(have):
        found[rows] = at
        rows += 1
        at += 1
    return rows


@primitive(types.void(_INTS, _INTS, _INTS, _array(types.int64, written=True)))
def _gather(have, want, index, found):  # type: ignore[no-untyped-def]
    rows = len(have)
    for i in range(len(index)):
        k = index[i]
        found[i] = have[k] if k < rows else want[k - rows]


class CompiledLoops:
    """With machine code."""

    def fold(self, h: U64, words: U64, salts: U64) -> None:
        words = np.ascontiguousarray(words)
        for lane, (salt,) in zip(h, salts, strict=True):
            _fold(lane, words, salt)

    def places(self, have: U64, want: U64) -> tuple[I64, bool]:
        place = np.empty(len(want), np.int64)
        return place, bool(_places(have, want, place))

    def merged(self, have: U64, want: U64, place: I64, stays: Bools) -> I64:
        found = np.empty(len(have) + len(want), np.int64)
        return found[: _merged(have, want, place, stays, found)]

    def gather(self, have: I64, want: I64, index: I64) -> I64:
        found = np.empty(len(index), np.int64)
        _gather(have, want, index, found)
        return found


def install() -> None:
    """Have tables hashed and merged by machine code from now on."""
    if not isinstance(loops.loops(), CompiledLoops):
        loops.use(CompiledLoops())
