"""How a job tells what it is doing. The engine reports; whoever shows it (the command line) listens."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Listener for a job's progress. Calls may come from any thread and must return quickly."""

    def stage(self, name: str, total: int) -> None:
        """A stage begins; `total` is its number of events (0: not known)."""

    def advance(self, name: str, done: int, total: int) -> None:
        """So many events of the stage are done."""

    def finish(self, name: str, seconds: float) -> None:
        """The stage is complete."""

    def note(self, text: str) -> None:
        """Something worth a line."""


class Silent:
    """Listens and does nothing."""

    def stage(self, name: str, total: int) -> None:
        """Ignored."""

    def advance(self, name: str, done: int, total: int) -> None:
        """Ignored."""

    def finish(self, name: str, seconds: float) -> None:
        """Ignored."""

    def note(self, text: str) -> None:
        """Ignored."""
