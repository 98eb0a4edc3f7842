"""Files of object stores on this machine's disk: fetched whole when they are first read, so that they can be memory-mapped.

Files of a place never change, so a copy stays good. It is named by where it comes from and by its checksums, and compared with these when it
comes. The folder is bounded: what was not used for longest goes first. Processes share it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

from timelapse.errors import Place as Where
from timelapse.errors import StorageError, UsageError
from timelapse.store.failures import writing
from timelapse.store.parts import BLOCK, Part, put_file
from timelapse.store.place import Place
from timelapse.store.places import absolute_path
from timelapse.store.scratch import is_dead, owner

FOLDER, LIMIT = "TIMELAPSE_OBJECTS", "TIMELAPSE_OBJECTS_LIMIT"
"""Environment variables: where copies are kept, and at most how many bytes of them."""
_MOST, _SHARE = 50 << 30, 0.2
"""Without a limit: so many bytes, or this share of what is free with them."""
_IN_USE = 600.0
"""What was used so many seconds ago stays, also above the limit: somebody may be about to open it."""
_TRIES = 2
_REMEDY = "restore it from a copy, or make the run or log again"
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_locks: dict[Path, threading.Lock] = {}
_guard = threading.Lock()
_since_swept = 0


def folder() -> Path:
    """Where copies are kept."""
    given = os.environ.get(FOLDER)
    if given:
        return absolute_path(given, "folder for copies")
    base = os.environ.get("TIMELAPSE_CACHE") or os.environ.get("XDG_CACHE_HOME")
    return (absolute_path(base, "cache") if base else Path.home() / ".cache") / "timelapse" / "objects"


def limit() -> int:
    """The most bytes that are kept. Raises UsageError for a text that is no size."""
    given = os.environ.get(LIMIT, "").strip().upper().removesuffix("IB").removesuffix("B").strip()
    if given:
        unit = given[-1] if given[-1] in _UNITS else ""
        number = given.removesuffix(unit).strip()
        if not number.isdecimal():
            raise UsageError(f"{LIMIT} is {os.environ[LIMIT]!r}", hint="set it to a size, such as 20G")
        return int(number) * _UNITS[unit]
    there = next((p for p in (folder(), *folder().parents) if p.exists()), Path("/"))
    held = sum(size for _, size, _ in _copies())
    return min(_MOST, int((shutil.disk_usage(there).free + held) * _SHARE))


def _path(place: Place, key: str, part: Part) -> Path:
    name = hashlib.blake2b(f"{place}\0{key}\0{part.bytes}\0{part.crc32}".encode(), digest_size=20).hexdigest()
    return folder() / name[:2] / name


def fetch(place: Place, key: str, part: Part) -> Path:
    """A copy of a file on this machine. Raises StorageError: TL931 where it is not what was written or is gone, TL932
    where there is no room, what the place raises."""
    path = _path(place, key, part)
    if _is_there(path, part):
        return path
    with _one_at_a_time(path):
        if not _is_there(path, part):
            _fetch(place, key, part, path)
            _keep_to_limit(part.bytes)
    return path


def adopt(place: Place, key: str, part: Part, made: Path) -> None:
    """Keep a local file, which was just put, as the copy of it. The file is gone then, where it lies on the same disk."""
    path = _path(place, key, part)
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        aside = _aside(path)
        try:
            os.rename(made, aside)
        except OSError:
            return  # another disk: it is fetched when it is wanted
        if aside.stat().st_size != part.bytes:
            aside.unlink()
            return
        aside.chmod(0o444)
        put_file(aside, path)
        os.utime(path)
        _keep_to_limit(part.bytes)


def _is_there(path: Path, part: Part) -> bool:
    try:
        found = path.stat()
    except OSError:
        return False
    if found.st_size != part.bytes:
        return False
    if time.time() - found.st_mtime > _IN_USE / 10:
        with suppress(OSError):
            os.utime(path)
    return True


@contextmanager
def _one_at_a_time(path: Path) -> Iterator[None]:
    """Threads of this process wait for the one that fetches a file. Processes may fetch it twice."""
    with _guard:
        lock = _locks.setdefault(path, threading.Lock())
    with lock:
        yield
    with _guard:
        _locks.pop(path, None)


def _aside(path: Path) -> Path:
    return path.with_name(f".{owner()}-{uuid4().hex[:8]}")


def check(place: Place, key: str, part: Part) -> str:
    """What is wrong with an object, "" for nothing: all of it is read. Raises FileNotFoundError, what the place raises."""
    return _sums(place, key, part, lambda piece: None)


def tail(place: Place, key: str, part: Part, size: int) -> bytes:
    """The last `size` bytes of an object or some more, compared with their checksums. Raises as `fetch` does."""
    first = max(0, part.bytes - size) // BLOCK
    found = b"".join(place.pieces(key, first * BLOCK))
    wrong = first * BLOCK + len(found) != part.bytes
    for block in range(first, len(part.blocks())):
        at = (block - first) * BLOCK
        wrong = wrong or zlib.crc32(found[at : at + BLOCK]) != part.of(block)
    if wrong:
        raise StorageError(
            "the object was altered: its end is not what was written", place=Where(f"{place}/{key}"), code="TL931", hint=_REMEDY
        )  # fmt: skip
    return found


def _fetch(place: Place, key: str, part: Part, path: Path) -> None:
    wrong = ""
    for _ in range(_TRIES):
        aside = _aside(path)
        try:
            with writing(path):
                path.parent.mkdir(parents=True, exist_ok=True)
                wrong = _write(place, key, part, aside)
                if not wrong:
                    aside.chmod(0o444)
                    put_file(aside, path)
                    return
        except FileNotFoundError:
            raise StorageError(
                "the object is gone", place=Where(f"{place}/{key}"), code="TL931",
                hint=_REMEDY,
            ) from None  # fmt: skip
        finally:
            aside.unlink(missing_ok=True)
    raise StorageError(
        f"the object was altered: {wrong}", place=Where(f"{place}/{key}"), code="TL931",
        hint=_REMEDY,
    )  # fmt: skip


def _write(place: Place, key: str, part: Part, aside: Path) -> str:
    """Fetch into a new file. Returns what is wrong with it, if something is."""
    with open(aside, "xb") as file:
        return _sums(place, key, part, file.write)


def _sums(place: Place, key: str, part: Part, take: Callable[[bytes], object]) -> str:
    found = size = held = 0
    sums = []
    for piece in place.pieces(key):
        take(piece)
        size += len(piece)
        view = memoryview(piece)
        while view:
            head = view[: BLOCK - held]
            found = zlib.crc32(head, found)
            held += len(head)
            view = view[len(head) :]
            if held == BLOCK:
                sums.append(found)
                found = held = 0
    if held:
        sums.append(found)
    if size != part.bytes:
        return f"it has {size:,} bytes, not the {part.bytes:,} that were written"
    for block, one in enumerate(sums):
        if one != part.of(block):
            last = min((block + 1) * BLOCK, size) - 1
            return f"bytes {block * BLOCK:,} to {last:,} are not those that were written"
    return ""


def _copies() -> list[tuple[float, int, Path]]:
    """When they were used, sizes, paths."""
    found = []
    for path in folder().glob("??/*"):
        with suppress(OSError):
            status = path.stat()
            found.append((status.st_mtime, status.st_size, path))
    return found


def _keep_to_limit(added: int) -> None:
    """Remove what was not used for longest. Looked at anew when a tenth of the limit has come."""
    global _since_swept
    most = limit()
    _since_swept += added
    if _since_swept < most // 10:
        return
    _since_swept = 0
    copies = sorted(_copies())
    total = sum(size for _, size, _ in copies)
    for used, size, path in copies:
        left = path.name.startswith(".") and is_dead(path.name[1:].rpartition("-")[0])
        if left or (total > most and time.time() - used > _IN_USE):
            with suppress(OSError):
                path.unlink()
            total -= size
