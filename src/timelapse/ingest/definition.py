"""What a log is made of, as a TOML file beside the event classes: its sources, each with its layout.

    events = "events.py"
    log = "logs/oct"

    [[source]]
    type = "Txn"
    files = "raw/txn/2026-10-0*.csv.gz"
    ts = "time"
    tz = "Europe/Berlin"
    fields = { device = "device_id" }

    [[source]]
    type = "Txn"
    files = ["raw/txn/new/*.parquet"]

    [[at_start]]
    type = "Account"
    files = "raw/accounts.csv"

Paths are relative to the file; tables `at_start` are what existed at the time `start`, in front of all other events. Keys of a source are the options of `tl.Source`. Types are ordered as they are named first.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from timelapse.display import many
from timelapse.errors import IngestError, Place, UsageError, meant
from timelapse.ingest.files import SourceFile, list_files
from timelapse.ingest.known import Taken, Window, hull, is_same, lies_in, refuse_gone
from timelapse.ingest.source import NO_OPTIONS, Source
from timelapse.ingest.tables.base import Table
from timelapse.ingest.tables.catalog import SparkTable
from timelapse.ingest.tables.delta import Delta
from timelapse.ingest.tables.iceberg import Iceberg
from timelapse.ingest.tables.postgres import STEP, Postgres
from timelapse.ingest.write import Late
from timelapse.moments import Moment, iso_text, micros
from timelapse.segments.manifest import IngestEntry
from timelapse.segments.periods import HINT, Period

_TOP: dict[str, type | tuple[type, ...]] = {
    "events": str, "log": str, "max_bad": float, "late": str, "keep": str, "segment": str, "start": (str, datetime), "at_start": list, "source": list,
}  # fmt: skip
_LISTS = ("columns", "order_by", "files", "unique", "drop", "hash")


@dataclass(frozen=True)
class Definition:
    """A log's definition, checked. `sources`: by type name, in the order of the file."""

    path: Path
    events: str
    log: Path | None
    max_bad: float | None
    sources: dict[str, list[Source]]
    late: Late = "include"
    keep: float | None = None
    """Seconds before the log's end: after an ingest earlier events are left out."""
    segment: str | None = None
    """The period in which each of the log's segments lies (segments/periods.py)."""

    @classmethod
    def read(cls, path: Path) -> Definition:
        """Read a definition. Raises IngestError (TL415) naming the file and the table and key that is wrong."""
        try:
            with path.open("rb") as file:
                found = tomllib.load(file)
        except FileNotFoundError:
            raise _wrong(path, "there is no such file") from None
        except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
            raise _wrong(path, f"it cannot be read: {error}") from None
        _check_names(path, "", found, list(_TOP))
        for name, kind in _TOP.items():
            value = found.get(name)
            if (
                value is not None
                and not isinstance(value, kind)
                and not (kind is float and type(value) is int)
            ):
                raise _wrong(path, f"{name} is {value!r}", "text; a number for max_bad, a time for start")
        if "events" not in found:
            raise _wrong(path, "events is missing", 'the file with the event classes: events = "events.py"')
        max_bad = found.get("max_bad")
        if max_bad is not None and not 0 <= max_bad <= 1:
            raise _wrong(path, f"max_bad is {max_bad!r}", "a share from 0 to 1")
        late = found.get("late", "include")
        if late not in ("include", "refuse"):
            raise _wrong(
                path,
                f"late is {late!r}",
                '"include" puts events before the log\'s end in their places, "refuse" is an error',
            )
        tables, before = found.get("source", []), found.get("at_start", [])
        if not tables or not all(isinstance(table, dict) for table in (*tables, *before)):
            raise _wrong(path, "there is no source", "add tables [[source]] with type and files")
        keep = found.get("keep")
        age = None if keep is None else re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([dh])", keep)
        if keep is not None and age is None:
            raise _wrong(path, f"keep is {keep!r}", 'an age: keep = "90d", or "36h"')
        segment = found.get("segment")
        try:
            _ = segment and Period.of(segment)
        except UsageError:
            raise _wrong(path, f"segment is {segment!r}, which is no period", HINT) from None
        start = found.get("start")
        if before and start is None:
            raise _wrong(
                path,
                "start is missing",
                "the time at which what existed before stands: start = 2026-10-01T00:00:00Z",
            )
        sources: dict[str, list[Source]] = {}
        for number, table in enumerate(before, 1):
            name, source = _source(path, f"[[at_start]] {number}", {"at": start, **table})
            sources.setdefault(name, []).append(source)
        for number, table in enumerate(tables, 1):
            name, source = _source(path, f"[[source]] {number}", table)
            if start is not None and source.at is None:
                source = _from_start(source, start)
            sources.setdefault(name, []).append(source)
        events = found["events"]
        if events.partition(":")[0].endswith(".py"):
            events = str(path.parent / events)
        log = found.get("log")
        return cls(path, events, None if log is None else path.parent / log, max_bad, sources, late,
            None if age is None else float(age[1]) * (86_400 if age[2] == "d" else 3_600), segment,
        )  # fmt: skip


class Fresh(NamedTuple):
    """What a log does not have yet: sources, of files that are new or were corrected; and the latter, by type. `notes`: for people."""

    sources: dict[str, list[Source]]
    corrected: dict[str, list[str]]
    notes: list[str]


def _listed(source: Source) -> tuple[list[SourceFile], Callable[[list[str]], Any], bool]:
    """A source's files, what makes its data of some of them, and whether what is not among them is gone from it."""
    table = source.elsewhere
    if table is None:
        return list_files(source.paths), list, False
    opened = table.open()
    opened.close()
    return opened.files, lambda paths: table.some(opened, paths), True


def new_files(found: Definition, ingests: Sequence[IngestEntry]) -> Fresh:
    """The definition's sources, of the files that these ingests did not take into a log as they are now, or of which they took only rows
    of some times; those without any left out. A file that is read again takes the place of what the log has of it. So it must not be read for
    fewer times: then it is left as it is, and a note says so.

    Of a type of which rows were left out as duplicates, all files are read again where one was corrected. Raises IngestError (TL417)
    where some of these are gone.
    """
    taken = Taken(ingests)
    left: dict[str, list[Source]] = {}
    corrected: dict[str, list[str]] = {}
    notes: list[str] = []
    for name, every in found.sources.items():
        places = [n for n, source in enumerate(every) if source.in_catalog is None]
        for position, source in enumerate(every):
            if (table := source.in_catalog) is None:
                continue
            if any(one.unique for one in every):
                left.setdefault(name, []).append(replace(source, position=position))
            else:
                notes.append(
                    f"{name}: the table {table.name} was not read again: Spark's catalogue does not tell what is new in it. With unique = [...] it is "
                    "read, and rows that the log has count once; --overwrite makes the log again"
                )  # fmt: skip
        sources, listed = [every[n] for n in places], [_listed(every[n]) for n in places]
        files = [one for one, _, _ in listed]
        windows: dict[str, list[Window]] = {}
        for source, own in zip(sources, files, strict=True):
            for file in own:
                windows.setdefault(file.path, []).append(source.window)
        known = {
            file.path: is_same(file, *of) and taken.has_times((name, file.path), *windows[file.path])
            for own in files for file in own if (of := taken.files.get((name, file.path))) is not None
        }  # fmt: skip
        # to be read again: their old events go, so that these must be of no other times
        wide = {
            path for path in known if any(not lies_in(one, hull(windows[path])) for one in taken.times((name, path)))
        }  # fmt: skip
        changed = {path for path, same in known.items() if not same}
        for position, (_, _, whole) in zip(places, listed, strict=True):
            if whole:  # what a table does not have any more is not in the log either
                changed |= {path for path in taken.paths(name, position) if path not in windows}
        again = taken.all_again(name)
        if left_out := changed if again and wide else changed & wide:
            notes.append(_not_again(name, left_out, taken, windows))
            changed -= left_out
        if changed and again:
            refuse_gone(
                name, [p for p in taken.paths(name) if p not in windows and p not in changed], min(changed)
            )
            changed = set(taken.paths(name))
        if changed:
            corrected[name] = sorted(changed)
        for position, source, (own, data, whole) in zip(places, sources, listed, strict=True):
            paths = [f.path for f in own if f.path not in known or f.path in changed]
            if paths or (whole and changed):
                left.setdefault(name, []).append(replace(source, data=data(paths), position=position))
    return Fresh(left, corrected, notes)


def _not_again(name: str, paths: set[str], taken: Taken, windows: Mapping[str, Sequence[Window]]) -> str:
    """What is said of files that an ingest of some times cannot read again."""
    first, more = min(paths), len(paths) - 1
    which = f"{first} and {many(more, 'other file', 'other files')} were" if more else f"{first} was"
    every = [one for path in taken.paths(name) for one in taken.times((name, path))]
    every += [one for path in paths for one in windows.get(path, ())]
    bounds = zip(("--from", "--to"), hull(every), strict=True)
    options = " ".join(f"{option} {iso_text(at)}" for option, at in bounds if at is not None)
    return (
        f"{name}: {which} not read for these times: events of other times that the log has of {'them' if more else 'it'} would be gone. "
        f"An ingest {f'with {options}' if options else 'without --from and --to'} reads all"
    )


def not_taken(
    sources: Mapping[str, Sequence[Source]], ingests: Sequence[IngestEntry]
) -> tuple[dict[str, list[Source]], list[str]]:
    """The sources without the files (of tables: parts) that these ingests took in as they are now, and these files. Those without any are left out.

    A file of the same name with other content stays: an append adds it. So does one of which rows of other times were taken.
    """
    taken = Taken(ingests)
    left: dict[str, list[Source]] = {}
    same: list[str] = []
    for name, every in sources.items():
        for source in every:
            if not source.is_files:
                left.setdefault(name, []).append(source)
                continue
            files, data, _ = _listed(source)
            known = [
                f.path for f in files
                if (n := taken.files.get((name, f.path))) and is_same(f, *n)
                and taken.has_times((name, f.path), source.window)
            ]  # fmt: skip
            same += known
            new = [f.path for f in files if f.path not in set(known)]
            if new or not files:  # of no files whoever reads them says so
                left.setdefault(name, []).append(replace(source, data=data(new)) if known else source)
    return left, same


def _source(path: Path, where: str, table: Mapping[str, Any]) -> tuple[str, Source]:
    options = [field.name for field in fields(Source) if field.name not in (*NO_OPTIONS, "order_by")]
    _check_names(
        path, where, table, ["type", *KINDS, *(key for keys in KINDS.values() for key in keys), *options]
    )
    name, files = table.get("type"), table.get("files")
    if not isinstance(name, str) or not name:
        raise _wrong(path, f"{where}: type is missing", 'the event class: type = "Txn"')
    kind = _kind(path, f"{where} ({name})", table)
    files = [files] if isinstance(files, str) else files
    if kind == "files" and (not _texts(files) or not files):
        raise _wrong(
            path,
            f"{where} ({name}): files is {table.get('files')!r}",
            "a path, folder or glob, or a list of these; or " + ", ".join(k for k in KINDS if k != "files"),
        )
    given = {key: table[key] for key in options if key in table}
    for key, value in given.items():
        _check_value(path, f"{where} ({name}): {key}", key, value)
    for key in ("apply", "apply_batch"):
        if key in given and ".py:" in given[key]:
            given[key] = str(path.parent / given[key])
    if given.get("quote") in ("", "none"):
        given["quote"] = None
    try:
        if kind != "files":
            return name, Source(_table(path, f"{where} ({name})", kind, table), **given)
        places = [one if "://" in one else str(path.parent / one) for one in files or ()]
        return name, Source(places if len(places) > 1 else places[0], **given)
    except IngestError as error:
        raise _wrong(path, f"{where} ({name}): {error.message}", error.hint or "") from None


def _from_start(source: Source, start: Moment) -> Source:
    """A source whose rows before the log's start go to the quarantine, unless a later bound of its own says so anyway."""
    low, _ = source.bounds
    if low is not None and low >= micros(start, "start="):
        return source
    return replace(source, min_ts=start, from_start=True)


KINDS: dict[str, tuple[str, ...]] = {
    "files": (), "delta": ("version",), "iceberg": ("catalog", "snapshot"), "postgres": ("query", "by", "step"), "table": (),
}  # fmt: skip
"""Where the rows of a source are, with the keys that belong to each."""


def _kind(path: Path, where: str, table: Mapping[str, Any]) -> str:
    """Which of the keys says where the rows are. Raises IngestError (TL415)."""
    said = [key for key in KINDS if key in table]
    if len(said) > 1:
        raise _wrong(path, f"{where}: {' and '.join(said)} exclude each other", "a table [[source]] for each")
    kind = said[0] if said else "files"
    for other, keys in KINDS.items():
        for key in keys:
            if key in table and other != kind:
                raise _wrong(path, f"{where}: {key} belongs to {other}", f"{other} = ...")
    return kind


def _table(path: Path, where: str, kind: str, table: Mapping[str, Any]) -> Table | SparkTable:
    """A table that is kept elsewhere, as the definition names it."""
    for key in (kind, "query", "by"):
        if key in table and not isinstance(table[key], str):
            raise _wrong(path, f"{where}: {key} is {table[key]!r}", "text")
    for key in ("version", "snapshot", "step"):
        if key in table and (type(table[key]) is not int or table[key] < (key == "step")):
            raise _wrong(path, f"{where}: {key} is {table[key]!r}", "a whole number")
    name = table[kind]
    if kind == "delta":
        return Delta(name if "://" in name else path.parent / name, table.get("version"))
    if kind == "iceberg":
        catalog = table.get("catalog", "default")
        if not isinstance(catalog, str) and not (
            isinstance(catalog, dict) and _texts(list(catalog.values()))
        ):
            raise _wrong(
                path,
                f"{where}: catalog is {catalog!r}",
                'a name, or a table of properties: { type = "sql", uri = "..." }',
            )
        return Iceberg(name, catalog, table.get("snapshot"))
    if kind == "postgres":
        for key in ("query", "by"):
            if key not in table:
                raise _wrong(
                    path,
                    f"{where}: {key} is missing",
                    'query = "select ...", by = "id": a column of whole numbers, by whose ranges rows are read',
                )
        return Postgres(name, table["query"], table["by"], table.get("step", STEP))
    return SparkTable(name)


def _check_value(path: Path, where: str, key: str, value: Any) -> None:
    """Raise IngestError where an option has a value of another form."""
    if key in _LISTS:
        fits, what = _texts(value) and bool(value), "a list of texts, or leave it out"
    elif key == "fields":
        fits = isinstance(value, dict) and all(isinstance(one, str) or _texts(one) for one in value.values())
        what = (
            'a table of columns by field: { device = "device_id" }, or { device = ["device", "device_id"] }'
        )
    elif key == "ts":
        fits, what = isinstance(value, str) or _texts(value), "a column, or a list of columns"
    elif key == "compute":
        fits = isinstance(value, dict) and _texts(list(value.values()))
        what = 'a table of expressions by field: { cents = "round(price * 100)" }'
    elif key == "only":
        fits = isinstance(value, dict) and all(isinstance(one, str) or _texts(one) for one in value.values())
        what = 'a table of values by column: { kind = "login" }'
    elif key == "truncate":
        fits = isinstance(value, dict) and all(type(one) is int for one in value.values())
        what = "a table of numbers of characters by field: { ip = 7 }"
    elif key in ("max_bad", "max_bad_day"):
        fits, what = type(value) in (int, float), "a share from 0 to 1"
    elif key in ("header", "multiline"):
        fits, what = isinstance(value, bool), "true or false"
    elif key == "year":
        fits, what = type(value) is int, "a year"
    elif key in ("min_ts", "max_ts", "at", "since", "before"):
        fits, what = (
            value is not None and not isinstance(value, bool | list | dict | float),
            "a time: 2026-10-01T00:00:00Z",
        )
    else:
        fits, what = isinstance(value, str), "text"
    if not fits:
        raise _wrong(path, f"{where} is {value!r}", what)


def _texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) for one in value)


def _check_names(path: Path, where: str, table: Mapping[str, Any], known: Sequence[str]) -> None:
    for name in table:
        if name not in known:
            raise _wrong(
                path, f"{where}{': ' if where else ''}there is no key {name!r}",
                f"{meant(name, known)}keys: {', '.join(known)}",
            )  # fmt: skip


def _wrong(path: Path, what: str, hint: str = "") -> IngestError:
    return IngestError(what, place=Place(str(path)), hint=hint or "see docs/ingest.md", code="TL415")
