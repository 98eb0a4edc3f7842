"""What keys held after which step, and which steps read them (kernels/takeout/steplog.py)."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from typing import Any

from timelapse.ids import INT64_MIN
from timelapse.kinds.base import ABSENT

_BASE = -1
"""Stands for the number of the last step before all that are kept."""


class Reads:
    """Which steps read something, by rising number."""

    __slots__ = ("readers",)

    def __init__(self) -> None:
        self.readers: list[int] = []

    def forget_readers(self, number: int) -> None:
        """Forget the steps before one."""
        del self.readers[: bisect_left(self.readers, number)]


class Cell(Reads):
    """What a key held after each step that wrote it."""

    __slots__ = ("cells", "key", "numbers", "times", "values")

    def __init__(self, cells: Cells, key: Any, base: Any) -> None:
        super().__init__()
        self.cells, self.key = cells, key
        self.numbers, self.values = [_BASE], [base]
        self.times: list[int] | None = [INT64_MIN] if cells.keep else None
        """Of the steps, where anybody looks back."""

    def before(self, number: int) -> Any:
        """What it held when that step began."""
        return self.values[bisect_left(self.numbers, number) - 1]

    def at(self, number: int, ts: int, before: bool) -> Any:
        """What it held, as that step sees it, after everything at a time, or before it."""
        assert self.times is not None
        place = bisect_left(self.times, ts) if before else bisect_right(self.times, ts)
        return self.values[min(place, bisect_left(self.numbers, number)) - 1]

    def forget(self, number: int, ts: int) -> bool:
        """Forget the steps before one, and what nobody can look back on from a time on; whether nothing is left that a later
        one wrote or read."""
        numbers = self.numbers
        last = bisect_left(numbers, number) - 1
        if self.times is not None and last > 0:
            last = min(last, bisect_left(self.times, ts - self.cells.keep) - 1)
            if last > 0:
                del self.times[:last]
                self.times[0] = INT64_MIN
        if last > 0:
            del numbers[:last], self.values[:last]
            numbers[0] = _BASE
        self.forget_readers(number)
        return len(numbers) == 1 and not self.readers


class Cells:
    """The cells of one state, or of the timers; `data`: what the keys hold now."""

    def __init__(self, data: dict[Any, Any], width: int = 0, keep: int = 0) -> None:
        self.data = data
        self.found: dict[Any, Cell] = {}
        self.keep = keep
        """How far back anybody looks, in microseconds."""
        self.whole = Reads()
        """Who read all keys."""
        self._width = width
        """Where there are keys that are read by their first parts: so many."""
        self._under: dict[Any, Reads] = {}
        self._back: dict[Any, Reads] = {}
        self._stored: dict[Any, set[Any]] | None = None
        """Keys by their first parts, perhaps some that are not there any more."""

    def cell(self, key: Any) -> Cell:
        """The key's cell."""
        cell = self.found.get(key)
        if cell is None:
            cell = self.found[key] = Cell(self, key, self.data.get(key, ABSENT))
            if self._stored is not None:
                self._stored.setdefault(key[: self._width], set()).add(key)
        return cell

    def under(self, head: tuple[Any, ...]) -> Reads:
        """Who read all keys that begin so."""
        return self._under.setdefault(head, Reads())

    def back(self, key: Any) -> Reads:
        """Who looked back on a key."""
        found = self._back.get(key)
        if found is None:
            found = self._back[key] = Reads()
        return found

    def stored_under(self, head: tuple[Any, ...]) -> Iterable[Any]:
        """Keys that begin so: all that are there at any of the steps kept, and perhaps more."""
        if self._stored is None:
            self._stored = {}
            for key in {**self.data, **self.found}:
                self._stored.setdefault(key[: self._width], set()).add(key)
        found = self._stored.get(head, set())
        if len(found) > 64:
            gone = [key for key in found if key not in self.data and key not in self.found]
            found.difference_update(gone if len(gone) * 2 > len(found) else ())
        return found

    def wide(self, key: Any) -> Iterator[Reads]:
        """Who may have read a key together with others."""
        yield self.whole
        if self._width and (under := self._under.get(key[: self._width])) is not None:
            yield under
        if (back := self._back.get(key)) is not None:
            yield back

    def forget(self, cell: Cell, number: int, ts: int) -> None:
        """Forget what a cell knows of the steps before one."""
        if cell.forget(number, ts):
            self.found.pop(cell.key, None)

    def forget_wide(self, number: int, ts: int) -> None:
        """The same for those who read several keys together, and for all keys that anybody looks back on."""
        if self.keep:
            for cell in list(self.found.values()):
                self.forget(cell, number, ts)
        for reads in (self.whole, *self._under.values(), *self._back.values()):
            reads.forget_readers(number)
        self._under = {head: reads for head, reads in self._under.items() if reads.readers}
        self._back = {key: reads for key, reads in self._back.items() if reads.readers}
