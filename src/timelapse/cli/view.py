"""Numbers, times, spans (see display.py) and small charts of characters."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import ceil

from timelapse.display import date, moment, rate, share, size, span, took

__all__ = ["bar", "date", "moment", "rate", "share", "size", "span", "sparkline", "took"]

_BARS = "▁▂▃▄▅▆▇█"


def sparkline(values: Sequence[float], width: int = 62, low: float = 0.0) -> str:
    """One character per value, from `low` (where nothing shows) to the largest; of long series the means of groups."""
    if len(values) > width:
        edges = [len(values) * i // width for i in range(width + 1)]
        values = [sum(values[a:b]) / (b - a) for a, b in pairwise(edges)]
    top = max(values, default=0)
    if top <= low:
        return " " * len(values)
    return "".join(" " if v <= low else _BARS[min(7, ceil((v - low) / (top - low) * 8) - 1)] for v in values)


def bar(value: float, top: float, width: int = 40) -> str:
    """A horizontal bar in eighths of a character; something that is not zero shows."""
    if value <= 0 or top <= 0:
        return ""
    eighths = max(1, round(value / top * width * 8))
    return "█" * (eighths // 8) + ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")[eighths % 8]
