"""Taking an event out of what the serial loop has done, with all that stems from it.

The loop stands where it would stand had it begun again without the event: of its recent steps, those of the event are taken
out, and those that read what has changed are done again, first to last, as long as anything changes (kernels/takeout/steplog.py).
A step that is done again finds before it exactly what the log without the event leaves there. So the first one that
fails is the first one to fail in that log, and its event is taken out next.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from heapq import heappop, heappush
from operator import attrgetter
from typing import Any

from timelapse.errors import HandlerError
from timelapse.ids import Phase
from timelapse.kernels.takeout.cells import Cells, Index
from timelapse.kernels.takeout.looking import CellHistory, Operations, PastDone, Told
from timelapse.kernels.takeout.noted import NotedStore
from timelapse.kernels.takeout.quick import QuickLoop
from timelapse.kernels.takeout.steplog import WITHDRAWN, Key, NotedLoop, Step, key_of
from timelapse.kinds.base import ABSENT, StateSpec
from timelapse.kinds.past import Done, History, Operation
from timelapse.program.agenda import Agenda, Dated
from timelapse.program.program import Program
from timelapse.serial import Backing, DictStore, Journal, Refusal

_key_of = attrgetter("key")
_GONE: Any = object()
"""In the place of a value: the step has removed the key."""
_PLAIN = (int, str, bytes, bool, type(None))
_ROOM = 4
"""A step that is put in between two leaves behind it all but one of 2**_ROOM parts of the room between them."""


class CannotUndo(Exception):
    """What would have to be done again is not kept any more: begin again."""


def same(a: Any, b: Any) -> bool:
    """Whether nobody can tell two values apart. False where that is not sure."""
    if a is b:
        return True
    kind = type(a)
    if kind is not type(b):
        return False
    if kind in _PLAIN:
        return bool(a == b)
    if kind is float:
        return bool(a == b and a != 0.0)
    if kind is dict:
        return list(a) == list(b) and all(same(a[name], b[name]) for name in a)
    if isinstance(a, (tuple, list)):
        return len(a) == len(b) and all(
            one is other or same(one, other) for one, other in zip(a, b, strict=True)
        )
    return False


class _PastStore(DictStore):
    """A state's values as an earlier step finds them. `data`: what that step itself writes."""

    def __init__(self, past: _Past, front: NotedStore, journal: Journal) -> None:
        super().__init__(journal)
        self._past, self.cells = past, front.cells
        self._readers, self._read = front.cells.readers, past.reads.extend

    def get(self, key: Any, default: Any) -> Any:
        self._read((self._readers, key))
        value = self.data.get(key, ABSENT)
        if value is ABSENT:
            value = self.cells.found_by(self._past.under_way, key)
        return default if value is ABSENT or value is _GONE else value

    def _value(self, key: Any) -> Any:
        value = self.data.get(key, ABSENT)
        if value is ABSENT:
            return self.cells.found_by(self._past.under_way, key)
        return ABSENT if value is _GONE else value

    def drop(self, key: Any) -> None:
        if self._value(key) is ABSENT:
            self._read((self._readers, key))
        else:
            self.put(key, _GONE)

    def items(self) -> Iterable[tuple[Any, Any]]:
        self._read((self.cells.wide, None))
        found = {key: self._value(key) for key in {**dict.fromkeys(self.cells.known()), **self.data}}
        return [(key, value) for key, value in found.items() if value is not ABSENT]

    def stored_under(self, head: tuple[Any, ...]) -> Iterable[Any]:
        self._read((self.cells.wide, head))
        keys = {*self.cells.stored_under(head), *(key for key in self.data if key[: len(head)] == head)}
        return [key for key in keys if self._value(key) is not ABSENT]


class _PastAgenda(Agenda):
    """Collects what a step that is done again dates, and which timers it sets. What it dated before stays the same object."""

    def __init__(self) -> None:
        super().__init__()
        self._before: Sequence[Dated] = ()
        self.dates: list[Dated] = []
        self.timers: dict[Any, Any] = {}
        self._same = 0
        """So many of the first dates are those from before."""

    def begin(self, before: Sequence[Dated]) -> None:
        self._before, self._same, self.dates = before, 0, []
        self.timers.clear()

    def as_before(self) -> bool:
        """Whether the step has dated exactly what it dated before."""
        return self._same == len(self.dates) == len(self._before)

    def date(self, dated: Dated) -> None:
        place = len(self.dates)
        if place < len(self._before) and _same_dated(self._before[place], dated):
            dated = self._before[place]
            self._same += 1
        self.dates.append(dated)
        if dated.timer is not None:
            self.timers[dated.timer] = dated

    def disarm(self, timer: Any) -> None:
        self.timers[timer] = _GONE

    def undo(self) -> None:
        self.begin(self._before)


def _pairs(reads: Sequence[Any]) -> Iterator[tuple[Index, Any]]:
    """What a step reads: each index with the key."""
    parts = iter(reads)
    return zip(parts, parts, strict=True)


def _same_dated(a: Dated, b: Dated) -> bool:
    if a.due != b.due or a.root != b.root or a.name != b.name or a.handler != b.handler:
        return False
    one, other = a.event, b.event
    if one is None or other is None:
        writes = None if a.write is None else a.write[1:], None if b.write is None else b.write[1:]
        return one is other and same(*writes)
    return type(one) is type(other) and same(one._values(), other._values()) and same(a.timer, b.timer)


class _PastBacking(Backing):
    """What the states of the loop that goes on held before the step that is done again."""

    def __init__(self, past: _Past, front: NotedLoop) -> None:
        self._past, self._front = past, front

    def store(self, spec: StateSpec, journal: Journal) -> DictStore:
        return _PastStore(self._past, self._front.stores[spec.name], journal)

    def versions(self, spec: StateSpec, store: DictStore, keep: int) -> History:
        return CellHistory(keep, self._front.stores[spec.name].cells, self._number, self._past.read)

    def operations(self, spec: StateSpec, keep: int) -> Done:
        front = self._front.indexes.done[len(self._past.done)]
        self._past.done.append(done := PastDone(keep, front, self._number, self._past.read))
        return done

    def _number(self) -> int:
        return self._past.under_way.number


class _Past(QuickLoop):
    """Does single steps again, each where it stood."""

    under_way: Step
    """The one under way, or the latest one."""

    def __init__(self, program: Program, front: NotedLoop) -> None:
        self.reads: list[Any] = []
        """What the step under way reads, as steps have it."""
        self.done: list[PastDone] = []
        super().__init__(program, _PastBacking(self, front))
        self.agenda = self._agenda = _PastAgenda()
        self.pasts: list[_PastStore] = list(self._stores.values())  # type: ignore[arg-type]
        self.left: list[tuple[Cells, dict[Any, Any]]] = [(store.cells, store.data) for store in self.pasts]
        """What the step leaves under the keys that it wrote, by state, and of timers. `_GONE`: nothing."""
        self.left.append((front.agenda.cells, self.agenda.timers))
        self.left_in = {id(cells.data): (cells, left) for cells, left in self.left}
        """By the dict in which they hold what keys hold now."""

    def read(self, index: Index, key: Any) -> None:
        """The step reads something."""
        self.reads += (index, key)

    def do(self, step: Step) -> Refusal | None:
        """How it was rejected, if it was: then nothing that it did stays. Raises HandlerError."""
        self.under_way = step
        self.reads.clear()
        self.agenda.begin(step.dates)
        if self._journal:
            self._journal.clear()
            for store in self.pasts:
                if store.data:
                    store.data.clear()
        if self.done:
            self.past.done.clear()
            for done in self.done:
                done.own.clear()
        dated = step.dated
        if dated is not None and dated.write is not None:
            self._write(replace(dated, write=(self.states[dated.name], *dated.write[1:])))
            return None
        ts, phase, _, _ = step.key
        return self._handle(step.event, step.handlers, ts, phase, step.root)

    def take_emitted(self) -> list[Any]:
        """What the step has put out."""
        if not self._emitted:
            return []
        emitted = self._emitted[:]
        self._emitted.clear()
        return emitted


class Undoing:
    """Takes events out of what a loop has done. `took` is told of each further one that fails on the way: it raises where that one
    cannot be taken out."""

    def __init__(self, program: Program, front: NotedLoop, took: Callable[[HandlerError], None]) -> None:
        self._front, self._took = front, took
        self._past = _Past(program, front)
        self._out: set[int] = set()
        self._queue: list[tuple[Key, int, Step | Dated]] = []
        self._pushed = 0
        self._timers: dict[Dated, None] = {}
        """What may or may not be pending from now on."""
        self.again = 0
        """So many steps were done again."""

    def take_out(self, root: int) -> None:
        """Between two steps: the loop is to stand where it would without that event, which has failed just now."""
        self._front.indexes.bring_up()
        self._take_tree(root)
        while self._queue:
            item = heappop(self._queue)[-1]
            if isinstance(item, Dated):
                self._look_at(item)
            elif item.waiting:
                item.waiting = False
                if item.root in self._out or not self._happens(item.dated):
                    self._delete(item)
                else:
                    self._do(item, new=False)
        self._front.indexes.brought_up()
        self._settle()

    def _take_tree(self, root: int) -> None:
        if self._front.begins(root) is None:
            raise CannotUndo
        self._out.add(root)
        for step in self._front.tree(root):
            self._wait(step)

    def _push(self, key: Key, item: Step | Dated) -> None:
        self._pushed += 1
        heappush(self._queue, (key, self._pushed, item))

    def _wait(self, step: Step) -> None:
        if not step.waiting:
            step.waiting = True
            self._push(step.key, step)

    # --- steps ------------------------------------------------------------------------------------

    def _happens(self, dated: Dated | None) -> bool:
        """Whether something dated happens, as far as the steps before it are right. What is not dated does."""
        if dated is None or dated.note is WITHDRAWN or dated.root in self._out:
            return dated is None
        if dated.timer is None:
            return True
        return self._front.agenda.cells.before(dated.timer, self._number_at(key_of(dated))) is dated

    def _look_at(self, dated: Dated) -> None:
        """Have something dated happen, if it should have, or not."""
        step, key, due = dated.note, key_of(dated), self._happens(dated)
        if isinstance(step, Step):
            if not due:
                self._delete(step)
        elif due:
            self._do(Step(self._between(key), key, dated.root, dated.event, dated.handlers, dated), new=True)

    def _place(self, key: Key) -> int:
        return bisect_left(self._front.order, key, key=_key_of)

    def _number_at(self, key: Key) -> int:
        """The number of the step that stands there, or next after it."""
        place = self._place(key)
        return self._front.order[place].number if place < len(self._front.order) else self._front._number

    def _between(self, key: Key) -> int:
        """A number for a step that is to stand there."""
        place = self._place(key)
        after = self._number_at(key)
        before = self._front.order[place - 1].number if place else after - 2
        room = after - before
        if room < 2 or not place:
            raise CannotUndo
        return before + max(1, room >> _ROOM)

    def _do(self, step: Step, *, new: bool) -> None:
        """Do a step again, or for the first time, where it stands."""
        self.again += 1
        past, front = self._past, self._front
        try:
            refusal = past.do(step)
        except HandlerError as failure:
            self._took(failure)
            self._take_tree(failure.seq)
            return
        if new:
            self._enter(step)
        step.emitted, step.refusal = past.take_emitted(), refusal
        agenda = past.agenda
        if not agenda.as_before():
            self._date(step, agenda.dates)
        if step.dated is not None and step.dated.timer is not None:
            agenda.timers.setdefault(step.dated.timer, _GONE)
        unwritten: list[tuple[Cells, Any]] = []
        for data, key, _ in step.wrote:
            cells, left = past.left_in[id(data)]
            if key not in left:
                unwritten.append((cells, key))
        for cells, key in dict.fromkeys(unwritten):
            self._change(cells, key, step.number, *cells.unwrite(step, key))
        for cells, left in past.left:
            for key, value in left.items() if left else ():
                value = ABSENT if value is _GONE else value
                was = cells.rewrite(step, key, value)
                if was is not value:
                    self._change(cells, key, step.number, was, value)
        if step.told or front.indexes.done:
            self._tell_all(step)
        reads = tuple(past.reads)
        if unwritten or reads != step.reads:
            self._read(step, reads)

    def _tell_all(self, step: Step) -> None:
        """Note what a step has done on keys of states whose operations are kept."""
        told = {
            here.operations.told(key): [operation for _, operation in own]
            for here, there in zip(self._front.indexes.done, self._past.done, strict=True)
            for key, own in there.own.items() if own
        }  # fmt: skip
        for one in {**dict.fromkeys(step.told), **told}:
            self._tell(one, step, told.get(one, []))
        step.told = tuple(told)

    def _enter(self, step: Step) -> None:
        front = self._front
        front.order.insert(self._place(step.key), step)
        front.indexes.steps[step.number] = step
        assert step.dated is not None
        step.dated.note, step.dated.alive = step, False

    def _delete(self, step: Step) -> None:
        front = self._front
        step.waiting = False
        del front.order[front.place_of(step)]
        if step.dated is not None:
            step.dated.note = WITHDRAWN if step.dated.note is WITHDRAWN else None
        if step.key[1] == Phase.LOG_EVENT:
            del front.own[step.root]
            front.outcome.events -= 1
        for dated in (*step.later, *step.dates):
            self._withdraw(dated)
        for cells, key in self._written(step):
            self._change(cells, key, step.number, *cells.unwrite(step, key))
        for told in step.told:
            self._tell(told, step, [])
        self._read(step, ())
        del front.indexes.steps[step.number]

    def _written(self, step: Step) -> list[tuple[Cells, Any]]:
        """What a step wrote."""
        cells_of = self._front.indexes.cells_of
        return list(dict.fromkeys((cells_of[id(data)], key) for data, key, _ in step.wrote))

    def _read(self, step: Step, now: tuple[Any, ...]) -> None:
        """Note what a step reads."""
        before, after = set(_pairs(step.reads)), set(_pairs(now))
        for index, key in before - after:
            index.remove(key, step.number)
        for index, key in after:
            index.add(key, step.number)
        step.reads = now

    # --- what is dated ----------------------------------------------------------------------------

    def _date(self, step: Step, dates: Sequence[Dated]) -> None:
        """Note what a step dates now."""
        front = self._front
        stays = {id(dated) for dated in dates}
        for dated in step.dates:
            if id(dated) not in stays:
                self._withdraw(dated)
        for place, dated in enumerate(dates, len(step.later) + 1):
            if dated.issue == 0:
                dated.issue = front.agenda.issue(step.number, place)
                if dated.write is not None:
                    dated.write = (front.states[dated.name], *dated.write[1:])
                self._timers[dated] = None
                if key_of(dated) < front.frontier:
                    dated.alive = False
                    self._push(key_of(dated), dated)
                else:
                    front.agenda.put(dated)
        step.dates = dates

    def _withdraw(self, dated: Dated) -> None:
        """What dated it does so no more."""
        step, dated.note = dated.note, WITHDRAWN
        self._timers[dated] = None
        if isinstance(step, Step):
            self._wait(step)

    # --- cells ------------------------------------------------------------------------------------

    def _change(self, cells: Cells, key: Any, number: int, old: Any, new: Any) -> None:
        """What a key holds after a step has changed: who read it is to do so again."""
        if cells is self._front.agenda.cells:
            if old is not new:
                self._changed_timer(old)
                self._changed_timer(new)
            return
        if same(old, new):
            return
        until = cells.next_writer(key, number)
        if key in cells.readers.found:
            self._do_again(cells.readers, key, number, until)
        if until is not None and cells.reads(step := self._front.indexes.steps[until], key):
            self._wait(step)
        if cells.wide.found or cells.back.found:
            for index, read in cells.read_wide(key):
                self._do_again(index, read, number)

    def _tell(self, told: Told, step: Step, done: list[Operation]) -> None:
        """What a step has done on a key, of a state whose operations are kept."""
        if not same(told.of(step.number), done):
            told.put(step.number, step.key[0], done)
            for key in (told.key, Operations.ALL):
                self._do_again(told.operations.readers, key, step.number)

    def _changed_timer(self, dated: Any) -> None:
        if dated is not ABSENT:
            self._timers[dated] = None
            if key_of(dated) < self._front.frontier:
                self._push(key_of(dated), dated)

    def _do_again(self, index: Index, key: Any, after: int, until: int | None = None) -> None:
        """Have the steps that read it done again, of those after one up to and including another."""
        readers, steps = index.numbers(key), self._front.indexes.steps
        end = len(readers) if until is None else bisect_right(readers, until)
        for place in range(bisect_right(readers, after), end):
            self._wait(steps[readers[place]])

    def _settle(self) -> None:
        """Have the loop stand where the last of its steps left it."""
        front = self._front
        for dated in self._timers:
            pending = dated.note is None and key_of(dated) > front.frontier
            if pending and dated.timer is not None:
                pending = front.agenda.cells.data.get(dated.timer) is dated
            dated.alive = pending
        self._timers = {}
