"""Where a log may be written, and by whom."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import NamedTuple

from timelapse.errors import LogError, Place
from timelapse.segments.manifest import NAME
from timelapse.store import folders
from timelapse.store.drafts import change, draft
from timelapse.store.remote import RemotePath, place_path


def as_path(path: str | Path) -> Path:
    """A log's place as a path. Raises StorageError (TL930) for a place that is not understood."""
    return place_path(path, "log").expanduser().absolute()


def opened(path: Path) -> Path:
    """The same for a log that is read: in an object store its newest version, which it then stays."""
    return path.at(None).newest() if isinstance(path, RemotePath) else path


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
    """A temporary folder that takes its place at `path` when the block ends well, and is removed otherwise.

    It lies beside `path`, or on this machine's disk where that is in an object store. A log that it replaces is held until then: of an
    append that went on, the new log would have the manifest without the files. Raises LogError (TL406) where somebody changes that log.
    """
    if isinstance(path, RemotePath):
        target = path.at(None)
        return draft(target, lambda: check_free(target, overwrite=overwrite), "log")

    def refused(why: str) -> LogError:
        return LogError(
            f"the log cannot be written here: {why}", place=Place(str(path)), code="TL401",
            hint="choose another folder, or change its parent's permissions",
        )  # fmt: skip

    whole = folders.whole_folder(path, lambda: check_free(path, overwrite=overwrite), refused)
    return _replacing(path, whole) if overwrite and (path / NAME).is_file() else whole


@contextmanager
def _replacing(path: Path, whole: AbstractContextManager[Path]) -> Iterator[Path]:
    with locked(path), whole as folder:
        yield folder


class Changing(NamedTuple):
    """A log that is changed: where it is read, and the folder that takes its new files and its manifest."""

    log: Path
    folder: Path


@contextmanager
def changing(path: Path) -> Iterator[Changing]:
    """One change at a time, from the newest version on. In a folder others wait out (LogError, TL406, at once); in an object store the
    new version is put when the block ends, and who comes second is told then (StorageError, TL933).
    """
    if not isinstance(path, RemotePath):
        with locked(path):
            yield Changing(path, path)
        return
    with change(path, (NAME,), "log") as (log, folder):
        if not (folder / NAME).is_file():
            from timelapse.segments.manifest import read

            read(log)  # says what is wrong
        (folder / "segments").mkdir()
        yield Changing(log, folder)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """One change of a log in a folder at a time. Raises LogError (TL406) at once when another is running."""
    handle = os.open(path / ".lock", os.O_RDWR | os.O_CREAT, 0o666)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # The folder may have been replaced since: then this is the lock of a log that is gone.
            held = os.path.samestat(os.fstat(handle), os.stat(path / ".lock"))
        except OSError:
            held = False
        if not held:
            raise LogError(
                "another process is changing this log", place=Place(str(path)), code="TL406",
                hint="wait for it to end",
            )  # fmt: skip
        yield
    finally:
        os.close(handle)
