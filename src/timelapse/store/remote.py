"""Paths of object stores, for whoever reads files by their paths.

A RemotePath is a `pathlib.Path` for reading: what the standard library and Arrow open by it is the copy on this machine's disk (fetched.py), which
comes when it is first opened. It shows itself as its URL. Its folder has a version (commits.py), which it keeps: `s3://bucket/log` that was opened stays the
log that it was, whatever is put there later, in other processes too. Nothing is written through it.
"""

from __future__ import annotations

import errno
import fnmatch
import os
import re
import stat
import zlib
from collections.abc import Collection, Generator, Iterator, Mapping
from functools import lru_cache
from pathlib import Path, PosixPath
from typing import IO, Any, NoReturn, Self

from timelapse.errors import Place as Where
from timelapse.errors import StorageError
from timelapse.store import commits, fetched
from timelapse.store.commits import Commit
from timelapse.store.objects import SCHEMES, place_at
from timelapse.store.parts import FileCheck, Part, check_parts
from timelapse.store.place import Place
from timelapse.store.places import local_path

_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/+(.+)", re.DOTALL)
"""`pathlib` makes one slash of two."""
_MARK = "#"
"""Ends the name of the folder that has versions; behind it the version's number, or nothing for the newest."""


class RemotePath(PosixPath):
    """A file or folder of a version that lies in an object store: for reading."""

    # --- what it is ---------------------------------------------------------------------------------

    def __str__(self) -> str:
        parts = list(self.parts)
        if not parts or not parts[0].endswith(":"):  # relative to another
            return "/".join(parts) or "."
        for at, part in enumerate(parts):
            if _MARK in part:
                parts[at] = part.partition(_MARK)[0]
                break
        return f"{parts[0]}//{'/'.join(parts[1:])}"

    def __repr__(self) -> str:
        return f"RemotePath({str(self)!r})"

    @property
    def name(self) -> str:
        return str(self).rpartition("/")[2]

    def as_posix(self) -> str:
        return str(self)

    def as_uri(self) -> str:
        return str(self)

    def is_absolute(self) -> bool:
        return True

    def absolute(self) -> Self:
        return self

    def resolve(self, strict: bool = False) -> Self:
        return self

    def expanduser(self) -> Self:
        return self

    @property
    def pinned(self) -> str:
        """A text that names the same version in every process: `remote_path` reads it."""
        return "/".join(self.parts)

    # --- where it lies --------------------------------------------------------------------------------

    def _at(self) -> int:
        """Which part is the folder that has versions."""
        for at, part in enumerate(self.parts):
            if _MARK in part:
                return at
        raise FileNotFoundError(errno.ENOENT, "not in a folder of an object store", str(self))

    def _split(self) -> tuple[Place, int | None, str]:
        """The place, the version (None: the newest), and the name in it."""
        at, parts = self._at(), self.parts
        head, _, number = parts[at].partition(_MARK)
        url = f"{parts[0]}//{'/'.join([*parts[1:at], head])}"
        return place_at(url), int(number) if number else None, "/".join(parts[at + 1 :])

    @property
    def place(self) -> Place:
        """Where it lies."""
        return self._split()[0]

    def newest(self) -> RemotePath:
        """The same folder, at its newest version as it is now; itself where nothing was put there yet."""
        place, number, _ = self._split()
        found = 0 if number is not None else commits.newest(place)
        return self.at(found) if found else self

    def at(self, number: int | None) -> RemotePath:
        """The same of a version; None: of the newest, whenever it is asked."""
        at, parts = self._at(), list(self.parts)
        parts[at] = f"{parts[at].partition(_MARK)[0]}{_MARK}{'' if number is None else number}"
        return RemotePath(*parts)

    def commit(self) -> Commit | None:
        """The version it is of; None where there is none. Raises StorageError, also (TL931) where a version is gone."""
        place, number, _ = self._split()
        if number is None:
            number = commits.newest(place)
        return _commit(str(place), number) if number else None

    def _entry(self) -> tuple[Place, commits.Entry | None, str]:
        place, _, name = self._split()
        found = self.commit()
        return place, None if found is None else found.files.get(name), name

    def tail(self, size: int) -> bytes:
        """The last `size` bytes of a file or some more, checked, without the rest. Raises FileNotFoundError, StorageError."""
        place, entry, _ = self._entry()
        if entry is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(self))
        return fetched.tail(place, entry.key, entry.part, size)

    # --- reading ----------------------------------------------------------------------------------------

    def __fspath__(self) -> str:
        place, entry, name = self._entry()
        if entry is None:
            # Nothing is at this path, and nothing can be put there.
            return f"{fetched.folder()}/none/{zlib.crc32(str(place).encode()):08x}/{name}"
        return str(fetched.fetch(place, entry.key, entry.part))

    def open(self, mode: str = "r", *args: Any, **named: Any) -> IO[Any]:  # type: ignore[override]
        if set(mode) - set("rbt"):
            self._refuse()
        if self._entry()[1] is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(self))
        return open(os.fspath(self), mode, *args, **named)

    def read_bytes(self) -> bytes:
        with self.open("rb") as file:
            return bytes(file.read())

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        _, entry, name = self._entry()
        if entry is not None:
            own = zlib.crc32(entry.key.encode())
            when = entry.written
            return os.stat_result((stat.S_IFREG | 0o444, own, 0, 1, 0, 0, entry.part.bytes, when, when, when))
        if self._below(name) or (not name and self._is_used()):
            return os.stat_result((stat.S_IFDIR | 0o555, 0, 0, 1, 0, 0, 0, 0, 0, 0))
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(self))

    lstat = stat

    def exists(self, *, follow_symlinks: bool = True) -> bool:
        try:
            self.stat()
        except FileNotFoundError:
            return False
        return True

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        return self._entry()[1] is not None

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        return self.exists() and not self.is_file()

    def is_symlink(self) -> bool:
        return False

    def _is_used(self) -> bool:
        """Whether there is something at the place that is no version."""
        place, number, _ = self._split()
        return number is None and bool(commits.foreign(place))

    def _below(self, name: str) -> list[str]:
        """The names of the files below a folder, in it."""
        found = self.commit()
        start = f"{name}/" if name else ""
        return [] if found is None else [n[len(start) :] for n in found.files if n.startswith(start)]

    def iterdir(self) -> Generator[Self, None, None]:
        place, number, name = self._split()
        below = {n.partition("/")[0] for n in self._below(name)}
        if not below and not name and number is None:
            below = set(commits.foreign(place))
        if not below:
            self.stat()  # raises
        yield from [self / one for one in sorted(below)]

    def glob(self, pattern: str, **named: Any) -> Iterator[Self]:  # type: ignore[override]
        return self._matching(pattern.split("/"))

    def rglob(self, pattern: str, **named: Any) -> Iterator[Self]:  # type: ignore[override]
        return self._matching(["**", *pattern.split("/")])

    def _matching(self, pattern: list[str]) -> Iterator[Self]:
        below = self._below(self._split()[2])
        folders = {"/".join(n.split("/")[:k]) for n in below for k in range(1, n.count("/") + 1)}
        found = [n for n in sorted({*below, *folders}) if _fits(n.split("/"), pattern)]
        return iter([self.joinpath(*n.split("/")) for n in found])

    # --- writing ----------------------------------------------------------------------------------------

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise StorageError(
            "nothing is written here by its path: an object store takes whole versions of logs and runs", place=Where(str(self)),
            hint="write to a folder of this machine, and copy it", code="TL938",
        )  # fmt: skip

    mkdir = touch = unlink = rmdir = rename = replace = symlink_to = hardlink_to = chmod = _refuse
    write_bytes = write_text = _refuse


def _fits(parts: list[str], pattern: list[str]) -> bool:
    """Whether a name is one that a pattern means, as `Path.glob` reads it."""
    if not pattern:
        return not parts
    if pattern[0] == "**":
        return any(_fits(parts[at:], pattern[1:]) for at in range(len(parts) + 1))
    return bool(parts) and fnmatch.fnmatchcase(parts[0], pattern[0]) and _fits(parts[1:], pattern[1:])


@lru_cache(maxsize=64)
def _commit(url: str, number: int) -> Commit:
    place = place_at(url)
    try:
        return commits.read(place, number)
    except FileNotFoundError:
        raise StorageError(
            f"version {number} was removed: another has taken its place", place=Where(str(place)), code="TL939",
            hint="open it again: that gives the newest version",
        ) from None  # fmt: skip


def remote_path(url: str) -> RemotePath:
    """The path that a URL names: a folder, at its newest version."""
    scheme, _, rest = url.partition(":")
    *before, last = [part for part in rest.split("/") if part]
    return RemotePath(f"{scheme.lower()}:", *before, f"{last}{_MARK}")


def place_path(place: str | Path, what: str) -> Path:
    """The path of a log or run, on this machine or in an object store, as `local_path` reads it.

    `s3://bucket/run#2` is the second version of what lies there. Raises StorageError (TL930) for what is neither, and for a URL that could hold a secret: it would be written into manifests.
    """
    if isinstance(place, RemotePath):
        return place
    text = str(place)
    found = _URL.match(text)
    if found is None or found[1].lower() not in SCHEMES:
        return local_path(place, what)
    host, _, folder = found[2].partition("/")
    user = host.rpartition("@")[0]
    if ":" in user or (user and found[1].lower() in ("s3", "s3a", "gs")):
        raise StorageError(
            f"a {what} cannot be at a URL with a name and a password", code="TL930",
            hint="keys come from the environment (docs/spark.md)",
        )  # fmt: skip
    folder, _, number = folder.partition(_MARK)
    odd = [p for p in folder.split("/") if p in (".", "..")] or [c for c in "?\\" if c in text]
    if number and not number.isdecimal():
        odd = [_MARK]
    if not host or odd:
        raise StorageError(
            f"a {what} cannot be at {found[1]}://{found[2]}: {f'{odd[0]} is not understood' if odd else 'it names no bucket'}",
            hint="write it as s3://bucket/folder", code="TL930",
        )  # fmt: skip
    path = remote_path(f"{found[1]}://{host}/{folder}")
    return path.at(int(number)) if number else path


def opened(path: Path) -> Path:
    """A path that is read: in an object store the version that is its newest now, if it does not name one."""
    return path.newest() if isinstance(path, RemotePath) else path


def check_files(
    folder: Path, parts: Mapping[str, Part], remedy: str, unnamed: Collection[str] = ()
) -> FileCheck:
    """`check_parts`, also of a folder in an object store, whose objects are read then, not their copies here."""
    if not isinstance(folder, RemotePath):
        return check_parts(folder, parts, remedy, unnamed)
    errors = []
    for name, part in sorted(parts.items()):
        try:
            place, entry, _ = (folder / name)._entry()
            wrong = "it is not in the commit" if entry is None else fetched.check(place, entry.key, part)
        except FileNotFoundError:
            wrong = "the object is gone"
        if wrong:
            where = folder / name if entry is None else f"{place}/{entry.key}"
            errors.append(
                StorageError(
                    f"the file was altered: {wrong}", place=Where(str(where)), hint=remedy, code="TL931"
                )
            )
    there = {name.as_posix() for name in (p.relative_to(folder) for p in folder.rglob("*") if p.is_file())}
    others = tuple(sorted(there - set(parts) - set(unnamed)))
    return FileCheck(len(parts), sum(part.bytes for part in parts.values()), tuple(errors), others)


def pinned(path: Path) -> str:
    """A path as text, from which `path_of` makes it again, in this process or another."""
    return path.pinned if isinstance(path, RemotePath) else str(path)


def path_of(text: str) -> Path:
    """See `pinned`."""
    found = _URL.match(text)
    if found is None or _MARK not in text or found[1] not in SCHEMES:
        return Path(text)
    return RemotePath(f"{found[1]}:", *found[2].split("/"))
