"""Steps of the serial loop, and the writes of some places as steps are committed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from timelapse.kinds.base import ABSENT
from timelapse.kinds.grouped import Under
from timelapse.kinds.past import Done
from timelapse.model.events import Event
from timelapse.program.program import HandlerSpec
from timelapse.trace.knowledge import Place


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


class Writes:
    """The writes of `places`: keys by the state's name."""

    def __init__(self, states: Mapping[str, dict[Any, Any]], records: Mapping[str, Done]) -> None:
        """`states`: the tables that the loop's journal names; `records`: what it keeps of operations."""
        self._names = {id(data): name for name, data in states.items()}
        self._records = records
        self.places: Mapping[str, Collection[Any]] = {}
        self.written: dict[Place, list[Written]] = {}
        """Oldest first."""
        self.offered: dict[Place, list[Step]] = {}
        """The steps of all operations on places, also of those that changed nothing; oldest first."""
        self._counts: dict[Place, int] = {}
        """How much stands under the places that are all under a key."""

    def follow(self, places: Iterable[Place]) -> None:
        """Note the writes of these places from here on."""
        wanted: dict[str, set[Any]] = {}
        for name, key in places:
            wanted.setdefault(name, set()).add(key)
        self.places = wanted

    def committed(
        self, step: Step, journal: Sequence[tuple[dict[Any, Any], Any, Any]], done: Sequence[tuple[Done, Any]]
    ) -> None:
        """A step is over. `journal`: what it wrote; `done`: the operations it did on states that look back."""
        if not self.places:
            return
        if journal:
            self._keep(step, journal)
        if done:
            for name, record in self._records.items():
                wanted = self.places.get(name, ())
                for key in (k for own, k in done if own is record and k in wanted):
                    self.offered.setdefault((name, key), []).append(step)

    def _keep(self, step: Step, journal: Sequence[tuple[dict[Any, Any], Any, Any]]) -> None:
        first: dict[Place, tuple[Any, Any]] = {}
        grown: dict[Place, int] = {}
        for table, key, old in journal:
            name = self._names.get(id(table))
            if name is not None and name in self.places:
                first.setdefault((name, key), (old, table.get(key, ABSENT)))
        for (name, key), (before, after) in first.items():
            if before is ABSENT and after is ABSENT:
                continue  # nothing, where nothing was
            if key in self.places[name]:
                self.written.setdefault((name, key), []).append(Written(step, before, after))
            for wanted in self.places[name]:
                if isinstance(wanted, Under) and wanted.holds(key):
                    more = (after is not ABSENT) - (before is not ABSENT)
                    grown[name, wanted] = grown.get((name, wanted), 0) + more
        for place, more in grown.items():
            count = self._counts.get(place, 0)
            self._counts[place] = count + more
            self.written.setdefault(place, []).append(Written(step, count or ABSENT, count + more or ABSENT))
