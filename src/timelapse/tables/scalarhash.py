"""The hash of one key, as `rowhash` computes it for whole columns."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from timelapse.tables.loops import STEP
from timelapse.tables.rowhash import KEY_SEED, LANE_SALTS, NULL

_MASK = (1 << 64) - 1
_SALT, _STEP, _NULL = int(LANE_SALTS[0]), int(STEP), int(NULL)
_A, _B = 0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53


def mix(x: int) -> int:
    """`rowhash.mix` of one word."""
    x ^= x >> 33
    x = x * _A & _MASK
    x ^= x >> 33
    x = x * _B & _MASK
    return x ^ (x >> 33)


def key_hash(parts: Sequence[Any]) -> int:
    """`tables.table.key_hashes` of one key, given as its parts: int, bool, str, bytes, None, or a Decimal in its type's one form,
    with all its places."""
    h = KEY_SEED ^ _SALT
    for part in parts:
        h = mix(h * _STEP + _part(part) & _MASK)
    return h


def _part(part: Any) -> int:
    if part is None:
        return _NULL ^ _SALT
    if isinstance(part, Decimal):  # as the whole number of its smallest unit
        sign, digits, _ = part.as_tuple()
        whole = int("".join(map(str, digits)))
        part = -whole if sign else whole
    if isinstance(part, int):  # a bool is 0 or 1
        return mix((part & _MASK) + _SALT & _MASK)
    data: bytes = part.encode() if isinstance(part, str) else bytes(part)
    length = len(data)
    total = 0
    for place in range((length + 7) // 8):
        word = int.from_bytes(data[8 * place : 8 * place + 8], "little")
        total += mix(word + mix(place * _STEP + _SALT & _MASK) & _MASK)
    return mix(total + length * _STEP + _SALT & _MASK)
