"""Looking into a run of a program that reaches into other times by the few events that matter: the serial loop over these alone.

What an event does to a key depends on the states that analysis names, under keys that mostly follow from the event. So a
step meets what it met in the run where the loop has done the events that may have written the keys that it reads, cut down to the
statements that write them, and before these what those read, and so on (matter.py): windows, calls of `after=` and all.
A read of a key that nobody has asked for yet is noticed, and asked for.

Where that cannot be said, or is too much, Unfocused is raised.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from timelapse.errors import TimelapseError
from timelapse.ids import Phase, Position
from timelapse.kernels.python.stores import NullStore
from timelapse.kinds.base import StateSpec
from timelapse.kinds.grouped import GROUPS, Grouped, Under
from timelapse.kinds.past import Done, History
from timelapse.model.events import Event
from timelapse.program.binding import bind
from timelapse.program.program import RUNTIME_NAMES, HandlerSpec
from timelapse.segments.reader import EventReader
from timelapse.serial import Backing, DictStore, Journal
from timelapse.trace import timed
from timelapse.trace.knowledge import Part, Place, Unfocused
from timelapse.trace.logged import events_at
from timelapse.trace.matter import Matter, place_of, under

if TYPE_CHECKING:
    from timelapse.trace.moments import Past
    from timelapse.trace.tracer import Tracer

T = TypeVar("T")

MOST, PATIENT = 20_000, 60_000
"""Events that are run for one question; more are quicker gone through compiled. The second where nothing else is left but the serial loop."""
_OFTEN = 2.5
"""So often as much as all of the log may be read for single events: to go through it from its beginning takes longer."""
_ALONE = ("last", "ago", "after", "every", "derive")
"""What programs may do that are looked into so."""


class _Unknown(BaseException):
    """A key was read that nobody has asked for yet. Handlers do not catch it, unless they catch everything."""


def number_of(ts: int, phase: int, root: int, place: int) -> int:
    """A step's number, which rises with the order of steps. `place`: the handler's, of what one handler is called for."""
    return (((ts << 3 | int(phase)) << 64 | (root + 1)) << 20) | place


class Few:
    """The events of a run that matter. What was found for one question is of use to the next about the same events."""

    def __init__(self, past: Past, end: int, *, patient: bool = False) -> None:
        """`end`: events from there on are not asked about. `patient`: nothing else is left but the serial loop. Raises Unfocused."""
        self.past = past
        if any(use.what not in _ALONE for use in past.spec.times):
            raise Unfocused("events and writes are dated")
        self.known = past.stepwise
        most = PATIENT if patient else MOST
        self.matter = Matter(past, self.known, 0, end, (), most, often=_OFTEN, patient=patient)
        self.refused = past.refused()
        self.asked: dict[int, Event] = {}
        """Events that are gone through as they are, with all their fields."""
        self._followed: tuple[FewLoop, int] | None = None
        """What noted the writes of some places, up to a step."""

    def observed(
        self, tracer: Tracer, target: timed.Target, wanted: Callable[[], Callable[[timed.Step], bool]],
        enough: Callable[[list[timed.Told]], bool],
    ) -> list[timed.Told]:  # fmt: skip
        """See timed.observed."""
        fresh = [seq for seq in target.seqs if seq not in self.asked]
        self.asked |= events_at(self.past.reader, self.past.program, sorted(fresh))
        for cls in {type(self.asked[seq]) for seq in fresh}:
            self.matter.expect(self.known.anywhere(cls, read=True))
        places = {p for seq in fresh for p in self.known.places_at(self.asked[seq])}
        used = {p for seq in fresh for p in self.known.used_at(self.asked[seq])}
        loops: list[FewLoop] = []

        def seen(loop: FewLoop) -> list[timed.Told]:
            loop.writes.follow({*places, *used})
            loops[:] = [loop]
            return timed.seen_by(loop, tracer, wanted(), enough, target.before)

        found = self._settled(places, seen, target.tick)
        self._followed = None
        if found and target.tick is None:
            self._followed = loops[0], max(told.step.number for told in found)
        return found

    def newest(self, asks: Collection[timed.Ask], before: int | None, last: int) -> timed.Newest:
        """See timed.Way: all of them."""
        known = self._noted(asks) if before is None else None
        return known or timed.of_asks(asks, lambda places, number: self.writes(places, number, before))

    def _noted(self, asks: Collection[timed.Ask]) -> timed.Newest | None:
        """The same of what was noted when steps were observed, if they are what is asked about: the events need not run again."""
        if self._followed is None or not asks:
            return None
        loop, until = self._followed
        for name, key in {ask.place for ask in asks}:
            needed = key if isinstance(key, Under) else place_of(self.past.spec.states[name], key)
            if key not in loop.writes.places.get(name, ()) or (name, needed) not in self.matter.places:
                return None
        if any(ask.number is None or ask.number > until for ask in asks):
            return None
        return {
            ask: [w for w in loop.writes.written.get(ask.place, ()) if w.step.number < (ask.number or 0)]
            for ask in asks
        }, loop.writes.offered

    def writes(
        self, places: Collection[Place], number: int | None, before: int | None
    ) -> tuple[dict[Place, list[timed.Written]], dict[Place, list[timed.Step]]]:
        """See timed.written_by."""
        specs = self.past.spec.states
        wanted = {
            (name, key if isinstance(key, Under) else place_of(specs[name], key)) for name, key in places
        }
        return self._settled(wanted, lambda loop: timed.written_by(loop, places, number, before), None)

    def _settled(self, places: Iterable[Place], attempt: Callable[[FewLoop], T], tick: int | None) -> T:
        """Try until nothing is read that is not known."""
        self.matter.demand(places)
        unknown: list[Place] = []
        for _ in self.matter.rounds(unknown):
            loop = FewLoop(self, tick)
            try:
                result = attempt(loop)
                if not loop.unknown:
                    return result
            except _Unknown:
                pass
            except (TimelapseError, ArithmeticError, LookupError, TypeError, ValueError) as error:
                if not loop.unknown:
                    own = _unfocused(error)
                    raise Unfocused(str(own) if own else f"it does not run alone: {error}") from error
            unknown[:] = loop.unknown
            self.matter.demand(unknown)
        raise AssertionError("rounds end with an error")

    def events(self, steps: Iterable[timed.Step]) -> dict[int, Event]:
        """The events of steps with all their fields, by number."""
        return events_of(self.past, steps)


def _unfocused(error: BaseException) -> Unfocused | None:
    """What a step raised under observation, where the engine has wrapped it as a handler's failure."""
    at: BaseException | None = error
    while at is not None and not isinstance(at, Unfocused):
        at = at.__cause__ or at.__context__
    return at


def events_of(past: Past, steps: Iterable[timed.Step]) -> dict[int, Event]:
    """The events of steps with all their fields, by number: what stems from one of the log at its own time."""
    own = {s.number: s for s in steps}
    seqs = sorted({s.root for s in own.values() if s.root >= 0})
    found = events_at(past.reader, past.program, seqs)
    return {
        n: s.event if s.root < 0 else found[s.root] if s.phase == Phase.LOG_EVENT else found[s.root]._at(s.ts, s.root)
        for n, s in own.items()
    }  # fmt: skip


class Cut:
    """What a part runs, on a loop's states."""

    def __init__(self, few: FewLoop, part: Part) -> None:
        work, loop, spec = part.work, few.loop, few.spec
        functions = {h.name: h.function for h in work.handlers}
        self.handlers = {
            h.name: replace(h, function=functions[h.name]) for h in spec.handlers if h.name in functions
        }
        self.at_once = {
            event: tuple(self.handlers[h.name] for h in found if h.name in self.handlers)
            for event, found in loop.handlers.items()
        }
        self.strict = part.strict
        states = {n: s if n in work.exact else few.ignored(n) for n, s in loop.states.items()}
        runtime = {n: loop.bound.__dict__[n] for n in RUNTIME_NAMES}
        self.bound = bind(loop.program, states, {**runtime, "emit": _nothing}, work.members)
        few.keep_time()


def _nothing(record: object) -> None:
    """A part puts nothing out."""


class FewLoop(timed.Watched):
    """The serial loop over the events that matter. Ticks matter at the time `tick` only."""

    def __init__(self, few: Few, tick: int | None) -> None:
        self._few = few
        self.unknown: list[Place] = []
        """What was read and is not known: also where a handler caught what was raised then."""
        self.strict: frozenset[str] = frozenset()
        """The states that are read only under keys that are known."""
        self.spec = few.past.spec
        super().__init__(few.past.run, _Asking(self))
        self._all = frozenset(self.spec.states)
        self._cuts: dict[frozenset[str], Cut] = {}
        self._ordered = {h.name: place for place, h in enumerate(self.spec.handlers)}
        self.loop.begin(tick)
        for name, spec in self.spec.states.items():
            if issubclass(spec.kind, Grouped):
                self._follow(self.loop.states[name], _Asked(self, spec))

    # --- what is read -----------------------------------------------------------------------------------

    def known(self, name: str) -> set[Any]:
        """The keys of a state that are known."""
        return {key for state, key in self._few.matter.places if state == name}

    def _follow(self, state: Any, asked: _Asked) -> None:
        """Have a state tell of which keys it is asked for all that stands under them."""
        state._own[GROUPS] = {}  # from here on it is kept up to date
        outer = state._outer

        def declared(key: Any) -> Any:
            checked = outer(key)
            asked.under(checked)
            return checked

        state._outer = declared

    def ignored(self, name: str) -> Any:
        """A state that does not matter."""
        spec = self.spec.states[name]
        state: Any = spec.kind(spec, NullStore())
        state._clock = self.loop
        return state

    def keep_time(self) -> None:
        """States that depend on the time take that of the step."""
        for state in self.loop.states.values():
            if state.uses_now:
                state._now = self.loop.now

    # --- what is done -----------------------------------------------------------------------------------

    def _logged(self, reader: EventReader, end: int, classes: Mapping[str, type[Event]]) -> Iterator[Event]:
        matter, asked = self._few.matter, self._few.asked
        whole = {seq for seq in asked if seq < end}
        cut = {seq: event for seq, event, _ in matter.prepared(sorted(s for s in matter.events if s < end))}
        for seq in sorted(cut.keys() | whole):
            yield asked[seq] if seq in whole else cut[seq]

    def _next_number(self, at: Position, handlers: tuple[HandlerSpec, ...]) -> int:
        """One that does not depend on which events matter, and rises with the order of steps."""
        place = 0 if at.phase == Phase.LOG_EVENT or not handlers else self._ordered[handlers[0].name]
        return number_of(at.ts, at.phase, at.seq, place)

    def _observed(self, step: timed.Step, go: timed.Go) -> None:
        with self._reading(self._all):
            super()._observed(step, go)

    def _unobserved(self, step: timed.Step, go: timed.Go) -> None:
        states, in_log = self._few.matter.events.get(step.root), step.phase == Phase.LOG_EVENT
        if states is None or (in_log and step.root in self._few.refused):
            return
        cut = self._cut(frozenset(states))
        own = tuple(cut.handlers[h.name] for h in step.handlers if h.name in cut.handlers)
        if not own:
            return
        loop = self.loop
        bound, at_once, before = loop.bound, loop.handlers, len(loop.outcome.refused)
        loop.bound, loop.handlers = cut.bound, cut.at_once
        try:
            with self._reading(cut.strict):
                go(own)
        finally:
            loop.bound, loop.handlers = bound, at_once
        if len(loop.outcome.refused) > before and in_log:
            raise Unfocused("an event is rejected that was not")

    def _cut(self, states: frozenset[str]) -> Cut:
        if states not in self._cuts:
            self._cuts[states] = Cut(self, self._few.known.part(states))
        return self._cuts[states]

    @contextmanager
    def _reading(self, strict: frozenset[str]) -> Iterator[None]:
        """Within it these states are read only under keys that are known."""
        self.strict = strict
        try:
            yield
        finally:
            self.strict = frozenset()
        if self.unknown:
            raise _Unknown


class _Asked:
    """Takes what one state is asked, and raises where that is not known."""

    def __init__(self, loop: FewLoop, spec: StateSpec) -> None:
        self._loop, self._spec, self._known = loop, spec, loop.known(spec.name)
        self._grouped = issubclass(spec.kind, Grouped)

    def _note(self, place: Any) -> None:
        name = self._spec.name
        if name in self._loop.strict and place not in self._known:
            self._loop.unknown.append((name, place))
            raise _Unknown

    def one(self, stored: Any) -> None:
        """What is stored under one key."""
        if not self._grouped or under(self._spec, stored) not in self._known:
            self._note(place_of(self._spec, stored))

    def under(self, key: Any) -> None:
        """All that stands under a key as it was declared."""
        self._note(Under(key) if self._grouped else key)

    def every(self) -> Any:
        """All keys."""
        raise Unfocused(f"every key of {self._spec.name} is read")


class _Asking(Backing):
    """Has what a loop keeps tell what it is asked."""

    def __init__(self, loop: FewLoop) -> None:
        self._loop = loop

    def store(self, spec: StateSpec, journal: Journal) -> DictStore:
        return _Store(journal, _Asked(self._loop, spec))

    def versions(self, spec: StateSpec, store: DictStore, keep: int) -> History:
        return _Versions(keep, _Asked(self._loop, spec))

    def operations(self, spec: StateSpec, keep: int) -> Done:
        return _Operations(keep, _Asked(self._loop, spec))


class _Store(DictStore):
    def __init__(self, journal: Journal, asked: _Asked) -> None:
        super().__init__(journal)
        self._asked = asked

    def get(self, key: Any, default: Any) -> Any:
        self._asked.one(key)
        return super().get(key, default)

    def items(self) -> Any:
        self._asked.every()


class _Versions(History):
    def __init__(self, keep: int, asked: _Asked) -> None:
        super().__init__(keep)
        self._asked = asked

    def get(self, key: Any, default: Any, at: int, *, before: bool = False) -> Any:
        self._asked.one(key)
        return super().get(key, default, at, before=before)

    def keys(self) -> Any:
        self._asked.every()


class _Operations(Done):
    def __init__(self, keep: int, asked: _Asked) -> None:
        super().__init__(keep)
        self._asked = asked

    def of(self, key: Any, since: int, *, before: bool = False) -> Any:
        self._asked.under(key)
        return super().of(key, since, before=before)

    def keys(self) -> Any:
        self._asked.every()


def place_of_number(number: int) -> tuple[int, int, int, int]:
    """The time, phase, root and place that a step's number is made of."""
    rest, place = number >> 20, number & ((1 << 20) - 1)
    at, root = rest >> 64, (rest & ((1 << 64) - 1)) - 1
    return at >> 3, at & 7, root, place


__all__ = ["Few", "events_of", "number_of", "place_of_number"]
