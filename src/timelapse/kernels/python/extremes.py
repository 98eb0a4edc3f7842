"""Windows of Max, Min and First: what may yet be the result, for each key.

A value that a later one beats is never a window's result again, as it leaves before that one. So each key has a queue of those
that no later one has beaten; its first is the result. An operation goes in once and out once, however often somebody asks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from timelapse.kernels.python.latest import read_only
from timelapse.kernels.python.rowlog import Cursor, PythonLog
from timelapse.kernels.python.stores import PlainStore
from timelapse.kinds.past import ReadOnly

QUEUED = ("best", "first")
"""Which windows these are (State.window_form)."""

_Queue = deque[tuple[int, Any]]
"""Numbers of rows, and the values that they offered."""


def _never(new: Any, old: Any) -> bool:
    return False


class Extremes(Cursor):
    """What the operations in the window make of nothing, for these kinds."""

    keeps_rows = True

    def __init__(self, log: PythonLog, width: int) -> None:
        super().__init__(log, width)
        kind: Any = log.spec.kind
        self._queues: dict[Any, _Queue] = log.table()
        self._made: dict[Any, Any] = {}
        self._alone = kind(log.spec, PlainStore(self._made))
        """A state in which an operation is done by itself: that checks and converts what it was given."""
        self._beats: Callable[[Any, Any], bool] = getattr(kind, "_beats", _never)
        self.state = read_only(kind)(log.spec, ReadOnly(self._get, self._items))

    def come(self, ts: int, number: int, key: Any, value: Any) -> list[tuple[int, Any]]:
        """Gives what leaves the queue for it, latest first."""
        _, (method, arguments, named) = value
        self._made.clear()
        getattr(self._alone, method)(*arguments, **named)
        if not self._made:  # the key was deleted: nothing before that counts
            return list(reversed(self._queues.pop(key, ())))
        (new,) = self._made.values()
        queue = self._queues.get(key)
        if queue is None:
            queue = self._queues[key] = deque()
        beaten = []
        while queue and self._beats(new, queue[-1][1]):
            beaten.append(queue.pop())
        queue.append((number, new))
        return beaten

    def go(self, number: int, key: Any, value: Any) -> None:
        queue = self._queues.get(key)
        if queue is not None and queue[0][0] == number:
            queue.popleft()
            if not queue:
                del self._queues[key]

    def undo(self, key: Any, value: Any, before: Any) -> None:
        queue = self._queues.pop(key, None)
        if queue is None:  # it was a deletion
            queue = deque()
        else:
            queue.pop()
        queue.extend(row for row in reversed(before) if row[0] >= self.place)
        if queue:
            self._queues[key] = queue

    def _get(self, key: Any, default: Any) -> Any:
        queue = self._queues.get(key)
        return default if queue is None else queue[0][1]

    def _items(self) -> list[tuple[Any, Any]]:
        return [(key, queue[0][1]) for key, queue in self._queues.items()]
