"""Names given to what is made already: folders that several make at once, and moves. Nothing outside of this room renames by itself.

Every operation is one rename within a file system, so who looks finds nothing under a name or all of it, and what a kill leaves has a
name that nobody reads. `lasting` says that the names outlive a loss of power; the bytes do if whoever wrote them said so (parts.py).
What can be made again needs neither: temporary folders of jobs, and caches, which check what they read.
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from timelapse.store.folders import partial_path, remove_abandoned
from timelapse.store.parts import put_file, sync


@contextmanager
def aside(place: Path) -> Iterator[Path]:
    """A new folder beside a place, to be made and then put there. What is left of it is removed when the block ends; what killed
    processes of this machine left there, before it begins."""
    remove_abandoned(place)
    made = partial_path(place)
    made.mkdir()
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


def put_folder(made: Path, place: Path, *, lasting: bool = False) -> bool:
    """Give a folder its name, once: False where somebody was faster, whose folder stays. An empty folder is replaced.

    Raises OSError where nothing is there, and nothing can be put there.
    """
    if lasting:
        sync(made)
    try:
        os.rename(made, place)
    except OSError:
        if not os.path.lexists(place):
            raise
        return False
    if lasting:
        sync(place.parent)
    return True


def move(pairs: Iterable[tuple[Path, Path]], *, lasting: bool = False) -> None:
    """Move files and folders to where nothing is yet, each in one step; a kill leaves some of them moved.

    `lasting`: once it returns, a loss of power undoes none of it.
    """
    parents = set()
    for old, new in pairs:
        os.rename(old, new)
        parents.add(new.parent)
    if lasting:
        for parent in sorted(parents):
            sync(parent)


def take_away(path: Path) -> bool:
    """Remove a folder: out of sight in one step, then from the disk. False where it is not there, or may not be removed."""
    gone = partial_path(path)
    try:
        os.rename(path, gone)
    except OSError:
        return False
    shutil.rmtree(gone, ignore_errors=True)
    return True


def link_or_copy(old: Path, new: Path) -> None:
    """The same file under another name, in place of what is there; without copying where the disk can."""
    with suppress(OSError):  # in one step where nothing is there
        os.link(old, new)
        return
    partial = new.with_name(f".{new.name}.{uuid.uuid4().hex}.partial")
    try:
        try:
            os.link(old, partial)
        except OSError:
            shutil.copyfile(old, partial)
        put_file(partial, new)
    finally:
        partial.unlink(missing_ok=True)  # a rename between two names of one file does nothing
