"""The report: a run or a diff as one HTML file."""

from timelapse.reporting.page import Report, report

__all__ = ["Report", "report"]
