"""Plots of comparisons, with matplotlib."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from timelapse.display import many
from timelapse.errors import Place, UsageError

if TYPE_CHECKING:
    from timelapse.compare.sweeps import Sweep

SUFFIXES = (".svg", ".png", ".pdf")


def check_plot(path: Path) -> None:
    """Raise UsageError (TL820) where a file's name asks for a form in which nothing is drawn."""
    if path.suffix.lower() not in SUFFIXES:
        raise UsageError(
            f"a plot is drawn as {', '.join(SUFFIXES)}",
            place=Place(str(path)),
            hint="sweep.svg",
            code="TL820",
        )


def sweep_figure(sweep: Sweep) -> Any:
    """With labels precision against recall, one mark per point; else the outputs of each record type.

    One parameter with numbers is an axis; of several, the first with more than one number is the axis and the rest tell
    lines apart.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.5, 4.6), layout="constrained")
    axes = figure.add_subplot()
    if any(p.judged is not None for p in sweep.points):
        _precision_recall(sweep, axes)
    else:
        _outputs(sweep, axes)
    axes.set_title(
        f"{sweep.program}: {many(len(sweep.points), 'setting', 'settings')}".replace("$", r"\$"), fontsize=10
    )
    axes.grid(alpha=0.3)
    return figure


def _precision_recall(sweep: Sweep, axes: Any) -> None:
    axis = axis_of(sweep)
    for label, points in _lines(sweep, axis):
        known = [(p, p.judged.total.b) for p in points if p.judged is not None]
        shown = [
            (p, s.recall, s.precision) for p, s in known if s.recall is not None and s.precision is not None
        ]
        axes.plot(
            [r for _, r, _ in shown], [q for _, _, q in shown], marker="o", markersize=4, label=label or None
        )
        if len(shown) <= 30 and axis is not None:
            for p, r, q in shown:
                axes.annotate(
                    _text(p.values[axis]), (r, q), xytext=(4, 4), textcoords="offset points", fontsize=7
                )
        if label:
            axes.legend(fontsize=8)
    axes.set_xlabel("recall")
    axes.set_ylabel("precision")
    axes.set_xlim(0, 1.02)
    axes.set_ylim(0, 1.02)


def _outputs(sweep: Sweep, axes: Any) -> None:
    from matplotlib.ticker import MaxNLocator

    axis = axis_of(sweep)
    records = list(dict.fromkeys(name for p in sweep.points for name in p.run.counts))
    for label, points in _lines(sweep, axis):
        x = [_text(p.values) for p in points] if axis is None else [_place(p.values[axis]) for p in points]
        for record in records:
            name = _text(" ".join(t for t in (record if len(records) > 1 else "", label) if t))
            axes.plot(
                x, [p.run.counts.get(record, 0) for p in points], marker="o", markersize=4, label=name or None
            )
    if len(records) > 1 or len(_lines(sweep, axis)) > 1:
        axes.legend(fontsize=8)
    axes.set_xlabel(_text(axis or "setting"))
    axes.set_ylabel(_text(records[0]) if len(records) == 1 else "outputs")
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    if whole(sweep, axis):
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))


def axis_of(sweep: Sweep, hidden: Callable[[str], bool] = lambda name: False) -> str | None:
    """The first parameter whose values are numbers, and more than one; not one that is hidden."""
    for name in sweep.names:
        values = [p.values[name] for p in sweep.points]
        if (
            all(type(v) in (int, float, Decimal) for v in values)
            and len(set(values)) > 1
            and not hidden(name)
        ):
            return name
    return None


def whole(sweep: Sweep, axis: str | None) -> bool:
    """Whether a parameter has integers only, so that its axis has to have them only."""
    return axis is not None and all(type(p.values[axis]) is int for p in sweep.points)


def _lines(sweep: Sweep, axis: str | None) -> list[tuple[str, list[Any]]]:
    lines: dict[str, list[Any]] = {}
    for point in sweep.points:
        rest = {} if axis is None else {n: v for n, v in point.values.items() if n != axis}
        lines.setdefault(" ".join(f"{n}={v}" for n, v in rest.items()), []).append(point)
    return [
        (_text(label), points if axis is None else sorted(points, key=lambda p: p.values[axis]))
        for label, points in lines.items()
    ]


def _place(value: Any) -> int | float:
    return float(value) if isinstance(value, Decimal) else value


def _text(value: Any) -> str:
    """What matplotlib shows as it is: a dollar would begin a formula."""
    return str(value)[:60].replace("$", r"\$")


def save(sweep: Sweep, path: Path) -> None:
    """Draw a sweep into a file (SVG, PNG or PDF by its name)."""
    check_plot(path)
    sweep_figure(sweep).savefig(path)
