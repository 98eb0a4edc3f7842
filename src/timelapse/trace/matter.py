"""The events of a stretch of the log that matter to some keys: those that may write them, and those that may write what these read.

Of kinds that hold several things under one key, either one of these is asked about, or all of them (Under).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from timelapse.kinds.base import StateSpec
from timelapse.kinds.grouped import Grouped, Under
from timelapse.model.events import Event
from timelapse.model.types import TupleType, ValueType
from timelapse.tables.table import key_arrays, key_hashes, key_types, value_array
from timelapse.trace.columns import NONE, Columns, Pattern, Seqs
from timelapse.trace.knowledge import Ask, Knowledge, Part, Place, Unfocused
from timelapse.trace.lookup import merged

if TYPE_CHECKING:
    from timelapse.trace.moments import Past

LONGEST = 1 << 24
"""Events of a stretch whose columns are kept in memory."""
OFTEN = 1.6
"""So often as much as a stretch is read for single events of it, at most: beyond, going through it costs no more."""
_ROUNDS, _FEWER, _LONG = 40, 6, 1 << 20
"""Reads that are found out one after the other; fewer in a stretch of more events than that, which is searched each time."""
_MOST = 4096
"""Events that are found for one key."""
_COMPARED = (pa.types.is_integer, pa.types.is_timestamp, pa.types.is_large_string)
"""Types of keys that are looked for in start states; others are loaded whole."""
_BACK = (1 << 62, 1 << 20, 1 << 16, _MOST)
"""How far back they are looked for: less far where there are more of them."""


def under(spec: StateSpec, stored: Any) -> Under:
    """All that stands under the declared key of a stored one."""
    assert spec.outer is not None
    return Under(stored[: len(spec.outer.items)] if isinstance(spec.outer, TupleType) else stored[0])


def place_of(spec: StateSpec, stored: Any) -> Any:
    """What has to be known for a stored key: all of them where reads are made of all."""
    return under(spec, stored) if spec.kind.parts else stored


class Matter:
    """Events lo <= seq < end. `most`: so many are run for one question; Unfocused is raised beyond.

    `skip`: events that had no effect. `often`: see OFTEN. `patient`: what matters is worth much searching.
    """

    def __init__(
        self,
        past: Past,
        known: Knowledge,
        lo: int,
        end: int,
        skip: Collection[int],
        most: int,
        *,
        often: float = OFTEN,
        patient: bool = False,
    ) -> None:
        if end - lo > LONGEST:
            raise Unfocused("the stretch is long")
        self._past, self._known, self.lo, self.end = past, known, lo, end
        self._skip, self._most, self._patient = skip, most, patient
        self._often = often
        self._types = {cls.__name__: cls for cls in past.spec.events}
        self._columns: Columns | None = None
        self._rows: dict[int, tuple[Event, frozenset[str]]] = {}
        """Events, with the fields that they have."""
        self._classes: dict[int, type[Event]] = {}
        self._expected: set[str] = set()
        self._readable: set[str] = set()
        """The states of which columns tell who writes them."""
        self.events: dict[int, set[str]] = {}
        """By seq the states that an event may write, of those that matter."""
        self.places: set[Place] = set()
        """The keys that matter."""

    def rounds(self, unknown: Collection[Place]) -> Iterator[None]:
        """As often as it is worth to run what is known and see what is read beside that: `unknown` has it after each time.

        Raises Unfocused beyond; of a long stretch also, later on, as soon as one of the same states is read so.
        """
        deep, long = self._past.deep, self.end - self.lo > _LONG and not self._patient
        for _ in range(_FEWER if long else _ROUNDS):
            yield
            if not self._patient and any(name in deep for name, _ in unknown):
                break
        if long:
            deep.update(name for name, _ in unknown)
        raise Unfocused("reads depend on one another too deeply")

    def read_columns(self, states: Iterable[str]) -> None:
        """Have the columns that say who writes these states, beside those that are there. Of onward states it need not be known who
        does: perhaps nobody has written what is asked for."""
        fresh = self._known.needed(states) - self._readable
        if fresh or self._columns is None:
            told = {n for n in self._readable | fresh if n not in self._past.onward or self._known.tells(n)}
            self._columns = self._past.columns_of(self.lo, self.end, self._known.fields_of(told))
            self._readable |= fresh

    def demand(self, places: Iterable[Place]) -> None:
        """These places matter, and whatever the events that write them read."""
        todo = [p for p in places if p not in self.places]
        self.read_columns({name for name, _ in todo})
        while todo:
            found: dict[str, list[Any]] = {}
            for place in dict.fromkeys(todo):
                self.places.add(place)
                if self._past.settled(place, self.end) > self.lo:
                    found.setdefault(place[0], []).append(place[1])
            fresh: dict[int, set[str]] = {}
            left = self._most - len(self.events)
            for name, keys in found.items():
                for seq in self._touching(name, keys):
                    known = self.events.get(seq)
                    if known is None and seq not in fresh:
                        left -= 1
                        if left < 0:  # the others are not looked for: that may take long, too
                            raise Unfocused("too many events")
                    if known is None or name not in known:
                        fresh.setdefault(seq, set()).add(name)
            for seq, names in fresh.items():
                self.events.setdefault(seq, set()).update(names)
            todo = [p for p in self._asked(fresh) if p not in self.places]

    def expect(self, states: Iterable[str]) -> None:
        """These states are read under keys that nobody can tell beforehand. Raises Unfocused where all events of a type may write them
        and are too many, before anything else is done in vain."""
        for name in set(states) - self._expected:
            self._expected.add(name)
            own = {p.type for p in self._known.writers_of(name) if not any(p.parts)}
            logged = own & {t.name for t in self._past.reader.types}
            if sum(self._past.reader.rows(kind, self.lo, self.end) for kind in logged) > self._most:
                raise Unfocused(f"too many events may write {name}")

    def _touching(self, name: str, keys: Sequence[Any]) -> Iterator[int]:
        """The events that may write keys of a state."""
        spec = self._known.spec.states[name]
        groups = [k.key for k in keys if isinstance(k, Under)]
        if groups:
            yield from self._holding(name, key_parts(spec.outer, groups))
        single = [k for k in keys if not isinstance(k, Under)]
        if single:
            yield from self._holding(name, key_parts(spec.key, single))

    def _holding(self, name: str, parts: Sequence[tuple[Any, ...]]) -> Iterator[int]:
        """The events that may write keys that begin so."""
        assert self._columns is not None
        kinds = [kind.text for kind in key_types(self._known.spec.states[name])]
        for pattern in self._known.writers_of(name):
            if pattern.type not in self._types:
                raise Unfocused(f"ticks write {name}")
            wanted = Pattern(pattern.type, pattern.parts[: len(parts[0])])
            hits = self._columns.told(wanted, parts, kinds, self.lo, self.end, self._most)
            if hits is None:
                raise Unfocused(f"too many events may write {name}")
            cls = self._types[pattern.type]
            for seq in hits.tolist():
                if seq not in self._skip:
                    self._classes[seq] = cls
                    yield seq

    def _asked(self, seqs: Collection[int]) -> Iterator[Place]:
        """What the statements that matter at these events read, under keys that follow from the event."""
        for _, event, part in self.prepared(sorted(seqs)):
            self.expect(part.strict)
            for asked in part.asks.get(type(event), ()):
                try:
                    yield asked.spec.name, self._known.place(asked, event)
                except Exception as error:  # in an expression that is not reached, perhaps
                    raise Unfocused(f"a key cannot be told: {error}") from error

    def prepared(self, seqs: Sequence[int]) -> Iterator[tuple[int, Event, Part]]:
        """Events with the fields that what they do needs, and what that is."""
        assert self._columns is not None
        parts = {seq: self._known.part(frozenset(self.events[seq])) for seq in seqs}
        missing: dict[tuple[type[Event], frozenset[str]], list[int]] = {}
        for seq in seqs:
            cls = self._classes[seq]
            names = frozenset(parts[seq].work.columns.get(cls.__name__, ()))
            known = self._rows[seq][1] if seq in self._rows else None
            if known is None or not names <= known:
                missing.setdefault((cls, names | (known or names)), []).append(seq)
        for (cls, names), own in missing.items():
            at, fields = np.asarray(own, np.int64), sorted(names)
            if self._columns.spent_with(cls.__name__, at, fields) > self._often and not self._patient:
                raise Unfocused("what matters lies far apart")
            for event in self._columns.events(cls, at, ["ts", *fields]):
                self._rows[event.seq] = event, names
        for seq in seqs:
            yield seq, self._rows[seq][0], parts[seq]


def newest(known: Knowledge, columns: Columns, asks: Collection[Ask], lo: int, hi: int) -> dict[Ask, Seqs]:
    """For each question events lo <= seq < hi that may have written the place, ascending: at least the newest. Raises Unfocused."""
    ends: dict[Place, list[int]] = {}
    for ask in asks:
        ends.setdefault(ask.place, []).append(min(ask.end, hi))
    all_ = {place: _back_from(known, columns, place, lo, max(own)) for place, own in ends.items()}
    found = {}
    for ask in asks:
        (seqs, since), end = all_[ask.place], min(ask.end, hi)
        if lo < end <= since:  # so far back it was not looked
            seqs, _ = _back_from(known, columns, ask.place, lo, end)
        found[ask] = seqs[: np.searchsorted(seqs, end)]
    return found


def _back_from(known: Knowledge, columns: Columns, place: Place, lo: int, hi: int) -> tuple[Seqs, int]:
    """The events from `lo` to before `hi` that may have written a place, from an event on."""
    spec, key = known.spec.states[place[0]], place[1]
    (parts,) = key_parts(spec.outer, [key.key]) if isinstance(key, Under) else key_parts(spec.key, [key])
    kinds = [kind.text for kind in key_types(spec)]
    found: list[Seqs] = [NONE]
    since = lo
    for pattern in known.writers_of(spec.name):
        wanted = Pattern(pattern.type, pattern.parts[: len(parts)])
        for back in _BACK:
            seqs = columns.told(wanted, [parts], kinds, max(lo, hi - back), hi, _MOST)
            if seqs is not None:
                found.append(seqs)
                since = max(since, hi - back)
                break
    return merged(found), since


def key_parts(kind: ValueType | None, keys: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Keys of a type as tuples of their parts."""
    if isinstance(kind, TupleType):
        return list(keys)
    return [() if kind is None else (k,) for k in keys]


def beginning(spec: StateSpec, keys: Collection[Any]) -> Callable[[pa.Table], pa.Table]:
    """Takes of a state table the rows whose keys begin as one of these does, where all of a kind's keys stand alone only those of these keys
    (and few besides): others need not be loaded."""
    kinds = key_types(spec)
    if not kinds:
        return lambda table: table
    alone = [k for k in keys if not isinstance(k, Under)]
    if len(kinds) > 1 and len(alone) == len(keys) and not issubclass(spec.kind, Grouped):
        columns = key_arrays(spec, alone)
        if all(map(_compared, columns)):
            return partial(_rows_among, "h", pa.array(np.unique(key_hashes(columns, len(alone)))))
    single = key_parts(spec.key, alone)
    groups = key_parts(spec.outer, [k.key for k in keys if isinstance(k, Under)])
    wanted = value_array(kinds[0], list(dict.fromkeys(parts[0] for parts in (*single, *groups))))
    return partial(_rows_among, "k0", wanted) if _compared(wanted) else lambda table: table


def _compared(values: pa.Array) -> bool:
    return any(is_(values.type) for is_ in _COMPARED)


def _rows_among(name: str, values: pa.Array, table: pa.Table) -> pa.Table:
    """The rows that have one of some values in a column."""
    if not table.num_rows:
        return table
    column = table.column(name)
    return table.filter(pc.is_in(column, value_set=values.cast(column.type)))


__all__ = ["LONGEST", "Matter", "beginning", "key_parts", "newest", "place_of", "under"]
