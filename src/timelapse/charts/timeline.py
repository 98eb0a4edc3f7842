"""Counts over time as stacked columns, from event times.

Times are counted in *bins* of calendar steps (UTC, weeks from Monday): fine ones, which a page can zoom into, and as many of them
together as fit into a picture.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np
import numpy.typing as npt

from timelapse.charts.axis import legend
from timelapse.charts.figure import Figure
from timelapse.display import clean, moment
from timelapse.ids import DAY, HOUR, MINUTE, SECOND

I64 = npt.NDArray[np.int64]

FINE = 1_500
"""Most fine bins."""
COLUMNS = 120
"""Most columns in a picture."""
_WEEK = 7 * DAY
# Each divides the next, so that columns are whole numbers of fine bins.
_STEPS = (
    *(10**n for n in range(6)), SECOND, 5 * SECOND, 15 * SECOND, 30 * SECOND, MINUTE, 5 * MINUTE, 15 * MINUTE,
    30 * MINUTE, HOUR, 3 * HOUR, 6 * HOUR, 12 * HOUR, DAY, _WEEK, 4 * _WEEK, 52 * _WEEK,
    *(52 * _WEEK * 10**n for n in range(1, 5)),
)  # fmt: skip
_NAMES = {
    SECOND: "second", MINUTE: "minute", HOUR: "hour", DAY: "day", _WEEK: "week", 4 * _WEEK: "4 weeks",
    52 * _WEEK: "52 weeks",
}  # fmt: skip
_MONDAY = 3
"""1970-01-01 was a Thursday: days since the Monday before it."""


@dataclass(frozen=True)
class Band:
    """One series: a count for each fine bin. `css` names its colour; `below` draws it downwards."""

    name: str
    css: str
    counts: I64
    below: bool = False


@dataclass(frozen=True)
class Timeline:
    """Counts over time. `start` is the first bin's time (microseconds), `step` a fine bin's length."""

    title: str
    start: int
    step: int
    bands: tuple[Band, ...]

    @property
    def bins(self) -> int:
        """Number of fine bins."""
        return len(self.bands[0].counts) if self.bands else 0

    @property
    def group(self) -> int:
        """How many fine bins make a column."""
        for step in _STEPS:
            first = (self.start - _origin(step)) // step
            last = (self.start + (self.bins - 1) * self.step - _origin(step)) // step
            if step >= self.step and last - first < COLUMNS:
                return int(step // self.step)
        return max(1, -(-self.bins // COLUMNS))

    @property
    def offset(self) -> int:
        """How many fine bins the first column lacks, so that columns begin on the calendar."""
        wide = self.group * self.step
        return ((self.start - _origin(wide)) % wide) // self.step

    def columns(self) -> tuple[int, int, dict[str, I64]]:
        """(time of the first column, its length, counts of every band by column)."""
        group, offset = self.group, self.offset
        count = -(-(self.bins + offset) // group)
        found = {}
        for band in self.bands:
            padded = np.zeros(count * group, np.int64)
            padded[offset : offset + self.bins] = band.counts
            found[band.name] = padded.reshape(count, group).sum(axis=1)
        return self.start - offset * self.step, group * self.step, found

    def step_name(self, step: int) -> str:
        """A step as in `outputs per hour`."""
        return step_name(step)

    def data(self) -> dict[str, Any]:
        """What a page needs to draw it: seconds since 1970, and counts by fine bin."""
        return {
            "title": clean(self.title), "start": self.start / SECOND, "step": self.step / SECOND,
            "group": self.group, "offset": self.offset,
            "bands": [
                {"name": clean(b.name), "css": b.css, "below": b.below, "counts": b.counts.tolist()}
                for b in self.bands
            ],
        }  # fmt: skip

    def figure(self, width: float = 960.0, height: float = 240.0) -> Figure:
        """The picture."""
        return Figure(clean(self.title), _draw(self, width, height), width, height)

    def _repr_svg_(self) -> str:
        return self.figure().svg


def step_name(step: int) -> str:
    """A length of time in its own unit: `hour`, `15 minutes`."""
    if step in _NAMES:
        return _NAMES[step]
    for unit, name in ((52 * _WEEK, "52 weeks"), (DAY, "days"), (HOUR, "hours"), (MINUTE, "minutes"),
                       (SECOND, "seconds"), (1_000, "ms")):  # fmt: skip
        if step >= unit:
            return f"{step // unit} {name}" if name != "52 weeks" else f"{52 * step // unit:,} weeks"
    return f"{step} us"


def timeline(
    title: str, times: Mapping[str, I64], *, css: Mapping[str, str] | None = None, below: Collection[str] = (),
    span: tuple[int, int] | None = None,
) -> Timeline:  # fmt: skip
    """Count times (int64 microseconds) by band. `span` (first and last time) widens what is shown.

    `css` gives bands a colour class, by default `c1` and so on; `below` names the bands to draw downwards.
    """
    ends = [(int(t.min()), int(t.max())) for t in times.values() if len(t)]
    if span is not None:
        ends.append(span)
    if not ends:
        return Timeline(title, 0, DAY, ())
    lo, hi = min(a for a, _ in ends), max(b for _, b in ends)
    step = next((s for s in _STEPS if _bin(hi, s) - _bin(lo, s) < FINE), _STEPS[-1])
    first = _bin(lo, step)
    count = _bin(hi, step) - first + 1
    bands = []
    for place, (name, ts) in enumerate(times.items()):
        found = np.bincount(_bins(ts, step) - first, minlength=count).astype(np.int64)
        colour = (css or {}).get(name, f"c{min(place, 5) + 1}")
        bands.append(Band(name, colour, found, name in below))
    return Timeline(title, first * step + _origin(step), step, tuple(bands))


def _origin(step: int) -> int:
    """Where bins begin: weeks on a Monday, all else at midnight 1970."""
    return -_MONDAY * DAY if step >= _WEEK else 0


def _bin(ts: int, step: int) -> int:
    return (ts - _origin(step)) // step


def _bins(ts: I64, step: int) -> I64:
    # Days first: int64 times may lie so close to the ends that nothing can be added to them.
    return (ts // DAY + _MONDAY) // (step // DAY) if step >= _WEEK else ts // step


# --- drawing --------------------------------------------------------------------------------------------

_LEFT, _RIGHT, _TOP, _BOTTOM = 52.0, 12.0, 34.0, 26.0


def _draw(chart: Timeline, width: float, height: float) -> str:
    title = f'<text class="title" x="4" y="16">{escape(clean(chart.title))}</text>'
    if not chart.bands:
        return f'{title}<text x="4" y="44">nothing to count</text>'
    start, step, counts = chart.columns()
    columns = len(next(iter(counts.values())))
    up = np.zeros(columns, np.int64)
    down = np.zeros(columns, np.int64)
    for band in chart.bands:
        side = down if band.below else up
        side += counts[band.name]
    high, low = int(up.max()), int(down.max())
    inner, tall = width - _LEFT - _RIGHT, height - _TOP - _BOTTOM
    scale = tall / max(1, high + low)
    zero = _TOP + high * scale
    parts = [title, *legend([(b.name, b.css) for b in chart.bands], width - _RIGHT, 24)]
    tick = nice((high + low) / 4)
    for value in range(-(low // tick) * tick, high + 1, tick):
        y = zero - value * scale
        parts.append(f'<path class="grid" d="M{_LEFT:g} {y:.1f}h{inner:g}"/>')
        parts.append(f'<text x="{_LEFT - 6:g}" y="{y + 4:.1f}" text-anchor="end">{short(abs(value))}</text>')
    each = inner / columns
    up[:] = down[:] = 0
    for band in chart.bands:
        side = down if band.below else up
        path = []
        for n in np.flatnonzero(counts[band.name]).tolist():
            size = counts[band.name][n] * scale
            y = zero + side[n] * scale if band.below else zero - side[n] * scale - size
            path.append(f"M{_LEFT + n * each + each * 0.08:.2f} {y:.2f}h{each * 0.84:.2f}v{size:.2f}h-{each * 0.84:.2f}z")  # fmt: skip
        side += counts[band.name]
        parts.append(f'<path class="{band.css}" d="{"".join(path)}"/>')
    parts.append(f'<path class="base" d="M{_LEFT:g} {zero:.1f}h{inner:g}"/>')
    parts += _times(start, step, columns, each, height)
    for n in range(columns):
        values = ", ".join(f"{b.name} {counts[b.name][n]:,}" for b in chart.bands)
        parts.append(
            f'<rect class="hit" x="{_LEFT + n * each:.2f}" y="{_TOP:g}" width="{each:.2f}" height="{tall:g}">'
            f"<title>{escape(clean(f'{moment(start + n * step)} UTC: {values}'))}</title></rect>"
        )
    return "".join(parts)


def _times(start: int, step: int, columns: int, each: float, height: float) -> list[str]:
    parts = []
    every = max(1, -(-columns // max(1, int(columns * each / 96))))
    for n in range(0, columns, every):
        if n and (columns - n) * each < 60:
            break  # it would stand over the edge
        text = moment(start + n * step)
        text = text[:10] if step >= DAY else text[5:16] if step >= MINUTE else text[11:]
        parts.append(f'<text x="{_LEFT + n * each:.1f}" y="{height - 8:g}">{text}</text>')
    return parts


def nice(wish: float) -> int:
    """The smallest of 1, 2, 5, 10, 20, ... that is not below the wish."""
    power = 1
    while True:
        for digit in (1, 2, 5):
            if digit * power >= wish:
                return digit * power
        power *= 10


def short(value: int) -> str:
    """A count in little room: `12k`, `1.5M`."""
    for unit, name in ((10**9, "G"), (10**6, "M"), (10**4, "k")):
        if value >= unit:
            unit = min(unit, 1_000) if name == "k" else unit
            return f"{value / unit:g}{name}" if value % (unit // 10) == 0 else f"{value / unit:.1f}{name}"
    return f"{value:,}"
