"""Which columns the files of a source had, and of which days they are: from schemas that were read anyway, and what was noticed of the rows."""

from __future__ import annotations

import datetime
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, NamedTuple

from timelapse.errors import IngestError
from timelapse.ids import DAY
from timelapse.ingest.files import SourceFile, told_by_suffix
from timelapse.ingest.noticed import Noticed
from timelapse.ingest.type_changes import Seen, check_types, columns_read
from timelapse.segments.columns import Layout, layouts_of
from timelapse.segments.days import day_text

if TYPE_CHECKING:
    from timelapse.ingest.plan import Plan
    from timelapse.ingest.prepare import Prepared
    from timelapse.segments.manifest import IngestEntry, SourceEntry

_DATE = re.compile(r"(?<!\d)((?:19|20)\d\d)([-_]?)(\d\d)\2(\d\d)(?!\d)")
_EPOCH = datetime.date(1970, 1, 1)


def layouts(one: Prepared, noticed: Noticed, base: int) -> tuple[list[Layout], list[str], str]:
    """The layouts of a source's files, the columns that nothing uses, and what tells of which days files are, for people.

    `base`: the number of its first file. The days of each file are kept with the source. A file's day is the one that its folders name, or else its name, where its events are not all of
    other days; or else its days are those of its events. A file of whose rows none is an event, and that names no day, has none.
    """
    found, told = [], []
    places: list[tuple[int, SourceFile | None]] = [*enumerate(one.files, base)] or [(-1, None)]
    for at, (number, file) in enumerate(places):
        columns = one.shapes[at] if at < len(one.shapes) else {}
        kinds = {} if one.plan.applied is not None else noticed.kinds.get(number, {})
        columns = {
            **columns,
            **{name: " or ".join(sorted(own)) for name, own in sorted(kinds.items()) if name not in columns},
        }
        if not columns:
            continue  # an empty file
        span = noticed.spans.get(number)
        own_days = None if span is None else (span[0] // DAY, span[1] // DAY)
        named, how = (None, "") if file is None else _day_of(file)
        if named is not None and (own_days is None or own_days[0] <= named <= own_days[1]):
            own_days = (named, named)
        else:
            how = "events" if own_days is not None else ""
        one.days["" if file is None else file.path] = own_days
        found.append((columns, own_days))
        told += [how] if how else []
    plan = one.plan
    used = {*plan.needed, *plan.every_needed}
    names = {name for columns, _ in found for name in columns}
    unused = sorted(names - used) if plan.applied is None else []
    return layouts_of(found), unused, " and ".join(dict.fromkeys(told))


def unlike_before(one: Prepared, entry: SourceEntry, earlier: Sequence[IngestEntry]) -> list[str]:
    """How the columns of a source's first new file differ from those that its files of that day, or the last day before it, had in
    earlier ingests. JSON lines tell only which columns their rows had: they may lack one by chance.

    Raises IngestError (TL420) for a column that is narrower than it was, or of another kind.
    """
    at = next((n for n, shape in enumerate(one.shapes) if shape), None)  # an empty file has none
    if at is None or one.plan.format == "json" or one.plan.applied is not None:
        return []
    paths = [f.path for f in one.files] or [f"the DataFrame for {entry.type}"]
    replaced = {path for e in earlier for path in e.replaced}
    compared: dict[tuple[str | None, tuple[tuple[str, str], ...]], str] = {}
    for path, columns in zip(paths, one.shapes, strict=False):
        if columns and path not in replaced:
            compared.setdefault((_first_day(one, path), tuple(columns.items())), path)
    for (day, layout), path in compared.items():
        known = _before(entry.type, entry.position, day, earlier)
        if broken := _breaks(one.plan, dict(layout), path, known):
            raise broken
    now, path = one.shapes[at], paths[at]
    known = _before(entry.type, entry.position, _first_day(one, path), earlier)
    if known is None or path in replaced or not one.files:
        return []
    was, unused = known.layout.columns, {*known.source.unused, *entry.unused}
    texts = [
        *_named("without", [name for name in was if name not in now], unused),
        *_named("with", [name for name in now if name not in was], unused),
    ]
    said = [f"{entry.type}: from {path} on {' and '.join(texts)}"] if texts else []
    for name in (name for name in was if now.get(name, was[name]) != was[name]):
        mark = " (not used)" if name in unused else ""
        said.append(f"{entry.type}: from {path} on {name!r}{mark} is {now[name]}, not {was[name]}")
    return said


def _first_day(one: Prepared, path: str) -> str | None:
    """The first day that a source's file is of, once it has been read."""
    days = one.days.get(path if one.files else "")
    return None if days is None else day_text(days[0])


def first_break(
    plan: Plan, position: int, files: Sequence[tuple[SourceFile, Mapping[str, str]]], earlier: Sequence[IngestEntry]
) -> IngestError | None:  # fmt: skip
    """Which of some files, with their columns' types, is the first with a column narrower than in earlier ingests, or of another kind.

    Of which days they are only their folders and names tell.
    """
    for file, columns in files:
        day, _ = _day_of(file)
        known = _before(plan.kind.name, max(position, 0), None if day is None else day_text(day), earlier)
        if (found := _breaks(plan, columns, file.path, known)) is not None:
            return found
    return None


class _Known(NamedTuple):
    """The layout that a source's files had, and the ingest's entry that tells it."""

    layout: Layout
    source: SourceEntry


def _before(type_: str, position: int, day: str | None, earlier: Sequence[IngestEntry]) -> _Known | None:
    """The layout of a source's files of a day, or the last day before it, in earlier ingests; of no day: of the last one."""
    known = [
        (min(last, day or last), number, _Known(layout, source))
        for number, source in enumerate(s for e in earlier for s in e.sources)
        if (source.type, source.position) == (type_, position)
        for layout in source.columns
        for first, last in layout.days
        if day is None or first <= day
    ]
    return max(known, key=lambda one: one[:2])[2] if known else None


def _breaks(plan: Plan, columns: Mapping[str, str], path: str, known: _Known | None) -> IngestError | None:
    """What is wrong with the types of a file's columns after those that are known of the log."""
    if known is None or _of_json(known.source):
        return None
    was, where = known.layout.columns, f"the log's files of {known.layout.days[-1][1]}"
    seen = {name: Seen(c, was[c], where) for name, c in columns_read(plan, was).items()}
    try:
        check_types(plan, columns, path, seen)
    except IngestError as error:
        return error
    return None


def _of_json(source: SourceEntry) -> bool:
    """Whether its columns' types are kinds of JSON's values."""
    return source.source.get("format") == "json" or told_by_suffix(
        [SourceFile(p, 0) for p in source.taken], "json"
    )


def _named(word: str, names: Sequence[str], unused: Collection[str]) -> list[str]:
    told = ", ".join(f"{name!r}{' (not used)' if name in unused else ''}" for name in names)
    return [f"{word} {told}"] if told else []


def _day_of(file: SourceFile) -> tuple[int | None, str]:
    """The day (since 1970) that a file's folders or its name tell, and which of them."""
    folders = file.partition
    parts = [folders.get(name, "") for name in ("year", "month", "day")]
    if all(part.isdecimal() for part in parts):
        return _number(*map(int, parts)), "folders"
    for value in folders.values():
        if (match := _DATE.fullmatch(value)) is not None:
            return _number(int(match[1]), int(match[3]), int(match[4])), "folders"
    dates = _DATE.findall(PurePosixPath(file.path).name)
    if len(dates) == 1:
        return _number(int(dates[0][0]), int(dates[0][2]), int(dates[0][3])), "file names"
    return None, ""


def _number(year: int, month: int, day: int) -> int | None:
    try:
        return (datetime.date(year, month, day) - _EPOCH).days
    except ValueError:
        return None
