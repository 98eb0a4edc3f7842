"""Where a log may be written, and by whom."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from timelapse.errors import LogError, Place
from timelapse.log.manifest import NAME
from timelapse.store import folders
from timelapse.store.places import absolute_path


def as_path(path: str | Path) -> Path:
    """A log's place as a path. Raises StorageError (TL930) for a place that is not understood."""
    return absolute_path(path, "log")


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


def whole_folder(path: Path, *, overwrite: bool) -> AbstractContextManager[Path]:
    """A temporary folder beside `path` that takes its place when the block ends well, and is removed otherwise."""

    def refused(why: str) -> LogError:
        return LogError(
            f"the log cannot be written here: {why}", place=Place(str(path)), code="TL401",
            hint="choose another folder, or change its parent's permissions",
        )  # fmt: skip

    return folders.whole_folder(path, lambda: check_free(path, overwrite=overwrite), refused)


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
