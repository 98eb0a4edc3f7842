"""What each recent step of the serial loop read, wrote and dated, so that some can be taken out and others done again.

A step is one log event with what derives from it, one dated event, dated write or tick. Steps are numbered in the order in
which they happen, with room between any two for steps that turn out to belong there. A step has what the keys that it wrote held
before. Which steps touch a key is put into indexes when somebody asks (kernels/takeout/cells.py): in most logs few do.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import heappop
from typing import Any

from timelapse.errors import HandlerError
from timelapse.ids import Phase
from timelapse.kernels.takeout.cells import Cells, Index, Written
from timelapse.kernels.takeout.looking import CellHistory, FrontDone, Told
from timelapse.kinds.base import ABSENT, StateSpec
from timelapse.kinds.grouped import Grouped, parts_of
from timelapse.kinds.past import Done, History
from timelapse.model.agenda import Agenda, Dated
from timelapse.model.events import Event, Record
from timelapse.model.failure import handler_error
from timelapse.model.program import HandlerSpec, Program, spec_of
from timelapse.model.times import kept
from timelapse.serial import DictStore, Loop, Refusal

GAP = 1 << 32
"""Between the numbers of two steps that follow each other."""

_FEW = 1024
"""So many more steps are kept before it is looked for some to forget."""
_PART = 4
"""At least one in so many is forgotten, if any: the indexes of the others are made again."""

Key = tuple[int, int, int, tuple[Any, ...]]
"""Where a step stands: time, phase, then the place of a tick, the seq of a log event or the root of a dated one, and for what
is dated its number of issue."""

WITHDRAWN = object()
"""In the place of the step in which something dated happened: what dated it does so no more."""


class Step:
    """One step, and what came of it.

    `later`: calls of `after=` handlers: they come of the event whatever its handlers do. `reads`: each index (cells.Index) of readers
    with the key, one after the other. `wrote`: what keys held before, timers too; of several entries of a key the first one counts.
    `told`: of which keys, of states whose operations are kept, it did any. `waiting`: whether it is to be done again.
    """

    later: Sequence[Dated] = ()
    reads: Sequence[Any] = ()
    wrote: Sequence[Written] = ()
    told: Sequence[Told] = ()
    dates: Sequence[Dated] = ()
    emitted: Sequence[Record] = ()
    refusal: Refusal | None = None
    waiting = False

    def __init__(
        self, number: int, key: Key, root: int, event: Event | None, handlers: tuple[HandlerSpec, ...], dated: Dated | None
    ) -> None:  # fmt: skip
        self.number, self.key, self.root = number, key, root
        self.event, self.handlers, self.dated = event, handlers, dated


def key_of(dated: Dated) -> Key:
    """Where something dated stands."""
    if dated.write is not None:
        return (dated.due, Phase.DATED_WRITE, 0, dated.issue)
    return (dated.due, Phase.DATED_EVENT, dated.root, dated.issue)


class NotedStore(DictStore):
    """A state's values, whose reads are noted."""

    def __init__(self, loop: NotedLoop, spec: StateSpec, width: int = 0) -> None:
        super().__init__(loop._journal)
        self.cells = Cells(self.data, loop.steps, loop._journal, width, loop.widths.get(spec.name, 0))
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


class NotedAgenda(Agenda):
    """What lies ahead, numbered by step, and which timers a step has set."""

    def __init__(self, loop: NotedLoop) -> None:
        super().__init__()
        self.dates: list[Dated] = []
        self.set: list[Written] = []
        self.cells = Cells(self._timers, loop.steps, self.set)
        self.current: Dated | None = None
        self.number = self.place = 0

    def issue(self, number: int, place: int) -> tuple[int, int, int]:
        """By step and place within it. The last part tells them apart where a step is done again."""
        self._issued += 1
        return (number, place, self._issued)

    def date(self, dated: Dated) -> None:
        self.place += 1
        self._issued += 1
        dated.issue = (self.number, self.place, self._issued)
        self.put(dated)
        if dated.timer is not None:
            self._sets(dated.timer)
            self._timers[dated.timer] = dated
        self.dates.append(dated)

    def disarm(self, timer: Any) -> None:
        self._sets(timer)
        super().disarm(timer)

    def _sets(self, timer: Any) -> None:
        self.set.append((self._timers, timer, self._timers.get(timer, ABSENT)))

    def undo(self) -> None:
        super().undo()
        # behind that: it has brought back those, too, that the step itself took back
        for dated in self.dates:
            dated.alive = False
            if self._timers.get(dated.timer) is dated:
                del self._timers[dated.timer]
        went_off = bool(self.set) and self.set[0][2] is self.current
        del self.set[went_off:]  # the step has written no timer, but the one that it stems from is gone

    def writes_due(self, at: int) -> Iterator[Dated]:
        return self._due(super().writes_due(at)) if self.writes else iter(())

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


class NotedLoop(Loop):
    """The serial loop, which keeps its recent steps.

    `wanted`: takes what a step put out once nothing can change it any more; None: nobody wants that.
    """

    def __init__(self, program: Program, wanted: Callable[[Step], None] | None) -> None:
        self.reads: list[Any] = []
        """What the step under way reads, as steps have it."""
        self.steps: dict[int, Step] = {}
        self._number = GAP
        self.widths = kept(program)
        self.done: list[FrontDone] = []
        super().__init__(program)
        self.agenda = self._agenda = NotedAgenda(self)
        self.agenda.number = self._number
        self._wanted = wanted
        self._places = {id(h): n for n, (h, _) in enumerate(self._calendars)}
        self.stores: dict[str, NotedStore] = dict(self._stores)  # type: ignore[arg-type]
        cells = (self.agenda.cells, *(store.cells for store in self.stores.values()))
        self.cells_of = {id(one.data): one for one in cells}
        """By the dict in which they hold what keys hold now."""
        self.order: list[Step] = []
        """All steps that are kept."""
        self.own: dict[int, Step] = {}
        """Those of log events, by seq."""
        self.frontier: Key = (0, 0, 0, ())
        """Where the step under way stands, or the latest one."""
        self._kept = 0
        self._indexed = 0
        """So many of the steps are in the indexes."""
        self._looks = bool(self.widths)

    def _store(self, name: str) -> DictStore:
        spec = spec_of(self.program).declared[name]
        if issubclass(spec.kind, Grouped) and spec.outer is not None:
            return WideStore(self, spec, len(parts_of(spec.outer)))
        return NotedStore(self, spec)

    def _versions(self, name: str, store: DictStore, keep: int) -> History:
        assert isinstance(store, NotedStore)
        return CellHistory(keep, store.cells, lambda: self._number, self._read)

    def _operations(self, name: str, keep: int) -> Done:
        self.done.append(done := FrontDone(keep, lambda: self._number, self._read))
        return done

    def _read(self, index: Index, key: Any) -> None:
        self.reads += (index, key)

    def _transaction(
        self, event: Event | None, handlers: tuple[HandlerSpec, ...], ts: int, phase: int, root: int
    ) -> None:
        agenda, refused = self.agenda, self.outcome.refused
        later, dated = agenda.dates, None
        if later:
            agenda.dates = []
        if phase == Phase.LOG_EVENT:
            self.frontier = key = (ts, phase, root, ())
        elif phase == Phase.DATED_EVENT:
            dated = agenda.current
            assert dated is not None
            self.frontier = key = (ts, phase, root, dated.issue)
        else:
            self.frontier = key = (ts, phase, self._places[id(handlers[0])], ())
        count = len(refused)
        super()._transaction(event, handlers, ts, phase, root)
        step = Step(self._number, key, root, event, handlers, dated)
        if len(refused) != count:
            step.refusal = refused.pop()
            agenda.dates = []
        if self._emitted:
            step.emitted = self._emitted[:]
            self.outcome.outputs.clear()
        if later and later is not agenda.dates:
            step.later = later
        if phase == Phase.LOG_EVENT:
            self.own[root] = step
        self._note(step)

    def _failed(self, shown: Any, handler: str, error: Exception, place: tuple[int, int]) -> HandlerError:
        """Without the traceback, which takes longer than most handlers."""
        return handler_error(self.program, shown, handler, error, place, brief=True)

    def _write(self, dated: Dated) -> None:
        self.frontier = key_of(dated)
        super()._write(dated)
        self._note(Step(self._number, self.frontier, dated.root, None, (), dated))

    def _note(self, step: Step) -> None:
        agenda, journal, reads, number = self.agenda, self._journal, self.reads, self._number
        if reads:
            step.reads = reads[:]
            reads.clear()
        if agenda.set:
            step.wrote = [*journal, *agenda.set]
            agenda.set.clear()
        elif journal:
            step.wrote = journal[:]
        journal.clear()
        if agenda.dates:
            step.dates = agenda.dates
            agenda.dates = []
        if step.dated is not None:
            step.dated.note = step
        self.order.append(step)
        self.steps[number] = step
        self._number = agenda.number = number + GAP
        agenda.place = 0
        if self._looks:
            for done in self.done:
                if done.touched:
                    step.told = (
                        *step.told,
                        *(t for t in done.touched if t.numbers and t.numbers[-1] == number),
                    )
                    done.touched.clear()
            self.index()

    def place_of(self, step: Step) -> int:
        """The place of a step that is kept."""
        return bisect_left(self.order, step.number, key=lambda s: s.number)

    def failed(self) -> None:
        """The step under way has raised, and never was."""
        self._number += GAP
        self.reads.clear()
        agenda = self.agenda
        agenda.number, agenda.place, agenda.dates = self._number, 0, []
        agenda.set.clear()
        for done in self.done:
            done.touched.clear()

    def tree(self, root: int) -> Iterator[Step]:
        """The steps that stem from a log event, whose own is kept."""
        found = [self.own[root]]
        for step in found:
            found += (d.note for dates in (step.later, step.dates) for d in dates if isinstance(d.note, Step))
        return iter(found)

    # --- indexes ----------------------------------------------------------------------------------

    def index(self) -> None:
        """Have all steps in the indexes: of those that others did not touch, from the last time on."""
        writers_of = {place: cells.writers.found for place, cells in self.cells_of.items()}
        for step in self.order[self._indexed :]:
            number = step.number
            for data, key, _ in step.wrote:
                writers = writers_of[id(data)]
                found = writers.get(key)
                if found is None:
                    writers[key] = number
                elif type(found) is list:
                    if found[-1] != number:
                        found.append(number)
                elif found != number:
                    writers[key] = [found, number]  # type: ignore[list-item]
            pairs = iter(step.reads)
            for index, key in zip(pairs, pairs, strict=True):
                if index.writers is not None:
                    found = index.writers.get(key)
                    if found == number or (type(found) is list and found[-1] == number):
                        continue
                found = index.found.get(key)
                if found is None:
                    index.found[key] = number
                elif type(found) is list:
                    if found[-1] != number:
                        found.append(number)
                elif found != number:
                    index.found[key] = [found, number]
        self._indexed = len(self.order)

    def indexed(self) -> None:
        """All steps are in the indexes: they have been put there."""
        self._indexed = len(self.order)

    # --- forgetting -------------------------------------------------------------------------------

    def begins(self, seq: int) -> Step | None:
        """A log event's own step, if it is kept."""
        return self.own.get(seq)

    def forget(self, *, everything: bool = False) -> int:
        """Forget the steps that nothing pending can reach, unless there are few: how many are kept.

        Kept is what followed the first event that something pending stems from; and, as steps that are done again may
        fail too, what followed the first event that one of those steps stems from.
        """
        if everything:
            first = len(self.order)
        elif len(self.order) < 2 * self._kept + _FEW:
            return len(self.order)
        else:
            first = self._first(self.oldest_root())
            roots = (s.root for s in self.order[first:] if s.root >= 0)
            first = min(first, self._first(min(roots, default=None)))
        if everything or first * _PART >= len(self.order):
            self._forget(first)
        self._kept = len(self.order)
        return self._kept

    def _first(self, root: int | None) -> int:
        """The place among the kept steps of an event's own: the first one where that is not kept."""
        if root is None:
            return len(self.order)
        step = self.begins(root)
        return 0 if step is None else self.place_of(step)

    def _forget(self, first: int) -> None:
        number, ts = self._number, self.frontier[0]
        if first < len(self.order):
            number, ts = self.order[first].number, self.order[first].key[0]
        gone = self.order[:first]
        for step in gone:
            for data, key, _ in step.wrote if self._looks else ():
                if (cells := self.cells_of[id(data)]).keep:
                    cells.remember(step, key)
        del self.order[:first]
        for step in gone:
            del self.steps[step.number]
            if step.key[1] == Phase.LOG_EVENT:
                del self.own[step.root]
            if step.dated is not None:
                step.dated.note = None  # a cycle
            if self._wanted is not None and (step.emitted or step.refusal is not None):
                self._wanted(step)
        if gone:
            self._forget_indexes()
        for cells in self.cells_of.values():
            if cells.keep:
                cells.forget_past(ts)
        for done in self.done:
            done.operations.forget(number, ts)
        if self._looks:
            self.index()

    def _forget_indexes(self) -> None:
        """They are made again when somebody asks: to go through them takes longer."""
        self._indexed = 0
        for cells in self.cells_of.values():
            for index in cells.indexes:
                index.found.clear()
        for done in self.done:
            done.operations.readers.found.clear()

    def end(self) -> None:
        """Nothing of the steps is needed any more, nor what is pending. They are in cycles: the search for garbage would go through all of them."""
        for step in self.order:
            if step.dated is not None:
                step.dated.note = None
        self._forget_indexes()
        for held in (self.order, self.steps, self.own, self.agenda.writes, self.agenda.events):
            held.clear()
