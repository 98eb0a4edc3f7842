"""States with views where an event of a compiled pass runs as Python: on the same tables, logs and counters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from timelapse.errors import UsageError
from timelapse.ids import INT64_MAX, INT64_MIN
from timelapse.kernels.native.memory.effectlog import NativeLog
from timelapse.kernels.native.memory.table import NativeTable
from timelapse.kernels.native.views import Foreign, NativeStore, count, live_state
from timelapse.kernels.native.windows import MODERATE
from timelapse.kernels.python.stores import PlainStore
from timelapse.kinds.base import ABSENT, State, StateSpec
from timelapse.kinds.effects import Journal
from timelapse.kinds.past import Members, Operation, ReadOnly, recording
from timelapse.model.types import FLOAT


class _Noting(NativeStore):
    """An exact state with views: every write goes to its log."""

    __slots__ = ("_counters", "_journal", "_log", "_now")

    def __init__(
        self, table: NativeTable, journal: Journal | None, log: NativeLog, counters: Mapping[int, NativeTable],
        now: Callable[[], int],
    ) -> None:  # fmt: skip
        super().__init__(table, journal)
        self._journal, self._log, self._now = journal, log, now
        self._counters = {lag: NativeStore(t, journal) for lag, t in counters.items()}

    def put(self, key: Any, value: Any) -> None:
        row = self._claim(key)
        self._log.note_in(self._journal)
        if self._log.stamped:
            self._count(key, row, 1)
            self._log.stamp(row, self._now())
        else:
            if self._table.spec.kind.parts and abs(value) > MODERATE:
                raise Foreign
            self._log.note(row, self._now(), value)
        super().put(key, value)

    def drop(self, key: Any) -> None:
        row = self._table.find(key)
        if row >= 0 and self._table.slots[row, 0] & self._table.layout.present:
            self._claim(key)
            self._log.note_in(self._journal)
            if self._log.stamped:
                self._count(key, row, -1)
            else:
                self._log.note(row, self._now(), 0)
            super().drop(key)
        if self._table.spec.value is None:
            row = self._claim(key)
            self._log.note_in(self._journal)
            self._log.stamp(row, self._now(), present=False)

    def _count(self, key: Any, row: int, step: int) -> None:
        """Before an element comes (1) or goes (-1): the counts of the windows in which that changes something."""
        for lag, store in self._counters.items():
            if self._log.within(row, lag) is (step < 0):
                count(store, self._table.spec, key, step)


class _Added:
    """Tells the log of a state that the pass does not know what is added."""

    def __init__(
        self, table: NativeTable, journal: Journal | None, log: NativeLog, now: Callable[[], int]
    ) -> None:
        self._table, self._journal, self._log, self._now = table, journal, log, now

    def __call__(self, key: Any, n: Any) -> None:
        """So much was added under a stored key; or it was put in, or taken out."""
        n = 0 if n is ABSENT else int(n)
        if not INT64_MIN <= n <= INT64_MAX:
            raise Foreign
        self._log.note_in(self._journal)
        self._log.add(self._table.claim(key), self._now(), n)


class _Offers:
    """Tells the log of a Max or Min of all that is offered, also what does not change the state."""

    def __init__(
        self, table: NativeTable, journal: Journal | None, log: NativeLog, now: Callable[[], int]
    ) -> None:
        self.store = NativeStore(table, journal)
        self._table, self._journal, self._log, self._now = table, journal, log, now
        self._made: dict[Any, Any] = {}
        self._alone: Any = table.spec.kind(table.spec, PlainStore(self._made))

    def told(self, key: Any, operation: Operation) -> None:
        """An operation was done."""
        method, arguments, named = operation
        self._made.clear()
        getattr(self._alone, method)(*arguments, **named)
        if not self._made and self._table.find(key) < 0:
            return
        row = self.store._claim(key)
        self._log.note_in(self._journal)
        if not self._made:
            self._log.empty(row, self._now())
            return
        (value,) = self._made.values()
        (word,) = self._table.encode(value)
        real = self._table.layout.stored == FLOAT
        self._log.offer(row, self._now(), word, largest=self._alone._beats(1, 0), real=real)


class Views:
    """What states ask for (kinds.base.Clock), where events of a compiled pass run as Python."""

    def __init__(self, tables: Mapping[str, NativeTable], logs: Mapping[str, NativeLog]) -> None:
        self._tables, self._logs = tables, logs
        self._at = 0

    def begin(self, ts: int, *, tick: bool = False) -> None:
        """A step begins: every view comes up to its time. A tick sees W back what stood before."""
        self._at = ts
        for log in self._logs.values():
            log.advance(ts - tick)

    def live(self, name: str, journal: Journal | None) -> Any:
        """A state with views, as handlers use it; or its delta, where the pass does not know it."""
        table, log = self._tables[name], self._logs[name]
        if not table.hash.exact:
            delta = live_state(table, journal)
            delta.told = _Added(table, journal, log, self.now)
            return delta
        state: State
        if log.queued:
            offers = _Offers(table, journal, log, self.now)
            state = recording(table.spec, offers.store, offers.told)
        else:
            state = table.spec.kind(table.spec, _Noting(table, journal, log, log.hidden, self.now))
        state._clock = self
        return state

    def now(self) -> int:
        """The time of the event."""
        return self._at

    def offers(self, name: str) -> int:
        """How many operations there have been on a Max or Min, one more than that."""
        return self._logs[name].count

    def shown(self, name: str, width: int, key: Any) -> tuple[int, int] | None:
        """Of a window over a Max or Min the time and the place, among all operations, of what offered the value it shows."""
        row = self._tables[name].find(key)
        return None if row < 0 else self._logs[name].first(row, width)

    def ago(self, state: State, lag: int) -> Any:
        """The state as of a lag ago."""
        return self._summed(state._spec, lag, last=False)

    def last(self, state: State, width: int) -> Any:
        """What happened to the state within the width."""
        log = self._logs[state._spec.name]
        if log.queued:
            return self._best(state._spec, width)
        if not log.stamped:
            return self._summed(state._spec, width, last=True)
        table = self._tables[state._spec.name]

        def get(key: Any, default: Any) -> Any:
            row = table.find(key)
            return table.value(row, table.layout.place) if row >= 0 and log.within(row, width) else default

        def items() -> list[tuple[Any, Any]]:
            rows = [row for row in log.rows_within(width).tolist() if log.within(row, width)]
            place = table.layout.place
            return [(key, table.value(row, place)) for key, row in zip(table.keys(rows), rows, strict=True)]

        view: Any = state._spec.kind(state._spec, ReadOnly(get, items))
        if state._spec.outer is None or state._spec.value is not None:  # not members under a key
            return view
        counted = log.hidden.get(width)
        if counted is None:  # no handler puts anything in
            return Members(view, lambda key: 0)
        counts = NativeStore(counted, None)
        return Members(view, lambda key: counts.get(key, 0))

    def _best(self, spec: StateSpec, lag: int) -> State:
        table, log = self._tables[spec.name], self._logs[spec.name]

        def get(key: Any, default: Any) -> Any:
            row = table.find(key)
            word = None if row < 0 else log.best(row, lag)
            return default if word is None else table.decoded([word])

        def items() -> list[tuple[Any, Any]]:
            rows = [row for row in log.rows_within(lag).tolist() if log.best(row, lag) is not None]
            return [(key, get(key, None)) for key in table.keys(rows)]

        return spec.kind(spec, ReadOnly(get, items))

    def _summed(self, spec: StateSpec, lag: int, *, last: bool) -> State:
        table, log = self._tables[spec.name], self._logs[spec.name]

        def get(key: Any, default: Any) -> Any:
            row = table.find(key)
            return default if row < 0 else log.value(row, lag, last=last) or default

        def items() -> list[tuple[Any, int]]:
            rows, values = log.values(lag, last=last)
            return [(key, n) for key, n in zip(table.keys(rows), values, strict=True) if n]

        return spec.kind(spec, ReadOnly(get, items))

    def dated(self, state: State, at: int, method: str, arguments: tuple[Any, ...]) -> None:
        """No program with dated writes is compiled."""
        raise UsageError(f"{state._spec.name}.{method} is dated, which was not found", code="TL207")

    def at(self, state: State, at: int) -> Any:
        """No program that reads the past at any distance is compiled."""
        raise UsageError(f"{state._spec.name} is read in the past, which was not found", code="TL207")
