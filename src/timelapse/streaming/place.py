"""Where a live run is: files that are written once, and names that only one process gets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

from timelapse.store.place import FolderPlace as LocalPlace

__all__ = ["LocalPlace", "RunPlace"]


class RunPlace(Protocol):
    """What the protocol asks of a store: less than every place promises (store/place.py), so that a simulator is short."""

    def create(self, name: str, data: bytes) -> None:
        """Put a file where there is none, durably. Raises FileExistsError for who comes second; after any other error
        the file may be there or not."""

    def read(self, name: str) -> bytes:
        """Raises FileNotFoundError."""

    def pieces(self, name: str, start: int = 0) -> Iterator[bytes]:
        """A file from a byte on, piece by piece. Raises FileNotFoundError."""

    def remove(self, names: Iterable[str]) -> None:
        """Remove files. Those that are not there count as removed."""

    def exists(self, name: str) -> bool: ...
    def hint(self, name: str, data: bytes) -> None:
        """Write a small file over what is there. It may get lost, and nothing may depend on it."""

    def names(self, folder: str) -> Iterator[str]:
        """The names in a folder, sorted; none where it does not exist."""
