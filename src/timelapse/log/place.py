"""Folders that appear whole or not at all."""

from __future__ import annotations

import atexit
import ctypes
import errno
import fcntl
import hashlib
import os
import shutil
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

from timelapse.errors import LogError, Place
from timelapse.log.manifest import NAME, sync_folder

_AT_FDCWD = -100
_EXCHANGE = 2
_MARK = ".partial-"
"""What names a folder in the making: then the host, the process and a random part."""


def as_path(path: str | Path) -> Path:
    """A local path. Raises LogError for other schemes: a log lies on a file system that all workers see."""
    text = str(path)
    if text.startswith("file:"):
        text = text.removeprefix("file://").removeprefix("file:")
    elif "://" in text:
        raise LogError(
            f"a log cannot be stored at {text}", code="TL401",
            hint="give a folder on a file system that the driver and all workers mount",
        )  # fmt: skip
    return Path(text).expanduser().absolute()


def process_folder() -> Path:
    """A new folder that is removed when this process ends."""
    folder = Path(tempfile.mkdtemp(prefix="timelapse-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def check_free(path: Path, *, overwrite: bool) -> None:
    """Raises LogError when something is at `path` that must not be replaced."""
    if not path.exists() or (path.is_dir() and not any(path.iterdir())):
        return
    if not (path / NAME).is_file():
        raise LogError(
            "there is something here that is not a log", place=Place(str(path)), code="TL401",
            hint="choose another path, or remove it yourself",
        )  # fmt: skip
    if not overwrite:
        raise LogError(
            "there is a log here already", place=Place(str(path)), code="TL401",
            hint="overwrite=True (--overwrite) replaces it; append (--append) adds later events",
        )  # fmt: skip


@contextmanager
def whole_folder(path: Path, *, overwrite: bool) -> Iterator[Path]:
    """A temporary folder beside `path` that takes its place when the block ends well, and is removed otherwise.

    What a killed process left beside `path` is removed first.
    """
    check_free(path, overwrite=overwrite)
    temporary = partial_path(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        remove_abandoned(path)
        temporary.mkdir()
    except OSError as error:
        raise LogError(
            f"the log cannot be written here: {error.strerror}", place=Place(str(path)), code="TL401",
            hint="choose another folder, or change its parent's permissions",
        ) from None  # fmt: skip
    try:
        yield temporary
        check_free(path, overwrite=overwrite)
        _put(temporary, path)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def partial_path(path: Path) -> Path:
    """A name beside `path` for what is to take its place: it says which process makes it."""
    return path.parent / f".{path.name}{_MARK}{_host()}-{os.getpid()}-{uuid4().hex[:8]}"


def aside_path(path: Path) -> Path:
    """A name beside `path` for what is there, while something else takes its place."""
    return path.parent / f".{path.name}{_MARK}{uuid4().hex[:12]}-old"


def remove_abandoned(path: Path) -> None:
    """Remove what killed processes that were making `path` left, when they are gone from this machine."""
    start = f".{path.name}{_MARK}"
    for left in [p for p in path.parent.iterdir() if p.name.startswith(start)]:
        if left.name.endswith("-old"):
            # A kill between the two renames of an overwrite: put back what was there.
            if path.exists():
                shutil.rmtree(left, ignore_errors=True)
            else:
                left.rename(path)
            continue
        host, _, rest = left.name.removeprefix(start).partition("-")
        pid = rest.partition("-")[0]
        if host == _host() and pid.isdigit() and not _alive(int(pid)):
            shutil.rmtree(left, ignore_errors=True)


def _host() -> str:
    """This machine; in a container its own processes only, for those are all that `_alive` sees."""
    try:
        space = str(os.stat("/proc/self/ns/pid").st_ino)
    except OSError:
        space = ""
    return hashlib.sha256(f"{socket.gethostname()} {space}".encode()).hexdigest()[:8]


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True


def _put(temporary: Path, path: Path) -> None:
    """Rename into place; a log that is there changes places with the new one in one step where the system can."""
    if path.exists() and any(path.iterdir()):
        if not _exchange(temporary, path):
            aside = aside_path(path)
            path.rename(aside)
            temporary.rename(path)
            shutil.rmtree(aside, ignore_errors=True)
    else:
        temporary.rename(path)  # an empty folder is replaced
    sync_folder(path.parent)


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


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """One append at a time. Raises LogError at once when another is running."""
    handle = os.open(path / ".lock", os.O_RDWR | os.O_CREAT, 0o666)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise LogError(
                "another append to this log is running", place=Place(str(path)), code="TL406",
                hint="wait for it to end",
            ) from None  # fmt: skip
        yield
    finally:
        os.close(handle)
