"""Where events come from: a Spark DataFrame or files, and how their columns become an event's fields."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol
from urllib.parse import unquote
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import pyarrow as pa
import pyarrow.fs as pafs

from timelapse.errors import IngestError, Place
from timelapse.moments import Moment, micros, time_text
from timelapse.store.places import local_path, not_understood

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Format = Literal["parquet", "csv", "json", "text"]
Unit = Literal["s", "ms", "us", "ns"]

_SUFFIXES: dict[str, Format] = {
    ".parquet": "parquet", ".pq": "parquet", ".csv": "csv", ".tsv": "csv", ".json": "json", ".jsonl": "json",
    ".ndjson": "json",
}  # fmt: skip
_PACKED = {".gz", ".bz2", ".zst", ".lz4"}


@dataclass(frozen=True)
class Source:
    """A source of one event type, with how to read it.

    `data`: a Spark DataFrame; the path, glob or folder of files (or several); or a table in memory: a pandas or
    Polars DataFrame, an Arrow table, whatever offers Arrow's C stream. Its rows of the same time keep their order.
    `format`: "parquet", "csv", "json" (one object per line) or "text"; by default from the files' suffix.
    `ts`: the column of the event time. A timestamp; an ISO-8601 text; a whole number of microseconds, or of
    `unit` ("s", "ms", "us", "ns"); a fractional number only with `unit`. `time_format` reads texts by `strptime`;
    `year` completes times that have none. Texts and timestamps without a zone are in `tz`.
    `fields`: for event fields whose column has another name, {field: column}.
    CSV: `sep`, `quote` (None: no quoting), `header`, and `columns` to name columns of files without a header.
    One line is one record. Text: `regex` with named groups, searched in each line; lines without a match are
    skipped, or with `unmatched="quarantine"` count as bad.
    `null`: the text that stands for None in optional fields of CSV and text files.
    `order_by`: for DataFrames, the columns that order events of the same time.
    `min_ts`, `max_ts`: rows of an earlier or later time go to the quarantine (microseconds UTC, ISO 8601 text, a datetime).
    """

    data: DataFrame | str | Path | Sequence[str | Path] | InMemory
    format: Format | None = None
    ts: str = "ts"
    unit: Unit | None = None
    time_format: str | None = None
    year: int | None = None
    tz: str = "UTC"
    fields: Mapping[str, str] = field(default_factory=dict)
    sep: str = ","
    quote: str | None = '"'
    header: bool = True
    columns: Sequence[str] | None = None
    regex: str | None = None
    unmatched: Literal["skip", "quarantine"] = "skip"
    null: str = ""
    order_by: Sequence[str] = ()
    min_ts: Moment | None = None
    max_ts: Moment | None = None

    def __post_init__(self) -> None:
        _one_of("format", self.format, (None, "parquet", "csv", "json", "text"))
        _one_of("unit", self.unit, (None, "s", "ms", "us", "ns"))
        _one_of("unmatched", self.unmatched, ("skip", "quarantine"))
        if not self.sep or "\n" in self.sep or '"' in self.sep:
            raise _bad_option(
                f"sep={self.sep!r} (--sep {self.sep!r}) cannot separate columns",
                "give one or more characters, such as ';'",
            )
        if self.quote is not None and (len(self.quote) != 1 or self.quote in self.sep):
            raise _bad_option(
                f"quote= (--quote) is {self.quote!r}, which is not one character",
                "quote=None (--quote none) turns quoting off",
            )
        if self.year is not None and self.time_format is None:
            raise _bad_option(
                "year= (--year) completes times read by time_format= (--time-format)",
                "give time_format= (--time-format) too",
            )
        if self.regex is not None:
            try:
                names = re.compile(self.regex).groupindex
            except re.error as error:
                raise _bad_option(f"regex: {error}", "see Python's re module") from None
            if self.ts not in names:
                raise _bad_option(
                    f"regex has no group named {self.ts!r} for the event time",
                    f"write (?P<{self.ts}>...), or ts= (--ts)",
                )
        low, high = self.bounds
        if low is not None and high is not None and low > high:
            raise _bad_option(
                f"min_ts= (--min-ts) {time_text(low)} is after max_ts= (--max-ts) {time_text(high)}",
                "no time lies between them",
            )
        try:
            ZoneInfo(self.tz)
        except (ZoneInfoNotFoundError, ValueError):
            raise _bad_option(
                f"tz= (--tz) is {self.tz!r}, which is not a known time zone", "for example Europe/Berlin"
            ) from None

    @property
    def bounds(self) -> tuple[int | None, int | None]:
        """The least and the greatest time, in microseconds, that a row may have."""
        low = None if self.min_ts is None else micros(self.min_ts, "min_ts=")
        return low, None if self.max_ts is None else micros(self.max_ts, "max_ts=")

    @property
    def is_files(self) -> bool:
        return isinstance(self.data, str | Path | list | tuple)

    @property
    def is_table(self) -> bool:
        """Whether the data are a table in this process."""
        return is_table(self.data)

    def table(self) -> pa.Table:
        """The table in memory, as Arrow. Raises IngestError where its columns cannot be had as Arrow."""
        return arrow_table(self.data)

    @property
    def paths(self) -> list[str]:
        if isinstance(self.data, str | Path):
            return [str(self.data)]
        return [str(p) for p in self.data] if isinstance(self.data, list | tuple) else []

    def describe(self) -> dict[str, Any]:
        """What the manifest records: the options that differ from the defaults."""
        origin = type(self.data).__module__.partition(".")[0] + " table" if self.is_table else "DataFrame"
        said: dict[str, Any] = {"from": self.paths if self.is_files else origin}
        plain = {f.name: f.default for f in fields(self)}
        for name, default in plain.items():
            value = getattr(self, name)
            if name != "data" and value != default and value not in ({}, ()):
                said[name] = dict(value) if isinstance(value, Mapping) else value
        bounds = zip(("min_ts", "max_ts"), self.bounds, strict=True)
        return said | {name: bound for name, bound in bounds if bound is not None}


def as_source(
    given: Source | DataFrame | str | Path | Sequence[str | Path] | InMemory, options: Mapping[str, Any]
) -> Source:
    """A source; `options` (those of tl.Source) apply to plain ones."""
    if isinstance(given, Source):
        return given
    known = {f.name for f in fields(Source)} - {"data"}
    unknown = sorted(set(options) - known)
    if unknown:
        raise _bad_option(f"unknown option {unknown[0]!r}", f"options: {', '.join(sorted(known))}")
    plain = isinstance(given, str | Path | list | tuple)
    if not plain and not hasattr(given, "mapInArrow") and not is_table(given):
        raise no_source(given)
    return replace(Source(given), **options)


def as_sources(given: Any, options: Mapping[str, Any], kind: str) -> list[Source]:
    """The sources of one event type, in their order: one, or a list of `tl.Source`, each with a layout of its own.

    Raises IngestError for a list of several that are not all files.
    """
    if not isinstance(given, list | tuple) or not any(isinstance(one, Source) for one in given):
        return [as_source(given, options)]
    found = [as_source(one, options) for one in given]
    if len(found) > 1 and not all(one.is_files for one in found):
        raise IngestError(
            "several sources of one type must all be files: rows of tables and DataFrames have no place among those of files",
            place=Place(what=kind), code="TL411", hint="put the tables together first, or write them to Parquet files",
        )  # fmt: skip
    return found


def no_source(given: object, place: Place | None = None) -> IngestError:
    """The error for something that rows cannot be read from."""
    return IngestError(
        f"{type(given).__name__} is no source", place=place, code="TL411",
        hint="give a path, a Spark, pandas or Polars DataFrame, an Arrow table, or tl.Source(...)",
    )  # fmt: skip


# --- tables in memory -----------------------------------------------------------------------------------


class InMemory(Protocol):
    """A table of any library, by Arrow's C data interface (https://arrow.apache.org/docs/format/CStreamInterface.html)."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...


def is_table(data: object) -> bool:
    """Whether something is a table in this process; a Spark DataFrame is not."""
    if hasattr(data, "mapInArrow"):
        return False
    return hasattr(data, "__arrow_c_stream__") or hasattr(data, "__dataframe__")


def arrow_table(data: Any) -> pa.Table:
    """A table of any library as Arrow; NaN of pandas becomes null. Raises IngestError (TL411)."""
    try:
        if type(data).__module__.partition(".")[0] == "pandas":
            return pa.Table.from_pandas(data, preserve_index=False)
        return pa.table(data)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, TypeError, ValueError) as error:
        raise IngestError(
            f"this {type(data).__name__} cannot be read as Arrow: {error}", code="TL411",
            hint="give each column one type: text, numbers, times, bool or bytes",
        ) from error  # fmt: skip


def _one_of(name: str, value: object, allowed: tuple[object, ...]) -> None:
    if value not in allowed:
        raise _bad_option(
            f"{name}={value!r} is not known", f"one of {', '.join(repr(a) for a in allowed if a is not None)}"
        )


def _bad_option(message: str, hint: str) -> IngestError:
    return IngestError(message, hint=hint, code="TL411")


# --- files ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SourceFile:
    """A file to read: its path as shown and sorted by, and its size in bytes."""

    path: str
    size: int

    @property
    def packed(self) -> bool:
        return Path(self.path).suffix in _PACKED

    @property
    def partition(self) -> dict[str, str]:
        """Columns that folders of its path name, `dt=2026-10-01`, with their values."""
        parts = [part.partition("=") for part in self.path.split("/")[:-1]]
        return {name: unquote(value) for name, equals, value in parts if equals and name.isidentifier()}

    def locate(self) -> tuple[pafs.FileSystem, str]:
        return _locate(self.path)


def _locate(path: str) -> tuple[pafs.FileSystem, str]:
    if path.lower().startswith("file:"):
        path = str(local_path(path, "source"))
    if "://" in path:
        found: tuple[pafs.FileSystem, str] = pafs.FileSystem.from_uri(path)
        return found
    return pafs.LocalFileSystem(), path


def list_files(paths: Sequence[str]) -> list[SourceFile]:
    """The files under paths, globs and folders, sorted by path, each once. Raises IngestError for none.

    Inside folders, names that start with `_` or `.` are left out, as Spark does.
    """
    found: dict[str, SourceFile] = {}
    for path in paths:
        matched = _expand(path)
        if not matched:
            raise IngestError(
                "no files here", place=Place(path), code="TL412", hint="give a file, a folder or a glob"
            )
        for file in matched:
            found[file.path] = file
    return sorted(found.values(), key=lambda f: f.path.encode("utf-8", "surrogateescape"))


def _expand(path: str) -> list[SourceFile]:
    if path.lower().startswith("file:"):
        path = str(local_path(path, "source"))
    if "://" in path:
        try:
            system, inner = _locate(path)
        except pa.ArrowInvalid:
            raise not_understood(path, "source") from None
        except OSError as error:
            raise IngestError(
                f"cannot be opened: {error}",
                place=Place(path),
                code="TL412",
                hint="local paths need no scheme",
            ) from error
        prefix = path[: len(path) - len(inner)] if path.endswith(inner) else ""
        return [SourceFile(prefix + name, size) for name, size in _walk(system, inner)]
    local = Path(path).expanduser()
    if local.exists():
        return [SourceFile(name, size) for name, size in _walk(pafs.LocalFileSystem(), str(local.absolute()))]
    import glob

    names = sorted(glob.glob(str(local.absolute()), recursive=True))
    return [SourceFile(name, size) for match in names for name, size in _walk(pafs.LocalFileSystem(), match)]


def _walk(system: pafs.FileSystem, path: str) -> list[tuple[str, int]]:
    info = system.get_file_info(path)
    if info.type == pafs.FileType.File:
        return [(info.path, info.size)]
    if info.type != pafs.FileType.Directory:
        return []
    below = system.get_file_info(pafs.FileSelector(path, recursive=True))
    return [
        (i.path, i.size)
        for i in below
        if i.type == pafs.FileType.File
        and not any(part.startswith(("_", ".")) for part in Path(i.path[len(path) :].lstrip("/")).parts)
    ]


def format_of(source: Source, files: Sequence[SourceFile]) -> Format:
    """The source's format: as given, else by the suffix that all files share. Raises IngestError."""
    if source.format is not None:
        return source.format
    if source.regex is not None:
        return "text"
    seen: set[Format | None] = set()
    for file in files:
        path = Path(file.path)
        suffix = Path(path.stem).suffix if path.suffix in _PACKED else path.suffix
        seen.add(_SUFFIXES.get(suffix.lower()))
    if len(seen) == 1 and (only := seen.pop()) is not None:
        return only
    raise IngestError(
        "the format is not clear from the files' suffixes", place=Place(files[0].path), code="TL411",
        hint="say format= (--format): csv, json, parquet or text",
    )  # fmt: skip
