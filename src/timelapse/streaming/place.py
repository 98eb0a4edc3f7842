"""Where a live run is: files that are written once, and names that only one process gets."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from timelapse.store.parts import sync, write_part


class RunPlace(Protocol):
    """What the protocol asks of a store. Every name is written once, but for hints."""

    def create(self, name: str, data: bytes) -> None:
        """Put a file where there is none, durably. Raises FileExistsError for who comes second; after any other error
        the file may be there or not."""

    def read(self, name: str) -> bytes:
        """Raises FileNotFoundError."""

    def exists(self, name: str) -> bool: ...
    def hint(self, name: str, data: bytes) -> None:
        """Write a small file over what is there. It may get lost, and nothing may depend on it."""

    def names(self, folder: str) -> Iterator[str]:
        """The names in a folder, sorted; none where it does not exist."""


class LocalPlace:
    """A folder of a file system that has links and `fsync`."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def create(self, name: str, data: bytes) -> None:
        path = self.root / name
        if not path.parent.is_dir():
            path.parent.mkdir(parents=True, exist_ok=True)
            sync(path.parent.parent)
        write_part(path, data, lasting=True, new=True)
        sync(path.parent)

    def read(self, name: str) -> bytes:
        return (self.root / name).read_bytes()

    def exists(self, name: str) -> bool:
        return (self.root / name).exists()

    def hint(self, name: str, data: bytes) -> None:
        write_part(self.root / name, data)

    def names(self, folder: str) -> Iterator[str]:
        try:
            found = sorted(e.name for e in os.scandir(self.root / folder) if not e.name.startswith("."))
        except FileNotFoundError:
            return iter(())
        return iter(found)

    def __str__(self) -> str:
        return str(self.root)
