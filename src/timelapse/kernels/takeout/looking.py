"""What looking back sees at each step that is kept: the versions of keys, and the operations done on them."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable
from typing import Any

from timelapse.kernels.takeout.cells import Cells, Index
from timelapse.kinds.base import ABSENT
from timelapse.kinds.past import Done, History, Operation

Reading = Callable[[Index, Any], None]
"""Takes what a step reads: as who reads it is noted, and which key."""


class CellHistory(History):
    """The versions that the cells of a state have, as the step of a number sees them."""

    def __init__(self, keep: int, cells: Cells, number: Callable[[], int], read: Reading) -> None:
        super().__init__(keep)
        self._cells, self._number, self._read = cells, number, read

    def add(self, ts: int, key: Any, value: Any) -> None:
        """The cells have it."""

    def get(self, key: Any, default: Any, at: int, *, before: bool = False) -> Any:
        self._read(self._cells.back, key)
        value = self._cells.at(key, self._number(), at, before)
        return default if value is ABSENT else value

    def keys(self) -> Iterable[Any]:
        self._read(self._cells.wide, None)
        return self._cells.known()


class Told:
    """The operations done on a key: in which step, when, what."""

    __slots__ = ("done", "key", "numbers", "operations", "times")

    def __init__(self, operations: Operations, key: Any) -> None:
        self.operations, self.key = operations, key
        self.numbers, self.times, self.done = list[int](), list[int](), list[Operation]()

    def of(self, number: int) -> list[Operation]:
        """Those of a step."""
        return self.done[bisect_left(self.numbers, number) : bisect_right(self.numbers, number)]

    def put(self, number: int, ts: int, done: list[Operation]) -> None:
        """Have a step have done these."""
        first, last = bisect_left(self.numbers, number), bisect_right(self.numbers, number)
        self.numbers[first:last] = [number] * len(done)
        self.times[first:last] = [ts] * len(done)
        self.done[first:last] = done

    def forget(self, number: int, ts: int) -> bool:
        """Forget what was done before a step and before a time; whether nothing is left."""
        first = min(bisect_left(self.numbers, number), bisect_left(self.times, ts))
        del self.numbers[:first], self.times[:first], self.done[:first]
        return not self.numbers


class Operations:
    """What was done on the keys of a state. `readers`: who read what was done on a key; of all keys, under `ALL`."""

    ALL = object()

    def __init__(self, keep: int) -> None:
        self.found: dict[Any, Told] = {}
        self.readers = Index()
        self._keep = keep

    def told(self, key: Any) -> Told:
        found = self.found.get(key)
        if found is None:
            found = self.found[key] = Told(self, key)
        return found

    def forget(self, number: int, ts: int) -> None:
        """Forget the steps before one, and what nobody can ask for from a time on."""
        gone = [key for key, told in self.found.items() if told.forget(number, ts - self._keep)]
        for key in gone:
            del self.found[key]


class FrontDone(Done):
    """The operations of the loop that goes on. `touched`: on what the step under way has done any."""

    def __init__(self, keep: int, number: Callable[[], int], read: Reading) -> None:
        super().__init__(keep)
        self.operations = Operations(keep)
        self.touched: dict[Told, None] = {}
        self._number, self._read = number, read

    def add(self, ts: int, key: Any, operation: Operation) -> None:
        told = self.operations.told(key)
        told.numbers.append(self._number())
        told.times.append(ts)
        told.done.append(operation)
        self.touched[told] = None

    def take_back(self, key: Any) -> None:
        told = self.operations.found[key]
        del told.numbers[-1], told.times[-1], told.done[-1]

    def of(self, key: Any, since: int, *, before: bool = False) -> tuple[list[int], list[Operation]]:
        self._read(self.operations.readers, key)
        told = self.operations.told(key)
        first = bisect_left(told.times, since) if before else bisect_right(told.times, since)
        return told.times[first:], told.done[first:]

    def keys(self) -> list[Any]:
        self._read(self.operations.readers, Operations.ALL)
        return list(self.operations.found)


class PastDone(Done):
    """The operations as an earlier step finds them. `own`: what that step does itself."""

    def __init__(self, keep: int, front: FrontDone, number: Callable[[], int], read: Reading) -> None:
        super().__init__(keep)
        self._front, self._number, self._read = front.operations, number, read
        self.own: dict[Any, list[tuple[int, Operation]]] = {}

    def add(self, ts: int, key: Any, operation: Operation) -> None:
        self.own.setdefault(key, []).append((ts, operation))

    def take_back(self, key: Any) -> None:
        del self.own[key][-1]

    def of(self, key: Any, since: int, *, before: bool = False) -> tuple[list[int], list[Operation]]:
        self._read(self._front.readers, key)
        told = self._front.told(key)
        first = bisect_left(told.times, since) if before else bisect_right(told.times, since)
        last = bisect_left(told.numbers, self._number())
        own = self.own.get(key, ())
        return (
            [*told.times[first:last], *(ts for ts, _ in own)],
            [*told.done[first:last], *(operation for _, operation in own)],
        )

    def keys(self) -> list[Any]:
        self._read(self._front.readers, Operations.ALL)
        return [*self._front.found, *(key for key in self.own if key not in self._front.found)]
