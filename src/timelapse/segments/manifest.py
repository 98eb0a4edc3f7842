"""The manifest: everything that is known about a log without reading its events. Stored as JSON.

A log's current manifest is `manifest.json`; appending keeps the one before as `manifests/<version>.json`,
so whoever opened an earlier version goes on reading exactly that.
"""

from __future__ import annotations

import hashlib
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import msgspec

from timelapse import __version__
from timelapse.decoding import decoded
from timelapse.errors import LogError, Place
from timelapse.segments.columns import Layout
from timelapse.segments.periods import Period
from timelapse.segments.types import EventType
from timelapse.store import manifests
from timelapse.store.parts import Part

FORMAT_VERSION = 1
NAME = "manifest.json"
REMEDY = "restore the file from a copy, or ingest the sources again"
"""What to do about a file of a log that was altered."""
_MASK = (1 << 64) - 1
_SHOWN = 20
"""Versions that an error names, the newest ones."""


class ContentHash(msgspec.Struct, frozen=True):
    """A hash of a run of events and of their positions, that can be moved and added up.

    Each lane holds the sum of the row hashes h and the sum of position times h, both modulo 2^64; so the hash
    of two runs one after the other follows from the two, wherever a log is cut into segments.
    """

    rows: int = 0
    sums: tuple[int, int] = (0, 0)
    placed: tuple[int, int] = (0, 0)

    def then(self, other: ContentHash) -> ContentHash:
        """The hash of this run followed by `other`."""
        low, high = ((self.placed[n] + other.placed[n] + self.rows * other.sums[n]) & _MASK for n in (0, 1))
        sums = ((self.sums[0] + other.sums[0]) & _MASK, (self.sums[1] + other.sums[1]) & _MASK)
        return ContentHash(self.rows + other.rows, sums, (low, high))

    def hex(self) -> str:
        return "".join(f"{n:016x}" for n in (*self.sums, *self.placed))


class FileEntry(msgspec.Struct, frozen=True):
    """One event type's file in a segment. `rows[b]` events stand in block b; a block without any has no row group."""

    type: int
    name: str
    bytes: int
    rows: list[int]
    crc32: str | None = None
    """Its checksums (store/parts.py); None: a version that kept none wrote it."""
    beside: list[str] = []
    """Columns that are no fields: where events come from (segments/beside.py)."""

    @property
    def part(self) -> Part | None:
        return None if self.crc32 is None else Part(self.bytes, self.crc32)


class SegmentEntry(msgspec.Struct, frozen=True):
    """A contiguous run of the log: seq `base` to `base + count`. Block b starts at index `starts[b]` in it."""

    folder: str
    base: int
    count: int
    starts: list[int]
    ts_first: list[int]
    ts_last: list[int]
    files: list[FileEntry]
    content: ContentHash
    days: dict[int, dict[int, int]]
    """Events per type (its index) and day (days since 1970, UTC)."""
    empty: dict[int, dict[str, dict[int, int]]] | None = None
    """Per type, field and day the events in which the field is None, an empty text or NaN, where there are some; None: a version that did not
    count them wrote it."""


class TypeEntry(msgspec.Struct, frozen=True):
    """A declared event type."""

    name: str
    fields: list[tuple[str, str]]
    count: int


class SourceEntry(msgspec.Struct, frozen=True):
    """What was read for one event type, how, and what was left out."""

    type: str
    source: dict[str, Any]
    rows: int
    bad: int
    skipped: int
    outside: int = 0
    """Rows whose time is outside the bounds that were given: they are in the quarantine."""
    without: dict[str, int] = {}
    """Optional fields for which files had no column, with the number of those files."""
    files: int = 0
    taken: dict[str, int] = {}
    """Its files, by path, with their sizes in bytes; of a log of an older version: none."""
    warnings: list[str] = []
    """What looked wrong about the source, for people."""
    read: int = 0
    """Rows that were read: events and all that was left out. 0 in logs of an older version."""
    filtered: int = 0
    """Rows that are not the source's: `only`."""
    duplicates: int = 0
    """Rows that are identical to another: one of them is an event."""
    conflicts: int = 0
    """Rows that are another's by `unique`, and differ from it: they are in the quarantine."""
    layouts: list[str] = []
    """How the columns of files differ from those of the file before, for people."""
    late: dict[str, int] = {}
    """How long after their events rows arrived, in microseconds: percentiles."""
    position: int = 0
    """Which of its type's sources it is, as the log's definition counts them."""
    bad_in: dict[str, int] = {}
    """Its bad rows by file; files without any are left out."""
    bad_days: dict[str, dict[int, int]] = {}
    """Of its bad rows those whose time can be read: how many by file ("" for what is none) and day (days since 1970, UTC). Ingests that
    did not count them have none: their bad rows are in no day's budget."""
    prints: dict[str, str] = {}
    """Of its files, by path: when each was changed, and a hash of its bytes (ingest/known.py)."""
    columns: list[Layout] = []
    """The columns of its files with their types, by layout, and of which days these files are (segments/columns.py)."""
    unused: list[str] = []
    """Of these columns those of which no field is made."""
    days_by: str = ""
    """What tells the days of files: their folders, their names, or their events."""
    displaced: int = 0
    """Events of the log as it was whose place rows took by `unique`: they are among the duplicates and conflicts, beside rows that were read."""
    back: int = 0
    """Of files: how far times of rows lie behind those of rows before them, at most, in microseconds."""


class IngestEntry(msgspec.Struct, frozen=True):
    """One ingest: the first, or an append."""

    version: int
    events: int
    max_bad: float
    sources: list[SourceEntry]
    quarantine: list[str]
    tool: str
    late: int = 0
    """Events before the end of the log as it was."""
    rewritten: int | None = None
    """The first seq from which events stand elsewhere than in the version before; None: all stand where they were."""
    replaced: dict[str, int] = {}
    """Files that were corrected and taken in again, with the number of events of their old versions, which are gone."""
    keys: dict[str, str] = {}
    """Of keys under which fields were hashed, by the environment's variable: what the key is known by (ingest/private.py)."""
    parts: dict[str, Part] = {}
    """The checksums of the quarantine's files, by name; a log of an older version has none."""


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """A log's manifest. `id` depends on types, events and positions, not on how they are cut into segments."""

    format: Literal["timelapse-log"] = "timelapse-log"
    format_version: int = FORMAT_VERSION
    version: int
    id: str
    count: int
    ts_first: int | None
    ts_last: int | None
    types: list[TypeEntry]
    segments: list[SegmentEntry]
    ingests: list[IngestEntry]
    segment: str | None = None
    """The period of time in which each segment lies, as it was given (segments/periods.py); None: segments end by their size alone."""
    seal: str | None = None
    """The checksum of this manifest as it is stored (store/manifests.py)."""

    @property
    def period(self) -> Period | None:
        """The period of time in which each segment lies."""
        return None if self.segment is None else Period.of(self.segment)

    @property
    def event_types(self) -> tuple[EventType, ...]:
        return tuple(EventType.parse(t.name, t.fields) for t in self.types)


class _Head(msgspec.Struct):
    format: str = ""
    format_version: int = 0


def tool() -> str:
    """What wrote a log, and its version: for the manifest."""
    return f"timelapse {__version__}"


def build(
    types: tuple[EventType, ...], segments: list[SegmentEntry], ingests: list[IngestEntry], version: int = 1,
    segment: str | None = None,
) -> Manifest:  # fmt: skip
    """A manifest of segments in log order: their bases, the totals and the id are computed here. `segment`: as of `Manifest`."""
    placed: list[SegmentEntry] = []
    base = 0
    content = ContentHash()
    counts = [0] * len(types)
    for one in segments:
        if one.count == 0:
            continue
        if placed and one.ts_first[0] < placed[-1].ts_last[-1]:
            raise LogError(
                f"segment {one.folder} starts before the end of {placed[-1].folder}: this is a bug in Timelapse"
            )
        placed.append(msgspec.structs.replace(one, base=base))
        base += one.count
        content = content.then(one.content)
        for file in one.files:
            counts[file.type] += sum(file.rows)
    schema = msgspec.json.encode([(t.name, t.texts) for t in types])
    digest = hashlib.blake2b(schema + b"\0" + f"{base} {content.hex()}".encode(), digest_size=16).hexdigest()
    return Manifest(
        version=version,
        id=digest,
        count=base,
        ts_first=placed[0].ts_first[0] if placed else None,
        ts_last=placed[-1].ts_last[-1] if placed else None,
        types=[TypeEntry(t.name, list(t.texts), n) for t, n in zip(types, counts, strict=True)],
        segments=placed,
        ingests=ingests,
        segment=segment,
    )


def write(folder: Path, manifest: Manifest) -> None:
    """Put the manifest in place: whole or not at all, also when the power fails."""
    data = manifests.sealed(msgspec.structs.replace(manifest, seal=manifests.UNSEALED), indent=1)
    manifests.replace(folder / NAME, data)


def keep(folder: Path, manifest: Manifest) -> None:
    """Keep a manifest that is about to be replaced, under its version."""
    kept = folder / "manifests"
    kept.mkdir(exist_ok=True)
    with suppress(FileExistsError):  # an append that was killed has kept it
        manifests.create(kept / f"{manifest.version:06d}.json", (folder / NAME).read_bytes())


def kept(folder: Path) -> list[int]:
    """The earlier versions of the log in a folder that are still there."""
    return sorted(int(p.stem) for p in (folder / "manifests").glob("*.json") if p.stem.isdecimal())


def read(folder: Path, version: int | None = None) -> Manifest:
    """The current manifest, or an earlier version's. Raises LogError, naming the file and what is wrong."""
    path = folder / NAME
    if not path.is_file():
        what = f"it has no {NAME}" if folder.is_dir() else "a file" if folder.exists() else "no such folder"
        raise LogError(
            f"not a log: {what}", place=Place(str(folder)), code="TL403",
            hint="make one with `timelapse ingest` or tl.Log.write",
        )  # fmt: skip
    manifest = _decode(path)
    if version is None or manifest.version == version:
        return manifest
    path = folder / "manifests" / f"{version:06d}.json"
    if not path.is_file():
        there = [*kept(folder), manifest.version]
        gone = "it was removed; " if 0 < version < manifest.version else ""
        raise LogError(
            f"the log has no version {version}", place=Place(str(folder)), code="TL403",
            hint=f"{gone}there {'is' if len(there) == 1 else 'are'} {', '.join(map(str, there[-_SHOWN:]))}",
        )  # fmt: skip
    return _decode(path)


def _decode(path: Path) -> Manifest:
    try:
        data = path.read_bytes()
        head = decoded(data, _Head)
        if head.format != "timelapse-log" or head.format_version != FORMAT_VERSION:
            raise LogError(
                f"format {head.format or '?'} {head.format_version}; this version reads timelapse-log {FORMAT_VERSION}",
                place=Place(str(path)), code="TL404", hint="open it with the version of Timelapse that wrote it",
            )  # fmt: skip
        manifests.check_seal(data, path, REMEDY)
        return decoded(data, Manifest)
    except (OSError, msgspec.DecodeError) as error:
        raise LogError(
            f"the manifest cannot be read: {error}", place=Place(str(path)), code="TL404",
            hint=REMEDY,
        ) from error  # fmt: skip
