"""Machine code on disk: one file per compiled function, shared by all processes of this user.

A file's name is the hash of everything that went into it, its contents carry their own checksum, and it is put
in place by a rename. So readers see a whole entry or none, whatever was killed or ran out of space; what is damaged
is removed and made again. Nothing here raises because of the disk: without one, each process compiles
for itself. Importing this imports no compiler.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from timelapse.env.machine import own_folder
from timelapse.errors import UsageError
from timelapse.store.parts import write_part

LIMIT = "TIMELAPSE_KERNEL_CACHE_LIMIT"
"""Environment variable: bytes that compiled functions may take on disk; those used least recently go first."""
DEFAULT_LIMIT = 1_000_000_000

_MAGIC = b"timelapse kernel 1\n"
_SUFFIX = ".kernel"
_ABANDONED = 3600.0
"""Seconds after which a partial file or a lock belongs to nobody any more."""


@dataclass(frozen=True)
class Entry:
    """One compiled function on disk: its name, its size in bytes and when it was used last (Unix time)."""

    name: str
    bytes: int
    used: float


def folder() -> Path | None:
    """Where compiled functions are kept, made if missing. None where there is no safe place."""
    return own_folder("kernels")


def limit() -> int:
    """The number of bytes that entries may take. Raises UsageError where the variable is not a number."""
    text = os.environ.get(LIMIT, "")
    if not text:
        return DEFAULT_LIMIT
    if not text.isdecimal():
        raise UsageError(f"{LIMIT} is {text!r}", hint="set it to a number of bytes")
    return int(text)


def has(name: str) -> bool:
    """Whether there is an entry of this name. It may still turn out to be damaged."""
    place = folder()
    return place is not None and (place / f"{name}{_SUFFIX}").is_file()


def read(name: str) -> bytes | None:
    """An entry's contents, or None where there is none. A damaged one is removed."""
    place = folder()
    if place is None:
        return None
    path = place / f"{name}{_SUFFIX}"
    try:
        data = path.read_bytes()
    except OSError:
        return None
    start = len(_MAGIC) + 32
    payload = data[start:]
    if data[: len(_MAGIC)] != _MAGIC or data[len(_MAGIC) : start] != hashlib.sha256(payload).digest():
        remove(name)
        return None
    with contextlib.suppress(OSError):
        os.utime(path)
    return payload


def write(name: str, payload: bytes) -> bool:
    """Put an entry in place, then evict where there may be more than the limit. False where it could not be kept."""
    place = folder()
    if place is None:
        return False
    try:
        write_part(place / f"{name}{_SUFFIX}", _MAGIC + hashlib.sha256(payload).digest() + payload)
    except OSError:
        return False
    if _SINCE.may_be_full(place, len(payload)):
        evict()
    return has(name)


def remove(name: str) -> None:
    """Take an entry away. A process that has loaded it keeps it."""
    place = folder()
    if place is not None:
        with contextlib.suppress(OSError):
            (place / f"{name}{_SUFFIX}").unlink()


class _Since:
    """How much there was when this process last looked at all entries, and what it has written since."""

    def __init__(self) -> None:
        self._looked: dict[Path, tuple[int, int]] = {}

    def may_be_full(self, place: Path, written: int) -> bool:
        """Whether to look again: there may be more than the limit. Also each time that a sixteenth of it was written: others write too."""
        there, since = self._looked.get(place, (limit(), 0))
        self._looked[place] = there, since + written
        return there + since + written > limit() or since + written > limit() // 16

    def looked(self, place: Path, there: int) -> None:
        self._looked[place] = there, 0


_SINCE = _Since()


def entries() -> list[Entry]:
    """All entries, those used last first."""
    place = folder()
    if place is None:
        return []
    found = []
    with contextlib.suppress(OSError), os.scandir(place) as names:
        for one in names:
            if one.name.endswith(_SUFFIX) and not one.name.startswith("."):
                with contextlib.suppress(OSError):
                    at = one.stat()
                    found.append(Entry(one.name.removesuffix(_SUFFIX), at.st_size, at.st_mtime))
    return sorted(found, key=lambda e: (-e.used, e.name))


def size() -> int:
    """Bytes that all entries take."""
    return sum(e.bytes for e in entries())


def clear() -> int:
    """Remove all entries. Returns how many bytes that were."""
    found = entries()
    for entry in found:
        remove(entry.name)
    _sweep(0.0)
    return sum(e.bytes for e in found)


def evict() -> int:
    """Remove the entries that were used least recently until the rest fits the limit. Returns bytes removed."""
    most, kept, gone = limit(), 0, 0
    for entry in entries():
        kept += entry.bytes
        if kept > most:
            remove(entry.name)
            gone += entry.bytes
    if (place := folder()) is not None:
        _SINCE.looked(place, kept - gone)
    _sweep(_ABANDONED)
    return gone


def _sweep(age: float) -> None:
    """Remove what killed processes left: partial files and locks."""
    place = folder()
    if place is None:
        return
    before = time.time() - age
    with contextlib.suppress(OSError), os.scandir(place) as names:
        for one in names:
            with contextlib.suppress(OSError):
                if one.name.startswith(".") and one.stat().st_mtime <= before:
                    os.unlink(one.path)


@contextlib.contextmanager
def being_made(name: str) -> Iterator[None]:
    """Hold the right to make an entry: of processes that want the same, one compiles and the others wait.

    The system gives the lock back when its holder dies. Where files cannot be locked nobody waits;
    then work may be done twice, never wrongly.
    """
    place = folder()
    handle: int | None = None
    if place is not None:
        path = place / f".{name}.lock"
        with contextlib.suppress(OSError):
            handle = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
            fcntl.flock(handle, fcntl.LOCK_EX)
    try:
        yield
    finally:
        if handle is not None:
            with contextlib.suppress(OSError):
                # Whoever waits holds this file still, and finds the entry before it looks for the lock again.
                path.unlink()
            os.close(handle)
