"""What a log holds, for people: types, counts, span, events per day, sizes."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from timelapse.display import many
from timelapse.segments.days import day_text
from timelapse.segments.gaps import gaps_of, silent_fields
from timelapse.segments.manifest import IngestEntry, Manifest, SourceEntry
from timelapse.segments.quarantine import count_bad, still_told


@dataclass(frozen=True)
class TypeInfo:
    """One event type of a log: its fields (name, type text), events, and bytes on disk."""

    name: str
    fields: tuple[tuple[str, str], ...]
    count: int
    bytes: int


@dataclass(frozen=True)
class LogInfo:
    """What `timelapse log` shows. Times are microseconds; `days` has events per day (UTC) and type, by ISO date."""

    path: str
    id: str
    version: int
    count: int
    ts_first: int | None
    ts_last: int | None
    types: tuple[TypeInfo, ...]
    days: dict[str, dict[str, int]]
    missing_days: tuple[str, ...]
    gaps: tuple[str, ...]
    """What looks missing, for people: types that end early, days with far fewer events than those around them."""
    bytes: int
    segments: int
    segment: str | None
    """The period in which each segment lies, where they are cut by time."""
    bad: int
    skipped: int
    outside: int
    ingests: tuple[IngestEntry, ...]
    told: tuple[tuple[SourceEntry, ...], ...]
    """What ingests say of their sources, but for those all of whose files were corrected since."""


def info_of(path: Path, manifest: Manifest, only: Collection[str] | None = None) -> LogInfo:
    """What the manifest of the log at `path` says, counted together: of all event types or of some. No events are read."""
    names = [t.name for t in manifest.types]
    shown = [t for t in manifest.types if only is None or t.name in only]
    some = {t.name for t in shown}
    per_day: dict[int, dict[str, int]] = {}
    sizes = dict.fromkeys(names, 0)
    for segment in manifest.segments:
        for number, days in segment.days.items():
            for day, n in days.items() if names[number] in some else ():
                own = per_day.setdefault(day, {})
                own[names[number]] = own.get(names[number], 0) + n
        for file in segment.files:
            sizes[names[file.type]] += file.bytes
    present = sorted(per_day)
    absent = [b for a, c in pairwise(present) if c - a <= 3660 for b in range(a + 1, c)]
    sources = [s for i in manifest.ingests for s in i.sources]
    told = still_told(manifest.ingests)
    last = [s for own in told for s in own]
    silent = silent_fields({name: own for name, own in _empties(manifest).items() if name in some})
    by_day = {day_text(day): per_day[day] for day in present}
    # what existed before the log has one time, and ends nowhere
    begin = {
        name
        for name in some
        if (made := [s for s in sources if s.type == name]) and all("at" in s.source for s in made)
    }
    going = [t.name for t in shown if t.name not in begin]
    return LogInfo(
        path=str(path), id=manifest.id, version=manifest.version, count=manifest.count,
        ts_first=manifest.ts_first, ts_last=manifest.ts_last,
        types=tuple(
            TypeInfo(t.name, tuple(t.fields), t.count, sizes[t.name]) for t in shown
        ),
        days=by_day, missing_days=tuple(map(day_text, absent)), gaps=(*gaps_of(by_day, going), *silent),
        bytes=sum(sizes[t.name] for t in shown), segments=len(manifest.segments), segment=manifest.segment,
        bad=count_bad(manifest.ingests),
        skipped=sum(s.skipped for s in last), outside=sum(s.outside for s in last), ingests=tuple(manifest.ingests),
        told=tuple(map(tuple, told)),
    )  # fmt: skip


def _empties(manifest: Manifest) -> dict[str, dict[str, dict[str, tuple[int, int]]]]:
    """Per type, field and day in how many events the field is empty, and of how many; nothing where some segment does not tell."""
    if any(segment.empty is None for segment in manifest.segments):
        return {}
    counts: dict[int, dict[int, int]] = {}
    empty: dict[tuple[int, str], dict[int, int]] = {}
    for segment in manifest.segments:
        for number, days in segment.days.items():
            own = counts.setdefault(number, {})
            for day, n in days.items():
                own[day] = own.get(day, 0) + n
        for number, fields in (segment.empty or {}).items():
            for name, days in fields.items():
                found = empty.setdefault((number, name), {})
                for day, n in days.items():
                    found[day] = found.get(day, 0) + n
    made: dict[str, dict[str, dict[str, tuple[int, int]]]] = {}
    for (number, name), days in empty.items():
        told = {day_text(day): (days.get(day, 0), n) for day, n in counts.get(number, {}).items()}
        made.setdefault(manifest.types[number].name, {})[name] = told
    return made


_DAYS_TOLD = 5


def no_events_on(days: Sequence[str]) -> str:
    """Days of a log without events (ISO dates, at least one), as people are told of them everywhere."""
    shown = ", ".join(days[:_DAYS_TOLD]) + (" ..." if len(days) > _DAYS_TOLD else "")
    return f"no events on {many(len(days), 'day', 'days')} in between: {shown}"
