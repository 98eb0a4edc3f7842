"""The values of a few keys, found by running only the events that can have written them.

What an event does to a key depends on the states that analysis names, under keys that mostly follow from the event. So
to know a few keys before an event it is enough to run, from the start of the slice, the events that may write them, cut
down to the statements that write that state, and before these the events that may write what those statements read, and so
on. Which events these are is found by comparing columns (`origins.py`, `columns.py`).

Where that cannot be said, or is too much, `Unfocused` is raised, and the slice is gone through instead. What is found
rests on the analysis, as passes do; where a stretch ends with its slice, it is compared with what the run found there.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from timelapse.errors import TimelapseError
from timelapse.kernels.python.interpreted import InterpretedKernel
from timelapse.kernels.python.stores import NullStore
from timelapse.kernels.walk import Moment, Visit
from timelapse.kinds.base import ABSENT
from timelapse.kinds.effects import Journal
from timelapse.kinds.grouped import Under
from timelapse.model.events import Event
from timelapse.trace.knowledge import Part, Place, Unfocused
from timelapse.trace.matter import Matter

if TYPE_CHECKING:
    from timelapse.trace.moments import Past

MOST = 20_000
"""Events that are run for one question; more are quicker gone through compiled."""


class _Unknown(BaseException):
    """A key was read that nobody has asked for yet. Handlers do not catch it, unless they catch everything."""


@dataclass(frozen=True)
class Wrote:
    """An event wrote a key: what that held before and after, ABSENT for nothing."""

    seq: int
    before: Any
    after: Any


class _Store:
    """A state of which some keys are known. Others do not matter, unless it is `strict`."""

    def __init__(self, name: str, journal: Journal, unknown: list[Place]) -> None:
        self._name, self._journal, self._unknown = name, journal, unknown
        self.data: dict[Any, Any] = {}
        self.known: set[Any] = set()
        self.touched: dict[Any, Any] = {}
        """What keys held that the event under way has written."""
        self.strict = False

    def get(self, key: Any, default: Any) -> Any:
        if self.strict and key not in self.known:
            self._unknown.append((self._name, key))
            raise _Unknown
        return self.data.get(key, default)

    def put(self, key: Any, value: Any) -> None:
        self._note(key)
        self.data[key] = value

    def drop(self, key: Any) -> None:
        if key in self.data:
            self._note(key)
            del self.data[key]

    def _note(self, key: Any) -> None:
        old = self.data.get(key, ABSENT)
        self.touched.setdefault(key, old)
        self._journal.append((self.data, key, old))

    def items(self) -> Iterable[tuple[Any, Any]]:
        raise Unfocused(f"every key of {self._name} is read")

    def side(self, table: dict[Any, Any], key: Any, value: Any) -> None:
        raise Unfocused(f"{self._name} keeps an index")


@dataclass
class Focus:
    """One slice, up to before event `end`."""

    past: Past
    slice_id: int
    end: int
    skip: frozenset[int]
    """Events that had no effect."""
    _starts: dict[Place, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._known = self.past.knowledge
        lo = self.past.cuts[self.slice_id]
        self._matter = Matter(self.past, self._known, lo, self.end, self.skip, MOST)
        self._journal: Journal = []
        self._unknown: list[Place] = []
        """What was read and is not known: also where a handler caught what was raised then."""
        self._stores = {name: _Store(name, self._journal, self._unknown) for name in self._known.spec.states}
        self._states = {n: s.kind(s, self._stores[n]) for n, s in self._known.spec.states.items()}
        self._kernels: dict[frozenset[str], InterpretedKernel] = {}

    # --- questions ------------------------------------------------------------------------------------

    def writes(self, places: Collection[Place]) -> tuple[dict[Place, list[Wrote]], dict[Place, Any]]:
        """All events before `end` that wrote the places, oldest first; and what the places hold at the end."""
        found = self._settle(places, lambda: self._run(places))
        last = {p: self._stores[p[0]].data.get(p[1], ABSENT) for p in places}
        if self.end >= self.past.cuts[self.slice_id + 1]:
            for (name, key), value in last.items():
                if self.past.held(name, key, self.slice_id + 1) != value:
                    raise Unfocused(f"{name} ends otherwise")  # never seen; the slice is gone through then
        return found, last

    def walk(self, stops: Sequence[int], visit: Visit) -> None:
        """Stop before events, in ascending order, as `Past.walk` does. `visit` may be called again for the same stops."""
        self._matter.read_columns(self._known.spec.states)
        self._settle((), lambda: self._run((), stops, visit))

    # --- finding out what matters ---------------------------------------------------------------------

    def _settle(self, places: Collection[Place], attempt: Callable[[], Any]) -> Any:
        """Try until nothing is read that is not known. After Unfocused this is of no use: what it knows is not whole."""
        try:
            return self._settled(places, attempt)
        except Unfocused:
            self.past.forget(self)
            raise

    def _settled(self, places: Collection[Place], attempt: Callable[[], Any]) -> Any:
        self._demand(places)
        for _ in self._matter.rounds(self._unknown):
            self._unknown.clear()
            try:
                result = attempt()
                if not self._unknown:
                    return result
            except _Unknown:
                pass
            except (TimelapseError, ArithmeticError, LookupError, TypeError, ValueError) as error:
                if not self._unknown:
                    raise Unfocused(f"it does not run alone: {error}") from error
            self._demand(self._unknown)
        raise AssertionError("rounds end with an error")

    def _demand(self, places: Collection[Place]) -> None:
        """These places matter: what they hold at the slice's start, and who may write them."""
        self._matter.demand(places)
        for name, key in self._matter.places - self._starts.keys():
            if isinstance(key, Under):
                raise Unfocused(f"all that stands under a key of {name} is read")
            self._starts[name, key] = self._start(name, key)
            self._stores[name].known.add(key)

    def _start(self, name: str, key: Any) -> Any:
        return self.past.run.value_at_cut(name, key, self.slice_id) if self.slice_id else ABSENT

    # --- running --------------------------------------------------------------------------------------

    def _run(
        self, places: Collection[Place], stops: Sequence[int] = (), visit: Visit | None = None
    ) -> dict[Place, list[Wrote]]:
        """Run the events that matter, stopping where somebody wants to look."""
        self._journal.clear()
        for store in self._stores.values():
            store.data.clear()
            store.touched.clear()
        for (name, key), value in self._starts.items():
            if value is not ABSENT:
                self._stores[name].data[key] = value
        found: dict[Place, list[Wrote]] = {p: [] for p in places}
        left = list(stops)
        for seq, event, part in self._matter.prepared(sorted(self._matter.events)):
            if self._look(left, seq, visit):
                continue
            self._one(event, part)
            for name in self._matter.events[seq]:
                store = self._stores[name]
                for key, before in store.touched.items():
                    after = store.data.get(key, ABSENT)
                    if (name, key) in found and not (before is ABSENT and after is ABSENT):
                        found[name, key].append(Wrote(seq, before, after))
            for store in self._stores.values():
                store.touched.clear()
        self._look(left, self.end, visit)
        return found

    def _look(self, left: list[int], seq: int, visit: Visit | None) -> bool:
        """Stop wherever somebody wants to, up to before an event. Whether that event has been done."""
        done = False
        while left and left[0] <= seq and visit is not None:
            stop = left.pop(0)
            for store in self._stores.values():
                store.strict = True
            try:
                done = (
                    visit(Moment(stop, lambda name, _: self._states[name], self._journal, _never))
                    and stop == seq
                )
            except (_Unknown, Exception):
                # While something is not known an error may come of that; the other stops tell in the same round what they lack.
                if not self._unknown:
                    raise
            finally:
                self._journal.clear()
                for store in self._stores.values():
                    store.strict = False
                    store.touched.clear()
        return done

    def _one(self, event: Event, part: Part) -> None:
        kernel = self._kernel(frozenset(self._matter.events[event.seq]), part)
        unknown = len(self._unknown)
        for name in part.strict:
            self._stores[name].strict = True
        try:
            failure = kernel.one(event, lambda: event)
        finally:
            for name in part.strict:
                self._stores[name].strict = False
        if len(self._unknown) > unknown:
            raise _Unknown
        if failure is not None:
            raise failure
        if kernel.collected.refused:
            raise Unfocused("an event is rejected that was not")

    def _kernel(self, states: frozenset[str], part: Part) -> InterpretedKernel:
        if states not in self._kernels:
            specs = self._known.spec.states

            def live(name: str, journal: Journal | None) -> Any:
                del journal
                return (
                    self._states[name]
                    if name in part.work.exact
                    else specs[name].kind(specs[name], NullStore())
                )

            self._kernels[states] = InterpretedKernel(
                self._known.program, part.work, {}, final=False, live=live, journal=self._journal
            )
        return self._kernels[states]


def _never(state: str, key: Any) -> bool:
    raise AssertionError("a focus does not tell what was written")


__all__ = ["Focus", "Place", "Unfocused", "Wrote"]
