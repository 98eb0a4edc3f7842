"""The operations by which a driver publishes, and finds what others left: an interface, so that tests can have them fail at any of them.

`LocalDisk` is a file system of this machine, or one that it mounts. What tasks write, they write by themselves
(store/parts.py); here is what decides whether any of it counts.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import shutil
import uuid
from pathlib import Path
from typing import Protocol

from timelapse.errors import StorageError
from timelapse.store.parts import CheckedFile, Part, part_at, sync, write_part
from timelapse.store.scratch import is_dead, owner

_AT_FDCWD = -100
_EXCHANGE = 2
_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL)


class Held(Exception):
    """Somebody else holds a place. The text says who, if that is known."""


class Disk(Protocol):
    """A file system as a driver uses it. Methods raise OSError as the system does, where nothing else is said."""

    def owner(self) -> str:
        """This process, as part of a file's name (store/scratch.py)."""

    def unique(self) -> str:
        """A part of a file's name that nobody else uses."""

    def is_dead(self, owner: str) -> bool:
        """Whether a process is gone for certain."""

    def hold(self, path: Path) -> int | None:
        """Hold a lock file, which the system lets go of when the process ends. None: there are no locks here. Raises Held."""

    def let_go(self, path: Path, handle: int) -> None:
        """Let go of it."""

    def make(self, folder: Path) -> None:
        """Make a folder. Raises FileExistsError."""

    def make_all(self, folder: Path) -> None:
        """Make a folder, and those above it, where there is none."""

    def names(self, folder: Path) -> list[str]:
        """What is in a folder, sorted; nothing, where there is no such folder."""

    def files(self, folder: Path) -> list[str]:
        """The files in a folder and those below it, by their paths in it, sorted; nothing, where there is no such folder."""

    def folders(self, folder: Path) -> list[str]:
        """The folders below one, by their paths in it, sorted."""

    def is_file(self, path: Path) -> bool:
        """Whether there is a file."""

    def exists(self, path: Path) -> bool:
        """Whether there is anything."""

    def identity(self, folder: Path) -> tuple[int, int] | None:
        """Which folder is at a path: None for none, or one that is empty."""

    def read(self, path: Path) -> bytes:
        """A small file."""

    def write(self, path: Path, data: bytes, *, lasting: bool = False, new: bool = False) -> Part:
        """Write a small file, whole or not at all. Raises FileExistsError where it is to be `new` and something is there."""

    def part(self, path: Path) -> Part:
        """Size and checksums of a file as it is now."""

    def size(self, path: Path) -> int:
        """A file's bytes."""

    def is_sound(self, path: Path, part: Part) -> bool:
        """Whether a file is there and what was written."""

    def move(self, old: Path, new: Path) -> None:
        """Rename a file or a folder, in one step. A file, or an empty folder, at `new` is replaced."""

    def swap(self, a: Path, b: Path) -> bool:
        """Have two folders change places, in one step. False where the system cannot."""

    def remove(self, path: Path) -> None:
        """Remove a file or a folder with all that is in it, as far as that can be done."""

    def sync(self, path: Path) -> None:
        """Make a file or a folder's entries durable."""


class LocalDisk:
    """The file systems of this machine."""

    def owner(self) -> str:
        return owner()

    def unique(self) -> str:
        return uuid.uuid4().hex[:8]

    def is_dead(self, owner: str) -> bool:
        return is_dead(owner)

    def hold(self, path: Path) -> int | None:
        while True:
            handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if _same_file(handle, path):
                    os.ftruncate(handle, 0)
                    os.write(handle, str(os.getpid()).encode())
                    return handle
                os.close(handle)  # whoever had it has just removed it
            except BlockingIOError:
                who = os.read(handle, 20).decode(errors="replace")
                os.close(handle)
                raise Held(f"process {who}" if who.isdecimal() else "another process") from None
            except OSError as error:
                os.close(handle)
                if error.errno in _NO_LOCKS:
                    path.unlink(missing_ok=True)
                    return None
                raise

    def let_go(self, path: Path, handle: int) -> None:
        path.unlink(missing_ok=True)
        os.close(handle)

    def make(self, folder: Path) -> None:
        folder.mkdir()

    def make_all(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)

    def names(self, folder: Path) -> list[str]:
        try:
            return sorted(os.listdir(folder))
        except (FileNotFoundError, NotADirectoryError):
            return []

    def files(self, folder: Path) -> list[str]:
        return sorted(_walked(folder, "", files=True))

    def folders(self, folder: Path) -> list[str]:
        return sorted(_walked(folder, "", files=False))

    def is_file(self, path: Path) -> bool:
        return path.is_file()

    def exists(self, path: Path) -> bool:
        return path.exists()

    def identity(self, folder: Path) -> tuple[int, int] | None:
        try:
            with os.scandir(folder) as entries:
                if next(entries, None) is None:
                    return None
            found = folder.stat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        return found.st_dev, found.st_ino

    def read(self, path: Path) -> bytes:
        return path.read_bytes()

    def write(self, path: Path, data: bytes, *, lasting: bool = False, new: bool = False) -> Part:
        return write_part(path, data, lasting=lasting, new=new)

    def part(self, path: Path) -> Part:
        return part_at(path)

    def size(self, path: Path) -> int:
        return path.stat().st_size

    def is_sound(self, path: Path, part: Part) -> bool:
        try:
            CheckedFile(path, part, "").need()
        except (OSError, StorageError):
            return False
        return True

    def move(self, old: Path, new: Path) -> None:
        os.replace(old, new)

    def swap(self, a: Path, b: Path) -> bool:
        return _exchange(a, b)

    def remove(self, path: Path) -> None:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)

    def sync(self, path: Path) -> None:
        sync(path)


DISK = LocalDisk()


def _walked(folder: Path, above: str, *, files: bool) -> list[str]:
    """Paths below a folder. What vanishes meanwhile is not there."""
    found: list[str] = []
    try:
        with os.scandir(folder) as there:
            entries = list(there)
    except (FileNotFoundError, NotADirectoryError):
        return found
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            found += [] if files else [above + entry.name]
            found += _walked(Path(entry.path), f"{above}{entry.name}/", files=files)
        elif files:
            found.append(above + entry.name)
    return found


def _same_file(handle: int, path: Path) -> bool:
    try:
        there = path.stat()
    except FileNotFoundError:
        return False
    held = os.fstat(handle)
    return (held.st_dev, held.st_ino) == (there.st_dev, there.st_ino)


def _exchange(a: Path, b: Path) -> bool:
    """Swap two paths atomically; False where the system cannot."""
    try:
        swap = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError):
        return False
    if swap(_AT_FDCWD, os.fsencode(a), _AT_FDCWD, os.fsencode(b), _EXCHANGE) == 0:
        return True
    error = ctypes.get_errno()
    if error in (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP):
        return False
    raise OSError(error, os.strerror(error), str(b))
