"""A 128-bit hash of each row of an Arrow table, and their sum.

The sum modulo 2^64 of each of two independent 64-bit lanes does not depend on the order or the
grouping of rows, so parts of a result that were computed anywhere can be added up. It finds differences; it is
not a defence against somebody who makes collisions on purpose. Equal values hash equal only when they are equal to the last bit: -0.0 and 0.0 differ,
every NaN is one value, and null differs from every value. Values of a dictionary hash as themselves. A decimal hashes as the whole number of its smallest unit.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from timelapse.model import decimals
from timelapse.tables.loops import STEP, U64, loops, mixed

_MASK = (1 << 64) - 1
KEY_SEED = 0x6B65795F68617368
"""The seed of the hashes that tables are sorted by."""
LANE_SALTS = (np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F))
_LANES = np.array([LANE_SALTS]).T
"""The salts as a column: lanes are hashed together, as rows of one array. What small tables cost is calls of NumPy."""
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
    found: U64 = _hashes(columns, rows, seed, _LANES[[lane]], None if before is None else [before])[0]
    return found


def _hashes(columns: list[pa.Array], rows: int, seed: int, salts: U64, before: Sequence[U64] | None) -> U64:
    """The hash of each row, for each salt: what is read of the columns is read once for all."""
    loop = loops()
    found = np.repeat(np.uint64(seed) ^ salts, rows, axis=1) if before is None else np.array(before)
    arrays = [whole_array(column) for column in columns]
    plain = [_fixed(array.type) and not array.null_count for array in arrays]
    known = {
        n: _hash(array.dictionary, salts)
        for n, array in enumerate(arrays)
        if pa.types.is_dictionary(array.type)
    }
    for lo in range(0, rows, _BLOCK):
        h = found[:, lo : lo + _BLOCK]
        for n, (array, words) in enumerate(zip(arrays, plain, strict=True)):
            part = array.slice(lo, h.shape[1])
            if words:
                loop.fold(h, _words(part), salts)
            else:
                h *= STEP
                h += _coded(part, known[n], salts) if n in known else _hash(part, salts)
                mixed(h)
    return found


def hash_order(h: U64) -> npt.NDArray[np.int64]:
    """The stable order of rows by their hashes: what `np.argsort(h, kind="stable")` gives, in a fifth of the time.

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


def hash_sum(columns: list[pa.Array], rows: int, seed: int) -> HashSum:
    """The sum over rows."""
    return sum_of(both_lanes(columns, rows, seed), np.ones(rows, np.bool_))


def both_lanes(
    columns: list[pa.Array], rows: int, seed: int, before: tuple[U64, U64] | None = None
) -> tuple[U64, U64]:
    """Both lanes of the hash of each row."""
    low, high = _hashes(columns, rows, seed, _LANES, before)
    return low, high


def differ(a: pa.Array, b: pa.Array) -> npt.NDArray[np.bool_]:
    """Where two columns of one length hold values that differ in a bit, as hashes tell values apart.

    Values of two types always differ (1 and 1.0, 0 and ""), unless both are null.
    """
    changed: npt.NDArray[np.bool_]
    kinds = (a.type, b.type)
    if not comparable(a.type, b.type):
        changed = np.ones(len(a), np.bool_)
    elif all(map(pa.types.is_nested, kinds)):
        (low_a, high_a), (low_b, high_b) = (both_lanes([column], len(column), 0) for column in (a, b))
        changed = (low_a != low_b) | (high_a != high_b)
        return changed
    elif any(all(map(same, kinds)) for same in (_is_text, _is_binary)):
        changed = np.asarray(pc.fill_null(pc.not_equal(a, b), False))
    else:
        changed = _words(a) != _words(b)
    if a.null_count or b.null_count:
        had, has = np.asarray(a.is_valid()), np.asarray(b.is_valid())
        changed = np.where(had & has, changed, had != has)
    return changed


def alike(a: pa.Table, b: pa.Table) -> bool:
    """Whether tables are of one schema and length, and the same to the bit, as hashes tell values apart: NaN is one value, and -0.0 is not 0.0."""
    if a.num_rows != b.num_rows or not a.schema.equals(b.schema):
        return False
    for field, one, other in zip(a.schema, a.columns, b.columns, strict=True):
        coded = pa.types.is_dictionary(field.type)  # of texts
        if not (one.equals(other) if coded else not differ(one_array(one), one_array(other)).any()):
            return False
    return True


def comparable(a: pa.DataType, b: pa.DataType) -> bool:
    """Whether values of these types can be equal; those of other pairs of types always differ, unless both are null."""
    return bool(a == b or any(is_(a) and is_(b) for is_ in (pa.types.is_nested, _is_text, _is_binary)))


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
    """A column as a single array; texts of more than two gigabytes may come as several all the same (`whole_array`)."""
    if isinstance(column, pa.ChunkedArray):
        return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    return column


def whole_array(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """A column as a single array, also of texts of more than two gigabytes of which that can be made."""
    array = one_array(column)
    if isinstance(array, pa.ChunkedArray):  # combine_chunks may give a chunked array back
        array = pa.concat_arrays(array.chunks)
    return array


def _hash(array: pa.Array, salts: U64) -> U64:
    """A hash of each element of one column, for each salt."""
    array = whole_array(array)
    kind = array.type
    missing = np.asarray(array.is_null()) if array.null_count else None
    if pa.types.is_struct(kind):
        found = np.repeat(salts, len(array), axis=1)
        for index in range(kind.num_fields):
            found *= STEP
            found += _hash(array.field(index), salts)
            mixed(found)
    elif pa.types.is_large_string(kind) or pa.types.is_large_binary(kind):
        found = _hash_bytes(array, salts)
    elif pa.types.is_string(kind):
        found = _hash_bytes(array.cast(pa.large_string()), salts)
    elif pa.types.is_binary(kind):
        found = _hash_bytes(array.cast(pa.large_binary()), salts)
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        found = _hash_list(array, salts)
    elif pa.types.is_boolean(kind):
        values = np.asarray(_filled(array, False)).astype(np.int8)
        found = np.take(mixed(np.array([0, 1], np.uint64) + salts), values, axis=1)
    else:
        found = mixed(_words(array) + salts)
    return found if missing is None else _without(found, missing, salts)


def _coded(array: pa.DictionaryArray, known: U64, salts: U64) -> U64:
    """A hash of each element, from those of the dictionary."""
    codes = np.asarray(_filled(array.indices, 0))
    if not len(array.dictionary):  # all are null
        return np.repeat(NULL ^ salts, len(array), axis=1)
    found: U64 = np.take(known, codes, axis=1)
    return _without(found, np.asarray(array.is_null()), salts) if array.null_count else found


def _without(found: U64, missing: npt.NDArray[np.bool_], salts: U64) -> U64:
    """What is there, with the hash of null where nothing is."""
    for lane, (null,) in zip(found, NULL ^ salts, strict=True):
        lane[missing] = null
    return found


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
    """The sums of the runs of each row's `values` (0 for an empty run)."""
    total = np.zeros((len(values), values.shape[1] + 1), np.uint64)
    np.cumsum(values, axis=1, out=total[:, 1:])
    ends = np.cumsum(lengths)
    sums: U64 = np.take(total, ends, axis=1) - np.take(total, ends - lengths, axis=1)
    return sums


def _hash_bytes(array: pa.Array, salts: U64) -> U64:
    count = len(array)
    sums = np.zeros((len(salts), count), np.uint64)
    if count == 0:
        return sums
    _, offsets_buffer, data_buffer = array.buffers()
    offsets = np.frombuffer(offsets_buffer, dtype=np.int64)[array.offset : array.offset + count + 1]
    lengths = np.diff(offsets)
    words = (lengths + 7) >> 3
    if int(words.max()) <= _SHORT_WORDS:
        texts = pa.LargeStringArray.from_buffers(
            count, offsets_buffer, data_buffer or pa.py_buffer(b""), None, 0, array.offset
        )
        for lo in range(0, count, _BLOCK):
            _add_short(sums[:, lo : lo + _BLOCK], texts.slice(lo, _BLOCK), words[lo : lo + _BLOCK], salts)
    else:
        first_word = np.cumsum(words) - words
        padded = np.zeros(int(words.sum()) * 8, np.uint8)
        data = np.frombuffer(data_buffer, dtype=np.uint8)
        if bool((lengths % 8 == 0).all()):
            padded[:] = data[offsets[0] : offsets[-1]]
        else:
            padded[_ragged(first_word * 8, lengths)] = data[offsets[0] : offsets[-1]]
        place = _ragged(np.zeros(count, np.int64), words).astype(np.uint64)
        sums += _segment_sum(mixed(padded.view(np.uint64) + mixed(place * STEP + salts)), words)
    sums += lengths.view(np.uint64) * STEP
    sums += salts
    return mixed(sums)


_SHORT_WORDS = 8
"""Texts of so many words at most are padded to the longest of them, and hashed a word of all of them at a time."""


def _add_short(sums: U64, texts: pa.Array, words: npt.NDArray[np.int64], salts: U64) -> None:
    """Add up the hashes of each text's words, for each salt."""
    most, least = int(words.max()), int(words.min())
    if not most:
        return
    padded = pc.ascii_rpad(texts, 8 * most, "\0").buffers()[2]
    every = np.frombuffer(padded, "<u8", len(texts) * most).reshape(-1, most)
    steps = mixed(np.arange(most, dtype=np.uint64) * STEP + salts)
    for place in range(most):
        rows: slice | npt.NDArray[np.int64] = slice(None)
        lacking = words <= place if place >= least else None
        if lacking is not None and 2 * int(np.count_nonzero(lacking)) > len(texts):
            rows, lacking = np.flatnonzero(~lacking), None
        part = mixed(every[rows, place] + steps[:, place : place + 1])
        if lacking is not None:
            np.copyto(part, 0, where=lacking)
        sums[:, rows] += part


def _hash_list(array: pa.Array, salts: U64) -> U64:
    lengths = np.asarray(pc.fill_null(pc.list_value_length(array), 0)).astype(np.int64)
    values = _hash(array.flatten(), salts)  # skips what stands under nulls
    place = _ragged(np.zeros(len(array), np.int64), lengths).astype(np.uint64) * STEP
    own = _segment_sum(mixed(values + mixed(place + salts)), lengths)
    return mixed(own + lengths.astype(np.uint64) * STEP + salts)
