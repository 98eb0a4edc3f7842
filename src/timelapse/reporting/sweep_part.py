"""What a report says of a sweep, as plain values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from timelapse.charts import Figure
from timelapse.charts.lines import COLOURS, Line, Spot, lines
from timelapse.compare import Point, Sweep
from timelapse.compare.plots import axis_of, whole
from timelapse.display import clean, rate, took
from timelapse.reporting.redact import HIDDEN, Redaction, shown
from timelapse.reporting.run_part import Fact, Tile
from timelapse.results.parameters import shown_text

if TYPE_CHECKING:
    from timelapse.run import Run

RATES = ("precision", "recall", "f1")


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
    records = tuple(dict.fromkeys(name for p in found.points for name in p.run.counts))
    judged = any(p.judged is not None for p in found.points)
    best = found.best()
    top = max((_outputs(p) for p in found.points), default=0)
    notes = []
    if hidden := [n for n in found.names if redaction.hides_param(n)]:
        notes.append(
            f"Values of {', '.join(map(clean, hidden))} are left out: settings are numbered from 1 in the charts."
        )
    if (more := len(_series(found, records, redaction)) - COLOURS) > 0:
        notes.append(f"The charts show {COLOURS} lines; {more} more are in the table.")
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
        charts=tuple(_charts(found, records, redaction, best)),
        tiles=tuple(_tiles(found, best)),
        about=tuple(_about(first)),
        best="" if best is None else _said(best.values, redaction),
        notes=tuple(notes),
    )  # fmt: skip


def _outputs(point: Point) -> int:
    return sum(point.run.counts.values())


def _value(name: str, value: object, redaction: Redaction) -> str:
    return HIDDEN if redaction.hides_param(name) else shown(value)


def _said(values: Mapping[str, object], redaction: Redaction, without: str | None = None) -> str:
    """`ratio=2.0 share=0.1`."""
    return " ".join(f"{clean(n)}={_value(n, v, redaction)}" for n, v in values.items() if n != without)


def _row(
    point: Point, names: Sequence[str], records: Sequence[str], redaction: Redaction, top: int, *, judged: bool,
    best: bool,
) -> Setting:  # fmt: skip
    run, score = point.run, None if point.judged is None else point.judged.total.b
    rates = [None if score is None else getattr(score, r) for r in RATES] if judged else []
    return Setting(
        values=tuple(_value(n, point.values[n], redaction) for n in names),
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


# --- charts ---------------------------------------------------------------------------------------------


def _ordered(found: Sweep, redaction: Redaction) -> dict[str, list[tuple[float, Point]]]:
    """Points by what tells lines apart, each with its place on the axis."""
    axis = axis_of(found, redaction.hides_param)
    groups: dict[str, list[tuple[float, Point]]] = {}
    for number, point in enumerate(found.points):
        if axis is None:
            groups.setdefault("", []).append((float(number), point))
        else:
            groups.setdefault(_said(point.values, redaction, axis), []).append(
                (float(point.values[axis]), point)
            )
    return {name: sorted(own, key=lambda pair: pair[0]) for name, own in groups.items()}


def _series(found: Sweep, records: Sequence[str], redaction: Redaction) -> list[Line]:
    """Outputs against the axis."""
    made = []
    for group, points in _ordered(found, redaction).items():
        for record in records:
            name = " ".join(t for t in (clean(record) if len(records) > 1 or not group else "", group) if t)
            spots = [
                Spot(x, p.run.counts.get(record, 0), f"{_said(p.values, redaction)}: {p.run.counts.get(record, 0):,}")
                for x, p in points
            ]  # fmt: skip
            made.append(Line(name, tuple(spots)))
    return made


def _charts(found: Sweep, records: Sequence[str], redaction: Redaction, best: Point | None) -> list[Figure]:
    axis = axis_of(found, redaction.hides_param)
    named = None
    if axis is None:
        numbered = any(redaction.hides_param(n) for n in found.names)
        named = [str(n + 1) if numbered else _said(p.values, redaction) for n, p in enumerate(found.points)]
    across = "setting" if axis is None else clean(axis)
    counts = (whole(found, axis), True)
    charts = [lines("Outputs", across, "", _series(found, records, redaction), whole=counts, named=named)]
    groups = _ordered(found, redaction)
    if any(p.judged is not None for p in found.points):
        if len(groups) == 1:
            (points,) = groups.values()
            rates = [_rate(rate_, points, redaction, best) for rate_ in RATES]
            charts.append(
                lines("By the labels", across, "", rates, share=(False, True), whole=counts, named=named)
            )
        curves = [_curve(name, points, redaction, best) for name, points in groups.items()]
        charts.append(
            lines("Precision against recall", "recall", "precision", curves, share=(True, True), close=True)
        )
    return charts


def _rate(name: str, points: Sequence[tuple[float, Point]], redaction: Redaction, best: Point | None) -> Line:
    spots = []
    for x, point in points:
        value = None if point.judged is None else getattr(point.judged.total.b, name)
        if value is not None:
            text = f"{_said(point.values, redaction)}: {name} {100 * value:.1f}%"
            spots.append(Spot(x, value, text, best=point is best and name == "f1"))
    return Line(name, tuple(spots))


def _curve(
    name: str, points: Sequence[tuple[float, Point]], redaction: Redaction, best: Point | None
) -> Line:
    spots = []
    for _, point in points:
        score = None if point.judged is None else point.judged.total.b
        if score is not None and score.recall is not None and score.precision is not None:
            text = (
                f"{_said(point.values, redaction)}: precision {100 * score.precision:.1f}%, "
                f"recall {100 * score.recall:.1f}%"
            )
            spots.append(Spot(score.recall, score.precision, text, best=point is best))
    return Line(name, tuple(spots))


__all__ = ["SweepPart", "sweep_part"]
