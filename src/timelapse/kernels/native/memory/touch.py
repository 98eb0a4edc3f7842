"""Keys that a compiled pass takes over from a memory-mapped state table when it first touches them.

The table (tables/table.py) is sorted by the hash of its keys. `Mapped` describes where its columns lie in
memory, with an index: for each value of a hash's upper bits the first row. So a key costs one look into the
index and a few neighbouring rows. What is found is copied to the row of the pass's own table.

The description is one array of int64 words, empty where there is no table:

- the number of states whose keys are taken over (they share the rows), and for each where its part of what follows begins,
  where its words are in a row, its flag;
- in each part HEAD words: the number of pieces, how far a hash is shifted for the index, the
  index's address, the number of value words, the addresses of the string pool's two arrays;
- for each piece (record batch) its rows, the address of its hashes, and for each key part and for the value a
  `kind` and two addresses: WORD (int64 or float64), BIT (bools; the second is the first one's bit), TEXT (offsets
  and bytes).

An entry of the index holds the piece in the upper and the row in the lower bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from timelapse.kernels.native.machine.jit import primitive
from timelapse.kernels.native.memory.arithmetic import mix
from timelapse.kernels.native.memory.layout import OCCUPIED, Layout
from timelapse.kernels.native.memory.primitives import BARE, row_of
from timelapse.tables.loops import STEP
from timelapse.tables.rowhash import KEY_SEED, LANE_SALTS

HEAD = 6
WORD, BIT, TEXT = 0, 1, 2
_ROW_BITS = 40
_ROWS = (1 << _ROW_BITS) - 1
_PER_BUCKET = 4

_U = np.uint64
_SALT = np.uint64(LANE_SALTS[0])
STEP_U = np.uint64(STEP)
FIRST = np.uint64(KEY_SEED) ^ _SALT

Ints = npt.NDArray[np.int64]


def _loader(bits: int) -> Any:
    def load(typing: Any, address: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            pointer = builder.inttoptr(args[0], ir.IntType(bits).as_pointer())
            loaded = builder.load(pointer)
            loaded.align = 1
            return loaded

        return types.Integer.from_bitwidth(bits, signed=bits == 64)(types.int64), generate

    return intrinsic(load)


load64 = _loader(64)
_load8 = _loader(8)


@primitive()
def text_hash(data, length, salt):  # type: ignore[no-untyped-def]
    """The row hash (tables/rowhash.py) of a string's bytes at an address, with the salt of a lane."""
    total = _U(0)
    for place in range((length + 7) // 8):
        at = 8 * place
        if length - at >= 8:
            word = _U(load64(data + at))
        else:
            word = _U(0)
            for b in range(length - at):
                word |= _U(_load8(data + at + b)) << _U(8 * b)
        total += mix(word + mix(_U(place) * STEP_U + salt))
    return mix(total + _U(length) * STEP_U + salt)


@primitive()
def _same_text(a, b, length):  # type: ignore[no-untyped-def]
    k = 0
    while k < length and _load8(a + k) == _load8(b + k):
        k += 1
    return k == length


@primitive()
def take(start, slots, base, i, width):  # type: ignore[no-untyped-def]
    """Look the key whose words are in row i up in the tables. If one has it, the row becomes that key's.

    Returns 1 or 0. The row holds no value before. What is taken is also what the row held at the slice's start.
    """
    h = _hash(start[start[1] :], slots, i, width)
    found = 0
    for state in range(start[0]):
        part = start[start[1 + 3 * state] :]
        found |= _take(part, slots, base, i, width, h, start[2 + 3 * state], start[3 + 3 * state])
    return found


@primitive()
def _hash(start, slots, i, width):  # type: ignore[no-untyped-def]
    """The hash by which tables are sorted, of the key whose words are in row i."""
    h = FIRST
    for w in range(width):
        word = slots[i, 1 + w]
        if start[HEAD + 2 + 3 * w] == TEXT:
            begin = load64(start[4] + 8 * word)
            part = text_hash(start[5] + begin + 1, load64(start[4] + 8 * word + 8) - begin - 1, _SALT)
        else:
            part = mix(_U(word) + _SALT)
        h = mix(h * STEP_U + part)
    return h


@primitive()
def _take(start, slots, base, i, width, h, into, flag):  # type: ignore[no-untyped-def]
    """`take` for one of the tables. `into`: where its words are in a row."""
    pieces = start[0]
    values = start[3]
    stride = 2 + 3 * (width + values)
    place = load64(start[2] + 8 * np.int64(h >> _U(start[1])))
    piece, row = place >> _ROW_BITS, place & _ROWS
    while piece < pieces:
        at = HEAD + piece * stride
        if row >= start[at]:
            piece, row = piece + 1, 0
            continue
        found = _U(load64(start[at + 1] + 8 * row))
        if found > h:
            return 0
        if found == h and _matches(start, at, row, slots, i, width):
            for v in range(values):
                word = _word(start, at + 2 + 3 * (width + v), row)
                slots[i, into + v] = word
                if base.shape[0] != 0:
                    base[i, into - width + v] = word
            slots[i, 0] |= OCCUPIED | flag
            if base.shape[0] != 0:
                base[i, 0] |= flag
            return 1
        row += 1
    return 0


@primitive()
def take_row(start, slots, base, mask, key, width):  # type: ignore[no-untyped-def]
    """`take` for one key (an array of one row) that has no row yet; 0 if it has one."""
    i = row_of(slots, mask, key, BARE, BARE, width)
    if slots[i, 0] != 0:
        return 0
    for w in range(width):
        slots[i, 1 + w] = key[0, w]
    return take(start, slots, base, i, width)


@primitive()
def _matches(start, base, row, slots, i, width):  # type: ignore[no-untyped-def]
    for w in range(width):
        at = base + 2 + 3 * w
        word = slots[i, 1 + w]
        if start[at] == TEXT:
            begin = load64(start[4] + 8 * word) + 1
            length = load64(start[4] + 8 * word + 8) - begin
            there = load64(start[at + 1] + 8 * row)
            if load64(start[at + 1] + 8 * row + 8) - there != length:
                return False
            if not _same_text(start[5] + begin, start[at + 2] + there, length):
                return False
        elif _word(start, at, row) != word:
            return False
    return True


@primitive()
def _word(start, at, row):  # type: ignore[no-untyped-def]
    """The word that a fixed-width column holds."""
    if start[at] == BIT:
        place = start[at + 2] + row
        return np.int64((_load8(start[at + 1] + (place >> 3)) >> (place & 7)) & 1)
    return load64(start[at + 1] + 8 * row)


NOTHING: Ints = np.zeros(0, np.int64)
"""The description where there is no table."""


class Mapped:
    """A state table whose keys are taken over one by one. Holds on to the table's memory."""

    def __init__(self, table: pa.Table, parts: int) -> None:
        """`parts`: how many key columns there are. All columns must be `fetchable`."""
        self.table = table
        batches = [b for b in table.to_batches() if b.num_rows]
        names = [n for n in table.column_names if n != "h"]
        words = [len(batches), 0, 0, len(names) - parts, 0, 0]
        hashes = []
        self._kept: list[Any] = [batches]
        for batch in batches:
            h = np.asarray(batch.column("h"))
            hashes.append(h)
            words += [batch.num_rows, h.ctypes.data]
            for name in names:
                words += self._column(batch.column(name))
        self._kept.append(hashes)
        bits = max(1, int(table.num_rows // _PER_BUCKET).bit_length())
        words[1] = 64 - bits
        index = self._index(hashes, bits)
        words[2] = index.ctypes.data
        self._kept.append(index)
        self.words: Ints = np.array(words, np.int64)

    def _column(self, array: pa.Array) -> list[int]:
        kind = array.type
        _, first, *rest = array.buffers()
        if pa.types.is_boolean(kind):
            return [BIT, first.address, array.offset]
        if rest:
            data = rest[0]
            return [TEXT, first.address + 8 * array.offset, 0 if data is None else data.address]
        return [WORD, first.address + 8 * array.offset, 0]

    def _index(self, hashes: list[Any], bits: int) -> Ints:
        """For each bucket the place of the first row that is in it or after it."""
        edges = np.arange(1 << bits, dtype=np.uint64) << np.uint64(64 - bits)
        index: Ints = np.full(len(edges), len(hashes) << _ROW_BITS, np.int64)
        for piece in range(len(hashes) - 1, -1, -1):
            rows = np.searchsorted(hashes[piece], edges)
            inside = rows < len(hashes[piece])
            index[inside] = (piece << _ROW_BITS) + rows[inside]
        return index

    def strings(self, starts: Ints, data: npt.NDArray[np.uint8]) -> None:
        """Codes stand for what these arrays of the string pool hold."""
        self._pool = (starts, data)
        self.words[4], self.words[5] = starts.ctypes.data, data.ctypes.data


class MappedRows:
    """The start states of a table's states whose keys are taken over one by one."""

    def __init__(self, parts: Sequence[tuple[Mapped, Layout]]) -> None:
        self.parts = list(parts)
        head, at = [len(parts)], 1 + 3 * len(parts)
        for mapped, layout in parts:
            head += [at, layout.place, layout.present]
            at += len(mapped.words)
        self.words: Ints = np.concatenate([np.array(head, np.int64), *(m.words for m, _ in parts)])
        for index, (mapped, _) in enumerate(parts):
            begin = head[1 + 3 * index]
            mapped.words = self.words[begin : begin + len(mapped.words)]

    def strings(self, starts: Ints, data: npt.NDArray[np.uint8]) -> Ints:
        """The description for a call in which codes stand for what these arrays of the string pool hold."""
        for mapped, _ in self.parts:
            mapped.strings(starts, data)
        return self.words


def fetchable(table: pa.Table) -> bool:
    """Whether the keys of a table can be taken over one by one: scalar columns without nulls, values not strings."""
    for field in table.schema:
        kind = field.type
        text = pa.types.is_large_string(kind) or pa.types.is_large_binary(kind)
        plain = kind in (pa.int64(), pa.float64(), pa.uint64(), pa.bool_()) or pa.types.is_timestamp(kind)
        if not (plain or (text and field.name != "v")) or table.column(field.name).null_count:
            return False
    return "k0" in table.column_names
