"""A hash table of a compiled pass: rows of words for one state, or for several that are used under the same keys.

What the rows held at the slice's start stands beside them, and only where they held anything: in a table that starts
empty nothing has to be kept before a write.
"""

from __future__ import annotations

import itertools
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from timelapse.kernels.native.memory import blocks
from timelapse.kernels.native.memory import primitives as prim
from timelapse.kernels.native.memory.layout import Layout, gathered_bytes, live_words, row_bytes, row_words
from timelapse.kernels.native.memory.touch import NOTHING, MappedRows, take_row
from timelapse.kernels.tuning import TABLES, TableTuning
from timelapse.tables.sharing import at_once

Ints = npt.NDArray[np.int64]
_MORE = 4
"""A state that is loaded gets room for one key in so many more: one that has grown so far goes on growing."""


def _empty(rows: int, words: int, threads: int = 1, most: int | None = None) -> Ints:
    """Empty rows that begin where a line of the processor's caches does.

    A row of four words then never takes two lines, of which only one is asked for ahead: a fifth less
    time for 10 million anti-spam events.
    """
    return blocks.zeros(rows * words, threads, most).reshape(rows, words)


@dataclass(frozen=True)
class Larger:
    """A table's rows in a larger array: `then` is to be called once that is the table's (`HashTable.moving`). `ready`: memory for its next `turn`."""

    slots: Ints
    base: Ints
    rows: int
    then: Sequence[Callable[[], None]]
    ready: Ints | None = None


@dataclass(frozen=True)
class Image:
    """A table's rows as a slice left them, while the next one may go on with the table: keys stay where they are in `slots`, `now` has flags and
    live words. These are `skip` words further left than in `slots`. `base`: as in the table, for that slice."""

    slots: Ints
    now: Ints
    skip: int
    base: Ints
    rows: int


class Along:
    """What goes along where a table grows part by part: who has places of its rows, or writes rows of which nobody has copies (keeping.py)."""

    def find(self) -> None:
        """Find the memory that it takes: in the thread that finds that of the table."""

    def written(self) -> Ints:
        """The places of rows that were written since it began, or since this was last asked. All events are through."""
        raise NotImplementedError

    @property
    def is_there(self) -> bool:
        """Whether it knows all places in the larger array."""
        return True

    def go_on(self, slots: Ints, most: int) -> int:
        """Find out so many further places at most in the larger array, which has all rows. Returns how many."""
        return 0

    def take(self) -> None:
        """The larger array is the table's."""


class HashTable:
    """Rows by key. `slots` are the rows, `rows` counts those in use; `base` has their flags and live words at the
    slice's start, no rows where all began empty or nobody asks for it. `mapped`: start states whose keys are taken
    over one by one. `changes`: whether it is asked what a slice did to them. `threads`: how many cores there are for
    what can be shared out.
    """

    def __init__(
        self, layouts: Sequence[Layout], *, changes: bool = True, threads: int = 1,
        tuning: TableTuning = TABLES,
    ) -> None:  # fmt: skip
        first, self._threads, self.tuning = layouts[0], threads, tuning
        self.width = first.width
        self.exact, self.tracked = first.form == "exact", first.tracked and changes
        self._live, self._words = live_words(layouts), row_words(layouts)
        self.row_bytes = row_bytes(layouts, tracked=self.tracked)
        """What a key takes while the table is as full as it gets."""
        self.gathered_bytes = gathered_bytes(layouts)
        """What a key that was written takes at the slice's end."""
        self.most: int | None = None
        """Bytes that it should not take ahead of its keys."""
        self.filed: int | None = None
        """An array of more bytes than these lies in a file (None: none does)."""
        self.mapped: MappedRows | None = None
        self.moving: list[Callable[[Ints], Callable[[], None]]] = []
        """Called with a larger array that has all rows, before it is the table's. What is given is called right after."""
        self.along: list[Callable[[], Along]] = []
        """Called when it begins to grow part by part."""
        self.written: list[Callable[[int], None]] = []
        """Called before Python writes a row."""
        self._is_based = False
        """Whether `base` has what all rows held when this slice began."""
        self._ready: Ints | None = None
        """Memory for the next `turn`."""
        self.growing: Growing | None = None
        """The larger array that its rows are moved into part by part."""
        self.clear()

    def clear(self) -> None:
        """Forget all rows."""
        self.slots, self.rows = _empty(self.tuning.first_rows, self._words), 0
        self._is_turned = self._is_shown = self._is_based = False
        self.base, self.growing = self._base(0), None

    def _base(self, rows: int) -> Ints:
        return blocks.zeros(rows * (1 + self._live), most=self.filed).reshape(rows, 1 + self._live)

    @property
    def mask(self) -> np.uint64:
        return np.uint64(len(self.slots) - 1)

    @property
    def nbytes(self) -> int:
        mapped = 0 if self.mapped is None else self.mapped.nbytes
        return self.slots.nbytes + self.base.nbytes + mapped

    @property
    def written_words(self) -> int:
        """How many words of a row writes change, with the flags and key before them: behind are those of views."""
        return 1 + self.width + self._live

    def has_room(self, more: int) -> bool:
        """Whether there is room for `more` keys beside those there are."""
        return 2 * (self.rows + more) <= len(self.slots)

    def reserve(self, more: int, expected: int = 0) -> None:
        """Make room for `more` keys beside those there are. Where that takes a larger table: for `expected` keys in all, as
        far as memory is meant for so many."""
        larger = self.larger(more, expected)
        if larger is not None:
            self.take(larger)

    def larger(self, more: int, expected: int = 0) -> Larger | None:
        """The same, and the table stays as it is until `take`: who only reads may do so meanwhile. None where there is room."""
        if self.has_room(more):
            return None
        wanted = self._wanted(self.rows + more, expected)
        slots = _empty(wanted, self._words, self._threads, self.filed)
        base = self._base(wanted if len(self.base) else 0)
        if not self.rows:
            return Larger(slots, base, 0, ())
        prim.rehash(self.slots, slots, self.base, base, np.uint64(wanted - 1), self.width, 0, len(self.slots))
        return Larger(slots, base, self.rows, [about(slots) for about in self.moving])

    def _wanted(self, keys: int, expected: int) -> int:
        """The rows of an array for so many keys, which are expected to become more."""
        expected = expected if self.most is None else min(expected, self.most // (2 * self.row_bytes))
        wanted = len(self.slots)
        while wanted < 2 * max(keys, expected):
            wanted *= 2
        return wanted

    def take(self, larger: Larger) -> None:
        """Have a larger array, to which nothing was added since it was made."""
        self.slots, self.base, self.rows = larger.slots, larger.base, larger.rows
        self._ready, self._is_shown, self._is_based, self.growing = larger.ready, False, False, None
        for then in larger.then:
            then()

    @property
    def is_soon_full(self) -> bool:
        """Whether it is large, and should begin to grow part by part."""
        rows = len(self.slots)
        return (
            self.growing is None
            and rows >= self.tuning.gradual_rows
            and not self.has_room(rows // self.tuning.gradual_part)
        )

    def grow(self, expected: int) -> None:
        """Begin to move into a larger array, for `expected` keys in all if memory is meant for so many."""
        words = self._words, 1 + self._live
        self.growing = Growing(self, self._wanted(len(self.slots) // 2 + 1, expected), words)

    def expect(self, keys: int) -> None:
        """Make room for keys that are loaded, and some that come later."""
        self.reserve(max(0, keys - self.rows), keys + keys // _MORE)

    def load(self, layout: Layout, keys: Ints, values: Ints) -> None:
        """Put one state's keys and values in. What they hold is what they held at the start, once a slice has begun."""
        self.reserve(len(keys), len(keys) + len(keys) // _MORE)
        self.growing, self._is_based = None, False
        values = values.view()
        values.flags.writeable = False  # what can be written to would be another type, and another function
        self.rows += int(
            prim.load(self.slots, self.mask, self.width, keys, values, layout.place, layout.present)
        )

    def map(self, mapped: MappedRows) -> None:
        """Take keys over one by one."""
        self.mapped = mapped
        self.rebase()

    def rebase(self, *, apart: bool = False) -> None:
        """What rows hold now is what they held at the start, and none was written since. `apart`: what they held at the start before stays
        in the array where it is."""
        rows, self.growing = len(self.slots), None
        base = rows if self.tracked and (self.rows or self.mapped is not None) else 0
        again, self._is_based = self._is_based, True
        if len(self.base) != base or apart or self._is_shown:  # an image has the array
            again = False
            words, ready = base * (1 + self._live), self._ready
            self._ready, self._is_shown = None, False
            array = ready if ready is not None and len(ready) == words else blocks.empty(words, self.filed)
            self.base = array.reshape(base, 1 + self._live)
        if not self.rows and not base:
            return
        threads = self._threads if self.slots.nbytes >= blocks.LARGE else 1
        ends = [rows * n // threads for n in range(threads + 1)]
        parts = [
            (hi - lo, partial(prim.renew, self.slots, self.base, 1 + self.width, lo, hi, again))
            for lo, hi in itertools.pairwise(ends)
        ]
        self.rows = sum(map(int, at_once(parts, threads)))

    def begin(self) -> None:
        """A new slice begins, if it has not begun by `turn`."""
        if not self.exact:
            self.clear()
        elif not self._is_turned:
            self.rebase()
        self._is_turned = False

    def image(self) -> Image:
        """The rows as they are, until one is written."""
        return Image(self.slots, self.slots, 0, self.base, self.rows)

    def turn(self) -> Image:
        """A new slice begins, of a tracked table; `begin` then does nothing. Returns the rows as they are."""
        slots, base, rows = self.slots, self.base, self.rows
        self.rebase(apart=True)
        self._is_turned = self._is_shown = True
        # Without rows nothing was copied.
        return Image(slots if rows else slots[:0], self.base, self.width, base if rows else base[:0], rows)

    def prepare(self) -> None:
        """Have what a table that grows, or is turned, takes: code that is compiled or loaded, and memory."""
        none = self.slots[:0], self.slots, self.base[:0], self.base, self.mask, self.width
        prim.rehash(*none, 0, 0)
        prim.rehash_some(*none, np.zeros(0, np.int64))
        prim.renew(self.slots, self.base, 1 + self.width, 0, 0, False)
        self.make_ready()

    def make_ready(self) -> None:
        """Have memory for the next `turn`: in any thread, while the table is used. Who turns a table does not wait until the system has found it."""
        if self.tracked:
            found = blocks.found(len(self.slots) * (1 + self._live), self.filed)
            if len(found) == len(self.slots) * (1 + self._live):  # it has not grown meanwhile
                self._ready = found

    def description(self, starts: Ints, data: npt.NDArray[np.uint8]) -> Ints:
        """What machine code takes keys over from. Codes stand for what these arrays of the string pool hold."""
        return NOTHING if self.mapped is None else self.mapped.strings(starts, data)

    def used(self) -> tuple[Ints, Ints]:
        """Copies of the rows in use, and of what they held at the start (no rows where nobody keeps it)."""
        there = self.slots[:, 0] != 0
        return self.slots[there], self.base[there] if len(self.base) else self.base

    def override(self, rows: Ints, base: Ints) -> None:
        """Put rows of an equal table in, with what they held, over those of the same keys."""
        self.reserve(len(rows))
        self._is_based = False
        if len(base) < len(rows):
            base = np.zeros((len(rows), 1 + self._live), np.int64)
        self.rows += int(prim.override(self.slots, self.base, self.mask, self.width, rows, base))

    def find(self, key: Sequence[int], starts: Ints, data: npt.NDArray[np.uint8]) -> int:
        """The row of a key, or -1."""
        words = np.array([key], np.int64)
        row = int(prim.locate(self.slots, self.mask, words, self.width))
        if row < 0 and self.mapped is not None:
            self.reserve(1)
            start = self.description(starts, data)
            self.rows += int(take_row(start, self.slots, self.base, self.mask, words, self.width))
            row = int(prim.locate(self.slots, self.mask, words, self.width))
        return row

    def claim(self, key: Sequence[int]) -> None:
        """Make a row for a key that has none."""
        self.admit(np.array([key], np.int64))

    def admit(self, keys: Ints) -> None:
        """Make rows for the keys that have none."""
        self.reserve(len(keys))
        none: Ints = np.zeros((len(keys), 0), np.int64)
        none.flags.writeable = False
        self.rows += int(prim.load(self.slots, self.mask, self.width, keys, none, 0, 0))


class Growing:
    """The larger array of a table that goes on: its rows are moved there part by part, between two uses of the table and in their thread. Of rows that are
    written meanwhile who moves them must know (keeping.py). `rows`: of the larger array; `words`: of its rows, and of those of `base`.

    Memory is found in a thread of its own. That takes longer than moving rows there.
    """

    def __init__(self, table: HashTable, rows: int, words: tuple[int, int]) -> None:
        self._table, self._rows, self._words = table, rows, words
        self._is_tracked, self._based = table.tracked, len(table.base) > 0
        self._at = self._there = 0
        """So many rows of the table are moved, and so many are there."""
        self._found: tuple[Ints, Ints, Ints | None] | None = None
        self._along = [begin() for begin in table.along]
        self._finding = threading.Thread(target=self._find, name="timelapse-room", daemon=True)
        self._finding.start()

    def _find(self) -> None:
        rows, (own, base) = self._rows, self._words
        with suppress(MemoryError, OSError):  # then it grows at once, or fails there
            for along in self._along:
                along.find()
            filed = self._table.filed
            slots = blocks.found(rows * own, filed, zeros=True).reshape(rows, own)
            before = blocks.found(rows * base if self._based else 0, filed, zeros=True).reshape(-1, base)
            self._found = slots, before, blocks.found(rows * base, filed) if self._is_tracked else None

    def go_on(self, events: int, *, full: bool) -> bool:
        """Move the next rows, before so many events, or all of them where the table is `full`. Whether all are moved, and who goes along is there."""
        if full:
            self._finding.join()
        for along in self._along:
            self.again(along.written())
        if self._finding.is_alive() or self._found is None:
            return False
        end = len(self._table.slots)
        left = (
            sys.maxsize
            if full
            else max(self._table.tuning.moved_rows, self._table.tuning.moved_each * events)
        )
        lo, hi = self._at, min(end, self._at + left)
        self._there += int(prim.rehash(*self._arrays(self._found), lo, hi))
        self._at, left = hi, left - (hi - lo)
        if hi == end:
            for along in self._along:
                left -= along.go_on(self._found[0], left)
        return hi == end and all(along.is_there for along in self._along)

    def again(self, places: Ints) -> None:
        """Rows of the table, at these places, were written since they may have been moved."""
        if self._at and self._found is not None:
            self._there += int(prim.rehash_some(*self._arrays(self._found), places))

    def larger(self) -> Larger:
        """The larger array, once all rows are moved, also those written since."""
        assert self._found is not None
        slots, base, ready = self._found
        return Larger(slots, base, self._there, [about(slots) for about in self._table.moving], ready)

    def _arrays(self, found: tuple[Ints, Ints, Ints | None]) -> tuple[Ints, Ints, Ints, Ints, np.uint64, int]:
        table, (slots, base, _) = self._table, found
        return table.slots, slots, table.base, base, np.uint64(self._rows - 1), table.width
