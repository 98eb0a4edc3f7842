"""Going compiled through all steps of a log, stopping between them; and who wrote some keys last, found so."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from timelapse.errors import HandlerError, ReplayError, TimelapseError
from timelapse.ids import Phase
from timelapse.kernels.base import Abandoned
from timelapse.kernels.native.leaving import TooOften
from timelapse.kinds.base import ABSENT
from timelapse.kinds.grouped import Under
from timelapse.model.events import Event
from timelapse.program.program import HandlerSpec
from timelapse.trace import timed
from timelapse.trace.columns import Seqs
from timelapse.trace.few import number_of, place_of_number
from timelapse.trace.joined import joined
from timelapse.trace.knowledge import Ask, Place, Uncompiled, Unfocused
from timelapse.trace.lookup import merged
from timelapse.trace.steps import Tick
from timelapse.trace.thin import Thinned
from timelapse.trace.whole import WholePast

if TYPE_CHECKING:
    from timelapse.kernels.native.decode import Batch as NativeBatch
    from timelapse.kernels.native.kernel import NativeKernel

_TAIL = 2048
"""So many of the newest events are stopped at one by one in a first pass: who writes often is found there."""
_EVENLY = 1024
"""So many stops lie evenly over all steps in it."""
_LIKELY = 512
"""And so many of the newest events that are likely to have written a key, by their fields."""
_NEAR = 64
"""Fewer, where much is asked for at once: at least so many for each question."""
_SPARE = 8
"""So many of these for each write that is asked for are enough where it is known better: each stop takes as long as thousands of events."""
_CLOSER = 1 << 14
"""Stops of a further pass, over all stretches that hold one of the last writes."""
_PASSES = 8


class Stepped:
    """A batch of steps in the order in which they come, of which the first is the `base`-th of all."""

    def __init__(self, past: WholePast, kernel: NativeKernel, batch: NativeBatch, base: int) -> None:
        self._past, self._unit, self._batch, self.base = past, kernel.unit, batch, base

    @property
    def count(self) -> int:
        """How many steps it has."""
        return self._batch.events

    @cached_property
    def times(self) -> Seqs:
        """Their times."""
        if self._batch.when is not None:
            return self._batch.when
        found = np.zeros(self.count, np.int64)  # a pass of log events alone
        for kind, _ in self._seqs():
            found[self._batch.kinds == kind] = self._batch.arrays[2 * kind]
        return found

    @cached_property
    def _last(self) -> int:
        """The time of the last step; of a batch that has some."""
        if self._batch.when is not None:
            return int(self._batch.when[-1])
        own = (self._batch.arrays[2 * kind] for kind in range(len(self._unit.events)))
        return max(int(times[-1]) for times in own if len(times))

    @cached_property
    def roots(self) -> Seqs:
        """The seqs of the log events that they stem from; -1: ticks."""
        found = np.full(self.count, -1, np.int64)
        for kind, seqs in self._seqs():
            found[self._batch.kinds == kind] = seqs
        return found

    def _seqs(self) -> Iterator[tuple[int, Seqs]]:
        """By kind of step the seqs of the log events that its steps stem from, ascending."""
        for kind in range(len(self._unit.events)):
            if kind not in self._unit.ticking and len(self._batch.arrays[2 * kind + 1]):
                yield kind, self._batch.arrays[2 * kind + 1]

    def stemming(self, wanted: Seqs) -> Seqs:
        """The steps that stem from some log events (ascending)."""
        found: Seqs = np.zeros(0, np.int64)
        for kind, seqs in self._seqs():
            own = wanted[np.searchsorted(wanted, seqs[0]) : np.searchsorted(wanted, seqs[-1], "right")]
            rows = np.searchsorted(seqs, own)
            rows = rows[seqs[rows] == own] if len(own) else rows
            if len(rows):
                found = merged([found, np.flatnonzero(self._batch.kinds == kind)[rows]])
        return found

    def ticking(self, times: Sequence[int]) -> Seqs:
        """The steps that are ticks at some times."""
        ticks = np.isin(self._batch.kinds, list(self._unit.ticking))
        return np.flatnonzero(ticks & np.isin(self.times, np.asarray(times, np.int64)))

    def since(self, seq: int) -> int:
        """The first step of the log's events from a seq on; or behind all."""
        found = self.count
        for kind, seqs in self._seqs():
            if kind not in self._unit.later and seqs[-1] >= seq:
                at = np.flatnonzero(self._batch.kinds == kind)[np.searchsorted(seqs, seq)]
                found = min(found, int(at))
        return found

    def where(self, at: int) -> tuple[int, int, int, int]:
        """The time, phase and root of a step; and the place of its handler (0: those of a log event)."""
        kind, ts, root = int(self._batch.kinds[at]), int(self.times[at]), int(self.roots[at])
        if kind in self._unit.ticking:
            return ts, Phase.TICK, -1, self._unit.ticking[kind].place
        if kind in self._unit.later:
            return ts, Phase.DATED_EVENT, root, self._unit.later[kind].place
        return ts, Phase.LOG_EVENT, root, 0

    def step(self, at: int, given: Mapping[int, Event] | None = None) -> timed.Step:
        """A step. `given`: the events of the log that steps stem from, if they are at hand."""
        ts, phase, root, place = self.where(at)
        spec = self._past.spec
        handlers: tuple[HandlerSpec, ...] = (spec.handlers[place],)
        shown: Event = Tick()._at(ts, root)
        if given is not None and root >= 0:
            shown = given[root] if phase == Phase.LOG_EVENT else given[root]._at(ts, root)
        if phase == Phase.LOG_EVENT:
            handlers = tuple(h for h in spec.handlers_of(type(shown)) if h.after is None)
        return timed.Step(number_of(ts, phase, root, place), shown, handlers, ts, phase, root, 0)

    def before(self, number: int) -> int:
        """How many of them come before the step with a number."""
        wanted = place_of_number(number)
        if not self.count or self._last < wanted[0]:
            return self.count
        lo, hi = (int(np.searchsorted(self.times, wanted[0], side)) for side in ("left", "right"))
        while lo < hi and self.where(lo) < wanted:
            lo += 1
        return lo


class Passing:
    """One way through all steps of events seq < `hi`, up to a time; through those that matter to some states, if these are given.
    Raises Uncompiled."""

    def __init__(
        self, past: WholePast, hi: int, end: int, thin: Thinned | None = None, states: Collection[str] | None = None,
        *, ticks: bool = True,
    ) -> None:  # fmt: skip
        """`ticks`: whether those are asked for that write nothing."""
        self._past = past
        self._walk, self._source = past.stepping(hi, end, thin, states, ticks=ticks)
        self.kernel = self._walk.kernel
        self._count = hi if thin is None else len(thin.seqs)

    @property
    def ticks(self) -> bool:
        """Whether ticks happen on it."""
        return self._source.ticks

    def go(self, stops: Callable[[Stepped], Iterable[tuple[int, Callable[[], bool]] | None]]) -> None:
        """Go through it. `stops`: see NativeWalk.run."""
        base = 0

        def here(batch: NativeBatch) -> Iterable[tuple[int, Callable[[], bool]] | None]:
            nonlocal base
            stepped = Stepped(self._past, self.kernel, batch, base)
            base += batch.events
            return stops(stepped)

        with self._past.going(self._count) as tick:
            try:
                self._walk.run(self._source, here, tick)
            except Abandoned as why:
                raise Uncompiled(why.reason) from why
            except TooOften as why:
                raise Uncompiled("too many events leave the compiled function") from why
            except HandlerError as failure:
                raise ReplayError(
                    "a handler failed where it did not fail before", hint=str(failure), code="TL607"
                ) from failure


@dataclass(frozen=True, eq=False)
class _Stretch:
    """Steps a to b, by their number among all, within which a key was written. `step`: the only one."""

    a: int
    b: int
    before: Any
    after: Any
    step: timed.Step | None


def newest_writes(
    past: WholePast, asks: Collection[timed.Ask], before: int | None, last: int
) -> dict[timed.Ask, list[timed.Written]]:
    """For each question at least the newest `last` writes, oldest first; all before everything at a time. Raises Uncompiled."""
    if any(isinstance(ask.place[1], Under) for ask in asks):
        raise Uncompiled("all that stands under a key is asked for")
    return _Newest(past, asks, before, last).found()


class _Newest:
    """Passes with closer and closer stops, until the newest writes are told apart."""

    def __init__(self, past: WholePast, asks: Collection[timed.Ask], before: int | None, last: int) -> None:
        self._past, self._last = past, last
        self._places = list(dict.fromkeys(ask.place for ask in asks))
        over = past.last_step + 1 if before is None else min(before, past.last_step + 1)
        self._ends = {ask: _end(ask, over) for ask in asks}
        """Before the step with which number writes are asked for. A tick's look back does not show what was written at its time;
        what is found too much is left out by whoever asks."""
        self._final = max(self._ends.values())
        self._end = min(place_of_number(self._final)[0], over - 1)
        self._hi = past.reader.seq_at(self._end + 1)
        self._cuts: dict[int, int] = {}
        """How many steps come before the step with a number, for the ends."""
        self._refused = past.refused_steps()
        self._thin: Thinned | None = None
        """The events that matter: the others need not happen."""

    def found(self) -> dict[timed.Ask, list[timed.Written]]:
        with suppress(Unfocused):
            self._thin = self._past.steps_alone(self._hi, self._places)
        if self._thin is not None:
            try:
                return self._found()
            except (TimelapseError, Uncompiled):  # it does not run alone
                self._thin = None
        return self._found()

    def _found(self) -> dict[timed.Ask, list[timed.Written]]:
        stretches = self._pass(self._first())
        for _ in range(_PASSES):
            unclear = {s: None for ask in self._ends for s in self._unclear(self._before(stretches, ask))}
            if not unclear:
                return {ask: self._written(self._before(stretches, ask)) for ask in self._ends}
            parts = max(2, _CLOSER // len(unclear))
            stops = sorted({g for s in unclear for g in _parted(s, parts)})
            found = self._pass(partial(_inside, stops))
            for place, own in stretches.items():
                gone = {s for s in own if s in unclear}
                inside = [s for s in found[place] if any(g.a <= s.a and s.b <= g.b for g in gone)]
                stretches[place] = sorted([*(s for s in own if s not in gone), *inside], key=lambda s: s.a)
        raise Uncompiled("the writes are not told apart by going through the log a few times")

    def _before(self, stretches: Mapping[Place, Sequence[_Stretch]], ask: timed.Ask) -> list[_Stretch]:
        """Those that end before a question's end. There is a stop at each end."""
        cut = self._cuts[self._ends[ask]]
        return [s for s in stretches[ask.place] if s.b <= cut]

    def _first(self) -> Callable[[Stepped], Seqs]:
        """Where a first pass stops."""
        past = self._past
        likely, told = self._likely()
        evenly = max(1, self._hi // (_NEAR if told else _EVENLY))
        seqs = sorted({past.reader.seq_at(place_of_number(end)[0] + 1) for end in self._ends.values()})
        most = _NEAR if told else max(_NEAR, _TAIL // len(seqs))

        def stops(batch: Stepped) -> Seqs:
            parts = [np.arange(-batch.base % evenly, batch.count, evenly)]
            for seq in seqs:
                since = batch.since(seq - most)
                parts.append(
                    np.arange(since, min(batch.count, since + 2 * most, max(since, batch.since(seq))))
                )
            hits = batch.stemming(likely)
            return merged([*parts, hits, hits + 1])

        return stops

    def _likely(self) -> tuple[Seqs, bool]:
        """Log events that are likely to have written the places; and whether it is known so well that hardly any other did."""
        asks = {
            Ask(ask.place, self._past.reader.seq_at(place_of_number(end)[0] + 1))
            for ask, end in self._ends.items()
        }
        most = max(_NEAR, _LIKELY // len(asks))
        found: dict[Ask, Seqs] = {}
        with suppress(Unfocused):
            for ask in asks:
                if len(seqs := joined(self._past, *ask.place, ask.end)):
                    found[ask] = seqs
        if told := found.keys() == asks:
            most = min(most, max(_NEAR, _SPARE * self._last))
        with suppress(Unfocused):
            found |= self._past.likely(asks - found.keys(), 0, self._hi) or {}
        return merged(seqs[-most:] for seqs in found.values()), told

    def _unclear(self, stretches: Sequence[_Stretch]) -> list[_Stretch]:
        """The newest stretches of several steps, as far as they may hold one of the last writes."""
        known, unclear = 0, list[_Stretch]()
        for stretch in reversed(stretches):
            if known >= self._last:
                break
            if stretch.step is None:
                unclear.append(stretch)
                known += 1  # it holds one at least
            elif self._counts(stretch):
                known += 1
        return unclear

    def _counts(self, stretch: _Stretch) -> bool:
        step = stretch.step
        assert step is not None
        nothing = stretch.before is ABSENT and stretch.after is ABSENT
        return not nothing and (step.ts, int(step.phase), step.root) not in self._refused

    def _written(self, stretches: Sequence[_Stretch]) -> list[timed.Written]:
        single = [s for s in stretches if s.step is not None and self._counts(s)]
        return [timed.Written(s.step, s.before, s.after) for s in single[-self._last :] if s.step is not None]

    def _pass(self, stops: Callable[[Stepped], Seqs]) -> dict[Place, list[_Stretch]]:
        """Go through the log: between which stops each place was written, in order."""
        passing = Passing(self._past, self._hi, self._end, self._thin, {name for name, _ in self._places})
        if passing.kernel.unit.ticks and self._past.ticks_write({name for name, _ in self._places}):
            raise Uncompiled("ticks may have written it")  # they are no steps of a batch
        found: dict[Place, list[_Stretch]] = {place: [] for place in self._places}
        ends = set(self._ends.values())
        self._cuts = dict.fromkeys(ends, 0)
        live = {name: passing.kernel.live(name, None) for name, _ in self._places}
        values: dict[Place, Any] = {}
        since: tuple[int, int] = 0, 0

        def visit(batch: Stepped, at: int) -> bool:
            nonlocal since
            here = batch.base + at
            for place in self._places:
                if passing.kernel.take_written(*place):
                    value = live[place[0]]._get(place[1], ABSENT)
                    # Two stops that lie one step apart are of one batch.
                    alone = batch.step(since[1]) if here - since[0] == 1 else None
                    found[place].append(_Stretch(since[0], here, values.get(place, ABSENT), value, alone))
                    values[place] = value
            since = here, at
            return False

        def go(batch: Stepped) -> Iterator[tuple[int, Callable[[], bool]] | None]:
            cuts = {end: batch.before(end) for end in ends}
            for end, at in cuts.items():
                self._cuts[end] = batch.base + at
                if at < batch.count:
                    ends.remove(end)
            # The last step of a batch is told apart from the next one's first.
            own = merged([stops(batch), np.asarray([0, batch.count, *cuts.values()])])
            last = cuts.get(self._final, 0)
            for at in own[own <= last].tolist():
                yield at, lambda at=at: visit(batch, at)  # type: ignore[misc]
            if not ends:
                yield None

        passing.go(go)
        return found


def _end(ask: timed.Ask, over: int) -> int:
    """The number that the first step has at least which is not asked about; `over`: a time at which all are left out."""
    ends = [number_of(over, 0, -1, 0)]
    if ask.number is not None:
        ends.append(ask.number)
    if ask.until is not None:
        ends.append(number_of(ask.until + 1, 0, -1, 0))
    return min(ends)


def _parted(stretch: _Stretch, parts: int) -> Iterator[int]:
    """Stops that cut a stretch."""
    size = stretch.b - stretch.a
    count = min(size, parts)
    return (stretch.a + size * n // count for n in range(count + 1))


def _inside(stops: Sequence[int], batch: Stepped) -> Seqs:
    """Those of the stops that lie in a batch."""
    all_ = np.asarray(stops, np.int64) - batch.base
    return all_[(all_ >= 0) & (all_ <= batch.count)]


__all__ = ["Passing", "Stepped", "newest_writes"]
