"""Windows of kinds that are not added up: what keys held as of a time, and what operations make of nothing.

`Versions` has each key's rows of the last `width` microseconds and what stood before the first of them. Where no row of a
key is that new, it holds what it holds now. `Folds` has each key's operations in the window, and does them again where
somebody asks. Both are as large as the rows that some view can still see: older ones leave as time goes on.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable
from typing import Any

from timelapse.kernels.python.rowlog import Cursor, PythonLog
from timelapse.kernels.rowlog import Earlier
from timelapse.kinds.base import ABSENT, State
from timelapse.kinds.past import ReadOnly, rebuilding
from timelapse.tables.effectlog import NET

_UNKNOWN: Any = object()
"""What stood before the first row that a slice found when it began: to be looked up."""


class _Line:
    """One key's rows: when, and what they left (of integers: what they add up to)."""

    __slots__ = ("base", "start", "times", "values")

    def __init__(self, base: Any) -> None:
        self.base = base
        """What stood before the first."""
        self.start = 0
        """The first that has not left."""
        self.times: list[int] = []
        self.values: list[Any] = []


class Versions(Cursor):
    """What each key held at any time in the last `width` microseconds."""

    keeps_rows = True

    stood: Callable[[Any], Any] | None = None
    """What a key held before all rows: see Earlier."""

    def __init__(self, log: PythonLog, width: int) -> None:
        super().__init__(log, width)
        self._net = log.form == NET
        self._lines: dict[Any, _Line] = log.table()
        self._filling = False

    def fill(self, skip: int = 0) -> None:
        self._filling = True
        super().fill(skip)
        self._filling = False

    def recall(self, earlier: Earlier) -> None:
        self.stood = earlier.stood
        self.fill(earlier.skip)

    def come(self, ts: int, number: int, key: Any, value: Any) -> None:
        line = self._lines.get(key)
        if line is None:
            base = 0 if self._net else _UNKNOWN if self._filling else self._log.old
            line = self._lines[key] = _Line(base)
        line.times.append(ts)
        if self._net:
            value += line.values[-1] if line.values else line.base
        line.values.append(value)

    def go(self, number: int, key: Any, value: Any) -> None:
        line = self._lines[key]
        line.base = line.values[line.start]
        line.start += 1
        if line.start == len(line.times):
            del self._lines[key]
        elif line.start > 32 and 2 * line.start > len(line.times):
            del line.times[: line.start], line.values[: line.start]
            line.start = 0

    def undo(self, key: Any, value: Any, before: Any) -> None:
        line = self._lines[key]
        line.times.pop()
        line.values.pop()
        if line.start == len(line.times):
            del self._lines[key]

    def before_first(self, key: Any) -> Any:
        """What a key held before the first row that is there, or ABSENT."""
        line = self._lines.get(key)
        if line is None or line.base is _UNKNOWN:
            return ABSENT if self.stood is None else self.stood(key)
        return line.base

    def _as_of(self, now: State, key: Any, at: int, before: bool) -> Any:
        """What a key held after everything at a time, or before it; ABSENT: nothing."""
        line = self._lines.get(key)
        if line is None:
            return now._get(key, ABSENT)
        place = (bisect_left if before else bisect_right)(line.times, at, line.start)
        if place == len(line.times):
            return now._get(key, ABSENT)
        if self._net:
            held = line.values[place - 1] if place > line.start else line.base
            return (now._get(key, 0) - (line.values[-1] - held)) or ABSENT
        return line.values[place - 1] if place > line.start else self.before_first(key)

    def view(self, now: State, at: Callable[[], int], before: Callable[[], bool]) -> State:
        """The state as it was at a time, from the one now."""
        spec = self._log.spec

        def get(key: Any, default: Any) -> Any:
            found = self._as_of(now, key, at(), before())
            return default if found is ABSENT else found

        def items() -> list[tuple[Any, Any]]:
            found = {key: value for key, value in now._items() if key not in self._lines}
            for key in self._lines:
                value = self._as_of(now, key, at(), before())
                if value is not ABSENT:
                    found[key] = value
            return list(found.items())

        state = spec.kind(spec, ReadOnly(get, items))
        state._now = at
        return state


class Folds(Cursor):
    """What the operations in the window make of nothing."""

    keeps_rows = True

    def __init__(self, log: PythonLog, width: int) -> None:
        super().__init__(log, width)
        self._done: dict[Any, deque[Any]] = log.table()
        done = self._done
        self.state = rebuilding(
            log.spec, lambda key: done.get(key, ()), lambda: list(done), lambda: self._log.live["now"]
        )

    def come(self, ts: int, number: int, key: Any, value: Any) -> None:
        self._done.setdefault(key, deque()).append(value)

    def go(self, number: int, key: Any, value: Any) -> None:
        self._end(key, deque.popleft)

    def undo(self, key: Any, value: Any, before: Any) -> None:
        self._end(key, deque.pop)

    def _end(self, key: Any, take: Callable[[deque[Any]], Any]) -> None:
        done = self._done[key]
        take(done)
        if not done:
            del self._done[key]
