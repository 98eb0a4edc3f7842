"""Which of the steps that are kept read or wrote which key (kernels/takeout/steplog.py)."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from timelapse.kernels.takeout.cells import Cells
from timelapse.kernels.takeout.looking import FrontDone

if TYPE_CHECKING:
    from timelapse.kernels.takeout.steplog import Step

_number_of = attrgetter("number")
_NOTHING = object()
_STALE = 3
"""They may have so many steps that are forgotten, for one that is kept,"""
_FEW = 1024
"""and so many more."""


class Indexes:
    """Those of the cells and operations of a loop. Steps are put in when somebody asks: of the steps in `order` the first ones are in.

    `looks`: whether anybody looks back: then they are always up to date.
    """

    def __init__(self, order: Sequence[Step], *, looks: bool) -> None:
        self.steps: dict[int, Step] = {}
        """Those that are in, by number."""
        self.done: list[FrontDone] = []
        self.cells_of: dict[int, Cells] = {}
        """By the dict in which they hold what keys hold now."""
        self._writers_of: dict[int, dict[Any, Any]] = {}
        self._order, self._looks = order, looks
        self._count = 0
        """So many of the steps are in."""
        self._stale = 0
        """So many steps are in that are not kept any more."""

    def add(self, cells: Cells) -> None:
        """Have these, too."""
        self.cells_of[id(cells.data)] = cells
        self._writers_of[id(cells.data)] = cells.writers.found

    def bring_up(self) -> None:
        """Put all steps in: of those that others did not touch, from the last time on."""
        writers_of, steps = self._writers_of, self.steps
        new = self._order[self._count :]
        steps.update(zip(map(_number_of, new), new, strict=True))
        for step in new:
            number = step.number
            first: Any = _NOTHING
            mine: dict[Any, Any] | None = None
            for data, key, _ in step.wrote:
                writers = writers_of[id(data)]
                if mine is None:
                    first, mine = key, writers
                found = writers.setdefault(key, number)
                if found is not number:
                    if type(found) is list:
                        if found[-1] != number:
                            found.append(number)
                    elif found != number:
                        writers[key] = [found, number]
            parts = iter(step.reads)
            last = before = None
            for index in parts:
                key = next(parts)
                if key is first and index.writers is mine:  # such as x[k] += n: by far the most
                    continue
                if key is last and index is before:
                    continue
                last, before = key, index
                if index.writers is not None:
                    writer = index.writers.get(key)
                    if writer == number or (type(writer) is list and writer[-1] == number):
                        continue
                found = index.found.setdefault(key, number)
                if found is not number:
                    if type(found) is list:
                        if found[-1] != number:
                            found.append(number)
                    elif found != number:
                        index.found[key] = [found, number]
        self._count = len(self._order)

    def brought_up(self) -> None:
        """All steps are in: somebody else has put them there."""
        self._count = len(self._order)

    # --- forgetting -------------------------------------------------------------------------------

    def remember(self, gone: Sequence[Step]) -> None:
        """Before steps are forgotten: what can be looked back on of what they wrote."""
        for step in gone if self._looks else ():
            for data, key, _ in step.wrote:
                if (cells := self.cells_of[id(data)]).keep:
                    cells.remember(step, key)

    def forget(self, gone: Sequence[Step], number: int, ts: int) -> None:
        """The first steps are not kept any more. `number`, `ts`: those of the first one that is, or of the next one.

        The indexes may have them on: nobody asks for what was before the steps that are kept, but those that look back. They are
        made again when there are more of them, and somebody asks: to go through them takes longer.
        """
        indexed = min(len(gone), self._count)
        self._stale += indexed
        if self._looks or self._stale > _STALE * len(self._order) + _FEW:
            self.clear()
        else:
            self._count -= indexed
            for step in gone[:indexed]:
                del self.steps[step.number]
        for cells in self.cells_of.values():
            if cells.keep:
                cells.forget_past(ts)
        for done in self.done:
            done.operations.forget(number, ts)
        if self._looks:
            self.bring_up()

    def clear(self) -> None:
        """Put none in, until somebody asks."""
        self._count = self._stale = 0
        self.steps.clear()
        for cells in self.cells_of.values():
            for index in cells.indexes:
                index.found.clear()
        for done in self.done:
            done.operations.readers.found.clear()
