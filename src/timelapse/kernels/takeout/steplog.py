"""What each recent step of the serial loop read, wrote and dated, so that some can be taken out and others done again.

A step is one log event with what derives from it, one dated event, dated write or tick. Steps are numbered in the order in
which they happen, with room between any two for steps that turn out to belong there. A step has what the keys that it wrote held
before. Which steps touch a key is put into indexes when somebody asks (kernels/takeout/cells.py): in most logs few do.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from typing import Any

from timelapse.errors import HandlerError
from timelapse.ids import Phase
from timelapse.kernels.takeout.cells import Written
from timelapse.kernels.takeout.indexes import Indexes
from timelapse.kernels.takeout.looking import Told
from timelapse.kernels.takeout.noted import NotedAgenda, NotedBacking, NotedStore
from timelapse.kernels.takeout.quick import QuickLoop
from timelapse.kernels.tuning import TAKING, TakingTuning
from timelapse.model.events import Event, Record
from timelapse.program.agenda import Dated
from timelapse.program.program import HandlerSpec, Program
from timelapse.program.times import kept
from timelapse.serial import Refusal

GAP = (1 << 32) + 1
"""Between the numbers of two steps that follow each other. Odd: multiples of a power of two would all collide in dicts."""

LOG_EVENT, DATED_EVENT = Phase.LOG_EVENT, Phase.DATED_EVENT

Key = tuple[int, int, int, tuple[Any, ...]]
"""Where a step stands: time, phase, then the place of a tick, the seq of a log event or the root of a dated one, and for what
is dated its number of issue."""

_number_of = attrgetter("number")

WITHDRAWN = object()
"""In the place of the step in which something dated happened: what dated it does so no more."""


class Step:
    """One step, and what came of it.

    `later`: calls of `after=` handlers: they come of the event whatever its handlers do. `reads`: each index (cells.Index) of readers
    with the key, one after the other. `wrote`: what keys held before, timers too; of several entries of a key the first one counts.
    `told`: of which keys, of states whose operations are kept, it did any. `waiting`: whether it is to be done again.
    """

    __slots__ = (
        "dated", "dates", "emitted", "event", "handlers", "key", "later", "number", "reads", "refusal", "root", "told",
        "waiting", "wrote",
    )  # fmt: skip

    def __init__(
        self, number: int, key: Key, root: int, event: Event | None, handlers: tuple[HandlerSpec, ...], dated: Dated | None
    ) -> None:  # fmt: skip
        self.number, self.key, self.root = number, key, root
        self.event, self.handlers, self.dated = event, handlers, dated
        self.later: Sequence[Dated] = ()
        self.reads: tuple[Any, ...] = ()
        self.wrote: Sequence[Written] = ()
        self.told: Sequence[Told] = ()
        self.dates: Sequence[Dated] = ()
        self.emitted: Sequence[Record] = ()
        self.refusal: Refusal | None = None
        self.waiting = False


def key_of(dated: Dated) -> Key:
    """Where something dated stands."""
    if dated.write is not None:
        return (dated.due, Phase.DATED_WRITE, 0, dated.issue)
    return (dated.due, Phase.DATED_EVENT, dated.root, dated.issue)


class NotedLoop(QuickLoop):
    """The serial loop, which keeps its recent steps.

    `wanted`: takes what a step put out once nothing can change it any more; None: nobody wants that.
    """

    def __init__(
        self, program: Program, wanted: Callable[[Step], None] | None, tuning: TakingTuning = TAKING
    ) -> None:
        self.reads: list[Any] = []
        """What the step under way reads, as steps have it."""
        self._number = GAP
        self.widths = kept(program)
        self.order: list[Step] = []
        """All steps that are kept."""
        self._looks = bool(self.widths)
        self.indexes = Indexes(self.order, looks=self._looks)
        super().__init__(program, NotedBacking(self))
        self.agenda = self._agenda = NotedAgenda(self)
        self.agenda.number = self._number
        self._wanted = wanted
        self._places = {id(h): n for n, (h, _) in enumerate(self._calendars)}
        self.stores: dict[str, NotedStore] = dict(self._stores)  # type: ignore[arg-type]
        for cells in (self.agenda.cells, *(store.cells for store in self.stores.values())):
            self.indexes.add(cells)
        self.own: dict[int, Step] = {}
        """Those of log events, by seq."""
        self.frontier: Key = (0, 0, 0, ())
        """Where the step under way stands, or the latest one."""
        self.keeps = True
        """Whether steps are kept to take some out, or as few as can be."""
        self._kept, self._tuning = 0, tuning
        self._later: Sequence[Dated] = ()
        """The calls of `after=` handlers that the log event under way comes with."""

    # --- steps ------------------------------------------------------------------------------------
    # What the serial loop does, with fewer calls for each step.

    def step(self, event: Event) -> None:
        ts, agenda, cls = event.ts, self.agenda, type(event)
        if agenda.writes or self._calendars or (agenda.events and agenda.events[0][0] <= ts):
            self.advance(ts)
        self.outcome.events += 1
        calls = self._after.get(cls)
        if calls is None:
            self._transaction(event, self.handlers.get(cls, ()), ts, LOG_EVENT, event.seq)
            return
        for handler, lag in calls:
            agenda.date(
                Dated(ts + lag, event.seq, 0, handler.name, handler.name, event=event, handlers=(handler,))
            )
        self._later, agenda.dates = agenda.dates, []
        try:
            self._transaction(event, self.handlers.get(cls, ()), ts, LOG_EVENT, event.seq)
        except HandlerError:
            for dated in self._later:
                dated.alive = False
            raise
        finally:
            self._later = ()

    def advance(self, to: int) -> None:
        if self._calendars:
            super().advance(to)
            return
        agenda = self.agenda
        writes, events = agenda.writes, agenda.events
        while True:
            if writes and not (events and events[0][0] < writes[0][0]):
                at = writes[0][0]
            elif events:
                at = events[0][0]
            else:
                return
            if at > to:
                return
            if writes:
                for dated in agenda.writes_due(at):
                    self._write(dated)
            if events and events[0][0] == at:
                for dated in agenda.events_due(at):
                    self._transaction(dated.event, dated.handlers, at, DATED_EVENT, dated.root)

    def _transaction(
        self, event: Event | None, handlers: tuple[HandlerSpec, ...], ts: int, phase: int, root: int
    ) -> None:
        agenda, dated = self.agenda, None
        if phase == LOG_EVENT:
            key: Key = (ts, phase, root, ())
        elif phase == DATED_EVENT:
            dated = agenda.current
            key = (ts, phase, root, dated.issue)  # type: ignore[union-attr]
        else:
            key = (ts, phase, self._places[id(handlers[0])], ())
        self.frontier = key
        refusal = self._handle(event, handlers, ts, phase, root)
        step = Step(self._number, key, root, event, handlers, dated)
        if refusal is not None:
            step.refusal = refusal
        if self._emitted:
            step.emitted = self._emitted[:]
            self._emitted.clear()
        if phase == LOG_EVENT:
            if self._later:
                step.later = self._later
            self.own[root] = step
        elif dated is not None:
            dated.note = step
        self._note(step)

    def _write(self, dated: Dated) -> None:
        self.frontier = key_of(dated)
        super()._write(dated)
        dated.note = step = Step(self._number, self.frontier, dated.root, None, (), dated)
        self._note(step)

    def _note(self, step: Step) -> None:
        agenda, journal, reads, number = self.agenda, self._journal, self.reads, self._number
        if reads:
            step.reads = tuple(reads)
            reads.clear()
        if agenda.set:
            step.wrote = (*journal, *agenda.set)
            agenda.set.clear()
            agenda.back.clear()
            journal.clear()
        elif journal:
            step.wrote = tuple(journal)
            journal.clear()
        if agenda.dates:
            step.dates = agenda.dates
            agenda.dates = []
        self.order.append(step)
        self._number = agenda.number = number + GAP
        if agenda.place:
            agenda.place = 0
        if self._looks:
            self.past.done.clear()
            for done in self.indexes.done:
                if done.touched:
                    step.told = (
                        *step.told,
                        *(t for t in done.touched if t.numbers and t.numbers[-1] == number),
                    )
                    done.touched.clear()
            self.indexes.bring_up()

    def place_of(self, step: Step) -> int:
        """The place of a step that is kept."""
        return bisect_left(self.order, step.number, key=_number_of)

    def failed(self) -> None:
        """The step under way has raised, and never was."""
        self._number += GAP
        self.reads.clear()
        agenda = self.agenda
        agenda.number, agenda.place, agenda.dates = self._number, 0, []
        agenda.set.clear()
        agenda.back.clear()
        for done in self.indexes.done:
            done.touched.clear()

    def tree(self, root: int) -> Iterator[Step]:
        """The steps that stem from a log event, whose own is kept."""
        found = [self.own[root]]
        for step in found:
            found += (d.note for dates in (step.later, step.dates) for d in dates if isinstance(d.note, Step))
        return iter(found)

    # --- forgetting -------------------------------------------------------------------------------

    def begins(self, seq: int) -> Step | None:
        """A log event's own step, if it is kept."""
        return self.own.get(seq)

    def forget(self, most: int) -> bool:
        """Forget the steps that nothing pending can reach, unless there are few: whether no more than `most` have to be kept.

        Kept is what followed the first event that something pending stems from; and, as steps that are done again may
        fail too, what followed the first event that one of those steps stems from. Where it does not keep steps, all are forgotten.
        """
        order, few, part = self.order, self._tuning.few_steps, self._tuning.forgotten_part
        if len(order) < (min(2 * self._kept + few, most) if self.keeps else few):
            return True
        first = len(order)
        if self.keeps:
            first = self._first(self.oldest_root())
            roots = (s.root for s in order[first:] if s.root >= 0)
            first = min(first, self._first(min(roots, default=None)))
        if first * part >= len(order):
            self._forget(first)
        self._kept = len(order)
        return self._kept <= most - most // part

    def give_all(self) -> None:
        """Give away what all steps put out: nothing can change them any more. The loop is at its end."""
        if self._wanted is not None:
            for step in self.order:
                if step.emitted or step.refusal is not None:
                    self._wanted(step)

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
        self.indexes.remember(gone)
        del self.order[:first]
        for step in gone:
            if step.key[1] == LOG_EVENT:
                del self.own[step.root]
            if step.dated is not None:
                step.dated.note = None  # a cycle
            if self._wanted is not None and (step.emitted or step.refusal is not None):
                self._wanted(step)
        self.indexes.forget(gone, number, ts)

    def end(self) -> None:
        """Nothing of the steps is needed any more, nor what is pending. They are in cycles: the search for garbage would go through all of them."""
        for step in self.order:
            if step.dated is not None:
                step.dated.note = None
        self.indexes.clear()
        for held in (self.order, self.own, self.agenda.writes, self.agenda.events):
            held.clear()
