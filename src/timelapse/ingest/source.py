"""Where events come from: a Spark DataFrame or files, and how their columns become an event's fields."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import pyarrow as pa

from timelapse.errors import IngestError, Place
from timelapse.ingest.applied import Applied, RowFunction, RowsFunction
from timelapse.ingest.files import Format
from timelapse.ingest.private import HASH_KEY
from timelapse.ingest.tables.base import Table
from timelapse.ingest.tables.catalog import SparkTable
from timelapse.model.events import Event
from timelapse.moments import Moment, micros, time_text

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Unit = Literal["s", "ms", "us", "ns"]
_AT_HAND = "events that are at hand become a log by tl.Log.from_events(path, events)"
NO_OPTIONS = ("data", "position", "from_start")
"""What is no option of a source."""


@dataclass(frozen=True)
class Source:
    """A source of one event type, with how to read it.

    `data`: a Spark DataFrame; the path, glob or folder of files (or several); a table in memory: a pandas or
    Polars DataFrame, an Arrow table, whatever offers Arrow's C stream, whose rows of the same time keep their order; or a table that is kept elsewhere:
    `tl.Delta`, `tl.Iceberg`, `tl.Postgres`, `tl.SparkTable`.
    `format`: "parquet", "csv", "json" (one object per line), "orc", "avro" or "text"; by default from the files' suffix.
    `ts`: the column of the event time; several where it was renamed: in each file the first of them that is there. A timestamp; an ISO-8601 text; a whole number of microseconds, or of
    `unit` ("s", "ms", "us", "ns"); a fractional number only with `unit`. `time_format` reads texts by `strptime`;
    `year` completes times that have none. Texts and timestamps without a zone are in `tz`.
    `fields`: for event fields whose column has another name, {field: column}; a list of columns where it was renamed.
    `compute`: {field: expression over columns}, in Spark SQL's words (ingest/expressions.py); "ts" for the event time.
    `only`: {column: value or values}: rows with other values are not this source's. They are counted, no bad rows.
    `apply`: a function that each row goes through, as a dict by column, before fields are found in what it returns; None leaves
    the row out, and a row at which it raises is a bad one. `apply_batch`: the same for lists of rows. Functions, or texts `prepare.py:clean`; called by one thread at a time.
    `at`: the time of all rows, for what existed before the log: sources without a time.
    `arrival`: the column of the time at which a row arrived. How late rows were is noted; with `order="arrival"` that
    time is the event's, so that a replay sees on Wednesday what production saw on Wednesday.
    `unique`: fields of which no two events of the type have the same values. Of identical events one is kept; of those
    that differ in other fields or in time, by `conflicts`, the "first" or the "last": by arrival where that is known, else in log order. The others go to the quarantine, and so do
    events of the log that are appended to.
    `drop`, `hash`, `truncate`: for the sake of privacy, fields that become None; that become an HMAC-SHA256 under the key in
    the environment's variable `hash_key`; texts of which so many characters are kept. Raw texts of such sources are not kept.
    `max_bad`: the share of bad rows of this source above which an ingest is an error; by default the ingest's own.
    `max_bad_day`: the same of the rows of the type on any day (UTC), and of the rows of a file whose time cannot be read; by default 0.05,
    where these are 20 rows or more.
    CSV: `sep`, `quote` (None: no quoting), `header`, and `columns` to name columns of files without a header.
    One line is one record; with `multiline` quoted cells may go on over several lines. Text: `regex` with named groups, searched in each line; lines without a match are
    skipped, or with `unmatched="quarantine"` count as bad.
    `null`: the text that stands for None in optional fields of CSV and text files.
    `order_by`: for DataFrames, the columns that order events of the same time.
    `since`, `before`: rows of an earlier time, or of this time and later ones, are not this log's. Row groups of Parquet files whose statistics say so are not read;
    other such rows count as filtered.
    `min_ts`, `max_ts`: rows of an earlier or later time go to the quarantine (microseconds UTC, ISO 8601 text, a datetime).
    """

    data: DataFrame | str | Path | Sequence[str | Path] | InMemory | Table | SparkTable
    format: Format | None = None
    ts: str | Sequence[str] = "ts"
    unit: Unit | None = None
    time_format: str | None = None
    year: int | None = None
    tz: str | None = None
    fields: Mapping[str, str | Sequence[str]] = field(default_factory=dict)
    sep: str = ","
    quote: str | None = '"'
    header: bool = True
    multiline: bool = False
    columns: Sequence[str] | None = None
    regex: str | None = None
    unmatched: Literal["skip", "quarantine"] = "skip"
    null: str = ""
    order_by: Sequence[str] = ()
    min_ts: Moment | None = None
    since: Moment | None = None
    before: Moment | None = None
    max_ts: Moment | None = None
    compute: Mapping[str, str] = field(default_factory=dict)
    only: Mapping[str, str | Sequence[str]] = field(default_factory=dict)
    at: Moment | None = None
    arrival: str | None = None
    order: Literal["event", "arrival"] = "event"
    unique: Sequence[str] = ()
    conflicts: Literal["first", "last"] = "first"
    drop: Sequence[str] = ()
    hash: Sequence[str] = ()
    truncate: Mapping[str, int] = field(default_factory=dict)
    hash_key: str = HASH_KEY
    max_bad: float | None = None
    max_bad_day: float | None = None
    apply: RowFunction | str | None = None
    apply_batch: RowsFunction | str | None = None
    position: int = field(default=-1, repr=False)
    """Which of its type's sources it is, where some of them are left out; -1: as they stand. Not an option."""
    from_start: bool = field(default=False, repr=False)
    """Whether `min_ts` is the time at which the log starts, with what existed before. Not an option."""

    def __post_init__(self) -> None:
        if isinstance(self.data, Event):  # which is a tuple
            raise no_source(self.data)
        if isinstance(self.data, list | tuple):
            for one in self.data:
                if not isinstance(one, str | Path):
                    raise no_source(one)
            if not self.data:
                raise _bad_option("no files are named", f"a path, a folder or a glob; {_AT_HAND}")
        _one_of("format", self.format, (None, "parquet", "csv", "json", "text", "orc", "avro"))
        _one_of("order", self.order, ("event", "arrival"))
        _one_of("conflicts", self.conflicts, ("first", "last"))
        self._check_lists()
        self._check_columns()
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
        if self.multiline and (
            self.quote is None or len(self.sep.replace("\\t", "\t")) > 1 or self.format not in (None, "csv")
        ):
            raise _bad_option(
                "multiline= (--multiline) is for cells of CSV with line breaks, which quotes enclose",
                "leave it out, or say the quote; a separator has one character then",
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
            if self.at is None and "ts" not in self.compute and not set(self.times) & set(names):
                raise _bad_option(
                    f"regex has no group named {self.times[0]!r} for the event time",
                    f"write (?P<{self.times[0]}>...), or ts= (--ts)",
                )
        low, high = self.bounds
        if low is not None and high is not None and low > high:
            raise _bad_option(
                f"min_ts= (--min-ts) {time_text(low)} is after max_ts= (--max-ts) {time_text(high)}",
                "no time lies between them",
            )
        low, high = self.window
        if low is not None and high is not None and low >= high:
            raise _bad_option(
                f"no time lies between since= {time_text(low)} and before= {time_text(high)}",
                "exchange them",
            )
        try:
            ZoneInfo(self.tz or "UTC")
        except (ZoneInfoNotFoundError, ValueError):
            raise _bad_option(
                f"tz= (--tz) is {self.tz!r}, which is not a known time zone", "for example Europe/Berlin"
            ) from None

    def _check_lists(self) -> None:
        """Raise IngestError for lists of names that are none, or that name something twice."""
        for name, option in (
            ("unique", "unique= (--unique)"), ("drop", "drop="), ("hash", "hash="), ("order_by", "order_by="),
            ("columns", "columns= (--columns)"),
        ):  # fmt: skip
            said = getattr(self, name)
            if said is None:
                continue
            if isinstance(said, str) or not all(isinstance(one, str) for one in said):
                raise _bad_option(f"{option} is {said!r}", "a list of names")
            if twice := next((one for one in said if list(said).count(one) > 1), None):
                raise _bad_option(f"{option} names {twice!r} twice", "name each once")

    def _check_columns(self) -> None:
        """Raise IngestError for options of columns that contradict each other."""
        for name, said in (("ts", self.ts), *((f"fields[{f!r}]", c) for f, c in self.fields.items())):
            if not said or (
                not isinstance(said, str) and not all(isinstance(one, str) and one for one in said)
            ):
                raise _bad_option(f"{name} is {said!r}", "the name of a column, or a list of names")
        for name, values in self.only.items():
            if not isinstance(values, str) and not (
                isinstance(values, list | tuple) and all(isinstance(one, str) for one in values)
            ):
                raise _bad_option(
                    f"only[{name!r}] is {values!r}",
                    "a text or a list of texts: other values are compared as texts",
                )
        for name in self.compute:
            if name in self.fields:
                raise _bad_option(f"{name} is mapped to a column and computed", "one of the two")
        if self.apply is not None and self.apply_batch is not None:
            raise _bad_option(
                "apply= and apply_batch= exclude each other",
                "one function for a row, or one for a list of rows",
            )
        if self.order == "arrival" and self.arrival is None:
            raise _bad_option(
                "order= (--order) arrival needs the time of arrival",
                "name its column: arrival= (--arrival)",
            )
        if self.at is not None and (self.arrival is not None or "ts" in self.compute):
            raise _bad_option(
                "all rows have one time, and another is named",
                "the time of all rows needs no column: leave out the arrival and what is computed",
            )
        for name, length in self.truncate.items():
            if type(length) is not int or length < 0:
                raise _bad_option(f"truncate[{name!r}] is {length!r}", "the number of characters to keep")
        for name, share in (
            ("max_bad= (--max-bad)", self.max_bad),
            ("max_bad_day= (--max-bad-day)", self.max_bad_day),
        ):
            if share is not None and not 0 <= share <= 1:
                raise _bad_option(f"{name} is {share!r}", "a share from 0 to 1")

    @property
    def applied(self) -> Applied | None:
        """The function that rows go through. Raises IngestError where there is none of its name."""
        if self.apply is not None:
            return Applied.of(self.apply, whole=False)
        return None if self.apply_batch is None else Applied.of(self.apply_batch, whole=True)

    @property
    def times(self) -> tuple[str, ...]:
        """The columns of the event time, the first choice first."""
        return (self.ts,) if isinstance(self.ts, str) else tuple(self.ts)

    @property
    def bounds(self) -> tuple[int | None, int | None]:
        """The least and the greatest time, in microseconds, that a row may have."""
        low = None if self.min_ts is None else micros(self.min_ts, "min_ts=")
        return low, None if self.max_ts is None else micros(self.max_ts, "max_ts=")

    @property
    def window(self) -> tuple[int | None, int | None]:
        """The least time of this log's rows, and that before which they are, in microseconds."""
        low = None if self.since is None else micros(self.since, "since=")
        return low, None if self.before is None else micros(self.before, "before=")

    @property
    def is_files(self) -> bool:
        """Whether the data are files, or parts of a table, that tasks read."""
        return isinstance(self.data, str | Path | list | tuple | Table)

    @property
    def elsewhere(self) -> Table | None:
        """The table that is kept elsewhere."""
        return self.data if isinstance(self.data, Table) else None

    @property
    def in_catalog(self) -> SparkTable | None:
        """The table of Spark's catalogue."""
        return self.data if isinstance(self.data, SparkTable) else None

    @property
    def is_table(self) -> bool:
        """Whether the data are a table in this process."""
        return is_table(self.data)

    def table(self) -> pa.Table:
        """The table in memory, as Arrow. Raises IngestError where its columns cannot be had as Arrow."""
        return arrow_table(self.data)

    @property
    def paths(self) -> list[str]:
        """The paths, folders and globs of a source of files; none of other sources."""
        if isinstance(self.data, str | Path):
            return [str(self.data)]
        return [str(p) for p in self.data] if isinstance(self.data, list | tuple) else []

    def describe(self) -> dict[str, Any]:
        """What the manifest records: the options that differ from the defaults."""
        origin = type(self.data).__module__.partition(".")[0] + " table" if self.is_table else "DataFrame"
        said: dict[str, Any] = (
            self.data.describe()
            if isinstance(self.data, Table | SparkTable)
            else {"from": self.paths if self.is_files else origin}
        )
        plain = {f.name: f.default for f in fields(self)}
        for name, default in plain.items():
            value = getattr(self, name)
            if name not in NO_OPTIONS and value != default and value not in ({}, ()):
                said[name] = (
                    dict(value)
                    if isinstance(value, Mapping)
                    else list(value)
                    if isinstance(value, tuple)
                    else value
                )
        said |= {
            name: one.text
            for name, one in (("apply", self.applied), ("apply_batch", self.applied))
            if name in said and one
        }
        if self.at is not None:
            said["at"] = micros(self.at, "at=")
        if self.from_start:
            said["from_start"] = True
        bounds = zip(("min_ts", "max_ts", "since", "before"), (*self.bounds, *self.window), strict=True)
        return said | {name: bound for name, bound in bounds if bound is not None}


def as_source(
    given: Source | DataFrame | str | Path | Sequence[str | Path] | InMemory | Table | SparkTable,
    options: Mapping[str, Any],
) -> Source:
    """A source; `options` (those of tl.Source) apply to plain ones."""
    if isinstance(given, Source):
        return given
    known = {f.name for f in fields(Source)} - {*NO_OPTIONS}
    unknown = sorted(set(options) - known)
    if unknown:
        raise _bad_option(f"unknown option {unknown[0]!r}", f"options: {', '.join(sorted(known))}")
    plain = isinstance(given, str | Path | list | tuple | Table | SparkTable)
    if not plain and not hasattr(given, "mapInArrow") and not is_table(given):
        raise no_source(given)
    return replace(Source(given), **options)


def by_class(sources: Any) -> Mapping[Any, Any]:
    """What `Log.write` is given, which must be by event class. Raises IngestError (TL411)."""
    if isinstance(sources, Mapping):
        return sources
    raise IngestError(
        f"sources are given by event class, {{EventClass: source}}, not as {type(sources).__name__}", code="TL411", hint=_AT_HAND
    )  # fmt: skip


def as_sources(given: Any, options: Mapping[str, Any]) -> list[Source]:
    """The sources of one event type, each with a layout of its own: tables and DataFrames, whose rows have no file, before files."""
    if (
        not isinstance(given, list | tuple)
        or isinstance(given, Event)
        or all(isinstance(one, str | Path) for one in given)
    ):
        return [as_source(given, options)]
    found = [as_source(one, options) for one in given]
    placed = [one if one.position >= 0 else replace(one, position=n) for n, one in enumerate(found)]
    return sorted(placed, key=lambda one: one.is_files)


def no_source(given: object, place: Place | None = None) -> IngestError:
    """The error for something that rows cannot be read from."""
    what = "an event" if isinstance(given, Event) else f"{type(given).__name__}"
    first = "collect() it first; " if hasattr(given, "collect") else ""  # Polars' LazyFrame
    return IngestError(
        f"{what} is no source", place=place, code="TL411",
        hint=f"{first}give a path, a Spark, pandas or Polars DataFrame, an Arrow table, tl.Delta, tl.Iceberg, tl.Postgres, or tl.Source(...); {_AT_HAND}",
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
        return _with_texts(data if isinstance(data, pa.Table) else pa.table(data))
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, TypeError, ValueError) as error:
        raise IngestError(
            f"this {type(data).__name__} cannot be read as Arrow: {error}", code="TL411",
            hint="give each column one type: text, numbers, times, bool or bytes",
        ) from error  # fmt: skip


def _with_texts(table: pa.Table) -> pa.Table:
    """A table whose categories are plain texts: Arrow cannot decode those that Polars writes (views)."""
    for at, own in enumerate(table.schema):
        if pa.types.is_dictionary(own.type) and pa.types.is_string_view(own.type.value_type):
            chunks = [
                pa.DictionaryArray.from_arrays(c.indices, c.dictionary.cast(pa.string())).dictionary_decode()
                for c in table.column(at).chunks
            ]
            table = table.set_column(at, own.name, pa.chunked_array(chunks, pa.string()))
    return table


def _one_of(name: str, value: object, allowed: tuple[object, ...]) -> None:
    plain = value is None or isinstance(value, str | int | float)  # tables compare cell by cell
    if not plain or value not in allowed:
        raise _bad_option(
            f"{name}={value!r} is not known" if plain else f"{name}= is a {type(value).__name__}",
            f"one of {', '.join(repr(a) for a in allowed if a is not None)}",
        )


def _bad_option(message: str, hint: str) -> IngestError:
    return IngestError(message, hint=hint, code="TL411")
