"""Where the loop that keeps its steps has what states hold, and what lies ahead: it notes what each step reads and dates."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any

from timelapse.kernels.takeout.cells import Cells, Index, Written
from timelapse.kernels.takeout.looking import CellHistory, FrontDone
from timelapse.kinds.base import ABSENT, StateSpec
from timelapse.kinds.grouped import Grouped, parts_of
from timelapse.kinds.past import Done, History
from timelapse.program.agenda import Agenda, Dated
from timelapse.serial import Backing, DictStore, Journal

if TYPE_CHECKING:
    from timelapse.kernels.takeout.steplog import NotedLoop


class NotedStore(DictStore):
    """A state's values, whose reads are noted."""

    def __init__(self, loop: NotedLoop, spec: StateSpec, journal: Journal, width: int = 0) -> None:
        super().__init__(journal)
        self.cells = Cells(self.data, loop.indexes.steps, journal, width, loop.widths.get(spec.name, 0))
        self._readers, self._read = self.cells.readers, loop.reads.extend

    def get(self, key: Any, default: Any) -> Any:
        self._read((self._readers, key))
        return self.data.get(key, default)

    def drop(self, key: Any) -> None:
        if key not in self.data:
            self._read((self._readers, key))  # had it been there, it would not be from now on
        super().drop(key)

    def items(self) -> Iterable[tuple[Any, Any]]:
        self._read((self.cells.wide, None))
        return self.data.items()


class WideStore(NotedStore):
    """The same of a state whose keys are read by their first parts, too."""

    def put(self, key: Any, value: Any) -> None:
        super().put(key, value)
        self.cells.met(key)

    def stored_under(self, head: tuple[Any, ...]) -> Iterable[Any]:
        self._read((self.cells.wide, head))
        return [key for key in self.cells.stored_under(head) if key in self.data]


class NotedBacking(Backing):
    """Keeps what the states of a loop hold, and has each step note what it reads of that."""

    def __init__(self, loop: NotedLoop) -> None:
        self._loop = loop

    def store(self, spec: StateSpec, journal: Journal) -> DictStore:
        if issubclass(spec.kind, Grouped) and spec.outer is not None:
            return WideStore(self._loop, spec, journal, len(parts_of(spec.outer)))
        return NotedStore(self._loop, spec, journal)

    def versions(self, spec: StateSpec, store: DictStore, keep: int) -> History:
        assert isinstance(store, NotedStore)
        return CellHistory(keep, store.cells, self._number, self._read)

    def operations(self, spec: StateSpec, keep: int) -> Done:
        self._loop.indexes.done.append(done := FrontDone(keep, self._number, self._read))
        return done

    def _number(self) -> int:
        return self._loop._number

    def _read(self, index: Index, key: Any) -> None:
        self._loop.reads += (index, key)


class NotedAgenda(Agenda):
    """What lies ahead, numbered by step, and which timers a step has set."""

    def __init__(self, loop: NotedLoop) -> None:
        super().__init__()
        self.dates: list[Dated] = []
        self.back: list[Dated] = []
        """The timers that the step under way has taken back."""
        self.set: list[Written] = []
        self.cells = Cells(self._timers, loop.indexes.steps, self.set)
        self.current: Dated | None = None
        self.number = self.place = 0

    def issue(self, number: int, place: int) -> tuple[int, int, int]:
        """By step and place within it. The last part tells them apart where a step is done again."""
        self._issued += 1
        return (number, place, self._issued)

    def date(self, dated: Dated) -> None:
        self.place += 1
        self._issued += 1
        dated.issue = issue = (self.number, self.place, self._issued)
        if dated.write is not None:
            heappush(self.writes, (dated.due, issue, dated))
        else:
            heappush(self.events, (dated.due, dated.root, issue, dated))
        timer = dated.timer
        if timer is not None:
            self.set.append((self._timers, timer, self._timers.get(timer, ABSENT)))
            self._timers[timer] = dated
        self.dates.append(dated)

    def disarm(self, timer: Any) -> None:
        pending = self._timers.pop(timer, ABSENT)
        self.set.append((self._timers, timer, pending))
        if pending is not ABSENT:
            pending.alive = False
            self.back.append(pending)

    def undo(self) -> None:
        for pending in reversed(self.back):
            pending.alive = True
            self._timers[pending.timer] = pending
        self.back.clear()
        # behind that: those, too, were brought back that the step itself took back
        for dated in self.dates:
            dated.alive = False
            if self._timers.get(dated.timer) is dated:
                del self._timers[dated.timer]
        went_off = bool(self.set) and self.set[0][2] is self.current
        self.dates = []
        del self.set[went_off:]  # the step has written no timer, but the one that it stems from is gone

    def writes_due(self, at: int) -> Iterator[Dated]:
        return self._due(super().writes_due(at))

    def _due(self, writes: Iterator[Dated]) -> Iterator[Dated]:
        for dated in writes:
            self.current = dated
            yield dated

    def events_due(self, at: int) -> Iterator[Dated]:
        events, timers = self.events, self._timers
        while events and events[0][0] == at:
            dated = heappop(events)[-1]
            if dated.alive:
                dated.alive = False
                self.current = dated
                if dated.timer is not None:  # it is what is armed, else it were dead
                    self.set.append((timers, dated.timer, dated))
                    del timers[dated.timer]
                yield dated
