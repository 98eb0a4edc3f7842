"""What differs between two runs over one log: outputs gone, new and changed, and where it begins.

Outputs are matched by the record's `key=` fields (`class Spam(tl.Record, key="message")`), or, where it has none, by
the event that they stem from. A matched pair is *changed* when any field differs in a bit, or when it was put
out at another event.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from timelapse.compare.by_parts import Pair, compare_pairs
from timelapse.compare.engines import Chosen, choose, rejected_of
from timelapse.compare.match import Found
from timelapse.compare.records import (
    BY_EVENT,
    PLACE,
    REJECTED,
    At,
    Change,
    RecordDiff,
    checked_identity,
    compared,
)
from timelapse.compare.sides import Held, InFiles, Side
from timelapse.display import many
from timelapse.errors import UsageError, meant
from timelapse.frames.tables import rows_of
from timelapse.run.request import Engine
from timelapse.run.run import Run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from rich.console import RenderableType

    from timelapse.charts import Figure
    from timelapse.compare.causes import Cause
    from timelapse.compare.score import Judgement


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
    place: Chosen = field(default_factory=Chosen)

    @property
    def engine(self) -> str:
        """Where outputs were compared, and why there."""
        return self.place.text

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


def diff(
    a: Run | str | Path, b: Run | str | Path, key: Mapping[str, Sequence[str]] | None = None, *,
    engine: Engine = "auto", spark: SparkSession | Literal[False] | None = None,
) -> Diff:  # fmt: skip
    """Compare two runs over one log; a run may be given by its folder.

    `key` names fields to match a record type's rows by, instead of the record's own `key=`; an empty sequence means
    by event. `engine`: "spark" compares the runs' files as jobs of Spark, on the session `spark` or the active one, or one that is started;
    "local" never does; "auto" does where there is a session and millions of outputs. Outputs that take more than this process should
    are compared part by part in any case (compare/engines.py). `Diff.engine` says which it was. What comes out is the same.

    Raises UsageError: TL807 for what is no run, TL815 for runs over different logs, TL816 for a field that is
    not there, TL810 for an engine that there is not, TL842 where Spark is asked for and a run is in memory only; RunError for a folder without
    a whole run.
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
    schemas = {n: [run.schema(n) if n in run.counts else None for run in (a, b)] for n in names}
    keys = {
        n: checked_identity(n, schemas[n], tuple(_key_of(n, a, b) if given.get(n) is None else given[n]))
        for n in names
    }
    chosen = choose(engine, spark, (a, b))
    if chosen.jobs is None:
        records = {
            n: compared(n, [run.stored(n) if n in run.counts else None for run in (a, b)], keys[n])
            for n in names
        }
        rejected = compared(REJECTED, [run.stored_rejected() for run in (a, b)], BY_EVENT)
        return Diff(a, b, records, rejected, chosen)
    pairs = [Pair.of(n, keys[n], [rows_of(r, n) if n in r.counts else None for r in (a, b)]) for n in names]
    pairs.append(Pair.of(REJECTED, BY_EVENT, [rejected_of(run) for run in (a, b)]))
    found = compare_pairs(pairs, chosen.jobs, f"diff of {a.program} and {b.program}: outputs matched")
    *several, last = (
        RecordDiff(p.name, p.identity, p.sides, f, chosen.jobs) for p, f in zip(pairs, found, strict=True)
    )
    return Diff(a, b, {r.name: r for r in several}, last, chosen)


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
    chosen = choose("local", None, (run,))

    def beside(name: str, identity: tuple[str, ...], *, rejected: bool = False) -> RecordDiff:
        side: Side
        if chosen.jobs is None:
            side = Held(run.stored_rejected() if rejected else run.stored(name))
        else:
            files = rejected_of(run) if rejected else rows_of(run, name)
            side = InFiles.of(files, files.stored)
        return RecordDiff(name, identity, (side, side), Found.nothing(), chosen.jobs)

    records = {name: beside(name, _key_of(name, run, run) or BY_EVENT) for name in sorted(run.counts)}
    return Diff(run, run, records, beside(REJECTED, BY_EVENT, rejected=True), chosen)


def _log_text(run: Run) -> str:
    return f"{run.manifest.log or 'one in memory'} ({many(run.events, 'event', 'events')})"


def _key_of(name: str, a: Run, b: Run) -> tuple[str, ...]:
    """The record's key where both versions agree on it."""
    keys = {r.key for run in (a, b) for r in run.manifest.records if r.name == name}
    return keys.pop() if len(keys) == 1 else ()
