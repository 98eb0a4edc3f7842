"""The columns of a stretch of the log that keys are made of. They are read once, kept, and searched for the events that hold given values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from itertools import compress, pairwise, product
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from timelapse.analysis.origins import Part
from timelapse.log.part import reading
from timelapse.model.events import Event
from timelapse.segments.reader import Chunk, EventReader, LogReader, cut_rows
from timelapse.segments.rows import row_maker
from timelapse.trace.lookup import Lookup, chosen, merged, numbers
from timelapse.trace.pieces import of_tables, together
from timelapse.trace.sought import Sought, sought_of
from timelapse.trace.wanted import Mask, Wanted

Seqs = npt.NDArray[np.int64]
NONE: Seqs = np.zeros(0, np.int64)
A = TypeVar("A")
B = TypeVar("B")

_NEAR = 1 << 16
"""Events that are so near to one another are read together."""
BLOCK = 1 << 16
"""Events that are stored together, about."""
_FREE = 32 * BLOCK
"""So many single events may be read in any case."""
_AT_ONCE = 1 << 22
"""So many events are compared with keys at a time."""
_PIECE = 16
"""Blocks that are read one after the other."""
_DENSE = 16
"""Where one in so many numbers is asked for, each has a place in a table; else they are searched for."""
_WIDE = 64
"""The same where it is only asked whether they are among them."""
_MANY, _FEW = 16, 4
"""Of more keys than these it is worth to look for so few values of which each has one."""
_HELD = 1 << 22
"""So many events that were found are kept."""
_KNOWN = 64
"""So many keys are kept of which there were too many events."""
_MUCH, _PART = 0.3, 0.1
"""Where so much of a stretch is read for single events of it, and so much at once, columns are read whole if they take little memory."""
_SINGLE = 8
"""So few keys of several parts are looked for one by one."""


@dataclass(frozen=True)
class Pattern:
    """The events of a type that may touch a key: `parts` says from where each part of the key comes."""

    type: str
    parts: tuple[Part, ...]


class Columns:
    """Events lo <= seq < hi; `fields` by event type. `ts` stands for the time, and is there where it is asked for."""

    def __init__(self, reader: EventReader, lo: int, hi: int, fields: Mapping[str, Collection[str]]) -> None:
        self._reader, self._lo, self._hi = reader, lo, hi
        self.fields: dict[str, tuple[str, ...]] = {}
        self._parts: list[Chunk] = []
        self._read, self._asked = 0, False
        self._held: list[tuple[Sought, int, int, Seqs]] = []
        self._beyond: list[tuple[Sought, int, int, int]] = []
        """Keys of which more events than a number were found in a stretch."""
        self._combined: tuple[tuple[str, frozenset[str]], Seqs, pa.Table] | None = None
        segments = reader.segments if isinstance(reader, LogReader) else ()
        self._bases = np.asarray([s.base for s in segments], np.int64)
        self._starts = [s.base + start for s in segments for start in s.starts[::_PIECE]]
        self.add(fields)

    def add(self, fields: Mapping[str, Collection[str]]) -> None:
        """Have these fields too: what is there is not read again."""
        fresh = self._missing(fields)
        if not fresh and self._parts:
            return
        spared = self._spared(fresh)
        found = self._in_pieces(lambda lo, hi: self._chunks(lo, hi, fresh, spared), [(self._lo, self._hi)])
        self._parts = (
            [_joined(*both) for both in zip(self._parts, found, strict=True)] if self._parts else found
        )
        self.fields |= {name: (*self.fields.get(name, ()), *own) for name, own in fresh.items()}

    def _spared(self, fresh: Mapping[str, Collection[str]]) -> frozenset[str]:
        """Of `seq` and `ts` what need not be read with these fields: reading them takes as long as two fields do."""
        times = any("ts" in own for own in fresh.values())
        there = fresh.keys() <= self.fields.keys()
        return frozenset(({"seq"} if there else set()) | (set() if times else {"ts"}))

    def _missing(self, fields: Mapping[str, Collection[str]]) -> dict[str, tuple[str, ...]]:
        """What of these is not in memory."""
        fresh = {
            name: tuple(f for f in dict.fromkeys(own) if f not in ("seq", *self.fields.get(name, ())))
            for name, own in fields.items()
        }
        return {name: own for name, own in fresh.items() if own or name not in self.fields}

    def once(self, fields: Mapping[str, Collection[str]]) -> bool:
        """Whether fields that are not there are asked for the first time: of a few events they are better kept `apart`, as most of what
        reading takes is memory that nobody has used yet."""
        fresh = not self.covers(self._lo, self._hi, fields)
        first, self._asked = fresh and not self._asked, self._asked or fresh
        return first

    def _in_pieces(
        self, chunks: Callable[[int, int], Iterable[Chunk]], spans: Iterable[tuple[int, int]]
    ) -> list[Chunk]:
        """The chunks of some stretches, of which each core reads pieces of many blocks. They are the same each time."""
        cuts = [[lo, *(start for start in self._starts if lo < start < hi), hi] for lo, hi in spans]
        pieces = [piece for own in cuts for piece in pairwise(own)]
        return [c for own in together(lambda piece: list(chunks(*piece)), pieces) for c in own]

    def apart(self, seqs: Seqs, fields: Mapping[str, Collection[str]]) -> Columns:
        """The columns of some of the events (ascending) alone, with these fields. What is in memory is not read."""
        missing = self._missing(fields)
        spared = self._spared(missing)
        there = {
            n: ["seq", *(f for f in own if f in self.fields[n])]
            for n, own in fields.items()
            if n in self.fields
        }

        def read(lo: int, hi: int) -> Iterator[Chunk]:
            for chunk in self._chunks(lo, hi, missing, spared):
                own = [c.tables for c in self._cut(chunk.seq_lo, chunk.seq_hi, there)]
                names = dict.fromkeys(name for tables in own for name in tables)
                mine = {n: pa.concat_tables([tables[n] for tables in own if n in tables]) for n in names}
                yield picked_of(_joined(chunk._replace(tables=mine), chunk), seqs)

        found = copy(self)
        found._parts = self._in_pieces(read, ((int(g[0]), int(g[-1]) + 1) for g in self._near(seqs)))
        found._held, found._beyond, found._combined = [], [], None
        found.fields = {name: tuple(own) for name, own in fields.items()}
        return found

    def light(self, fields: Mapping[str, Collection[str]]) -> dict[str, list[str]]:
        """Those that take little memory: numbers, and texts of which there are few. By the first events of a type."""
        found: dict[str, list[str]] = {}
        for name, own in fields.items():
            wanted = [f for f in own if f not in ("ts", "seq")]
            chunks = self._chunks(self._lo, self._hi, {name: wanted})
            table = next((c.tables[name] for c in chunks if name in c.tables), None) if wanted else None
            found[name] = [f for f in wanted if table is None or _is_light(table.schema.field(f).type)]
        return found

    def chunks(self, lo: int, hi: int, fields: Mapping[str, Collection[str]]) -> Iterator[Chunk]:
        """The events lo <= seq < hi with these fields, as a log gives them, of which the times are there."""
        own = {n: ["seq", "ts", *(f for f in own if f not in ("ts", "seq"))] for n, own in fields.items()}
        return self._cut(lo, hi, own)

    def _cut(self, lo: int, hi: int, names: Mapping[str, list[str]]) -> Iterator[Chunk]:
        """The events lo <= seq < hi with these columns."""
        for chunk in self._parts:
            first, last = max(lo, chunk.seq_lo), min(hi, chunk.seq_hi)
            if first < last:
                own = {
                    n: cut_rows(chunk.tables[n].select(names[n]), first, last)
                    for n in names
                    if n in chunk.tables
                }
                yield Chunk(first, last, {name: table for name, table in own.items() if table.num_rows})

    @property
    def spent(self) -> float:
        """How often as much as the whole stretch was read, for the fields of single events."""
        return self._read / (_FREE + self._hi - self._lo)

    def spent_with(self, name: str, seqs: Seqs, fields: Collection[str]) -> float:
        """The same once these events of a type (ascending) are had with these fields, too."""
        cost = 0 if self._has(name, fields) else self._cost(self._near(seqs))
        return (self._read + cost) / (_FREE + self._hi - self._lo)

    def _has(self, name: str, fields: Collection[str]) -> bool:
        """Whether a type's fields are in memory."""
        return set(fields) <= set(self.fields.get(name, ()))

    def _near(self, seqs: Seqs) -> list[Seqs]:
        """Events in the groups in which they are read."""
        far = np.flatnonzero(np.diff(seqs) > _NEAR) + 1
        return [g for g in np.split(seqs, merged([far, np.searchsorted(seqs, self._bases)])) if len(g)]

    def _cost(self, groups: Iterable[Seqs]) -> int:
        """How many events are read for these."""
        return sum(min(self._hi - self._lo, BLOCK + int(g[-1] - g[0])) for g in groups)

    @property
    def _tables(self) -> Iterator[dict[str, pa.Table]]:
        return (chunk.tables for chunk in self._parts)

    def _chunks(
        self, lo: int, hi: int, fields: Mapping[str, Sequence[str]], spared: frozenset[str] = frozenset()
    ) -> Iterator[Chunk]:
        own = {name: [f for f in own if f != "ts"] for name, own in fields.items()}
        return reading(self._reader, encoded=True, spared=spared).chunks(lo, hi, own)

    def within(self, lo: int, hi: int) -> bool:
        """Whether all events of a stretch are among them."""
        return self._lo <= lo and hi <= self._hi

    def covers(self, lo: int, hi: int, fields: Mapping[str, Collection[str]]) -> bool:
        """Whether these are among them, and the events' times."""
        return self.within(lo, hi) and all(
            {*own, "ts"} - {"seq"} <= set(self.fields.get(name, ())) for name, own in fields.items()
        )

    def told(
        self, pattern: Pattern, keys: Sequence[tuple[Any, ...]], kinds: Sequence[str], lo: int, hi: int, most: int, *, spare: float = 0.2
    ) -> Seqs | None:  # fmt: skip
        """The same as `holding`: of what was found for other states, statements or ways only the keys are looked for that are missing. `kinds`: the
        types of their parts. `spare`: what was found may be of so many more keys, by their number."""
        sought, known = sought_of(pattern.type, pattern.parts, keys, kinds), NONE
        if any(lo <= a and b <= hi and most <= n and sought.same(own) for own, a, b, n in self._beyond):
            return None
        like = [
            held for held in self._held if held[1] <= lo and hi <= held[2] and sought.like(held[0], spare)
        ]
        if like:
            own, _, _, seqs = min(like, key=lambda held: len(sought.keys - held[0].keys))
            known = seqs[np.searchsorted(seqs, lo) : np.searchsorted(seqs, hi)]
            missing = sought.keys - own.keys
            keys = [k for k, parts in zip(keys, sought.ordered(keys), strict=True) if parts in missing]
            sought = sought._replace(keys=own.keys | missing)
        found = self.holding(pattern, keys, lo, hi, most) if keys else NONE
        if found is None and not like:
            self._beyond = [*self._beyond[-_KNOWN:], (sought, lo, hi, most)]
        if found is None or len(known) + len(found) > most:
            return None
        found = merged([known, found])
        if keys:
            if sum(len(held) for *_, held in self._held) + len(found) > _HELD:
                self._held.clear()
            self._held.append((sought, lo, hi, found))
        return found

    def holding(
        self, pattern: Pattern, keys: Sequence[tuple[Any, ...]], lo: int, hi: int, most: int
    ) -> Seqs | None:
        """Ascending seqs of the events that may touch one of the keys (each as a tuple of its parts).

        There may be some among them that do not. None: more than `most`.
        """
        sides: list[tuple[Any, ...]] = list(zip(*keys, strict=True))
        wanted = [
            None if part is None else Wanted(part, list(dict.fromkeys(side)))
            for part, side in zip(pattern.parts, sides, strict=True)
        ]
        at = [n for n, w in enumerate(wanted) if w is not None and not w.always]
        tests = [w for w in wanted if w is not None and not w.always]
        own_sides = [sides[n] for n in at]
        cover = _cover(tests, own_sides) if len(tests) > 1 else []
        exact = (
            len(tests) > 1 and len(keys) > 1 and bool(np.prod([float(t.count + 1) for t in tests]) < 2**62)
        )
        alone = (
            [_alone(tests, own) for own in zip(*own_sides, strict=True)]
            if exact and len(keys) <= _SINGLE
            else []
        )
        exact = exact and not alone
        codes = _codes(tests, own_sides) if exact else NONE
        names = sorted({field for test in tests for field in test.fields})
        count = 0

        def hits_of(table: pa.Table) -> Seqs:
            nonlocal count
            seqs = _seqs(table)
            if count > most:
                return NONE
            table = table.select(names)
            if cover:
                near = np.logical_or.reduce([test.rows(table) for test in cover])
                seqs = chosen(seqs, near)
                if not len(seqs):
                    return NONE
                table = table.filter(pa.array(near))
            mask = _rows_of(alone or [tests], table) if tests else None
            hits = seqs if mask is None else chosen(seqs, mask)
            if mask is not None and exact and len(hits):
                hits = chosen(hits, _together_of(tests, codes, table.filter(pa.array(mask))))
            hits = hits[np.searchsorted(hits, lo) : np.searchsorted(hits, hi)]
            count += len(hits)
            return hits

        soon = self._large(pattern.type, lo, hi, lambda own: all(t.soon(own) for t in tests))
        found = np.concatenate([NONE, *of_tables(hits_of, soon)])
        return None if len(found) > most else found

    def _large(self, kind: str, lo: int, hi: int, soon: Callable[[pa.Table], bool]) -> Iterator[pa.Table]:
        """The events of a type that are stored with others lo <= seq < hi, in large tables, unless they are looked through `soon`: else what
        is looked for in a table is hashed for it."""
        own: list[pa.Table] = []
        for chunk in self._parts:
            table = chunk.tables.get(kind)
            if table is None or not table.num_rows or chunk.seq_hi <= lo or chunk.seq_lo >= hi:
                continue
            alone = soon(table)
            if own and (alone or table.schema != own[0].schema or sum(t.num_rows for t in own) >= _AT_ONCE):
                yield pa.concat_tables(own)
                own = []
            if alone:
                yield table
            else:
                own.append(table)
        if own:
            yield pa.concat_tables(own)

    def distinct(self, name: str, seqs: Seqs, fields: Sequence[str]) -> Seqs:
        """Of these events of a type one for each combination of values in some fields."""
        if "seq" in fields or not len(seqs):
            return seqs
        if not fields:
            return seqs[:1]
        try:
            alone = self._combinations(name, seqs, fields)
        except pa.ArrowNotImplementedError:  # lists, which are not compared
            return seqs
        return np.sort(alone.column("seq_min").to_numpy())

    def values(self, name: str, seqs: Seqs, fields: Sequence[str]) -> list[list[Any]]:
        """Each combination of values in some fields of these events of a type once: by field."""
        alone = self._combinations(name, seqs, fields)
        return [alone.column(field).to_pylist() for field in fields]

    def column(self, name: str, seqs: Seqs, field: str) -> list[Any]:
        """What these events of a type (ascending) have in a field."""
        own = (picked(t[name].select(["seq", field]), seqs) for t in self._tables if name in t)
        return [value for table in own for value in table.column(field).to_pylist()]

    def _combinations(self, name: str, seqs: Seqs, fields: Iterable[str]) -> pa.Table:
        """Each combination of values in some fields of these events of a type once, with the first event of it. The last ones are kept: the
        same fields are asked for again in another order."""
        asked = name, frozenset(fields)
        if (
            self._combined is None
            or self._combined[0] != asked
            or not np.array_equal(self._combined[1], seqs)
        ):
            # Of these columns only: what the dictionaries of all blocks have in common takes longer to find than the rest of this.
            wanted = ["seq", *sorted(asked[1])]
            own = of_tables(
                lambda t: picked(t.select(wanted), seqs), (t[name] for t in self._tables if name in t)
            )
            groups = pa.concat_tables(own).unify_dictionaries().group_by(wanted[1:])
            self._combined = asked, seqs, groups.aggregate([("seq", "min")])
        return self._combined[2]

    def events(self, cls: type[Event], seqs: Seqs, fields: Sequence[str]) -> Iterator[Event]:
        """These events with these fields, in order: from memory where the fields are, else from the log. Their times are not told without `ts`
        among the fields."""
        name = cls.__name__
        groups, own = self._near(seqs), [f for f in fields if f != "ts"]
        cost = self._cost(groups)
        there, many = self._has(name, own), cost > _PART * (self._hi - self._lo)
        much = many and (there or self.spent_with(name, seqs, own) > _MUCH)
        if much and not self._has(name, fields) and self.light({name: own})[name] == own:
            self.add({name: fields})
        if self._has(name, fields):
            yield from _rows(cls, seqs, fields, (t[name] for t in self._tables if name in t))
            return
        self._read += 0 if there else cost

        def read(group: Seqs) -> list[pa.Table]:
            chunks = self._chunks(int(group[0]), int(group[-1]) + 1, {name: list(fields)})
            return [picked(c.tables[name], group) for c in chunks if name in c.tables]

        for tables in together(read, groups):
            yield from _rows(cls, seqs, fields, tables)


def _joined(one: Chunk, other: Chunk) -> Chunk:
    """A chunk with the columns of another of the same events."""
    tables = dict(one.tables)
    for name, table in other.tables.items():
        if name in tables:
            for field in table.column_names:
                if field not in tables[name].column_names:
                    tables[name] = tables[name].append_column(table.schema.field(field), table.column(field))
        else:
            tables[name] = table
    return Chunk(one.seq_lo, one.seq_hi, tables)


def picked_of(chunk: Chunk, seqs: Seqs) -> Chunk:
    """Of a chunk the rows of those of the events (ascending) that are in it."""
    tables = {name: picked(table, seqs) for name, table in chunk.tables.items()}
    return chunk._replace(tables={name: own for name, own in tables.items() if own.num_rows})


def _is_light(kind: pa.DataType) -> bool:
    return bool(pa.types.is_primitive(kind) or pa.types.is_dictionary(kind))


def _rows(cls: type[Event], seqs: Seqs, fields: Sequence[str], tables: Iterable[pa.Table]) -> Iterator[Event]:
    make = row_maker(cls, list(fields))
    for table in tables:
        own = picked(table.select(["seq", *fields]), seqs)
        if own.num_rows:
            if "ts" not in fields:
                own = own.append_column("ts", pa.array(np.zeros(own.num_rows, np.int64)))
            yield from make(own)


def _seqs(table: pa.Table) -> Seqs:
    """Its events' seqs, ascending."""
    found = numbers(table.column("seq"))
    return table.column("seq").to_numpy() if found is None else found


def picked(table: pa.Table, seqs: Seqs) -> pa.Table:
    """The rows of those of the events (ascending) that are of the table's type."""
    own = _seqs(table)
    if not len(own):
        return table
    near = seqs[np.searchsorted(seqs, own[0]) : np.searchsorted(seqs, own[-1], "right")]
    if not len(near):
        return table.slice(0, 0)
    if len(own) == own[-1] - own[0] + 1:  # all that there is, so each event has a row
        return table if len(near) == len(own) else table.take(pa.array(near - own[0]))
    if (own[-1] - own[0]) < _DENSE * len(near):
        rows = np.full(int(own[-1] - own[0]) + 1, -1, np.int32)
        rows[own - own[0]] = np.arange(len(own), dtype=np.int32)
        at = rows[near - own[0]]
        at = at[at >= 0]
    else:
        at = np.searchsorted(own, near)
        at = at[own[at] == near]
    return table if len(at) == len(own) else table.take(pa.array(at))


def _cover(tests: Sequence[Wanted], sides: Sequence[Sequence[Any]]) -> list[Wanted]:
    """Few values of which each key has one in its place: who holds none of them holds no key. None where there are no few. `sides`: of
    each part what the keys have."""
    left, chosen = list(sides), list[tuple[int, Any]]()
    while left[0]:
        common = [(n, *Counter(side).most_common(1)[0]) for n, side in enumerate(left)]
        at, value, often = max(common, key=lambda one: one[2])
        if len(sides[0]) <= _MANY or (_FEW - len(chosen)) * often < len(left[0]):
            return []  # no further value stands in more of them
        chosen.append((at, value))
        others = [v != value for v in left[at]]
        left = [list(compress(side, others)) for side in left]
    return [tests[at].only([v for n, v in chosen if n == at]) for at in {n for n, _ in chosen}]


def _alone(tests: Sequence[Wanted], key: Sequence[Any]) -> list[Wanted]:
    """What is looked for where one of the keys is."""
    return [test.only([value]) for test, value in zip(tests, key, strict=True)]


def _rows_of(keys: Iterable[Iterable[Wanted]], table: pa.Table) -> Mask:
    """The rows in which all parts of one of the keys are."""
    masks = [np.logical_and.reduce([part.rows(table) for part in parts]) for parts in keys]
    found: Mask = np.logical_or.reduce(masks)
    return found


def contained(values: Seqs, others: Seqs) -> Mask:
    """Which of them are among others, which ascend."""
    if not len(others):
        return np.zeros(len(values), np.bool_)
    lookup = Lookup.within(others, _WIDE * len(values))
    if lookup is not None:
        return lookup.among(values)
    found: Mask = others[np.minimum(np.searchsorted(others, values), len(others) - 1)] == values
    return found


def _codes(tests: Sequence[Wanted], values: Sequence[Sequence[Any]]) -> Seqs:
    """A number for each key, ascending: `values` has those of each part."""
    code = np.zeros(len(values[0]), np.int64)
    for test, own in zip(tests, values, strict=True):
        code = code * (test.count + 1) + test.of(own)
    return np.sort(code)


def _together_of(tests: Sequence[Wanted], codes: Seqs, table: pa.Table) -> Mask:
    """The rows in which one key's parts stand together, of those in which each part is some key's."""
    sides = [test.places(table) for test in tests]
    if any(side is None for side in sides):
        return np.ones(table.num_rows, np.bool_)
    total = np.zeros(table.num_rows, np.bool_)
    for choice in product(*(side for side in sides if side is not None)):
        code, known = np.zeros(table.num_rows, np.int64), np.ones(table.num_rows, np.bool_)
        for test, places in zip(tests, choice, strict=True):
            code = code * (test.count + 1) + places
            known &= places >= 0
        total |= known & contained(code, codes)
    return total
