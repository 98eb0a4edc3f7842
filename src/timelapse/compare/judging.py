"""The outputs of two runs beside labels, without any process that holds them all: they are read part by part, as jobs (env/jobs.py).

1. Of each item that has a label the first output on either side comes to the driver: these are as many as labels at most.
2. Items without a label are counted where they are. That needs to know until when labels are complete, which follows from the first.

Items are distinct keys, by their 128-bit hashes. Sums are exact (compare/tallies.py), so it does not matter how many parts there are; tables in memory
are one part each.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from timelapse.compare.by_parts import bytes_table, groups_of, table_bytes, too_many
from timelapse.compare.labels import I64, Bools, codes_of, lanes_of
from timelapse.compare.sides import Held, InFiles, Side, parts_of, read_part
from timelapse.compare.tallies import F64, Tally, tallies, tally
from timelapse.env.jobs import InMemory, Jobs, Piece
from timelapse.env.machine import memory_alone
from timelapse.errors import UsageError
from timelapse.frames.tables import Piece as Part
from timelapse.ids import DAY, INT64_MAX
from timelapse.tables.known import Known
from timelapse.tables.loops import U64
from timelapse.tables.rowhash import both_lanes, one_array

K = TypeVar("K")
NEVER = INT64_MAX
NONE = "(none)"
_SEED = 0x76616C7565
_CODE, _LOW, _HIGH, _ROW = "@code", "@low", "@high", "@row"


@dataclass(frozen=True)
class Wanted:
    """Fields of the record that are asked for. `weight` is None where it is no field of the record."""

    weight: str | None = None
    segments: tuple[str, ...] = ()
    by: tuple[str, ...] = ()

    @property
    def all(self) -> list[str]:
        return list(dict.fromkeys([*([self.weight] if self.weight else []), *self.segments, *self.by]))


@dataclass
class Firsts:
    """Of some items the first output on either side: a table, and for each item its row there, or -1."""

    tables: tuple[pa.Table, pa.Table]
    rows: tuple[I64, I64]

    @property
    def ts(self) -> I64:
        """When each item was put out first; NEVER where it was not."""
        found = np.full(len(self.rows[0]), NEVER, np.int64)
        for rows, table in zip(self.rows, self.tables, strict=True):
            there = rows >= 0
            ts = np.asarray(table.column("ts")).astype(np.int64, copy=False)
            found[there] = np.minimum(found[there], ts[rows[there]])
        return found

    def weights(self, name: str) -> F64:
        """A field as numbers; NaN where there is none. Raises UsageError as `usable`."""
        found = np.full(len(self.rows[0]), np.nan)
        for rows, table in zip(self.rows, self.tables, strict=True):
            there = rows >= 0
            column = one_array(table.column(name)).cast(pa.float64(), safe=False)
            values = np.asarray(pc.fill_null(column, float("nan")))
            found[there] = values[rows[there]]
        return usable(found, name)

    def texts(self, name: str) -> list[str]:
        """A field as people read it; NONE where it is None or there is none."""
        found = np.full(len(self.rows[0]), NONE, object)
        for rows, table in zip(self.rows, self.tables, strict=True):
            column, there = one_array(table.column(name)), rows >= 0
            values = column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
            shown = np.array([NONE if v is None else str(v) for v in values.to_pylist()], object)
            found[there] = shown[rows[there]]
        return found.tolist()

    def values(self, name: str, side: int, which: Bools) -> tuple[U64, U64]:
        """The hashes of a field's distinct values on a side, of some items."""
        column = one_array(self.tables[side].column(name)).take(pa.array(self.rows[side][which]))
        return distinct_lanes([both_lanes([column], len(column), _SEED)])


def distinct_lanes(several: Sequence[tuple[U64, U64]]) -> tuple[U64, U64]:
    """The distinct hashes among several lists of them."""
    low, high = (np.concatenate([np.zeros(0, np.uint64), *(own[n] for own in several)]) for n in (0, 1))
    (codes,), count = codes_of((low, high))
    first = np.unique(codes, return_index=True)[1] if count else np.zeros(0, np.int64)
    return low[first], high[first]


def usable(weights: F64, name: str) -> F64:
    """The weights; NaN is none. Raises UsageError (TL818) for one that is negative or infinite."""
    for what, wrong in (("negative", weights < 0), ("infinite", np.isinf(weights))):
        if wrong.any():
            raise UsageError(
                f"--weight {name}: a weight is {what}", hint="weights are numbers of 0 or more", code="TL818"
            )
    return weights


def codes_of_texts(texts: Sequence[str]) -> tuple[list[str], I64]:
    """Distinct texts in order, and each one's number."""
    names = sorted(set(texts))
    number = {name: at for at, name in enumerate(names)}
    return names, np.array([number[t] for t in texts], np.int64)


@dataclass
class Others:
    """What items without a label come to, in the time that is judged and after it."""

    unjudged: list[int] = field(default_factory=lambda: [0, 0])
    late: list[int] = field(default_factory=lambda: [0, 0])
    total: Tally = field(default_factory=Tally)
    days: dict[int, Tally] = field(default_factory=dict)
    segments: dict[str, dict[str, Tally]] = field(default_factory=dict)
    values: dict[tuple[str, int], list[tuple[U64, U64]]] = field(default_factory=dict)
    """By field and side, the hashes of values of items that are judged."""

    def add(self, other: Others) -> None:
        for side in (0, 1):
            self.unjudged[side] += other.unjudged[side]
            self.late[side] += other.late[side]
        self.total.add(other.total)
        add_all(self.days, other.days)
        for name, own in other.segments.items():
            add_all(self.segments.setdefault(name, {}), own)
        for at, lanes in other.values.items():
            self.values.setdefault(at, []).extend(lanes)

    @property
    def bytes(self) -> int:
        """What its hashes take."""
        return sum(16 * len(low) for own in self.values.values() for low, _ in own)


def add_all(found: dict[K, Tally], more: dict[K, Tally]) -> None:
    """Add tallies by their keys."""
    for key, own in more.items():
        found.setdefault(key, Tally()).add(own)


class Outputs:
    """The outputs of a record type in both runs."""

    def __init__(
        self, name: str, identity: tuple[str, ...], sides: tuple[Side, Side], jobs: Jobs | None
    ) -> None:
        self._name, self._identity = name, identity
        files = jobs is not None and all(isinstance(s, InFiles) for s in sides)
        self._jobs: Jobs = jobs if files and jobs is not None else InMemory()
        self._sides = sides if files else tuple(Held(s.table()) for s in sides)
        self._parts: list[tuple[int, Part | None]] = []
        for side, own in enumerate(self._sides):
            self._parts += [(side, piece) for piece in parts_of(own)]
        self._groups = groups_of(sum(own.rows for own in sides), self._jobs)

    def known(self, known: Known, fields: Sequence[str]) -> Firsts:
        """The first output on either side of each item that has a label."""
        sides, parts, groups, identity = self._sides, self._parts, self._groups, self._identity

        def send(part: int) -> Iterator[Piece]:
            side, piece = parts[part]
            table = read_part(sides[side], piece, [*identity, "ts", *fields])
            codes = known.codes(*lanes_of(table, identity))
            there = np.flatnonzero(codes >= 0)
            own, first = np.unique(codes[there], return_index=True)
            found = _picked(table, there[first], piece, fields, {_CODE: own})
            yield from _sent(side, found, own % groups)

        def receive(pieces: list[bytes]) -> bytes:
            return pickle.dumps([None if t is None else table_bytes(_first_of(t)) for t in _received(pieces)])

        what = f"labels: the outputs of {self._name} that have one"
        found = [pickle.loads(one) for one in self._jobs.grouped(send, len(parts), receive, groups, what)]  # noqa: S301 our own bytes
        tables, rows = [], []
        for side, own in enumerate(self._sides):
            names = {_CODE: pa.int64(), _ROW: pa.int64(), "ts": pa.int64()}
            none = pa.schema([*names.items(), *((n, own.schema.field(n).type) for n in fields)]).empty_table()
            table = pa.concat_tables([none, *(bytes_table(g[side]) for g in found if g[side] is not None)])
            at = np.full(len(known.order), -1, np.int64)
            at[np.asarray(table.column(_CODE))] = np.arange(table.num_rows)
            tables.append(table)
            rows.append(at)
        return Firsts((tables[0], tables[1]), (rows[0], rows[1]))

    def others(
        self, known: Known, complete: int | None, wanted: Wanted, *, judged: bool, bare: bool
    ) -> Others:
        """What items without a label come to. `judged`: they count as wrong; `bare`: they have no weight.

        Raises UsageError, also (TL849) where the distinct values that are asked for are more than the driver's share.
        """
        sides, parts, groups, identity = self._sides, self._parts, self._groups, self._identity
        fields = wanted.all if judged else [wanted.weight] if wanted.weight else []
        share = memory_alone() // 4

        def send(part: int) -> Iterator[Piece]:
            side, piece = parts[part]
            table = read_part(sides[side], piece, [*identity, "ts", *fields])
            low, high = lanes_of(table, identity)
            there = np.flatnonzero(known.codes(low, high) < 0)
            (codes,), _ = codes_of((low[there], high[there]))
            rows = there[np.unique(codes, return_index=True)[1]]
            found = _picked(table, rows, piece, fields, {_LOW: low[rows], _HIGH: high[rows]})
            yield from _sent(side, found, (high[rows] % np.uint64(groups)).astype(np.int64))

        def receive(pieces: list[bytes]) -> bytes:
            found = _counted(_joined(_received(pieces)), complete, wanted, judged=judged, bare=bare)
            return pickle.dumps(found if found.bytes <= max(1 << 20, 2 * share // groups) else None)

        total, what = Others(), f"labels: the outputs of {self._name} that have none"
        for one in self._jobs.grouped(send, len(parts), receive, groups, what):
            found: Others | None = pickle.loads(one)  # noqa: S301 our own bytes
            if found is None:
                raise too_many(f"distinct values of {', '.join(wanted.by)} take more than {share >> 20:,} MB")
            total.add(found)
        return total


def _picked(
    table: pa.Table,
    rows: I64,
    piece: Part | None,
    fields: Sequence[str],
    keys: dict[str, I64] | dict[str, U64],
) -> pa.Table:
    """Some rows of a part, with their numbers."""
    own = table.select(list(dict.fromkeys(["ts", *fields]))).take(pa.array(rows))
    before = 0 if piece is None else piece.before
    columns = [*(pa.array(k) for k in keys.values()), pa.array(rows + before), *own.columns]
    return pa.table(columns, [*keys, _ROW, *own.column_names])


def _sent(side: int, table: pa.Table, groups: I64) -> Iterator[Piece]:
    if not len(groups):
        return
    order = np.argsort(groups, kind="stable")
    values, starts = np.unique(groups[order], return_index=True)
    for group, rows in zip(values.tolist(), np.split(order, starts[1:]), strict=True):
        yield group, pickle.dumps((side, table_bytes(table.take(pa.array(rows)))))


def _received(pieces: list[bytes]) -> list[pa.Table | None]:
    """Each side's rows, by their numbers; None for none."""
    got = [pickle.loads(data) for data in pieces]  # noqa: S301 our own bytes
    found: list[pa.Table | None] = []
    for side in (0, 1):
        own = [bytes_table(data) for n, data in got if n == side]
        found.append(pa.concat_tables(own).combine_chunks().sort_by(_ROW) if own else None)
    return found


def _first_of(table: pa.Table) -> pa.Table:
    return table.take(pa.array(np.unique(np.asarray(table.column(_CODE)), return_index=True)[1]))


def _joined(tables: list[pa.Table | None]) -> Firsts:
    """Items of a group, by the hashes of their keys: each stands there with its first output on either side."""
    schema = next(t.schema for t in tables if t is not None)
    both = [schema.empty_table() if t is None else t for t in tables]
    lanes = [
        (np.asarray(t.column(_LOW)).astype(np.uint64), np.asarray(t.column(_HIGH)).astype(np.uint64))
        for t in both
    ]
    codes, count = codes_of(*lanes)
    rows = []
    for own in codes:
        at = np.full(count, -1, np.int64)
        at[own[::-1]] = np.arange(len(own))[::-1]  # the first row stays
        rows.append(at)
    there = (rows[0] >= 0) | (rows[1] >= 0)
    return Firsts((both[0], both[1]), (rows[0][there], rows[1][there]))


def _counted(firsts: Firsts, complete: int | None, wanted: Wanted, *, judged: bool, bare: bool) -> Others:
    ts = firsts.ts
    put = [rows >= 0 for rows in firsts.rows]
    timely = np.ones(len(ts), np.bool_) if complete is None else ts <= complete
    found = Others(late=[int((p & ~timely).sum()) for p in put])
    weight = firsts.weights(wanted.weight) if wanted.weight else None
    if not judged:
        found.unjudged = [int((p & timely).sum()) for p in put]
        return found
    if bare:
        weight = np.full(len(ts), np.nan)
    sides, no = [p & timely for p in put], np.zeros(len(ts), np.bool_)
    found.total = tally(no, sides, no, weight)
    found.days = tallies(ts // DAY, timely, no, sides, no, weight)
    for name in wanted.segments:
        names, codes = codes_of_texts(firsts.texts(name))
        own = tallies(codes, timely, no, sides, no, weight)
        found.segments[name] = {names[code]: one for code, one in own.items()}
    for name in wanted.by:
        for side in (0, 1):
            found.values[name, side] = [firsts.values(name, side, sides[side])]
    return found
