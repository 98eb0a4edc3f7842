"""The rows of a state that is looked back on, during a pass that runs as Python, and windows over them.

A write appends a row to its state's log and goes into every window; a window is a cursor, W behind, at the row that
leaves it next. So an event costs its rows once in and once out, whatever a window holds, and a read costs a look-up. Rows
wait in files once there are many of them: in memory are a window's keys, the newest rows and one block per cursor.

`last(W)` of what is added up is the sum of a window's rows; of sets and values it is what the latest row of each key in the
window left. `ago(L)` of what is added up is the value now minus the sum of the last L. Other kinds: kernels/python/versions.py.
"""

from __future__ import annotations

import functools
import uuid
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from timelapse.errors import UsageError
from timelapse.ids import INT64_MAX
from timelapse.kernels.python.stores import PlainStore
from timelapse.kernels.rowlog import Earlier
from timelapse.kinds.base import ABSENT, State, StateSpec
from timelapse.kinds.effects import Journal
from timelapse.kinds.grouped import Grouped
from timelapse.kinds.mean import beyond
from timelapse.kinds.past import ReadOnly
from timelapse.model.types import TupleType
from timelapse.tables.effectlog import Rows, rows_of, rows_table
from timelapse.tables.rowhash import one_array
from timelapse.tables.table import key_list, key_names, read_table, write_table

BLOCK = 1 << 16
"""Rows that go to a file together."""

_LOW = (1 << 32) - 1

_NEVER = INT64_MAX
"""When the next row leaves a window that is empty."""


class PythonLog:
    """A kernels.rowlog.RowLog: the rows of one form of one state, and the cursors over them."""

    def __init__(self, spec: StateSpec, form: str, journal: Journal | None, folder: Path | None) -> None:
        self.spec, self.form = spec, form
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
        if len(times) >= 2 * BLOCK and times[BLOCK] < now:
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

    def recall(self, earlier: Earlier) -> None:
        """See RowLog."""
        for table in earlier.tables:
            self._blocks.append((self.base, table))
            self.base += table.num_rows
        self._begin = self.base
        for cursor in self.cursors:
            cursor.recall(earlier)

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
        for number, ts, key, value in self._log.after(first):
            self.come(ts, number, key, value)

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


class Sums(Cursor):
    """Of what is added up: each key's sum over the window."""

    def __init__(self, log: PythonLog, width: int) -> None:
        super().__init__(log, width)
        self._sums: dict[Any, int] = {}
        self._size = 0
        """The sum of all rows without their signs: where that is small no sum leaves int64."""
        self._checked = not log.spec.kind.net_window
        self._past: State | None = None
        spec = log.spec
        store = (
            ReadOnly(self._get, self._items) if self._checked else ReadOnly(self._sums.get, self._sums.items)
        )
        self.state = spec.kind(spec, store)
        self._grouped = self.state if isinstance(self.state, Grouped) else None
        """Where it has an index of what stands under a key, that has to follow."""

    def come(self, ts: int, number: int, key: Any, value: Any) -> None:
        self._add(key, value)
        if self._checked:
            self._size += abs(value)

    def _add(self, key: Any, value: Any) -> None:
        sums = self._sums
        was = sums.get(key, 0)
        found = was + value
        if found:
            sums[key] = found
            if not was and self._grouped is not None:
                self._grouped._enter(key)
        elif was:
            del sums[key]
            if self._grouped is not None:
                self._grouped._leave(key)

    def go(self, number: int, key: Any, value: Any) -> None:
        self.undo(key, value, None)

    def take_in(self, first: int) -> None:
        """Added up by key before they are looked at."""
        spec, sums = self._log.spec, self._sums
        for _, table in self._log.tables(first):
            n = np.asarray(one_array(table.column("n")))
            names = key_names(spec)
            halves = table.select(names).append_column("high", pa.array(n >> 32))
            halves = halves.append_column("low", pa.array(n & _LOW))
            found = halves.group_by(names).aggregate([("high", "sum"), ("low", "sum")])
            high, low = (one_array(found.column(name)).to_pylist() for name in ("high_sum", "low_sum"))
            for key, h, w in zip(key_list(spec, found), high, low, strict=True):
                total = sums.get(key, 0) + (h << 32) + w
                if total:
                    sums[key] = total
                else:
                    sums.pop(key, None)
            if self._checked:
                size = np.where(n < 0, ~n, n)  # of the smallest integer there is no opposite
                self._size += int((size >> 32).sum() << 32) + int((size & _LOW).sum()) + int((n < 0).sum())

    def undo(self, key: Any, value: Any, before: Any) -> None:
        self._add(key, -value)
        if self._checked:
            self._size -= abs(value)

    def _get(self, key: Any, default: Any) -> Any:
        if self._size > INT64_MAX:
            self._check(key[:-1])
        return self._sums.get(key, default)

    def _items(self) -> Any:
        if self._size > INT64_MAX:
            self._check(None)
        return self._sums.items()

    def _check(self, under: Any) -> None:
        """Raise IntRange where adding the window of a Mean up from nothing leaves int64 on the way: under one key, or any."""
        totals: dict[Any, int] = {}
        for _, _, key, n in self._log.after(self.place):
            if under is None or key[:-1] == under:
                total = totals[key] = totals.get(key, 0) + n
                if not -INT64_MAX - 1 <= total <= INT64_MAX:
                    outer = self._log.spec.outer
                    declared = key[:-1] if isinstance(outer, TupleType) else key[0]
                    raise beyond(self._log.spec.name, declared, key[-1], total)

    def past(self, now: Any) -> State:
        """The state as it was `width` ago, from the one now: always the same object."""
        if self._past is not None:
            if isinstance(self._past, Grouped):
                self._past._own.clear()  # its index, if it made one, is of another time
            return self._past
        spec, sums = self._log.spec, self._sums

        def get(key: Any, default: Any) -> Any:
            value = now._get(key, 0) - sums.get(key, 0)
            return value if value else default

        def items() -> list[tuple[Any, int]]:
            found = dict(now._items())
            for key, n in sums.items():
                found[key] = found.get(key, 0) - n
            return [(key, n) for key, n in found.items() if n]

        self._past = spec.kind(spec, ReadOnly(get, items))
        return self._past


class Latest(Cursor):
    """Of sets and values: what the latest row of each key in the window left."""

    def __init__(self, log: PythonLog, width: int) -> None:
        super().__init__(log, width)
        self._values: dict[Any, Any] = {}
        self._number: dict[Any, int] = {}
        """The number of each key's latest row."""
        kind: Any = log.spec.kind
        self.state = read_only(kind)(log.spec, PlainStore(self._values))
        self._put, self._drop = self.state._put, self.state._drop

    def come(self, ts: int, number: int, key: Any, value: Any) -> Any:
        before = (self._number.get(key, -1), self._values.get(key, ABSENT))
        self._number[key] = number
        self._leave(key, value)
        return before

    def take_in(self, first: int) -> None:
        """Of each key only the latest row counts, which is looked for before rows are looked at."""
        spec = self._log.spec
        names = key_names(spec)
        for number, table in self._log.tables(first):
            places = table.select(names).append_column("at", pa.array(np.arange(table.num_rows)))
            latest = one_array(places.group_by(names).aggregate([("at", "max")]).column("at_max"))
            rows = rows_of(spec, table.take(latest))
            for at, ts, key, value in zip(latest.to_pylist(), *rows, strict=True):
                self.come(ts, number + at, key, value)

    def go(self, number: int, key: Any, value: Any) -> None:
        if self._number[key] == number:
            del self._number[key]
            self._leave(key, ABSENT)

    def undo(self, key: Any, value: Any, before: Any) -> None:
        number, stood = before
        if number >= self.place:
            self._number[key] = number
            self._leave(key, stood)
        else:
            del self._number[key]
            self._leave(key, ABSENT)

    def _leave(self, key: Any, value: Any) -> None:
        if value is not ABSENT:
            self._put(key, value)
        elif key in self._values:
            self._drop(key)


@functools.cache
def read_only(kind: Any) -> Any:
    """The kind without its writes."""
    special = {"setitem": "__setitem__", "delitem": "__delitem__"}

    def refused(self: Any, *arguments: Any, **named: Any) -> None:
        raise UsageError(
            "a view of the past is only read", hint="write to the state itself, without last(), ago()",
            code="TL207",
        )  # fmt: skip

    writes = [special.get(name, name) for name, op in kind.ops.items() if op.effect is not None]
    found = {name: refused for name in writes if hasattr(kind, name)}
    return type(kind)(kind.__name__, (kind,), {"__slots__": (), **found})
