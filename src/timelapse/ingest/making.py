"""What writing a log and adding to it have in common: run the ingest, judge what it found, put files in their places."""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from uuid import uuid4

import msgspec

from timelapse.display import many
from timelapse.env.garbage import memory_reused
from timelapse.errors import EventOrderError, IngestError, Place, UsageError
from timelapse.ids import DAY
from timelapse.ingest import drift
from timelapse.ingest.files import changed_since
from timelapse.ingest.noticed import Noticed, goes_back, lateness, warnings_of
from timelapse.ingest.parse import NOT_UTF8, OPEN_CELL
from timelapse.ingest.prepare import types_of
from timelapse.ingest.source import Source, no_source
from timelapse.ingest.task import BadRow, TaskReport
from timelapse.ingest.unique import rule_of
from timelapse.moments import shown_time, time_text
from timelapse.progress import Progress
from timelapse.segments import manifest as stored
from timelapse.segments.manifest import IngestEntry, Manifest, SegmentEntry, SourceEntry
from timelapse.segments.periods import Period, check_number
from timelapse.segments.quarantine import bad_days
from timelapse.segments.types import EventType
from timelapse.store.moves import move

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from timelapse.ingest.prepare import Prepared
    from timelapse.ingest.unique import Before


def unique() -> str:
    """A name that no other folder has."""
    return uuid4().hex[:12]


def ingest(
    spark: SparkSession | Literal[False] | None, sources: Sequence[tuple[EventType, Source]], folder: Path, floor: int | None,
    rows: int | None, partitions: int | None, before: Before | None = None, progress: Progress | None = None,
    period: Period | None = None,
) -> tuple[list[Prepared], list[TaskReport]]:  # fmt: skip
    """Read and sort the sources and write them below `folder`: in this process where that is enough, else on Spark.

    Several sources of one type stand one after the other. Segments number types by their order here.

    `before`: the log that is appended to. `floor`: no event may be earlier (microseconds). `rows`, `partitions`: as for `Log.write`. `period`: each segment
    lies in one. Raises IngestError, and UsageError where `spark` is False and this process is not enough.
    """
    from timelapse.ingest import in_process

    for kind, source in sources:  # before Spark is started
        known = source.is_files or source.is_table or source.in_catalog is not None
        if not known and not hasattr(source.data, "mapInArrow"):
            raise no_source(source.data, Place(what=kind.name))
        rule_of(kind, [one for other, one in sources if other == kind])
    if not spark and partitions is None:
        with memory_reused():
            room = in_process.room(sources, before)
            if (
                room.here
                and (done := in_process.run(sources, folder, floor, room.most, before, progress, period))
                is not None
            ):
                return done[0], [done[1]]
    if spark is False:
        raise UsageError(
            "these sources need Spark, and Log.write(spark=False) never uses it", code="TL810",
            hint="say nothing of Spark: its DataFrames and tables, a stated number of partitions and what is larger than the memory that may be used need it",
        )  # fmt: skip
    from timelapse.env.spark_failures import explained, is_sparks
    from timelapse.env.spark_session import session
    from timelapse.ingest import on_spark, prepare_spark

    frames: list[Any] = [s.data for _, s in sources if hasattr(s.data, "mapInArrow")]
    used = session(spark or (frames[0].sparkSession if frames else None))
    prepared: list[Prepared] = []
    try:
        prepared = prepare_spark.prepare(used, sources, floor, rows, before)
        reports = on_spark.run(used, prepared, folder, partitions, before, period)
    except Exception as error:
        if not is_sparks(error):
            raise
        raise explained(error, "ingest") from error
    finally:
        for one in prepared:
            one.close()
    for report in reports:
        if report.fatal is not None:
            code, message, place, hint = report.fatal
            raise IngestError(str(message), place=Place(what=place), hint=hint, code=str(code))
    check_number(period, [s for r in reports for s in r.segments])
    return prepared, reports


def accepted(
    prepared: Sequence[Prepared], reports: Sequence[TaskReport], max_bad: float, version: int
) -> tuple[list[SegmentEntry], IngestEntry]:
    """The segments and the ingest's entry. Raises IngestError when a source has too many bad rows."""
    segments = [s for r in reports for s in r.segments]
    entries: list[SourceEntry] = []
    seen: list[Noticed] = []
    files = [f.path for p in prepared for f in p.files]
    base = 0
    for number, one in enumerate(prepared):
        bad = sum(r.bad.get(number, 0) for r in reports)
        skipped = sum(r.skipped.get(number, 0) for r in reports)
        outside = sum(r.outside.get(number, 0) for r in reports)
        noticed = Noticed()
        for report in reports:
            noticed.add(report.noticed.get(number, Noticed()))
        seen.append(noticed)
        good = noticed.events
        without = _without(one, noticed, good)
        name = one.plan.kind.name
        duplicates = sum(r.duplicates.get(number, 0) for r in reports)
        conflicts = sum(r.conflicts.get(number, 0) for r in reports)
        displaced = sum(r.displaced.get(number, 0) for r in reports)
        events = good + displaced - duplicates - conflicts
        told = good + bad + skipped + outside + noticed.filtered
        if noticed.read != told:
            raise IngestError(
                f"{name}: {noticed.read:,} rows were read, and {told:,} accounted for: this is a bug in Timelapse",
                hint="nothing was written; please report it", code="TL000",
            )  # fmt: skip
        most = max_bad if one.source.max_bad is None else one.source.max_bad
        if bad > most * (good + bad):
            shown = _of_type(one.plan.kind, _first_bad(reports))
            raise IngestError(
                f"{name}: {bad:,} of {good + bad:,} rows are bad ({bad / (good + bad):.2%}), more than {most:.2%}\n"
                + "\n".join(map(_show, shown)),
                place=_place(shown), code="TL414",
                hint=_remedy(shown, "max_bad= (--max-bad)"),
            )  # fmt: skip
        warnings = [
            *_without_rows(one, noticed, base),
            *_grown(one),
            *warnings_of(name, noticed, files, time.time_ns() // 1000),
        ]
        taken = {f.path: f.size for f in one.files} if one.source.is_files else {}
        bad_in = {files[n]: counts[1] for n, counts in sorted(noticed.files.items()) if n >= 0 and counts[1]}
        back = goes_back(noticed, range(base, base + len(one.files))) if one.source.is_files else 0
        bad_days = {
            files[n] if one.source.is_files else "": days for n, days in sorted(noticed.bad_days.items())
        }
        entries.append(
            SourceEntry(name, one.source.describe() | one.told, events, bad, skipped, outside, without, max(len(one.files), 1),
                taken, warnings, noticed.read, noticed.filtered,
                duplicates, conflicts, one.layouts, lateness(noticed), max(one.source.position, 0),
                bad_in if one.source.is_files else {}, bad_days, one.prints, *drift.layouts(one, noticed, base), displaced, back)
        )  # fmt: skip
        base += len(one.files)
    _check_files(prepared, seen, files, _first_bad(reports))
    total = sum(s.count for s in segments)
    if total != sum(one.rows for one in entries):
        raise IngestError(
            f"{total:,} events were written, and {sum(one.rows for one in entries):,} accounted for: this is a bug in Timelapse",
            hint="nothing was written; please report it", code="TL000",
        )  # fmt: skip
    quarantine = [r.quarantine for r in reports if r.quarantine is not None]
    parts = {r.quarantine: r.quarantine_part for r in reports if r.quarantine and r.quarantine_part}
    made = IngestEntry(version, total, max_bad, entries, quarantine, stored.tool(), parts=parts)
    return segments, made


def _without(one: Prepared, noticed: Noticed, good: int) -> dict[str, int]:
    """Optional fields without a column. JSON lines say only now which they have: raises IngestError for a mapped one."""
    if one.plan.format != "json" and one.plan.applied is None:
        return one.without
    if not good:  # no object was read: nothing can be said
        return {}
    one.plan.check_mapped(noticed.columns, one.files[0].path if one.files else "")
    return dict.fromkeys(one.plan.without_column(noticed.columns), len(one.files))


def _without_rows(one: Prepared, noticed: Noticed, base: int) -> list[str]:
    """A warning where text files have no row: an export that failed looks so. `base` is the number of the first file."""
    if (
        not one.source.is_files
        or one.source.elsewhere is not None
        or one.plan.format not in ("csv", "json", "text")
    ):
        return []
    empty = [f.path for n, f in enumerate(one.files, base) if not noticed.files.get(n, [0])[0]]
    if not empty:
        return []
    others = f" and {many(len(empty) - 1, 'other file', 'other files')}" if len(empty) > 1 else ""
    return [f"{one.plan.kind.name}: no rows in {empty[0]}{others}"]


def _grown(one: Prepared) -> list[str]:
    """A warning for each file that grew while it was read. Raises IngestError for one that was changed otherwise: what was read of it may be of both."""
    if not one.source.is_files or one.source.elsewhere is not None:
        return []
    changed = changed_since(one.source.paths, one.files)
    for was, now in changed:
        if now.size <= was.size:
            raise IngestError(
                f"the file was changed while it was read: it had {was.size:,} bytes, and has {now.size:,}"
                + " others" * (now.size == was.size), place=Place(was.path), code="TL412",
                hint="nothing was written; ingest it when nothing writes to it any more, or a copy of it",
            )  # fmt: skip
    return [
        f"{one.plan.kind.name}: {was.path} grew from {was.size:,} to {now.size:,} bytes while it was read: rows that came meanwhile may be missing, "
        "and the last one may be cut; ingest it again when it is complete"
        for was, now in changed
    ]


def _place(shown: Sequence[BadRow]) -> Place | None:
    return Place(shown[0].file, shown[0].line) if shown else None


def check_days(prepared: Sequence[Prepared], reports: Sequence[TaskReport], made: Manifest) -> None:
    """Raise IngestError (TL414) where too many rows of a type are bad on a day of which the last ingest of `made`, the log to be, has some.

    Those of earlier ingests count, too, but for days before the log's first event: their events may have been left out since (`keep`).
    """
    numbers = {t.name: n for n, t in enumerate(made.types)}
    for kind in types_of(prepared):
        most, least = _day_budget([one.source for one in prepared if one.plan.kind == kind])
        earlier, number = bad_days(made.ingests, kind.name), numbers[kind.name]
        for day, count in sorted(bad_days(made.ingests[-1:], kind.name).items()):
            known = 0 if made.ts_first is None or day < made.ts_first // DAY else earlier[day] - count
            rows = known + count + sum(s.days.get(number, {}).get(day, 0) for s in made.segments)
            if known + count >= least and known + count > most * rows:
                where = f"{kind.name}: on {time_text(day * DAY)[:10]}"
                told = f", {known:,} of them in earlier ingests" if known else ""
                raise _too_many(
                    where, known + count, rows, most, f"day{told}", _of_type(kind, _first_bad(reports))
                )


def _check_files(
    prepared: Sequence[Prepared], seen: Sequence[Noticed], files: Sequence[str], shown: Sequence[BadRow]
) -> None:
    """Raise IngestError (TL414) where of too many rows of a file the time cannot be read."""
    for kind in types_of(prepared):
        own = [n for n, one in enumerate(prepared) if one.plan.kind == kind]
        most, least = _day_budget([prepared[n].source for n in own])
        for n in own:
            for file, (rows, _, count) in sorted(seen[n].files.items()):
                if count >= least and count > most * rows:
                    where = files[file] if 0 <= file < len(files) else "the data"
                    raise _too_many(
                        f"{kind.name}: in {where}", count, rows, most, "file", _of_type(kind, shown)
                    )


def _first_bad(reports: Sequence[TaskReport]) -> list[BadRow]:
    return [bad for report in reports for bad in report.first_bad]


def _of_type(kind: EventType, shown: Sequence[BadRow]) -> list[BadRow]:
    return [bad for bad in shown if bad.type == kind.name][:5]


DAY_BUDGET, DAY_LEAST = 0.05, 20
"""Unless a source says: the share of bad rows of a day or file, where these are so many at least."""


def _day_budget(sources: Sequence[Source]) -> tuple[float, int]:
    """The share of bad rows that a day may have, and from how many on it counts."""
    said = [one.max_bad_day for one in sources if one.max_bad_day is not None]
    if said:
        return max(said), 1
    return max([DAY_BUDGET, *(one.max_bad for one in sources if one.max_bad is not None)]), DAY_LEAST


def _too_many(
    where: str, count: int, rows: int, most: float, of: str, shown: Sequence[BadRow]
) -> IngestError:
    return IngestError(
        f"{where} {count:,} of {rows:,} rows are bad ({count / rows:.2%}), more than {most:.2%} of a {of}\n" + "\n".join(map(_show, shown)),
        place=_place(shown), code="TL414", hint=_remedy(shown, "max_bad_day= (--max-bad-day)"),
    )  # fmt: skip


def _remedy(shown: Sequence[BadRow], option: str) -> str:
    """What to do about bad rows; `option` allows more of them."""
    cells = "multiline= (--multiline) reads cells with line breaks; "
    found = ""
    if any(bad.reason == OPEN_CELL for bad in shown):
        found += cells
    if any(bad.reason.endswith(NOT_UTF8) for bad in shown):
        found += "files are read as UTF-8: `iconv -f WINDOWS-1252 -t UTF-8 OLD > NEW` converts one; "
    if any("Rescaling Decimal" in bad.reason for bad in shown):  # Arrow's words
        found += "an expression's `decimal` has no digits behind the point: cast to decimal(18, 2); "
    return f"{found}fix the rows or how they are read; {option} allows a larger share"


def _show(bad: BadRow) -> str:
    where = bad.file if bad.line is None else f"{bad.file}:{bad.line}"
    raw = bad.raw if len(bad.raw) <= 100 else bad.raw[:97] + "..."
    return f"      {where}: {bad.reason}: {raw}"


def refuse_displaced(reports: Sequence[TaskReport], path: Path) -> None:
    """Raise EventOrderError where an append that may not change what is there has rows that take the place of the log's events."""
    gone = sum(len(r.gone) for r in reports)
    if gone:
        raise EventOrderError(
            f"{many(gone, 'event of the log goes', 'events of the log go')}: rows of the same values (unique) come first, or last, of these",
            place=Place(str(path)), code="TL408",
            hint='late= (--late) include takes them, in a new version of the log',
        )  # fmt: skip


def refuse_early(reports: Sequence[TaskReport], last: int | None) -> None:
    """Raise EventOrderError where an append has events that are not later than the log's last."""
    early = sum(r.early for r in reports)
    if early:
        first = next(b for r in reports for b in r.first_early)
        raise EventOrderError(
            f"{many(early, 'event is', 'events are')} not later than the log, which ends at {shown_time(last)}; "
            f"the first is at {shown_time(int(first.reason))}: {first.raw[:100]}",
            place=Place(first.file, first.line, first.type), code="TL408",
            hint='late= (--late) include puts them in their places, in a new version of the log',
        )  # fmt: skip


def clean(folder: Path, segments: Sequence[SegmentEntry], entry: IngestEntry) -> None:
    """Remove what attempts of tasks that did not count have left."""
    keep = {s.folder for s in segments}
    for left in (folder / "segments").iterdir():
        if left.name not in keep:
            shutil.rmtree(left)
    for left in (folder / "quarantine").iterdir():
        if left.name not in entry.quarantine:
            left.unlink()
    if not entry.quarantine:
        (folder / "quarantine").rmdir()


def adopt(staging: Path, log: Path, segments: Sequence[SegmentEntry], entry: IngestEntry, made: Path) -> None:
    """Move an append's files into the log; `made` has the segments. No manifest names them yet, so a crash here changes nothing."""
    files = [(made / s.folder, log / "segments" / s.folder) for s in segments]
    if entry.quarantine:
        (log / "quarantine").mkdir(exist_ok=True)
    files += [(staging / "quarantine" / name, log / "quarantine" / name) for name in entry.quarantine]
    move(files, lasting=True)


def renumbered(segment: SegmentEntry, numbers: Sequence[int]) -> SegmentEntry:
    """A segment of an append, with the log's numbers of the types instead of the append's."""
    return msgspec.structs.replace(
        segment,
        files=[msgspec.structs.replace(f, type=numbers[f.type]) for f in segment.files],
        days={numbers[n]: days for n, days in segment.days.items()},
    )
