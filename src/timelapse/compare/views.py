"""A diff as people see it: what differs over time as a chart, how much of each type as a card."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from timelapse.cards import Card, Table
from timelapse.charts import Timeline, timeline
from timelapse.display import many
from timelapse.results.parameters import shown_text

if TYPE_CHECKING:
    from timelapse.compare.differences import Diff
    from timelapse.compare.records import RecordDiff
    from timelapse.compare.sweeps import Sweep
    from timelapse.run import Run

_KINDS = ("gone", "new", "changed")


def _times(table: pa.Table) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.asarray(table.column("ts")).astype(np.int64, copy=False)


def whole_span(records: Sequence[RecordDiff]) -> tuple[int, int] | None:
    """From the first to the last output of either side: differences stand within all that was put out."""
    found = [span for r in records for side in r.sides if (span := side.span()) is not None]
    return (min(first for first, _ in found), max(last for _, last in found)) if found else None


def differences_chart(record: RecordDiff, span: tuple[int, int] | None = None, title: str = "") -> Timeline:
    """What is new and changed upwards, what is gone downwards, over time. Kinds without any are left out."""
    every = {"new": _times(record.new), "changed": _times(record.changed_b), "gone": _times(record.gone)}
    bands = {kind: ts for kind, ts in every.items() if len(ts)}
    return timeline(
        title or f"{record.name}: what differs", bands, css={kind: kind for kind in bands}, below=("gone",),
        span=span if bands else None,
    )  # fmt: skip


def card(found: Diff) -> Card:
    """The summary of `timelapse diff`."""
    facts = [
        (side, _side(run, other)) for side, run, other in (("A", found.a, found.b), ("B", found.b, found.a))
    ]
    if found.place.jobs is not None:
        facts.append(("compared on", found.engine))
    if found.same:
        outputs = sum(found.a.counts.values())
        return Card(
            "The same", f"{many(outputs, 'output', 'outputs')}, {found.a.rejected_count:,} rejected", facts
        )
    records = [r for r in (*found.records.values(), found.rejected) if r.counts["a"] or r.counts["b"]]
    rows = tuple((r.name, *(f"{r.counts[k]:,}" for k in ("a", "b", *_KINDS))) for r in records)
    first = found.first
    if first is not None:
        facts.append(("first", first.text))
    span = whole_span(records)
    figures = [differences_chart(r, span).figure(820, 170) for r in records if not r.same][:3]
    names = ("", "A", "B", *_KINDS)
    return Card("What differs", "", facts, Table(names, rows, names[1:]), figures)


def sweep_card(found: Sweep) -> Card:
    """One row per setting: outputs, and what labels say; the best by f1 where there are any."""
    table = found.table().drop_columns(["needed"])
    rows = tuple(
        tuple(str(v) if n in found.names else _cell(v) for n, v in row.items()) for row in table.to_pylist()
    )
    best = found.best()
    facts = [] if best is None else [("best f1", ", ".join(f"{n}={best.values[n]!r}" for n in found.names))]
    names = tuple(table.column_names)
    right = tuple(f.name for f in table.schema if pa.types.is_integer(f.type) or pa.types.is_floating(f.type))
    return Card(
        f"Sweep of {found.program}", many(len(rows), "setting", "settings"), facts, Table(names, rows, right)
    )


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"


def _side(run: Run, other: Run) -> str:
    theirs = other.manifest.params
    own = ", ".join(f"{n}={shown_text(t)}" for n, t in run.manifest.params.items() if theirs.get(n) != t)
    return f"{run.program}{f' with {own}' if own else ''}, digest {run.digest[:12]}"
