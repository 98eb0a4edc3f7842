"""A log with questions among its events: rows of a table, put to a program as events of one type.

A question at a time stands before all events of the log at that time, so that it sees what was known before, and before
later rows of the table at the same time. The log's files are read as they are; seqs count the questions too.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from timelapse.errors import LogError
from timelapse.ids import INT64_MAX
from timelapse.log.log import Log
from timelapse.segments.info import LogInfo, TypeInfo
from timelapse.segments.reader import Chunk, Columns, EventReader, even_cuts, rows_read
from timelapse.segments.rows import InRows
from timelapse.segments.types import EventType
from timelapse.tables.rowhash import both_lanes, one_array

I64 = npt.NDArray[np.int64]


@dataclass(frozen=True)
class AskedReader(InRows):
    """`base` with questions among its events.

    `table` has `ts` (int64) and the fields of `kind`, in order of time; `places[i]` is the seq, in the base, of the
    first event at or after the time of question i (or the base's end). `ranks[i]` is how many events of the base
    lie before it.
    """

    base: EventReader
    kind: EventType
    table: pa.Table = field(repr=False)
    places: I64 = field(repr=False)
    ranks: I64 = field(repr=False)

    @property
    def types(self) -> tuple[EventType, ...]:
        return (*self.base.types, self.kind)

    @property
    def count(self) -> int:
        return self.base.count + len(self.places)

    @property
    def seqs(self) -> I64:
        """The seq of each question."""
        return self.places + np.arange(len(self.places))

    def cuts(self, n: int) -> list[int]:
        return [0, *map(self.seq_after, even_cuts(self.count, n)[1:])]

    def seq_after(self, events: int) -> int:
        asked = int(np.searchsorted(self.ranks + np.arange(len(self.ranks)), events))
        return int(self.base.seq_after(events - asked)) + asked

    def seq_at(self, ts: int) -> int:
        at = self.base.seq_at(ts)
        before = int(np.searchsorted(np.asarray(self.table["ts"]), ts))
        # Where the base is without an event at `at`, questions before it may have a higher seq than that.
        after = int(self.places[before - 1]) + before if before else 0
        return max(at + before, after)

    def ts_before(self, seq: int) -> int | None:
        asked = int(np.searchsorted(self.seqs, seq))
        last = self.base.ts_before(seq - asked)
        if not asked:
            return last
        own = int(self.table["ts"][asked - 1].as_py())
        return own if last is None else max(own, last)

    @property
    def ts_first(self) -> int | None:
        """The time at which the log begins: questions before it do not make clocks tick."""
        if self.base.count or not len(self.places):
            return self.base.ts_first
        return int(self.table["ts"][0].as_py())

    def rows(self, name: str, lo: int, hi: int) -> int:
        return rows_read(self, name, lo, hi)

    def chunks(self, lo: int, hi: int, columns: Columns) -> Iterator[Chunk]:
        others = {name: fields for name, fields in columns.items() if name != self.kind.name}
        seqs = self.seqs
        first, last = (int(n) for n in np.searchsorted(seqs, [max(lo, 0), hi]))
        begin = max(lo, 0)
        for chunk in self.base.chunks(max(lo, 0) - first, hi - last, others):
            upto = max(first, min(last, int(np.searchsorted(self.places, chunk.seq_hi - 1, side="right"))))
            tables = {name: self._moved(table) for name, table in chunk.tables.items()}
            end = min(hi, chunk.seq_hi + upto)
            yield Chunk(begin, end, self._with(tables, columns, first, upto))
            begin, first = end, upto
        if first < last:
            yield Chunk(begin, hi, self._with({}, columns, first, last))

    def _moved(self, table: pa.Table) -> pa.Table:
        """Events of the base under the seqs that they have here."""
        seq = np.asarray(table["seq"])
        moved = pa.array(seq + np.searchsorted(self.places, seq, side="right"))
        index = table.schema.get_field_index("seq")
        return table.set_column(index, table.schema.field(index), moved)

    def _with(
        self, tables: dict[str, pa.Table], columns: Columns, first: int, last: int
    ) -> dict[str, pa.Table]:
        """With the questions `first` to before `last`, if they are wanted."""
        if self.kind.name in columns and first < last:
            fields = columns[self.kind.name]
            names = [f.name for f in self.kind.fields] if fields is None else list(fields)
            part = self.table.slice(first, last - first)
            own = [pa.field(n, pa.int64(), nullable=False) for n in ("seq", "ts")]
            schema = pa.schema([*own, *(self.kind.schema.field(n) for n in names)])
            arrays = [pa.array(self.seqs[first:last]), *(part[n] for n in ("ts", *names))]
            tables[self.kind.name] = pa.table(arrays, schema=schema)
        return tables


class AskedLog(Log):
    """A log with questions among its events; nothing is written.

    `rows` has a column `ts` (int64 microseconds) and the columns of `kind`, in any order of time. `order` says
    which of its rows each question is.
    """

    def __init__(self, log: Log, kind: EventType, rows: pa.Table) -> None:
        super().__init__(log.path, log.manifest, log.left_out)
        if any(t.name == kind.name for t in log.types):
            raise LogError(f"{kind.name} is a type of the log: rows cannot be asked as such events")
        self._base, self._kind = log, kind
        self.order: I64 = np.argsort(np.asarray(rows["ts"], np.int64), kind="stable")
        self._rows = rows.take(pa.array(self.order))

    @property
    def id(self) -> str:
        columns = [one_array(c) for c in self._rows.columns]
        low, high = both_lanes(columns, self._rows.num_rows, 0)
        text = str(self._kind).encode() + low.tobytes() + high.tobytes()
        digest = hashlib.blake2b(text, digest_size=16).hexdigest()
        return f"{self._base.id}-asked-{digest}"

    @property
    def count(self) -> int:
        return self._base.count + int(self._rows.num_rows)

    @cached_property
    def types(self) -> tuple[EventType, ...]:
        return (*self._base.types, self._kind)

    @cached_property
    def reader(self) -> AskedReader:  # type: ignore[override]
        base = self._base.reader
        places, ranks = places_of(base, np.asarray(self._rows["ts"], np.int64))
        return AskedReader(base, self._kind, self._rows, places, ranks)

    def info(self) -> LogInfo:
        info = self._base.info()
        asked = TypeInfo(self._kind.name, tuple(self._kind.texts), self._rows.num_rows, 0)
        return replace(info, id=self.id, count=self.count, types=(*info.types, asked))


def places_of(reader: EventReader, times: I64) -> tuple[I64, I64]:
    """For rising times the seq of the first event at or after each, and how many events lie before that; the end of the log where there is none."""
    places = np.full(len(times), reader.seq_after(reader.count), np.int64)
    ranks = np.full(len(times), reader.count, np.int64)
    done = before = 0
    for chunk in reader.chunks(0, INT64_MAX, {t.name: () for t in reader.types}):
        if done == len(times):
            break
        tables = list(chunk.tables.values())
        if not tables:
            continue
        seq, ts = (np.concatenate([np.asarray(t[name], np.int64) for t in tables]) for name in ("seq", "ts"))
        order = np.argsort(seq, kind="stable")
        seq, ts = seq[order], ts[order]
        found = np.searchsorted(ts, times[done:])
        here = int(np.count_nonzero(found < len(ts)))
        places[done : done + here] = seq[found[:here]]
        ranks[done : done + here] = before + found[:here]
        done, before = done + here, before + len(ts)
    return places, ranks
