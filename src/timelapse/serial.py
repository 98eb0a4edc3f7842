"""The meaning of a program: one loop, one event at a time, in log order. Kept dull on purpose.

Everything fast is tested against this file, so it shares no analysis, planner or execution code
with the rest; it uses only what users write with (events, programs, state kinds).

At one time the order is: ticks, dated writes, dated events, log events (each with what derives from it).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from timelapse.errors import HandlerError, UsageError
from timelapse.ids import Phase, Position
from timelapse.kinds.base import ABSENT, State, StateSpec
from timelapse.kinds.past import Done, History
from timelapse.model.decimals import in_usual_context
from timelapse.model.events import Event, Record
from timelapse.model.order import in_order
from timelapse.program.agenda import Agenda, Dated
from timelapse.program.binding import bind
from timelapse.program.failure import handler_error, is_reproducible, quarantined_row, too_many
from timelapse.program.lookback import LookBack
from timelapse.program.program import (
    HandlerSpec,
    Program,
    Rejection,
    as_program,
    rejection,
    runtime,
    spec_of,
)
from timelapse.program.silence import is_silent, silent
from timelapse.program.times import (
    calendar_of,
    check_sent,
    due_at,
    has_own_times,
    kept,
    loop_bound,
    refuse_times,
    span_of,
    timer_of,
    windowed,
)


@dataclass(frozen=True)
class Output:
    """One emitted record and where it stands."""

    position: Position
    record: Record


@dataclass(frozen=True)
class Refusal:
    """One rejected event: where it stood, its type's name, the handler, the reason given."""

    position: Position
    event: str
    handler: str
    reason: str


@dataclass
class SerialOutcome:
    """What the loop gave: outputs in order, rejected events, and the state after the last event.

    `quarantined`: the failures of the events that were taken out of the log, if that was asked for.
    `pending`: how many dated writes (by state), dated events (by type) and calls of `after=` handlers (by
    handler) lie beyond the end.
    """

    outputs: list[Output] = field(default_factory=list)
    refused: list[Refusal] = field(default_factory=list)
    quarantined: list[HandlerError] = field(default_factory=list)
    states: dict[str, dict[Any, Any]] = field(default_factory=dict)
    events: int = 0
    pending: dict[str, int] = field(default_factory=dict)


Journal = list[tuple[dict[Any, Any], Any, Any]]
"""What a step has written: (table, key, what stood there or ABSENT), oldest first."""


class DictStore:
    """One state's values in a dict, with a journal to undo a rejected event."""

    def __init__(self, journal: Journal) -> None:
        self.data: dict[Any, Any] = {}
        self._journal = journal

    def get(self, key: Any, default: Any) -> Any:
        return self.data.get(key, default)

    def put(self, key: Any, value: Any) -> None:
        self._journal.append((self.data, key, self.data.get(key, ABSENT)))
        self.data[key] = value

    def drop(self, key: Any) -> None:
        if key in self.data:
            self._journal.append((self.data, key, self.data[key]))
            del self.data[key]

    def items(self) -> Iterable[tuple[Any, Any]]:
        return self.data.items()

    def side(self, table: dict[Any, Any], key: Any, value: Any) -> None:
        self._journal.append((table, key, table.get(key, ABSENT)))
        if value is ABSENT:
            table.pop(key, None)
        else:
            table[key] = value


class Backing:
    """In what a loop keeps each state. Others note besides who asks (kernels/takeout, trace/few.py)."""

    def store(self, spec: StateSpec, journal: Journal) -> DictStore:
        """A state's values."""
        return DictStore(journal)

    def versions(self, spec: StateSpec, store: DictStore, keep: int) -> History:
        """What its keys held, `keep` microseconds back."""
        return History(keep)

    def operations(self, spec: StateSpec, keep: int) -> Done:
        """The operations done on it, as far back."""
        return Done(keep)


class Loop:
    """The loop, event by event. `outcome` is what it has given so far; its states are live.

    `bound`: what handlers are called on; it has the states, and what handlers may call. `handlers`: those that an event of a
    type calls at once. `past`: what is kept to look back on.
    """

    def __init__(self, program: Program | type[Program], backing: Backing | None = None) -> None:
        self.program = as_program(program)
        self.outcome = SerialOutcome()
        spec = self._spec = spec_of(self.program)
        self._journal: Journal = []
        self._emitted: list[Record] = []
        kept_in, specs = backing or Backing(), spec.declared
        stores = {name: kept_in.store(s, self._journal) for name, s in specs.items()}
        self.outcome.states = {name: store.data for name, store in stores.items()}
        widths = kept(self.program)
        self.past = LookBack(
            {name: kept_in.versions(specs[name], stores[name], width) for name, width in widths.items()},
            {name: kept_in.operations(specs[name], widths[name]) for name in windowed(self.program)},
        )
        self.states = states = dict[str, Any]()
        for name, s in specs.items():
            states[name] = self.past.state(s, stores[name], stores[name].data, self.now)
            states[name]._clock = self
        self._stores = stores

        # What lies ahead.
        self._agenda = Agenda()
        self._derived: deque[Event] = deque()
        self._derivations = 0
        self._sent: set[type[Event]] = set()
        """Types of events that may be sent, as far as it was asked."""

        self._now = 0
        self._phase = Phase.LOG_EVENT
        self._root = -1
        self._handler = ""
        self._last: tuple[int, int, int] | None = None
        self._ordinal = 0
        self._calendars = [(h, calendar_of(self.program, h)) for h in spec.handlers if h.every is not None]
        self._ticks: list[int] | None = None
        runtime = {
            "emit": self._emit, "reject": _reject, "now": 0, "send": self._send, "cancel": self._cancel,
        }  # fmt: skip
        self.bound = bind(self.program, states, runtime)
        listened = dict.fromkeys(e for h in spec.handlers for e in h.events)
        self.handlers = {t: spec.handlers_of(t) for t in listened}
        self._after: dict[type[Event], list[tuple[HandlerSpec, int]]] = {}
        for handler in spec.handlers:
            if handler.after is not None:
                lag = span_of(self.program, handler.after)
                for event in handler.events:
                    self._after.setdefault(event, []).append((handler, lag))

    def copy(self) -> Loop:
        """The loop where it stands between two steps, to go on with by itself. It has put out nothing yet."""
        other = Loop(self.program)
        for name, store in self._stores.items():
            other._stores[name].data.update(store.data)
        other.past.take(self.past)
        other._agenda = self._agenda.copy(other.states)
        other._ticks = None if self._ticks is None else list(self._ticks)
        other._last, other._ordinal = self._last, self._ordinal
        other.outcome.events = self.outcome.events
        return other

    # --- time goes on -----------------------------------------------------------------------------

    def step(self, event: Event) -> None:
        """Process one log event, which must come after all before, and first what is due until then.

        Raises HandlerError for a handler's exception; what raised has then had no effect.
        """
        self.advance(event.ts)
        self.outcome.events += 1
        later = [
            Dated(event.ts + lag, event.seq, 0, handler.name, handler.name, event=event, handlers=(handler,))
            for handler, lag in self._after.get(type(event), ())
        ]
        for dated in later:
            self._agenda.date(dated)
        try:
            self._transaction(event, self.handlers.get(type(event), ()), event.ts, Phase.LOG_EVENT, event.seq)
        except HandlerError:
            for dated in later:
                dated.alive = False
            raise

    def begin(self, at: int | None) -> None:
        """The log begins at this time: there are no ticks before it. None: there are none at all. Only the first call counts."""
        if at is None:
            self._calendars, self._ticks = [], []
        elif self._ticks is None:
            self._ticks = [calendar.first(at) for _, calendar in self._calendars]

    def advance(self, to: int) -> None:
        """Move the clock on: everything happens that is due until then, up to and including that time."""
        self.begin(to)
        agenda = self._agenda
        if not (self._ticks or agenda.writes or agenda.events):
            return
        assert self._ticks is not None
        while True:
            times = [*self._ticks, *agenda.times()]
            if not times or min(times) > to:
                return
            self._instant(min(times))

    def _instant(self, at: int) -> None:
        """Everything at one time but log events."""
        assert self._ticks is not None
        for place, (handler, calendar) in enumerate(self._calendars):
            if self._ticks[place] == at:
                self._ticks[place] = calendar.after(at)
                self._transaction(None, (handler,), at, Phase.TICK, -1)
        for dated in self._agenda.writes_due(at):
            self._write(dated)
        for dated in self._agenda.events_due(at):
            assert dated.event is not None
            self._transaction(dated.event, dated.handlers, at, Phase.DATED_EVENT, dated.root)

    def _write(self, dated: Dated) -> None:
        """A dated write takes effect. It was accepted when it was issued: nothing can reject it."""
        self._now, self._phase, self._root = dated.due, Phase.DATED_WRITE, dated.root
        self.bound.__dict__["now"] = dated.due
        self._clear()
        assert dated.write is not None
        state, method, arguments = dated.write
        try:
            getattr(state, method)(*arguments)
        except Exception as error:
            self._undo()
            shown = f"the write {dated.name}.{method}{arguments!r} dated {dated.due}"
            raise self._failed(shown, dated.handler, error, (dated.due, dated.root)) from error
        self.past.commit(dated.due, self._journal)

    def _transaction(
        self, event: Event | None, handlers: tuple[HandlerSpec, ...], ts: int, phase: int, root: int
    ) -> None:
        """One event with the events derived from it, or one tick: all of it happens, or nothing."""
        self._clear()
        refusal = self._handle(event, handlers, ts, phase, root)
        if refusal is not None:
            self.outcome.refused.append(refusal)
        self.past.commit(ts, self._journal)
        if self._last != (ts, phase, root):
            self._last, self._ordinal = (ts, phase, root), 0
        for record in self._emitted:
            self.outcome.outputs.append(Output(Position(ts, phase, root, self._ordinal), record))
            self._ordinal += 1

    def _handle(
        self, event: Event | None, handlers: tuple[HandlerSpec, ...], ts: int, phase: int, root: int
    ) -> Refusal | None:
        """Run the handlers: how they rejected it, if they did. Raises HandlerError."""
        self._now, self._phase, self._root, self._derivations = ts, phase, root, 0
        bound, current = self.bound, event
        bound.__dict__["now"] = ts
        try:
            while True:
                for handler in handlers:
                    self._handler = handler.name
                    if current is None:
                        handler.function(bound)
                    else:
                        handler.function(bound, current)
                if not self._derived:
                    return None
                current = self._derived.popleft()
                handlers = self.handlers.get(type(current), ())
        except Rejection as refused:
            self._undo()
            self._emitted[:] = [] if refused.record is None else [refused.record]
            name = "tick" if event is None else type(event).__name__
            return Refusal(Position(ts, phase, root, 0), name, self._handler, refused.reason)
        except Exception as error:
            self._undo()
            shown = "a tick" if current is None else current
            raise self._failed(shown, self._handler, error, (ts, root)) from error

    def _failed(self, shown: Any, handler: str, error: Exception, place: tuple[int, int]) -> HandlerError:
        return handler_error(self.program, shown, handler, error, place)

    # --- what handlers do -------------------------------------------------------------------------

    @runtime("emit")
    def _emit(self, record: Record) -> None:
        if not isinstance(record, Record):
            raise TypeError(f"emit takes a tl.Record, not {type(record).__name__}")
        self._emitted.append(record)

    @runtime("send")
    def _send(
        self, event: Event, *, after: int | None = None, at: int | None = None, key: Any = None
    ) -> None:
        cls = type(event)
        if cls not in self._sent:
            self._sent.add(check_sent(self._spec, event))
        due = due_at(self._now, after, at)
        timer = None if key is None else timer_of(cls, key)
        if timer is not None:
            self._agenda.disarm(timer)
        if due == self._now:
            self._derivations += 1
            if self._derivations > self._spec.loop:
                raise loop_bound(self._spec)
            self._derived.append(event._at(due, self._root))
            return
        placed = event._at(due, self._root)
        self._agenda.date(Dated(
            due, self._root, 0, cls.__name__, self._handler, event=placed,
            handlers=self.handlers.get(cls, ()), timer=timer,
        ))  # fmt: skip

    @runtime("cancel")
    def _cancel(self, event: type[Event], *, key: Any) -> None:
        if not (isinstance(event, type) and issubclass(event, Event)):
            raise UsageError("cancel takes an event type", hint="self.cancel(Timeout, key=k)", code="TL207")
        self._agenda.disarm(timer_of(event, key))

    # --- what states ask for (kinds.base.Clock) ---------------------------------------------------

    def now(self) -> int:
        return self._now

    def dated(self, state: State, at: int, method: str, arguments: tuple[Any, ...]) -> None:
        write = (state, method, arguments)
        self._agenda.date(Dated(at, self._root, 0, state._spec.name, self._handler, write=write))

    def ago(self, state: State, lag: int) -> Any:
        return self.past.ago(state, lag, self._now, before=self._phase == Phase.TICK)

    def last(self, state: State, width: int) -> Any:
        return self.past.last(state, width, self._now, before=self._phase == Phase.TICK)

    def at(self, state: State, at: int) -> Any:
        return self.past.at(state, at, self._now)

    # --- transactions -----------------------------------------------------------------------------

    def _clear(self) -> None:
        self._journal.clear()
        self._emitted.clear()
        self.past.done.clear()
        self._derived.clear()
        self._agenda.taken_back.clear()

    def _undo(self) -> None:
        for table, key, old in reversed(self._journal):
            if old is ABSENT:
                table.pop(key, None)
            else:
                table[key] = old
        self.past.undo()
        self._agenda.undo()
        self._journal.clear()

    def oldest_root(self) -> int | None:
        """The first log event that something pending stems from; None where nothing does."""
        return self._agenda.oldest_root()

    def count_pending(self) -> dict[str, int]:
        """What lies ahead, counted by state, event type and handler."""
        return self._agenda.count()


@runtime("reject")
def _reject(reason: str | Record = "") -> None:
    raise rejection(reason)


@in_usual_context
def run(
    program: Program | type[Program],
    events: Iterable[Event],
    *,
    before: int | None = None,
    watch: Callable[[int, dict[str, dict[Any, Any]]], None] | None = None,
    quarantine: bool = False,
    most: int | None = None,
    begin: int | None = None,
    until: int | None = None,
    moments: Iterable[tuple[int, int]] = (),
) -> SerialOutcome:
    """Process the events one by one, in log order.

    `before` stops ahead of everything at that time (microseconds). `watch` is called before each
    event with its seq and the live state; it must not change it. `begin` is the time at which the log begins, and
    `until` the one to which the clock goes on at the end, where they are not those of the first and last
    event given: with `begin` the events may be part of a log, whose gaps the caller has looked at. `moments` are pairs (seq, time), in order: ahead of the first event from that seq on, or at the
    end, everything up to that time is done and `watch` called with that seq.

    With `quarantine` an event at which a handler raises counts as if it had not been in the log; what was
    raised is listed, of at most `most` events. An end of memory or stack is no property of the event and is raised
    all the same. Programs in which something happens at other times than the events' are refused: what stems from an
    event would have to go with it (run/takeout.py does that).

    Raises HandlerError for a handler's exception, EventOrderError for events out of order, SilentLog for a gap
    between two events that is longer than the program's ticks may go on, TooManyQuarantined.
    """
    if quarantine and has_own_times(program):
        refuse_times(program, "quarantine")
    loop = Loop(program)
    if begin is not None:
        loop.begin(begin)
    marks = deque(moments)

    def look(seq: int) -> None:
        while watch is not None and marks and marks[0][0] <= seq:
            at, ts = marks.popleft()
            loop.advance(ts)
            watch(at, loop.outcome.states)
        if watch is not None:
            watch(seq, loop.outcome.states)

    last: int | None = None
    for event in in_order(events):
        if before is not None and event.ts >= before:
            break
        if begin is None and last is not None and is_silent(loop.program, last, event.ts):
            raise silent(loop.program, last, type(event).__name__, event.ts, event.seq)
        look(event.seq)
        try:
            loop.step(event)
        except HandlerError as failure:
            if not quarantine or failure.__cause__ is None or not is_reproducible(failure.__cause__):
                raise
            loop.outcome.quarantined.append(failure)
            if most is not None and len(loop.outcome.quarantined) > most:
                raise too_many(map(quarantined_row, loop.outcome.quarantined), most) from failure
        last = event.ts
    if marks and before is None:
        look(marks[-1][0])
    if last is None:
        last = begin
    if last is not None:
        end = last if until is None else max(last, until)
        loop.advance(end if before is None else min(end, before - 1))
    loop.outcome.pending = loop.count_pending()
    return loop.outcome
