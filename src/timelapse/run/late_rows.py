"""Where a log's next version may differ from it, and the boundary that lets a replay of that version go on from there.

A run in one slice can be gone on from at its end only. So the end of the log, which the next late rows may change, is a slice of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from timelapse.display import many, span
from timelapse.ids import DAY
from timelapse.log.part import rank
from timelapse.segments.manifest import IngestEntry, Manifest, SourceEntry
from timelapse.segments.reader import EventReader

_DEEPER = 2
"""The next late rows may be so many times as far from the end as those before."""

_LEAST = 64
"""At least one of so many events is behind such a cut: how many does not change what it costs."""

_WORTH = 3
"""The slice is so many times as long as what is cut off its end."""


@dataclass(frozen=True)
class Sign:
    """What tells where the next rows of a log may lie: from the time `since` on, or in its last `events`. `why`: for people."""

    why: str
    since: int | None = None
    events: int = 0


@dataclass(frozen=True)
class LateRows:
    """What a log tells of late rows. The first sign counts, a later one where the place of those before it is too far back.

    `told`: what appends have done to the log and what its rows say. `assumed`: where rows come late in most logs. `grows`: whether it was
    appended to, or made of several files, a folder, a pattern or a table, to which more may come.
    """

    told: tuple[Sign, ...] = ()
    assumed: tuple[Sign, ...] = ()
    grows: bool = False


@dataclass(frozen=True)
class EndApart:
    """The end of a log that is a slice of its own: the seq from which on, how many events these are, and why."""

    place: int
    events: int
    why: str

    def describe(self) -> dict[str, Any]:
        """For the certificate, and for `explain`."""
        return {"place": self.place, "events": self.events, "why": self.why}


def late_rows(manifest: Manifest) -> LateRows:
    """What a stored log tells of late rows."""
    last = manifest.ts_last
    if last is None:
        return LateRows()
    every = [source for ingest in manifest.ingests for source in ingest.sources]
    sources = [source for source in every if source.source.get("order") != "arrival"]
    if every and not sources:
        return LateRows()  # what comes is behind all there is
    told = _told(manifest, sources, last)
    if changed := _changed_back(manifest.ingests):
        why = f"an append has changed the last {many(changed, 'event', 'events')} of the log"
        told = (*(Sign(why, s.since, changed) for s in told), Sign(why, None, changed))
    day = last - last % DAY
    why = "nothing tells how late rows of the log come"
    assumed = (
        Sign(f"{why}: those of its last two days may", day - DAY),
        Sign(f"{why}: those of its last day may", last - DAY),
        Sign(f"{why}: those of its last moments may"),
    )
    return LateRows(told, assumed, _grows(manifest.ingests))


def _grows(ingests: Sequence[IngestEntry]) -> bool:
    if sum(bool(ingest.events) for ingest in ingests) > 1:
        return True
    for source in (source for ingest in ingests for source in ingest.sources if source.taken):
        named = source.source.get("from")
        names = {PurePath(path).name for path in named} if isinstance(named, list) else {""}
        if len(source.taken) > 1 or not names <= {PurePath(path).name for path in source.taken}:
            return True
    return False


def _changed_back(ingests: Sequence[IngestEntry]) -> int:
    """How many events before a log's end an append began to change it, at most; 0 where none did."""
    found = count = 0
    for ingest in ingests:
        if ingest.rewritten is not None:
            found = max(found, count - ingest.rewritten)
        count += ingest.events - sum(ingest.replaced.values())
    return found


def _told(manifest: Manifest, sources: Sequence[SourceEntry], end: int) -> tuple[Sign, ...]:
    """From which time on the next rows lie, if they come as late as the latest so far, now: where each type's rows come behind the day
    on which its last ones were, and where they come behind the log's end. Nothing where no source tells.

    How late rows came is told by the time at which they arrived, or else by how far they lie behind rows before them in their files.
    """
    last: dict[str, int] = {}
    for segment in manifest.segments:
        for number, days in segment.days.items():
            name = manifest.types[number].name
            last[name] = max(*days, last.get(name, min(days)))
    found = [
        (late, last[source.type] * DAY, bool(source.late))
        for source in sources
        if source.type in last and (late := source.late.get("most", source.back))
    ]
    if not found:
        return ()
    most, _, arrived = max(found)
    why = (
        f"rows arrived up to {span(most)} late"
        if arrived
        else f"rows stand up to {span(most)} out of order in their files"
    )
    return (Sign(why, min(day - late for late, day, _ in found)), Sign(why, end - most))


def end_apart_text(found: Mapping[str, Any]) -> str:
    """What is said of the end of a log that is a slice of its own, as a certificate has it."""
    events = many(found["events"], "event is a slice of its own", "events are a slice of their own")
    return f"the last {events}, before which a replay goes on once late rows have come: {found['why']}"


def end_apart(reader: EventReader, cuts: Sequence[int], signs: Sequence[Sign]) -> EndApart | None:
    """Where the last slice is cut once more: before the events that the next late rows may change, by what these tell. None: nowhere.

    A replay of the next version then goes on from there, and not from the beginning of the slice: for a part of this replay's processor
    time, so only where that slice is `_WORTH` times as long.
    """
    begin = rank(reader, cuts[-2]) if cuts[-2] else 0
    for sign in signs:
        count = max(sign.events, reader.count // _LEAST)
        if sign.since is not None:
            count = max(count, reader.count - rank(reader, reader.seq_at(sign.since)))
        place = reader.count - _DEEPER * count
        if count and place - begin >= (_WORTH - 1) * (reader.count - place):
            return EndApart(reader.seq_after(place), reader.count - place, sign.why)
    return None
