"""Windows of what is added up, and of sets and values: cursors over the rows of a state (rowlog.py)."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pyarrow as pa

from timelapse.errors import UsageError
from timelapse.ids import INT64_MAX
from timelapse.kernels.python.rowlog import Cursor, PythonLog
from timelapse.kernels.python.stores import PlainStore
from timelapse.kinds.base import ABSENT, State
from timelapse.kinds.grouped import Grouped
from timelapse.kinds.past import ReadOnly
from timelapse.tables.effectlog import rows_of
from timelapse.tables.rowhash import one_array
from timelapse.tables.table import key_list, key_names

_LOW = (1 << 32) - 1


class Sums(Cursor):
    """Of what is added up: each key's sum over the window."""

    def __init__(self, log: PythonLog, width: int) -> None:
        super().__init__(log, width)
        self._sums: dict[Any, int] = log.table()
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

    def move(self, log: PythonLog) -> None:
        super().move(log)
        self._past = None  # it is of a state of the other pass

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
            self._log.relieve(0)

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
        """Raise IntRange where adding the window up from nothing leaves int64 on the way: under one key, or any."""
        totals: dict[Any, int] = {}
        for _, _, key, n in self._log.after(self.place):
            if under is None or key[:-1] == under:
                total = totals[key] = totals.get(key, 0) + n
                if not -INT64_MAX - 1 <= total <= INT64_MAX:
                    raise self._log.spec.kind.beyond(self._log.spec, key, total)

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
        self._values: dict[Any, Any] = log.table()
        self._number: dict[Any, int] = log.table()
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
            self._log.relieve(0)

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
