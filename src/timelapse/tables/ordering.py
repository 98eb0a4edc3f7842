"""The order of rows by a whole number, and columns in that order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from timelapse.tables.rowhash import one_array
from timelapse.tables.sharing import at_once

I64 = npt.NDArray[np.int64]
_STEP = 64 * 1024
Number = TypeVar("Number", bound=np.integer[Any])


def distinct(values: npt.NDArray[Number], *, runs: bool = False) -> npt.NDArray[Number]:
    """Each number once, ascending. NumPy's own `unique` hashes them, which takes four to seventeen times as long where most differ.

    `runs`: most ascend as they stand, which a stable sort merges.
    """
    if len(values) < 2:
        return values.copy()
    ordered = np.sort(values, kind="stable" if runs else None)
    kept = np.empty(len(ordered), np.bool_)
    kept[0] = True
    np.not_equal(ordered[1:], ordered[:-1], out=kept[1:])
    return ordered[kept]


def stable_order(values: I64, threads: int = 1) -> I64:
    """The places of values from the least to the greatest, equal ones as they stand: what `np.argsort(values, kind="stable")` gives.

    A value's distance from the least, and its place below that, are sorted as one word where both have room in it: in a fifth of the time.
    Times of a log have, up to millions of rows of centuries.
    """
    rows = len(values)
    if rows < 2 or bool((values[1:] >= values[:-1]).all()):
        return np.arange(rows, dtype=np.int64)
    least, most = int(values.min()), int(values.max())
    bits = (rows - 1).bit_length()
    if (most - least).bit_length() + bits > 64:
        return np.argsort(values, kind="stable")
    words = np.frombuffer(
        pa.allocate_buffer(8 * rows), np.uint64
    )  # NumPy asks for large pages: see ingest/columns_held.py
    for lo in range(0, rows, _STEP):
        part = words[lo : lo + _STEP]
        np.subtract(
            values[lo : lo + _STEP].view(np.uint64), np.uint64(least & 0xFFFF_FFFF_FFFF_FFFF), out=part
        )  # modulo 2^64: never negative
        part <<= np.uint64(bits)
        part |= np.arange(lo, lo + len(part), dtype=np.uint64)
    halves = [words]
    if threads > 1:
        words.partition(rows // 2)  # a tenth of what sorting takes
        halves = [words[: rows // 2], words[rows // 2 :]]
    at_once([(len(half), half.sort) for half in halves], threads)
    words &= np.uint64((1 << bits) - 1)
    return words.view(np.int64)


# --- columns --------------------------------------------------------------------------------------------

_WIDEST = 32
"""Texts of so many bytes at most are put into cells of equal width, where these take no more than the texts and their offsets."""
_SAMPLE = 8192
_WINDOW, _NEAR = 1024, 64
"""So many places in a row count as scattered if most lie in different runs of so many."""


def scattered(places: I64) -> bool:
    """Whether rows that are taken one after the other lie far apart: a merge of some sorted runs goes through a few places at a time."""
    window = places[len(places) // 2 :][:_WINDOW]
    return len(window) == _WINDOW and 2 * len(np.unique(window // _NEAR)) > _WINDOW


def taker(column: pa.ChunkedArray | pa.Array, *, far: bool) -> Callable[[I64], pa.Array]:
    """A function that gives what `column.take(places)` does. `far`: whether places are scattered.

    Places are not checked. Rows in a row are not copied, nor those of a column of one number. Scattered texts that repeat are taken as codes of a dictionary, and come as such, also
    where the column is codes; all others come as values. Other short ones
    are taken in cells of equal width: then a cell's place need not be read before the cell, and the processor waits for memory once
    for many of them, not twice for each.
    """
    whole = one_array(column)
    cells = None
    single = isinstance(whole, pa.Array)
    coded = pa.types.is_dictionary(whole.type)
    same = far and single and _is_one_number(whole)
    repeats = far and single and (coded or pa.types.is_large_string(whole.type)) and _repeats(whole)
    if repeats and not coded:
        whole = whole.dictionary_encode()
    elif far and single and pa.types.is_large_string(whole.type):
        cells = _cells(whole)

    def take(places: I64) -> pa.Array:
        if same:
            return whole.slice(0, len(places))
        if len(places) and places[-1] - places[0] == len(places) - 1 and bool((np.diff(places) == 1).all()):
            found = whole.slice(places[0], len(places))
        elif cells is not None:
            return _texts(pc.take(cells, pa.array(places), boundscheck=False))
        else:
            found = pc.take(whole, pa.array(places), boundscheck=False)
        return found.dictionary_decode() if coded and not repeats else found

    return take


def _is_one_number(column: pa.Array) -> bool:
    """Whether all rows are the same whole number, as that of a file is where there is one."""
    if not pa.types.is_integer(column.type) or column.null_count or not len(column):
        return False
    if column[0] != column[len(column) - 1]:
        return False
    least, most = pc.min_max(column).values()
    return bool(least == most)


def _repeats(column: pa.Array) -> bool:
    """Whether texts repeat so much that a dictionary of them is quickly made: by a sample from three places."""
    if len(column) < 4 * _SAMPLE:
        return False
    firsts = (0, len(column) // 2, len(column) - _SAMPLE // 4)
    sample = pa.concat_arrays([column.slice(first, _SAMPLE // 4) for first in firsts])
    return 4 * len(sample.unique()) <= 3 * len(sample)


def _cells(column: pa.Array) -> pa.FixedSizeBinaryArray | None:
    """Texts with zeros behind them, all of one width; None where that is not worth it, or would not tell where a text ends."""
    if column.null_count or not len(column):
        return None
    _, offsets, data = column.buffers()
    ends = np.frombuffer(offsets, np.int64)[column.offset : column.offset + len(column) + 1]
    width = -(-int(np.diff(ends).max()) // 8) * 8
    if not 0 < width <= _WIDEST or width * len(column) > 8 * len(column) + ends[-1] - ends[0]:
        return None
    if not np.frombuffer(data, np.uint8)[ends[0] : ends[-1]].all():
        return None
    padded = pc.ascii_rpad(column, width, "\0").buffers()[2]
    return pa.FixedSizeBinaryArray.from_buffers(pa.binary(width), len(column), [None, padded])


def _texts(cells: pa.FixedSizeBinaryArray) -> pa.Array:
    width = cells.type.byte_width
    offsets = pa.py_buffer(np.arange(0, width * (len(cells) + 1), width))
    whole = pa.LargeStringArray.from_buffers(len(cells), offsets, cells.buffers()[1])
    return pc.ascii_rtrim(whole, "\0")
