"""A run's directory appears whole or not at all: it is made beside its place and renamed into it."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping
from pathlib import Path

from timelapse.errors import Place, ReplayError, SetupError
from timelapse.store.folders import NewFolder
from timelapse.store.parts import Part, part_at, sync

_DISCARD_TRIES, _DISCARD_PAUSE = 50, 0.1


class PartialRun:
    """A directory beside `out` in which a run is made, by one replay at a time (store/folders.py).

    `spared`: what a killed replay left beside `out`, which this one goes on with. `lasting`: whether it is to outlive the process, and so a loss of power as soon as it is there.
    """

    def __init__(
        self, out: Path, *, overwrite: bool = False, lasting: bool = True, spared: Path | None = None
    ) -> None:
        self.out, self.lasting = out.absolute(), lasting
        self._overwrite = overwrite
        self._folder = NewFolder(self.out, self._check, self._refused, lasting=lasting, spared=spared)
        self.path = self._folder.path
        self.scratch = self.path / "scratch"
        self.scratch.mkdir()

    def _refused(self, why: str) -> SetupError:
        return SetupError(
            f"the run cannot be written: {why}", place=Place(str(self.out)),
            hint="choose another directory with --out", code="TL710",
        )  # fmt: skip

    def _check(self) -> None:
        if not self.out.exists():
            return
        if self.out.is_dir() and not any(self.out.iterdir()):
            return
        is_run = (self.out / "run.json").is_file()
        if self._overwrite and is_run:
            return
        raise ReplayError(
            "there is already something at the run's place", place=Place(str(self.out)),
            hint="choose another --out" + (", or pass --overwrite to replace that run" if is_run else ""),
            code="TL508",
        )  # fmt: skip

    def settle(self, known: Mapping[str, Part]) -> dict[str, Part]:
        """Remove what only the making needed, and make the rest durable.

        Returns all files, by their paths in the run, with sizes and checksums. Those that were written for it are
        `known`; the others, taken over from the cache or made here, are read.
        """
        shutil.rmtree(self.scratch, ignore_errors=True)
        paths = sorted(self.path.rglob("*"))
        names = {path.relative_to(self.path).as_posix(): path for path in paths if path.is_file()}
        parts = {name: _part(path, known.get(name)) for name, path in names.items()}
        if self.lasting:
            for path in [*paths, self.path]:
                sync(path)
        return parts

    def commit(self) -> None:
        """Put the finished and settled run in its place. Raises StorageError (TL933) where another was put there."""
        self._folder.publish()

    def discard(self) -> None:
        """Leave nothing behind, though tasks that were cancelled may still be writing for a moment."""
        for _ in range(_DISCARD_TRIES):
            if self._folder.discard():
                break
            time.sleep(_DISCARD_PAUSE)
        self._folder.close()


def _part(path: Path, known: Part | None) -> Part:
    return known if known is not None and known.bytes == path.stat().st_size else part_at(path)
