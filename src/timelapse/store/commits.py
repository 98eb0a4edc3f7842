"""Versions of a place: files that are written once, and a commit that lists them, created once.

    commits/00000001               put-if-absent. JSON: the version's files, by the names they have for readers
    parts/00000001-<random>/...    the files that an attempt at version 1 wrote
    floors/00000003                versions below 3 were removed

A version is what the newest commit lists. A writer puts its files under a name of its own, then the commit; two writers of a version
are told apart by that put alone, without locks, renames and clocks. What an attempt wrote that no commit lists is never seen. It is garbage
once the commit that it was made for is there, since that cannot list it any more; so cleaning needs no clock either.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import msgspec

from timelapse.decoding import decoded
from timelapse.errors import Place as Where
from timelapse.errors import StorageError
from timelapse.store.manifests import UNSEALED, check_seal, sealed
from timelapse.store.parts import Part, altered, part_at
from timelapse.store.place import Place

FORMAT = "timelapse-place"
FORMAT_VERSION = 1
REMEDY = "restore it from a copy, or make what was here again"
_COMMITS, _PARTS, _FLOORS = "commits", "parts", "floors"
OWN = (_COMMITS, _PARTS, _FLOORS)
"""Folders of a place that are not its content."""
_UPLOADS = 8
_TRIES = 5


class Entry(msgspec.Struct, frozen=True):
    """A file of a version: where it lies, its size and checksums, when it was written (seconds since 1970, the writer's clock)."""

    key: str
    part: Part
    written: float


class Commit(msgspec.Struct, frozen=True):
    """A version: its number, who made it (an attempt's name), and its files by name."""

    format: str
    format_version: int
    number: int
    attempt: str
    files: dict[str, Entry]
    seal: str


def commit_name(number: int) -> str:
    return f"{_COMMITS}/{number:08d}"


def newest(place: Place) -> int:
    """The number of the newest version; 0 where there is none."""
    return max(_numbers(place, _COMMITS), default=0)


def _numbers(place: Place, folder: str) -> list[int]:
    return [int(n) for n in place.names(folder) if n.isdecimal()]


def read(place: Place, number: int) -> Commit:
    """A version. Raises FileNotFoundError, StorageError (TL931: altered; TL938: of a later format)."""
    name = commit_name(number)
    data, where = place.read(name), Path(f"{place}/{name}")
    try:
        head = decoded(data, dict[str, object])
        if head.get("format") != FORMAT or head.get("format_version") != FORMAT_VERSION:
            raise StorageError(
                f"the commit has format {head.get('format')!r} {head.get('format_version')!r}; this version reads {FORMAT} {FORMAT_VERSION}",
                place=Where(f"{place}/{name}"), hint="open it with the version of Timelapse that wrote it", code="TL938",
            )  # fmt: skip
        check_seal(data, where, REMEDY)
        found = decoded(data, Commit)
    except msgspec.MsgspecError as error:
        raise _altered(place, name, f"it is no commit: {error}") from None
    except StorageError as error:
        if error.code == "TL931":
            raise _altered(place, name, "its text does not have the checksum that it holds") from None
        raise
    if found.number != number:
        raise _altered(place, name, f"it has version {found.number}")
    return found


def _altered(place: Place, name: str, what: str) -> StorageError:
    found = altered(Path(name), what, REMEDY)
    return StorageError(found.message, place=Where(f"{place}/{name}"), hint=found.hint, code="TL931")


def publish(
    place: Place, made: Mapping[str, Path], *, before: int, kept: Mapping[str, Entry] | None = None,
    parts: Mapping[str, Part] | None = None, told: Callable[[int, int], None] | None = None,
) -> Commit:  # fmt: skip
    """Put files and make them, with those that are `kept` from version `before`, the next version: that or nothing.

    `made`: local files by name. `parts`: sizes and checksums that are known of them. `told` hears after each file how many bytes of how
    many are put. Raises StorageError: TL933 where another version was put after `before`, TL939 where it was removed meanwhile;
    what the place raises. Then nothing is seen of the files.
    """
    number = before + 1
    attempt = f"{number:08d}-{uuid4().hex[:16]}"
    written = time.time()
    known = dict(parts or {})
    sums = {name: known[name] if name in known else part_at(path) for name, path in made.items()}
    total, done = sum(part.bytes for part in sums.values()), 0
    entries = {name: Entry(f"{_PARTS}/{attempt}/{name}", sums[name], written) for name in made}
    try:
        with ThreadPoolExecutor(_UPLOADS, thread_name_prefix="upload") as pool:
            jobs = {
                pool.submit(place.upload, entries[n].key, path): sums[n].bytes for n, path in made.items()
            }
            try:
                for job, size in jobs.items():
                    job.result()
                    done += size
                    if told is not None:
                        told(done, total)
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
        if newest(place) > before:  # the put would tell as well; so there is less to remove
            raise second(place)
        commit = Commit(FORMAT, FORMAT_VERSION, number, attempt, {**(kept or {}), **entries}, UNSEALED)
        data = sealed(commit, indent=1)
        _put(place, commit_name(number), data)
        if any(floor > number for floor in _numbers(place, _FLOORS)):
            raise StorageError(
                f"version {number} was made and removed by others meanwhile: what was written here does not count",
                place=Where(str(place)), hint="run the same command again", code="TL939",
            )  # fmt: skip
    except StorageError as error:
        if error.code in ("TL933", "TL939"):
            with suppress(OSError, StorageError):
                place.remove([entry.key for entry in entries.values()])
        raise
    return decoded(data, Commit)


def _put(place: Place, name: str, data: bytes) -> None:
    """Create a commit. After any answer but success the place is asked what is there: the same bytes are this writer's."""
    for _ in range(_TRIES):
        try:
            place.create(name, data)
        except FileExistsError:
            try:
                found = place.read(name)
            except FileNotFoundError:  # two at once, and neither has won
                continue
            if found != data:
                raise second(place) from None
        return
    raise StorageError(
        "the store neither takes the commit nor has one", place=Where(f"{place}/{name}"), code="TL935",
        hint="run the same command again",
    )  # fmt: skip


def second(place: Place) -> StorageError:
    """The error for who comes second."""
    return StorageError(
        "another was put here meanwhile", place=Where(str(place)), code="TL933",
        hint="nothing of it was changed: look at what is there now, then run the same command again, or choose another place",
    )  # fmt: skip


def clean(place: Place, keep: int = 1) -> int:
    """Remove versions but the newest `keep`, what only they list, and what attempts left that cannot be committed any more.

    Returns how many files went. Who reads a version that is removed finds its files gone.
    """
    numbers = sorted(_numbers(place, _COMMITS))
    if not numbers:
        return 0
    stay = numbers[-keep:]
    gone = [n for n in numbers if n < stay[0]]
    if gone:
        with suppress(FileExistsError):
            place.create(f"{_FLOORS}/{stay[0]:08d}", b"{}")
    listed = {entry.key for n in stay for entry in read(place, n).files.values()}
    lost = [
        one.name
        for one in place.files(_PARTS)
        if one.name not in listed and _made_for(one.name) <= numbers[-1]
    ]
    floors = sorted(_numbers(place, _FLOORS))[:-1]
    place.remove([*(commit_name(n) for n in gone), *lost, *(f"{_FLOORS}/{n:08d}" for n in floors)])
    return len(gone) + len(lost)


def _made_for(key: str) -> int:
    """The version for which an attempt wrote a file. Of what has another name: a number that no version has yet."""
    number = key.split("/")[1].partition("-")[0]
    return int(number) if number.isdecimal() else 1 << 62


def foreign(place: Place) -> Iterable[str]:
    """What lies at a place besides versions."""
    return [name for name in place.names("") if name not in OWN]
