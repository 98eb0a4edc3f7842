"""The report: a run, a diff or a sweep as one HTML file."""

from timelapse.reporting.page import Report, report

__all__ = ["Report", "report"]
