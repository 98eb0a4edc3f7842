"""A run's directory appears whole or not at all: it is made beside its place and renamed into it."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

from timelapse.errors import Place, ReplayError, SetupError
from timelapse.log.place import aside_path, partial_path, remove_abandoned

_DISCARD_TRIES, _DISCARD_PAUSE = 50, 0.1


class PartialRun:
    """A directory beside `out` in which a run is made.

    `lasting`: whether it is to outlive the process, and so a loss of power as soon as it is there.
    """

    def __init__(self, out: Path, *, overwrite: bool = False, lasting: bool = True) -> None:
        self.out, self.lasting = out.absolute(), lasting
        self._overwrite = overwrite
        self._check()
        try:
            self.out.parent.mkdir(parents=True, exist_ok=True)
            remove_abandoned(self.out)
            self.path = partial_path(self.out)
            self.path.mkdir()
        except OSError as error:
            raise SetupError(
                f"the run cannot be written: {error.strerror}", place=Place(str(self.out)),
                hint="choose another directory with --out", code="TL710",
            ) from None  # fmt: skip
        self.scratch = self.path / "scratch"
        self.scratch.mkdir()

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

    def settle(self) -> None:
        """Remove what only the making needed, and make the rest durable."""
        shutil.rmtree(self.scratch, ignore_errors=True)
        if self.lasting:
            for path in [*self.path.rglob("*"), self.path]:
                sync(path)

    def commit(self) -> None:
        """Put the finished and settled run in its place."""
        if self.lasting:
            sync(self.path)
        self._check()
        old: Path | None = None
        if self.out.exists():
            old = aside_path(self.out)
            os.rename(self.out, old)
        os.rename(self.path, self.out)
        if self.lasting:
            sync(self.out.parent)
        if old is not None:
            shutil.rmtree(old, ignore_errors=True)

    def discard(self) -> None:
        """Leave nothing behind, though tasks that were cancelled may still be writing for a moment."""
        for _ in range(_DISCARD_TRIES):
            shutil.rmtree(self.path, ignore_errors=True)
            if not self.path.exists():
                return
            time.sleep(_DISCARD_PAUSE)


def sync(path: Path) -> None:
    """Make a file or a folder's entries durable."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
