"""The same charts by matplotlib, for files (SVG, PNG, PDF) and for notebooks that go on with the figure. Nothing else imports matplotlib.

Texts come from logs and programs: they are shown as they are. A dollar would begin a formula, so it is escaped.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from matplotlib.dates import date2num
from matplotlib.figure import Figure as MatplotlibFigure

from timelapse.charts.lines import LineChart
from timelapse.charts.style import COLOURS
from timelapse.display import one_line

_INCH = 72.0
_LONGEST = 60
_MARKED = 30
"""A line with more marks has no texts beside them."""
_STROKES = ("-", "--", ":", "-.")
"""Of lines beyond the number of colours."""


def drawn(chart: LineChart) -> MatplotlibFigure:
    """All of a chart's lines."""
    figure, axes = _empty(chart.title, chart.x, chart.y, (7.5, 4.6))
    known = chart.known()
    spots = [s for one in known for s in one.spots]
    if not spots:
        axes.text(0.5, 0.5, "nothing to draw", transform=axes.transAxes, ha="center")
        return figure
    below, side = chart.axes(spots, 0.85 * 7.5 * _INCH)
    axes.set_xlim(below.low, below.high)
    axes.set_ylim(side.low, side.high)
    axes.set_xticks([at for at, _ in below.ticks], [_plain(text) for _, text in below.ticks])
    axes.set_yticks([at for at, _ in side.ticks], [_plain(text) for _, text in side.ticks])
    for place, one in enumerate(known):
        colour, strokes = COLOURS[place % len(COLOURS)], _STROKES[place // len(COLOURS) % len(_STROKES)]
        x, y = [s.x for s in one.spots], [s.y for s in one.spots]
        axes.plot(x, y, strokes, color=colour, marker="o", markersize=4, clip_on=False)
        for s in one.spots:
            if s.best:
                axes.plot([s.x], [s.y], "o", color=colour, fillstyle="none", markersize=11, clip_on=False)
            if s.short and len(one.spots) <= _MARKED:
                axes.annotate(
                    _plain(s.short), (s.x, s.y), xytext=(4, 4), textcoords="offset points", fontsize=7
                )
    if len(known) > 1:
        handles = [line for line in axes.lines if line.get_fillstyle() != "none"]
        axes.legend(handles, [_plain(one.name) for one in known], fontsize=8)
    return figure


def steps(title: str, y: str, times: Sequence[int], values: Sequence[float]) -> MatplotlibFigure:
    """A value over time: it changes at these times (microseconds since 1970) and stays until the next."""
    figure, axes = _empty(title, "event time (UTC)", y, (8.5, 3.6))
    start = datetime(1970, 1, 1, tzinfo=UTC)
    moments = [start + timedelta(microseconds=ts) for ts in times]
    axes.step(date2num(moments), values, where="post", marker="o", markersize=3, color=COLOURS[0])
    axes.xaxis_date()
    return figure


def _empty(title: str, x: str, y: str, size: tuple[float, float]) -> tuple[MatplotlibFigure, Any]:
    """A figure (`size` in inches) with its axes, on which nothing is drawn yet."""
    figure = MatplotlibFigure(figsize=size, layout="constrained")
    axes = figure.add_subplot()
    axes.set_title(_plain(title, 200), fontsize=10)
    axes.set_xlabel(_plain(x))
    axes.set_ylabel(_plain(y))
    axes.grid(alpha=0.3)
    return figure, axes


def _plain(text: str, longest: int = _LONGEST) -> str:
    """What matplotlib shows as this text."""
    return one_line(text, longest).replace("$", r"\$")


__all__ = ["MatplotlibFigure", "drawn", "steps"]
