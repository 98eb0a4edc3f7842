"""A state's values for a compiled pass: a hash table that Python owns, and the way from and to Arrow."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from timelapse.kernels.native import primitives as prim
from timelapse.kernels.native.layout import PRESENT, TOUCHED, WAS_PRESENT, Layout, can_be_mapped
from timelapse.kernels.native.strings import Interned
from timelapse.kernels.native.touch import NOTHING, Mapped, fetchable, take_row
from timelapse.kernels.native.words import decode, encode, to_arrow, to_words
from timelapse.kinds.base import ABSENT, UNKEYED, StateSpec
from timelapse.kinds.effects import ADD, SET
from timelapse.tables.apply import Change, change_of
from timelapse.tables.rowhash import hash_order
from timelapse.tables.table import key_hashes, key_list, key_names, key_types, to_python

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
_LINE = 8
"""Words in a cache line."""


def _slots(rows: int, words: int) -> Ints:
    """Empty rows that begin where a line of the processor's caches does.

    A counter's row of four words then never takes two lines, of which only one is asked for ahead: a fifth less
    time for 10 million anti-spam events.
    """
    memory = np.zeros(rows * words + _LINE, np.int64)
    first = -(memory.ctypes.data // 8) % _LINE
    return memory[first : first + rows * words].reshape(rows, words)


class NativeTable:
    """One state's rows. `layout` says how they look."""

    def __init__(self, spec: StateSpec, layout: Layout, interned: Interned) -> None:
        self.spec = spec
        self.layout = layout
        self.rows = 0
        self.slots = _slots(1024, layout.words)
        self._interned = interned
        self._mapped: Mapped | None = None
        self.moved: Callable[[Ints], None] = lambda old: None
        """Called when rows have other places than in the array that is given."""

    @property
    def mask(self) -> np.uint64:
        return np.uint64(len(self.slots) - 1)

    def reserve(self, more: int) -> None:
        """Make room for `more` keys beside those there are."""
        wanted = len(self.slots)
        while wanted < 2 * (self.rows + more):
            wanted *= 2
        if wanted > len(self.slots):
            new = _slots(wanted, self.layout.words)
            old, self.slots = self.slots, new
            if self.rows:
                prim.rehash(old, new, self.mask, self.layout.width)
                self.moved(old)

    @property
    def row_bytes(self) -> int:
        """What a key takes while the table is as full as it gets."""
        return 2 * 8 * self.layout.words

    @property
    def can_be_mapped(self) -> bool:
        """Whether keys of a start state can be taken over one by one."""
        return can_be_mapped(self.spec, self.layout)

    @property
    def mapped(self) -> bool:
        """Whether there is a start state of which only the keys that were touched have rows."""
        return self._mapped is not None

    @property
    def description(self) -> Ints:
        """The start state that machine code takes keys over from."""
        return NOTHING if self._mapped is None else self._mapped.strings(*self._interned.buffers)

    def load(self, table: pa.Table, *, key_by_key: bool = False) -> None:
        """Start from a state table. `key_by_key`: its keys get rows when they are first looked at, if possible."""
        if key_by_key and self.can_be_mapped and fetchable(table):
            self._mapped = Mapped(table, self.layout.width)
            return
        self._load(table)

    def settle(self) -> None:
        """Give every key of a mapped start state a row."""
        if self._mapped is None:
            return
        kept, rows = self._mapped.table, self.slots[self.slots[:, 0] != 0]
        self._mapped = None
        self._load(kept)
        self.reserve(len(rows))
        self.rows += int(prim.override(self.slots, self.mask, self.layout.width, rows))

    def _load(self, table: pa.Table) -> None:
        rows, layout = int(table.num_rows), self.layout
        self.slots, self.rows = _slots(1024, layout.words), 0
        self.reserve(rows)
        if not rows:
            return
        keys = np.zeros((rows, layout.width), np.int64)
        for i, (name, kind) in enumerate(zip(key_names(self.spec), key_types(self.spec), strict=True)):
            keys[:, i] = to_words(table.column(name), kind, self._interned)[:, 0]
        values: Ints = np.zeros((rows, 0), np.int64)
        if layout.stored is not None:
            values = np.ascontiguousarray(to_words(table.column("v"), layout.stored, self._interned))
        prim.load(self.slots, self.mask, layout.width, keys, values)
        self.rows = rows

    def begin(self) -> None:
        """A new slice begins."""
        if self.layout.form != "exact":
            self.slots, self.rows = _slots(1024, self.layout.words), 0
        else:
            self.rows = int(prim.untouch(self.slots))

    # --- as Arrow ---------------------------------------------------------------------------------

    def effects(self) -> tuple[pa.Table, Change | None]:
        """What the slice did: an effect table, and for an exact state the change."""
        layout, rows = self.layout, prim.rows_with(self.slots, TOUCHED)
        flags = rows[:, 0]
        keys = self._keys(rows)
        present = flags & PRESENT != 0
        live = rows[:, layout.place : layout.start]
        if layout.form == "const":
            return self._effect_table("const", keys, {"present": pa.array(present)}), None
        if layout.form == "count":
            columns = {"reset": pa.array(present), "n": pa.array(np.ascontiguousarray(live[:, 0]))}
            return self._effect_table("count", keys, columns), None
        if layout.form == "func":
            return self._effect_table("func", keys, self._steps(live, present)), None
        was = flags & WAS_PRESENT != 0
        now = old = None
        if layout.stored is not None:
            now = self._values(live, ~present)
            old = self._values(rows[:, layout.start : layout.twins], ~was)
        change, moved = change_of(self.spec, keys, was, old, present, now)
        columns = {"present": pa.array(present)} | ({} if now is None else {"v": now})
        if not moved.all():
            kept = pa.array(moved)
            columns = {name: column.filter(kept) for name, column in columns.items()}
            keys = [key.filter(kept) for key in keys]
        return self._effect_table("const", keys, columns), change

    def _steps(self, live: Ints, present: Bools) -> dict[str, pa.Array]:
        size = self.layout.size
        op = live[:, size]
        return {
            "a_present": pa.array(present), "a_value": self._values(live[:, :size], ~present),
            "p_op": pa.array(op.astype(np.int8)),
            "p_value": self._values(live[:, size + 1 :], (op != SET) & (op < ADD)),
        }  # fmt: skip

    def _values(self, words: Ints, missing: Bools) -> pa.Array:
        assert self.spec.value is not None
        assert self.layout.stored is not None
        return to_arrow(words, self.layout.stored, self._interned, missing)

    def _effect_table(self, form: str, keys: list[pa.Array], columns: dict[str, pa.Array]) -> pa.Table:
        rows = len(next(iter(columns.values())))
        names = [*key_names(self.spec), *columns]
        h = key_hashes(keys, rows)
        table = pa.table([pa.array(h), *keys, *columns.values()], names=["h", *names])
        return table.take(pa.array(hash_order(h))).replace_schema_metadata({"form": form})

    def _keys(self, rows: Ints) -> list[pa.Array]:
        return [
            to_arrow(rows[:, i + 1 : i + 2], kind, self._interned)
            for i, kind in enumerate(key_types(self.spec))
        ]

    # --- as Python --------------------------------------------------------------------------------

    def find(self, key: Any) -> int:
        """The row of a key, or -1."""
        words = np.array([self._key_words(key)], np.int64)
        row = int(prim.locate(self.slots, self.mask, words, self.layout.width))
        if row < 0 and self._mapped is not None:
            self.reserve(1)
            self.rows += int(take_row(self.description, self.slots, self.mask, words, self.layout.width))
            row = int(prim.locate(self.slots, self.mask, words, self.layout.width))
        return row

    def claim(self, key: Any) -> int:
        """The row of a key, made if it is not there."""
        row = self.find(key)
        if row < 0:
            self.reserve(1)
            words = self._key_words(key)
            width = self.layout.width
            none: Ints = np.zeros((1, 0), np.int64)
            prim.load(self.slots, self.mask, width, np.array([words], np.int64), none)
            row = self.find(key)
            self.slots[row, 0] = 1
            self.rows += 1
        return row

    def words(self, row: int, at: int) -> list[int]:
        """A value's words from `at` on."""
        found: list[int] = self.slots[row, at : at + self.layout.size].tolist()
        return found

    def value(self, row: int, at: int) -> Any:
        """The value whose words begin at `at`; True where presence is all there is."""
        kind = self.layout.stored
        return True if kind is None else decode(self.words(row, at), kind, self._interned)

    def encode(self, value: Any) -> list[int]:
        """The words of a value."""
        kind = self.layout.stored
        return [] if kind is None else encode(value, kind, self._interned)

    def touched(self) -> Iterator[tuple[Any, int]]:
        """The keys written in this slice, with their rows."""
        rows = np.flatnonzero(self.slots[:, 0] & TOUCHED)
        return zip(self._key_list(self.slots[rows]), rows.tolist(), strict=True)

    def present(self) -> dict[Any, Any]:
        """An exact state's values."""
        self.settle()
        rows = self.slots[self.slots[:, 0] & PRESENT != 0]
        return dict(zip(self._key_list(rows), self._value_list(rows, self.layout.place), strict=True))

    def largest(self, n: int) -> dict[Any, Any]:
        """The n largest values of a state that holds one integer per key, and all that are as large."""
        self.settle()
        found = np.flatnonzero(self.slots[:, 0] & PRESENT)
        place = self.layout.place
        if 0 < n < len(found):
            values = self.slots[found, place]
            found = found[values >= np.partition(values, -n)[-n]]
        rows = self.slots[found]
        return dict(zip(self._key_list(rows), self._value_list(rows, place), strict=True))

    def before(self) -> dict[Any, Any]:
        """What the keys of a tracked state that were written in this slice held at its start, or ABSENT."""
        rows = self.slots[self.slots[:, 0] & TOUCHED != 0]
        was = (rows[:, 0] & WAS_PRESENT != 0).tolist()
        values = self._value_list(rows, self.layout.start)
        return {
            key: value if there else ABSENT
            for key, value, there in zip(self._key_list(rows), values, was, strict=True)
        }

    def step(self, row: int) -> tuple[Any, int, Any]:
        """A row of the *func* form: what an absent key becomes, the step for a present one, its operand."""
        layout = self.layout
        at = layout.place + layout.size
        op = int(self.slots[row, at])
        absent = self.value(row, layout.place) if self.slots[row, 0] & PRESENT else ABSENT
        return absent, op, self.value(row, at + 1) if op == SET or op >= ADD else None

    def _key_list(self, rows: Ints) -> list[Any]:
        if self.spec.key is None:
            return [UNKEYED] * len(rows)
        names = key_names(self.spec)
        return key_list(self.spec, pa.table(self._keys(rows), names=names))

    def _value_list(self, rows: Ints, at: int) -> list[Any]:
        kind = self.layout.stored
        if kind is None:
            return [True] * len(rows)
        return to_python(to_arrow(rows[:, at : at + self.layout.size], kind, self._interned), kind)

    def _key_words(self, key: Any) -> list[int]:
        if self.spec.key is None:
            return [0]
        return encode(key, self.spec.key, self._interned)
