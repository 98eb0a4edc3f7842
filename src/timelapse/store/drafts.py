"""Folders of this machine that become versions of an object store's folder."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from timelapse.errors import Place as Where
from timelapse.errors import StorageError
from timelapse.store import commits, fetched
from timelapse.store.failures import writing
from timelapse.store.parts import Part, part_at
from timelapse.store.remote import RemotePath
from timelapse.store.scratch import process_folder, scratch_folder, scratch_root

_KEPT = 2
"""Versions that stay when a run or log is replaced: readers of the one before are not cut off."""


def put(
    made: Path, target: RemotePath, *, before: int, base: commits.Commit | None = None, parts: Mapping[str, Part] | None = None,
    wanted: Callable[[str], bool] = lambda name: True, told: Callable[[int, int], None] | None = None,
) -> RemotePath:  # fmt: skip
    """Make the files of a folder the version after `before` of a place, with those of `base` that are not made anew. `wanted`: which of them.

    The files are kept as copies of what was put, so they are gone from the folder. Raises as commits.publish does.
    """
    paths = sorted(p for p in made.rglob("*") if p.is_file())
    files = {name: p for p in paths if wanted(name := p.relative_to(made).as_posix())}
    kept = {} if base is None else base.files
    commit = commits.publish(target.place, files, before=before, kept=kept, parts=parts, told=told)
    for name, path in files.items():
        entry = commit.files[name]
        fetched.adopt(target.place, entry.key, entry.part, path)
    if base is None and before:
        with suppress(OSError, StorageError):  # the next one does it
            commits.clean(target.place, keep=_KEPT)
    return target.at(commit.number)


@contextmanager
def draft(target: RemotePath, check: Callable[[], None], what: str) -> Iterator[Path]:
    """A folder that becomes the next version of a place, with nothing of the one before, when the block ends well.

    `check` raises an error where what is there must not be replaced. Raises StorageError (TL933) where another was put there meanwhile.
    """
    check()
    before = commits.newest(target.place)
    folder = scratch_folder(what, large=True)
    try:
        yield folder
        put(folder, target, before=before)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def change(target: RemotePath, names: tuple[str, ...], what: str) -> Iterator[tuple[RemotePath, Path]]:
    """The newest version, and a folder whose files, when the block ends well, make with those of that version the next one.

    The folder begins with copies of `names`. Raises StorageError (TL933) where another version was put meanwhile.
    """
    newest = target.at(None).newest()
    base = newest.commit()
    before = 0 if base is None else base.number
    folder = scratch_folder(what, large=True)
    try:
        for name in names:
            if base is not None and name in base.files:
                shutil.copyfile(newest / name, folder / name)
        yield newest, folder
        if base is None or _changed(folder, base):
            put(folder, target.at(None), before=before, base=base or _nothing())
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _changed(folder: Path, base: commits.Commit) -> bool:
    """Whether a folder has a file that a version does not have."""
    made = {p.relative_to(folder).as_posix(): p for p in folder.rglob("*") if p.is_file()}
    return any(
        name not in base.files or part_at(path) != base.files[name].part for name, path in made.items()
    )


def _nothing() -> commits.Commit:
    return commits.Commit(commits.FORMAT, commits.FORMAT_VERSION, 0, "", {}, "")


def workplace(target: RemotePath, what: str = "run") -> Path:
    """Where on this machine's disk a run for a place is made, or `what` else belongs to it, the same for every process: what one leaves, the next one finds.

    Raises StorageError (TL932) where there is no room, TL938 where the folder is another user's.
    """
    root = scratch_root(large=True) / f"timelapse-places-{os.getuid()}"
    name = hashlib.blake2b(str(target.at(None)).encode(), digest_size=12).hexdigest()
    with writing(root):
        (root / name).mkdir(mode=0o700, parents=True, exist_ok=True)
    if root.stat().st_uid != os.getuid():  # somebody else's: what is in it could be run as this user
        raise StorageError(
            "the folder for unfinished runs is another user's", place=Where(str(root)), code="TL938",
            hint="name another one with TIMELAPSE_SCRATCH",
        )  # fmt: skip
    return root / name / what


def here(folder: Path) -> Path:
    """A folder whose files all are on this machine: itself, or a copy that lasts as long as this process."""
    if not isinstance(folder, RemotePath):
        return folder
    made = process_folder("copy", large=True)
    for path in folder.rglob("*"):
        if path.is_file():
            target = made / path.relative_to(folder).as_posix()
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
    return made
