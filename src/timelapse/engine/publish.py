"""A run's directory appears whole or not at all: it is made beside its place and renamed into it."""

from __future__ import annotations

import hashlib
import os
import shutil
import socket
import uuid
from pathlib import Path

from timelapse.errors import Place, ReplayError, SetupError

_MARK = ".partial-"
"""What names a directory in the making: then the host, the process and a random part."""


class PartialRun:
    """A directory beside `out` in which a run is made."""

    def __init__(self, out: Path, *, overwrite: bool = False) -> None:
        self.out = out.absolute()
        self._overwrite = overwrite
        self._check()
        try:
            self.out.parent.mkdir(parents=True, exist_ok=True)
            remove_abandoned(self.out)
            owner = f"{_host()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
            self.path = self.out.parent / f".{self.out.name}{_MARK}{owner}"
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

    def commit(self) -> None:
        """Put the finished run in its place."""
        shutil.rmtree(self.scratch, ignore_errors=True)
        for path in [*self.path.rglob("*"), self.path]:
            _sync(path)
        self._check()
        old: Path | None = None
        if self.out.exists():
            old = self.out.parent / f".{self.out.name}{_MARK}{uuid.uuid4().hex[:12]}-old"
            os.rename(self.out, old)
        os.rename(self.path, self.out)
        _sync(self.out.parent)
        if old is not None:
            shutil.rmtree(old, ignore_errors=True)

    def discard(self) -> None:
        """Leave nothing behind."""
        shutil.rmtree(self.path, ignore_errors=True)


def remove_abandoned(out: Path) -> None:
    """Remove what killed runs to the same place left, when their process is gone from this machine."""
    for left in out.parent.glob(f".{out.name}{_MARK}*"):
        if left.name.endswith("-old"):
            # A kill between the two renames of an overwrite: put the old run back.
            if out.exists():
                shutil.rmtree(left, ignore_errors=True)
            else:
                os.rename(left, out)
            continue
        host, _, rest = left.name.rpartition(_MARK)[2].partition("-")
        pid = rest.partition("-")[0]
        if host == _host() and pid.isdigit() and not _alive(int(pid)):
            shutil.rmtree(left, ignore_errors=True)


def _host() -> str:
    return hashlib.sha256(socket.gethostname().encode()).hexdigest()[:8]


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _sync(path: Path) -> None:
    """Make a file or a folder's entries durable."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
