"""Which columns the files of a source had, and of which days they are: from schemas that were read anyway, and what was noticed of the rows."""

from __future__ import annotations

import datetime
import re
from collections.abc import Collection, Sequence
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from timelapse.ids import DAY
from timelapse.ingest.files import SourceFile, told_by_suffix
from timelapse.ingest.noticed import Noticed
from timelapse.ingest.type_changes import Seen, check_types, columns_read
from timelapse.log.columns import Layout, layouts_of

if TYPE_CHECKING:
    from timelapse.ingest.prepare import Prepared
    from timelapse.log.manifest import IngestEntry, SourceEntry

_DATE = re.compile(r"(?<!\d)((?:19|20)\d\d)([-_]?)(\d\d)\2(\d\d)(?!\d)")
_EPOCH = datetime.date(1970, 1, 1)


def layouts(one: Prepared, noticed: Noticed, base: int) -> tuple[list[Layout], list[str], str]:
    """The layouts of a source's files, the columns that nothing uses, and what tells of which days files are, for people.

    `base`: the number of its first file. A file's day is the one that its folders name, or else its name, where its events are not all of
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
        found.append((columns, own_days))
        told += [how] if how else []
    plan = one.plan
    used = {*plan.needed, *plan.inputs, *(c for choice in plan.choices for c in choice)}
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
    now = one.shapes[at]
    path = one.files[at].path if one.files else f"the DataFrame for {entry.type}"
    day = next((own.days[0][0] for own in entry.columns if own.columns == now and own.days), None)
    known = [
        (min(last, day or last), number, layout, source)
        for number, source in enumerate(s for e in earlier for s in e.sources)
        if (source.type, source.position) == (entry.type, entry.position)
        for layout in source.columns
        for first, last in layout.days
        if day is None or first <= day
    ]
    if not known or any(path in e.replaced for e in earlier):
        return []
    _, _, layout, source = max(known, key=lambda one: one[:2])
    was, unused = layout.columns, {*source.unused, *entry.unused}
    if not _of_json(source):
        where = f"the log's files of {layout.days[-1][1]}"
        read = columns_read(one.plan, was).items()
        check_types(one.plan, now, path, {name: Seen(c, was[c], where) for name, c in read})
    if not one.files:
        return []
    texts = [
        *_named("without", [name for name in was if name not in now], unused),
        *_named("with", [name for name in now if name not in was], unused),
    ]
    said = [f"{entry.type}: from {path} on {' and '.join(texts)}"] if texts else []
    for name in (name for name in was if now.get(name, was[name]) != was[name]):
        mark = " (not used)" if name in unused else ""
        said.append(f"{entry.type}: from {path} on {name!r}{mark} is {now[name]}, not {was[name]}")
    return said


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
