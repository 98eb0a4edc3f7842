"""What differs between two runs over one log: outputs gone, new and changed, and where it begins.

Outputs are matched by the record's `key=` fields (`class Spam(tl.Record, key="message")`), or, where it has none, by
the event that they stem from. A matched pair is *changed* when any field differs in a bit, or when it was put
out at another event.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from timelapse.compare.match import match, unequal, unequal_pairs
from timelapse.errors import UsageError, meant
from timelapse.ids import DAY, Phase
from timelapse.moments import time_text
from timelapse.run.run import Run

if TYPE_CHECKING:
    from rich.console import RenderableType

    from timelapse.charts import Figure
    from timelapse.compare.causes import Cause
    from timelapse.compare.score import Judgement

At = int | tuple[int, int, int]
"""A step: a log event's seq; else its time, phase and root."""
PLACE = ("ts", "phase", "seq", "ordinal")
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

    `changed_a` and `changed_b` have one row per changed pair. `identity` is what rows were matched by.
    """

    name: str
    identity: tuple[str, ...]
    a: pa.Table
    b: pa.Table
    gone: pa.Table
    new: pa.Table
    changed_a: pa.Table
    changed_b: pa.Table

    @property
    def same(self) -> bool:
        """Whether both runs put out the same rows at the same places."""
        return not (self.gone.num_rows or self.new.num_rows or self.changed_a.num_rows)

    @property
    def counts(self) -> dict[str, int]:
        """Rows of A and B, and how many are gone, new and changed."""
        return {
            "a": self.a.num_rows, "b": self.b.num_rows, "gone": self.gone.num_rows, "new": self.new.num_rows,
            "changed": self.changed_a.num_rows,
        }  # fmt: skip

    @cached_property
    def fields(self) -> dict[str, int]:
        """How many changed pairs differ in each column; `ts` and `seq` where they stem from other events."""
        names = [n for n in self.changed_a.column_names if n not in ("phase", "ordinal")]
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
        if field not in self.a.column_names or field in PLACE:
            known = [n for n in self.a.column_names if n not in PLACE]
            raise UsageError(
                f"{self.name} has no field {field!r}",
                hint=f"{meant(field, known)}fields: {', '.join(known)}",
                code="TL816",
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
        names = [n for n in a.column_names if n not in ("phase", "ordinal")]
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


@dataclass(frozen=True)
class TakenOut:
    """How many events each of two runs took out of the log, and those that one of them did alone (Run.quarantined's columns)."""

    a: int
    b: int
    only_a: pa.Table
    only_b: pa.Table


@dataclass(frozen=True)
class Diff:
    """Two runs side by side. `records` has an entry per record type of either; `rejected` compares by event."""

    a: Run
    b: Run
    records: Mapping[str, RecordDiff]
    rejected: RecordDiff

    @property
    def same(self) -> bool:
        """Whether outputs and rejections are equal, in content and place."""
        return self.rejected.same and all(r.same for r in self.records.values())

    @cached_property
    def taken_out(self) -> TakenOut:
        """The events that either run took out of its log because a handler raised."""
        a, b = self.a.stored_quarantined(), self.b.stored_quarantined()
        only = [t.filter(pc.invert(pc.is_in(t["seq"], value_set=o["seq"]))) for t, o in ((a, b), (b, a))]
        return TakenOut(a.num_rows, b.num_rows, only[0], only[1])

    @property
    def first(self) -> Change | None:
        """The first difference in log order, over all record types and rejections."""
        found = [r.first for r in (*self.records.values(), self.rejected)]
        return min((c for c in found if c is not None), key=lambda c: (c.ts, c.seq), default=None)

    def causes(self, changes: Iterable[Change]) -> dict[At, Cause]:
        """Why these changes came about, by `Change.place` (a log event's seq): the condition and the state that differ."""
        from timelapse.compare.causes import causes

        return causes(self, changes)

    def examples(self, count: int, *, rejected: bool = True) -> list[Change]:
        """The first changes in log order, over all record types and (unless they are left out) rejections."""
        compared = [*self.records.values(), *([self.rejected] if rejected else [])]
        found = [c for r in compared for c in islice(r.changes(), count)]
        return sorted(found, key=lambda c: (c.ts, c.seq))[:count]

    def judge(self, labels: Any, **options: Any) -> Judgement:
        """Precision and recall of both against labels: see compare/score.py `judge`."""
        from timelapse.compare.score import judge

        return judge(self, labels, **options)

    def plot(self, record: str | None = None) -> Figure:
        """What differs over time in one record type, by default the first that differs: new and changed upwards, gone
        downwards. Raises UsageError (TL816) for a type that neither has.
        """
        from timelapse.compare.views import differences_chart, whole_span

        known = {**self.records, REJECTED: self.rejected}
        name = record or next((n for n, r in known.items() if not r.same), next(iter(known)))
        if name not in known:
            raise UsageError(
                f"neither run has outputs of the type {name!r}",
                hint=f"types: {', '.join(known)}",
                code="TL816",
            )
        return differences_chart(known[name], whole_span(list(known.values()))).figure()

    def __rich__(self) -> RenderableType:
        from timelapse.compare.views import card

        return card(self).rich()

    def _repr_html_(self) -> str:
        from timelapse.compare.views import card

        return card(self).html()

    def __repr__(self) -> str:
        if self.same:
            return f"<Diff {self.a.program} {self.b.program}: the same>"
        parts = [
            f"{name} -{c['gone']:,} +{c['new']:,} ~{c['changed']:,}"
            for name, r in (*self.records.items(), (REJECTED, self.rejected))
            if (c := r.counts) and not r.same
        ]
        return f"<Diff {self.a.program} {self.b.program}: {', '.join(parts)}>"


def diff(a: Run | str | Path, b: Run | str | Path, key: Mapping[str, Sequence[str]] | None = None) -> Diff:
    """Compare two runs over one log; a run may be given by its folder.

    `key` names fields to match a record type's rows by, instead of the record's own `key=`; an empty sequence means
    by event. Raises UsageError: TL807 for what is no run, TL815 for runs over different logs, TL816 for a field that is
    not there; RunError for a folder without a whole run.
    """
    a, b = Run.of(a), Run.of(b)
    if (a.manifest.log_id, a.events) != (b.manifest.log_id, b.events):
        raise UsageError(
            f"the runs replayed different logs: {_log_text(a)} and {_log_text(b)}",
            hint="replay both programs over one version of one log", code="TL815",
        )  # fmt: skip
    given = dict(key or {})
    names = sorted({*a.counts, *b.counts})
    check_types(given, names)
    records = {name: _record(name, a, b, given.get(name)) for name in names}
    rejected = _compare(REJECTED, a.stored_rejected(), b.stored_rejected(), ("phase", "seq"))
    return Diff(a, b, records, rejected)


def key_fields(
    asked: Sequence[tuple[str, Sequence[str]]], columns: Mapping[str, Collection[str]]
) -> dict[str, tuple[str, ...]]:
    """The `key` of `diff` from pairs of a record type and its fields; "" stands for every type that has the fields.

    `columns`: the columns of each record type. Raises UsageError (TL816) for types that are not there, and where no type
    has the fields.
    """
    check_types([name for name, _ in asked if name], sorted(columns))
    found: dict[str, tuple[str, ...]] = {}
    for name, fields in asked:
        fitting = [name] if name else [n for n, known in columns.items() if set(fields) <= set(known)]
        if not fitting:
            every = sorted({c for known in columns.values() for c in known if c not in PLACE})
            missing = next((f for f in fields if f not in every), None)
            raise UsageError(
                f"--key {','.join(fields)}: no record type has "
                + (f"the field {missing!r}" if missing else "all these fields"),
                hint=f"{meant(missing or '', every)}fields: {', '.join(every)}", code="TL816",
            )  # fmt: skip
        found |= dict.fromkeys(fitting, tuple(fields))
    return found


def columns_of(a: Run, b: Run) -> dict[str, set[str]]:
    """The columns of each record type, in both runs where both have it."""
    names = sorted({*a.counts, *b.counts})
    return {n: set.intersection(*(set(r.schema(n).names) for r in (a, b) if n in r.counts)) for n in names}


def check_types(given: Iterable[str], names: Sequence[str]) -> None:
    """Raise UsageError (TL816) for a record type that neither side puts out."""
    for name in given:
        if name not in names:
            raise UsageError(
                f"neither run has outputs of the type {name!r}",
                hint=f"{meant(name, names)}types: {', '.join(names) or 'none'}", code="TL816",
            )  # fmt: skip


def single(run: Run) -> Diff:
    """A run beside itself, without looking for differences: for what is asked of one run."""
    records = {}
    for name in sorted(run.counts):
        table = run.stored(name)
        none = table.schema.empty_table()
        identity = _key_of(name, run, run) or ("phase", "seq")
        records[name] = RecordDiff(name, identity, table, table, none, none, none, none)
    rows = run.stored_rejected()
    none = rows.schema.empty_table()
    return Diff(run, run, records, RecordDiff(REJECTED, ("phase", "seq"), rows, rows, none, none, none, none))


def _log_text(run: Run) -> str:
    return f"{run.manifest.log or 'one in memory'} ({run.events:,} events)"


def _record(name: str, a: Run, b: Run, key: Sequence[str] | None) -> RecordDiff:
    tables = [run.stored(name) if name in run.counts else None for run in (a, b)]
    return compared(name, tables, tuple(_key_of(name, a, b) if key is None else key))


def compared(name: str, tables: Sequence[pa.Table | None], identity: tuple[str, ...]) -> RecordDiff:
    """What differs between the outputs of a type in A and B (None: not a type of that side), matched by these fields, else by event.

    Raises UsageError (TL816) for a field that is not in both.
    """
    schema = next(t.schema for t in tables if t is not None)
    left, right = (schema.empty_table() if t is None else t for t in tables)
    if left.schema != right.schema:
        left, right = _common(left, right)
    for field in identity:
        if field not in left.column_names or field not in right.column_names:
            both = [n for n in left.column_names if n in right.column_names]
            raise UsageError(
                f"{name} has no field {field!r} to match by",
                hint=f"{meant(field, both)}fields of both: {', '.join(both)}",
                code="TL816",
            )
    return _compare(name, left, right, identity or ("phase", "seq"))


def _key_of(name: str, a: Run, b: Run) -> tuple[str, ...]:
    """The record's key where both versions agree on it."""
    keys = {r.key for run in (a, b) for r in run.manifest.records if r.name == name}
    return keys.pop() if len(keys) == 1 else ()


def _common(a: pa.Table, b: pa.Table) -> tuple[pa.Table, pa.Table]:
    """Both tables with all columns of either: a field that one version does not have is null there."""
    names = list(dict.fromkeys([*a.column_names, *b.column_names]))
    sides = []
    for own, other in ((a, b), (b, a)):
        columns = {}
        for name in names:
            if name in own.column_names:
                columns[name] = own.column(name)
            else:
                columns[name] = pa.nulls(own.num_rows, other.schema.field(name).type)
        sides.append(pa.table(columns))
    return sides[0], sides[1]


def _compare(name: str, a: pa.Table, b: pa.Table, identity: tuple[str, ...]) -> RecordDiff:
    found = match(a, b, identity)
    # Matched by event, a row's number among the event's outputs says nothing; matched by key, its event counts.
    names = [n for n in a.column_names if n not in ("phase", "ordinal")]
    changed = unequal_pairs(a, b, found, names)
    gone, new, changed_a, changed_b = (
        table.take(pa.array(rows))
        for table, rows in (
            (a, found.only_a), (b, found.only_b), (a, found.left[changed]), (b, found.right[changed]),
        )
    )  # fmt: skip
    return RecordDiff(name, identity, a, b, gone, new, changed_a, changed_b)
