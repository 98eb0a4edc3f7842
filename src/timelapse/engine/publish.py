"""A run's directory appears whole or not at all: it is made beside its place and renamed into it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from timelapse.engine.checked import AGAIN
from timelapse.errors import Place, ReplayError, SetupError
from timelapse.store.disk import DISK, Disk
from timelapse.store.failures import no_space
from timelapse.store.folders import NewFolder, partial_path
from timelapse.store.parts import Part, altered

_DISCARD_TRIES, _DISCARD_PAUSE = 50, 0.1
SCRATCH = "scratch"
"""In a run that is being made: what only the making needs."""


class PartialRun:
    """A directory beside `out` in which a run is made, by one replay at a time (store/folders.py).

    `adopted`: what a killed replay left beside `out`, which this one goes on with. `lasting`: whether it is to outlive the
    process, and so a loss of power as soon as it is there.
    """

    def __init__(
        self, out: Path, *, overwrite: bool = False, lasting: bool = True, adopted: Path | None = None,
        disk: Disk = DISK,
    ) -> None:  # fmt: skip
        self.out, self.lasting, self.disk = out.absolute(), lasting, disk
        self._overwrite = overwrite
        self._folder = NewFolder(
            self.out, self._check, self._refused, lasting=lasting, adopted=adopted, disk=disk
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
        return SetupError(
            f"the run cannot be written: {why}", place=Place(str(self.out)),
            hint="choose another directory with --out", code="TL710",
        )  # fmt: skip

    def _check(self) -> None:
        if not self.disk.exists(self.out):
            return
        if self.out.is_dir() and not self.disk.names(self.out):
            return
        is_run = self.disk.is_file(self.out / "run.json")
        if self._overwrite and is_run:
            return
        raise ReplayError(
            "there is already something at the run's place", place=Place(str(self.out)),
            hint="choose another --out" + (", or pass --overwrite to replace that run" if is_run else ""),
            code="TL508",
        )  # fmt: skip

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
