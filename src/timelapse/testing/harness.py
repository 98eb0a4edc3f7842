"""Unit tests of a program's handlers: feed events, look at state, outputs and rejections."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import Any, TypeVar

from timelapse.divergence import in_key_order
from timelapse.errors import EventOrderError, UsageError, meant
from timelapse.ids import SECOND
from timelapse.kinds.base import ABSENT, UNKEYED, StateSpec
from timelapse.model.decimals import in_usual_context
from timelapse.model.events import Event, Record
from timelapse.program.program import Program, spec_of
from timelapse.program.silence import is_silent, silent
from timelapse.serial import Loop, Refusal

R = TypeVar("R", bound=Record)


class KeyView(AbstractSet[Any]):
    """The keys of a Set state when it was asked for. Iterates in key order; equals a plain set of the same keys."""

    def __init__(self, spec: StateSpec, keys: Iterable[Any]) -> None:
        self._spec = spec
        self._keys = frozenset(keys)

    def __contains__(self, key: object) -> bool:
        return _checked(self._spec, key) in self._keys

    def __iter__(self) -> Iterator[Any]:
        return iter(in_key_order(self._keys))

    def __len__(self) -> int:
        return len(self._keys)

    @classmethod
    def _from_iterable(cls, it: Iterable[Any]) -> AbstractSet[Any]:
        return frozenset(it)

    def __repr__(self) -> str:
        return f"{{{', '.join(map(repr, self))}}}"


class ValueView(Mapping[Any, Any]):
    """A keyed state's values when it was asked for. A missing key reads as it does in a handler: 0, None or the
    declared default. Iterates over the present keys, in key order; equals a dict of the same items."""

    def __init__(self, spec: StateSpec, values: Mapping[Any, Any]) -> None:
        self._spec = spec
        self._values = dict(values)

    def __getitem__(self, key: Any) -> Any:
        return self._values.get(_checked(self._spec, key), _default(self._spec))

    def get(self, key: Any, default: Any = ABSENT) -> Any:
        """The value; where the key is missing `default`, or the declared default."""
        found = self._values.get(_checked(self._spec, key), ABSENT)
        if found is ABSENT:
            return _default(self._spec) if default is ABSENT else default
        return found

    def __contains__(self, key: object) -> bool:
        return _checked(self._spec, key) in self._values

    def __iter__(self) -> Iterator[Any]:
        return iter(in_key_order(self._values))

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"{{{', '.join(f'{k!r}: {self._values[k]!r}' for k in self)}}}"


def _checked(spec: StateSpec, key: Any) -> Any:
    return key if spec.key is None else spec.key.checker(f"a key of {spec.name}")(key)


def _default(spec: StateSpec) -> Any:
    return None if spec.default is ABSENT else spec.default


class Harness:
    """Runs a program's handlers, event by event, exactly as the serial meaning does.

        h = Harness(Antispam(ratio=3.0))
        h.feed(Friendship(a=1, b=2), Message(id=1, sender=1, recipient=2, ip="::1", text="hi"))
        assert h.state("to_friends")[1] == 1
        assert h.outputs_of(Spam) == []

    State persists from one `feed` to the next. When a handler raises, `feed` raises HandlerError, the event has had
    no effect, and later events can be fed.

    `start` is the time of the first event that has none, `step` the distance of each further one from the one before
    (both in microseconds).
    """

    def __init__(self, program: Program | type[Program], *, start: int = 0, step: int = SECOND) -> None:
        self._loop = Loop(program)
        self._start = start
        self._step = step
        self._last: Event | None = None
        self._advanced: int | None = None

    @property
    def program(self) -> Program:
        """The program, with its parameters."""
        return self._loop.program

    @in_usual_context
    def feed(self, *events: Event, at: int | None = None) -> list[Record]:
        """Process events in the order given; returns the records that they made the program emit.

        An event whose `ts` is 0 (none was given) stands one step after the one before it; `at` puts all of them at one
        time. `seq` is assigned where there is none. Raises EventOrderError for an event that is not after the last
        one, SilentLog for one so long after it that ticks and timers may not go on until then (`advance` takes them there),
        HandlerError for a handler's exception.
        """
        before = len(self._loop.outcome.outputs)
        for event in events:
            placed = self._place(event, at)
            if self._last is not None and is_silent(self.program, self.now, placed.ts):
                raise silent(self.program, self.now, type(placed).__name__, placed.ts, placed.seq)
            self._last = placed
            self._loop.step(placed)
        return [o.record for o in self._loop.outcome.outputs[before:]]

    @in_usual_context
    def advance(self, to: int) -> list[Record]:
        """Let time pass up to and including a moment (microseconds); returns the records emitted on the way.

        Ticks, dated writes and dated events that are due happen; later events must not be before it.
        """
        if to < self.now:
            raise UsageError(f"time does not go back: it is {self.now}, not {to}")
        before = len(self._loop.outcome.outputs)
        self._loop.advance(to)
        self._advanced = to
        return [o.record for o in self._loop.outcome.outputs[before:]]

    @property
    def pending(self) -> dict[str, int]:
        """What lies ahead: dated writes by state, dated events by type, `after=` calls by handler."""
        return self._loop.count_pending()

    def _place(self, event: Event, at: int | None) -> Event:
        if not isinstance(event, Event):
            raise UsageError(f"feed takes events, not {type(event).__name__}", hint="h.feed(Message(...))")
        last = self._last
        if at is not None:
            ts = at
        elif event.ts != 0:
            ts = event.ts
        else:
            ts = self._start if last is None else last.ts + self._step
            ts = max(ts, self._advanced or ts)
        seq = event.seq if event.seq >= 0 else (0 if last is None else last.seq + 1)
        if self._advanced is not None and ts < self._advanced:
            raise EventOrderError(
                f"{event!r} is before {self._advanced}, to which time has passed", hint="feed it earlier"
            )
        if last is not None and (ts < last.ts or seq <= last.seq):
            raise EventOrderError(
                f"{event!r} is not after the last event, {last!r}", hint="feed events in the order (ts, seq)"
            )
        return event._at(ts, seq)

    @property
    def now(self) -> int:
        """The time of the last event, or that to which time has passed; `start` before the first."""
        last = self._start if self._last is None else self._last.ts
        return last if self._advanced is None else max(last, self._advanced)

    @property
    def outputs(self) -> list[Record]:
        """All records emitted so far, in order."""
        return [o.record for o in self._loop.outcome.outputs]

    def outputs_of(self, record: type[R]) -> list[R]:
        """The records of one type, in order."""
        return [o.record for o in self._loop.outcome.outputs if type(o.record) is record]

    @property
    def rejected(self) -> list[Refusal]:
        """The rejected events so far: position, event type, handler, reason."""
        return list(self._loop.outcome.refused)

    def state(self, name: str) -> Any:
        """A state as it is now: a ValueView, for a Set a KeyView, for a state without a key its value.

        The view does not change with later events. Raises UsageError for an unknown name.
        """
        specs = spec_of(self.program).declared
        if name not in specs:
            raise UsageError(
                f"{type(self.program).__name__} has no state {name!r}",
                hint=f"{meant(name, specs)}states: {', '.join(specs) or 'none'}",
            )
        spec, data = specs[name], self._loop.outcome.states[name]
        if spec.key is None:
            return data.get(UNKEYED, _default(spec))
        return KeyView(spec, data) if spec.value is None else ValueView(spec, data)

    @property
    def states(self) -> dict[str, Any]:
        """All states by name, as `state` gives them."""
        return {name: self.state(name) for name in spec_of(self.program).declared}

    def __repr__(self) -> str:
        return f"<Harness of {self.program!r}, {self._loop.outcome.events} events>"
