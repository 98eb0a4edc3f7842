"""Figures as self-contained SVG, made without a plotting library: small, crisp in print, light and dark.

Begin with `figure.py`. `timeline.py`, `lines.py` and `histogram.py` are the figures, `axis.py` chooses
their marks.
"""

from timelapse.charts.figure import Figure
from timelapse.charts.timeline import Band, Timeline, timeline

__all__ = ["Band", "Figure", "Timeline", "timeline"]
