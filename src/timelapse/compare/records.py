"""What differs in one record type of two runs: which rows, and what is asked of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from timelapse.compare.by_parts import distinct, taken, too_many
from timelapse.compare.match import Found, Matching, match, unequal, unequal_pairs
from timelapse.compare.sides import InFiles, Side, common_schemas, compared_columns, held
from timelapse.env.jobs import Jobs
from timelapse.errors import UsageError, meant
from timelapse.ids import DAY, Phase
from timelapse.moments import time_text

At = int | tuple[int, int, int]
"""A step: a log event's seq; else its time, phase and root."""
PLACE = ("ts", "phase", "seq", "ordinal")
BY_EVENT = ("phase", "seq")
"""What rows are matched by that have no key."""
REJECTED = "rejected"
"""The name under which rejected events are compared, by event."""


@dataclass(frozen=True)
class Change:
    """One difference: `kind` is gone, new or changed; `a` and `b` are rows as dicts (None where there is none).

    `ts` and `seq` are the place of the event at which it shows first. `fields` names what differs.
    """

    record: str
    kind: str
    ts: int
    seq: int
    a: Mapping[str, Any] | None
    b: Mapping[str, Any] | None
    fields: tuple[str, ...] = ()

    @property
    def place(self) -> At:
        """The step at which it shows first."""
        rows = (row for row in (self.a, self.b) if row is not None)
        row = next(row for row in rows if (row["ts"], row["seq"]) == (self.ts, self.seq))
        phase = int(row["phase"])
        return self.seq if phase == Phase.LOG_EVENT else (self.ts, phase, self.seq)

    @property
    def text(self) -> str:
        """One line for people."""
        head = f"{time_text(self.ts)} seq {self.seq} {self.record} {self.kind}"
        if self.a is not None and self.b is not None:
            return f"{head}: " + ", ".join(
                f"{n} {_shown(n, self.a[n])} -> {_shown(n, self.b[n])}" for n in self.fields
            )
        row = self.a if self.a is not None else self.b
        assert row is not None
        return f"{head}: " + ", ".join(f"{n}={_shown(n, v)}" for n, v in row.items() if n not in PLACE)


def _shown(name: str, value: Any) -> str:
    return time_text(value) if name == "ts" else str(value) if isinstance(value, Decimal) else repr(value)


@dataclass(frozen=True)
class RecordDiff:
    """The differences of one record type. Tables have the stored columns (PLACE, then the fields), in log order.

    `identity` is what rows were matched by. Where the runs are compared by parts (compare/by_parts.py) the tables are read when
    they are asked for, by `jobs`.
    """

    name: str
    identity: tuple[str, ...]
    sides: tuple[Side, Side]
    found: Found
    jobs: Jobs | None = None

    @property
    def a(self) -> pa.Table:
        """All rows of A, in memory."""
        return self.sides[0].table()

    @property
    def b(self) -> pa.Table:
        """All rows of B, in memory."""
        return self.sides[1].table()

    @property
    def schema(self) -> pa.Schema:
        """The columns of both sides, with A's types."""
        return self.sides[0].schema

    @property
    def gone(self) -> pa.Table:
        """Rows of A alone. Raises UsageError (TL849), as the next three do, where differences are too many for this process."""
        return self._rows[0]

    @property
    def new(self) -> pa.Table:
        """Rows of B alone."""
        return self._rows[1]

    @property
    def changed_a(self) -> pa.Table:
        """A's rows of the pairs that are changed."""
        return self._rows[2]

    @property
    def changed_b(self) -> pa.Table:
        """B's rows of these pairs."""
        return self._rows[3]

    @cached_property
    def _rows(self) -> tuple[pa.Table, ...]:
        numbers = self.found.numbers
        if numbers is None:
            raise too_many(f"{sum(self.found.counts):,} outputs of {self.name} differ")
        wanted = list(zip((0, 1, 0, 1), numbers, strict=True))
        files = [(side, rows) for n, rows in wanted if isinstance(side := self.sides[n], InFiles)]
        if self.jobs is not None and len(files) == len(wanted):
            return tuple(taken(files, self.jobs, f"diff: the outputs of {self.name} that differ"))
        return tuple(self.sides[n].table().take(pa.array(rows)) for n, rows in wanted)

    @property
    def same(self) -> bool:
        """Whether both runs put out the same rows at the same places."""
        return not any(self.found.counts)

    @property
    def counts(self) -> dict[str, int]:
        """Rows of A and B, and how many are gone, new and changed."""
        gone, new, changed = self.found.counts
        return {
            "a": self.sides[0].rows, "b": self.sides[1].rows, "gone": gone, "new": new, "changed": changed,
        }  # fmt: skip

    @cached_property
    def fields(self) -> dict[str, int]:
        """How many changed pairs differ in each column; `ts` and `seq` where they stem from other events."""
        names = compared_columns(self.schema)
        found = {n: int(mask.sum()) for n, mask in unequal(self.changed_a, self.changed_b, names).items()}
        return {n: count for n, count in found.items() if count}

    def by_day(self) -> list[tuple[int, dict[str, int]]]:
        """Per day (days since 1970, UTC) what is gone, new and changed; days without differences are left out."""
        parts = {"gone": self.gone, "new": self.new, "changed": self.changed_b}
        found: dict[int, dict[str, int]] = {}
        for kind, table in parts.items():
            days, counts = np.unique(np.asarray(table.column("ts")) // DAY, return_counts=True)
            for day, count in zip(days.tolist(), counts.tolist(), strict=True):
                found.setdefault(day, dict.fromkeys(parts, 0))[kind] = count
        return sorted(found.items())

    def by(self, field: str) -> EntityDiff:
        """How many distinct values of a field (users, addresses) are hit by A, by B, and by one of them only.

        Raises UsageError (TL816) for a field that the record does not have.
        """
        if field not in self.schema.names or field in PLACE:
            known = [n for n in self.schema.names if n not in PLACE]
            raise UsageError(
                f"{self.name} has no field {field!r}",
                hint=f"{meant(field, known)}fields: {', '.join(known)}",
                code="TL816",
            )
        left, right = self.sides
        if self.jobs is not None and isinstance(left, InFiles) and isinstance(right, InFiles):
            return EntityDiff(
                field, *distinct((left, right), field, self.jobs, f"diff: {self.name} by {field}")
            )
        a, b = (pc.unique(t.column(field)) for t in (self.a, self.b))
        freed = a.filter(pc.invert(pc.is_in(a, value_set=b)))
        hit = b.filter(pc.invert(pc.is_in(b, value_set=a)))
        return EntityDiff(field, len(a), len(b), freed, hit)

    def top(self, field: str, n: int = 10) -> list[tuple[Any, int, int]]:
        """The values of a field with most gone and new rows: (value, gone, new), the largest sum first."""
        counts: dict[Any, list[int]] = {}
        for place, table in enumerate((self.gone, self.new)):
            for row in pc.value_counts(table.column(field)).to_pylist():
                counts.setdefault(row["values"], [0, 0])[place] = row["counts"]
        ranked = sorted(counts.items(), key=lambda item: (-sum(item[1]), repr(item[0])))
        return [(value, gone, new) for value, (gone, new) in ranked[:n]]

    def changes(self) -> Iterator[Change]:
        """All differences in log order (a changed pair stands where it shows first)."""
        found: list[tuple[int, int, int, int, str, int]] = []
        for rank, (kind, table) in enumerate((("gone", self.gone), ("new", self.new))):
            ts, seq = (table.column(n).to_pylist() for n in ("ts", "seq"))
            found += [(t, s, rank, row, kind, row) for row, (t, s) in enumerate(zip(ts, seq, strict=True))]
        for row in range(self.changed_a.num_rows):
            ts, seq = min(
                (t.column("ts")[row].as_py(), t.column("seq")[row].as_py())
                for t in (self.changed_a, self.changed_b)
            )
            found.append((ts, seq, 2, row, "changed", row))
        for ts, seq, _, _, kind, row in sorted(found):
            yield self._change(kind, row, ts, seq)

    @cached_property
    def first(self) -> Change | None:
        """The first difference in log order."""
        places: list[tuple[int, int, int, str, int]] = []
        for rank, (kind, table) in enumerate((("gone", self.gone), ("new", self.new))):
            if table.num_rows:
                places.append((table.column("ts")[0].as_py(), table.column("seq")[0].as_py(), rank, kind, 0))
        if self.changed_a.num_rows:
            sides = [
                np.stack([np.asarray(t.column(n)) for n in ("ts", "seq")])
                for t in (self.changed_a, self.changed_b)
            ]
            later = (sides[0][0] > sides[1][0]) | ((sides[0][0] == sides[1][0]) & (sides[0][1] > sides[1][1]))
            ts, seq = np.where(later, sides[1], sides[0])
            row = int(np.lexsort((seq, ts))[0])
            places.append((int(ts[row]), int(seq[row]), 2, "changed", row))
        if not places:
            return None
        ts, seq, _, kind, row = min(places)
        return self._change(kind, row, ts, seq)

    def _change(self, kind: str, row: int, ts: int, seq: int) -> Change:
        if kind != "changed":
            table = self.gone if kind == "gone" else self.new
            found = table.slice(row, 1).to_pylist()[0]
            return Change(
                self.name, kind, ts, seq, found if kind == "gone" else None, found if kind == "new" else None
            )
        a, b = (t.slice(row, 1) for t in (self.changed_a, self.changed_b))
        names = compared_columns(self.schema)
        fields = tuple(n for n, mask in unequal(a, b, names).items() if mask[0])
        return Change(self.name, "changed", ts, seq, a.to_pylist()[0], b.to_pylist()[0], fields)


@dataclass(frozen=True)
class EntityDiff:
    """Distinct values of a field: how many in A and in B, those in A alone (freed), those in B alone (hit)."""

    field: str
    a: int
    b: int
    freed: pa.Array
    hit: pa.Array


def checked_identity(
    name: str, schemas: Sequence[pa.Schema | None], identity: tuple[str, ...]
) -> tuple[str, ...]:
    """What rows of a type are matched by: these fields, else their event. `schemas`: of A and B, None for a type that a side does
    not have. Raises UsageError (TL816) for a field that neither has.
    """
    both = list(dict.fromkeys(n for s in schemas if s is not None for n in s.names))
    for field in identity:
        if field not in both:
            raise UsageError(
                f"{name} has no field {field!r} to match by",
                hint=f"{meant(field, both)}fields of both: {', '.join(both)}",
                code="TL816",
            )
    return identity or BY_EVENT


def compared(name: str, tables: Sequence[pa.Table | None], identity: tuple[str, ...]) -> RecordDiff:
    """What differs between the outputs of a type in A and B (None: not a type of that side), as tables, matched by these fields."""
    own = next(t.schema for t in tables if t is not None)
    whole = [own.empty_table() if t is None else t for t in tables]
    schemas = common_schemas(whole[0].schema, whole[1].schema)
    left, right = (held(t, schema) for t, schema in zip(whole, schemas, strict=True))
    found = match(left.data, right.data, identity)
    changed = unequal_pairs(left.data, right.data, found, compared_columns(left.schema))
    numbers = Matching(found.only_a, found.only_b, found.left[changed], found.right[changed])
    return RecordDiff(name, identity, (left, right), Found.of(numbers))
