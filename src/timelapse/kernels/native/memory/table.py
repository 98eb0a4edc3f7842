"""A state's values for a compiled pass: a hash table that Python owns, and the way from and to Arrow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from timelapse.kernels.native.memory.hashtable import HashTable
from timelapse.kernels.native.memory.layout import Layout, can_be_mapped
from timelapse.kernels.native.memory.primitives import put_back
from timelapse.kernels.native.memory.strings import Interned
from timelapse.kernels.native.memory.touch import MappedRows, fetchable
from timelapse.kernels.native.memory.words import decode, encode, to_arrow, to_words
from timelapse.kinds.base import ABSENT, UNKEYED, StateSpec
from timelapse.kinds.effects import ADD, SET
from timelapse.tables.levels import Start, levels_of, whole, whole_in_file
from timelapse.tables.table import key_list, key_names, key_types, to_python

Ints = npt.NDArray[np.int64]
_MANY = 256
"""More entries than so many are undone by machine code."""
_PIECE = 1 << 18
"""Rows of a state that is loaded are made words so many at a time."""


class NativeTable:
    """One state's part of a table's rows. `layout` says how they look. `shared`: the table, if others have part of it."""

    def __init__(
        self, spec: StateSpec, layout: Layout, interned: Interned, shared: HashTable | None = None
    ) -> None:
        self.spec = spec
        self.layout = layout
        self.hash = HashTable([layout]) if shared is None else shared
        self.interned = interned

    @property
    def slots(self) -> Ints:
        """The rows: of all states that share the table."""
        return self.hash.slots

    @property
    def mask(self) -> np.uint64:
        return self.hash.mask

    @property
    def rows(self) -> int:
        """How many there are, in use by any of the states that share them."""
        return self.hash.rows

    @property
    def can_be_mapped(self) -> bool:
        """Whether keys of a start state can be taken over one by one."""
        return can_be_mapped(self.spec, self.layout)

    @property
    def mapped(self) -> bool:
        """Whether there is a start state of which only the keys that were touched have rows."""
        return self.hash.mapped is not None

    def load(self, table: Start, *, key_by_key: bool = False) -> None:
        """Start from a state table. `key_by_key`: its keys get rows when they are first looked at, if possible."""
        load([self], [table], key_by_key=key_by_key)

    def load_counts(self, table: pa.Table) -> None:
        """Count the rows of a SetOf's state table by the declared key: this is the counter of its members."""
        names = key_names(self.spec)
        found = table.group_by(names).aggregate([([], "count_all")]).rename_columns([*names, "v"])
        self._put_in(found, self.layout)

    def settle(self) -> None:
        """Give every key of a mapped start state a row."""
        shared = self.hash
        if shared.mapped is None:
            return
        rows, base = shared.used()
        starts, shared.mapped = shared.mapped.starts, None
        shared.clear()
        for start, layout in starts:
            self._put_in(whole(start), layout)
        shared.rebase()
        shared.override(rows, base)

    def _put_in(self, table: pa.Table, layout: Layout) -> None:
        """Give every key of a state table a row. Its keys are of this state's type."""
        rows = int(table.num_rows)
        if not rows:
            return
        keys = self.key_words(table)
        values: Ints = np.zeros((rows, 0), np.int64)
        if layout.stored is not None:
            values = np.ascontiguousarray(to_words(table.column("v"), layout.stored, self.interned))
        self.hash.load(layout, keys, values)

    def key_words(self, table: pa.Table) -> Ints:
        """The keys of a table that has them in columns, as words."""
        keys = np.zeros((table.num_rows, self.layout.width), np.int64)
        for i, (name, kind) in enumerate(zip(key_names(self.spec), key_types(self.spec), strict=True)):
            keys[:, i] = to_words(table.column(name), kind, self.interned)[:, 0]
        return keys

    def begin(self) -> None:
        """A new slice begins. Where states share a table one of them tells it."""
        self.hash.begin()

    # --- as Arrow ---------------------------------------------------------------------------------

    def _keys(self, rows: Ints) -> list[pa.Array]:
        return [
            to_arrow(rows[:, i + 1 : i + 2], kind, self.interned)
            for i, kind in enumerate(key_types(self.spec))
        ]

    def key_columns(self, words: Sequence[Ints]) -> dict[str, pa.Array]:
        """Keys whose words stand in columns, as columns by name."""
        kinds = zip(key_names(self.spec), key_types(self.spec), words)  # a state without a key has one word
        return {name: to_arrow(column.reshape(-1, 1), kind, self.interned) for name, kind, column in kinds}

    # --- as Python --------------------------------------------------------------------------------

    def find(self, key: Any) -> int:
        """The row of a key, or -1."""
        return self.hash.find(self._key_words(key), *self.interned.buffers)

    def claim(self, key: Any) -> int:
        """The row of a key, made if it is not there."""
        row = self.find(key)
        if row < 0:
            self.hash.claim(self._key_words(key))
            row = self.find(key)
        return row

    def keys(self, rows: Sequence[int] | Ints) -> list[Any]:
        """The keys of rows."""
        return self._key_list(self.slots[np.asarray(rows, np.int64)])

    def keys_in(self, rows: Ints) -> list[Any]:
        """The keys whose words stand in rows of words, from the second one on."""
        return self._key_list(rows)

    def values_in(self, rows: Ints) -> list[Any]:
        """The values in rows that look like those of this table; True where presence is all there is."""
        return self._value_list(rows, self.layout.place)

    def words(self, row: int, at: int) -> list[int]:
        """A value's words from `at` on."""
        found: list[int] = self.slots[row, at : at + self.layout.size].tolist()
        return found

    def value(self, row: int, at: int) -> Any:
        """The value whose words begin at `at`; True where presence is all there is."""
        return True if self.layout.stored is None else self.decoded(self.words(row, at))

    def decoded(self, words: list[int]) -> Any:
        """The value of words."""
        assert self.layout.stored is not None
        return decode(words, self.layout.stored, self.interned)

    def encode(self, value: Any) -> list[int]:
        """The words of a value."""
        kind = self.layout.stored
        return [] if kind is None else encode(value, kind, self.interned)

    def touched(self) -> Iterator[tuple[Any, int]]:
        """The keys written in this slice, with their rows."""
        rows = np.flatnonzero(self.slots[:, 0] & self.layout.touched)
        return zip(self._key_list(self.slots[rows]), rows.tolist(), strict=True)

    def present(self) -> dict[Any, Any]:
        """An exact state's values."""
        self.settle()
        rows = self.slots[self.slots[:, 0] & self.layout.present != 0]
        return dict(zip(self._key_list(rows), self._value_list(rows, self.layout.place), strict=True))

    def held(self) -> pa.Table:
        """An exact state's keys and values as a state table has them, in no order and without hashes."""
        self.settle()
        rows = np.flatnonzero(self.slots[:, 0] & self.layout.present)
        keys = enumerate(key_types(self.spec), 1)
        columns = [to_arrow(self.slots[rows, i : i + 1], kind, self.interned) for i, kind in keys]
        names = key_names(self.spec)
        if self.layout.stored is not None:
            place = self.layout.place
            values = self.slots[rows, place : place + self.layout.size]
            columns, names = [*columns, to_arrow(values, self.layout.stored, self.interned)], [*names, "v"]
        return (
            pa.table(columns, names=names)
            if names
            else pa.table({"h": pa.array([0] * len(rows), pa.uint64())})
        )

    def largest(self, n: int) -> dict[Any, Any]:
        """The n largest values of a state that holds one integer per key, and all that are as large."""
        self.settle()
        found = np.flatnonzero(self.slots[:, 0] & self.layout.present)
        place = self.layout.place
        if 0 < n < len(found):
            values = self.slots[found, place]
            found = found[values >= np.partition(values, -n)[-n]]
        rows = self.slots[found]
        return dict(zip(self._key_list(rows), self._value_list(rows, place), strict=True))

    def before(self) -> dict[Any, Any]:
        """What the keys of a tracked state that were written in this slice held at its start, or ABSENT."""
        layout, base = self.layout, self.hash.base
        found = self.slots[:, 0] & layout.touched != 0
        rows = self.slots[found]
        if not len(base):
            return dict.fromkeys(self._key_list(rows), ABSENT)
        was = (base[found, 0] & layout.present != 0).tolist()
        values = self._value_list(base[found], 1 + layout.at)
        return {
            key: value if there else ABSENT
            for key, value, there in zip(self._key_list(rows), values, was, strict=True)
        }

    def step(self, row: int) -> tuple[Any, int, Any]:
        """A row of the *func* form: what an absent key becomes, the step for a present one, its operand."""
        layout = self.layout
        at = layout.place + layout.size
        op = int(self.slots[row, at])
        absent = self.value(row, layout.place) if self.slots[row, 0] & layout.present else ABSENT
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
        return to_python(to_arrow(rows[:, at : at + self.layout.size], kind, self.interned), kind)

    def _key_words(self, key: Any) -> list[int]:
        if self.spec.key is None:
            return [0]
        return encode(key, self.spec.key, self.interned)


def undo(tables: Sequence[NativeTable], entries: Ints) -> None:
    """Put back what the entries of an undo log hold, the latest first. `tables`: of all states, by their number."""
    if len(entries) > _MANY:
        for shared in dict.fromkeys(table.hash for table in tables):
            own = [(t.hash is shared, t.layout.place, t.layout.live) for t in tables]
            put_back(entries, np.array(own, np.int64), shared.slots)
        return
    for number, row, flags, *words in entries[::-1].tolist():
        table = tables[number]
        layout = table.layout
        table.slots[row, 0] = flags
        table.slots[row, layout.place : layout.end] = words[: layout.live]


def load(
    tables: Sequence[NativeTable], starts: Sequence[Start], *, key_by_key: bool, budget: int | None = None
) -> None:
    """Let states that share a table start from state tables. `key_by_key`: as `NativeTable.load`, if all can. `budget`: bytes
    of which indexes of them take no more than a part."""
    shared = tables[0].hash
    shared.clear()
    shared.mapped = None
    parts = [(t, start) for t, start in zip(tables, starts, strict=True) if start.num_rows]
    mapped = key_by_key and all(
        t.can_be_mapped and all(fetchable(level, t.layout.stored) for level in levels_of(start))
        for t, start in parts
    )
    if mapped and parts:
        shared.map(MappedRows([(start, t.layout) for t, start in parts], budget))
        return
    for table, start in sorted(parts, key=lambda p: -p[1].num_rows):  # the first makes the room
        found = whole_in_file(start, budget)
        shared.expect(found.num_rows)
        for at in range(0, found.num_rows, _PIECE):
            table._put_in(found.slice(at, _PIECE), table.layout)
