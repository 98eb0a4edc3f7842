"""Looking into a run of a program that reaches into other times: by the serial loop, from the log's beginning.

Ticks, dated events and the calls of `after=` handlers are steps as log events are, and are looked at in the same way. What
windows and looks back give is told with the place that they look at, so that the writes that count can be found.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from timelapse.errors import HandlerError, ReplayError
from timelapse.ids import INT64_MAX, Phase
from timelapse.kinds.base import ABSENT, State
from timelapse.kinds.extremum import Extremum
from timelapse.kinds.first import First
from timelapse.kinds.past import Window
from timelapse.log.types import heard
from timelapse.model.agenda import Dated
from timelapse.model.events import Event
from timelapse.model.program import HandlerSpec, spec_of
from timelapse.run.run import Run
from timelapse.run.takeout import reader_without
from timelapse.serial import Loop
from timelapse.trace.steps import DatedWrite, Tick
from timelapse.trace.views import Chosen, Shown, View, Watch, ago_name, at_name, last_name, named

Place = tuple[str, Any]
"""A state's name and a key."""


def reaches(run: Run) -> bool:
    """Whether its program reaches into other times."""
    return bool(spec_of(run.need_program()).times)


@dataclass(frozen=True)
class Step:
    """Something that happens: a log event with what derives from it, a dated event, a tick, a dated write.

    `number` counts all of them from the log's beginning; `ordinal` is that of the first record that it would put out.
    """

    number: int
    event: Event
    handlers: tuple[HandlerSpec, ...]
    ts: int
    phase: int
    root: int
    ordinal: int

    def is_called(self, name: str) -> bool:
        """Whether this is the event's type, or a handler of the step that no plain log event calls."""
        timed = (h for h in self.handlers if h.every is not None or h.after is not None)
        return type(self.event).__name__ == name or any(h.name == name for h in timed)


@dataclass(frozen=True)
class Written:
    """A step wrote a key: what that held before and after, ABSENT for nothing."""

    step: Step
    before: Any
    after: Any


Go = Callable[[tuple[HandlerSpec, ...]], None]
"""Does a step, with the handlers that it is given in place of its own."""
Observe = Callable[["Watched", Step, Go], None]


class Watched(Loop):
    """The serial loop, with somebody watching. `observe` is given the steps that are `wanted`, and does them."""

    def __init__(self, run: Run) -> None:
        super().__init__(run.need_program())
        self._run = run
        self.number = -1
        self.wanted: Callable[[Step], bool] = lambda step: False
        self.observe: Observe | None = None
        self.watch: Watch | None = None
        """Given while a step is observed: has a state tell what it is asked."""
        self.views: dict[str, View] = {}
        """What the names of views stand for that were made while the last step was observed."""
        self.places: Mapping[str, Collection[Any]] = {}
        self.written: dict[Place, list[Written]] = {}
        """The writes of the places, oldest first."""
        self.shown: Chosen = {}
        """What windows showed, while the last step was observed, that show one of several values."""
        self.offered: dict[Place, list[Step]] = {}
        """The steps of all operations on places, also of those that changed nothing; oldest first."""
        self._names = {id(data): name for name, data in self.outcome.states.items()}
        self._step: Step | None = None

    def go(self, done: Callable[[Watched], bool], before: int | None = None) -> None:
        """From the log's beginning until it is `done`, or to the end; or to before everything at a time."""
        run = self._run
        reader = reader_without(run.need_reader(), run.stored_quarantined()["seq"].to_pylist())
        first, last = reader.ts_first, reader.ts_before(INT64_MAX)
        if first is None or last is None:
            return
        self.begin(first)
        classes: dict[str, type[Event]] = {
            c.__name__: c for c in heard(spec_of(run.need_program()), reader.types)
        }
        end = INT64_MAX if before is None else reader.seq_at(before)
        try:
            for one in reader.events(0, end, classes):
                self.step(one)
                self.outcome.outputs.clear()
                self.outcome.refused.clear()
                if done(self):
                    return
            until = run.manifest.until
            stop = last if until is None else max(last, until)
            self.advance(stop if before is None else min(stop, before - 1))
        except HandlerError as error:
            raise ReplayError(
                "a handler failed where it did not fail before", hint=str(error), code="TL607"
            ) from error  # fmt: skip

    # --- steps ----------------------------------------------------------------------------------------

    def _transaction(
        self, event: Event | None, handlers: tuple[HandlerSpec, ...], ts: int, phase: int, root: int
    ) -> None:
        self.number += 1
        ordinal = self._ordinal if self._last == (ts, phase, root) else 0
        shown = Tick()._at(ts, root) if event is None else event
        if (
            phase == Phase.DATED_EVENT
        ):  # an `after=` handler is given the event of the log: it is told at its own time
            shown = shown._at(ts, root)
        step = self._step = Step(self.number, shown, handlers, ts, phase, root, ordinal)
        if self.observe is not None and self.wanted(step):
            plain = super()._transaction
            self.views.clear()
            self.shown.clear()
            self.observe(self, step, lambda own: plain(event, own, ts, phase, root))
        else:
            super()._transaction(event, handlers, ts, phase, root)

    def _write(self, dated: Dated) -> None:
        self.number += 1
        shown = DatedWrite(state=dated.name)._at(dated.due, dated.root)
        self._step = Step(self.number, shown, (), dated.due, Phase.DATED_WRITE, dated.root, 0)
        super()._write(dated)

    def _commit(self, ts: int) -> None:
        if self.places and self._journal:
            self._keep_writes()
        if self.places and self._done:
            assert self._step is not None
            for name, record in self._records.items():
                wanted = self.places.get(name, ())
                for key in (k for done, k in self._done if done is record and k in wanted):
                    self.offered.setdefault((name, key), []).append(self._step)
        super()._commit(ts)

    def _undo(self) -> None:
        super()._undo()
        self._done.clear()

    def _keep_writes(self) -> None:
        assert self._step is not None
        first: dict[Place, tuple[Any, Any]] = {}
        for table, key, old in self._journal:
            name = self._names.get(id(table))
            if name is not None and key in self.places.get(name, ()):
                first.setdefault((name, key), (old, table.get(key, ABSENT)))
        for place, (before, after) in first.items():
            if before is ABSENT and after is ABSENT:
                continue  # nothing, where nothing was
            self.written.setdefault(place, []).append(Written(self._step, before, after))

    # --- what states ask for --------------------------------------------------------------------------

    def ago(self, state: State, lag: int) -> Any:
        return self._told(super().ago(state, lag), state, ago_name(lag), None, self._now - lag)

    def last(self, state: State, width: int) -> Any:
        return self._told(super().last(state, width), state, last_name(width), self._now - width, None)

    def at(self, state: State, at: int) -> Any:
        return self._told(super().at(state, at), state, at_name(at), None, at)

    def _told(self, view: Any, state: State, how: str, since: int | None, until: int | None) -> Any:
        """The view, telling its reads if somebody observes the step."""
        watch = self.watch
        if watch is None:
            return view
        spec = named(state._spec, how)
        self.views[spec.name] = View(state._spec.name, since, until, self._phase == Phase.TICK)
        if isinstance(view, Window):
            rebuilt, chooses = view._rebuilt, issubclass(spec.kind, Extremum | First)

            def noting(keys: Iterable[Any]) -> Any:
                wanted = list(keys)
                if chooses and len(wanted) == 1 and (spec.name, wanted[0]) not in self.shown:
                    self.shown[spec.name, wanted[0]] = self._chosen(state, wanted[0], since)
                return watch(spec, rebuilt(wanted))

            return Window(view._spec, noting, view._keys)
        return watch(spec, view)

    def _chosen(self, state: State, key: Any, since: int | None) -> Shown | None:
        """The operation whose value a window shows: the last that made something of those before it."""
        record, kept = self._records[state._spec.name], _Kept()
        times, operations = record.of(key, since or 0, before=self._in_tick)
        alone: Any = state._spec.kind(state._spec, kept)
        for number, (method, arguments, named_) in enumerate(operations):
            kept.number = number
            getattr(alone, method)(*arguments, **named_)
        if kept.found is None:
            return None
        own = sum(done is record and k == key for done, k in self._done)
        back = len(operations) - kept.found
        return Shown(times[kept.found], back - own, back <= own)


class _Kept:
    """What operations make of nothing under one key, and which of them left what is there."""

    def __init__(self) -> None:
        self._data: dict[Any, Any] = {}
        self.get = self._data.get
        self.items = self._data.items
        self.number = 0
        self.found: int | None = None

    def put(self, key: Any, value: Any) -> None:
        self._data[key], self.found = value, self.number

    def drop(self, key: Any) -> None:
        self._data.pop(key, None)
        self.found = None

    def side(self, table: dict[Any, Any], key: Any, value: Any) -> None:
        raise TypeError("no index is kept for one value")


def observe(
    run: Run, observer: Observe, wanted: Callable[[Step], bool], done: Callable[[Watched], bool],
    before: int | None = None,
) -> None:  # fmt: skip
    """Go through the log, observing the steps that are wanted, until it is done, or to before everything at a time."""
    loop = Watched(run)
    loop.wanted, loop.observe = wanted, observer
    loop.go(done, before)


def writes(
    run: Run, places: Collection[Place], number: int | None = None, before: int | None = None
) -> dict[Place, list[Written]]:
    """Every write of the places before a step (by its number), or before everything at a time, oldest first."""
    return writes_and_offers(run, places, number, before)[0]


def writes_and_offers(
    run: Run, places: Collection[Place], number: int | None = None, before: int | None = None
) -> tuple[dict[Place, list[Written]], dict[Place, list[Step]]]:
    """The same, and the steps of all operations on the places, where windows need them."""
    loop = Watched(run)
    wanted: dict[str, set[Any]] = {}
    for name, key in places:
        wanted.setdefault(name, set()).add(key)
    loop.places = wanted
    loop.go(lambda own: number is not None and own.number >= number, before)
    found = {
        place: [w for w in loop.written.get(place, ()) if number is None or w.step.number < number]
        for place in places
    }
    return found, loop.offered


def counting(found: Sequence[Written], number: int, view: View | None) -> list[Written]:
    """Those before a step that a read of it shows, newest first."""
    return [w for w in reversed(found) if w.step.number < number and (view is None or view.shows(w.step.ts))]


__all__ = ["Step", "Watched", "Written", "counting", "observe", "reaches", "writes", "writes_and_offers"]
