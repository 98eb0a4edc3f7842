"""Rows that have arrived: those that wait until all before them is complete, and the order in which they go into the journal."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from timelapse.ids import INT64_MIN
from timelapse.segments.types import EventType
from timelapse.streaming.declared import fitted
from timelapse.streaming.format import Epoch
from timelapse.streaming.pack import Pack
from timelapse.streaming.streams import I64, journal_order

STREAM, PARTITION, OFFSET = "@stream", "@partition", "@offset"
"""Columns beside `ts` and the fields that say where a row came from. No field has such a name."""
PLACE = (STREAM, PARTITION, OFFSET)
_MOST_RUNS = 64


def arrivals_schema(kind: EventType) -> pa.Schema:
    """Columns of rows on their way: time, place, fields."""
    places = [pa.field(name, pa.int64(), nullable=False) for name in ("ts", *PLACE)]
    return pa.schema([*places, *kind.schema])


def arrivals(
    kind: EventType, ts: I64, fields: pa.Table, stream: int, partition: int, offsets: I64
) -> pa.Table:
    """Rows of one partition."""
    count = len(ts)
    places = [
        pa.array(ts),
        pa.array(np.full(count, stream)),
        pa.array(np.full(count, partition)),
        pa.array(offsets),
    ]
    return pa.table([*places, *fields.columns], schema=arrivals_schema(kind))


@dataclass(frozen=True)
class Taken:
    """Rows in the order of the journal: by type, with `seq`, `ts`, fields and places. `first`: the time of the first."""

    tables: Mapping[str, pa.Table]
    rows: int
    first: int

    def parted(self, ts: int) -> tuple[Taken, Taken]:
        """Those before a time, and those from it on."""
        places = {
            name: int(np.searchsorted(table.column("ts").to_numpy(), ts))
            for name, table in self.tables.items()
        }
        before = {name: self.tables[name].slice(0, at) for name, at in places.items() if at}
        rest = {n: self.tables[n].slice(at) for n, at in places.items() if at < self.tables[n].num_rows}
        return Taken.of(before), Taken.of(rest)

    @classmethod
    def joined(cls, parts: Sequence[Taken]) -> Taken:
        """Rows that follow each other."""
        names = dict.fromkeys(name for part in parts for name in part.tables)
        return cls.of(
            {
                name: pa.concat_tables([p.tables[name] for p in parts if name in p.tables]).combine_chunks()
                for name in names
            }
        )

    @classmethod
    def of(cls, tables: Mapping[str, pa.Table]) -> Taken:
        """Tables of which none is empty."""
        first = min((int(t.column("ts")[0].as_py()) for t in tables.values()), default=0)
        return cls(tables, sum(t.num_rows for t in tables.values()), first)


class Held:
    """Rows that wait, by type. Each table is in the order of times."""

    def __init__(self, types: Sequence[EventType]) -> None:
        self._types = list(types)
        self._kinds = {t.name: t for t in types}
        self._runs: dict[str, list[pa.Table]] = {t.name: [] for t in types}
        self._came: deque[tuple[int, int]] = deque()
        """Epochs in which rows arrived that may still wait, with the greatest time among these."""

    def add(self, name: str, table: pa.Table) -> None:
        """Rows that were accepted."""
        if not table.num_rows:
            return
        ts = table.column("ts").to_numpy()
        if (ts[1:] < ts[:-1]).any():
            table = table.take(pa.array(np.argsort(ts, kind="stable")))
        runs = self._runs[name]
        runs.append(table)
        if len(runs) > _MOST_RUNS:
            whole = pa.concat_tables(runs).combine_chunks()
            order = np.argsort(whole.column("ts").to_numpy(), kind="stable")
            self._runs[name] = [whole.take(pa.array(order))]

    def came(self, number: int, sections: Mapping[str, pa.Table], complete: int | None) -> None:
        """Note that rows wait in an epoch's file, whose sections these are, and forget epochs of which none waits any more."""
        ends = [
            int(np.asarray(t.column("ts")).max())
            for n, t in sections.items()
            if n.startswith("held/") and t.num_rows
        ]
        if ends:
            self._came.append((number, max(ends)))
        while self._came and complete is not None and self._came[0][1] <= complete:
            self._came.popleft()

    def first(self, number: int) -> int:
        """The oldest epoch in which rows arrived that still wait; `number` where there are none."""
        return self._came[0][0] if self._came else number

    def recall(self, pack: Pack[Epoch], complete: int | None) -> None:
        """Take over the rows of an epoch that wait at a time."""
        left = {}
        for name in pack.names("held"):
            kind = self._kinds[name]
            table = fitted(kind, pack.table(f"held/{name}")).cast(arrivals_schema(kind))
            waits = np.asarray(table.column("ts")) > (INT64_MIN if complete is None else complete)
            left[f"held/{name}"] = table.filter(pa.array(waits))
            self.add(name, left[f"held/{name}"])
        self.came(pack.about.number, left, complete)

    @property
    def rows(self) -> int:
        """How many wait."""
        return sum(table.num_rows for runs in self._runs.values() for table in runs)

    @property
    def nbytes(self) -> int:
        """The memory that they take, about."""
        return sum(table.nbytes for runs in self._runs.values() for table in runs)

    def all(self) -> Mapping[int, Sequence[pa.Table]]:
        """What waits, by the number of its type, as it is now."""
        return {n: list(runs) for n, kind in enumerate(self._types) if (runs := self._runs[kind.name])}

    def take(self, complete: int, first_seq: int) -> Taken:
        """Take the rows up to a time, in the order of the journal; they are numbered from `first_seq`."""
        own: dict[int, pa.Table] = {}
        for number, kind in enumerate(self._types):
            taken, left = [], []
            for table in self._runs[kind.name]:
                count = int(np.searchsorted(table.column("ts").to_numpy(), complete, side="right"))
                if count:
                    taken.append(table.slice(0, count))
                if count < table.num_rows:
                    left.append(table.slice(count))
            self._runs[kind.name] = left
            if taken:
                own[number] = pa.concat_tables(taken).combine_chunks()
        return ordered(self._types, own, first_seq)


def ordered(types: Sequence[EventType], own: Mapping[int, pa.Table], first_seq: int) -> Taken:
    """Rows by the number of their type, in the order of the journal."""
    if not own:
        return Taken({}, 0, 0)
    columns = {name: [t.column(name).to_numpy() for t in own.values()] for name in ("ts", *PLACE)}
    ts = np.concatenate(columns["ts"])
    numbers = np.concatenate([np.full(t.num_rows, n, np.int64) for n, t in own.items()])
    order = journal_order(ts, [numbers, *(np.concatenate(columns[name]) for name in PLACE)])
    seq = np.empty(len(order), np.int64)
    seq[order] = np.arange(first_seq, first_seq + len(order))
    tables, at = {}, 0
    for number, table in own.items():
        seqs = seq[at : at + table.num_rows]
        at += table.num_rows
        if (seqs[1:] < seqs[:-1]).any():
            by = np.argsort(seqs)
            table, seqs = table.take(pa.array(by)), seqs[by]
        fields = [f.name for f in types[number].fields]
        tables[types[number].name] = pa.table(
            [pa.array(seqs), table.column("ts"), *table.select(fields).columns, *table.select(PLACE).columns],
            ["seq", "ts", *fields, *PLACE],
        )
    return Taken(tables, len(order), int(ts.min()))
