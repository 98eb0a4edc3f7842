"""Taking sources into a log: a new one, or more of it. What comes out is `log/`'s; its readers need nothing of this."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from timelapse.errors import IngestError, LogError, Place
from timelapse.ingest import late as late_events
from timelapse.ingest import making
from timelapse.ingest.drift import unlike_before
from timelapse.ingest.known import gone_with
from timelapse.ingest.private import known_keys
from timelapse.ingest.source import Source, as_sources, by_class
from timelapse.ingest.unique import Before
from timelapse.model.events import Event
from timelapse.progress import Progress
from timelapse.segments import manifest as stored
from timelapse.segments.periods import Period
from timelapse.segments.place import changing, check_free, whole_folder
from timelapse.segments.reader import LogReader
from timelapse.segments.types import EventType, event_types
from timelapse.segments.versions import remove_unnamed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


Late = Literal["include", "refuse"]
"""What an append does with events before the log's end: puts them in their places, or is an error."""


def write_log(
    target: Path, sources: Mapping[type[Event], Any], options: Mapping[str, Any],
    spark: SparkSession | Literal[False] | None, *, max_bad: float, overwrite: bool, rows: int | None, partitions: int | None, progress: Progress | None = None,
    segment: str | None = None,
) -> Path:  # fmt: skip
    """Ingest sources into a new log at `target`: the work of `Log.write`. Raises IngestError, LogError, UsageError."""
    period = None if segment is None else Period.of(segment)
    types = event_types(by_class(sources))
    wanted = [
        (kind, one)
        for kind, given in zip(types, sources.values(), strict=True)
        for one in as_sources(given, options)
    ]
    if not wanted:
        raise IngestError("no sources", hint="give {EventClass: source}", code="TL411")
    check_free(target, overwrite=overwrite)
    keys = known_keys(wanted, [])
    with whole_folder(target, overwrite=overwrite) as folder:
        (folder / "segments").mkdir()
        (folder / "quarantine").mkdir()
        prepared, reports = making.ingest(
            spark, wanted, folder, None, rows, partitions, None, progress, period
        )  # fmt: skip
        segments, entry = making.accepted(prepared, reports, max_bad, 1)
        made = stored.build(types, segments, [msgspec.structs.replace(entry, keys=keys)], segment=segment)
        making.check_days(prepared, reports, made)
        making.clean(folder, segments, entry)
        stored.write(folder, made)
    return target


def append_to(
    path: Path, sources: Mapping[type[Event], Any], options: Mapping[str, Any],
    spark: SparkSession | Literal[False] | None, *, max_bad: float, rows: int | None, partitions: int | None, late: Late = "include",
    corrected: Mapping[str, Sequence[str]] | None = None,
) -> None:  # fmt: skip
    """Add events to the log at `path`: the work of `Log.append`. Raises EventOrderError, IngestError, LogError.

    `corrected`: files by type that the log has, and that are among the sources as they are now: their old events go.
    """
    with changing(path) as (log, folder):
        current = stored.read(log)
        known = {t.name: n for n, t in enumerate(current.event_types)}
        given = [
            (kind, as_sources(s, options))
            for kind, s in zip(event_types(by_class(sources)), sources.values(), strict=True)
        ]
        wanted: dict[int, list[tuple[EventType, Source]]] = {}
        for kind, own in given:
            if kind not in current.event_types:
                raise LogError(
                    f"{kind} is not a type of this log", place=Place(str(path)), code="TL407",
                    hint="its types: " + "; ".join(str(t) for t in current.event_types)
                    + ". A log keeps the types that it was made with: make it anew (--overwrite) with all of them",
                )  # fmt: skip
            wanted[known[kind.name]] = [(kind, source) for source in own]
        numbers = sorted(wanted)  # the declared order of the log, whatever the order of `sources`
        keys = known_keys([one for n in numbers for one in wanted[n]], current.ingests)
        remove_unnamed(folder, current)
        reader = LogReader.of(log, current)
        gone, replaced = (
            gone_with(dataclasses.replace(reader, beside=True), current, corrected) if corrected else ((), {})
        )
        if gone:
            reader = LogReader.of(log, current, gone)
        staging = folder / f".append-{making.unique()}"
        staging.mkdir()
        try:
            (staging / "segments").mkdir()
            (staging / "quarantine").mkdir()
            prepared, reports = making.ingest(
                spark,
                [one for n in numbers for one in wanted[n]],
                staging,
                current.ts_last if late == "refuse" else None,
                rows,
                partitions,
                Before.of(
                    log,
                    current,
                    reader,
                    corrected or {},
                    unique=any(s.unique for n in numbers for _, s in wanted[n]),
                ),
                period=current.period,
            )
            making.refuse_early(reports, current.ts_last)
            if late == "refuse":
                making.refuse_displaced(reports, path)
            gone = tuple(sorted({*gone, *(seq for r in reports for seq in r.gone)}))
            segments, entry = making.accepted(prepared, reports, max_bad, current.version + 1)
            segments = [making.renumbered(s, numbers) for s in segments]
            told = [
                msgspec.structs.replace(s, layouts=[*unlike_before(p, s, current.ingests), *s.layouts])
                for p, s in zip(prepared, entry.sources, strict=True)
            ]
            entry = msgspec.structs.replace(entry, replaced=replaced, sources=told, keys=keys)
            every = [*current.segments, *segments]
            early = (
                bool(segments) and current.ts_last is not None and segments[0].ts_first[0] <= current.ts_last
            )
            if early or gone:
                (staging / "merged" / "segments").mkdir(parents=True)
                every, segments, count, first = late_events.merge(
                    log, current, staging, segments, staging / "merged" / "segments", entry, gone
                )
                entry = msgspec.structs.replace(entry, late=count, rewritten=first)
            manifest = stored.build(
                current.event_types,
                every,
                [*current.ingests, entry],
                current.version + 1,
                current.segment,
            )
            making.check_days(prepared, reports, manifest)
            making.adopt(
                staging,
                folder,
                segments,
                entry,
                (staging / "merged" if early or gone else staging) / "segments",
            )
            stored.keep(folder, current)
            stored.write(folder, manifest)
        finally:
            shutil.rmtree(staging, ignore_errors=True)
