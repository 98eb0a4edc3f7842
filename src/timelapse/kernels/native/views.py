"""A compiled pass's tables as the stores and deltas that Python handlers write to."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from timelapse.kernels.native.memory.layout import LINKED, OCCUPIED
from timelapse.kernels.native.memory.linking import DROPPED
from timelapse.kernels.native.memory.members import Members
from timelapse.kernels.native.memory.table import NativeTable
from timelapse.kinds.base import ABSENT, StateSpec
from timelapse.kinds.effects import ADD, SET, Delta, Journal
from timelapse.kinds.grouped import Grouped
from timelapse.model.types import TupleType


class _Rows:
    """Rows by key. A write puts the row as it was into the journal."""

    __slots__ = ("_journal", "table")

    def __init__(self, table: NativeTable, journal: Journal | None) -> None:
        self.table = table
        self._journal = journal

    def take_back(self, key: Any, noted: npt.NDArray[np.int64]) -> None:
        """A key's row is as it was."""
        self.table.slots[self.table.find(key)] = noted

    def claim(self, key: Any) -> int:
        """The row of a key that is going to be written."""
        row = self.table.claim(key)
        for tell in self.table.hash.written:
            tell(row)
        if self._journal is not None:
            self._journal.append((self, key, self.table.slots[row].copy()))
        return row

    def write(self, row: int, at: int, words: list[int]) -> None:
        self.table.slots[row, at : at + len(words)] = words


def _flag(table: NativeTable, row: int, present: bool) -> None:
    """Note that a state's part of a row is written, and its presence."""
    layout = table.layout
    flags = int(table.slots[row, 0]) & ~layout.present | OCCUPIED | layout.touched
    table.slots[row, 0] = flags | (layout.present if present else 0)


class Foreign(BaseException):
    """An event uses a key that is not under its own (shared.py). No handler catches it as an error of its own."""


class Turn:
    """The key of the event whose turn it is, where events are shared out by key."""

    def __init__(self) -> None:
        self.key: Any = None

    def check(self, key: Any, place: int | None) -> None:
        """A state's key, with the place of the event's in it. Raises Foreign."""
        if (key if place is None else key[place]) != self.key:
            raise Foreign


class NativeStore:
    """An exact state."""

    __slots__ = ("_rows", "_table")

    def __init__(self, table: NativeTable, journal: Journal | None) -> None:
        self._table = table
        self._rows = _Rows(table, journal)

    def get(self, key: Any, default: Any) -> Any:
        table = self._table
        row = table.find(key)
        if row < 0 or not table.slots[row, 0] & table.layout.present:
            return default
        return table.value(row, table.layout.place)

    def put(self, key: Any, value: Any) -> None:
        layout = self._table.layout
        row = self._rows.claim(key)
        if layout.stored is not None:
            self._rows.write(row, layout.place, self._table.encode(value))
        self._table.slots[row, 0] |= layout.present | layout.touched

    def drop(self, key: Any) -> None:
        layout, table = self._table.layout, self._table
        row = table.find(key)
        if row >= 0 and table.slots[row, 0] & layout.present:
            self._rows.claim(key)
            table.slots[row, layout.place : layout.end] = 0
            table.slots[row, 0] = table.slots[row, 0] & ~layout.present | layout.touched

    def items(self) -> Iterable[tuple[Any, Any]]:
        return self._table.present().items()

    def largest(self, n: int) -> Iterable[tuple[Any, Any]]:
        """The keys of a counter with the n largest counts, and all that are as large."""
        return self._table.largest(n).items()

    def side(self, table: dict[Any, Any], key: Any, value: Any) -> None:
        raise TypeError("a compiled pass has no operation that needs an index")

    def _claim(self, key: Any) -> int:
        return self._rows.claim(key)


class _GroupedStore(NativeStore):
    """That of a SetOf or MapOf of which what stands under keys is counted, or listed."""

    __slots__ = ("_heads", "_members", "counts")

    def __init__(
        self, table: NativeTable, counts: NativeTable | None, members: Members | None, journal: Journal | None
    ) -> None:
        super().__init__(table, journal)
        self.counts = None if counts is None else NativeStore(counts, journal)
        self._members = members
        self._heads = None if members is None else _Rows(members.heads, journal)

    def put(self, key: Any, value: Any) -> None:
        if self.counts is not None and self.get(key, ABSENT) is ABSENT:
            count(self.counts, self._table.spec, key, 1)
        super().put(key, value)
        if self._members is not None and self._heads is not None:
            row = self._table.find(key)
            if not self._table.slots[row, 0] & LINKED:
                self._members.put(row, self._heads.claim(outer_key(self._table.spec, key)))

    def drop(self, key: Any) -> None:
        if self.get(key, ABSENT) is not ABSENT:
            if self.counts is not None:
                count(self.counts, self._table.spec, key, -1)
            if self._members is not None:
                self._members.marks[DROPPED] = 1
        super().drop(key)

    def under(self, key: Any) -> list[Any]:
        """The pairs under a key, as they are stored."""
        if self._members is None:
            raise TypeError("a compiled pass that lists no members has no index of them")
        return [pair for pair in self._members.under(key) if self.get(pair, ABSENT) is not ABSENT]


class _Indexed(Grouped):
    """A state whose index is that of the compiled pass."""

    __slots__ = ()
    _grouped: _GroupedStore

    def _number(self, key: Any) -> int:
        if self._grouped.counts is None:
            return len(self._under(key))
        found: int = self._grouped.counts.get(self._outer(key), 0)
        return found

    def _under(self, key: Any) -> dict[Any, Any]:
        return {self._key_and_member(pair)[1]: pair for pair in self._grouped.under(self._outer(key))}


@cache
def _indexed(kind: Any) -> type[Any]:
    """A kind that holds several things under a key, with the compiled pass's index."""

    class Made(_Indexed, kind):  # type: ignore[misc]
        __slots__ = ("_grouped",)

        def __init__(self, spec: StateSpec, store: _GroupedStore) -> None:
            super().__init__(spec, store)
            self._grouped = store

    Made.__name__ = Made.__qualname__ = kind.__name__
    return Made


def outer_key(spec: StateSpec, stored: Any) -> Any:
    """The declared key of a stored one."""
    assert spec.outer is not None
    return stored[: len(spec.outer.items)] if isinstance(spec.outer, TupleType) else stored[0]


def count(counts: NativeStore, spec: StateSpec, stored: Any, step: int) -> None:
    """A member comes (1) or goes (-1): how many there are under its declared key."""
    outer = outer_key(spec, stored)
    found = counts.get(outer, 0) + step
    if found:
        counts.put(outer, found)
    else:
        counts.drop(outer)


class _Last:
    """A Set's delta: the last operation per key."""

    def __init__(self, rows: _Rows) -> None:
        self._rows = rows

    def get(self, key: Any, default: Any) -> Any:
        return default  # asked for by nobody but the journal, which is not this one

    def __setitem__(self, key: Any, present: bool) -> None:
        row = self._rows.claim(key)
        _flag(self._rows.table, row, present)


class _Counts:
    """A Counter's delta: the sums of keys that were not set in this slice, or the values of those that were."""

    def __init__(self, rows: _Rows, *, reset: bool) -> None:
        self._rows, self._reset = rows, reset

    def __contains__(self, key: Any) -> bool:
        table = self._rows.table
        row = table.find(key)
        return row >= 0 and bool(table.slots[row, 0] & table.layout.present)

    def get(self, key: Any, default: Any) -> Any:
        table = self._rows.table
        row = table.find(key)
        flags, layout = int(table.slots[row, 0]) if row >= 0 else 0, table.layout
        if not flags & layout.touched or bool(flags & layout.present) is not self._reset:
            return default
        return int(table.slots[row, table.layout.place])

    def __setitem__(self, key: Any, value: int) -> None:
        row = self._rows.claim(key)
        self._rows.write(row, self._rows.table.layout.place, self._rows.table.encode(value))
        _flag(self._rows.table, row, self._reset)


class _Touched:
    """A delta of which a row holds what was done, once something was."""

    def __init__(self, rows: _Rows) -> None:
        self._rows = rows

    def get(self, key: Any, default: Any) -> Any:
        table = self._rows.table
        row = table.find(key)
        if row < 0 or not table.slots[row, 0] & table.layout.touched:
            return default
        return self._done(table, row)

    @staticmethod
    def _done(table: NativeTable, row: int) -> Any:
        raise TypeError("abstract")


class _Lists(_Touched):
    """A list's delta: whether it was emptied, and the values appended since."""

    @staticmethod
    def _done(table: NativeTable, row: int) -> Any:
        return _list_of(table, row)

    def __setitem__(self, key: Any, change: tuple[bool, tuple[Any, ...]]) -> None:
        reset, values = change
        row, table = self._rows.claim(key), self._rows.table
        self._rows.write(row, table.layout.place, table.encode(values))
        _flag(table, row, reset)


def _list_of(table: NativeTable, row: int) -> tuple[bool, tuple[Any, ...]]:
    """What was done to a list that a pass does not know."""
    emptied = bool(table.slots[row, 0] & table.layout.present)
    return emptied, table.value(row, table.layout.place)


class _Steps(_Touched):
    """The steps of the *func* form."""

    @staticmethod
    def _done(table: NativeTable, row: int) -> Any:
        return table.step(row)

    def __setitem__(self, key: Any, step: tuple[Any, int, Any]) -> None:
        absent, op, operand = step
        row, table = self._rows.claim(key), self._rows.table
        layout = table.layout
        none = [0] * layout.size
        known = op == SET or op >= ADD
        words = [*(none if absent is ABSENT else table.encode(absent)), op]
        self._rows.write(row, layout.place, words + (table.encode(operand) if known else none))
        _flag(table, row, absent is not ABSENT)


class OwnStore:
    """An exact state of which a worker has its part: every use is checked."""

    __slots__ = ("_place", "_store", "_turn")

    def __init__(self, store: NativeStore, turn: Turn, place: int | None) -> None:
        self._store, self._turn, self._place = store, turn, place

    def get(self, key: Any, default: Any) -> Any:
        self._turn.check(key, self._place)
        return self._store.get(key, default)

    def put(self, key: Any, value: Any) -> None:
        self._turn.check(key, self._place)
        self._store.put(key, value)

    def drop(self, key: Any) -> None:
        self._turn.check(key, self._place)
        self._store.drop(key)

    def items(self) -> Iterable[tuple[Any, Any]]:
        raise Foreign

    def side(self, table: dict[Any, Any], key: Any, value: Any) -> None:
        self._store.side(table, key, value)


def live_state(
    table: NativeTable, journal: Journal | None, turn: Turn | None = None, place: int | None = None,
    counts: NativeTable | None = None, members: Members | None = None,
) -> Any:  # fmt: skip
    """What handlers see of a table: the state, or its delta. With `turn`: a worker's part of an exact state. `counts`,
    `members`: of a SetOf or MapOf."""
    spec, form = table.spec, table.layout.form
    if form == "exact" and (counts is not None or members is not None):
        kind: Any = spec.kind
        return _indexed(kind)(spec, _GroupedStore(table, counts, members, journal))
    if form == "exact":
        store = NativeStore(table, journal)
        return spec.kind(spec, store if turn is None else OwnStore(store, turn, place))
    rows = _Rows(table, journal)
    delta: Any = spec.kind.delta(spec, None)  # the rows keep the journal
    if form == "const":
        delta._last = _Last(rows)
    elif form == "count":
        delta._sums, delta._after = _Counts(rows, reset=False), _Counts(rows, reset=True)
    elif form == "list" and table.layout.live:
        delta._lists = _Lists(rows)
    elif form == "func":
        delta._steps = _Steps(rows)
    return delta


def fill(delta: Delta, table: NativeTable) -> None:
    """Put what a compiled pass has collected into an ordinary delta."""
    found: Any = delta
    if table.layout.form == "const":
        found._last = {key: bool(table.slots[row, 0] & table.layout.present) for key, row in table.touched()}
    elif table.layout.form == "count":
        place = table.layout.place
        for key, row in table.touched():
            into = found._after if table.slots[row, 0] & table.layout.present else found._sums
            into[key] = int(table.slots[row, place])
    elif table.layout.form == "list" and table.layout.live:
        found._lists = {key: _list_of(table, row) for key, row in table.touched()}
    elif table.layout.form == "func":
        found._steps = {key: table.step(row) for key, row in table.touched()}
