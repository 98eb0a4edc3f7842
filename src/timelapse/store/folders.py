"""Folders that appear whole or not at all, made by one process at a time."""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

from timelapse.errors import Place, StorageError
from timelapse.store.failures import no_space
from timelapse.store.parts import sync
from timelapse.store.scratch import is_dead, owner, sweep

_AT_FDCWD = -100
_EXCHANGE = 2
_MARK = ".partial-"
"""What names a folder in the making: then its owner and a random part."""
_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL)


class NewFolder:
    """A folder in the making, beside the place where it is to be.

    `path` is where it is made. `check` raises an error where what is at `place` must not be replaced; it is called at
    the beginning and before the end. `refused` makes the error for a place where nothing can be written. From the
    beginning to the end nobody else makes a folder there: who tries is told so at once (StorageError, TL933). Where
    there are no locks that shows at the end. What killed processes left beside the place is removed first, but for `spared`.
    """

    def __init__(
        self, place: Path, check: Callable[[], None], refused: Callable[[str], Exception], *, lasting: bool = True,
        spared: Path | None = None,
    ) -> None:  # fmt: skip
        self.place, self._check, self._lasting = place, check, lasting
        check()
        sweep()
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            self._lock = _lock(place)
            try:
                remove_abandoned(place, spared)
                self._before = _identity(place)
                self.path = partial_path(place)
                self.path.mkdir()
            except BaseException:
                self._unlock()
                raise
        except OSError as error:
            raise no_space(error, place) or refused(error.strerror or str(error)) from None

    def publish(self) -> None:
        """Put it in its place. Raises StorageError (TL933) where somebody else has put something there meanwhile."""
        if self._lasting:
            sync(self.path)
        self._check()
        if _identity(self.place) != self._before:
            raise _second(self.place, "another was put here meanwhile")
        try:
            _put(self.path, self.place)
        except OSError as error:
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
                raise _second(self.place, "another was put here meanwhile") from None
            raise
        if self._lasting:
            sync(self.place.parent)
        shutil.rmtree(self.path, ignore_errors=True)  # what was there before
        self.close()

    def discard(self) -> bool:
        """Remove what was made. Returns whether nothing is left of it: a cancelled task may still write."""
        shutil.rmtree(self.path, ignore_errors=True)
        return not self.path.exists()

    def close(self) -> None:
        """Let others make a folder here."""
        self._unlock()

    def _unlock(self) -> None:
        handle, self._lock = self._lock, None
        if handle is not None:
            _lock_path(self.place).unlink(missing_ok=True)
            os.close(handle)


@contextmanager
def whole_folder(
    place: Path, check: Callable[[], None], refused: Callable[[str], Exception]
) -> Iterator[Path]:
    """A folder that takes its place when the block ends well, and is removed otherwise: see NewFolder."""
    made = NewFolder(place, check, refused)
    try:
        yield made.path
        made.publish()
    finally:
        made.discard()
        made.close()


# --- one at a time --------------------------------------------------------------------------------------------


def _lock_path(place: Path) -> Path:
    return place.parent / f".{place.name}.lock"


def _lock(place: Path) -> int | None:
    """Hold a place. The system lets go of it when the process ends, however that is. None: there are no locks here."""
    path = _lock_path(place)
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
            raise _second(
                place, f"process {who} is writing here" if who.isdecimal() else "another process is writing here"
            ) from None  # fmt: skip
        except OSError as error:
            os.close(handle)
            if error.errno in _NO_LOCKS:
                path.unlink(missing_ok=True)
                return None
            raise


def _same_file(handle: int, path: Path) -> bool:
    try:
        there = path.stat()
    except FileNotFoundError:
        return False
    held = os.fstat(handle)
    return (held.st_dev, held.st_ino) == (there.st_dev, there.st_ino)


def _second(place: Path, what: str) -> StorageError:
    return StorageError(
        what, place=Place(str(place)), code="TL933",
        hint="wait for the other to end, or choose another place with --out",
    )  # fmt: skip


def _identity(place: Path) -> tuple[int, int] | None:
    """Which folder is at a place: None for none, or one that is empty."""
    try:
        if not any(place.iterdir()):
            return None
        found = place.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_dev, found.st_ino


# --- names, and what is left of them --------------------------------------------------------------------------


def partial_path(place: Path) -> Path:
    """A name beside a place for what is to take it: it says which process makes it."""
    return place.parent / f".{place.name}{_MARK}{owner()}-{uuid4().hex[:8]}"


def is_partial(path: Path) -> bool:
    """Whether something has such a name."""
    return path.name.startswith(".") and _MARK in path.name


def remove_abandoned(place: Path, spared: Path | None = None) -> None:
    """Remove what killed processes that were making `place` left, when they are gone from this machine; but not `spared`."""
    start = f".{place.name}{_MARK}"
    for left in [p for p in place.parent.iterdir() if p.name.startswith(start)]:
        if left.name.endswith("-old"):
            # A kill between the two renames of an overwrite: put back what was there.
            if place.exists():
                shutil.rmtree(left, ignore_errors=True)
            else:
                left.rename(place)
        elif left != spared and _is_abandoned(left, start):
            shutil.rmtree(left, ignore_errors=True)


def abandoned(place: Path) -> list[Path]:
    """The folders in which killed processes of this machine were making `place`."""
    start = f".{place.name}{_MARK}"
    if not place.parent.is_dir():
        return []
    there = sorted(p for p in place.parent.iterdir() if p.name.startswith(start))
    return [p for p in there if not p.name.endswith("-old") and _is_abandoned(p, start)]


def _is_abandoned(left: Path, start: str) -> bool:
    return is_dead(left.name.removeprefix(start).rpartition("-")[0])


def place_of(partial: Path) -> Path:
    """The place that a folder in the making is to take."""
    return partial.with_name(partial.name[1:].partition(_MARK)[0])


def _put(made: Path, place: Path) -> None:
    """Rename into place; what is there changes places with the new one, in one step where the system can."""
    if not place.exists() or not any(place.iterdir()):
        made.rename(place)  # an empty folder is replaced
    elif not _exchange(made, place):
        aside = place.parent / f".{place.name}{_MARK}{uuid4().hex[:12]}-old"
        place.rename(aside)
        made.rename(place)
        shutil.rmtree(aside, ignore_errors=True)


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
