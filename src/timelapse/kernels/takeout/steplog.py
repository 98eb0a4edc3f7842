"""What each recent step of the serial loop read, wrote and dated, so that some can be taken out and others done again.

A step is one log event with what derives from it, one dated event, dated write or tick. Steps are numbered in the order in
which they happen, with room between any two for steps that turn out to belong there. Each key that they touch has a
*cell*: what it held after which step, and which steps read it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from timelapse.ids import Phase
from timelapse.kernels.takeout.cells import Cell, Cells, Reads
from timelapse.kernels.takeout.looking import CellHistory, FrontDone, Told
from timelapse.kinds.base import ABSENT, StateSpec
from timelapse.kinds.grouped import Grouped, parts_of
from timelapse.kinds.past import Done, History
from timelapse.model.agenda import Agenda, Dated
from timelapse.model.events import Event, Record
from timelapse.model.program import HandlerSpec, Program, spec_of
from timelapse.model.times import kept
from timelapse.serial import DictStore, Loop, Refusal

GAP = 1 << 32
"""Between the numbers of two steps that follow each other."""

_FEW = 1024
"""So many more steps are kept before it is looked for some to forget."""

Key = tuple[int, int, int, tuple[Any, ...]]
"""Where a step stands: time, phase, then the place of a tick, the seq of a log event or the root of a dated one, and for what
is dated its number of issue."""


@dataclass(eq=False, slots=True)
class Note:
    """What is known of something dated."""

    step: Step | None = None
    """The step in which it happened."""
    valid: bool = True
    """Whether the step that dated it still does."""


@dataclass(eq=False, slots=True)
class Step:
    """One step, and what came of it."""

    number: int
    key: Key
    root: int
    event: Event | None
    handlers: tuple[HandlerSpec, ...]
    dated: Dated | None
    later: Sequence[Dated] = ()
    """Calls of `after=` handlers: they come of the event whatever its handlers do."""
    reads: Sequence[Reads] = ()
    writes: list[Cell] = field(default_factory=list)
    """Timers among them."""
    told: Sequence[Told] = ()
    """Of which keys, of states whose operations are kept, it did any."""
    dates: Sequence[Dated] = ()
    emitted: Sequence[Record] = ()
    refusal: Refusal | None = None
    waiting: bool = False
    """Whether it is to be done again."""


def key_of(dated: Dated) -> Key:
    """Where something dated stands."""
    if dated.write is not None:
        return (dated.due, Phase.DATED_WRITE, 0, dated.issue)
    return (dated.due, Phase.DATED_EVENT, dated.root, dated.issue)


class NotedStore(DictStore):
    """A state's values, whose reads are noted."""

    def __init__(self, loop: NotedLoop, spec: StateSpec) -> None:
        super().__init__(loop._journal)
        width = len(parts_of(spec.outer)) if issubclass(spec.kind, Grouped) and spec.outer is not None else 0
        self.cells = Cells(self.data, width, loop.widths.get(spec.name, 0))
        self._found, self._read = self.cells.found, loop.read

    def get(self, key: Any, default: Any) -> Any:
        cell = self._found.get(key)
        if cell is None:
            cell = self.cells.cell(key)
        self._read(cell)
        return self.data.get(key, default)

    def put(self, key: Any, value: Any) -> None:
        if key not in self._found:
            self.cells.cell(key)  # with what it held before
        data = self.data
        self._journal.append((data, key, data.get(key, ABSENT)))
        data[key] = value

    def drop(self, key: Any) -> None:
        cell = self.cells.cell(key)
        if key not in self.data:
            self._read(cell)  # had it been there, it would not be from now on
        super().drop(key)

    def items(self) -> Iterable[tuple[Any, Any]]:
        self._read(self.cells.whole)
        return self.data.items()

    def stored_under(self, head: tuple[Any, ...]) -> Iterable[Any]:
        self._read(self.cells.under(head))
        return [key for key in self.cells.stored_under(head) if key in self.data]


class NotedAgenda(Agenda):
    """What lies ahead, numbered by step, and which timers a step has set."""

    def __init__(self) -> None:
        super().__init__()
        self.cells = Cells(self._timers)
        self.dates: list[Dated] = []
        self.set: list[Cell] = []
        self.current: Dated | None = None
        self.number = self.place = 0

    def _next_issue(self) -> Any:
        self.place += 1
        return self.issue(self.number, self.place)

    def issue(self, number: int, place: int) -> tuple[int, int, int]:
        """By step and place within it. The last part tells them apart where a step is done again."""
        self._issued += 1
        return (number, place, self._issued)

    def date(self, dated: Dated) -> None:
        dated.note = Note()
        if dated.timer is not None:
            self.set.append(self.cells.cell(dated.timer))
        super().date(dated)
        self.dates.append(dated)

    def disarm(self, timer: Any) -> None:
        self.set.append(self.cells.cell(timer))
        super().disarm(timer)

    def writes_due(self, at: int) -> Iterator[Dated]:
        for dated in super().writes_due(at):
            self.current = dated
            yield dated

    def events_due(self, at: int) -> Iterator[Dated]:
        for dated in super().events_due(at):
            self.current = dated
            if dated.timer is not None:
                cell = self.cells.cell(dated.timer)
                if cell.values == [ABSENT]:  # made just now, and the timer is gone already
                    cell.values[0] = dated
                self.set.append(cell)
            yield dated


class NotedLoop(Loop):
    """The serial loop, which keeps its recent steps.

    `wanted`: takes what a step put out once nothing can change it any more; None: nobody wants that.
    """

    def __init__(self, program: Program, wanted: Callable[[Step], None] | None) -> None:
        self._reads: list[Reads] = []
        self._number = GAP
        self.widths = kept(program)
        self.done: list[FrontDone] = []
        super().__init__(program)
        self.agenda = self._agenda = NotedAgenda()
        self.agenda.number = self._number
        self._wanted = wanted
        self._places = {id(h): n for n, (h, _) in enumerate(self._calendars)}
        self.stores: dict[str, NotedStore] = dict(self._stores)  # type: ignore[arg-type]
        self._found_of = {id(store.data): store.cells.found for store in self.stores.values()}
        self.steps: dict[int, Step] = {}
        self.order: list[Step] = []
        """All steps that are kept."""
        self.trees: dict[int, list[Step]] = {}
        """Those that stem from a log event, by its seq: first its own, if that is kept."""
        self.frontier: Key = (0, 0, 0, ())
        """Where the step under way stands, or the latest one."""
        self._kept = 0

    def _store(self, name: str) -> DictStore:
        return NotedStore(self, spec_of(self.program).declared[name])

    def _versions(self, name: str, store: DictStore, keep: int) -> History:
        assert isinstance(store, NotedStore)
        return CellHistory(keep, store.cells, lambda: self._number, self.read)

    def _operations(self, name: str, keep: int) -> Done:
        self.done.append(done := FrontDone(keep, lambda: self._number, self.read))
        return done

    def read(self, what: Reads) -> None:
        """The step under way reads something."""
        readers = what.readers
        if not readers or readers[-1] != self._number:
            readers.append(self._number)
            self._reads.append(what)

    def _transaction(
        self, event: Event | None, handlers: tuple[HandlerSpec, ...], ts: int, phase: int, root: int
    ) -> None:
        agenda = self.agenda
        dated, later, issue, place = None, agenda.dates, (), root
        if later:
            agenda.dates = []
        if phase == Phase.TICK:
            place = self._places[id(handlers[0])]
        elif phase == Phase.DATED_EVENT:
            dated = agenda.current
            assert dated is not None
            issue = dated.issue
        self.frontier = (ts, phase, place, issue)
        refused = len(self.outcome.refused)
        super()._transaction(event, handlers, ts, phase, root)
        step = Step(self._number, self.frontier, root, event, handlers, dated, later or ())
        if len(self.outcome.refused) != refused:
            step.refusal = self.outcome.refused.pop()
            agenda.dates = []
        if self._emitted:
            step.emitted = self._emitted[:]
            self.outcome.outputs.clear()
        self._note(step)

    def _write(self, dated: Dated) -> None:
        self.frontier = key_of(dated)
        super()._write(dated)
        self._note(Step(self._number, self.frontier, dated.root, None, (), dated))

    def _note(self, step: Step) -> None:
        number, found_of, writes = self._number, self._found_of, step.writes
        step.reads, step.dates = self._reads or (), self.agenda.dates or ()
        for table, key, _ in self._journal:
            cell = found_of[id(table)][key]
            value = table.get(key, ABSENT)
            if cell.numbers[-1] == number:
                cell.values[-1] = value
            else:
                cell.numbers.append(number)
                cell.values.append(value)
                writes.append(cell)
                if cell.times is not None:
                    cell.times.append(step.key[0])
        for done in self.done:
            if done.touched:
                step.told = (*step.told, *(t for t in done.touched if t.numbers and t.numbers[-1] == number))
        for cell in self.agenda.set:
            if cell.numbers[-1] != number:
                cell.numbers.append(number)
                cell.values.append(cell.cells.data.get(cell.key, ABSENT))
                writes.append(cell)
        if step.dated is not None:
            step.dated.note.step = step
        self.order.append(step)
        self.hold(step)
        self._next()

    def hold(self, step: Step) -> None:
        """Have a step, whose place is among `order`, among those that are found by number and by root."""
        self.steps[step.number] = step
        if step.root >= 0:
            self.trees.setdefault(step.root, []).append(step)

    def release(self, step: Step) -> None:
        """Have it no more among these."""
        del self.steps[step.number]
        if step.root >= 0:
            tree = self.trees[step.root]
            tree.remove(step)
            if not tree:
                del self.trees[step.root]

    def place_of(self, step: Step) -> int:
        """The place of a step that is kept."""
        return bisect_left(self.order, step.number, key=lambda s: s.number)

    def _next(self) -> None:
        self._number += GAP
        if self._reads:
            self._reads = []
        agenda = self.agenda
        agenda.number, agenda.place = self._number, 0
        if agenda.dates:
            agenda.dates = []
        agenda.set.clear()
        for done in self.done:
            done.touched.clear()

    def failed(self) -> None:
        """The step under way has raised, and never was."""
        self._next()

    # --- forgetting -------------------------------------------------------------------------------

    def begins(self, seq: int) -> Step | None:
        """A log event's own step, if it is kept."""
        tree = self.trees.get(seq)
        return tree[0] if tree and tree[0].key[1] == Phase.LOG_EVENT else None

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
        del self.order[:first]
        for step in gone:
            self.release(step)
            if self._wanted is not None:
                self._wanted(step)
            for reads in step.reads:
                if isinstance(reads, Cell):
                    reads.cells.forget(reads, number, ts)
            for cell in step.writes:
                cell.cells.forget(cell, number, ts)
        for store in self.stores.values():
            store.cells.forget_wide(number, ts)
        for done in self.done:
            done.operations.forget(number, ts)

    def end(self) -> None:
        """Nothing of the steps is needed any more, nor what is pending. They are in cycles: the search for garbage would go through all of them."""
        for step in self.order:
            if step.dated is not None:
                step.dated.note = None
        for cells in (self.agenda.cells, *(store.cells for store in self.stores.values())):
            cells.found.clear()
        for held in (self.order, self.steps, self.trees, self.agenda.writes, self.agenda.events):
            held.clear()
