"""How many keys a table will have at the slice's end, foretold from how it has grown so far.

A table that doubles again and again copies all it has each time, into memory that the system must first make empty:
a third of the time that 10 million anti-spam events took. What is foretold only decides how much room is made.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager

from timelapse.kernels.native.memory.hashtable import HashTable
from timelapse.kernels.native.memory.keeping import Kept

_EARLY = 1 << 17
"""Before so many events a table is small, and what it grows by says little: it doubles."""
_AT_ONCE = 8
"""A table becomes at most so many times larger at once: the same users come again, so growth slows down."""
_STEADY = 0.985
"""Where twice the events bring 2**this times the keys, nearly every key is new, and there is no such bound."""


class Growth:
    """Watches one table through `events` events (0: not known). Rows it began with are not its growth."""

    def __init__(self, events: int, rows: int) -> None:
        self._events, self._first, self._past = events, rows, 0
        self._marks: list[tuple[int, int]] = []
        self._next = 0
        """After so many events it is marked again how many keys there are."""
        self.least = 0
        """So many rows there will be, at least, if somebody knows."""

    def forget(self) -> None:
        """It is not known any more how many events there are."""
        self._events = 0

    def go_on(self, done: int) -> None:
        """A new slice of these events begins after one of so many, with the same table."""
        self._past += done

    def make_ready(self, table: HashTable, more: int, done: int) -> None:
        """Room for `more` keys beside those there are; of a table that has it, nothing is foretold. Called before each piece, of which
        there may be very many."""
        if not table.has_room(more) or done + self._past >= self._next:
            table.reserve(more, self.expected(done, table.rows))

    def expected(self, done: int, rows: int) -> int:
        """The rows there will be, after `done` events of a slice with `rows`; called before each piece, `done` rises."""
        done += self._past
        marks, new = self._marks, rows - self._first
        if not marks or done >= 2 * marks[-1][0]:
            marks.append((done, new))
            self._next = 2 * done
        if done < _EARLY or done >= self._events or new <= 0:
            return max(rows, self.least)
        before, earlier = max((m for m in marks if 2 * m[0] <= done), default=(0, 0))
        if earlier <= 0:
            return max(rows, self.least)
        # Heaps' law: the number of different keys grows with a power of the number of events.
        power = min(1.0, max(0.0, math.log(new / earlier) / math.log(done / before)))
        growth = float((self._events / done) ** power)
        if power < _STEADY:
            growth = min(growth, _AT_ONCE)
        return max(self._first + math.ceil(new * growth), self.least)


def make_ready_beside(
    kept: Kept, growth: Sequence[Growth], most_rows: Sequence[tuple[int, int]], events: int, done: int,
    guard: AbstractContextManager[None], *, gradually: bool = False,
) -> None:  # fmt: skip
    """Room for so many events, while others read the tables of which rows are kept, under a guard: it is held only for as long as a larger array takes the place of another. Not
    for tables of which readers take keys over. `most_rows`: what an event may bring, for each table. `gradually`: large tables grow part by part; every row that is written
    has its copy then."""
    kept.reserve_beside(events)
    for number, (table, own, (each, _)) in enumerate(zip(kept.tables, growth, most_rows, strict=True)):
        if table.mapped is not None:
            continue
        more, larger = each * events, None
        full = not table.has_room(more)
        if gradually and kept.on and not full and table.is_soon_full:
            table.grow(own.expected(done, table.rows))
        if table.growing is not None and table.growing.go_on(events, full=full):
            kept.move_again(number)
            larger = None if table.growing is None else table.growing.larger()
        if full and (larger is None or 2 * (table.rows + more) > len(larger.slots)):
            larger = table.larger(more, own.expected(done, table.rows))
        if larger is not None:
            with guard:
                table.take(larger)


def foretell(
    tables: Sequence[Sequence[str]],
    growth: Sequence[Growth],
    rows: Mapping[str, int],
    *,
    soon: bool = False,
) -> None:
    """So many keys of states there will be, at least. `tables`: the states in each. `soon`: the end may come long before the last event, so
    nothing else is foretold."""
    for names, own in zip(tables, growth, strict=True):
        if soon:
            own.forget()
        own.least = max((rows.get(name, 0) for name in names), default=0)


def make_room(tables: Sequence[HashTable]) -> bool:
    """Make those tables larger that have no room for one more key (`StateCode.claim`). Whether there are any."""
    full = [table for table in tables if 2 * table.rows >= len(table.slots) - 2]
    for table in full:
        table.reserve(len(table.slots) // 2)
    return bool(full)
