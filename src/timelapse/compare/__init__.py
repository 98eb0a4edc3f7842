"""Comparing runs: what another version of a program does differently."""

from timelapse.compare.differences import Diff, RecordDiff, diff

__all__ = ["Diff", "RecordDiff", "diff"]
