"""A run's directory appears whole or not at all: it is made beside its place and renamed into it. One for an object store is made on this
machine's disk, and put there as one version of its place.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from timelapse.engine.checked import AGAIN
from timelapse.errors import Place, ReplayError, SetupError
from timelapse.store import commits
from timelapse.store.disk import DISK, Disk
from timelapse.store.drafts import put, workplace
from timelapse.store.failures import file_in_the_way, no_space
from timelapse.store.folders import NewFolder, held, partial_path
from timelapse.store.parts import Part, altered
from timelapse.store.remote import RemotePath

_DISCARD_TRIES, _DISCARD_PAUSE = 50, 0.1
SCRATCH = "scratch"
"""In a run that is being made: what only the making needs."""


class PartialRun:
    """A directory in which a run is made, by one replay at a time (store/folders.py): beside `out`, or, where that is in an object store, on this
    machine's disk (store/drafts.py, `workplace`).

    `adopted`: what a killed replay left beside `out`, which this one goes on with. `lasting`: whether it is to outlive the
    process, and so a loss of power as soon as it is there.
    """

    def __init__(
        self, out: Path, *, overwrite: bool = False, lasting: bool = True, adopted: Path | None = None,
        disk: Disk = DISK,
    ) -> None:  # fmt: skip
        self.out, self.lasting, self.disk = out.absolute(), lasting, disk
        self._overwrite = overwrite
        self._before = commits.newest(self.out.place) if isinstance(self.out, RemotePath) else 0
        self._parts: dict[str, Part] = {}
        self._folder = NewFolder(
            working_place(self.out), self._check, self._refused, lasting=lasting, adopted=adopted, disk=disk
        )
        self.path = self._folder.path
        self.scratch = self.path / SCRATCH
        try:
            disk.make_all(self.scratch)
        except BaseException as error:
            self.discard()
            if isinstance(error, OSError):
                raise no_space(error, self.scratch) or self._refused(error.strerror or str(error)) from None
            raise

    def _refused(self, why: str) -> SetupError:
        if not isinstance(self.out, RemotePath):
            why = file_in_the_way(self.out) or why
        return SetupError(
            f"the run cannot be written: {why}", place=Place(str(self.out)),
            hint="choose another directory with --out", code="TL710",
        )  # fmt: skip

    def _check(self) -> None:
        _check_free(self.out, overwrite=self._overwrite, disk=self.disk)

    def settle(self, known: Mapping[str, Part]) -> dict[str, Part]:
        """Make what belongs to the run durable. What only the making needed stays until `commit`: a replay that goes on where
        this one is killed needs it.

        Returns all files, by their paths in the run, with sizes and checksums. Those that were written for it are
        `known`; the others, taken over from the cache or made here, are read. Raises StorageError (TL931) for one
        that is not as it was written.
        """
        inside = f"{SCRATCH}/"
        names = [name for name in self.disk.files(self.path) if not name.startswith(inside)]
        parts = {name: self._part(name, known.get(name)) for name in names}
        if self.lasting:
            folders = [n for n in self.disk.folders(self.path) if n != SCRATCH and not n.startswith(inside)]
            for name in [*names, *folders, "."]:
                self.disk.sync(self.path / name)
        self._parts = parts
        return parts

    def _part(self, name: str, known: Part | None) -> Part:
        path = self.path / name
        if known is None:
            return self.disk.part(path)
        if self.disk.size(path) != known.bytes:
            raise altered(
                path, f"it has {self.disk.size(path):,} bytes, not the {known.bytes:,} that were written",
                AGAIN,
            )  # fmt: skip
        return known

    def commit(self) -> None:
        """Put the finished and settled run in its place. Raises StorageError (TL933) where another was put there."""
        if isinstance(self.out, RemotePath):
            self._check()
            self.out = _put(self.path, self.out, self._before, self._parts)
            self.discard()
            return
        aside = partial_path(self.out, self.disk)
        self.disk.move(self.scratch, aside)  # in one step: what still writes there fails
        self._folder.publish()
        self.disk.remove(aside)

    def discard(self) -> None:
        """Leave nothing behind, though tasks that were cancelled may still be writing for a moment."""
        try:
            for _ in range(_DISCARD_TRIES):
                with suppress(OSError):
                    if self._folder.discard():
                        break
                time.sleep(_DISCARD_PAUSE)
        finally:
            self._folder.close()

    def leave(self) -> bool:
        """Leave what is done to the next replay into this place, where this one can't go on. Returns whether that worked; otherwise
        nothing is left."""
        try:
            self._folder.leave()
        except OSError:
            self.discard()
            return False
        self._folder.close()
        return True


def _check_free(out: Path, *, overwrite: bool, disk: Disk = DISK) -> None:
    """Raise ReplayError (TL508) where there is something at a run's place that must not be replaced."""
    if not disk.exists(out):
        return
    held_names = (
        list(out.iterdir()) if isinstance(out, RemotePath) else disk.names(out) if out.is_dir() else [out]
    )
    if not held_names:
        return
    is_run = disk.is_file(out / "run.json")
    if overwrite and is_run:
        return
    raise ReplayError(
        "there is already something at the run's place", place=Place(str(out)),
        hint="choose another --out" + (", or pass --overwrite to replace that run" if is_run else ""),
        code="TL508",
    )  # fmt: skip


def _put(made: Path, out: RemotePath, before: int, parts: Mapping[str, Part]) -> RemotePath:
    """Make a finished run the next version of its place, without what only the making needed."""
    return put(
        made, out.at(None), before=before, parts=parts, wanted=lambda name: not name.startswith(f"{SCRATCH}/")
    )


def put_finished(made: Path, out: RemotePath, parts: Mapping[str, Part], *, overwrite: bool) -> RemotePath:
    """Put a run into its place that another process finished, and could not put there. Raises as PartialRun does."""
    with held(working_place(out)):
        _check_free(out.at(None), overwrite=overwrite)
        where = _put(made, out, commits.newest(out.place), parts)
        DISK.remove(made)
        return where


def working_place(out: Path) -> Path:
    """The place beside which a run for `out` is made."""
    return workplace(out) if isinstance(out, RemotePath) else out
