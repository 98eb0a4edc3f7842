"""Which rows count once late ones are in their places: of rows that came twice still the first in the journal's order, as if all had come in time.

A late row that stands before the one that counts takes its place, and that one is removed from the journal; a row that was left out since it came after that one
may count now. So the newest version of the journal does not depend on when corrections are made.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from timelapse.ids import INT64_MIN
from timelapse.segments.types import EventType
from timelapse.streaming import chain
from timelapse.streaming.arrivals import PLACE
from timelapse.streaming.format import Epoch
from timelapse.streaming.handover import Origin
from timelapse.streaming.once import Key, Once
from timelapse.streaming.pack import Pack
from timelapse.streaming.place import RunPlace
from timelapse.streaming.versions import Inserted, bare

_At = tuple[int, int, int, int]
"""A row's time and place: its place in the journal, among rows of its type."""


@dataclass
class _Row:
    """A row of a key that late rows have, too. `counts`: whether it is in the newest version of the journal."""

    key: Key
    table: pa.Table
    number: int
    counts: bool
    late: bool = False


@dataclass
class _Type:
    """What is known of a type whose rows may have come twice. `last`: of each key the time of the last row that counts, so far."""

    keys: set[Key]
    cut: int
    last: dict[Key, int] = field(default_factory=dict)


class Counting:
    """Decides which of some late rows count, and which rows no longer do, or count now.

    It is exact at the end of the epoch up to which it was brought (`go_on`), and can be brought further. `change`: what a correction inserts into the
    journal, and removes. `left`: by type the late rows that count nothing. `again`: rows that had been left out, and count now.
    """

    def __init__(self, types: Sequence[EventType], once: Once, late: Inserted) -> None:
        self._types, self._once = types, once
        self._asked: dict[str, _Type] = {}
        self._late: dict[str, pa.Table] = {}
        self._number = 0
        self.change = Inserted(types)
        self.left: dict[str, list[pa.Table]] = {}
        self.again: dict[str, list[pa.Table]] = {}
        for kind in types:
            table = late.of(kind.name)
            if table is None or not table.num_rows:
                continue
            if kind.name not in once.fields:
                self.change.add(kind.name, table)
                continue
            low, high, whole = once.hashes(kind.name, table)
            if not whole.all():  # nobody's duplicates
                self.change.add(kind.name, table.filter(pa.array(~whole)))
            if whole.any():
                self._late[kind.name] = table.filter(pa.array(whole))
                keys = set(zip(low[whole].tolist(), high[whole].tolist(), strict=True))
                self._asked[kind.name] = _Type(
                    keys, int(np.asarray(self._late[kind.name].column("ts")).min())
                )

    def go_on(self, place: RunPlace, last: Epoch, origin: Origin | None) -> None:
        """Take the epochs up to `last` into account. Raises StorageError."""
        if not self._asked:
            return
        found: dict[str, dict[_At, _Row]] = {name: {} for name in self._asked}
        if not self._number:
            self._number = self._start(place, last, origin)
        for pack in chain.epochs(place, self._number + 1, last.number):
            self._read(pack, found)
        for name, table in self._late.items():
            self._add(name, table, found[name], counts=False, late=True)
        self._late, self._number = {}, last.number
        for name, rows in found.items():
            self._decide(name, rows)

    def _start(self, place: RunPlace, last: Epoch, origin: Origin | None) -> int:
        """The epoch behind which rows may matter. Those of the log before the first one are known."""
        cut = min(asked.cut for asked in self._asked.values())
        number = self._once.first(place, last.number, cut)
        if number == 0 and origin is not None:
            for block in origin.blocks(self._once.since(cut) - 1):
                for name in self._asked.keys() & block.tables.keys():
                    table = block.tables[name]
                    for row, key in self._asked_rows(name, table):
                        ts = int(table.column("ts")[row].as_py())
                        self._asked[name].last[key] = max(ts, self._asked[name].last.get(key, INT64_MIN))
        return number

    def _asked_rows(self, name: str, table: pa.Table) -> list[tuple[int, Key]]:
        """The rows of a table that have a key which late rows have, too."""
        if not self._once.has(name, table):
            return []
        low, high, whole = self._once.hashes(name, table)
        keys = self._asked[name].keys
        maybe = np.flatnonzero(whole & np.isin(low, np.array([key[0] for key in keys], np.uint64)))
        pairs = zip(maybe.tolist(), low[maybe].tolist(), high[maybe].tolist(), strict=True)
        return [(row, (a, b)) for row, a, b in pairs if (a, b) in keys]

    def _read(self, pack: Pack[Epoch], found: dict[str, dict[_At, _Row]]) -> None:
        """The rows of an epoch, as they stand now: later epochs have the last word."""
        for part in ("journal", "duplicate", "removed", "inserted"):
            for name in found.keys() & set(pack.names(part)):
                self._add(
                    name, pack.table(f"{part}/{name}"), found[name], counts=part in ("journal", "inserted")
                )

    def _add(
        self, name: str, table: pa.Table, rows: dict[_At, _Row], *, counts: bool, late: bool = False
    ) -> None:
        own = self._asked_rows(name, table)
        if not own:
            return
        kind = next(k for k in self._types if k.name == name)
        table = bare(kind, table).take(pa.array([row for row, _ in own]))
        columns = [np.asarray(table.column(c)).tolist() for c in ("ts", *PLACE)]
        for number, (at, (_, key)) in enumerate(zip(zip(*columns, strict=True), own, strict=True)):
            rows[at] = _Row(key, table, number, counts, late)

    def _decide(self, name: str, rows: dict[_At, _Row]) -> None:
        asked, within = self._asked[name], self._once.within
        for at in sorted(rows):
            row, ts = rows[at], at[0]
            counts = row.counts
            if ts >= asked.cut:
                before = asked.last.get(row.key)
                counts = before is None or ts - before > within
            if counts:
                asked.last[row.key] = ts
            if counts == row.counts and not row.late:
                continue
            one = row.table.slice(row.number, 1)
            if not counts and row.late:
                self.left.setdefault(name, []).append(one)
            elif not counts:
                self.change.remove(name, one)
            else:
                self.change.add(name, one)
                if not row.late:
                    self.again.setdefault(name, []).append(one)
