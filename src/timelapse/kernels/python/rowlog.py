"""The rows of a state that is looked back on, during a pass that runs as Python, and windows over them.

A write appends a row to its state's log and goes into every window; a window is a cursor, W behind, at the row that
leaves it next. So an event costs its rows once in and once out, whatever a window holds, and a read costs a look-up. Rows
wait in files once there are many of them: in memory are a window's keys, the newest rows and one block per cursor.

`last(W)` of what is added up is the sum of a window's rows; of sets and values it is what the latest row of each key in the
window left. `ago(L)` of what is added up is the value now minus the sum of the last L. Code of both: kernels/python/latest.py; other kinds: kernels/python/versions.py.
"""

from __future__ import annotations

import uuid
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from timelapse.ids import INT64_MAX
from timelapse.kernels.rowlog import Earlier
from timelapse.kinds.base import ABSENT, StateSpec
from timelapse.kinds.effects import Journal
from timelapse.tables.effectlog import Rows, rows_of, rows_table
from timelapse.tables.rowhash import one_array
from timelapse.tables.shelf import Shelf
from timelapse.tables.table import read_table, write_table

BLOCK = 1 << 16
"""Rows that go to a file together,"""
_LEAST = 2048
"""or fewer, where all that are in memory would take more than"""
_PART = 2
"""this part of what is meant for states."""
ROW_BYTES = 200
"""What a row takes, roughly."""

_NEVER = INT64_MAX
"""When the next row leaves a window that is empty."""


def block_rows(room: int, logs: int, cursors: int) -> int:
    """Rows of a block: each log has two of new rows in memory, and each cursor one. `room`: bytes that are meant for states."""
    return max(_LEAST, min(BLOCK, room // (_PART * ROW_BYTES * max(1, 2 * logs + cursors))))


class PythonLog:
    """A kernels.rowlog.RowLog: the rows of one form of one state, and the cursors over them."""

    def __init__(
        self,
        spec: StateSpec,
        form: str,
        journal: Journal | None,
        folder: Path | None,
        shelf: Shelf | None = None,
    ) -> None:
        """`shelf`: where cursors keep what they have by key, so that it can be put away (None: in memory)."""
        self.spec, self.form, self.shelf = spec, form, shelf
        self.size = BLOCK
        """Rows of a block."""
        self.cursors: list[Cursor] = []
        self.live: Mapping[str, Any] = {"now": 0}
        """Where the pass keeps the time of the step."""
        self.old: Any = ABSENT
        """What stood under the key that is being written, where a window asks for it."""
        self._journal = journal
        self._folder = folder
        self._blocks: list[tuple[int, pa.Table]] = []
        """Older rows: the number of the first, and a table."""
        self.tail: Rows = ([], [], [])
        self.base = 0
        """The number of the tail's first row."""
        self._begin = 0
        """The number of the slice's first row."""
        self.asked = True
        """Whether anybody asks for the slice's rows."""
        self._is_filling = False
        self._put = 0
        """So many rows there were when what cursors have by key was put away."""

    @property
    def count(self) -> int:
        """How many rows there have been."""
        return self.base + len(self.tail[0])

    def told(self, key: Any, value: Any) -> None:
        """Something was done to a stored key: see effectlog.py for `value`."""
        now = self.live["now"]
        times, keys, values = self.tail
        number = self.base + len(times)
        times.append(now)
        keys.append(key)
        values.append(value)
        if self._journal is None:
            for cursor in self.cursors:
                cursor.enter(now, number, key, value)
        else:
            before = [cursor.enter(now, number, key, value) for cursor in self.cursors]
            self._journal.append((self, key, (value, before)))
        if len(times) >= 2 * self.size and times[self.size] < now:
            self._seal(now)

    def take_back(self, key: Any, noted: tuple[Any, list[Any]]) -> None:
        """The latest row was not written after all."""
        for column in self.tail:
            column.pop()
        number, (value, entered) = self.count, noted
        for cursor, before in zip(self.cursors, entered, strict=False):
            cursor.take_back(number, key, value, before)
        for cursor in self.cursors[len(entered) :]:  # made meanwhile: to be made again
            cursor.alive = False
        del self.cursors[len(entered) :]

    def _seal(self, now: int) -> None:
        """Put the oldest rows of the tail away: none that may be taken back, which are of this time."""
        size = next(i for i in range(len(self.tail[0]) - 1, -1, -1) if self.tail[0][i] < now) + 1
        old = self.tail
        self.tail = (old[0][size:], old[1][size:], old[2][size:])
        for column in old:
            del column[size:]
        self._blocks.append((self.base, self._put_away(rows_table(self.spec, old, self.form))))
        for cursor in self.cursors:
            cursor.tail_moved(self.base, size)
        self.base += size
        self.advance(now - 1)
        if not self.asked:
            self._forget()

    def _forget(self) -> int:
        """Forget the rows that every cursor has passed. Gives the number of the first that one has not."""
        needed = min((cursor.place for cursor in self.cursors), default=self.count)
        self._blocks = [b for b in self._blocks if b[0] + b[1].num_rows > needed]
        return needed

    def _put_away(self, table: pa.Table) -> pa.Table:
        if self._folder is None:
            return table
        path = self._folder / f"{uuid.uuid4().hex}.arrow"
        write_table(table, path)
        found = read_table(path)
        path.unlink()  # what is mapped stays readable
        return found

    def table(self) -> dict[Any, Any]:
        """A dict for what a cursor has by key."""
        return {} if self.shelf is None else self.shelf.dict()

    @property
    def nbytes(self) -> int:
        """What cursors keep of the rows that came since the shelf was filled, beside their keys, roughly."""
        return (self.count - self._put) * sum(ROW_BYTES for cursor in self.cursors if cursor.keeps_rows)

    def put_away(self) -> None:
        """What cursors have by key is on the shelf."""
        self._put = self.count

    def relieve(self, rows: int) -> bool:
        """Where cursors are filled before a pass begins, and `rows` were kept since that was last done: put them away if they outgrow their memory."""
        shelf = self.shelf if self._is_filling else None
        return shelf is not None and shelf.nbytes + ROW_BYTES * rows > shelf.room and shelf.put_away()

    def go_on(self, other: PythonLog) -> None:
        """Take over what a log of the same state, which is of no use afterwards, has: rows, cursors and what these have by key."""
        self._blocks, self.tail, self.base, self._begin = other._blocks, other.tail, other.base, other.count
        self.cursors, self.shelf, self._put = other.cursors, other.shelf, other._put
        for cursor in self.cursors:
            cursor.move(self)

    def recall(self, earlier: Earlier) -> None:
        """See RowLog."""
        for table in earlier.tables:
            for first in range(0, table.num_rows, self.size):
                piece = table.slice(first, self.size)
                self._blocks.append((self.base, piece))
                self.base += piece.num_rows
        self._begin = self._put = self.base
        self._is_filling = True
        for cursor in self.cursors:
            cursor.recall(earlier)
        self._is_filling = False

    def place(self, width: int) -> int:
        """See RowLog."""
        return next(cursor.place for cursor in self.cursors if cursor.width == width)

    def advance(self, now: int) -> None:
        """See RowLog."""
        for cursor in self.cursors:
            cursor.leave(now - cursor.width)

    def block(self, number: int) -> tuple[int, Rows]:
        """The rows that lie together with a row, and the number of their first."""
        if number >= self.base:
            return self.base, self.tail
        first, table = self._blocks[bisect_right(self._blocks, number, key=lambda b: b[0]) - 1]
        return first, rows_of(self.spec, table)

    @property
    def first(self) -> int:
        """The number of the oldest row that is there."""
        return self._blocks[0][0] if self._blocks else self.base

    def after(self, number: int) -> Iterator[tuple[int, int, Any, Any]]:
        """The rows from one on: number, time, key, and what it says."""
        while number < self.count:
            first, (times, keys, values) = self.block(number)
            for at in range(number - first, len(keys)):
                yield first + at, times[at], keys[at], values[at]
            number = first + len(keys)

    def number_after(self, ts: int) -> int:
        """The number of the first row that is later than a time."""
        for first, table in self._blocks:
            times = np.asarray(one_array(table.column("ts")))
            if len(times) and times[-1] > ts:
                return first + int(np.searchsorted(times, ts, side="right"))
        return self.base + bisect_right(self.tail[0], ts)

    def tables(self, number: int) -> Iterator[tuple[int, pa.Table]]:
        """The rows from one on, in tables, each with the number of its first."""
        for first, table in self._blocks:
            if first + table.num_rows > number:
                skip = max(0, number - first)
                yield first + skip, table.slice(skip)
        if self.tail[0]:
            skip = max(0, number - self.base)
            rows = tuple(column[skip:] for column in self.tail)
            yield self.base + skip, rows_table(self.spec, rows, self.form)  # type: ignore[arg-type]

    def table_of_rows(self) -> pa.Table:
        """The rows of the slice."""
        found = [
            table.slice(max(0, self._begin - first))
            for first, table in self._blocks
            if first + table.num_rows > self._begin
        ]
        skip = max(0, self._begin - self.base)
        tail = (self.tail[0][skip:], self.tail[1][skip:], self.tail[2][skip:])
        return pa.concat_tables([*found, rows_table(self.spec, tail, self.form)])

    def begin(self) -> None:
        """A new slice begins: rows that every cursor has passed are forgotten."""
        self._begin = self.count
        needed = self._forget()
        if needed >= self.count:
            self.base, self.tail = self.count, ([], [], [])
            for cursor in self.cursors:
                cursor.at_end()

    def kept(self) -> list[pa.Table]:
        """All rows that are still there."""
        return [*(table for _, table in self._blocks), rows_table(self.spec, self.tail, self.form)]


class Cursor:
    """Goes through a log `width` microseconds behind. What the rows come to that it has not passed is the subclass's business."""

    state: Any
    """What `last` gives."""
    alive = True
    what = ""
    """What asks for it: see Windows."""
    keeps_rows = False
    """Whether what it has by key grows with each row."""

    def __init__(self, log: PythonLog, width: int) -> None:
        self.width = width
        self._log = log
        self._first, self._rows = log.base, log.tail
        self._at = len(log.tail[0])
        self._due = _NEVER

    @property
    def place(self) -> int:
        """The number of the row that leaves next."""
        return self._first + self._at

    def move(self, log: PythonLog) -> None:
        """It is a cursor of another log, which has the same rows."""
        self._log = log

    def fill(self, skip: int = 0) -> None:
        """Take in all rows that there are but the first few; the first use then has the old ones leave."""
        log = self._log
        first = min(log.first + skip, log.count)
        self._first, self._rows = log.block(first)
        self._at = first - self._first
        self.take_in(first)
        self._set_due()

    def recall(self, earlier: Earlier) -> None:
        """The log has got the rows of earlier slices."""
        log = self._log
        behind = 0 if earlier.end is None else log.number_after(earlier.end - self.width)
        self.fill(max(0, behind - log.first))

    def take_in(self, first: int) -> None:
        """Take in the rows from a number on."""
        log, size, since = self._log, self._log.size, first
        for number, ts, key, value in log.after(first):
            self.come(ts, number, key, value)
            if (number - first) % size == 0 and log.relieve(number - since if self.keeps_rows else 0):
                since = number

    def enter(self, now: int, number: int, key: Any, value: Any) -> Any:
        """A row is written. Gives what `take_back` needs."""
        if self._due == _NEVER:
            self._first, self._rows = self._log.base, self._log.tail
            self._at = number - self._first
            self._due = now
        return self.come(now, number, key, value)

    def take_back(self, number: int, key: Any, value: Any, before: Any) -> None:
        """The latest row goes again."""
        self.undo(key, value, before)
        if self.place >= number:
            self._due = _NEVER

    def tail_moved(self, base: int, size: int) -> None:
        """The log has put away the first `size` rows of its tail, which began at `base`."""
        if self._first == base and self._at >= size:
            self._first, self._rows = base + size, self._log.tail
            self._at -= size

    def at_end(self) -> None:
        """All rows were forgotten, and none is in the window."""
        self._first, self._rows, self._at = self._log.base, self._log.tail, 0

    def leave(self, limit: int) -> None:
        """Rows up to and including a time leave the window. Times do not go back."""
        while self._due <= limit:
            times, keys, values = self._rows
            at, end, first = self._at, len(times), self._first
            while at < end and times[at] <= limit:
                self.go(first + at, keys[at], values[at])
                at += 1
            self._at = at
            self._set_due()

    def _set_due(self) -> None:
        while self._at >= len(self._rows[0]):
            number = self.place
            if number >= self._log.count:
                self._due = _NEVER
                return
            self._first, self._rows = self._log.block(number)
            self._at = number - self._first
        self._due = self._rows[0][self._at]

    def come(self, ts: int, number: int, key: Any, value: Any) -> Any:
        """A row is in the window."""
        raise TypeError("abstract")

    def go(self, number: int, key: Any, value: Any) -> None:
        """The oldest row leaves."""
        raise TypeError("abstract")

    def undo(self, key: Any, value: Any, before: Any) -> None:
        """The latest row goes; `before` is what `come` gave."""
        raise TypeError("abstract")
