"""Guesses who wrote a key, to be tried while a slice is gone through: stops around the events that are likely to have."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from timelapse.kernels.walk import Moment
from timelapse.kinds.base import UNKEYED
from timelapse.kinds.grouped import Under
from timelapse.model.events import Event
from timelapse.model.types import TupleType
from timelapse.segments.types import bind, heard
from timelapse.trace.columns import Seqs
from timelapse.trace.knowledge import Ask, Place, Unfocused
from timelapse.trace.lookup import merged
from timelapse.trace.moments import Past

_GUESSES = 16
_NEAR = 1 << 20
"""So many events before the one that is asked about are looked at for likely writers in the first walk."""
_RECENT = 1 << 14
"""So many of the newest events are looked at for those that write a state without a key."""
_FEW = 64
"""Likely writers of each place that are stopped at in it, where one event is asked about; of many events fewer."""
_FEWER = 6
_EVENLY = 64
"""Stops in it that lie evenly over the slice, where one event is asked about."""


@dataclass(frozen=True)
class Stretch:
    """Events a <= seq < b, in which a key was written; `open`: in which it may have been."""

    a: int
    b: int
    before: Any = None
    after: Any = None
    open: bool = False


class Watch:
    """Between which stops of a walk places were written. Each place has stops of its own; its first one is where it begins."""

    def __init__(
        self, stops: Mapping[Place, Iterable[int]], goals: Mapping[Place, Any] | None = None
    ) -> None:
        """`goals`: what each place holds after its last write of the walk, and not before; None: that is not known of all."""
        self.found: dict[Place, list[Stretch]] = {place: [] for place in stops}
        self._goals, self._open = goals or {}, set(stops)
        self._here: dict[int, list[Place]] = {}
        for place, own in stops.items():
            for seq in own:
                self._here.setdefault(seq, []).append(place)
        self._last: dict[Place, tuple[int, Any]] = {}
        self._first = min(self._here, default=0)

    @property
    def stops(self) -> list[int]:
        """All of them, ascending."""
        return sorted(self._here)

    def visit(self, moment: Moment) -> None:
        """At each stop, in ascending order; from the first one on again, should the walk begin anew."""
        if moment.seq == self._first:
            self._last.clear()
            self.found.update((place, []) for place in self.found)
            self._open = set(self.found)
        for place in self._here.get(moment.seq, ()):
            written, before = moment.written(*place), self._last.get(place)
            if before is not None and not written:
                self._last[place] = (moment.seq, before[1])
                continue
            value = moment.value(*place)
            if before is not None:
                self.found[place].append(Stretch(before[0], moment.seq, before[1], value))
            self._last[place] = (moment.seq, value)
            if place in self._goals and value == self._goals[place]:
                self._open.discard(place)

    @property
    def over(self) -> bool:
        """Whether no place is written any more."""
        return not self._open


class Guess:
    """Likely readings of events of one slice, and where they were written, found while it is gone through anyway.

    A program mostly reads under keys that follow from the event, or are among its fields. What is guessed wrongly costs
    little, and what is not guessed is searched for afterwards.
    """

    def __init__(self, past: Past, events: Collection[Event]) -> None:
        self._lo = lo = past.cuts[past.slice_of(max(e.seq for e in events))]
        asks = {
            Ask(p, past.settled(p, end))
            for e in events for p in _guessed(past, e) for end in past.ends(p[0], e)
        }  # fmt: skip
        self._asks = {ask for ask in asks if ask.end > lo}
        few = _FEW * past.patience if len(events) == 1 else _FEWER * past.patience
        # Where it is told who may have written them, little is left of the slice, and many stops cost as much as another way.
        told = frozenset(past.telling(self._asks)) if past.patience > 1 else frozenset()
        self.likely = Newest()
        stops: dict[Place, set[int]] = {}
        hi = max((ask.end for ask in self._asks), default=lo)
        for ask, seqs in candidates(past, lo, hi, self._asks, back=_NEAR).items():
            # What is written once, is written first.
            newest = few // 2 if ask in told and len(seqs) > few else few
            near = {*seqs[-newest:].tolist(), *seqs[:2].tolist()}
            # Where it was written long ago, what is gone through again ends soon after.
            evenly = range(lo, ask.end, max(1, (ask.end - lo) // (_EVENLY if len(events) == 1 else 1)))
            stops.setdefault(ask.place, set()).update({lo, ask.end}, evenly, near, (s + 1 for s in near))
            self.likely[ask.place] = merged([self.likely[ask.place], seqs])
        self._watch = Watch(stops)
        self.stops = self._watch.stops

    @property
    def places(self) -> Collection[Place]:
        """What is watched."""
        return self._watch.found.keys()

    def visit(self, moment: Moment) -> None:
        """At each stop."""
        self._watch.visit(moment)

    def found(self, place: Place, end: int) -> list[Stretch] | None:
        """Where it was written in the slice before an event, newest first; None where that was not guessed."""
        if Ask(place, end) not in self._asks:
            return None
        return [s for s in reversed(self._watch.found[place]) if s.b <= end]


class Newest(dict[Place, Seqs]):
    """Events by place; none where nothing is known."""

    def __missing__(self, place: Place) -> Seqs:
        return np.zeros(0, np.int64)


def _guessed(past: Past, event: Event) -> Iterator[Place]:
    """What the event is likely to read: what analysis says it uses; of other states keys made of its fields."""
    known = past.used_at(event)
    states = {name for name, _ in known}
    yield from dict.fromkeys((*known, *(p for p in _of_fields(past, event) if p[0] not in states)))


def _of_fields(past: Past, event: Event) -> Iterator[Place]:
    """Keys made of the event's fields, and of what is in those that are lists: one, or two in either order; single values."""
    values = [getattr(event, f.name) for f in type(event).__fields__]
    plain = [v for v in values if isinstance(v, int | str | bytes)]
    plain += [v for own in values if isinstance(own, tuple | list) for v in own]
    for name, spec in past.spec.states.items():
        if spec.key is None:
            yield name, UNKEYED
            continue
        parts = spec.key.items if isinstance(spec.key, TupleType) else (spec.key,)
        if len(parts) > 2:
            continue
        keys = itertools.permutations(plain, 2) if len(parts) == 2 else ((v,) for v in plain)
        fitting = (
            k for k in keys if all(_TYPES.get(p.text) is type(v) for p, v in zip(parts, k, strict=True))
        )
        for key in itertools.islice(dict.fromkeys(fitting), _GUESSES):
            yield name, key if isinstance(spec.key, TupleType) else key[0]


_TYPES = {"int": int, "str": str, "bytes": bytes, "Time": int}


def candidates(
    past: Past, lo: int, hi: int, asks: Collection[Ask], back: int | None = None
) -> dict[Ask, Seqs]:
    """For each question events lo <= seq < hi that are likely to have written the place, ascending: at least the newest.

    `back`: so many events before the end of each are looked at, where all fields have to be compared.
    """
    told = past.telling(asks)
    made = dict((past.likely(told, lo, hi) or {}) if told else {})
    ends: dict[int, list[Ask]] = {}
    left = [ask for ask in asks if ask not in made]
    last = min(hi, max((ask.end for ask in left), default=lo))
    for ask in left:
        ends.setdefault(last if back is None else min(ask.end, hi), []).append(ask)
    for end, own in ends.items():
        seqs = likely(past, lo if back is None else max(lo, end - back), end, [ask.place for ask in own])
        made |= {ask: seqs[ask.place][: np.searchsorted(seqs[ask.place], ask.end)] for ask in own}
    return made


def likely(past: Past, lo: int, hi: int, places: Sequence[Place]) -> dict[Place, Seqs]:
    """For each place the events that may well write it, by what their fields hold."""
    keys = {place: _parts(place[1]) for place in places}
    found: dict[Place, list[Seqs]] = {
        place: [] if keys[place] else [_recent(past, place[0], lo, hi)] for place in places
    }
    classes = {e.__name__: e for e in heard(past.spec, past.reader.types) if e.__name__ in past.columns}
    if classes and any(keys.values()):
        bind(past.reader.types, classes.values())
        for chunk in past.reader.chunks(lo, hi, {name: past.columns[name] for name in classes}):
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


def _recent(past: Past, state: str, lo: int, hi: int) -> Seqs:
    """The newest events of the types that write a state without a key."""
    try:
        kinds = {pattern.type for pattern in past.knowledge.writers_of(state)}
    except Unfocused:
        kinds = {e.__name__ for e in past.spec.events}
    wanted: dict[str, list[str]] = {t.name: [] for t in past.reader.types if t.name in kinds}
    seqs: list[Seqs] = [np.zeros(0, np.int64)]
    for chunk in past.reader.chunks(max(lo, hi - _RECENT), hi, wanted):
        seqs += [table.column("seq").to_numpy() for table in chunk.tables.values()]
    return np.sort(np.concatenate(seqs))


def _parts(key: Any) -> tuple[Any, ...]:
    if isinstance(key, Under):
        key = key.key
    if key == UNKEYED or key is None:
        return ()
    return tuple(key) if isinstance(key, tuple) else (key,)


def _holding(
    table: pa.Table, part: Any, known: dict[Any, npt.NDArray[np.bool_] | None]
) -> npt.NDArray[np.bool_] | None:
    """The rows in which some field is equal to a part of a key, or is a list that holds it; None where there is none such."""
    name = (type(part), part)
    if name not in known:
        total: npt.NDArray[np.bool_] | None = None
        for column, kind in zip(table.columns[2:], table.schema.types[2:], strict=True):
            listed = pa.types.is_list(kind) or pa.types.is_large_list(kind)
            if not _fits(part, kind.value_type if listed else kind):
                continue
            mask = _listing(column, part) if listed else _equal(column, part)
            total = mask if total is None else total | mask
        known[name] = None if total is None or not total.any() else total
    return known[name]


def _equal(column: pa.Array | pa.ChunkedArray, part: Any) -> npt.NDArray[np.bool_]:
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    return np.asarray(pc.fill_null(pc.equal(column, pa.scalar(part, column.type)), False))


def _listing(column: pa.ChunkedArray, part: Any) -> npt.NDArray[np.bool_]:
    """The rows whose list holds it."""
    found = [np.zeros(0, np.bool_)]
    for chunk in column.chunks:
        mask = np.zeros(len(chunk), np.bool_)
        mask[pc.list_parent_indices(chunk).to_numpy()[_equal(pc.list_flatten(chunk), part)]] = True
        found.append(mask)
    return np.concatenate(found)


def _fits(part: Any, kind: pa.DataType) -> bool:
    if isinstance(part, bool):
        return bool(pa.types.is_boolean(kind))
    if isinstance(part, int):
        return bool(pa.types.is_int64(kind) or pa.types.is_timestamp(kind))
    if isinstance(part, str):
        return bool(pa.types.is_large_string(kind) or pa.types.is_string(kind))
    return isinstance(part, bytes) and bool(pa.types.is_large_binary(kind) or pa.types.is_binary(kind))


__all__ = ["Guess", "Newest", "Stretch", "Watch", "candidates"]
