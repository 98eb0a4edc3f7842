"""A state's values for a compiled pass: a hash table that Python owns, and the way from and to Arrow."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from timelapse.kernels.native import primitives as prim
from timelapse.kernels.native.strings import Interned
from timelapse.kinds.base import StateSpec
from timelapse.model.types import ScalarType
from timelapse.tables.apply import Change, change_of
from timelapse.tables.rowhash import hash_order, one_array
from timelapse.tables.table import key_hashes, key_names, key_types

Ints = npt.NDArray[np.int64]


def scalar_name(kind: Any) -> str:
    """The name of a scalar type, or the empty string."""
    return kind.name if isinstance(kind, ScalarType) else ""


class NativeTable:
    """One state. `delta`: the start is not known, and the value is a sum or, after `reset`, a value.

    In delta mode of a counter, PRESENT stands for "was set in this slice", and values are kept
    modulo 2^64 (see kinds/effects.py).
    """

    def __init__(self, spec: StateSpec, interned: Interned, *, delta: bool) -> None:
        self.spec = spec
        self.delta = delta
        self._interned = interned
        self.parts = [scalar_name(t) for t in key_types(spec)] or ["int"]
        self.width = len(self.parts)
        self.has_value = spec.value is not None
        self.words = 1 + self.width + (2 if self.has_value else 0)
        self.slots: Ints = np.zeros((1024, self.words), np.int64)

    @property
    def mask(self) -> np.uint64:
        return np.uint64(len(self.slots) - 1)

    def reserve(self, count: int, more: int) -> None:
        """Make room for `more` keys beside the `count` there are."""
        wanted = len(self.slots)
        while wanted < 2 * (count + more):
            wanted *= 2
        if wanted > len(self.slots):
            new = np.zeros((wanted, self.words), np.int64)
            if count:
                prim.rehash(self.slots, new, np.uint64(wanted - 1), self.width)
            self.slots = new

    def load(self, table: pa.Table) -> int:
        """Start from a state table. Returns the number of keys."""
        rows = int(table.num_rows)
        self.slots = np.zeros((1024, self.words), np.int64)
        self.reserve(0, rows)
        if rows:
            keys = np.zeros((rows, self.width), np.int64)
            for i, name in enumerate(key_names(self.spec)):
                keys[:, i] = self._words(one_array(table.column(name)))
            none: Ints = np.zeros(0, np.int64)
            values = self._words(one_array(table.column("v"))) if self.has_value else none
            prim.load(self.slots, self.mask, self.width, keys, values)
        return rows

    def begin(self) -> int:
        """A new slice begins. Returns the number of keys."""
        if self.delta:
            self.slots = np.zeros((1024, self.words), np.int64)
            return 0
        prim.untouch(self.slots)
        return int(np.count_nonzero(self.slots[:, 0]))

    def effects(self) -> tuple[pa.Table, Change | None]:
        """What the slice did: an effect table, and for an exact state the change."""
        rows = self.slots[self.slots[:, 0] & prim.TOUCHED != 0]
        flags = rows[:, 0]
        keys = self._keys(rows)
        present = flags & prim.PRESENT != 0
        place = 1 + self.width
        if self.delta:
            if self.has_value:
                columns = {"reset": pa.array(present), "n": pa.array(rows[:, place])}
                return self._effect_table("count", keys, columns), None
            return self._effect_table("const", keys, {"present": pa.array(present)}), None
        was = flags & prim.WAS_PRESENT != 0
        now = old = None
        if self.has_value:
            now, old = pa.array(rows[:, place]), pa.array(rows[:, place + 1])
            now = pa.array(rows[:, place], mask=~present)
            old = pa.array(rows[:, place + 1], mask=~was)
        change, moved = change_of(self.spec, keys, was, old, present, now)
        kept = pa.array(moved)
        columns = {"present": pa.array(present).filter(kept)}
        if now is not None:
            columns["v"] = now.filter(kept)
        return self._effect_table("const", [k.filter(kept) for k in keys], columns), change

    def start(self) -> pa.Table:
        """The state at the slice's start, as a state table."""
        flags = self.slots[:, 0]
        touched = flags & prim.TOUCHED != 0
        was = np.where(touched, flags & prim.WAS_PRESENT != 0, flags & prim.PRESENT != 0)
        rows = self.slots[was]
        columns = self._keys(rows)
        names = key_names(self.spec)
        if self.has_value:
            place = 1 + self.width
            columns.append(pa.array(np.where(touched[was], rows[:, place + 1], rows[:, place])))
            names.append("v")
        return self._sorted(names, columns, len(rows))

    def _effect_table(self, form: str, keys: list[pa.Array], columns: dict[str, pa.Array]) -> pa.Table:
        rows = len(next(iter(columns.values())))
        table = self._sorted([*key_names(self.spec), *columns], [*keys, *columns.values()], rows)
        return table.replace_schema_metadata({"form": form})

    def _sorted(self, names: list[str], columns: list[pa.Array], rows: int) -> pa.Table:
        h = key_hashes(columns[: len(key_names(self.spec))], rows)
        table = pa.table([pa.array(h), *columns], names=["h", *names])
        return table.take(pa.array(hash_order(h)))

    def _keys(self, rows: Ints) -> list[pa.Array]:
        kinds = key_types(self.spec)
        return [self._arrow(rows[:, i + 1], kind.arrow) for i, kind in enumerate(kinds)]

    def _words(self, column: pa.Array) -> Ints:
        return self._interned.words(column)

    def _arrow(self, words: Ints, kind: pa.DataType) -> pa.Array:
        return self._interned.arrow(words, kind)
