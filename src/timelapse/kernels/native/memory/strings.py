"""Values as int64 words and back: strings and bytes as dense codes, which are equal when the values are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from timelapse.kernels.former import Guard
from timelapse.kernels.native.memory import blocks
from timelapse.kernels.native.memory.pool import AHEAD, intern, refill, spell
from timelapse.model import decimals

Ints = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

_TEXT, _BYTES = 0, 1
PIECE = 8192
"""So many strings are looked up at a time: who asks for the code of one waits for no more."""


class Interned:
    """The codes of a kernel's strings. Codes 0 to n-1 are those of `first`, in this order.

    One thread may look up columns while others ask for single values, and look into `buffers`: codes never change.
    """

    def __init__(self, first: Sequence[str | bytes] = ()) -> None:
        self._slots = np.zeros(1024, np.uint64)
        self.buffers: tuple[Ints, Bytes] = np.zeros(513, np.int64), np.zeros(8192, np.uint8)
        """Where codes that are in use now are spelt (pool.py: `starts`, `data`). They stay right for those codes."""
        self._used = np.zeros(1, np.int64)
        self._hashes = np.empty(AHEAD, np.uint64)
        self._odd = False
        self._lock = Guard()
        self.filed: int | None = None
        """An array of more bytes than these lies in a file (None: none does)."""
        for value in first:
            self.code(value)

    def __len__(self) -> int:
        return int(self._used[0])

    @property
    def nbytes(self) -> int:
        """What they take."""
        return self._slots.nbytes + sum(buffer.nbytes for buffer in self.buffers)

    def code(self, value: str | bytes) -> int:
        """The code of one value."""
        if isinstance(value, str):
            try:
                raw = value.encode()
            except UnicodeEncodeError:
                raw = value.encode(errors="surrogatepass")
                self._odd = True
        else:
            raw = value
        offsets = np.array([0, len(raw)], np.int64)
        domain = _TEXT if isinstance(value, str) else _BYTES
        return int(self._codes(offsets, np.frombuffer(raw, np.uint8), domain)[0])

    def value(self, code: int) -> str | bytes:
        """The value of a code."""
        starts, data = self.buffers
        at, end = int(starts[code]), int(starts[code + 1])
        raw = data[at + 1 : end].tobytes()
        return raw.decode(errors="surrogatepass") if data[at] == _TEXT else raw

    def words(self, column: pa.Array) -> Ints:
        """A column as words: numbers as they are, strings as codes. What stands for a null does not matter."""
        kind = column.type
        if pa.types.is_dictionary(kind):
            known = self.words(column.dictionary)
            if not len(known):
                return np.zeros(len(column), np.int64)
            places = column.indices.fill_null(0) if column.null_count else column.indices
            found: Ints = known[places.to_numpy()]
            return found
        if is_text(kind):
            if column.null_count:
                column = column.fill_null("" if _is_str(kind) else b"")
            offsets, data = _buffers(column)
            return self._codes(offsets, data, _TEXT if _is_str(kind) else _BYTES)
        if decimals.is_column(kind):
            return decimals.to_words(column)
        if pa.types.is_timestamp(kind):
            column = column.cast(pa.int64())
        if pa.types.is_boolean(kind):
            flags: Ints = column.to_numpy(zero_copy_only=False).astype(np.int64)
            return flags
        words: Ints = column.to_numpy()
        return words

    def arrow(self, words: Ints, kind: pa.DataType) -> pa.Array:
        """Words as a column of this type."""
        if is_text(kind):
            return self._strings(np.ascontiguousarray(words), kind)
        if decimals.is_column(kind):
            return decimals.to_column(words, kind)
        if pa.types.is_timestamp(kind):
            return pa.array(words).cast(kind)
        if pa.types.is_boolean(kind):
            return pa.array(words != 0)
        return pa.array(words)

    def _codes(self, offsets: Ints, data: Bytes, domain: int) -> Ints:
        codes = np.empty(len(offsets) - 1, np.int64)
        done = 0
        offsets.setflags(write=False)
        data.setflags(write=False)
        while done < len(codes):
            own = codes[: done + PIECE]
            with self._lock:
                done = intern(
                    offsets, data, done, domain, self._slots, *self.buffers, self._used, self._hashes, own
                )
                if done < len(own):
                    self._enlarge(int(offsets[done + 1] - offsets[done]) + 1)
        return codes

    def _enlarge(self, room: int) -> None:
        """Make room for one string that takes so many bytes, and for as many strings again."""
        count = int(self._used[0])
        starts, data = self.buffers
        end = int(starts[count])
        if end + room > len(data):
            larger = self._zeros(-(-max(2 * len(data), end + room) // 8)).view(np.uint8)
            larger[:end] = data[:end]
            data = larger
        if count + 1 >= len(starts):
            more = self._zeros(2 * len(starts))
            more[: count + 1] = starts[: count + 1]
            starts = more
        self.buffers = starts, data  # both at once: readers take no lock
        if 2 * (count + 1) > len(self._slots):
            slots = self._zeros(2 * len(self._slots)).view(np.uint64)
            refill(slots, starts, data, count)
            self._slots = slots

    def _zeros(self, words: int) -> Ints:
        return np.zeros(words, np.int64) if self.filed is None else blocks.zeros(words, most=self.filed)

    def _strings(self, codes: Ints, kind: pa.DataType) -> pa.Array:
        if self._odd:  # there are strings that UTF-8 cannot hold: let pyarrow say so if they are meant
            return pa.array([self.value(c) for c in codes.tolist()], kind)
        starts, pool = self.buffers
        offsets = np.zeros(len(codes) + 1, np.int64)
        np.cumsum(starts[codes + 1] - starts[codes] - 1, out=offsets[1:])
        data = np.empty(int(offsets[-1]), np.uint8)
        spell(codes, starts, pool, offsets, data)
        wide = pa.large_string() if _is_str(kind) else pa.large_binary()
        made = pa.Array.from_buffers(wide, len(codes), [None, pa.py_buffer(offsets), pa.py_buffer(data)])
        return made if kind == wide else made.cast(kind)


def _buffers(column: pa.Array) -> tuple[Ints, Bytes]:
    """A string column's offsets, one more than rows, and its bytes."""
    _, offsets, data = column.buffers()
    wide = pa.types.is_large_string(column.type) or pa.types.is_large_binary(column.type)
    if offsets is None or not len(column):
        places: Any = np.zeros(1, np.int64)
    else:
        first = column.offset
        places = np.frombuffer(offsets, np.int64 if wide else np.int32)[first : first + len(column) + 1]
    if not wide:
        places = places.astype(np.int64)
    return places, np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)


def is_text(kind: pa.DataType) -> bool:
    """Whether values of this type are strings or bytes."""
    return _is_str(kind) or bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _is_str(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))
