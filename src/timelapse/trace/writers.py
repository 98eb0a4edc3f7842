"""Who wrote what a handler read: a search backwards through the slices, filtered by key.

A slice is gone through again with stops around the events that are likely to have written the keys: those with a field
that is equal to the key, or with fields that hold all of its parts. At each stop the kernel says whether the key has been
written since the last one, so a wrong guess is noticed: a stretch in which it was written without a stop at the event is
gone through again with closer stops. What is found is exact, whatever the key is computed from.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from timelapse.kernels.walk import Moment
from timelapse.kinds.base import ABSENT
from timelapse.kinds.grouped import Under
from timelapse.trace.columns import NONE, Seqs, contained
from timelapse.trace.knowledge import Ask, Place, Unfocused
from timelapse.trace.likely import Guess, Stretch, Watch, candidates
from timelapse.trace.moments import Past
from timelapse.trace.recorder import seen
from timelapse.trace.steps import MISSING
from timelapse.trace.thin import Thinned

_STOPS = 512
"""Likely events that are stopped at in a pass: the newest of a stretch."""
_EVENLY = 1024
"""And so many more that lie evenly among the rest: between them a further pass looks closer. So the passes are few, however many
events are likely: their number is a logarithm."""
_CLOSER = 4096
"""Stops of a further pass."""
_LEAST = 64
"""Stops are shared among the stretches in question; each has so many at least."""


@dataclass(frozen=True)
class Written:
    """An event wrote a key. `before` and `after`: what it held, MISSING where there was nothing."""

    seq: int
    before: Any
    after: Any


@dataclass
class Writers:
    """The newest events that wrote a key, newest first. `older`: something was there before the oldest of them."""

    found: list[Written] = field(default_factory=list)

    @property
    def older(self) -> bool:
        return bool(self.found) and self.found[-1].before is not MISSING


def writers(past: Past, asks: Collection[Ask], count: int, guess: Guess | None = None) -> dict[Ask, Writers]:
    """For each question the last `count` events that wrote the place.

    Slices are searched from the newest. Where a key is one that events' fields hold, a slice without such an event that
    left the key as it was is passed over; for keys that are not there at the end, every slice that left them as they
    were. `guess`: what is known of a slice from going through it already. Of all that stands under a declared key (Under) it is who
    changed their number; raises Untold where that is not counted.
    """
    sooner = {ask: ask._replace(end=past.settled(ask.place, ask.end)) for ask in asks}
    found = _writers(past, set(sooner.values()), count, guess)
    return {ask: found[own] for ask, own in sooner.items()}


def _writers(past: Past, asks: Collection[Ask], count: int, guess: Guess | None) -> dict[Ask, Writers]:
    """The same; the ends of the questions are where a place may have been written last."""
    result = {ask: Writers() for ask in asks}
    refused = past.refused()
    known = _Known()
    first = past.slice_of(max((a.end for a in result), default=0))
    if guess is not None:
        known.held.update(a.place for a in result if len(guess.likely[a.place]) > 0)
    for slice_id in range(first, -1, -1):
        lo, hi = past.cuts[slice_id], past.cuts[slice_id + 1]
        open_ = [a for a, w in result.items() if len(w.found) < count and a.end > lo]
        wanted = [
            a
            for a in open_
            if not known.gone(past, a, slice_id) and past.settled(a.place, min(a.end, hi)) > lo
        ]
        focused = _focused(past, slice_id, wanted)
        for ask, found in focused.items():
            result[ask].found += found[: count - len(result[ask].found)]
        rest = {a: count - len(result[a].found) for a in wanted if a not in focused}
        for ask, found in _Search(past, slice_id, refused, known, guess).run(rest).items():
            result[ask].found += found
    return result


def _focused(past: Past, slice_id: int, asks: Sequence[Ask]) -> dict[Ask, list[Written]]:
    """All writes of the places in a slice, newest first, from the events that matter. What is not in it is searched for.

    All questions at once; where that is too much, those about one event at a time, then those about one state.
    """
    ends: dict[int, list[Ask]] = {}
    for ask in asks:
        ends.setdefault(min(ask.end, past.cuts[slice_id + 1]), []).append(ask)
    if not ends or any(isinstance(ask.place[1], Under) for ask in asks):
        return {}
    try:
        wrote, _ = past.focus(slice_id, max(ends)).writes({a.place for a in asks})
    except Unfocused:
        if len(ends) > 1:
            return {a: found for own in ends.values() for a, found in _focused(past, slice_id, own).items()}
        states: dict[str, list[Ask]] = {}
        for ask in asks:
            states.setdefault(ask.place[0], []).append(ask)
        if len(states) == 1:
            return {}
        return {a: found for own in states.values() for a, found in _focused(past, slice_id, own).items()}
    return {
        a: [
            Written(w.seq, shown_side(w.before), shown_side(w.after))
            for w in reversed(wrote[a.place])
            if w.seq < a.end
        ]
        for a in asks
    }


@dataclass
class _Known:
    """What was found of the places in slices searched before.

    `held`: some event's fields hold the key. `computed`: an event wrote it whose fields do not.
    """

    held: set[Place] = field(default_factory=set)
    computed: set[Place] = field(default_factory=set)

    def gone(self, past: Past, ask: Ask, slice_id: int) -> bool:
        """Whether a slice left a place as it was that is not there afterwards."""
        whole = ask.end >= past.cuts[slice_id + 1]
        return ask.absent and whole and not past.changed(*ask.place, slice_id)


class _Search:
    """The search through one slice."""

    def __init__(
        self, past: Past, slice_id: int, refused: frozenset[int], known: _Known, guess: Guess | None
    ) -> None:  # fmt: skip
        self._known = known
        self._past, self._slice, self._refused = past, slice_id, refused
        self._lo, self._hi = past.cuts[slice_id], past.cuts[slice_id + 1]
        self._likely: Mapping[Ask, Seqs] = {}
        self._guess = guess

    def run(self, wanted: Mapping[Ask, int]) -> dict[Ask, list[Written]]:
        """For each question so many of the last events that wrote the place."""
        found: dict[Ask, list[Stretch]] = {}
        whole = []
        for ask in wanted:
            end = min(ask.end, self._hi)
            guessed = None if self._guess is None else self._guess.found(ask.place, end)
            if guessed is None:
                whole.append(ask)
            found[ask] = [Stretch(self._lo, end, open=True)] if guessed is None else guessed
        open_ = [ask for ask in found if self._unclear(found[ask], wanted[ask])]
        if open_:
            self._likely = candidates(self._past, self._lo, self._hi, open_)
            self._known.held.update(ask.place for ask, seqs in self._likely.items() if len(seqs))
        for ask in whole:
            if self._passed_over(ask):
                del found[ask]
        closer = False
        while True:
            unclear = {ask: u for ask in found if (u := self._unclear(found[ask], wanted[ask]))}
            if not unclear:
                break
            seen_ = self._pass(unclear, closer=closer)
            for ask, gone in unclear.items():
                kept = [s for s in found[ask] if s not in gone]
                inside = [s for s in seen_[ask.place] if any(g.a <= s.a and s.b <= g.b for g in gone)]
                found[ask] = sorted([*kept, *inside], key=lambda s: -s.a)
            closer = True
        for ask, stretches in found.items():
            wrote = [s.a for s in stretches if self._single(s)]
            fields = self._likely.get(ask)
            if fields is None and self._guess is not None:
                fields = self._guess.likely[ask.place]
            if not contained(np.asarray(wrote, np.int64), NONE if fields is None else fields).all():
                self._known.computed.add(ask.place)
        return {
            ask: [Written(s.a, shown_side(s.before), shown_side(s.after)) for s in own if self._single(s)][
                : wanted[ask]
            ]
            for ask, own in found.items()
        }

    def _passed_over(self, ask: Ask) -> bool:
        """Whether the slice is not searched: it left the place as it was, and no event is likely to have written it."""
        place, known = ask.place, self._known
        if ask.end < self._hi or isinstance(place[1], Under) or self._past.changed(*place, self._slice):
            return False
        return not len(self._likely.get(ask, ())) and place in known.held and place not in known.computed

    def _single(self, stretch: Stretch) -> bool:
        nothing = stretch.before is ABSENT and stretch.after is ABSENT  # of no interest to anybody
        return (
            stretch.b - stretch.a == 1 and not stretch.open and not nothing and stretch.a not in self._refused
        )

    def _unclear(self, stretches: Sequence[Stretch], wanted: int) -> list[Stretch]:
        """The newest stretches of several events, as far as they may hold one of the last events that wrote the key."""
        known, unclear = 0, []
        for stretch in stretches:
            if known >= wanted:
                break
            if stretch.b - stretch.a > 1 or stretch.open:
                unclear.append(stretch)
                known += 1  # it holds one at least
            elif self._single(stretch):
                known += 1
        return unclear

    def _stops(
        self, ask: Ask, stretch: Stretch, newest: int, evenly: int, parts: int, thin: Thinned | None
    ) -> Iterator[int]:
        """Where to stop in a stretch in which the place was written. `thin`: the events that are left of the slice. `newest`, `evenly`: so
        many of the likely events; `parts`: the stretch is cut into so many where these may be others."""
        yield stretch.a
        yield stretch.b
        mine = _within(self._likely[ask], stretch)
        if thin is not None and (not len(mine) or len(thin.places.get(ask.place[0], ())) == 1):
            mine = _within(
                thin.writers[ask.place[0]], stretch
            )  # of likely events only the newest are looked for
        if len(mine):
            for s in mine[-newest:].tolist():
                yield s
                yield s + 1
            rest = mine[:-newest]
            yield from rest[:: max(1, len(rest) // evenly)].tolist()
            if thin is not None or len(mine) >= evenly or self._past.telling([ask]):
                return
        size = stretch.b - stretch.a
        for part in range(1, parts):
            yield stretch.a + size * part // parts

    def _pass(
        self, unclear: Mapping[Ask, Sequence[Stretch]], *, closer: bool
    ) -> Mapping[Place, list[Stretch]]:
        """Go through the slice: between which of its stops each place was written. `closer`: once more."""
        past, places = self._past, {ask.place for ask in unclear}
        states = {name for name, _ in places}
        counts = any(isinstance(key, Under) for _, key in places)  # who counts may only put it out
        end = max(s.b for own in unclear.values() for s in own)
        thin = past.thin(self._slice, end, states, places, whole=counts)
        patience = (
            past.patience if thin is None else 1
        )  # where little is left, stops cost more than another pass
        among = sum(map(len, unclear.values())) if closer else len(unclear)
        newest = _shared((_CLOSER if closer else _STOPS) * patience, among)
        evenly = newest if closer else _shared(_EVENLY, among)
        # Places that are looked for in one stretch share the stops that lie evenly in it.
        alike = len({(s.a, s.b) for own in unclear.values() for s in own})
        parts = newest if closer else _shared(_EVENLY, alike)
        stops: dict[Place, set[int]] = {}
        for ask, stretches in unclear.items():
            stops.setdefault(ask.place, set()).update(
                s for g in stretches for s in self._stops(ask, g, newest, evenly, parts, thin)
            )
        goals = self._goals(unclear)
        watch = Watch(stops, goals)

        def visit(moment: Moment) -> bool:
            watch.visit(moment)
            if watch.over:
                moment.end()
            return False

        past.walk(
            self._slice, watch.stops, visit, states=states, whole=counts, places=stops, soon=goals is not None
        )
        return watch.found

    def _goals(self, unclear: Mapping[Ask, Sequence[Stretch]]) -> Mapping[Place, Any] | None:
        """What the places hold once they are not written any more, if that is known of all of them."""
        past, ends = self._past, dict[Place, int]()
        for ask, stretches in unclear.items():
            if ask.place[0] not in past.onward or isinstance(ask.place[1], Under):
                return None
            ends[ask.place] = max(ends.get(ask.place, 0), *(s.b for s in stretches))
        return {place: past.last_held(place, end) for place, end in ends.items()}


def _within(seqs: Seqs, stretch: Stretch) -> Seqs:
    """Those of ascending events that lie in a stretch."""
    return seqs[np.searchsorted(seqs, stretch.a) : np.searchsorted(seqs, stretch.b)]


def _shared(stops: int, among: int) -> int:
    return max(_LEAST, stops // max(1, among))


def shown_side(value: Any) -> Any:
    """What a key held, as it is told: MISSING for nothing."""
    return MISSING if value is ABSENT else seen(value)


__all__ = ["Ask", "Written", "Writers", "shown_side", "writers"]
