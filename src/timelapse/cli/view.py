"""Numbers, times, spans and small charts as people read them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import pairwise
from math import ceil

from timelapse.ids import DAY, HOUR, MINUTE, SECOND

_BARS = "▁▂▃▄▅▆▇█"


def moment(ts: int) -> str:
    """Microseconds since 1970 as `2026-10-01 00:14:07` (UTC)."""
    try:
        return datetime.fromtimestamp(ts // SECOND, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, ValueError, OSError):
        return f"{ts} us"


def date(day: int) -> str:
    """Days since 1970 as `2026-10-01`."""
    return moment(day * DAY)[:10]


def span(micros: int) -> str:
    """A length of time in its largest fitting unit: `31.0 days`."""
    for unit, name in ((DAY, "days"), (HOUR, "hours"), (MINUTE, "minutes")):
        if micros >= 2 * unit:
            return f"{micros / unit:,.1f} {name}"
    return f"{micros / SECOND:,.1f} s"


def took(seconds: float) -> str:
    """A duration of work: `0.42 s`, `1m52s`."""
    if seconds < 10:
        return f"{seconds:.2f} s"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}h{minutes % 60:02d}m" if minutes >= 60 else f"{minutes}m{rest:02d}s"


def size(count: float) -> str:
    """Bytes in decimal units."""
    for unit in ("bytes", "kB", "MB", "GB", "TB"):
        if count < 1000:
            return f"{count:,.0f} {unit}" if unit == "bytes" or count >= 100 else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:,.1f} PB"


def rate(events: int, seconds: float) -> str:
    """Events per second: `5.4 M events/s`."""
    each = events / seconds if seconds > 0 else 0.0
    if each >= 1e6:
        return f"{each / 1e6:.1f} M events/s"
    return f"{each / 1e3:.0f} k events/s" if each >= 1e4 else f"{each:,.0f} events/s"


def sparkline(values: Sequence[float], width: int = 62) -> str:
    """One character per value, scaled from zero to the largest; long series are summed in groups."""
    if len(values) > width:
        edges = [len(values) * i // width for i in range(width + 1)]
        values = [sum(values[a:b]) / (b - a) for a, b in pairwise(edges)]
    top = max(values, default=0)
    if top <= 0:
        return " " * len(values)
    return "".join(" " if v <= 0 else _BARS[min(7, ceil(v / top * 8) - 1)] for v in values)


def bar(value: float, top: float, width: int = 40) -> str:
    """A horizontal bar in eighths of a character; something that is not zero shows."""
    if value <= 0 or top <= 0:
        return ""
    eighths = max(1, round(value / top * width * 8))
    return "█" * (eighths // 8) + ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")[eighths % 8]


def share(part: int, whole: int) -> str:
    """A percentage with as many digits as it needs."""
    if whole == 0:
        return "0%"
    percent = 100 * part / whole
    return f"{percent:.1f}%" if percent >= 0.1 or part == 0 else f"{percent:.4f}%"
