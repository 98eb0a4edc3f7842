"""Looking into a run of a program that reaches into other times: by the serial loop, from the log's beginning.

Ticks, dated events and the calls of `after=` handlers are steps as log events are, and are looked at in the same way. What
windows and looks back give is told with the place that they look at, so that the writes that count can be found.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from timelapse.errors import HandlerError, ReplayError
from timelapse.ids import INT64_MAX, Phase, Position
from timelapse.kernels.base import Tick
from timelapse.kernels.walk import counted
from timelapse.kinds.base import State
from timelapse.kinds.past import Window
from timelapse.log.without import reader_without
from timelapse.model.events import Event
from timelapse.observed import Did, ObservedLoop, Observer
from timelapse.program.program import HandlerSpec, spec_of
from timelapse.progress import Progress, Silent
from timelapse.results.stored import StoredRun
from timelapse.segments.reader import EventReader
from timelapse.segments.types import heard
from timelapse.serial import Backing
from timelapse.trace.knowledge import Place
from timelapse.trace.steps import DatedWrite, EventTrace
from timelapse.trace.steps import Tick as TickEvent
from timelapse.trace.telling import going
from timelapse.trace.views import Chosen, View, Watch, chosen, named, view_name, view_of
from timelapse.trace.writes import Step, Writes, Written

if TYPE_CHECKING:
    from timelapse.trace.tracer import Tracer


def reaches(run: StoredRun) -> bool:
    """Whether its program reaches into other times."""
    return bool(spec_of(run.need_program()).times)


Go = Callable[[tuple[HandlerSpec, ...]], None]
"""Does a step, with the handlers that it is given in place of its own."""
Observe = Callable[["Watched", Step, Go], None]


class Watched(Observer):
    """Goes through a run by the serial loop. `observe` is given the steps that are `wanted`, and does them."""

    def __init__(self, run: StoredRun, backing: Backing | None = None) -> None:
        self.loop = ObservedLoop(run.need_program(), self, backing)
        self._run = run
        self.number = -1
        self.tick: Tick = lambda events: None
        """Told of so many events, now and then."""
        self.wanted: Callable[[Step], bool] = lambda step: False
        self.observe: Observe | None = None
        self.watch: Watch | None = None
        """Given while a step is observed: has a state tell what it is asked."""
        self.views: dict[str, View] = {}
        """What the names of views stand for that were made while the last step was observed."""
        self.shown: Chosen = {}
        """What windows showed, while the last step was observed, that show one of several values."""
        self.writes = Writes(self.loop.outcome.states, self.loop.past.records)
        self._in_tick = False

    def go(self, done: Callable[[Watched], bool], before: int | None = None) -> None:
        """From the log's beginning until it is `done`, or to the end; or to before everything at a time."""
        run, loop = self._run, self.loop
        reader = reader_without(run.need_reader(), run.stored_quarantined()["seq"].to_pylist())
        first, last = reader.ts_first, reader.ts_before(INT64_MAX)
        if first is None or last is None:
            return
        loop.begin(first)
        classes: dict[str, type[Event]] = {
            c.__name__: c for c in heard(spec_of(run.need_program()), reader.types)
        }
        end = INT64_MAX if before is None else reader.seq_at(before)
        try:
            for one in self._logged(reader, end, classes):
                loop.step(one)
                loop.outcome.outputs.clear()
                loop.outcome.refused.clear()
                if done(self):
                    return
            until = run.manifest.until
            stop = last if until is None else max(last, until)
            loop.advance(stop if before is None else min(stop, before - 1))
        except HandlerError as error:
            raise ReplayError(
                "a handler failed where it did not fail before", hint=str(error), code="TL607"
            ) from error  # fmt: skip

    def _logged(self, reader: EventReader, end: int, classes: Mapping[str, type[Event]]) -> Iterable[Event]:
        """The events of the log that are gone through."""
        return counted(reader.events(0, end, classes), self.tick)

    # --- steps ----------------------------------------------------------------------------------------

    def step(
        self, at: Position, event: Event | None, handlers: tuple[HandlerSpec, ...],
        do: Callable[[tuple[HandlerSpec, ...]], Did],
    ) -> None:  # fmt: skip
        """See Observer."""
        ts, phase, root, ordinal = at
        self.number, self._in_tick = self._next_number(at, handlers), phase == Phase.TICK
        shown = TickEvent()._at(ts, root) if event is None else event
        if phase == Phase.DATED_EVENT:  # an `after=` handler's event is told at its own time
            shown = shown._at(ts, root)
        step = Step(self.number, shown, handlers, ts, phase, root, ordinal)

        def go(own: tuple[HandlerSpec, ...]) -> None:
            self._did(step, do(own))

        if self.observe is not None and self.wanted(step):
            self.views.clear()
            self.shown.clear()
            self._observed(step, go)
        else:
            self._unobserved(step, go)

    def _observed(self, step: Step, go: Go) -> None:
        assert self.observe is not None
        self.observe(self, step, go)

    def _unobserved(self, step: Step, go: Go) -> None:
        go(step.handlers)

    def _next_number(self, at: Position, handlers: tuple[HandlerSpec, ...]) -> int:
        """The number of the step that begins."""
        return self.number + 1

    def write(self, at: Position, state: str, do: Callable[[], Did]) -> None:
        """See Observer."""
        self.number += 1
        shown = DatedWrite(state=state)._at(at.ts, at.seq)
        self._did(Step(self.number, shown, (), at.ts, at.phase, at.seq, 0), do())

    def _did(self, step: Step, did: Did) -> None:
        self.writes.committed(step, did.wrote, did.operations)

    # --- what states ask for --------------------------------------------------------------------------

    def looked(self, state: State, how: str, argument: int, view: Any) -> Any:
        """The view, telling its reads if somebody observes the step."""
        watch = self.watch
        if watch is None:
            return view
        spec, name = named(state._spec, view_name(how, argument)), state._spec.name
        shows = view_of(name, how, argument, self.loop.now(), in_tick=self._in_tick)
        self.views[spec.name] = shows
        if isinstance(view, Window):
            rebuilt, chooses = view._rebuilt, spec.kind.window_form in ("best", "first")

            def noting(keys: Iterable[Any]) -> Any:
                wanted = list(keys)
                if chooses and len(wanted) == 1 and (spec.name, wanted[0]) not in self.shown:
                    past = self.loop.past
                    self.shown[spec.name, wanted[0]] = chosen(
                        state, wanted[0], past.records[name], shows.since, past.done, before=self._in_tick
                    )
                return watch(spec, rebuilt(wanted))

            return Window(view._spec, noting, view._keys)
        return watch(spec, view)


class Target(NamedTuple):
    """Where the steps are that somebody wants to see.

    `seqs`: they are these log events, or stem from them; `tick`: or they are ticks at this time. `before`: they come
    before everything at this time; None: that is not known. `ticks`: beside those of `seqs`, ticks at these times.
    """

    seqs: tuple[int, ...] = ()
    tick: int | None = None
    before: int | None = None
    ticks: tuple[int, ...] = ()


class Told(NamedTuple):
    """A step that was observed."""

    step: Step
    trace: EventTrace


def seen_by(
    loop: Watched, tracer: Tracer, wanted: Callable[[Step], bool], enough: Callable[[list[Told]], bool],
    before: int | None,
) -> list[Told]:  # fmt: skip
    """Go through the log, observing the steps that are wanted, until they are enough, or to before everything at a time."""
    found: list[Told] = []

    def observe(loop: Watched, step: Step, go: Go) -> None:
        found.append(Told(step, tracer.observed(loop, step, go)))

    loop.wanted, loop.observe = wanted, observe
    loop.go(lambda own: enough(found), before)
    return found


def written_by(
    loop: Watched, places: Collection[Place], number: int | None, before: int | None
) -> tuple[dict[Place, list[Written]], dict[Place, list[Step]]]:
    """Every write of the places before a step (by its number), or before everything at a time, oldest first; and the steps of
    all operations on the places, where windows need them."""
    loop.writes.follow(places)
    loop.go(lambda own: number is not None and own.number >= number, before)
    found = {
        place: [w for w in loop.writes.written.get(place, ()) if number is None or w.step.number < number]
        for place in places
    }
    return found, loop.writes.offered


class Ask(NamedTuple):
    """Who wrote a place before a step (by its number; None: to the end), of what is shown `until` a time (None: until then)?"""

    place: Place
    number: int | None = None
    until: int | None = None


Newest = tuple[dict[Ask, list[Written]], dict[Place, list[Step]]]
"""The newest writes for each question, oldest first; and the steps of all operations on the places, where windows need them."""


class Way(Protocol):
    """A way of looking into a run: by all of its log, or by what matters of it."""

    def observed(
        self, tracer: Tracer, target: Target, wanted: Callable[[], Callable[[Step], bool]],
        enough: Callable[[list[Told]], bool],
    ) -> list[Told]:  # fmt: skip
        """The steps that are wanted: see `seen_by`. `wanted` gives the test anew, should the way be gone several times."""

    def newest(self, asks: Collection[Ask], before: int | None, last: int) -> Newest:
        """Who wrote, before everything at a time: the newest `last` writes at least. What counts of them is the caller's part."""

    def events(self, steps: Iterable[Step]) -> dict[int, Event]:
        """The events of steps with all their fields, by number."""


class All:
    """By the serial loop over all of the log, from its beginning."""

    def __init__(
        self, run: StoredRun, progress: Progress | None = None, why: str = "", *, end: int | None = None
    ) -> None:
        """`why`: why nothing quicker tells, in a few words. `end`: events from there on are not asked about."""
        self._run, self._progress, self._why = run, progress or Silent(), why
        self._events = run.events if end is None else min(end, run.events)

    @contextmanager
    def _loop(self) -> Iterator[Watched]:
        """A loop that tells how far it is."""
        loop = Watched(self._run)
        slowly = "this goes by the serial loop, as Python, from the log's beginning" + (
            self._why and f" ({self._why})"
        )
        with going(self._progress, "the serial loop", self._events, slowly=slowly) as loop.tick:
            yield loop

    def observed(
        self, tracer: Tracer, target: Target, wanted: Callable[[], Callable[[Step], bool]],
        enough: Callable[[list[Told]], bool],
    ) -> list[Told]:  # fmt: skip
        """See Way."""
        with self._loop() as loop:
            return seen_by(loop, tracer, wanted(), enough, target.before)

    def newest(self, asks: Collection[Ask], before: int | None, last: int) -> Newest:
        """See Way."""
        return of_asks(asks, lambda places, number: self._writes(places, number, before))

    def _writes(
        self, places: Collection[Place], number: int | None, before: int | None
    ) -> tuple[dict[Place, list[Written]], dict[Place, list[Step]]]:
        with self._loop() as loop:
            return written_by(loop, places, number, before)

    def events(self, steps: Iterable[Step]) -> dict[int, Event]:
        """See Way."""
        return {s.number: s.event for s in steps}


def of_asks(
    asks: Collection[Ask],
    writes: Callable[
        [Collection[Place], int | None], tuple[dict[Place, list[Written]], dict[Place, list[Step]]]
    ],
) -> Newest:
    """The answers from all writes of the places before a step."""
    numbers = [ask.number for ask in asks if ask.number is not None]
    found, offered = writes(
        {ask.place for ask in asks}, max(numbers) if len(numbers) == len(asks) > 0 else None
    )
    return {
        ask: [w for w in found[ask.place] if ask.number is None or w.step.number < ask.number] for ask in asks
    }, offered


def counting(found: Sequence[Written], view: View | None) -> list[Written]:
    """Those that a read shows, newest first."""
    return [w for w in reversed(found) if view is None or view.shows(w.step.ts)]


__all__ = [
    "All",
    "Ask",
    "Newest",
    "Step",
    "Target",
    "Told",
    "Watched",
    "Way",
    "Written",
    "counting",
    "of_asks",
    "reaches",
    "seen_by",
    "written_by",
]
