"""What may be wrong with a program, with its log, or with both together: `tl.check`."""

from timelapse.checks.check import Check, Finding, check

__all__ = ["Check", "Finding", "check"]
