"""A 128-bit hash of each row of an Arrow table, and their sum.

The sum modulo 2^64 of each of two independent 64-bit lanes does not depend on the order or the
grouping of rows, so parts of a result that were computed anywhere can be added up (design.md,
sections 2 and 3). It finds differences; it is not a defence against somebody who makes collisions
on purpose. Equal values hash equal only when they are equal to the last bit: -0.0 and 0.0 differ,
every NaN is one value, and null differs from every value. A decimal hashes as the whole number of its smallest unit.
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from timelapse.model import decimals
from timelapse.tables.loops import STEP, U64, loops, mix

_MASK = (1 << 64) - 1
KEY_SEED = 0x6B65795F68617368
"""The seed of the hashes that tables are sorted by."""
LANE_SALTS = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F))
NULL = np.uint64(0x27D4EB2F165667C5)
NAN_BITS = np.uint64(0x7FF8000000000000)
_BLOCK = 16384
"""Rows that are hashed at a time: what is computed in between stays in the processor's cache."""
_EXCHANGES = 16


class HashSum(NamedTuple):
    """The sum of row hashes: two lanes, each modulo 2^64, and the number of rows."""

    low: int
    high: int
    rows: int

    def __add__(self, other: object) -> HashSum:
        if not isinstance(other, HashSum):
            return NotImplemented
        return HashSum(
            (self.low + other.low) & _MASK, (self.high + other.high) & _MASK, self.rows + other.rows
        )

    @property
    def hex(self) -> str:
        return f"{self.high:016x}{self.low:016x}"


ZERO = HashSum(0, 0, 0)


def seed_of(text: str) -> int:
    """A 64-bit number for a name (a state, a record type): the key of the row hash."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def row_hashes(columns: list[pa.Array], rows: int, seed: int, lane: int, before: U64 | None = None) -> U64:
    """One lane of the hash of each row over `columns` (all of length `rows`).

    `before` are the rows' hashes over columns that come before these, in place of the seed.
    """
    salt, loop = LANE_SALTS[lane], loops()
    found = np.full(rows, np.uint64(seed) ^ salt) if before is None else before.copy()
    arrays = [_whole(column) for column in columns]
    plain = [_fixed(array.type) and not array.null_count for array in arrays]
    with np.errstate(over="ignore"):
        for lo in range(0, rows, _BLOCK):
            h = found[lo : lo + _BLOCK]
            for array, words in zip(arrays, plain, strict=True):
                part = array.slice(lo, len(h))
                if words:
                    loop.fold(h, _words(part), salt)
                else:
                    h[:] = mix(h * STEP + _hash(part, salt))
    return found


def hash_order(h: U64) -> npt.NDArray[np.int64]:
    """The stable order of rows by their hashes: what `np.argsort(h, kind="stable")` gives, in half the time.

    The upper bits of a hash and the row's number in the lower ones are sorted as one word. Where rows agree
    in the upper bits, which is rare, and the rest says otherwise, neighbours are exchanged.
    """
    rows = len(h)
    low = np.uint64((1 << max(rows - 1, 0).bit_length()) - 1)
    packed = h & ~low
    packed |= np.arange(rows, dtype=np.uint64)
    packed.sort()
    packed &= low
    order = packed.view(np.int64)
    sorted_ = h[order]
    for _ in range(_EXCHANGES):
        wrong = np.flatnonzero(sorted_[1:] < sorted_[:-1])
        if not len(wrong):
            return order
        apart = wrong[np.concatenate([[True], np.diff(wrong) > 1])]
        for values in (order, sorted_):
            values[apart], values[apart + 1] = values[apart + 1], values[apart]
    return np.argsort(h, kind="stable")


def hash_sum(
    columns: list[pa.Array], rows: int, seed: int, mask: npt.NDArray[np.bool_] | None = None
) -> HashSum:
    """The sum over rows (those where `mask` holds, if given)."""
    return sum_of(both_lanes(columns, rows, seed), np.ones(rows, np.bool_) if mask is None else mask)


def both_lanes(
    columns: list[pa.Array], rows: int, seed: int, before: tuple[U64, U64] | None = None
) -> tuple[U64, U64]:
    """Both lanes of the hash of each row."""
    low, high = before or (None, None)
    return row_hashes(columns, rows, seed, 0, low), row_hashes(columns, rows, seed, 1, high)


def differ(a: pa.Array, b: pa.Array) -> npt.NDArray[np.bool_]:
    """Where two columns of one length hold values that differ in a bit, as hashes tell values apart.

    Values of two types always differ (1 and 1.0, 0 and ""), unless both are null.
    """
    changed: npt.NDArray[np.bool_]
    kinds = (a.type, b.type)
    if all(map(pa.types.is_nested, kinds)):
        (low_a, high_a), (low_b, high_b) = (both_lanes([column], len(column), 0) for column in (a, b))
        changed = (low_a != low_b) | (high_a != high_b)
        return changed
    if any(all(map(same, kinds)) for same in (_is_text, _is_binary)):
        changed = np.asarray(pc.fill_null(pc.not_equal(a, b), False))
    elif a.type == b.type:
        changed = _words(a) != _words(b)
    else:
        changed = np.ones(len(a), np.bool_)
    if a.null_count or b.null_count:
        had, has = np.asarray(a.is_valid()), np.asarray(b.is_valid())
        changed = np.where(had & has, changed, had != has)
    return changed


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_binary(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def sum_of(lanes: tuple[U64, U64], mask: npt.NDArray[np.bool_]) -> HashSum:
    """The sum over the rows where `mask` holds."""
    count = int(mask.sum())
    if not count:
        return ZERO
    low, high = (int(lane[mask].sum(dtype=np.uint64)) for lane in lanes)
    return HashSum(low, high, count)


def one_array(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """A column as a single array."""
    if isinstance(column, pa.ChunkedArray):
        return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    return column


def _whole(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    array = one_array(column)
    if isinstance(array, pa.ChunkedArray):  # combine_chunks may give a chunked array back
        array = pa.concat_arrays(array.chunks)
    return array


def _hash(array: pa.Array, salt: np.uint64) -> U64:
    """A hash of each element of one column."""
    array = _whole(array)
    kind = array.type
    valid = None
    if array.null_count:
        valid = np.asarray(array.is_valid())
    if pa.types.is_struct(kind):
        h = np.full(len(array), salt, dtype=np.uint64)
        for index in range(kind.num_fields):
            h = mix(h * STEP + _hash(array.field(index), salt))
    elif pa.types.is_large_string(kind) or pa.types.is_large_binary(kind):
        h = _hash_bytes(array, salt)
    elif pa.types.is_string(kind):
        h = _hash_bytes(array.cast(pa.large_string()), salt)
    elif pa.types.is_binary(kind):
        h = _hash_bytes(array.cast(pa.large_binary()), salt)
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        h = _hash_list(array, salt)
    elif pa.types.is_boolean(kind):
        no, yes = mix(np.array([0, 1], np.uint64) + salt)
        h = np.where(np.asarray(_filled(array, False)), yes, no)
    else:
        h = mix(_words(array) + salt)
    if valid is not None:
        h = np.where(valid, h, NULL ^ salt)
    return h


def _fixed(kind: pa.DataType) -> bool:
    """Whether elements are one word each."""
    return bool(
        pa.types.is_boolean(kind)
        or pa.types.is_integer(kind)
        or pa.types.is_floating(kind)
        or pa.types.is_timestamp(kind)
    )


def _words(array: pa.Array) -> U64:
    """The 64 bits of each fixed-width element; what stands under a null does not matter."""
    kind = array.type
    if decimals.is_column(kind):
        return decimals.to_words(array).view(np.uint64)
    if pa.types.is_boolean(kind):
        return np.asarray(_filled(array, False)).astype(np.uint64)
    if pa.types.is_timestamp(kind):
        array = array.cast(pa.int64())
    if pa.types.is_floating(array.type):
        floats = np.asarray(_filled(array, 0.0), dtype=np.float64)
        return np.where(np.isnan(floats), NAN_BITS, floats.view(np.uint64))
    return np.asarray(_filled(array, 0)).astype(np.int64).view(np.uint64)


def _filled(array: pa.Array, value: float) -> pa.Array:
    return pc.fill_null(array, value) if array.null_count else array


def _ragged(starts: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The concatenation of range(start, start + length) over rows."""
    total = int(lengths.sum())
    ends = np.cumsum(lengths)
    places: npt.NDArray[np.int64] = np.arange(total, dtype=np.int64) + np.repeat(
        starts - (ends - lengths), lengths
    )
    return places


def _segment_sum(values: U64, lengths: npt.NDArray[np.int64]) -> U64:
    """The sum of each row's run of `values` (0 for an empty run)."""
    total = np.concatenate([np.zeros(1, np.uint64), np.cumsum(values, dtype=np.uint64)])
    ends = np.cumsum(lengths)
    sums: U64 = total[ends] - total[ends - lengths]
    return sums


def _hash_bytes(array: pa.Array, salt: np.uint64) -> U64:
    count = len(array)
    if count == 0:
        return np.zeros(0, np.uint64)
    _, offsets_buffer, data_buffer = array.buffers()
    offsets = np.frombuffer(offsets_buffer, dtype=np.int64)[array.offset : array.offset + count + 1]
    starts = offsets[:-1].astype(np.int64)
    lengths = np.diff(offsets).astype(np.int64)
    words = (lengths + 7) // 8
    if int(words.max()) <= _SHORT_WORDS:
        data = np.frombuffer(data_buffer, np.uint8) if data_buffer else np.zeros(0, np.uint8)
        return _hash_short(data, starts, lengths, words, salt)
    first_word = np.cumsum(words) - words
    total_words = int(words.sum())
    padded = np.zeros(total_words * 8, np.uint8)
    if total_words:
        data = np.frombuffer(data_buffer, dtype=np.uint8)
        if starts[0] + int(lengths.sum()) == offsets[-1] and bool((lengths % 8 == 0).all()):
            padded[:] = data[offsets[0] : offsets[-1]]
        else:
            padded[_ragged(first_word * 8, lengths)] = data[offsets[0] : offsets[-1]]
    place = _ragged(np.zeros(count, np.int64), words).astype(np.uint64)
    mixed = mix(padded.view(np.uint64) + mix(place * STEP + salt))
    return mix(_segment_sum(mixed, words) + lengths.astype(np.uint64) * STEP + salt)


_SHORT_WORDS = 8
"""Texts of so many words at most are hashed a word of all of them at a time."""
_TAILS = np.array([0xFFFFFFFFFFFFFFFF >> (8 * (8 - n)) if n else 0 for n in range(9)], np.uint64)
"""By the number of a word's bytes that are the text's: these."""


def _hash_short(
    data: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64],
    words: npt.NDArray[np.int64], salt: np.uint64,
) -> U64:  # fmt: skip
    """What `_hash_bytes` gives, where all texts are short."""
    sums = np.zeros(len(starts), np.uint64)
    lo, hi = int(starts[0]), int(starts[-1] + lengths[-1])
    own = np.zeros(hi - lo + 8, np.uint8)
    own[: hi - lo] = data[lo:hi]
    at = np.ndarray((hi - lo + 1,), "<u8", own, 0, (1,))  # the eight bytes from each place on
    for place in range(int(words.max())):
        rows = slice(None) if place == 0 and int(words.min()) > 0 else np.flatnonzero(words > place)
        left = np.minimum(lengths[rows] - 8 * place, 8)
        word = at[starts[rows] - lo + 8 * place] & _TAILS[left]
        sums[rows] += mix(word + mix(np.array([place], np.uint64) * STEP + salt))
    return mix(sums + lengths.astype(np.uint64) * STEP + salt)


def _hash_list(array: pa.Array, salt: np.uint64) -> U64:
    lengths = np.asarray(pc.fill_null(pc.list_value_length(array), 0)).astype(np.int64)
    values = array.flatten()  # skips what stands under nulls
    place = _ragged(np.zeros(len(array), np.int64), lengths).astype(np.uint64)
    mixed = mix(_hash(values, salt) + mix(place * STEP + salt))
    return mix(_segment_sum(mixed, lengths) + lengths.astype(np.uint64) * STEP + salt)
