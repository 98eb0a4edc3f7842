"""Copies of rows from before their first write since some moment, for readers of states as of that moment.

A kernel that stays open changes its tables while an epoch is processed, and readers ask for the epoch before. So a row is copied before its
first write (`keep`), and the row's flag COPIED says so. The rows of most keys are not written, and need no copy.

`kept` is one array for all tables. Its first row has the number of copies, and whether one did not fit. Each further row is a copy: the
table's number, the row's place there, and the row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import numpy.typing as npt

from timelapse.kernels.native.machine.jit import primitive
from timelapse.kernels.native.memory.hashtable import HashTable
from timelapse.kernels.native.memory.layout import COPIED
from timelapse.kernels.native.memory.primitives import locate, row_of
from timelapse.kernels.tuning import TABLES, TableTuning

Ints = npt.NDArray[np.int64]
ROW = 2
"""Where a copy's row begins."""
_KEY = np.int64(ROW + 1)


@primitive()
def keep(kept, t, slots, i):  # type: ignore[no-untyped-def]
    """Before row i of table t is written."""
    if slots[i, 0] & COPIED == 0:
        n = kept[0, 0] + 1
        if n < kept.shape[0]:
            kept[n, 0] = t
            kept[n, 1] = i
            for w in range(slots.shape[1]):
                kept[n, ROW + w] = slots[i, w]
            kept[0, 0] = n
            slots[i, 0] |= COPIED
        else:
            kept[0, 1] = 1


@primitive()
def release(kept, t, slots):  # type: ignore[no-untyped-def]
    """Forget that rows of table t were copied."""
    for n in range(1, kept[0, 0] + 1):
        if kept[n, 0] == t:
            slots[kept[n, 1], 0] &= ~COPIED


@primitive()
def look_up(kept, t, slots, mask, width, places):  # type: ignore[no-untyped-def]
    """Where rows of table t that were copied are in other slots."""
    for n in range(1, kept[0, 0] + 1):
        if kept[n, 0] == t:
            places[n] = row_of(slots, mask, kept, n, _KEY, width)


@primitive()
def follow(kept, t, places):  # type: ignore[no-untyped-def]
    """Rows of table t are there now."""
    for n in range(1, kept[0, 0] + 1):
        if kept[n, 0] == t:
            kept[n, 1] = places[n]


@primitive()
def copy_of(kept, t, i):  # type: ignore[no-untyped-def]
    """Which copy is that of row i of table t; 0: none."""
    for n in range(1, kept[0, 0] + 1):
        if kept[n, 1] == i and kept[n, 0] == t:
            return n
    return 0


@primitive()
def put_back(kept, t, slots, places, words):  # type: ignore[no-untyped-def]
    """Have so many words of rows of table t, which are at these places, hold what their copies do: of several copies the first."""
    for n in range(kept[0, 0], 0, -1):
        if kept[n, 0] == t:
            for w in range(words):
                slots[places[n], w] = kept[n, ROW + w]


class Kept:
    """Copies of the rows of some tables. `each`: how many rows an event can write outside of loops.

    Until `settle` is called for the first time nothing is kept.
    """

    def __init__(self, tables: Sequence[HashTable], each: int, tuning: TableTuning = TABLES) -> None:
        self.tables, self._each, self._tuning = tables, each, tuning
        self._words = ROW + max((table.slots.shape[1] for table in tables), default=0)
        self.rows: Ints = np.zeros((1, self._words), np.int64)
        self.on = self._as_now = False
        for number, table in enumerate(tables):
            table.moving.append(partial(self._follow, number))
            table.written.append(partial(self.add, number))

    def _follow(self, number: int, slots: Ints) -> Callable[[], None]:
        table, places = self.tables[number], np.zeros(int(self.rows[0, 0]) + 1, np.int64)
        look_up(self.rows, number, slots, np.uint64(len(slots) - 1), table.width, places)
        return lambda: follow(self.rows, number, places)

    def reserve(self, events: int) -> None:
        """Make room for what so many events may write."""
        self._forget()
        used, most = int(self.rows[0, 0]) + 1, self._tuning.copied_bytes // (8 * self._words)
        wanted = min(used + events * self._each, most)
        if not self.on or wanted <= len(self.rows):
            return
        rows: Ints = np.zeros((min(most, max(wanted, 2 * len(self.rows))), self._words), np.int64)
        rows[:used] = self.rows[:used]
        self.rows = rows

    def reserved(self, events: int) -> Ints:
        """The copies, with that room."""
        self.reserve(events)
        return self.rows

    def reserve_beside(self, events: int) -> None:
        """The same while others read the tables, unless they take keys over."""
        if all(table.mapped is None for table in self.tables):
            self.reserve(events)

    def add(self, number: int, row: int) -> None:
        """Before Python writes a row."""
        if self.on:
            self.reserve(1)
            keep(self.rows, number, self.tables[number].slots, row)

    def take(self) -> Ints | None:
        """The copies of the rows written since this was last called, as `kept` has them; from now on such are kept anew. None where one did not fit.

        A row of a key that was not there was copied too, as one that holds nothing.
        """
        if not self.on:
            self.on, self.rows = True, np.zeros((self._tuning.first_copies, self._words), np.int64)
        copies: Ints | None = None
        if not self.rows[0, 1]:
            copies = self.rows[: int(self.rows[0, 0]) + 1].copy()
        for number, table in enumerate(self.tables):
            release(self.rows, number, table.slots)
        self.rows[0] = 0
        return copies

    def put_back(self, copies: Ints) -> None:
        """Have rows hold what they did before they were copied, wherever their keys have come to stand since. Not words of views (NativeLog.go_back)."""
        places: Ints = np.zeros(len(copies), np.int64)
        for number, table in enumerate(self.tables):
            look_up(copies, number, table.slots, table.mask, table.width, places)
            put_back(copies, number, table.slots, places, table.written_words)

    @property
    def whole(self) -> bool:
        """Whether every row that was written has its copy."""
        return self.on and (self._as_now or not self.rows[0, 1])

    def settle(self) -> None:
        """What rows hold now is what they held. Copies are forgotten only before the next write, which takes longer than readers should wait."""
        if not self.on:
            self.on, self.rows = True, np.zeros((self._tuning.first_copies, self._words), np.int64)
            self._compile()
        self._as_now = True

    def _compile(self) -> None:
        """Have all compiled, or loaded, that is called under a guard while others wait for it: a second at the first read, and longer where another thread is
        compiling. There are no copies yet, so nothing is done."""
        copy_of(self.rows, 0, 0)
        for number, table in enumerate(self.tables):
            locate(table.slots, table.mask, np.zeros((1, table.width), np.int64), table.width)
            self._follow(number, table.slots)()
            release(self.rows, number, table.slots)
            table.prepare()

    def _forget(self) -> None:
        if self._as_now:
            for number, table in enumerate(self.tables):
                release(self.rows, number, table.slots)
                self.move_again(number)
            self.rows[0] = 0
            self._as_now = False

    def move_again(self, number: int) -> None:
        """Have rows of a table that were written, as far as copies tell, in the larger array that it is moved into."""
        table, rows = self.tables[number], self.rows[1 : int(self.rows[0, 0]) + 1]
        if table.growing is not None and self.rows[0, 1]:  # others were written, too
            table.growing = None
        elif table.growing is not None:
            table.growing.again(rows[rows[:, 0] == number, 1])

    def copy(self, number: int, row: int) -> Ints:
        """A row as it was, by its place now."""
        table = self.tables[number].slots
        if not self._as_now and table[row, 0] & COPIED:  # in this order: `_forget` may run beside
            found: Ints = self.rows[int(copy_of(self.rows, number, row)), ROW : ROW + table.shape[1]]
            return found
        now: Ints = table[row]
        return now

    def same(self, number: int) -> Ints:
        """The rows of a table that are what they were."""
        slots = self.tables[number].slots
        return slots if self._as_now else slots[slots[:, 0] & COPIED == 0]

    def copies(self, number: int) -> Ints:
        """The others, as they were."""
        rows = self.rows[1 : 1 if self._as_now else int(self.rows[0, 0]) + 1]
        found: Ints = rows[rows[:, 0] == number, ROW : ROW + self.tables[number].slots.shape[1]]
        return found
