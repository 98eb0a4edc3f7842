"""Where a live run is: files that are written once, and names that only one process gets."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Protocol

from timelapse.errors import Place as Where
from timelapse.errors import StorageError
from timelapse.store.drafts import workplace
from timelapse.store.place import FolderPlace, Place, Stored
from timelapse.store.places import absolute_path
from timelapse.store.remote import RemotePath, place_path, remote_path
from timelapse.streaming.format import EPOCHS, RUN
from timelapse.streaming.pack import hash_of

_REMEMBERED = 64 << 20
"""Bytes of epochs of an object store that are kept in memory."""


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


class LivePlace(Place, Protocol):
    """A live run's place, and what belongs to the run on this machine."""

    @property
    def path(self) -> Path:
        """As users name it."""

    @property
    def local(self) -> Path:
        """A folder on this machine's disk for what is not part of the run: tokens, and the journal as a log, which is made of the epochs."""

    def below(self, folder: str) -> Place:
        """A folder of it, as a place of its own."""


class LocalPlace(FolderPlace):
    """A folder: all that belongs to the run is in it."""

    @property
    def path(self) -> Path:
        return self.root

    @property
    def local(self) -> Path:
        return self.root

    def below(self, folder: str) -> Place:
        return FolderPlace(self.root / folder)


class ObjectLive:
    """A folder of an object store. Epochs do not change, and are asked for again and again: some are kept in memory."""

    def __init__(self, path: RemotePath) -> None:
        self._path, self._place = path, path.place
        self._kept: OrderedDict[str, bytes] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()
        self._local: Path | None = None

    @property
    def path(self) -> Path:
        return self._path

    @property
    def local(self) -> Path:
        """Another run that was begun at the same URL has another folder. Raises FileNotFoundError where no run has begun."""
        if self._local is None:
            found = workplace(self._path, f"live-{hash_of(self._place.read(RUN))}")
            found.mkdir(mode=0o700, exist_ok=True)
            self._local = found
        return self._local

    def below(self, folder: str) -> Place:
        return remote_path(f"{self}/{folder}").place

    def create(self, name: str, data: bytes) -> None:
        self._place.create(name, data)
        self._keep(name, data)

    def upload(self, name: str, path: Path) -> None:
        self._place.upload(name, path)

    def read(self, name: str) -> bytes:
        with self._lock:
            found = self._kept.get(name)
            if found is not None:
                self._kept.move_to_end(name)
                return found
        found = self._place.read(name)
        self._keep(name, found)
        return found

    def pieces(self, name: str, start: int = 0) -> Iterator[bytes]:
        with self._lock:
            found = self._kept.get(name)
        return self._place.pieces(name, start) if found is None else iter((found[start:],))

    def exists(self, name: str) -> bool:
        return self._place.exists(name)

    def hint(self, name: str, data: bytes) -> None:
        self._place.hint(name, data)

    def rewrite(self, name: str, data: bytes) -> None:
        self._place.rewrite(name, data)

    def names(self, folder: str) -> Iterator[str]:
        return self._place.names(folder)

    def files(self, folder: str = "") -> Iterator[Stored]:
        return self._place.files(folder)

    def remove(self, names: Iterable[str]) -> None:
        self._place.remove(names)

    def _keep(self, name: str, data: bytes) -> None:
        if not name.startswith(f"{EPOCHS}/") or len(data) > _REMEMBERED // 4:
            return
        with self._lock:
            if name not in self._kept:
                self._bytes += len(data)
            self._kept[name] = data
            self._kept.move_to_end(name)
            while self._bytes > _REMEMBERED:
                self._bytes -= len(self._kept.popitem(last=False)[1])

    def __str__(self) -> str:
        return str(self._path)


def live_place(out: str | Path) -> LivePlace:
    """The place of a live run that a user names: a folder, or a URL of an object store.

    Raises StorageError (TL930) for what is neither, and for a URL with a version: live runs have none.
    """
    found = place_path(out, "live run")
    if not isinstance(found, RemotePath):
        return LocalPlace(absolute_path(found, "live run"))
    if found.at(None) != found:
        raise StorageError(
            "a live run has no versions", place=Where(str(out)), code="TL930", hint="give its URL without #"
        )
    return ObjectLive(found)
