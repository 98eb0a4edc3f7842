"""Where what is durable lies: one interface for folders, memory and object stores. It has no rename.

A name is `/`-separated and relative: `commits/00000001`. What is put under a name stays as it is; only hints are written over.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple, Protocol

from timelapse.store.parts import sync, write_part


class Stored(NamedTuple):
    """A file of a place: its name and its bytes."""

    name: str
    bytes: int


class Place(Protocol):
    """What is asked of a store. All of it may be called from several threads, and by several processes at once.

    Where a store is away, `OSError` or `StorageError` (TL935 to TL938) is raised, after trying again for a while where that may help.
    """

    def create(self, name: str, data: bytes) -> None:
        """Put a file where there is none, durably: put-if-absent. Raises FileExistsError for who comes second. After any other error the file
        may be there or not, and an answer that comes late can make a success look like FileExistsError: ask what is there."""

    def upload(self, name: str, path: Path) -> None:
        """Put a local file under a name that is the caller's alone, such as one with a random part. It is there whole or not at all.
        What is there already is what an earlier try has put."""

    def read(self, name: str) -> bytes:
        """All of a file. Raises FileNotFoundError."""

    def pieces(self, name: str, start: int = 0) -> Iterator[bytes]:
        """A file from a byte on, piece by piece. Raises FileNotFoundError."""

    def exists(self, name: str) -> bool: ...

    def hint(self, name: str, data: bytes) -> None:
        """Write a small file over what is there. It may get lost, and nothing may depend on it."""

    def rewrite(self, name: str, data: bytes) -> None:
        """Write a small file over what is there, durably. Of two writers at once either's may stay."""

    def names(self, folder: str) -> Iterator[str]:
        """The names in a folder, sorted; none where it does not exist."""

    def files(self, folder: str = "") -> Iterator[Stored]:
        """All files below a folder, in no order."""

    def remove(self, names: Iterable[str]) -> None:
        """Remove files. Those that are not there count as removed."""


_PIECE = 4 << 20


class FolderPlace:
    """A folder of a file system that has links and `fsync`."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def create(self, name: str, data: bytes) -> None:
        path = self._ready(name)
        write_part(path, data, lasting=True, new=True)
        sync(path.parent)

    def upload(self, name: str, path: Path) -> None:
        from timelapse.store.parts import PartWriter

        target = self._ready(name)
        with PartWriter(target, lasting=True) as out, open(path, "rb") as source:
            while piece := source.read(_PIECE):
                out.write(piece)
        sync(target.parent)

    def _ready(self, name: str) -> Path:
        """A file's path, whose folder is there."""
        path = self.root / name
        if not path.parent.is_dir():
            path.parent.mkdir(parents=True, exist_ok=True)
            sync(path.parent.parent)
        return path

    def read(self, name: str) -> bytes:
        return (self.root / name).read_bytes()

    def pieces(self, name: str, start: int = 0) -> Iterator[bytes]:
        with open(self.root / name, "rb") as file:
            file.seek(start)
            while piece := file.read(_PIECE):
                yield piece

    def exists(self, name: str) -> bool:
        return (self.root / name).exists()

    def hint(self, name: str, data: bytes) -> None:
        write_part(self._ready(name), data)

    def rewrite(self, name: str, data: bytes) -> None:
        path = self._ready(name)
        write_part(path, data, lasting=True)
        sync(path.parent)

    def names(self, folder: str) -> Iterator[str]:
        try:
            found = sorted(e.name for e in os.scandir(self.root / folder) if not e.name.startswith("."))
        except FileNotFoundError:
            return iter(())
        return iter(found)

    def files(self, folder: str = "") -> Iterator[Stored]:
        for path in (self.root / folder).rglob("*"):
            if path.is_file() and not path.name.startswith("."):
                yield Stored(path.relative_to(self.root).as_posix(), path.stat().st_size)

    def remove(self, names: Iterable[str]) -> None:
        for name in names:
            path = self.root / name
            path.unlink(missing_ok=True)
            for folder in path.relative_to(self.root).parents:
                if str(folder) == "." or not _remove_empty(self.root / folder):
                    break

    def __str__(self) -> str:
        return str(self.root)


def _remove_empty(folder: Path) -> bool:
    try:
        folder.rmdir()
    except OSError:
        return False
    return True


class MemoryPlace:
    """A place in this process, for tests and simulation."""

    def __init__(self, name: str = "memory") -> None:
        self._name = name
        self._held: dict[str, bytes] = {}
        self._lock = threading.Lock()

    def create(self, name: str, data: bytes) -> None:
        with self._lock:
            if name in self._held:
                raise FileExistsError(name)
            self._held[name] = bytes(data)

    def upload(self, name: str, path: Path) -> None:
        data = path.read_bytes()
        with self._lock:
            self._held[name] = data

    def read(self, name: str) -> bytes:
        try:
            return self._held[name]
        except KeyError:
            raise FileNotFoundError(name) from None

    def pieces(self, name: str, start: int = 0) -> Iterator[bytes]:
        data = self.read(name)
        for at in range(start, len(data), _PIECE):
            yield data[at : at + _PIECE]

    def exists(self, name: str) -> bool:
        return name in self._held

    def hint(self, name: str, data: bytes) -> None:
        with self._lock:
            self._held[name] = bytes(data)

    rewrite = hint

    def names(self, folder: str) -> Iterator[str]:
        start = f"{folder}/" if folder else ""
        with self._lock:
            held = list(self._held)
        return iter(sorted({n[len(start) :].partition("/")[0] for n in held if n.startswith(start)}))

    def files(self, folder: str = "") -> Iterator[Stored]:
        start = f"{folder}/" if folder else ""
        with self._lock:
            held = dict(self._held)
        return iter([Stored(n, len(data)) for n, data in held.items() if n.startswith(start)])

    def remove(self, names: Iterable[str]) -> None:
        with self._lock:
            for name in names:
                self._held.pop(name, None)

    def __str__(self) -> str:
        return self._name
