"""Figures as self-contained SVG, made without a plotting library: small, crisp in print, light and dark."""

from timelapse.charts.figure import Figure
from timelapse.charts.timeline import Band, Timeline, timeline

__all__ = ["Band", "Figure", "Timeline", "timeline"]
