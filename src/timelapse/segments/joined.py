"""A log followed by a later one, read as one log. Nothing is written."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from timelapse.errors import EventOrderError, LogError, Place
from timelapse.moments import shown_time
from timelapse.segments import manifest as stored
from timelapse.segments.manifest import Manifest, SegmentEntry
from timelapse.segments.types import EventType
from timelapse.store.remote import pinned


def joined(parts: Sequence[tuple[Path, Manifest]]) -> Manifest:
    """The manifest of logs one after the other: folders of segments are absolute, and `id` is that of one log with all events.

    Raises EventOrderError where a log begins before the end of the one before it, LogError (TL409) where a type has other
    fields in one than in another.
    """
    types: dict[str, EventType] = {}
    segments: list[SegmentEntry] = []
    end: int | None = None
    for path, manifest in parts:
        if end is not None and manifest.ts_first is not None and manifest.ts_first < end:
            raise EventOrderError(
                f"this log begins at {shown_time(manifest.ts_first)}, before the end of the log that it is to follow, at {shown_time(end)}",
                place=Place(str(path)), hint="give a log with later events only", code="TL408",
            )  # fmt: skip
        end = end if manifest.ts_last is None else manifest.ts_last
        for kind in manifest.event_types:
            known = types.setdefault(kind.name, kind)
            if known.texts != kind.texts:
                raise LogError(
                    f"{kind.name} has {_fields(kind)} here, and {_fields(known)} in the log before",
                    place=Place(str(path)), hint="ingest both with the same event class", code="TL409",
                )  # fmt: skip
        number = {name: at for at, name in enumerate(types)}
        own = [number[kind.name] for kind in manifest.event_types]
        for segment in manifest.segments:
            folder = pinned((path / "segments" / segment.folder).absolute())
            files = [msgspec.structs.replace(file, type=own[file.type]) for file in segment.files]
            segments.append(msgspec.structs.replace(segment, folder=folder, files=files))
    return stored.build(tuple(types.values()), segments, [])


def version_with(path: Path, log_id: str) -> Manifest | None:
    """The manifest of the version of a stored log that has an id; None where no version that is kept has it."""
    newest = stored.read(path)
    for version in range(newest.version, 0, -1):
        try:
            found = newest if version == newest.version else stored.read(path, version)
        except LogError:
            continue  # it is not kept any more
        if found.id == log_id:
            return found
    return None


def _fields(kind: EventType) -> str:
    return ", ".join(f"{name}: {text}" for name, text in kind.texts)
