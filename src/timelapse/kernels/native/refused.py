"""The refusal of what is not compiled."""

from __future__ import annotations


class Refused(Exception):
    """The pass is not compiled: the reason, and the line of the user's file (0: unknown)."""

    def __init__(self, reason: str, line: int = 0, file: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.line = line
        self.file = file


class ReadsAll(Refused):
    """An operation that reads every key of a state."""
