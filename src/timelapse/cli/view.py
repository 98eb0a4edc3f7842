"""Numbers, times, spans (see display.py) and small charts of characters."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from math import ceil
from typing import TYPE_CHECKING

from timelapse.display import date, moment, rate, share, size, span, took

if TYPE_CHECKING:
    from timelapse.segments.manifest import SourceEntry

__all__ = ["bar", "date", "moment", "rate", "share", "size", "skipped_as", "span", "sparkline", "took"]


def skipped_as(sources: Iterable[SourceEntry]) -> str:
    """What rows are that sources skipped: `empty lines`, with what else counts as such in their formats."""
    own = [one for one in sources if one.skipped]
    found = ["empty lines"]
    if any("regex" in one.source for one in own):
        found.append("lines that --regex does not match")
    if any("[]" in str(one.source.get("fields", "")) + str(one.source.get("ts", "")) for one in own):
        found.append("objects without items")
    return found[0] if len(found) == 1 else f"{', '.join(found[:-1])} or {found[-1]}"


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
