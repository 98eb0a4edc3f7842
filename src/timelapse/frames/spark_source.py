"""`spark.read.format("timelapse")`: runs and logs as a Python data source of Spark, and the frames of `Run.frame`.

Spark's Python data sources are not told which columns a query needs (4.3): `columns` says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.functions import col, timestamp_micros
from pyspark.sql.pandas.types import from_arrow_schema

from timelapse.errors import UsageError, meant
from timelapse.frames.conditions import Condition, micros_of
from timelapse.frames.plain import plain_type
from timelapse.frames.tables import Span, Table, filtered, rows_of, table_of
from timelapse.moments import micros
from timelapse.store.remote import RemotePath

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from timelapse.results.stored import StoredRun

NAME = "timelapse"
_BATCH = 65_536
_SIGNS: dict[type[Filter], str] = {
    EqualTo: "=", GreaterThan: ">", GreaterThanOrEqual: ">=", LessThan: "<", LessThanOrEqual: "<="
}  # fmt: skip
PUSHED = "spark.sql.python.filterPushdown.enabled"
"""Spark's setting for conditions that reach a Python data source."""
OPTIONS = ("path", "record", "state", "event", "at", "columns", "from", "to", "filters")


class TimelapseSource(DataSource):
    """A run or a log, read part by part on the executors.

    Options, with the path of a run or a log: `record` (a record type, `rejected` or `quarantined`), or `state` (with `at`: the
    state before everything at that time), or `event` (an event type of a log); `columns` (names with commas: only those are read);
    `from` and `to` (times: rows with from <= ts < to). `filters=true`: conditions of the query reach the parts, which Spark's
    setting spark.sql.python.filterPushdown.enabled has to allow.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        unknown = [n for n in options if n.lower() not in OPTIONS]
        if unknown:
            raise UsageError(
                f"format timelapse has no option {unknown[0]!r}", code="TL842",
                hint=f"{meant(unknown[0], OPTIONS)}options: {', '.join(OPTIONS)}",
            )  # fmt: skip
        self.options = {name.lower(): value for name, value in options.items()}

    @classmethod
    def name(cls) -> str:
        return NAME

    def _table(self) -> Table:
        given = self.options
        if "path" not in given:
            raise UsageError("format timelapse needs a path", hint='.load("runs/oct")', code="TL842")
        at = given.get("at")
        return table_of(
            given["path"], record=given.get("record"), state=given.get("state"), event=given.get("event"),
            at=int(at) if at is not None and at.lstrip("-").isdigit() else at,
        )  # fmt: skip

    def _columns(self, table: Table) -> list[str]:
        text = self.options.get("columns")
        names = table.schema.names if text is None else [n.strip() for n in text.split(",") if n.strip()]
        for name in names:
            if name not in table.schema.names:
                raise UsageError(
                    f"columns names {name!r}, which is not there", code="TL842",
                    hint=f"{meant(name, table.schema.names)}columns: {', '.join(table.schema.names)}",
                )  # fmt: skip
        return names or table.schema.names[:1]

    def _bounds(self) -> list[Condition]:
        found = []
        for option, sign in (("from", ">="), ("to", "<")):
            if (text := self.options.get(option)) is not None:
                moment: Any = int(text) if text.lstrip("-").isdigit() else text
                found.append(Condition("ts", sign, micros(moment, option)))
        return found

    def schema(self) -> StructType:
        table = self._table()
        return from_arrow_schema(pa.schema([table.schema.field(n) for n in self._columns(table)]))

    def reader(self, schema: StructType) -> DataSourceReader:
        table, bounds = self._table(), self._bounds()
        if bounds and "ts" not in table.schema.names:
            raise UsageError("a state's rows have no time: from and to do not apply", code="TL842")
        # A schema that the user gives says which columns are wanted.
        names = [n for n in schema.names if n in table.schema.names]
        pushes = self.options.get("filters", "").lower() == "true"
        return (PushingReader if pushes else Reader)(table, names or self._columns(table), bounds)


@dataclass
class _Part(InputPartition):
    span: Span


class Reader(DataSourceReader):
    """Reads a table part by part."""

    def __init__(self, table: Table, columns: Sequence[str], conditions: Sequence[Condition]) -> None:
        self._table, self._columns, self._conditions = table, list(columns), list(conditions)

    def partitions(self) -> Sequence[InputPartition]:
        # Spark takes no partitions at all for one that has to be read.
        return [_Part(span) for span in self._table.parts(self._conditions)] or [_Part(())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, _Part)
        if not partition.span:
            return
        asked = [c.column for c in self._conditions if c.column in self._table.schema.names]
        columns = list(dict.fromkeys([*self._columns, *asked]))
        for table in self._table.read(partition.span, columns, self._conditions):
            found = filtered(table, self._conditions).select(self._columns)
            yield from found.combine_chunks().to_batches(_BATCH)


class PushingReader(Reader):
    """The same, where conditions of the query may reach it."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 Spark's name
        for one in filters:
            sign = _SIGNS.get(type(one))
            if sign is not None and len(one.attribute) == 1:  # type: ignore[attr-defined]
                self._conditions.append(
                    Condition(one.attribute[0], sign, micros_of(one.value))  # type: ignore[attr-defined]
                )
        return filters  # Spark asks again: what is here only leaves out what cannot match


def frame(place: str, options: Mapping[str, Any], spark: SparkSession) -> DataFrame:
    """A lazy DataFrame of what `options` name. Raises what reading its description raises, here and not on a worker."""
    given = {name: str(value) for name, value in options.items() if value is not None}
    if str(spark.conf.get(PUSHED, "false")).lower() == "true":
        given["filters"] = "true"
    TimelapseSource({**given, "path": place}).schema()
    return spark.read.format(NAME).options(**given).load(place)


def rows_frame(run: StoredRun, name: str, spark: SparkSession, columns: Sequence[str] | None) -> DataFrame:
    """A lazy DataFrame of a run's outputs. They are Parquet, so Spark's own reader takes them, and only the columns that a
    query needs; it checks the pages' checksums."""
    if isinstance(run.path, RemotePath):
        # Spark's own reader would need the store's Hadoop client and its settings.
        chosen = None if columns is None else ",".join(columns)
        return frame(run.path.pinned, {"record": name, "columns": chosen}, spark)
    found = rows_of(run, name)
    names = list(found.schema.names if columns is None else columns)
    for column in names:
        if column not in found.schema.names:
            raise UsageError(
                f"{name} has no column {column!r}", code="TL842",
                hint=f"{meant(column, found.schema.names)}columns: {', '.join(found.schema.names)}",
            )  # fmt: skip
    shown = from_arrow_schema(pa.schema([found.schema.field(n) for n in names]))
    if not found.files:
        return spark.createDataFrame([], shown)
    stored = from_arrow_schema(pa.schema([f.with_type(plain_type(f.type)) for f in found.stored]))
    read = spark.read.schema(stored).option("parquet.page.verify-checksum.enabled", "true")
    rows = read.parquet(*[Path(path).as_uri() for path in found.files])
    return rows.select(
        [timestamp_micros(col("ts")).alias("ts") if n == "ts" else col(f"`{n}`") for n in names]
    )
