"""What a report says of a sweep, as plain values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from timelapse.charts import Figure
from timelapse.charts.lines import MOST
from timelapse.compare import Point, Sweep
from timelapse.compare.curves import RATES, Curves
from timelapse.display import clean, rate, took
from timelapse.reporting.redact import HIDDEN, Redaction, shown
from timelapse.reporting.run_part import Fact, Tile
from timelapse.results.parameters import shown_text

if TYPE_CHECKING:
    from timelapse.run import Run


@dataclass(frozen=True)
class Setting:
    """One row: values of the parameters, outputs by record type with their share of the largest, scores, what it took."""

    values: tuple[str, ...]
    outputs: tuple[str, ...]
    percent: float
    rejected: int
    rates: tuple[str, ...]
    seconds: str
    needed: str
    digest: str
    best: bool


@dataclass(frozen=True)
class SweepPart:
    """A sweep."""

    names: tuple[str, ...]
    params: tuple[tuple[str, str], ...]
    """Parameters that are the same for all settings."""
    records: tuple[str, ...]
    rates: tuple[str, ...]
    rejected: bool
    rows: tuple[Setting, ...]
    charts: tuple[Figure, ...]
    tiles: tuple[Tile, ...]
    about: tuple[Fact, ...]
    best: str
    notes: tuple[str, ...]


def sweep_part(found: Sweep, redaction: Redaction) -> SweepPart:
    """Everything about a sweep."""
    curves = Curves(found, redaction.hides_param, partial(_value, redaction))
    records = curves.records
    judged = any(p.judged is not None for p in found.points)
    best = found.best()
    top = max((_outputs(p) for p in found.points), default=0)
    notes = []
    if hidden := [n for n in found.names if redaction.hides_param(n)]:
        notes.append(
            f"Values of {', '.join(map(clean, hidden))} are left out: settings are numbered from 1 in the charts."
        )
    if (more := len(curves.groups) * len(records) - MOST) > 0:
        notes.append(f"The charts show {MOST} lines; {more} more are in the table.")
    first = found.points[0].run
    return SweepPart(
        names=tuple(clean(n) for n in found.names),
        params=tuple(
            (n, HIDDEN if redaction.hides_param(n) else shown(shown_text(text)))
            for n, text in first.manifest.params.items()
            if n not in found.names
        ),
        records=tuple(clean(r) for r in records),
        rates=RATES if judged else (),
        rejected=any(p.run.rejected_count for p in found.points),
        rows=tuple(_row(p, found.names, records, redaction, top, judged=judged, best=p is best) for p in found.points),
        charts=tuple(_charts(curves, judged=judged)),
        tiles=tuple(_tiles(found, best)),
        about=tuple(_about(first)),
        best="" if best is None else curves.said(best.values),
        notes=tuple(notes),
    )  # fmt: skip


def _outputs(point: Point) -> int:
    return sum(point.run.counts.values())


def _value(redaction: Redaction, name: str, value: object) -> str:
    return HIDDEN if redaction.hides_param(name) else shown(value)


def _row(
    point: Point, names: Sequence[str], records: Sequence[str], redaction: Redaction, top: int, *, judged: bool,
    best: bool,
) -> Setting:  # fmt: skip
    run, score = point.run, None if point.judged is None else point.judged.total.b
    rates = [None if score is None else getattr(score, r) for r in RATES] if judged else []
    return Setting(
        values=tuple(_value(redaction, n, point.values[n]) for n in names),
        outputs=tuple(f"{run.counts.get(r, 0):,}" for r in records),
        percent=round(100 * _outputs(point) / top, 2) if top else 0.0,
        rejected=run.rejected_count,
        rates=tuple("-" if r is None else f"{100 * r:.1f}%" for r in rates),
        seconds=took(run.seconds),
        needed=point.replayed,
        digest=run.digest[:12],
        best=best,
    )


def _tiles(found: Sweep, best: Point | None) -> list[Tile]:
    counts = [_outputs(p) for p in found.points]
    spent = sum(p.run.seconds for p in found.points)
    events = found.points[0].run.events
    tiles = [
        Tile(f"{len(found.points):,}", "settings", f"of {', '.join(map(clean, found.names))}"),
        Tile(f"{events:,}", "events each"),
        Tile(took(spent), "in all", rate(events * len(found.points), spent)),
        Tile(f"{min(counts):,} to {max(counts):,}", "outputs"),
    ]
    if best is not None and best.judged is not None:
        f1 = best.judged.total.b.f1
        tiles.append(Tile("-" if f1 is None else f"{100 * f1:.1f}%", "best f1"))
    return tiles


def _about(run: Run) -> list[Fact]:
    manifest = run.manifest
    return [
        Fact(
            "program", f"{manifest.program}" + (f" from {clean(manifest.source)}" if manifest.source else "")
        ),
        Fact("log", f"{clean(manifest.log or 'in memory')} ({run.events:,} events)"),
        Fact("log id", manifest.log_id or "", mono=True),
        Fact("replayed", f"{clean(manifest.started).replace('T', ' ').replace('+00:00', ' UTC')}"),
        Fact("Timelapse", manifest.timelapse),
    ]


def _charts(curves: Curves, *, judged: bool) -> list[Figure]:
    found = [curves.outputs(), *((curves.scores(), curves.recall()) if judged else ())]
    return [chart.figure() for chart in found if chart is not None]


__all__ = ["SweepPart", "sweep_part"]
