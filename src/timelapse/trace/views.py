"""What windows and looks back show while an event is observed: the place they look at, and the writes that count."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from timelapse.ids import DAY, HOUR, MINUTE, SECOND
from timelapse.kinds.base import Clock, State, StateSpec
from timelapse.kinds.past import Done, Members
from timelapse.moments import time_text

Watch = Callable[[StateSpec, Any], Any]
"""Has a state tell what it is asked, and gives it."""


@dataclass(frozen=True)
class View:
    """What a window or a look back shows of a state: its writes after `since` and up to `until` (ticks: before these)."""

    state: str
    since: int | None
    until: int | None
    in_tick: bool = False

    def shows(self, ts: int) -> bool:
        """Whether a write at this time counts."""
        if self.in_tick:
            return (self.since is None or ts >= self.since) and (self.until is None or ts < self.until)
        return (self.since is None or ts > self.since) and (self.until is None or ts <= self.until)


class Shown(NamedTuple):
    """The operation whose value a window over a Max, Min or First shows.

    `place` tells it from others of its time: compiled its number among all of the state's operations, by the serial loop how
    many of the key's there were from it to the step. `own`: the step itself did it.
    """

    ts: int
    place: int
    own: bool


Chosen = dict[tuple[str, Any], Shown | None]
"""By the view's name and the key, as they were read first; None where the window held nothing."""


def view_of(state: str, how: str, argument: int, now: int, *, in_tick: bool) -> View:
    """What a step sees by `last(argument)`, `ago` or `at` of a state."""
    then = argument if how == "at" else now - argument
    since, until = (then, None) if how == "last" else (None, then)
    return View(state, since, until, in_tick)


def view_name(how: str, argument: int) -> str:
    """How it is written: `last(7 d)`."""
    return f"{how}({time_text(argument) if how == 'at' else length(argument)})"


def length(micros: int) -> str:
    """A length of time, exactly: `7 d`, `90 s`, `1500 us`."""
    for unit, name in ((DAY, "d"), (HOUR, "h"), (MINUTE, "min"), (SECOND, "s")):
        if micros and micros % unit == 0:
            return f"{micros // unit} {name}"
    return f"{micros} us"


def named(spec: StateSpec, how: str) -> StateSpec:
    """The spec under which a view tells its reads."""
    return replace(spec, name=f"{spec.name}.{how}")


def chosen(
    state: State, key: Any, record: Done, since: int | None, done: Sequence[tuple[Done, Any]], *, before: bool
) -> Shown | None:
    """The operation whose value a window of the serial loop shows: the last that made something of those before it.

    `done`: the operations of the step under way.
    """
    kept = _Kept()
    times, operations = record.of(key, since or 0, before=before)
    alone: Any = state._spec.kind(state._spec, kept)
    for number, (method, arguments, named_) in enumerate(operations):
        kept.number = number
        getattr(alone, method)(*arguments, **named_)
    if kept.found is None:
        return None
    own = sum(one is record and k == key for one, k in done)
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


class Telling:
    """The clock of a state in a compiled pass, whose views tell their reads.

    `views`: what their names stand for. `shown`: what those show that show one of several values.
    """

    def __init__(
        self, state: State, watch: Watch, views: dict[str, View], shown: Chosen, *, in_tick: bool = False
    ) -> None:
        clock: Any = state._clock
        self._in_tick = in_tick
        self._clock: Clock = clock
        self._watch, self._views, self._shown = watch, views, shown
        self._queued: Any = clock if state._spec.kind.window_form == "best" else None
        self._begun = 0 if self._queued is None else self._queued.offers(state._spec.name)

    def now(self) -> int:
        """The time of the event."""
        return self._clock.now()

    def ago(self, state: State, lag: int) -> Any:
        """The state as of a lag ago."""
        return self._told(self._clock.ago(state, lag), state, "ago", lag)

    def last(self, state: State, width: int) -> Any:
        """What happened to the state within the width."""
        view = self._clock.last(state, width)
        if self._queued is not None:
            self._choose(view, state._spec, width)
        return self._told(view, state, "last", width)

    def _choose(self, view: Any, spec: StateSpec, width: int) -> None:
        """Have a window note what it shows when it is read."""
        get, name = view._get, named(spec, view_name("last", width)).name

        def noting(key: Any, default: Any) -> Any:
            if (name, key) not in self._shown:
                found = self._queued.shown(spec.name, width, key)
                self._shown[name, key] = (
                    None if found is None else Shown(found[0], found[1], found[1] >= self._begun)
                )
            return get(key, default)

        view._get = noting

    def at(self, state: State, at: int) -> Any:
        """The state as it was at a time."""
        return self._told(self._clock.at(state, at), state, "at", at)

    def dated(self, state: State, at: int, method: str, arguments: tuple[Any, ...]) -> None:
        """A write is dated."""
        self._clock.dated(state, at, method, arguments)

    def _told(self, view: Any, state: State, how: str, argument: int) -> Any:
        spec = named(state._spec, view_name(how, argument))
        self._views[spec.name] = view_of(state._spec.name, how, argument, self.now(), in_tick=self._in_tick)
        return _Members(view, spec, self._watch) if isinstance(view, Members) else self._watch(spec, view)


class _Members:
    """The members of a SetOf in a window, telling what they are asked."""

    def __init__(self, view: Members, spec: StateSpec, watch: Watch) -> None:
        self._view, self._spec, self._watch = view, spec, watch

    def __contains__(self, pair: Any) -> bool:
        key, _ = pair
        return pair in self._watch(self._spec, self._view.under(key))

    def count(self, key: Any) -> int:
        """How many members the key has in the window."""
        found: int = self._watch(self._spec, self._view.under(key)).count(key)
        return found


__all__ = [
    "Chosen",
    "Shown",
    "Telling",
    "View",
    "Watch",
    "chosen",
    "length",
    "named",
    "view_name",
    "view_of",
]
