"""How numbers are spread: columns over ranges of values, for one set of them or for two, one over the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from html import escape
from itertools import pairwise
from math import floor, isfinite, log2, log10
from typing import Any

import numpy as np
import numpy.typing as npt

from timelapse.charts.axis import CHARACTER, every, label, legend, round_up
from timelapse.charts.figure import Figure
from timelapse.charts.timeline import nice, short
from timelapse.display import clean

Sorted = npt.NDArray[Any]
"""Numbers in ascending order: int64, or float64 without NaN and infinities."""

MOST = 40
"""Most columns, but for one more and for those in which the ends are gathered."""
_TAIL = 8
"""Values further than so many interquartile ranges beyond the quartiles are gathered at the ends."""
_LEFT, _RIGHT, _TOP, _BOTTOM = 44.0, 16.0, 24.0, 24.0


@dataclass(frozen=True)
class Bins:
    """Ranges [edge, next edge) of equal length. `low`, `high`: what lies below the first edge and from the last one on
    has a column of its own. `places`: integers are in units of 10 ** -places.
    """

    edges: tuple[float, ...]
    low: bool = False
    high: bool = False
    whole: bool = False
    """The numbers are integers."""
    places: int = 0

    @property
    def width(self) -> float:
        """The length of a range."""
        return self.edges[1] - self.edges[0]

    def count(self, values: Sorted) -> list[int]:
        """How many values lie in each column, from the left."""
        inner = self.edges[0 if self.low else 1 : None if self.high else -1]
        places = np.searchsorted(values, np.array(inner, values.dtype), side="left")
        return [int(n) for n in np.diff([0, *places.tolist(), len(values)])]

    def names(self) -> list[str]:
        """What each column holds, from the left: `20 to 30`; of integers `20 to 29` or, one by one, `20`."""
        if self.whole:
            names = [
                self.text(a) if b - a == 1 else f"{self.text(a)} to {self.text(b - 1)}"
                for a, b in pairwise(self.edges)
            ]
        else:
            names = [f"{self.text(a)} to {self.text(b)}" for a, b in pairwise(self.edges)]
        below, above = f"below {self.text(self.edges[0])}", f"{self.text(self.edges[-1])} and more"
        return [*[below] * self.low, *names, *[above] * self.high]

    def text(self, value: float) -> str:
        """A number with as many digits as tell edges apart."""
        if self.whole:
            return f"{Decimal(f'{int(value)}e{-self.places}'):,f}"  # exact in any context
        digits = max(0, -floor(log10(self.width) + 1e-9))
        if digits <= 6 and max(abs(self.edges[0]), abs(self.edges[-1])) < 1e12:
            return f"{round(value, digits) + 0.0:,.{digits}f}"
        return f"{value:.6g}"


def bins(*parts: Sorted, places: int = 0) -> Bins | None:
    """Columns for one or several sets of numbers of one type; None where there are none, or too far apart to be drawn.

    Their length is the smaller of what Freedman and Diaconis and what Sturges recommend (numpy's "auto"), rounded up to 1, 2
    or 5 times a power of ten, and such that there are about MOST at most.
    """
    values = parts[0] if len(parts) == 1 else np.sort(np.concatenate(parts))
    if not len(values) or not isfinite(float(at(values, 1.0)) - float(at(values, 0.0))):
        return None
    low, high = _ends(values)
    wish = float(high - low) / (log2(len(values)) + 1)
    if middle := float(at(values, 0.75) - at(values, 0.25)):
        wish = min(wish, 2 * middle / len(values) ** (1 / 3))
    whole = values.dtype.kind == "i"
    found = _whole(low, high, wish) if whole else _real(low, high, wish)
    if found is None:
        return None
    edges = found.edges
    return replace(
        found, low=bool(at(values, 0.0) < edges[0]), high=bool(at(values, 1.0) >= edges[-1]), places=places
    )


def at(values: Sorted, share: float) -> Any:
    """The first of sorted values below or at which this share of them lies, as a Python number."""
    return values[max(0, -int(-share * len(values) // 1) - 1)].item()


def _ends(values: Sorted) -> tuple[Any, Any]:
    """From where to where columns go: over all values, but for a few far out that would make the rest unreadable."""
    least, lower, upper, most = (at(values, share) for share in (0.0, 0.25, 0.75, 1.0))
    fences = (lower - _TAIL * (upper - lower), upper + _TAIL * (upper - lower))
    if lower == upper:  # most are equal: the rest decides
        fences = (at(values, 0.005), at(values, 0.995))
    low, high = max(least, fences[0]), min(most, fences[1])
    room = (high - low) / 4
    return (least if low - least <= room else low), (most if most - high <= room else high)


def _whole(low: int, high: int, wish: float) -> Bins:
    width = int(round_up(max(1.0, wish, (high - low + 1) / MOST)))
    return Bins(tuple(n * width for n in range(low // width, high // width + 2)), whole=True)


def _real(low: float, high: float, wish: float) -> Bins | None:
    size = max(abs(low), abs(high))
    if low == high:
        wish = size / 10 or 1.0
    width = round_up(max(wish, (high - low) / MOST, size * 1e-12, 1e-290))
    first, last = floor(low / width + 1e-9), floor(high / width + 1e-9)
    edges = tuple(n * width for n in range(first, last + 2))
    return Bins(edges) if isfinite(edges[0]) and isfinite(edges[-1]) else None


# --- drawing --------------------------------------------------------------------------------------------


def histogram(
    title: str,
    found: Bins,
    sets: Sequence[tuple[str, str, Sorted]],
    *,
    width: float = 400.0,
    height: float = 190.0,
) -> Figure:
    """The picture: (name, colour class, values) of one set as columns, of a second one over it as an outline.

    `title` is what it is called where it is not seen. What is gathered at an end stands apart, in grey where there is one set.
    """
    title = clean(title)
    counts = [found.count(values) for _, _, values in sets]
    columns, names = len(counts[0]), found.names()
    high = max(1, *(n for one in counts for n in one))
    inner, tall = width - _LEFT - _RIGHT, height - _TOP - _BOTTOM
    each = inner / (columns + 0.6 * (found.low + found.high))
    lefts = [
        _LEFT + each * (n + 0.6 * (found.low and n > 0) + 0.6 * (found.high and n == columns - 1))
        for n in range(columns)
    ]
    base = _TOP + tall
    parts = []
    if len(sets) > 1:
        parts += legend([(name, css) for name, css, _ in sets], width - _RIGHT, 20)
    tick = nice(high / 3)
    for value in range(0, high + 1, tick):
        y = base - value / high * tall
        parts.append(f'<path class="grid" d="M{_LEFT:g} {y:.1f}h{inner:g}"/>')
        parts.append(label(_LEFT - 6, y + 4, short(value), "end"))
    for place, ((_, css, _), one) in enumerate(zip(sets, counts, strict=True)):
        tops = [base - n / high * tall for n in one]
        if place:
            parts.append(_outline(css, lefts, tops, each, base))
            continue
        for n, (left, top) in enumerate(zip(lefts, tops, strict=True)):
            beyond = len(sets) == 1 and ((found.low and n == 0) or (found.high and n == columns - 1))
            if one[n]:
                parts.append(
                    f'<path class="{"c6" if beyond else css}" d="M{left + each * 0.06:.2f} {top:.2f}h{each * 0.88:.2f}V{base:g}h-{each * 0.88:.2f}z"/>'
                )
    parts.append(f'<path class="base" d="M{_LEFT:g} {base:.1f}h{inner:g}"/>')
    parts += _labels(found, lefts, each, height, width)
    for n, left in enumerate(lefts):
        told = ", ".join(
            f"{one[n]:,}" if len(sets) == 1 else f"{name} {one[n]:,}"
            for (name, _, _), one in zip(sets, counts, strict=True)
        )
        parts.append(
            f'<rect class="hit" x="{left:.2f}" y="{_TOP:g}" width="{each:.2f}" height="{tall:g}">'
            f"<title>{escape(clean(f'{names[n]}: {told}'))}</title></rect>"
        )
    return Figure(title, "".join(parts), width, height)


def _outline(css: str, lefts: Sequence[float], tops: Sequence[float], each: float, base: float) -> str:
    """The upper border of columns, down to the base line where there is a gap."""
    path, end = "", None
    for left, top in zip(lefts, tops, strict=True):
        if end is not None and left - end < 0.01:
            path += f"V{top:.2f}H{left + each:.2f}"
        else:
            path += f"{f'V{base:g}' if path else ''}M{left:.2f} {base:g}V{top:.2f}H{left + each:.2f}"
        end = left + each
    return f'<path class="outline {css}" d="{path}V{base:g}"/>'


def _labels(found: Bins, lefts: Sequence[float], each: float, height: float, width: float) -> list[str]:
    """Numbers under the columns: at edges; under the middle where a column is one integer."""
    single = found.whole and found.width == 1
    edges = found.edges[:-1] if single else found.edges
    texts = [found.text(e) for e in edges]
    step = every(texts, len(edges) * each)
    chosen = [
        n
        for n, e in enumerate(edges)
        if (e // found.width if found.whole else round(e / found.width)) % step == 0
    ]
    if len(chosen) < 2:
        chosen = list(range(0, len(edges), step))
    parts = []
    for n in chosen:
        x = lefts[0] + each * (n + (1.6 if found.low else 0.0) + (0.5 if single else 0.0))
        half = len(texts[n]) * CHARACTER / 2
        parts.append(label(min(max(x, half), width - half), height - 8, texts[n], "middle"))
    return parts
