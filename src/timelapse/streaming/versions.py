"""Versions of the journal: rows that came late are put into their places, and the rows behind them move on.

The order of the journal is total (time, type, stream, partition, position), so a version follows from its rows. A correction's epoch has the
rows that it inserts, with their seq in the new version, and those that it removes since one that is inserted counts in their place (once.py), with their seq in
the version before; from these follows where every row of the version before has gone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from timelapse.ids import INT64_MIN
from timelapse.segments.types import EventType
from timelapse.streaming import chain
from timelapse.streaming.arrivals import PLACE, Taken, arrivals_schema, ordered
from timelapse.streaming.declared import fitted, joined
from timelapse.streaming.format import Checkpoint, Epoch
from timelapse.streaming.pack import Pack
from timelapse.streaming.place import RunPlace
from timelapse.streaming.streams import I64, Bools
from timelapse.tables.rowhash import both_lanes, one_array

EPOCH = "@epoch"
"""The column of a retraction that says in which epoch the row was put out."""
REJECTED = "~rejected"
"""What a feed calls rejected events: no record has such a name."""
REMOVED = -2
"""The seq in the next version of a row that is not in it. What it was the root of is never put out there."""


@dataclass(frozen=True)
class Shift:
    """Where the rows of one version stand in the next. `gone`: the seqs of those that are removed, rising. `bounds[i]`: of those that are
    left, numbered anew, at least i + 1 rows were inserted before those from this number on."""

    bounds: I64
    gone: I64

    @classmethod
    def of(cls, sections: Mapping[str, pa.Table]) -> Shift:
        """Of a correction's sections: rows that are inserted, with their seqs in the new version, and rows that are removed, with theirs in the old one."""
        rising, gone = (
            np.sort(np.concatenate([np.zeros(0, np.int64), *(np.asarray(t.column("seq")) for t in found)]))
            for found in ([t for n, t in sections.items() if n.startswith(part)] for part in ("inserted/", "removed/"))
        )  # fmt: skip
        return cls(rising - np.arange(len(rising)), gone)

    @classmethod
    def none(cls) -> Shift:
        """No row has moved."""
        return cls.of({})

    def __call__(self, seqs: I64) -> I64:
        """The seqs in the new version; -1 (no row) stays, and REMOVED."""
        before = np.searchsorted(self.gone, seqs)
        moved: I64 = seqs - before
        moved += np.searchsorted(self.bounds, moved, side="right")
        if len(self.gone):
            moved[self.gone[np.minimum(before, len(self.gone) - 1)] == seqs] = REMOVED
        return moved


def shift_of(pack: Pack[Epoch]) -> Shift:
    """What a correction's epoch has done to the rows of the version before."""
    names = [f"{part}/{name}" for part in ("inserted", "removed") for name in pack.names(part)]
    return Shift.of({name: pack.table(name) for name in names})


def corrections(place: RunPlace, last: Epoch | None, after: int) -> list[Pack[Epoch]]:
    """The corrections among the epochs behind one, up to `last`, in order. Each names the one before it."""
    found: list[Pack[Epoch]] = []
    number = 0 if last is None else last.last_correction
    while number > after:
        pack = chain.read_epoch(place, number)
        assert pack.about.correction is not None
        found.append(pack)
        number = pack.about.correction.before
    return found[::-1]


def valid(place: RunPlace, last: Epoch | None) -> Callable[[Checkpoint], bool]:
    """Whether a checkpoint still counts: none of the corrections behind it cuts before its end, and the program is the same."""
    cuts: list[tuple[int, int]] = []
    state = {"next": 0 if last is None else last.last_correction}

    def counts(about: Checkpoint) -> bool:
        while state["next"] > about.epoch:
            found = chain.read_epoch(place, state["next"]).about.correction
            assert found is not None
            cuts.append((state["next"], found.cut))
            state["next"] = found.before
        if last is not None and about.epoch < last.last_change:
            return False
        return all(cut > about.complete for number, cut in cuts if number > about.epoch)

    return counts


class Inserted:
    """Rows that were inserted into a part of the journal, and rows of it that were removed, by type, in the order of their times."""

    def __init__(self, types: Sequence[EventType]) -> None:
        self._types = list(types)
        self._own: dict[int, pa.Table] = {}
        self._gone: dict[int, pa.Table] = {}

    def add(self, name: str, table: pa.Table) -> None:
        """Rows of a type, in any order; columns beyond those of arrivals are left out. Those that were removed are where they were again."""
        self._put(name, table, self._own, self._gone)

    def remove(self, name: str, table: pa.Table) -> None:
        """Rows of a type that are no longer in the journal."""
        self._put(name, table, self._gone, self._own)

    def _put(self, name: str, table: pa.Table, to: dict[int, pa.Table], back: dict[int, pa.Table]) -> None:
        number = self._number(name)
        table = bare(self._types[number], table)
        if number in back:
            again, stays = at_places(table, back[number])
            table, back[number] = table.filter(pa.array(~again)), back[number].filter(pa.array(~stays))
        if number in to:
            table = pa.concat_tables([to[number], table])
        order = np.argsort(table.column("ts").to_numpy(), kind="stable")
        to[number] = table.combine_chunks().take(pa.array(order))

    def _number(self, name: str) -> int:
        return next(n for n, kind in enumerate(self._types) if kind.name == name)

    def add_all(self, packs: Sequence[Pack[Epoch]]) -> None:
        """What some corrections have inserted and removed."""
        for pack in packs:
            for name in pack.names("removed"):
                self.remove(name, pack.table(f"removed/{name}"))
            for name in pack.names("inserted"):
                self.add(name, pack.table(f"inserted/{name}"))

    def join(self, later: Inserted) -> None:
        """What a further correction inserts and removes."""
        for number, table in later._gone.items():
            self.remove(self._types[number].name, table)
        for number, table in later._own.items():
            self.add(self._types[number].name, table)

    def of(self, name: str) -> pa.Table | None:
        """Those of a type that were inserted."""
        return self._own.get(self._number(name))

    @property
    def rows(self) -> int:
        """How many were inserted."""
        return _rows(self._own)

    @property
    def net(self) -> int:
        """How many more rows there are."""
        return _rows(self._own) - _rows(self._gone)

    @property
    def first(self) -> int:
        """The least time of them."""
        found = [table for own in (self._own, self._gone) for table in own.values() if table.num_rows]
        return min(int(table.column("ts")[0].as_py()) for table in found)

    def between(self, after: int | None, upto: int) -> dict[int, pa.Table]:
        """Those that were inserted later than one time, up to another."""
        return _between(self._own, after, upto)

    def removed(self, after: int | None, upto: int) -> dict[int, pa.Table]:
        """Those that were removed, the same."""
        return _between(self._gone, after, upto)

    def more(self, after: int | None, upto: int) -> int:
        """How many more rows there are later than one time, up to another."""
        return _rows(self.between(after, upto)) - _rows(self.removed(after, upto))


def _rows(own: Mapping[int, pa.Table]) -> int:
    return sum(int(table.num_rows) for table in own.values())


def _between(own: Mapping[int, pa.Table], after: int | None, upto: int) -> dict[int, pa.Table]:
    found = {}
    for number, table in own.items():
        ts = table.column("ts").to_numpy()
        lo = 0 if after is None else int(np.searchsorted(ts, after, side="right"))
        hi = int(np.searchsorted(ts, upto, side="right"))
        if lo < hi:
            found[number] = table.slice(lo, hi - lo)
    return found


def at_places(left: pa.Table, right: pa.Table) -> tuple[Bools, Bools]:
    """Which rows of each of two tables are in the other, by their places."""
    return common([left.column(c) for c in PLACE], [right.column(c) for c in PLACE])


def bare(kind: EventType, table: pa.Table) -> pa.Table:
    """Rows as they arrived: time, place, fields; whether a column may be null is not said."""
    names = arrivals_schema(kind).names
    table = fitted(kind, table)
    return pa.table([table.column(name) for name in names], names)


def journalled(
    types: Sequence[EventType], pack: Pack[Epoch], inserted: Inserted, after: int | None, first_seq: int
) -> Taken:
    """The journal's rows of an epoch in the newest version: its own that were not removed, and those that were inserted among them.

    `after`: the time up to which the epochs before go (None: this one begins the journal); `first_seq`: the seq of the first row.
    """
    about = pack.about
    complete = INT64_MIN if about.complete is None else about.complete
    among, gone = inserted.between(after, complete), inserted.removed(after, complete)
    if not among and not gone:
        moved = first_seq - about.first_seq
        tables = {
            kind.name: _moved(fitted(kind, pack.table(f"journal/{kind.name}")), moved)
            for kind in types
            if f"journal/{kind.name}" in pack.sections
        }
        return Taken.of(tables)
    for number, kind in enumerate(types):
        if f"journal/{kind.name}" in pack.sections:
            own = bare(kind, pack.table(f"journal/{kind.name}"))
            if number in gone:
                own = own.filter(pa.array(~at_places(own, gone[number])[0]))
            among[number] = pa.concat_tables([own, among[number]]) if number in among else own
    return ordered(
        types, {n: among[n].combine_chunks() for n in sorted(among) if among[n].num_rows}, first_seq
    )


def _moved(table: pa.Table, by: int) -> pa.Table:
    if not by:
        return table
    return table.set_column(0, "seq", pa.array(table.column("seq").to_numpy() + by))


@dataclass
class Published:
    """Rows that are published and not retracted, in the numbering of the newest version. `epoch`: where each was put out."""

    table: pa.Table
    seq: I64
    epoch: I64


class Feed:
    """What a run has published, followed from epoch to epoch: which rows count, and where their roots stand now."""

    def __init__(self, since: int | None = None) -> None:
        self._since = since
        """Rows before this time are left out."""
        self._parts: dict[str, list[Published]] = {}

    def add(self, pack: Pack[Epoch]) -> None:
        """A further epoch."""
        about = pack.about
        if about.correction is not None:
            self.shift(shift_of(pack))
            for name in pack.names("retracted"):
                self._retract(name, pack.table(f"retracted/{name}"))
            if "unrejected" in pack.sections:
                self._retract(REJECTED, pack.table("unrejected"))
        for name in pack.names("out"):
            self._put(name, pack.table(f"out/{name}"), about.number)
        if "rejected" in pack.sections:
            self._put(REJECTED, pack.table("rejected"), about.number)

    def shift(self, shift: Shift) -> None:
        """The journal has a new version."""
        for parts in self._parts.values():
            for part in parts:
                part.seq = shift(part.seq)

    def _put(self, name: str, table: pa.Table, number: int) -> None:
        if self._since is not None:
            table = table.filter(pa.array(table.column("ts").to_numpy() >= self._since))
        if table.num_rows:
            seq = table.column("seq").to_numpy().astype(np.int64)
            epochs = np.full(table.num_rows, number, np.int64)
            self._parts.setdefault(name, []).append(Published(table, seq, epochs))

    def _retract(self, name: str, gone: pa.Table) -> None:
        for number in np.unique(gone.column(EPOCH).to_numpy()):
            own = gone.filter(pa.array(gone.column(EPOCH).to_numpy() == number))
            for part in self._parts.get(name, []):
                if not len(part.epoch) or part.epoch[0] != number:
                    continue
                columns = part.table.column_names  # of the version that put them out
                left = [part.table.column(c) for c in columns]
                stays = ~common(left, [own.column(c) for c in columns])[0]
                part.table = part.table.filter(pa.array(stays))
                part.seq, part.epoch = part.seq[stays], part.epoch[stays]
        self._parts[name] = [part for part in self._parts.get(name, []) if len(part.seq)]

    @property
    def names(self) -> list[str]:
        return [name for name, parts in self._parts.items() if parts]

    def of(self, name: str) -> Published | None:
        """What counts of a record type (REJECTED: of rejected events); None where nothing does."""
        parts = self._parts.get(name)
        if not parts:
            return None
        return Published(
            joined([p.table for p in parts]).combine_chunks(),
            np.concatenate([p.seq for p in parts]),
            np.concatenate([p.epoch for p in parts]),
        )


def common(left: Sequence[pa.ChunkedArray], right: Sequence[pa.ChunkedArray]) -> tuple[Bools, Bools]:
    """Which rows of each side have their like on the other, each row one: of a row that is twice on the left and once on
    the right, the first.

    Rows are compared by a hash of 128 bits (tables/rowhash.py), to the last bit of every value.
    """
    counts = [len(left[0]), len(right[0])]
    lanes = [
        both_lanes([one_array(c) for c in columns], count, 0)
        for columns, count in zip((left, right), counts, strict=True)
    ]
    low, high = (np.concatenate([lanes[0][n], lanes[1][n]]) for n in (0, 1))
    side = np.repeat([0, 1], counts)
    order = np.lexsort([side, high, low])  # stable: rows of a side that are alike stay in their order
    first = _begins(low[order], high[order], side[order])
    nth = np.arange(len(order)) - np.maximum.accumulate(np.where(first, np.arange(len(order)), 0))
    again = np.lexsort([side[order], nth, high[order], low[order]])
    order, nth = order[again], nth[again]
    same = ~_begins(low[order], high[order], nth)
    found = np.zeros(sum(counts), np.bool_)
    found[order[same]] = True
    found[order[np.flatnonzero(same) - 1]] = True
    return found[: counts[0]], found[counts[0] :]


def _begins(*columns: npt.NDArray[Any]) -> Bools:
    """Where sorted rows differ from the one before."""
    found = np.ones(len(columns[0]), np.bool_)
    if len(found):
        found[1:] = np.logical_or.reduce([c[1:] != c[:-1] for c in columns])
    return found


def net(packs: Iterable[Pack[Epoch]], since: int | None = None) -> Feed:
    """What counts of all that some epochs have published, in the numbering of the last one."""
    feed = Feed(since)
    for pack in packs:
        feed.add(pack)
    return feed


def with_seq(published: Published) -> pa.Table:
    """The rows with the seqs of the newest version, in the order of a run's outputs."""
    table = published.table
    at = table.column_names.index("seq")
    table = table.set_column(at, table.schema.field(at), pa.array(published.seq))
    by = [c for c in ("ts", "phase", "seq", "ordinal") if c in table.column_names]
    columns = [table.column(c).to_numpy() for c in by]
    return table.take(pa.array(np.lexsort(columns[::-1])))
