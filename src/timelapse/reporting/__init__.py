"""The report: a run, a diff or a sweep as one HTML file.

`run_part.py`, `diff_part.py` and `sweep_part.py` gather plain values, cut and redacted (`redact.py`);
`page.py` lays them out with `templates/`.
"""

from timelapse.reporting.page import Report, report

__all__ = ["Report", "report"]
