"""Keys that a compiled pass takes over from a memory-mapped state table when it first touches them.

The table (tables/table.py) is sorted by the hash of its keys. `Mapped` describes where its columns lie in
memory, with an index: for each value of a hash's upper bits the first row. So a key costs one look into the
index and a few neighbouring rows. What is found is copied to the row of the pass's own table. A state may lie in several
levels (tables/levels.py): the latest that knows the key decides, and some say that it is gone.

The description is one array of int64 words, empty where there is no table:

- the number of levels of all states whose keys are taken over (they share the rows), a state's latest first, and for each
  where its part of what follows begins, where the state's words are in a row, its flag;
- in each part HEAD words: the number of pieces, how far a hash is shifted for the index, the
  index's address, the number of value words, the addresses of the string pool's two arrays;
- for each piece (record batch) its rows, the address of its hashes, the address and the first bit of what tells which keys
  are present (0: all are), and for each key part and each word of the value a `kind` and two addresses: WORD (int64 or
  float64), BIT (bools; the second is the first one's bit), TEXT (offsets and bytes), VALID (as BIT, address 0: all are). UNDER is added for what is 0 where
  the VALID before it is 0.

An entry of the index holds the piece in the upper and the row in the lower bits.
"""

from __future__ import annotations

import itertools
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
from timelapse.model.types import OptionalType, TupleType, ValueType
from timelapse.tables.levels import Levels, Start, levels_of
from timelapse.tables.loops import STEP
from timelapse.tables.rowhash import KEY_SEED, LANE_SALTS

HEAD = 6
PIECE = 4
WORD, BIT, TEXT, VALID, UNDER = 0, 1, 2, 3, 8
_ROW_BITS = 40
_ROWS = (1 << _ROW_BITS) - 1
_PER_BUCKET = 16
"""Rows that share an entry of the index: their hashes lie in two lines of the processor's caches."""
_MOST_BITS = 19
"""An index has 2**19 entries at most: where more rows share an entry, a key's row is where its hash is between theirs, about."""
_SHARE = 128
"""An index takes no more than this part of the budget. A state has about as many levels as it has doubled, and the earlier are
the larger: so the indexes of all take a few times as much."""
_LEAST_BITS = 8
_NEAR, _FEW = 16, 8
"""Hashes are spread evenly: of some hundred rows the one that is looked for is at most about so far from where it should be. So few
are looked through one by one."""

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


@primitive(apart=True)
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


@primitive(apart=True)
def take(start, slots, base, i, width):  # type: ignore[no-untyped-def]
    """Look the key whose words are in row i up in the tables. If one has it, the row becomes that key's.

    Returns 1 or 0. The row holds no value before. What is taken is also what the row held at the slice's start.
    """
    if start[0] == 0:
        return 0
    h = _hash(start[start[1] :], slots, i, width)
    found = decided = 0
    for level in range(start[0]):
        flag = start[3 + 3 * level]
        if decided & flag != 0:
            continue
        there = _take(start[start[1 + 3 * level] :], slots, base, i, width, h, start[2 + 3 * level], flag)
        if there != 0:
            decided |= flag
            found |= there & 1
    return found


@primitive()
def _hash(start, slots, i, width):  # type: ignore[no-untyped-def]
    """The hash by which tables are sorted, of the key whose words are in row i."""
    h = FIRST
    for w in range(width):
        word = slots[i, 1 + w]
        if start[HEAD + PIECE + 3 * w] == TEXT:
            begin = load64(start[4] + 8 * word)
            part = text_hash(start[5] + begin + 1, load64(start[4] + 8 * word + 8) - begin - 1, _SALT)
        else:
            part = mix(_U(word) + _SALT)
        h = mix(h * STEP_U + part)
    return h


@primitive(apart=True)
def _take(start, slots, base, i, width, h, into, flag):  # type: ignore[no-untyped-def]
    """`take` for one level: 1 where the key is there, 2 where it is known to be gone. `into`: where its words are in a row."""
    pieces = start[0]
    values = start[3]
    stride = PIECE + 3 * (width + values)
    bucket = start[2] + 8 * np.int64(h >> _U(start[1]))
    place, end = load64(bucket), load64(bucket + 8)
    piece, row = place >> _ROW_BITS, place & _ROWS
    if piece < pieces and piece == end >> _ROW_BITS:
        row = _first(start[HEAD + piece * stride + 1], row, end & _ROWS, h, start[1])
    while piece < pieces:
        at = HEAD + piece * stride
        if row >= start[at]:
            piece, row = piece + 1, 0
            continue
        found = _U(load64(start[at + 1] + 8 * row))
        if found > h:
            return 0
        if found == h and _matches(start, at, row, slots, i, width):
            if start[at + 2] != 0 and _bit(start[at + 2], start[at + 3] + row) == 0:
                return 2
            valid = np.int64(1)
            for v in range(values):
                own = at + PIECE + 3 * (width + v)
                word = np.int64(0)
                if start[own] == VALID:
                    word = valid = (
                        np.int64(1) if start[own + 1] == 0 else _bit(start[own + 1], start[own + 2] + row)
                    )
                elif start[own] & UNDER == 0 or valid != 0:
                    word = _word(start, own, row)
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
def _first(hashes, low, high, h, shift):  # type: ignore[no-untyped-def]
    """A row at or a little before the first one in low to high whose hash is not below h. All in between are of one entry."""
    if high - low > 2 * _NEAR:
        part = np.int64((h & ((_U(1) << _U(shift)) - _U(1))) >> _U(shift - 32))
        about = low + ((part * (high - low)) >> 32)
        if about - _NEAR >= low and _U(load64(hashes + 8 * (about - _NEAR))) < h:
            low = about - _NEAR + 1
        if about + _NEAR < high and _U(load64(hashes + 8 * (about + _NEAR))) >= h:
            high = about + _NEAR
    while high - low > _FEW:
        middle = (low + high) >> 1
        if _U(load64(hashes + 8 * middle)) < h:
            low = middle + 1
        else:
            high = middle
    return low


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
        at = base + PIECE + 3 * w
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
def _bit(address, place):  # type: ignore[no-untyped-def]
    """A bit of an Arrow bitmap."""
    return np.int64((_load8(address + (place >> 3)) >> (place & 7)) & 1)


@primitive()
def _word(start, at, row):  # type: ignore[no-untyped-def]
    """The word that a fixed-width column holds."""
    if start[at] & BIT != 0:
        return _bit(start[at + 1], start[at + 2] + row)
    return load64(start[at + 1] + 8 * row)


NOTHING: Ints = np.zeros(0, np.int64)
"""The description where there is no table."""


class Mapped:
    """A state table, or const effects, whose keys are taken over one by one. Holds on to the table's memory."""

    def __init__(
        self, table: pa.Table, parts: int, stored: ValueType | None, room: int | None = None
    ) -> None:
        """`parts`: how many key columns there are. `stored`: the type of values. All columns must be `fetchable`. `room`: bytes that
        the index may take."""
        self.table = table
        batches = [b for b in table.to_batches() if b.num_rows]
        hashes = [np.asarray(batch.column("h")) for batch in batches]
        self._kept: list[Any] = [batches, hashes]
        described, values = [], 0
        for batch, h in zip(batches, hashes, strict=True):
            described += [batch.num_rows, h.ctypes.data, *_presence(batch)]
            entries = [_entry(batch.column(f"k{part}")) for part in range(parts)]
            entries += [] if stored is None else _entries(batch.column("v"), stored)
            values = len(entries) - parts
            described += itertools.chain(*entries)
        bits = min(_MOST_BITS, max(1, int(table.num_rows // _PER_BUCKET).bit_length()))
        if room is not None:
            bits = min(bits, max(_LEAST_BITS, (room // 8).bit_length() - 1))
        index = self._index(hashes, bits)
        self.index: Ints = index
        words = [len(batches), 64 - bits, index.ctypes.data, values, 0, 0, *described]
        self.words: Ints = np.array(words, np.int64)

    def _index(self, hashes: list[Any], bits: int) -> Ints:
        """For each bucket the place of the first row that is in it or after it, and for one behind the last."""
        shift = np.uint64(64 - bits)
        index: Ints = np.full((1 << bits) + 1, len(hashes) << _ROW_BITS, np.int64)
        begin = 0
        for piece, h in enumerate(hashes):
            end = int(h[-1] >> shift) + 1
            edges = np.arange(begin, end, dtype=np.uint64) << shift
            index[begin:end] = (piece << _ROW_BITS) + np.searchsorted(h, edges)
            begin = max(begin, end)
        return index

    @property
    def nbytes(self) -> int:
        """What it takes in memory, beside what lies in the file."""
        return self.words.nbytes + self.index.nbytes


def _presence(batch: pa.RecordBatch) -> list[int]:
    if "present" not in batch.schema.names:
        return [0, 0]
    column = batch.column("present")
    return [column.buffers()[1].address, column.offset]


def _entries(array: pa.Array, kind: ValueType, under: int = 0) -> list[list[int]]:
    """A value's words, as the description has them."""
    if isinstance(kind, OptionalType):
        valid = array.buffers()[0]
        own = [VALID, 0 if valid is None else valid.address, array.offset]
        return [own, *_entries(array, kind.inner, UNDER)]
    if isinstance(kind, TupleType):
        return [e for at, item in enumerate(kind.items) for e in _entries(array.field(at), item, under)]
    return [_entry(array, under)]


def _entry(array: pa.Array, under: int = 0) -> list[int]:
    """The word of a scalar."""
    _, first, *rest = array.buffers()
    if pa.types.is_boolean(array.type):
        return [BIT | under, first.address, array.offset]
    if rest:
        data = rest[0]
        return [TEXT, first.address + 8 * array.offset, 0 if data is None else data.address]
    return [WORD | under, first.address + 8 * array.offset, 0]


class MappedRows:
    """The start states of a table's states whose keys are taken over one by one. `budget`: bytes of which indexes take no more than
    a part (None: no matter)."""

    def __init__(self, starts: Sequence[tuple[Start, Layout]], budget: int | None = None) -> None:
        self.starts = list(starts)
        room = None if budget is None else budget // (_SHARE * max(1, len(self.starts)))
        parts = [(mapped, o) for start, o in starts for mapped in _mapped(start, o, room)]
        self._levels = [mapped for mapped, _ in parts]
        head, at = [len(parts)], 1 + 3 * len(parts)
        self._begins: list[int] = []
        for mapped, layout in parts:
            self._begins.append(at)
            head += [at, layout.place, layout.present]
            at += len(mapped.words)
        self.words: Ints = np.concatenate([np.array(head, np.int64), *(m.words for m in self._levels)])

    def strings(self, starts: Ints, data: npt.NDArray[np.uint8]) -> Ints:
        """The description for a call in which codes stand for what these arrays of the string pool hold."""
        self._pool = (starts, data)
        for begin in self._begins:
            self.words[begin + 4], self.words[begin + 5] = starts.ctypes.data, data.ctypes.data
        return self.words

    @property
    def nbytes(self) -> int:
        """What it takes in memory, beside what lies in files."""
        return self.words.nbytes + sum(mapped.nbytes for mapped in self._levels)


def _mapped(start: Start, layout: Layout, room: int | None) -> list[Mapped]:
    """A state's levels, the latest first. What is known of one from earlier stops is used again. Tables without rows are left
    out: they have no pieces, and a key's hash is made by how the first level's first piece keeps keys."""
    if not isinstance(start, Levels):
        return [Mapped(start, layout.width, layout.stored, room)] if start.num_rows else []
    found = []
    for table in levels_of(start):
        known = start.known.get(id(table))
        if not isinstance(known, Mapped):
            known = start.known[id(table)] = Mapped(table, layout.width, layout.stored, room)
        found.append(known)
    return found


def fetchable(table: pa.Table, stored: ValueType | None) -> bool:
    """Whether the keys of a table can be taken over one by one, if the layouts allow it: keys without nulls, and a value of
    the stored type for each key that is present."""
    if stored is not None and not isinstance(stored, OptionalType) and "present" not in table.column_names:
        if table.column("v").null_count:
            return False
    if stored is not None and not all(map(_plain, _leaves(table.schema.field("v").type))):
        return False
    keys = [field for field in table.schema if field.name not in ("h", "v", "present")]
    return bool(keys) and all(
        (_plain(f.type) or _text(f.type)) and not table.column(f.name).null_count for f in keys
    )


def _leaves(kind: pa.DataType) -> list[pa.DataType]:
    return [leaf for field in kind for leaf in _leaves(field.type)] if pa.types.is_struct(kind) else [kind]


def _plain(kind: pa.DataType) -> bool:
    return kind in (pa.int64(), pa.float64(), pa.bool_()) or bool(pa.types.is_timestamp(kind))


def _text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_large_string(kind) or pa.types.is_large_binary(kind))
