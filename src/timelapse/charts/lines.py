"""Numbers against a setting as lines: outputs over thresholds, precision against recall.

A LineChart says what is to be seen. Pages show it as SVG (`figure`); `drawn.py` has matplotlib draw the same for files and notebooks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from math import floor, isfinite, log10
from typing import NamedTuple

from timelapse.charts.axis import every, label, legend, round_up
from timelapse.charts.figure import Figure
from timelapse.charts.style import COLOURS
from timelapse.display import clean

MOST = len(COLOURS)
"""Most lines on a page."""
_EACH = 20
"""Up to so many integers each have their tick, where there is room."""
_LEFT, _RIGHT, _TOP, _BOTTOM = 52.0, 22.0, 44.0, 44.0


@dataclass(frozen=True)
class Spot:
    """One mark. `text` is told when it is pointed at; `short` stands beside it where nobody can point."""

    x: float
    y: float
    text: str
    best: bool = False
    short: str = ""


@dataclass(frozen=True)
class Line:
    """A series of marks, joined in their order."""

    name: str
    spots: tuple[Spot, ...]


class Axis(NamedTuple):
    """Where an axis begins and ends, and its ticks with what is written at them."""

    low: float
    high: float
    ticks: list[tuple[float, str]]


@dataclass(frozen=True)
class LineChart:
    """Lines. `x`, `y`: what the axes are; `y` may be empty where the title says it.

    `share`: whether an axis (x, y) goes from 0 to 1 and is written in percent. `whole`: whether an axis has integers only,
    as counts and integer parameters have. `close`: it only goes as far as the marks lie, at least over 5 percent.
    `named`: what stands at x = 0, 1, 2, ... in place of numbers.
    """

    title: str
    x: str
    y: str
    series: tuple[Line, ...]
    share: tuple[bool, bool] = (False, False)
    whole: tuple[bool, bool] = (False, False)
    close: bool = False
    named: tuple[str, ...] | None = None

    def known(self, most: int | None = None) -> list[Line]:
        """The first lines, by default all, without marks that have no place."""
        return [
            Line(one.name, tuple(s for s in one.spots if isfinite(s.x) and isfinite(s.y)))
            for one in self.series[:most]
        ]

    def axes(self, spots: Sequence[Spot], room: float) -> tuple[Axis, Axis]:
        """Both axes for these marks, at least one; `room` is the width (in pixels) that texts below share."""
        share, whole, close, named = self.share, self.whole, self.close, self.named
        x_ends, x_ticks = _axis([s.x for s in spots], share[0], whole=whole[0], from_zero=False, close=close)
        y_ends, y_ticks = _axis([s.y for s in spots], share[1], whole=whole[1], from_zero=True, close=close)
        if named is not None:
            x_ends = (0.0, float(max(1, len(named) - 1)))
            x_ticks = [float(n) for n in range(len(named))]
        texts = [named[int(t)] if named is not None else _number(t, x_ticks, share[0]) for t in x_ticks]
        texts = [text if len(text) <= 14 else f"{text[:13]}…" for text in texts]
        across = list(zip(x_ticks, texts, strict=True))[:: every(texts, room)]
        return Axis(*x_ends, across), Axis(*y_ends, [(t, _number(t, y_ticks, share[1])) for t in y_ticks])

    def figure(self, width: float = 480.0, height: float = 270.0) -> Figure:
        """A picture of up to MOST lines for pages."""
        title = clean(self.title)
        head = f'<text class="title" x="4" y="16">{escape(title)}</text>'
        known = self.known(MOST)
        spots = [s for one in known for s in one.spots]
        if not spots:
            return Figure(title, f'{head}<text x="4" y="44">nothing to draw</text>', width, 60.0)
        inner, tall = width - _LEFT - _RIGHT, height - _TOP - _BOTTOM
        below, side = self.axes(spots, inner)

        def across(value: float) -> float:
            return _LEFT + (value - below.low) / (below.high - below.low) * inner

        def up(value: float) -> float:
            return _TOP + tall - (value - side.low) / (side.high - side.low) * tall

        parts = [head]
        if len(known) > 1:
            parts += legend([(one.name, f"c{n + 1}") for n, one in enumerate(known)], width - _RIGHT, 28)
        for tick, text in side.ticks:
            parts.append(f'<path class="grid" d="M{_LEFT:g} {up(tick):.1f}h{inner:g}"/>')
            parts.append(label(_LEFT - 8, up(tick) + 4, text, "end"))
        for tick, text in below.ticks:
            parts.append(f'<path class="grid" d="M{across(tick):.1f} {_TOP:g}v{tall:g}"/>')
            parts.append(label(across(tick), height - _BOTTOM + 16, text, "middle"))
        parts.append(f'<path class="base" d="M{_LEFT:g} {_TOP + tall:.1f}h{inner:g}"/>')
        parts.append(label(_LEFT + inner / 2, height - 6, self.x, "middle"))
        parts.append(label(4, _TOP - 8, self.y, "start") if self.y else "")
        for place, one in enumerate(known):
            path = "L".join(f"{across(s.x):.1f} {up(s.y):.1f}" for s in one.spots)
            parts.append(f'<g class="line c{place + 1}">' + (f'<path d="M{path}"/>' if path else ""))
            for s in one.spots:
                told = f"<title>{escape(clean(s.text))}</title>"
                at = f'cx="{across(s.x):.1f}" cy="{up(s.y):.1f}"'
                ring = f'<circle class="ring" {at} r="8"/>' if s.best else ""
                parts.append(f'{ring}<circle {at} r="{5 if s.best else 3.5:g}">{told}</circle>')
            parts.append("</g>")
        return Figure(title, "".join(parts), width, height)


def _axis(
    values: Sequence[float], share: bool, *, whole: bool, from_zero: bool, close: bool
) -> tuple[tuple[float, float], list[float]]:
    """Where an axis begins and ends, and its ticks. `whole`: at integers only, at each of a few."""
    if share and close:
        middle, half = (min(values) + max(values)) / 2, max(0.025, (max(values) - min(values)) * 0.6)
        low, high = max(0.0, middle - half), min(1.0, middle + half)
        step = round_up((high - low) / 5)
        low, high = step * floor(low / step + 1e-9), min(1.0, step * -floor(-high / step + 1e-9))
        return (low, high), [low + n * step for n in range(floor((high - low) / step + 1e-9) + 1)]
    if share:
        return (0.0, 1.0), [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    low, high = min(values), max(values)
    if from_zero:
        low, high = min(0.0, low), max(0.0, high)
    if low == high:
        low, high = low - (0.5 if low else 0.0), high + (0.5 if low else 1.0)
    step = round_up((high - low) / 5)
    if whole:
        step = 1.0 if not from_zero and high - low < _EACH else max(1.0, step)
    if from_zero:
        high = step * -floor(-high / step)
        low = step * floor(low / step)
    first = -floor(-low / step + 1e-9)
    return (low, high), [n * step for n in range(first, floor(high / step + 1e-9) + 1)]


def _number(value: float, ticks: Sequence[float], share: bool) -> str:
    if share:
        fine = len(ticks) > 1 and ticks[1] - ticks[0] < 0.0099
        return f"{100 * value:.1f}%" if fine else f"{100 * value:.0f}%"
    step = ticks[1] - ticks[0] if len(ticks) > 1 else 1.0
    if step >= 1 and abs(value) < 1e15:
        return f"{value:,.0f}"
    return f"{value:.{max(0, min(12, -floor(log10(step) + 1e-9)))}f}" if 1e-12 < step < 1 else f"{value:g}"


__all__ = ["MOST", "Axis", "Line", "LineChart", "Spot"]
