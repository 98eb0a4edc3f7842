"""Folders that appear whole or not at all, made by one process at a time."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from timelapse.errors import Place, StorageError
from timelapse.store.disk import DISK, Disk, Held
from timelapse.store.failures import no_space
from timelapse.store.scratch import sweep

_MARK = ".partial-"
"""What names a folder in the making: then its owner and a random part."""
_LEFT = "left"
"""The owner of a folder whose maker gave it up and left it to the next one."""


class NewFolder:
    """A folder in the making, beside the place where it is to be.

    `path` is where it is made. `check` raises an error where what is at `place` must not be replaced; it is called at
    the beginning and before the end. `refused` makes the error for a place where nothing can be written. From the
    beginning to the end nobody else makes a folder there: who tries is told so at once (StorageError, TL933). Where
    there are no locks that shows at the end. What killed processes left beside the place is removed first, but `adopted`
    becomes the folder, with all that is in it.
    """

    def __init__(
        self, place: Path, check: Callable[[], None], refused: Callable[[str], Exception], *, lasting: bool = True,
        adopted: Path | None = None, disk: Disk = DISK,
    ) -> None:  # fmt: skip
        self.place, self._check, self._lasting, self._disk = place, check, lasting, disk
        check()
        sweep()
        try:
            disk.make_all(place.parent)
            self._lock = _lock(place, disk)
            try:
                self.path = partial_path(place, disk)
                if adopted is not None and disk.exists(adopted):
                    disk.move(adopted, self.path)
                else:
                    disk.make(self.path)
                remove_abandoned(place, disk)
                self._before = disk.identity(place)
            except BaseException:
                self._unlock()
                raise
        except OSError as error:
            raise no_space(error, place) or refused(error.strerror or str(error)) from None

    def publish(self) -> None:
        """Put it in its place. Raises StorageError (TL933) where somebody else has put something there meanwhile."""
        if self._lasting:
            self._disk.sync(self.path)
        self._check()
        if self._disk.identity(self.place) != self._before:
            raise _second(self.place, "another was put here meanwhile")
        try:
            _put(self.path, self.place, self._disk)
        except OSError as error:
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
                raise _second(self.place, "another was put here meanwhile") from None
            raise
        if self._lasting:
            self._disk.sync(self.place.parent)
        self._disk.remove(self.path)  # what was there before
        self.close()

    def discard(self) -> bool:
        """Remove what was made. Returns whether nothing is left of it: a cancelled task may still write."""
        self._disk.remove(self.path)
        return not self._disk.exists(self.path)

    def leave(self) -> None:
        """Leave what was made to whoever makes a folder here next (`abandoned`)."""
        left = self.place.parent / f".{self.place.name}{_MARK}{_LEFT}-{self._disk.unique()}"
        self._disk.move(self.path, left)

    def close(self) -> None:
        """Let others make a folder here."""
        self._unlock()

    def _unlock(self) -> None:
        handle, self._lock = self._lock, None
        if handle is not None:
            self._disk.let_go(_lock_path(self.place), handle)


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


@contextmanager
def held(place: Path, disk: Disk = DISK) -> Iterator[None]:
    """Nobody else makes a folder at a place until the block ends. Raises StorageError (TL933) at once where somebody does."""
    disk.make_all(place.parent)
    handle = _lock(place, disk)
    try:
        yield
    finally:
        if handle is not None:
            disk.let_go(_lock_path(place), handle)


def _lock_path(place: Path) -> Path:
    return place.parent / f".{place.name}.lock"


def _lock(place: Path, disk: Disk) -> int | None:
    """Hold a place. The system lets go of it when the process ends, however that is. None: there are no locks here."""
    try:
        return disk.hold(_lock_path(place))
    except Held as who:
        raise _second(place, f"{who} is writing here") from None


def _second(place: Path, what: str) -> StorageError:
    return StorageError(
        what, place=Place(str(place)), code="TL933",
        hint="wait for the other to end, or choose another place with --out",
    )  # fmt: skip


# --- names, and what is left of them --------------------------------------------------------------------------


def partial_path(place: Path, disk: Disk = DISK) -> Path:
    """A name beside a place for what is to take it: it says which process makes it."""
    return place.parent / f".{place.name}{_MARK}{disk.owner()}-{disk.unique()}"


def is_partial(path: Path) -> bool:
    """Whether something has such a name."""
    return path.name.startswith(".") and _MARK in path.name


def remove_abandoned(place: Path, disk: Disk = DISK) -> None:
    """Remove what killed processes that were making `place` left, when they are gone from this machine."""
    for name in _beside(place, disk):
        left = place.parent / name
        if name.endswith("-old"):
            # A kill between the two renames of an overwrite: put back what was there.
            if disk.exists(place):
                disk.remove(left)
            else:
                disk.move(left, place)
        elif _is_abandoned(left, place, disk):
            disk.remove(left)


def abandoned(place: Path, disk: Disk = DISK) -> list[Path]:
    """The folders in which killed processes of this machine were making `place`."""
    there = [place.parent / name for name in _beside(place, disk) if not name.endswith("-old")]
    return [path for path in there if _is_abandoned(path, place, disk)]


def elsewhere(place: Path, disk: Disk = DISK) -> list[Path]:
    """The folders in which processes were making `place` of which this machine cannot tell whether they are gone."""
    there = [place.parent / name for name in _beside(place, disk) if not name.endswith("-old")]
    return [path for path in there if not _is_abandoned(path, place, disk)]


def _beside(place: Path, disk: Disk) -> list[str]:
    start = f".{place.name}{_MARK}"
    return [name for name in disk.names(place.parent) if name.startswith(start)]


def _is_abandoned(left: Path, place: Path, disk: Disk) -> bool:
    who = left.name.removeprefix(f".{place.name}{_MARK}").rpartition("-")[0]
    return who == _LEFT or disk.is_dead(who)


def place_of(partial: Path) -> Path:
    """The place that a folder in the making is to take."""
    return partial.with_name(partial.name[1:].partition(_MARK)[0])


def _put(made: Path, place: Path, disk: Disk) -> None:
    """Rename into place; what is there changes places with the new one, in one step where the system can."""
    if disk.identity(place) is None:
        disk.move(made, place)  # an empty folder is replaced
    elif not disk.swap(made, place):
        aside = place.parent / f".{place.name}{_MARK}{disk.unique()}-old"
        disk.move(place, aside)
        disk.move(made, place)
        disk.remove(aside)
