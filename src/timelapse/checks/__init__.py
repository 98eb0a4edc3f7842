"""What may be wrong with a program, with its log, or with both together: `tl.check`."""

from timelapse.checks.driver import check
from timelapse.checks.findings import Check, Finding

__all__ = ["Check", "Finding", "check"]
