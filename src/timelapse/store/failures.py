"""What is said when something cannot be written."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from timelapse.errors import NoSpace, Place

_FULL = {
    errno.ENOSPC: "no space is left on the device",
    errno.EDQUOT: "the quota is used up",
    errno.EFBIG: "the file is larger than is allowed",
}


@contextmanager
def writing(path: str | Path) -> Iterator[None]:
    """Around a write to `path`: an OSError leaves as NoSpace (TL932) that names it where the place is full, else
    as it is, with the file's name if it had none."""
    try:
        yield
    except NoSpace:
        raise
    except OSError as error:
        full = no_space(error, path)
        if full is not None:
            raise full from error
        if error.filename is None and error.errno is not None:
            raise OSError(error.errno, os.strerror(error.errno), str(path)) from error
        raise


def no_space(error: OSError, path: str | Path | None = None) -> NoSpace | None:
    """What is raised for an OSError that says that a place is full; None for another."""
    if isinstance(error, NoSpace):
        return error
    why = _FULL.get(error.errno or 0)
    if why is None:
        return None
    named = error.filename if path is None else path
    if named is None:  # files are written within `writing`, which names them
        return NoSpace(
            f"it cannot be written: {why}", place=Place("standard output"), hint="make room where it goes, or send it elsewhere"
        )  # fmt: skip
    where = Path(str(named))
    return NoSpace(
        f"it cannot be written: {why}{_free(where)}", place=Place(str(where)),
        hint="make room there, or choose another place: --out for a run or log, TMPDIR for temporary files, "
        "TIMELAPSE_STATES for the cache",
    )  # fmt: skip


def file_in_the_way(path: Path) -> str:
    """What is said where one of the folders above a path is a file; empty where none is."""
    there = next((one for one in path.absolute().parents if one.exists()), None)
    return "" if there is None or there.is_dir() else f"{there} is a file, where a folder would be"


def _free(where: Path) -> str:
    """What is free there, for people."""
    there = next((p for p in (where, *where.absolute().parents) if p.exists()), None)
    try:
        return "" if there is None else f" ({shutil.disk_usage(there).free / 1e6:,.1f} MB are free)"
    except OSError:
        return ""
