"""Where entries are kept: folders of files that are published whole, checked when used, and evicted.

    <root>/entries/<key>/entry.json     a SHA-256 line, then JSON: what it is, and size and hash of each file
    <root>/entries/<key>/used           grows by one byte with each use: hits, and the time of the last one
    <root>/entries/<key>/...            the files
    <root>/limit                        bytes, where somebody set a limit
    <root>/tuning.json                  thresholds (tuning.py), where somebody set others

Any number of processes may read, publish and evict at the same time. An entry is made aside and renamed
into place; who uses one takes hard links (or copies) of its files first and checks those, so that an
eviction can no longer take them away. Nothing here raises for what the disk does: a cache that cannot be
read or written is as good as none.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import msgspec

from timelapse.cache.tuning import USUAL, CacheTuning
from timelapse.decoding import decoded
from timelapse.env.machine import cache_dir
from timelapse.errors import Place, UsageError
from timelapse.store.folders import is_partial, place_of, remove_abandoned
from timelapse.store.moves import aside, link_or_copy, put_folder, take_away
from timelapse.store.parts import write_part
from timelapse.store.places import absolute_path
from timelapse.tables.sharing import at_once

FORMAT = 1
PLACE = "TIMELAPSE_STATES"
"""Environment variable: the cache's folder, or `off`."""
LIMIT = "TIMELAPSE_STATES_LIMIT"
"""Environment variable: the most that the cache may hold, as `5GB` or bytes."""
DEFAULT_LIMIT = 10_000_000_000
DEFAULT_SHARE = 0.1
"""Without a limit: 10 GB, but at most this share of what the disk has free (the cache itself counted as free)."""

_HEAD = "entry.json"
_USED = "used"
_TUNING = "tuning.json"
_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}


class Head(msgspec.Struct, frozen=True, kw_only=True):
    """What an entry says of itself."""

    format: int = FORMAT
    kind: str
    key: str
    about: dict[str, str]
    """For people: program, log."""
    data: dict[str, Any]
    """For whoever made it."""
    files: dict[str, tuple[int, str]]
    """Size and SHA-256 of each file, by its path in the entry."""
    created: float

    @property
    def bytes(self) -> int:
        return sum(size for size, _ in self.files.values())


@dataclass(frozen=True)
class Entry:
    """An entry as `timelapse cache` lists it."""

    head: Head
    hits: int
    used: float
    """When it was used last, or made: seconds since 1970."""


class Store:
    """The cache in one folder."""

    def __init__(self, root: Path, limit: int | None = None) -> None:
        self.root = root
        self._limit = limit
        self._entries = root / "entries"

    # --- using --------------------------------------------------------------------------------------

    def head(self, key: str) -> Head | None:
        """What is known of an entry; None where there is none. Its files are not checked."""
        try:
            return _read_head(self._entries / key)
        except (OSError, ValueError):
            return None

    def lease(self, key: str, into: Path) -> Head | None:
        """Put an entry's files below `into`, checked. None where there is no entry, or a damaged one.

        A damaged entry is removed, so that it is made anew. `into` may be left with some of the files.
        """
        folder = self._entries / key
        try:
            head = _read_head(folder)
        except OSError:
            return None
        except ValueError:
            take_away(folder)
            return None
        try:
            names = list(head.files)
            sound = all(take(folder / name, into / name) for name in names)
            sound = sound and _all_checked([into / name for name in names]) == list(head.files.values())
        except OSError:
            return None  # evicted meanwhile
        if not sound or head.key != key:
            take_away(folder)
            return None
        try:
            with open(folder / _USED, "ab") as file:
                file.write(b".")
        except OSError:
            pass
        return head

    # --- publishing ---------------------------------------------------------------------------------

    def publish(
        self, key: str, kind: str, files: Mapping[str, Path], about: dict[str, str], data: dict[str, Any],
        *, replace: bool = False,
    ) -> str | None:  # fmt: skip
        """Keep files (name in the entry -> where they are) under a key. Returns None, or why it was not kept.

        An entry that is there stays, unless it is to be replaced.
        """
        target = self._entries / key
        try:
            size = sum(path.stat().st_size for path in files.values())
            self._entries.mkdir(parents=True, exist_ok=True)
            limit = self.limit()
            if size > limit:
                return f"it has {size:,} bytes, the cache's limit is {limit:,}"
            self.evict(limit - size)
            with aside(target) as made:
                for name, path in files.items():
                    if not take(path, made / name):
                        return f"{name} is no file"
                known = dict(zip(files, _all_checked([made / name for name in files]), strict=True))
                head = Head(kind=kind, key=key, about=about, data=data, files=known, created=time.time())
                body = msgspec.json.encode(head)
                (made / _HEAD).write_bytes(hashlib.sha256(body).hexdigest().encode() + b"\n" + body)
                (made / _USED).touch()
                if replace:
                    take_away(target)
                put_folder(made, target)  # somebody else may have been faster: theirs is as good
            return None
        except (OSError, TypeError, ValueError, msgspec.MsgspecError) as error:
            return f"the cache cannot be written: {error}"

    # --- keeping house ------------------------------------------------------------------------------

    def entries(self) -> list[Entry]:
        """All entries, the one used last first."""
        found = []
        for folder in self._folders():
            try:
                head, used = _read_head(folder), (folder / _USED).stat()
            except (OSError, ValueError):
                continue
            found.append(Entry(head, used.st_size, used.st_mtime))
        return sorted(found, key=lambda e: (-e.used, e.head.key))

    def clear(self) -> int:
        """Remove everything. Returns the number of entries. Raises OSError where that is not allowed."""
        folders = list(self._folders())
        for folder in folders:
            take_away(folder)
            if folder.exists():
                raise PermissionError(13, "Permission denied", str(folder))
        return len(folders)

    def remove(self, key: str) -> None:
        """Remove an entry, if it is there."""
        take_away(self._entries / key)

    def evict(self, allowed: int) -> int:
        """Remove what was used longest ago until at most `allowed` bytes are left. Returns how many went."""
        gone = 0
        entries = self.entries()
        known = {e.head.key for e in entries}
        for folder in self._folders():
            if folder.name not in known and self.head(folder.name) is None:
                take_away(folder)  # damaged, or of another format
        total = sum(e.head.bytes for e in entries)
        for entry in reversed(entries):
            if total <= allowed:
                break
            take_away(self._entries / entry.head.key)
            total -= entry.head.bytes
            gone += 1
        return gone

    def limit(self) -> int:
        """The most bytes that may be kept."""
        if self._limit is not None:
            return self._limit
        given = os.environ.get(LIMIT)
        if given:
            return parse_size(given)
        try:
            return int((self.root / "limit").read_text())
        except (OSError, ValueError):
            pass
        held = sum(e.head.bytes for e in self.entries())
        where = next((p for p in (self.root, *self.root.parents) if p.exists()), Path("/"))
        try:
            free = shutil.disk_usage(where).free
        except OSError:
            return 0
        return min(DEFAULT_LIMIT, int((free + held) * DEFAULT_SHARE))

    def set_limit(self, limit: int) -> None:
        """Set the limit for all later runs, and keep to it now. Raises OSError."""
        self.root.mkdir(parents=True, exist_ok=True)
        write_part(self.root / "limit", f"{limit}\n".encode())
        self.evict(limit)

    @cached_property
    def tuning(self) -> CacheTuning:
        """When it is worth while to look something up, or to keep it. Raises UsageError (TL810) where the file says what there is not."""
        path = self.root / _TUNING
        try:
            return decoded(path.read_bytes(), CacheTuning)
        except OSError:
            return USUAL
        except ValueError as error:
            raise UsageError(
                f"thresholds of the cache: {error}",
                place=Place(str(path)),
                hint="remove the file",
                code="TL810",
            ) from None

    def tune(self, tuning: CacheTuning) -> None:
        """Set thresholds for all later runs. Raises OSError."""
        self.root.mkdir(parents=True, exist_ok=True)
        write_part(self.root / _TUNING, msgspec.json.encode(tuning))
        self.__dict__.pop("tuning", None)

    def _folders(self) -> Iterator[Path]:
        """Finished entries. What killed processes left is removed on the way."""
        try:
            found = sorted(self._entries.iterdir())
        except OSError:
            return
        for path in found:
            if not path.name.startswith("."):
                yield path
            elif is_partial(path):
                with contextlib.suppress(OSError):
                    remove_abandoned(place_of(path))


def open_store() -> Store | None:
    """The user's cache; None where it is switched off."""
    given = os.environ.get(PLACE, "")
    if given.lower() in ("off", "0", "none"):
        return None
    if given:
        return Store(absolute_path(given, "cache"))
    return Store(cache_dir() / "states")


def parse_size(text: str) -> int:
    """Bytes from `5GB`, `500 MB` or a number. Raises UsageError (TL813)."""
    clean = text.strip().upper().replace("_", "").replace(",", "")
    number = clean.rstrip("KMGTB ")
    unit = clean[len(number) :].strip()
    try:
        if unit not in _UNITS or not 0 <= float(number) < 1e9:
            raise ValueError(text)
        return int(float(number) * _UNITS[unit])
    except ValueError:
        raise UsageError(f"{text!r} is not a size", hint="for example 5GB or 500MB", code="TL813") from None


def fingerprint(path: Path) -> tuple[int, str]:
    """A file's size and SHA-256."""
    with open(path, "rb") as file:
        return os.fstat(file.fileno()).st_size, hashlib.file_digest(file, "sha256").hexdigest()


_SETTLED = 1.0
"""Seconds after which a change of a file shows in its time of change, whatever the file system's clock."""
_KNOWN: dict[tuple[int, int, int, int], str] = {}
"""SHA-256 of files that this process has read, by device, inode, size and time of change."""
_MOST_KNOWN = 100_000
_HASHING = 2
"""Files that are hashed at the same time."""


def _checked(path: Path) -> tuple[int, str]:
    """A file's size and SHA-256. A file that this process has read and that has not changed since is not read again."""
    found = path.stat()
    identity = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)
    known = _KNOWN.get(identity)
    if known is not None:
        return found.st_size, known
    size, digest = fingerprint(path)
    if size == found.st_size and time.time() - found.st_mtime > _SETTLED:
        if len(_KNOWN) >= _MOST_KNOWN:
            _KNOWN.clear()
        _KNOWN[identity] = digest
    return size, digest


def _all_checked(paths: Sequence[Path]) -> list[tuple[int, str]]:
    """The same of several files, two at a time."""
    return at_once([(path.stat().st_size, partial(_checked, path)) for path in paths], _HASHING)


def _read_head(folder: Path) -> Head:
    """Raises OSError where there is none, ValueError where it is damaged or of another format."""
    digest, _, body = (folder / _HEAD).read_bytes().partition(b"\n")
    if hashlib.sha256(body).hexdigest().encode() != digest:
        raise ValueError(f"{folder} is damaged")
    head = decoded(body, Head)  # its errors are ValueErrors
    if head.format != FORMAT:
        raise ValueError(f"{folder} has format {head.format}")
    if any(Path(name).is_absolute() or ".." in Path(name).parts for name in head.files):
        raise ValueError(f"{folder} names files outside of it")
    return head


def take(source: Path, target: Path) -> bool:
    """Make `target` the same file as `source`, or a copy. False where source is no plain file."""
    if source.is_symlink() or not source.is_file():
        return False
    target.parent.mkdir(parents=True, exist_ok=True)
    link_or_copy(source, target)
    return True
