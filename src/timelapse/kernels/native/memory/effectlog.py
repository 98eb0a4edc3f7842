"""The log of what was done to a state with views, in a compiled pass.

A slice that is not the log's first begins with what earlier ones did (`recall`), as far back as some view sees; and where
it is asked for, what a slice has done is given in the form of tables/effectlog.py (`image`). Both only for what is
added up, and for sets.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from timelapse.kernels.native.memory import blocks, sliding
from timelapse.kernels.native.memory.along import CountsAlong, LogAlong, PassedRows
from timelapse.kernels.native.memory.table import NativeTable
from timelapse.kernels.native.windows import BASE, HEAD, KEPT, MODERATE, USED, Sliding
from timelapse.kernels.rowlog import Earlier
from timelapse.kinds.effects import Journal
from timelapse.tables.rowhash import one_array

Ints = npt.NDArray[np.int64]

CERTAIN = 2**62
"""A difference of sums within this is what was added, not that and some 2**64."""
_FEW = 64
_LARGE = 1 << 28
"""A log of more bytes than these lies in a file, whatever the budget."""


@dataclass(frozen=True, eq=False)
class LogImage:
    """What a slice has done, from row `first` to before `used`. These rows stay as they are, and so do the keys in `slots`."""

    rows: Ints
    first: int
    used: int
    slots: Ints
    table: NativeTable

    @property
    def nbytes(self) -> int:
        """What its table takes, with the columns that it is made of."""
        return 2 * 8 * (self.table.layout.width + 2) * (self.used - self.first)

    def told(self) -> pa.Table:
        """Its rows as a table, in any thread."""
        table, width, is_set = self.table, self.table.layout.width, self.table.spec.value is None
        found: Ints = np.empty((width + 2, self.used - self.first), np.int64)
        count = int(sliding.told(self.rows, self.first, self.used, self.slots, width, is_set, found))
        ts, *keys, words = found[:, :count]
        said = {"present": pa.array(words & 1 != 0)} if is_set else {"n": pa.array(words)}
        return pa.table({"ts": pa.array(ts), **table.key_columns(keys), **said})


class NativeLog:
    """A kernels.rowlog.RowLog: what was done to a state, as far back as its longest lag. `table` has the rows it is about."""

    def __init__(
        self, table: NativeTable, views: Sliding, hidden: Mapping[int, NativeTable], *, kept: bool = False
    ) -> None:
        """`hidden`: the counters of members within a lag, by lag. `kept`: it is asked what a slice has done."""
        self.table, self._views, self.hidden, self._kept = table, views, hidden, kept
        self._begin = 0
        """The slice's first row."""
        self._images = weakref.WeakSet[LogImage]()
        """Those that somebody still has."""
        self.along = weakref.WeakSet[PassedRows]()
        """How it goes along with tables that grow."""
        self._sums = kept and table.hash.exact and table.spec.value is not None
        self._most = self._furthest if self._sums else 0.0
        """So far from 0 what keys hold was at most when the slice began, or now,"""
        self._added, self._summed = 0.0, 1
        """and so much has been added since, without signs, by the rows up to before this number."""
        self.is_hopeless = False
        """Whether sums in it may come near the end of int64."""
        self._words = sliding.LINKED if views.queued else 3
        filed = table.hash.filed
        self._filed = _LARGE if filed is None else min(filed, _LARGE)
        """A log of more bytes than these lies in a file."""
        self.rows: Ints = self.new_rows(_FEW)
        self.marks: Ints = np.zeros(HEAD + 2 * len(views.lags), np.int64)
        self.marks[BASE] = 1  # a stamp is never 0
        self.marks[HEAD + 1 :: 2] = views.lags
        table.hash.moving.append(self._moved)
        table.hash.along.append(partial(LogAlong, self, slice(1 if views.stamped else None)))
        for number, lag in enumerate(views.lags, 1):
            if lag in hidden:
                counter = hidden[lag]
                counter.hash.along.append(partial(CountsAlong, self, slice(number, number + 1), counter))

    @property
    def base(self) -> int:
        """The number of the first row that is still there."""
        return int(self.marks[BASE])

    @property
    def reached(self) -> Ints:
        """The numbers of the next row, and of those at which the cursors stand."""
        reached: Ints = np.concatenate([self.marks[[USED]], self.marks[HEAD::2]]) + self.marks[BASE]
        return reached

    @property
    def first_needed(self) -> int:
        """The first row that some view still sees, or that is asked for."""
        first = int(self.reached[1:].min(initial=self.count)) - self.base
        first = min(first, self._begin) if self._kept else first
        return min([first, *(along.first - self.base for along in self.along)])

    def begin(self) -> None:
        """A new slice begins."""
        if self.table.hash.exact:
            self._begin = int(self.marks[USED])
            self._sum()
            self._most, self._added = self._most + self._added, 0.0
        else:  # the rows of its table are gone
            self.marks[[USED, KEPT]] = self._begin = 0

    def recall(self, earlier: Earlier) -> None:
        """Take what earlier slices did, before anything else: the table has what keys hold after that."""
        table, stamped = self.table, self._views.stamped
        place, twins = table.layout.place, table.layout.twins
        lags = () if stamped else self._views.lags
        for at in range(len(lags)):
            table.slots[:, twins + at] = table.slots[:, place]
        if earlier.end is None or not earlier.tables:
            return
        rows = pa.concat_tables(earlier.tables)
        count, keys = rows.num_rows, table.key_words(rows)
        self.reserve(count)
        _find(self.rows, keys, table)
        self.marks[[USED, KEPT]] = count
        self._summed = self.count
        ts, said = (one_array(rows.column(name)) for name in ("ts", "present" if stamped else "n"))
        times = self.rows[:count, 0] = np.asarray(ts)
        words = self.rows[:count, 2] = np.asarray(said.cast(pa.int64()))
        if stamped:
            sliding.restamp(self.rows, self.marks, table.slots, twins)
        for lag in self._views.lags:
            first = int(np.searchsorted(times, earlier.end - lag, side="right"))
            self.marks[self._views.cursor(lag)] = first
            if not stamped:
                sliding.withdraw(self.rows, first, count, table.slots, twins + lags.index(lag))
            elif lag in self.hidden:
                self._count(self.hidden[lag], first)
        if not stamped and not table.spec.kind.net_window:
            size = float(np.abs(words.astype(np.float64)).sum())
            self.is_hopeless = self._furthest + size > MODERATE

    def _count(self, counter: NativeTable, first: int) -> None:
        """Count the members, by key, whose latest operation is in the log from a row on."""
        table, used = self.table, int(self.marks[USED])
        rows, width = self.rows[first:used, 1], counter.layout.width
        latest = table.slots[rows, table.layout.twins] == self.marks[BASE] + np.arange(first, used)
        members = rows[latest & (table.slots[rows, 0] & table.layout.present != 0)]
        keys = np.ascontiguousarray(table.slots[members, 1 : 1 + width])
        places: Ints = np.zeros((len(keys), 2), np.int64)
        _find(places, keys, counter)
        np.add.at(counter.slots[:, counter.layout.place], places[:, 1], 1)
        counter.slots[places[:, 1], 0] |= counter.layout.present

    def image(self) -> LogImage | None:
        """What the slice did, in the order in which it did so, still to be told: also once the next slice has begun. None where sums
        come so near the end of int64 that what was added is not known for certain."""
        first, used, table = self._begin, int(self.marks[USED]), self.table
        self._sum()
        if self._most + self._added > CERTAIN:  # of what cancels out not much may be left
            self._most = self._furthest
            if self._most + self._added > CERTAIN:
                return None
        image = LogImage(self.rows, first, used, table.slots, table)
        self._images.add(image)
        return image

    def _sum(self) -> None:
        """Take account of the rows that have come, while they are at hand."""
        if self._sums:
            until = self.count
            self._added += float(sliding.size_of(self.rows, self._summed - self.base, until - self.base))
            self._summed = until

    @property
    def _furthest(self) -> float:
        """How far what keys hold is from 0 at most."""
        return float(sliding.furthest(self.table.slots, self.table.layout.place))

    def prepare(self) -> None:
        """Have compiled, or loaded, what a slice's end and a larger table call."""
        table = self.table
        sliding.size_of(self.rows, 0, 0)
        LogImage(self.rows, 0, 0, table.slots, table).told()
        self.copy_moved(0, 0, table.slots, self.rows, 0)
        for counter in self.hidden.values():
            CountsAlong(self, slice(1), counter).written()

    def has_room(self, more: int) -> bool:
        """Whether so many operations go into it as it is."""
        return int(self.marks[USED]) + more <= len(self.rows)

    def ready(self, more: int, now: int) -> list[Ints]:
        """The arrays, with room for more operations. Before they grow what no view sees from `now` on is forgotten."""
        self._sum()
        if not self.has_room(more):
            self.advance(now)
            self.reserve(more)
        return [self.rows, self.marks]

    def reserve(self, more: int) -> None:
        """Make room for so many operations. What all cursors have passed is forgotten."""
        if self.has_room(more):
            return
        used, room, first = int(self.marks[USED]), self.room_for(more), self.first_needed
        into = self.rows if room == len(self.rows) and not self._images else self.new_rows(room)
        into[: used - first] = self.rows[first:used]
        self.take(into, self.base + first)

    def room_for(self, more: int) -> int:
        """How large an array it takes that has all rows that are needed, and so many more."""
        used, room = int(self.marks[USED]) - self.first_needed, len(self.rows)
        while used + more > room // 2:
            room *= 2
        return room

    def new_rows(self, count: int) -> Ints:
        """An array for so many rows, whatever is in it."""
        return blocks.empty(count * self._words, self._filed).reshape(count, self._words)

    def take(self, rows: Ints, first: int) -> None:
        """Have another array, which has the rows from this number on."""
        gone, self.rows = first - self.base, rows
        self.marks[[USED, KEPT]] -= gone
        self.marks[HEAD::2] -= gone
        self.marks[BASE] += gone
        self._begin -= min(gone, self._begin)

    def grow(self) -> None:
        """Make room after one event of a loop needed more than there was."""
        self.reserve(len(self.rows) + 1)  # of which none may be in use: the event was undone

    def rewind(self) -> None:
        """Take back what the event has done."""
        if self._views.stamped:
            sliding.unstamp(self.rows, self.marks, self.table.slots, self.table.layout.twins)
        self.take_back(None, int(self.marks[BASE] + self.marks[KEPT]))

    def moment(self) -> Ints:
        """What `go_back` takes to come back to now."""
        return self.marks.copy()

    def hold(self, then: Ints) -> None:
        """Keep what it takes to go back to a moment, and to later ones. For this slice alone."""
        self._kept = True
        self._begin = int(then[HEAD::2].min() + then[BASE] - self.marks[BASE])

    def go_back(self, then: Ints) -> None:
        """What was done since a moment, and passed by cursors, has not been. The table's words of values are left to others."""
        table, moved = self.table, then[BASE] - self.marks[BASE]
        used, cursors = int(then[USED] + moved), then[HEAD::2] + moved
        twins = table.layout.twins
        if self._views.stamped:
            self.marks[KEPT] = used
            sliding.unstamp(self.rows, self.marks, table.slots, twins)
        else:
            for at, (first, last) in enumerate(
                zip(cursors.tolist(), self.marks[HEAD::2].tolist(), strict=True)
            ):
                sliding.withdraw(self.rows, first, last, table.slots, twins + at)
        self.marks[[USED, KEPT]] = used
        self.marks[HEAD::2] = cursors

    def note_in(self, journal: Journal | None) -> None:
        """Before an event that runs as Python does something: the journal can take it back."""
        if journal is not None:
            journal.append((self, None, self.count))

    def take_back(self, key: Any, noted: int) -> None:
        """Take back what was done from this number on (`count`). Stamps are put back with the rows of the table."""
        noted -= int(self.marks[BASE])  # what came before may have been forgotten since
        if self._views.queued:
            table, lags = self.table, len(self._views.lags)
            sliding.take_back(self.rows, self.marks, table.slots, table.layout.twins, lags, noted)
        self.marks[USED] = noted

    @property
    def queued(self) -> bool:
        """Whether its keys have queues of values."""
        return self._views.queued

    @property
    def stamped(self) -> bool:
        """Whether only the latest operation on a key counts."""
        return self._views.stamped

    def note(self, row: int, ts: int, value: int) -> None:
        """Before a row's word becomes a value, where an event runs as Python."""
        layout = self.table.layout
        added = (value - int(self.table.slots[row, layout.place])) & (1 << 64) - 1
        self.add(row, ts, added - (1 << 64) if added >> 63 else added)

    def add(self, row: int, ts: int, n: int) -> None:
        """So much is added to a row's word, where an event runs as Python; or whether its key is there from then on."""
        self._push(row, ts, n)

    def stamp(self, row: int, ts: int, *, present: bool = True) -> None:
        """A row's latest operation is this one, of an event that runs as Python. `present`: whether it leaves its key there."""
        at = self.table.layout.twins
        self._push(row, ts, 2 * int(self.table.slots[row, at]) + present)
        self.table.slots[row, at] = self.marks[BASE] + self.marks[USED] - 1

    def offer(self, row: int, ts: int, word: int, *, largest: bool, real: bool) -> None:
        """A value is offered under a row's key, by an event that runs as Python. `largest`: of a Max."""
        self.reserve(1)
        table = self.table
        sliding.enqueue(
            self.rows, self.marks, ts, table.slots, row, table.layout.twins, len(self._views.lags), word,
            1 if largest else -1, int(real),
        )  # fmt: skip

    def empty(self, row: int, ts: int) -> None:
        """The key of a row is deleted by an event that runs as Python."""
        self.reserve(1)
        table = self.table
        sliding.empty(self.rows, self.marks, ts, table.slots, row, table.layout.twins, len(self._views.lags))

    def best(self, row: int, lag: int) -> int | None:
        """The word of the value that is first in the queue of a row's key within the lag."""
        link = int(self.table.slots[row, self._first(lag)])
        return int(self.rows[link - self.marks[BASE], sliding.WORD]) if link else None

    @property
    def count(self) -> int:
        """See RowLog."""
        return int(self.marks[BASE] + self.marks[USED])

    def place(self, width: int) -> int:
        """See RowLog."""
        return int(self.marks[BASE] + self.marks[self._views.cursor(width)])

    def first(self, row: int, lag: int) -> tuple[int, int] | None:
        """When the value was offered that is first in the queue of a row's key within the lag, and its place among operations."""
        link = int(self.table.slots[row, self._first(lag)])
        return (int(self.rows[link - self.marks[BASE], 0]), link) if link else None

    def _first(self, lag: int) -> int:
        """Where rows have the first link of a lag's queue."""
        return self.table.layout.twins + 1 + self._views.lags.index(lag)

    def _push(self, row: int, ts: int, word: int) -> None:
        self.reserve(1)
        self.rows[self.marks[USED]] = (ts, row, word)
        self.marks[USED] += 1

    def within(self, row: int, lag: int) -> bool:
        """Whether a row's key is there and its latest operation within the lag."""
        slots = self.table.slots
        layout = self.table.layout
        return bool(slots[row, 0] & layout.present) and int(slots[row, layout.twins]) >= self.place(lag)

    def value(self, row: int, lag: int, *, last: bool) -> int:
        """A row's integer as of the lag ago, or what it has changed since."""
        layout, slots = self.table.layout, self.table.slots
        before = int(slots[row, layout.twins + self._views.lags.index(lag)])
        return int(slots[row, layout.place]) - before if last else before

    def rows_within(self, lag: int) -> Ints:
        """The rows of the table of which something was done within the lag."""
        first, used = int(self.marks[self._views.cursor(lag)]), int(self.marks[USED])
        return np.unique(self.rows[first:used, 1])

    def values(self, lag: int, *, last: bool) -> tuple[Ints, list[int]]:
        """The rows whose integer was not 0 the lag ago, with it; or those that may have changed since, with by how much."""
        at, slots = self.table.layout.twins + self._views.lags.index(lag), self.table.slots
        if not last:
            rows = np.flatnonzero(slots[:, at])
            return rows, slots[rows, at].tolist()
        rows = self.rows_within(lag)
        now, before = slots[rows, self.table.layout.place].tolist(), slots[rows, at].tolist()
        return rows, [a - b for a, b in zip(now, before, strict=True)]

    def keep(self) -> None:
        """The event is through."""
        self.marks[KEPT] = self.marks[USED]

    def advance(self, now: int) -> None:
        """Bring all lags up to date, for a log event at a time."""
        table = self.table
        for index, lag in enumerate(self._views.lags):
            cursor, limit = HEAD + 2 * index, now - lag
            if limit < -(2**63):
                continue
            hidden = self.hidden.get(lag)
            given: Sequence[Any] = (self.rows, self.marks, cursor)
            if hidden is not None:
                sliding.slide_members(
                    *given, table.slots, table.layout.twins, table.layout.present, hidden.slots, hidden.mask, hidden.layout.place,
                    hidden.layout.width, limit,
                )  # fmt: skip
            elif self._views.stamped:
                sliding.skip(*given, limit)
            elif self._views.queued:
                sliding.slide_queues(*given, table.slots, self._first(lag), limit)
            else:
                sliding.slide(*given, table.slots, table.layout.twins + index, limit)

    def _moved(self, slots: Ints) -> Callable[[], None]:
        for along in self.along:
            if along.slots is slots:
                return along.take
        first, used = self.first_needed, int(self.marks[USED])
        into = self.new_rows(len(self.rows)) if self._images else self.rows
        self.copy_moved(first, used, slots, into, first)
        self.rows = into  # readers do not look at these
        return lambda: None

    def copy_moved(self, first: int, used: int, slots: Ints, into: Ints, at: int) -> None:
        """Put rows into an array, from a place on, with the places of their keys in other slots."""
        old, mask = self.table.slots, np.uint64(len(slots) - 1)
        sliding.follow(self.rows, into, at - first, first, used, old, slots, mask, self.table.layout.width)


def _find(log: Ints, keys: Ints, table: NativeTable) -> None:
    """Put into a log's first rows where a table has their keys. It gets rows for those that it does not have."""
    width = table.layout.width
    if sliding.recall(log, keys, table.slots, table.mask, width):
        table.hash.admit(np.unique(keys[log[: len(keys), 1] < 0], axis=0))
        sliding.recall(log, keys, table.slots, table.mask, width)
