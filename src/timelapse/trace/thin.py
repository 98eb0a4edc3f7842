"""A stretch of the log without the events that do not matter to some keys. The events that are left are replayed like the whole stretch.

If too many events matter to be run one by one (few.py, focus.py), they may still be few of a long log. They are found state by state, over
arrays: first the events that may write one of the keys in question, then those that may write what these writes read, and so on. Keys are
computed once for each combination of the fields that they are made of.

What other keys hold afterwards means nothing, and nobody asks for it. But a handler may fail at it that did not fail in the run.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from timelapse.env.machine import cores
from timelapse.kernels.walk import load
from timelapse.kinds.grouped import Under
from timelapse.log.part import reading
from timelapse.model.events import Event
from timelapse.segments.reader import Chunk, SameEvents
from timelapse.segments.reader import Columns as Wanted
from timelapse.segments.types import EventType
from timelapse.tables.sharing import Beside
from timelapse.tables.table import key_types
from timelapse.trace.columns import NONE, Columns, Pattern, Seqs, contained, picked_of
from timelapse.trace.knowledge import Key, Place, Unfocused
from timelapse.trace.lookup import merged
from timelapse.trace.matter import LONGEST, key_parts
from timelapse.trace.pieces import gathered

if TYPE_CHECKING:
    from timelapse.trace.moments import Past

LEAST = 200_000
"""The least events of a stretch for which this is worth while."""
_SHARE = 3
"""The largest part of the events that may be left: with more of them, finding them costs as much as it saves."""
_KEYS = 50_000
"""The most keys that are computed for one state; with more, every key of the state matters."""
_NEAR = 1 << 16
"""Events that are so near to one another are read in one go."""


class Thinning:
    """Finds the events lo <= seq < hi that matter. Raises Unfocused where that cannot be said, or is too large a part of them."""

    def __init__(self, past: Past, lo: int, hi: int, *, share: int | None = None) -> None:
        """`share`: at most one in so many events may matter (None: as in a long stretch)."""
        if hi - lo > LONGEST:
            raise Unfocused("the stretch is long")
        self._past, self._known, self._lo, self._hi = past, past.stepwise, lo, hi
        self._types = {cls.__name__: cls for cls in past.spec.events}
        self._most = (hi - lo) // (share or _SHARE)
        self._columns: Columns | None = None
        self.places: dict[str, set[Any]] = {}
        """The keys that matter, by state."""
        self.whole: set[str] = set()
        """The states of which every key matters."""
        self._todo: dict[str, set[Any] | None] = {}
        """What is to be looked for: keys; None: all of them."""
        self._found: dict[tuple[str, str], Seqs] = {}
        """The events that may write what matters of a state, by its name and their type."""
        self._given: dict[tuple[str, type[Event], str], Seqs] = {}
        """The events of which the keys that they give are known, by the state, their type, and the key's expression."""

    def seqs(self, places: Iterable[Place], events: Iterable[Event], refused: Collection[int]) -> Seqs:
        """The events that matter to these places, and to all that handlers do at these events; with these events."""
        at = list(events)
        for name, key in places:
            self._ask(name, [key])
        for event in at:
            if self._known.goes_round(type(event)):
                raise Unfocused("what is sent sends again")
            for name in self._known.anywhere(type(event)):
                self._ask(name, None)
            for name, key in self._known.places_at(event, told=True):
                self._ask(name, [key])
        self._read()
        while self._todo:
            name, keys = self._todo.popitem()
            for kind, fresh in self._writers(name, keys):
                self._follow(name, self._types[kind], fresh)
        return self._all(at, refused)

    def _all(self, at: Collection[Event], refused: Collection[int]) -> Seqs:
        all_ = merged(self._found.values())
        all_ = all_[~contained(all_, np.asarray(sorted(refused), np.int64))]
        return merged([all_, np.asarray(sorted(e.seq for e in at), np.int64)])

    def _read(self) -> None:
        """Have the columns that say who writes these states, and what that reads."""
        fields = self._known.fields(self._todo)
        for name in self._known.needed(self._todo):
            for event, asked in self._known.part(frozenset({name})).asks.items():
                fields.setdefault(event.__name__, set()).update(*(key.fields for key in asked))
        self._columns = self._past.columns_of(self._lo, self._hi, fields)

    def left(self, seqs: Seqs, events: Collection[Event], wanted: Wanted) -> Thinned:
        """The log of these events, which are read once: where fields that are `wanted` take little memory, they are kept. Where that is
        asked for again, of all events, beside those that say who writes what."""
        assert self._columns is not None
        types = {kind for _, kind in self._found} | {type(event).__name__ for event in events}
        fields = {n: own for n, own in wanted.items() if n in types and own is not None and self._logs(n)}
        light = {name: ["ts", *own] for name, own in self._columns.light(fields).items()}
        writers = {
            name: merged(own for (state, _), own in self._found.items() if state == name)
            for name in self.places.keys() | self.whole
        }
        found = Thinned(
            self._past.reader, seqs, self._columns, frozenset(types), self.places, self.whole, writers
        )
        whole = all(set(own) <= {"seq", *light[name]} for name, own in fields.items())
        if whole and self._columns.once(light):
            return replace(found, kept=self._columns.apart(seqs, light))
        self._columns.add(light)
        return found

    def _logs(self, name: str) -> bool:
        return any(t.name == name for t in self._past.reader.types)

    def _ask(self, name: str, keys: Iterable[Any] | None) -> None:
        """These keys of a state matter, or all of them."""
        if name in self.whole:
            return
        known = self.places.setdefault(name, set())
        fresh = None if keys is None else set(keys) - known
        if fresh is None or len(known) + len(fresh) > _KEYS:
            self.whole.add(name)
            self._todo[name] = None
        elif fresh:
            known |= fresh
            todo = self._todo.setdefault(name, set())
            if todo is not None:
                todo |= fresh

    def _writers(self, name: str, keys: set[Any] | None) -> Iterator[tuple[str, Seqs]]:
        """By type the events that may write these keys and were not known."""
        spec = self._known.spec.states[name]
        wanted: list[list[tuple[Any, ...]]] = [[()]]
        if keys is not None:
            under = key_parts(spec.outer, [k.key for k in keys if isinstance(k, Under)])
            wanted = [under, key_parts(spec.key, [k for k in keys if not isinstance(k, Under)])]
        logged = {t.name for t in self._past.reader.types}
        kinds = [kind.text for kind in key_types(spec)]
        for pattern in self._known.writers_of(name):
            if pattern.type not in self._types:
                raise Unfocused(f"ticks write {name}")
            if pattern.type not in logged:
                continue
            for parts in wanted:
                if parts:
                    own = Pattern(pattern.type, pattern.parts[: len(parts[0])])
                    yield pattern.type, self._fresh(name, own, parts, kinds)

    def _fresh(self, name: str, pattern: Pattern, parts: list[tuple[Any, ...]], kinds: Sequence[str]) -> Seqs:
        """`kinds`: the types of the keys' parts."""
        assert self._columns is not None
        hits = self._columns.told(pattern, parts, kinds, self._lo, self._hi, self._most, spare=1)
        if hits is None:
            raise Unfocused(f"too many events may write {name}")
        known = self._found.get((name, pattern.type), NONE)
        self._found[name, pattern.type] = all_ = merged([known, hits])
        if len(all_) > self._most:
            raise Unfocused(f"too many events may write {name}")
        return hits[~contained(hits, known)]

    def _follow(self, name: str, cls: type[Event], seqs: Seqs) -> None:
        """What these events read to write a state matters, too."""
        if not len(seqs):
            return
        part = self._known.part(frozenset({name}))
        for other in part.strict:
            self._ask(other, None)
        for asked in part.asks.get(cls, ()):
            if asked.spec.name not in self.whole:
                self._ask(asked.spec.name, self._fresh_keys(asked, cls, seqs))

    def _fresh_keys(self, asked: Key, cls: type[Event], seqs: Seqs) -> set[Any] | None:
        """The keys that these events give, but for those that were asked about before: as a rule they write several states, and are met once
        for each. None: too many."""
        name = asked.spec.name, cls, asked.text
        known = self._given.get(name, NONE)
        fresh = seqs[~contained(seqs, known)]
        self._given[name] = merged([known, fresh])
        return self._keys(asked, cls, fresh) if len(fresh) else set()

    def _keys(self, asked: Key, cls: type[Event], seqs: Seqs) -> set[Any] | None:
        """The keys that these events give; None: too many."""
        assert self._columns is not None
        fields = sorted(asked.fields)
        if asked.plain is not None:
            values = self._columns.values(cls.__name__, seqs, asked.plain)
            return None if len(values[0]) > _KEYS else asked.stored(values)
        alone = self._columns.distinct(cls.__name__, seqs, fields)
        if len(alone) > _KEYS:
            return None
        given = self._columns.events(cls, alone, [f for f in fields if f != "seq"])
        try:
            return {self._known.place(asked, event) for event in given}
        except Exception as error:  # in an expression that is not reached, perhaps
            raise Unfocused(f"a key cannot be told: {error}") from error


@dataclass(frozen=True)
class Thinned(SameEvents):
    """A log of which some events (ascending) are left."""

    seqs: Seqs
    kept: Columns
    """Columns that are in memory."""
    kinds: frozenset[str]
    """The types of these events."""
    places: Mapping[str, Collection[Any]]
    """The keys that matter, by state; of states in `whole` all do."""
    whole: Collection[str]
    writers: Mapping[str, Seqs]
    """By state the events that may write what matters of it."""

    @property
    def types(self) -> tuple[EventType, ...]:
        return self.base.types

    @property
    def known(self) -> dict[str, int]:
        """How many keys of each state matter, where that is known: most of them get a row."""
        return {name: len(own) for name, own in self.places.items() if name not in self.whole}

    def covers(self, places: Iterable[Place]) -> bool:
        """Whether all that matters to these is left."""
        return all(name in self.whole or key in self.places.get(name, ()) for name, key in places)

    def chunks(self, lo: int, hi: int, columns: Wanted) -> Iterator[Chunk]:
        own = self.seqs[np.searchsorted(self.seqs, lo) : np.searchsorted(self.seqs, hi)]
        columns = {name: fields for name, fields in columns.items() if name in self.kinds}
        if len(own) and all(fields is not None for fields in columns.values()):
            fields = {name: fields or () for name, fields in columns.items()}
            if self.kept.covers(int(own[0]), int(own[-1]) + 1, fields):
                yield from gathered(picked_of(chunk, own) for chunk in self.kept.chunks(lo, hi, fields))
                return
        yield from gathered(self._read(own, columns))

    def _read(self, own: Seqs, columns: Wanted) -> Iterator[Chunk]:
        """The same from the log, as it is stored."""
        base = reading(self.base, encoded=True)
        for group in np.split(own, np.flatnonzero(np.diff(own) > _NEAR) + 1):
            if len(group):
                for chunk in base.chunks(int(group[0]), int(group[-1]) + 1, columns):
                    yield picked_of(chunk, group)


def thinned(
    past: Past, lo: int, hi: int, places: Collection[Place], events: Collection[Event], wanted: Callable[[], Wanted],
    refused: Collection[int] | None = None, *, short: bool = False,
) -> Thinned | None:  # fmt: skip
    """The log of the events lo <= seq < hi that matter to some places and to what is done at some events, of which some fields are
    wanted; None: it is not worth it. `refused`: those that had no effect, not given: as the run says. `short`: it is worth it also in a short
    stretch, of any part of the events, since then few keys of its start state are loaded. What the way through them needs is loaded
    meanwhile."""
    if hi - lo < LEAST and not short:
        return None
    with Beside(cores()) as beside:
        beside.do(load)
        try:
            thinning = Thinning(past, lo, hi, share=None if hi - lo >= LEAST else 1)
            seqs = thinning.seqs(places, events, past.refused() if refused is None else refused)
        except Unfocused:
            return None
    return thinning.left(seqs, events, wanted())


__all__ = ["LEAST", "Thinned", "Thinning", "thinned"]
