"""For each row of a table the output that belongs to it. Outputs are read part by part, as jobs (env/jobs.py), or are one table; rows that no row of the
table can mean stay where they are."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from timelapse.compare.by_parts import taken
from timelapse.compare.engines import Chosen
from timelapse.compare.labels import codes_of, lanes_of
from timelapse.compare.sides import Held, InFiles, Side, parts_of, read_part
from timelapse.env.jobs import InMemory, Jobs, Piece
from timelapse.errors import UsageError
from timelapse.frames.tables import Piece as Part
from timelapse.frames.tables import rows_of
from timelapse.ids import Phase
from timelapse.run.run import Run
from timelapse.tables.known import Known

I64 = npt.NDArray[np.int64]


class Several(Exception):
    """A row means several outputs: which row, and how many."""

    def __init__(self, row: int, count: int) -> None:
        super().__init__(row, count)
        self.row, self.count = row, count


class Stored:
    """A run's outputs of one record type, by number."""

    def __init__(self, record: str, side: Side, jobs: Jobs) -> None:
        self.record, self._side, self._jobs = record, side, jobs

    @classmethod
    def of(cls, run: Run, record: str, chosen: Chosen) -> Stored:
        """Those of a run, which are read as was chosen."""
        if chosen.jobs is None:
            return cls(record, Held(run.stored(record)), InMemory())
        rows = rows_of(run, record)
        return cls(record, InFiles.of(rows, rows.stored), chosen.jobs)

    @property
    def schema(self) -> pa.Schema:
        return self._side.schema

    def put_out_at(self, seqs: I64) -> tuple[I64, I64]:
        """The outputs of log events with these seqs, which rise: the place of each one's event among them, and its number."""
        side, parts = self._side, parts_of(self._side)

        def work(part: int) -> bytes:
            piece = parts[part]
            table = read_part(side, piece, ["phase", "seq"])
            seq = np.asarray(table.column("seq"), np.int64)
            place = np.minimum(np.searchsorted(seqs, seq), len(seqs) - 1)
            own = (np.asarray(table.column("phase")) == Phase.LOG_EVENT) & (seqs[place] == seq)
            rows = np.flatnonzero(own)
            return pickle.dumps((place[rows], rows + (0 if piece is None else piece.before)))

        if not len(seqs):
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        found = [pickle.loads(one) for one in self._jobs.each(work, len(parts), self._what("answers"))]  # noqa: S301 our own bytes
        places, rows = (np.concatenate([np.zeros(0, np.int64), *(f[n] for f in found)]) for n in (0, 1))
        return places, rows

    def of_keys(self, key: tuple[str, ...], keys: pa.Table, times: I64 | None) -> I64:
        """For each key the number of its output: with `times` of the last one before that, else of the only one. -1 for none, and for a key
        that lacks a field. Raises Several for the first key that has several outputs and no time."""
        full = np.ones(keys.num_rows, np.bool_)
        for column in keys.columns:
            full &= np.asarray(column.is_valid())
        low, high = lanes_of(keys, key)
        (codes,), count = codes_of((low, high))
        first = np.unique(codes, return_index=True)[1] if count else np.zeros(0, np.int64)
        known = Known.of(low[first], high[first])
        groups = max(1, self._jobs.spread)
        found = (
            self._only(key, known, codes, full, groups)
            if times is None
            else self._last(key, known, codes, times, groups)
        )
        return np.where(full, found, -1)

    def _only(
        self, key: tuple[str, ...], known: Known, codes: I64, full: npt.NDArray[np.bool_], groups: int
    ) -> I64:
        side, parts = self._side, parts_of(self._side)

        def send(part: int) -> Iterator[Piece]:
            own, rows = _meant(side, parts[part], key, known)
            values, at, counts = np.unique(own, return_index=True, return_counts=True)
            yield from _sent((values, rows[at], counts), values % groups)

        def receive(pieces: list[bytes]) -> bytes:
            own, rows, counts = _received(pieces)
            order = np.argsort(rows, kind="stable")
            values, at = np.unique(own[order], return_index=True)
            sums = np.bincount(np.searchsorted(values, own), counts, len(values)).astype(np.int64)
            return pickle.dumps((values, rows[order][at], sums))

        first, several = np.full(len(known.order), -1, np.int64), np.zeros(len(known.order), np.int64)
        for one in self._jobs.grouped(send, len(parts), receive, groups, self._what("keys")):
            values, rows, counts = pickle.loads(one)  # noqa: S301 our own bytes
            first[values], several[values] = rows, counts
        twice = np.flatnonzero(full & (several[codes] > 1))
        if len(twice):
            raise Several(int(twice[0]), int(several[codes[twice[0]]]))
        return first[codes]

    def _last(self, key: tuple[str, ...], known: Known, codes: I64, times: I64, groups: int) -> I64:
        side, parts = self._side, parts_of(self._side)

        def send(part: int) -> Iterator[Piece]:
            own, rows, ts = _meant_at(side, parts[part], key, known)
            order = np.lexsort((rows, ts, own))
            ends = np.ones(len(order), np.bool_)  # of those of one time the last one counts
            ends[:-1] = (own[order][1:] != own[order][:-1]) | (ts[order][1:] != ts[order][:-1])
            kept = order[ends]
            yield from _sent((own[kept], rows[kept], ts[kept]), own[kept] % groups)

        def receive(pieces: list[bytes]) -> bytes:
            own, rows, ts = _received(pieces)
            order = np.argsort(rows, kind="stable")
            asked = np.flatnonzero(codes % groups == own[0] % groups)
            last = last_before(own[order], ts[order], codes[asked], times[asked])
            there = last >= 0
            return pickle.dumps((asked[there], rows[order][last[there]]))

        found = np.full(len(codes), -1, np.int64)
        for one in self._jobs.grouped(send, len(parts), receive, groups, self._what("keys before times")):
            asked, rows = pickle.loads(one)  # noqa: S301 our own bytes
            found[asked] = rows
        return found

    def fields(self, rows: I64) -> pa.Table:
        """The fields of outputs by their numbers; null for -1."""
        there = rows >= 0
        if isinstance(self._side, InFiles):
            (table,) = taken([(self._side, rows[there])], self._jobs, self._what("rows"), _too_many)
            at = np.cumsum(there) - 1
        else:
            table, at = self._side.table(), rows
        names = [n for n in table.column_names if n not in ("ts", "phase", "seq", "ordinal")]
        return table.select(names).take(pa.array(np.where(there, at, 0), mask=~there))

    def _what(self, what: str) -> str:
        return f"features: {what} in the outputs of {self.record}"


def _too_many(what: str) -> UsageError:
    return UsageError(
        f"the rows are more than this process takes: {what}", code="TL835",
        hint="set TIMELAPSE_MEMORY higher, or give the table in parts",
    )  # fmt: skip


def last_before(theirs: I64, ts: I64, ours: I64, times: I64) -> I64:
    """For each of our keys and times the last of theirs with that key and an earlier time, or -1.

    Theirs are in log order. All are sorted by key, then time, ours first at the same time; the last one of
    theirs is carried forward.
    """
    codes, when = np.concatenate([ours, theirs]), np.concatenate([times, ts])
    is_theirs = np.concatenate([np.zeros(len(ours), np.int64), np.ones(len(theirs), np.int64)])
    order = np.lexsort((is_theirs, when, codes))
    last = np.maximum.accumulate(np.where(is_theirs[order] == 1, np.arange(len(order)), -1))
    known = (last >= 0) & (codes[order][last] == codes[order])
    found = np.full(len(order), -1, np.int64)
    found[order] = np.where(known, order[last] - len(ours), -1)
    return found[: len(ours)]


def _meant(side: Side, piece: Part | None, key: tuple[str, ...], known: Known) -> tuple[I64, I64]:
    """The rows of a part that some key means: its number, and theirs."""
    codes, rows, _ = _meant_at(side, piece, key, known)
    return codes, rows


def _meant_at(side: Side, piece: Part | None, key: tuple[str, ...], known: Known) -> tuple[I64, I64, I64]:
    """The same, with their times."""
    table = read_part(side, piece, [*key, "ts"])
    codes = known.codes(*lanes_of(table, key))
    rows = np.flatnonzero(codes >= 0)
    ts = np.asarray(table.column("ts"), np.int64)
    return codes[rows], rows + (0 if piece is None else piece.before), ts[rows]


def _sent(columns: Sequence[I64], groups: I64) -> Iterator[Piece]:
    for group in np.unique(groups).tolist():
        own = groups == group
        yield group, pickle.dumps([c[own] for c in columns])


def _received(pieces: list[bytes]) -> list[I64]:
    got = [pickle.loads(data) for data in pieces]  # noqa: S301 our own bytes
    return [np.concatenate(own) for own in zip(*got, strict=True)]
