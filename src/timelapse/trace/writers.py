"""Who wrote what a handler read: a search backwards through the slices, filtered by key.

A slice is gone through again with stops around the events that are likely to have written the keys: those with a field
that is equal to the key, or with fields that hold all of its parts. At each stop the kernel says whether the key has been
written since the last one, so a wrong guess is noticed: a stretch in which it was written without a stop at the event is
gone through again with closer stops. What is found is exact, whatever the key is computed from.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from timelapse.kernels.walk import Moment
from timelapse.kinds.base import ABSENT, UNKEYED
from timelapse.log.types import bind
from timelapse.model.events import Event
from timelapse.model.types import TupleType
from timelapse.trace.focus import Place, Unfocused
from timelapse.trace.moments import Past
from timelapse.trace.recorder import seen
from timelapse.trace.steps import MISSING

Seqs = npt.NDArray[np.int64]

_STOPS = 512
"""Likely events that are stopped at in a first pass: the newest."""
_MORE = 16
"""So many times more in each further pass."""
_PARTS = 64
"""Into so many parts a stretch is cut where no event in it is likely."""


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


@dataclass(frozen=True)
class _Stretch:
    """Events a <= seq < b, in which a key was written; `open`: in which it may have been."""

    a: int
    b: int
    before: Any = None
    after: Any = None
    open: bool = False


def writers(
    past: Past,
    places: Sequence[Place],
    seq: int,
    count: int,
    absent: Collection[Place] = (),
    guess: Guess | None = None,
) -> dict[Place, Writers]:
    """For each place the last `count` events before `seq` that wrote it.

    Slices are searched from the newest. Where a key is one that events' fields hold, a slice without such an event that
    left the key as it was is passed over; for the keys in `absent`, which are not there at `seq`, every slice that left
    them as they were. `guess`: what is known of the slice before `seq`, from going through it already.
    """
    result = {place: Writers() for place in dict.fromkeys(places)}
    refused = past.refused()
    known = _Known(frozenset(absent))
    first = past.slice_of(seq)
    if guess is not None:
        known.held.update(p for p in result if len(guess.likely[p]) > 0)
    for slice_id in range(first, -1, -1):
        end = min(seq, past.cuts[slice_id + 1])
        open_ = [p for p, w in result.items() if len(w.found) < count]
        if not open_:
            break
        if end <= past.cuts[slice_id]:
            continue
        focused = _focused(past, slice_id, end, [p for p in open_ if not known.gone(past, p, slice_id, end)])
        if focused is not None:
            for place, found in focused.items():
                result[place].found += found[: count - len(result[place].found)]
        else:
            search = _Search(past, slice_id, end, refused, known)
            if guess is not None and slice_id == first:
                search.start(guess)
            for place, found in search.run({p: count - len(result[p].found) for p in open_}).items():
                result[place].found += found
    return result


def _focused(
    past: Past, slice_id: int, end: int, places: Sequence[Place]
) -> dict[Place, list[Written]] | None:
    """All writes of the places in a slice, newest first, from the events that matter; None: the slice is gone through."""
    try:
        wrote, _ = past.focus(slice_id, end).writes(places)
    except Unfocused:
        return None
    return {
        p: [Written(w.seq, shown_side(w.before), shown_side(w.after)) for w in found[::-1]]
        for p, found in wrote.items()
    }


class Guess:
    """Likely readings of an event, and where they were written, found while its slice is gone through anyway.

    A program mostly reads under keys that the event's own fields hold. What is guessed wrongly costs little, and
    what is not guessed is searched for afterwards.
    """

    def __init__(self, past: Past, event: Event) -> None:
        self._lo, self._seq = past.cuts[past.slice_of(event.seq)], event.seq
        self.places = list(_guessed(past, event))
        self.likely = _Newest(likely(past, max(self._lo, event.seq - _NEAR), event.seq, self.places))
        near = {int(s) for p in self.places for s in self.likely[p][-_FEW:].tolist()}
        self.stops = sorted({self._lo, *near, *(s + 1 for s in near)} - {event.seq})
        self._watch = _Watch(self.places)

    def visit(self, moment: Moment) -> None:
        """At each stop, and at the event."""
        self._watch.visit(moment)

    def found(self, place: Place) -> list[_Stretch] | None:
        """Where it was written in the slice before the event, newest first; None where it was not guessed."""
        stretches = self._watch.found.get(place)
        return None if stretches is None else stretches[::-1]


class _Newest(dict[Place, "Seqs"]):
    def __missing__(self, place: Place) -> Seqs:
        return np.zeros(0, np.int64)


class _Watch:
    """Between which stops of a walk places were written."""

    def __init__(self, places: Sequence[Place]) -> None:
        self.found: dict[Place, list[_Stretch]] = {p: [] for p in places}
        self._last: dict[Place, Any] = {}
        self._at = -1

    def visit(self, moment: Moment) -> None:
        """At each stop, the first of which is where the slice begins."""
        for place, stretches in self.found.items():
            written = moment.written(*place)
            if written or self._at < 0:
                value = moment.value(*place)
                if self._at >= 0:
                    stretches.append(_Stretch(self._at, moment.seq, self._last[place], value))
                self._last[place] = value
        self._at = moment.seq


def _guessed(past: Past, event: Event) -> Iterator[Place]:
    """Keys made of the event's fields: one, or two in either order; single values."""
    values = [getattr(event, f.name) for f in type(event).__fields__]
    plain = [v for v in values if isinstance(v, int | str | bytes)]
    for name, spec in past.spec.states.items():
        if spec.key is None:
            yield name, UNKEYED
            continue
        parts = spec.key.items if isinstance(spec.key, TupleType) else (spec.key,)
        keys = itertools.permutations(plain, 2) if len(parts) == 2 else ((v,) for v in plain)
        if len(parts) > 2:
            continue
        for key in itertools.islice(dict.fromkeys(keys), _GUESSES):
            if all(_TYPES.get(p.text) is type(v) for p, v in zip(parts, key, strict=True)):
                yield name, key if isinstance(spec.key, TupleType) else key[0]


_TYPES = {"int": int, "str": str, "bytes": bytes, "Time": int}
_GUESSES = 16
_NEAR = 1 << 20
"""So many events before the one that is asked about are looked at for likely writers in the first walk."""
_FEW = 24
"""Likely writers of each place that are stopped at in it."""


@dataclass
class _Known:
    """What was found of the places in slices searched before.

    `held`: some event's fields hold the key. `computed`: an event wrote it whose fields do not.
    """

    absent: frozenset[Place]
    held: set[Place] = field(default_factory=set)
    computed: set[Place] = field(default_factory=set)

    def gone(self, past: Past, place: Place, slice_id: int, end: int) -> bool:
        """Whether a slice left a place as it was that is not there afterwards."""
        whole = end >= past.cuts[slice_id + 1]
        return place in self.absent and whole and not past.changed(place[0], place[1], slice_id)


class _Search:
    """The search through one slice."""

    def __init__(self, past: Past, slice_id: int, end: int, refused: frozenset[int], known: _Known) -> None:
        self._known = known
        self._past, self._slice, self._refused = past, slice_id, refused
        self._lo, self._hi = past.cuts[slice_id], end
        self._likely: dict[Place, Seqs] = {}
        self._guess: Guess | None = None

    def start(self, guess: Guess) -> None:
        """Begin with what is known of the slice."""
        self._guess = guess

    def run(self, wanted: Mapping[Place, int]) -> dict[Place, list[Written]]:
        """For each place so many of the last events that wrote it."""
        whole = [_Stretch(self._lo, self._hi, open=True)]
        found: dict[Place, list[_Stretch]] = {}
        for place in wanted:
            guessed = None if self._guess is None else self._guess.found(place)
            found[place] = whole if guessed is None else guessed
        places = [p for p in wanted if not (found[p] is whole and self._gone(p))]
        if any(self._unclear(found[p], wanted[p]) for p in places):
            self._likely = likely(self._past, self._lo, self._hi, places)
            self._known.held.update(p for p in places if len(self._likely[p]))
        places = [p for p in places if found[p] is not whole or not self._passed_over(p)]
        found = {p: found[p] for p in places}
        most = _STOPS
        while True:
            unclear = {p: self._unclear(found[p], wanted[p]) for p in places}
            stops = {s for p in places for stretch in unclear[p] for s in self._stops(p, stretch, most)}
            if not stops:
                break
            seen_ = self._pass(sorted(stops), [p for p in places if unclear[p]])
            for place, stretches in seen_.items():
                gone = unclear[place]
                kept = [s for s in found[place] if s not in gone]
                inside = [s for s in stretches if any(g.a <= s.a and s.b <= g.b for g in gone)]
                found[place] = sorted([*kept, *inside], key=lambda s: -s.a)
            most *= _MORE
        for place, stretches in found.items():
            wrote = [s.a for s in stretches if self._single(s)]
            fields = self._likely.get(place)
            if fields is None and self._guess is not None:
                fields = self._guess.likely[place]
            if not np.isin(wrote, [] if fields is None else fields).all():
                self._known.computed.add(place)
        return {
            p: [Written(s.a, shown_side(s.before), shown_side(s.after)) for s in found[p] if self._single(s)][
                : wanted[p]
            ]
            for p in places
        }

    def _unchanged(self, place: Place) -> bool:
        """Whether it is the whole slice that is searched, and it left the place as it was."""
        whole = self._hi >= self._past.cuts[self._slice + 1]
        return whole and not self._past.changed(place[0], place[1], self._slice)

    def _gone(self, place: Place) -> bool:
        return self._known.gone(self._past, place, self._slice, self._hi)

    def _passed_over(self, place: Place) -> bool:
        known = self._known
        if not self._unchanged(place):
            return False
        return not len(self._likely.get(place, ())) and place in known.held and place not in known.computed

    def _single(self, stretch: _Stretch) -> bool:
        return stretch.b - stretch.a == 1 and not stretch.open and stretch.a not in self._refused

    def _unclear(self, stretches: Sequence[_Stretch], wanted: int) -> list[_Stretch]:
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

    def _stops(self, place: Place, stretch: _Stretch, most: int) -> Iterator[int]:
        """Where to stop in a stretch in which the place was written."""
        yield stretch.a
        yield stretch.b
        all_ = self._likely[place]
        mine = all_[np.searchsorted(all_, stretch.a) : np.searchsorted(all_, stretch.b)]
        if len(mine):
            for s in mine[-most:].tolist():
                yield s
                yield s + 1
            return
        size = stretch.b - stretch.a
        for part in range(1, _PARTS):
            yield stretch.a + size * part // _PARTS

    def _pass(self, stops: Sequence[int], places: Sequence[Place]) -> dict[Place, list[_Stretch]]:
        """Go through the slice: between which stops each place was written."""
        watch = _Watch(places)

        def visit(moment: Moment) -> bool:
            watch.visit(moment)
            return False

        self._past.walk(self._slice, stops, visit)
        return watch.found


def shown_side(value: Any) -> Any:
    """What a key held, as it is told: MISSING for nothing."""
    return MISSING if value is ABSENT else seen(value)


def likely(past: Past, lo: int, hi: int, places: Sequence[Place]) -> dict[Place, Seqs]:
    """For each place the events that may well write it, by what their fields hold."""
    keys = {place: _parts(place[1]) for place in places}
    found: dict[Place, list[Seqs]] = {place: [] for place in places}
    classes = {e.__name__: e for e in past.spec.events if e.__name__ in past.columns}
    if classes and any(keys.values()):
        bind(past.reader.types, classes.values())
        for chunk in past.reader.chunks(lo, hi, past.columns):
            for table in chunk.tables.values():
                seqs = table.column("seq").to_numpy()
                known: dict[Any, npt.NDArray[np.bool_] | None] = {}
                for place, parts in keys.items():
                    if not parts:
                        continue
                    masks = [_holding(table, part, known) for part in parts]
                    if all(m is not None for m in masks):
                        found[place].append(seqs[np.logical_and.reduce([m for m in masks if m is not None])])
    empty: Seqs = np.zeros(0, np.int64)
    return {place: np.sort(np.concatenate([empty, *parts])) for place, parts in found.items()}


def _parts(key: Any) -> tuple[Any, ...]:
    if key == UNKEYED or key is None:
        return ()
    return tuple(key) if isinstance(key, tuple) else (key,)


def _holding(
    table: pa.Table, part: Any, known: dict[Any, npt.NDArray[np.bool_] | None]
) -> npt.NDArray[np.bool_] | None:
    """The rows in which some field is equal to a part of a key; None where there is none such."""
    name = (type(part), part)
    if name not in known:
        total: npt.NDArray[np.bool_] | None = None
        for column, kind in zip(table.columns[2:], table.schema.types[2:], strict=True):
            if not _fits(part, kind):
                continue
            if pa.types.is_timestamp(kind):
                column = column.cast(pa.int64())
            mask = np.asarray(pc.fill_null(pc.equal(column, pa.scalar(part, column.type)), False))
            total = mask if total is None else total | mask
        known[name] = None if total is None or not total.any() else total
    return known[name]


def _fits(part: Any, kind: pa.DataType) -> bool:
    if isinstance(part, bool):
        return bool(pa.types.is_boolean(kind))
    if isinstance(part, int):
        return bool(pa.types.is_int64(kind) or pa.types.is_timestamp(kind))
    if isinstance(part, str):
        return bool(pa.types.is_large_string(kind) or pa.types.is_string(kind))
    return isinstance(part, bytes) and bool(pa.types.is_large_binary(kind) or pa.types.is_binary(kind))
