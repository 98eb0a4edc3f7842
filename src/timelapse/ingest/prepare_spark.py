"""Looking at the sources of an ingest on Spark before it starts: files by themselves, DataFrames by their schema."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import numpy as np
import pyarrow as pa

from timelapse.errors import IngestError, Place, meant
from timelapse.ingest import lines as text_lines
from timelapse.ingest import nested
from timelapse.ingest.amounts import refuse_floats
from timelapse.ingest.known import take_prints
from timelapse.ingest.nested import plainly
from timelapse.ingest.objects import MANY
from timelapse.ingest.plan import Plan
from timelapse.ingest.prepare import Prepared, number_lines, prepare_files, prepare_table
from timelapse.ingest.source import Source
from timelapse.ingest.unique import Before
from timelapse.segments.types import EventType

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType


def prepare(
    spark: SparkSession, sources: Sequence[tuple[EventType, Source]], floor: int | None, rows: int | None,
    before: Before | None = None,
) -> list[Prepared]:  # fmt: skip
    """Look at every source: its files, columns, size. Raises IngestError for what can be seen to be wrong."""
    prepared: list[Prepared] = []
    base = 0
    for number, (kind, given) in enumerate(sources):
        table = given.in_catalog
        source = given if table is None else replace(given, data=table.frame(spark))
        if source.is_files:
            found = prepare_files(number, kind, source, floor, base, before)
            base += len(found.files)
        elif source.is_table:
            found = _prepare_table(spark, kind, source, floor)
        else:
            found = _prepare_frame(kind, source, floor, rows)
        prepared.append(replace(found, source=given))
    take_prints(prepared)
    number_lines(prepared, lambda pieces: run_tasks(spark, pieces, text_lines.count_line_ends))
    return prepared


def _prepare_table(spark: SparkSession, kind: EventType, source: Source, floor: int | None) -> Prepared:
    """A table in memory as a DataFrame whose rows of the same time are ordered by their number."""
    from pyspark.sql.pandas.types import from_arrow_schema

    one = prepare_table(kind, source, floor)
    assert one.table is not None
    columns = [_as_spark_takes_it(plainly(column)) for column in one.table.columns]
    numbered = pa.table([*columns, np.arange(one.table.num_rows)], [*one.table.column_names, "__order0"])
    # Without a schema Spark would take times that have no zone for times in the session's.
    schema = from_arrow_schema(numbered.schema, prefer_timestamp_ntz=True)
    return replace(one, files=[], table=None, frame=spark.createDataFrame(numbered, schema))


def _as_spark_takes_it(column: pa.Array) -> pa.Array:
    """A column of a type that Spark has, with the same values: it has no unsigned integers, halves of floats and days in milliseconds."""
    kind = column.type
    if pa.types.is_unsigned_integer(kind):
        return column.cast(pa.int64() if kind.bit_width < 64 else pa.decimal128(20, 0))
    if pa.types.is_float16(kind):
        return column.cast(pa.float32())
    if pa.types.is_date64(kind):
        return column.cast(pa.date32())
    if pa.types.is_large_list(kind):  # of what stands in lists of structs
        inner = _as_spark_takes_it(plainly(pa.chunked_array([column.values])))
        return pa.LargeListArray.from_arrays(
            column.offsets, inner, mask=column.is_null() if column.null_count else None
        )
    return column.cast(pa.string()) if pa.types.is_decimal256(kind) else column


def _prepare_frame(kind: EventType, source: Source, floor: int | None, rows: int | None) -> Prepared:
    from pyspark.sql import functions as F  # noqa: N812

    frame: DataFrame = source.data  # type: ignore[assignment]
    plan = Plan.of(kind, source, None, (), floor)
    have = frame.columns
    # a name with dots may mean a column of that name, or a field of a struct
    every = (*plan.needed, *(c for choice in plan.choices for c in choice), *source.order_by)
    types = {f.name: f.dataType for f in frame.schema.fields}
    inside = inner_columns(types)
    usable = [c for c in dict.fromkeys(every) if c in have or c in inside or _is_open(c, types)]
    if plan.applied is None:
        nested.check_paths(plan.every_needed, have)
    there = list(dict.fromkeys([*have, *inside, *usable]))
    plan.check_columns(there, f"DataFrame for {kind.name}")
    plan.check_mapped(there, f"DataFrame for {kind.name}")
    plan = plan.reading(tuple(usable))
    shape = {f.name: f.dataType.simpleString() for f in frame.schema.fields}
    floats = {name: kind for name, kind in shape.items() if kind in ("float", "double")}
    refuse_floats(frame, plan.read_fields, floats, f"DataFrame for {kind.name}")
    for column in source.order_by:
        if column not in usable:
            raise IngestError(
                f"order_by: there is no column {column!r}", place=Place(what=f"DataFrame for {kind.name}"),
                code="TL413", hint=f"{meant(column, have)}columns: {', '.join(have)}",
            )  # fmt: skip
    picked = [c for c in plan.needed if c in usable] if plan.applied is None else have
    marks = [c for c in nested.with_marks(plan.needed) if c in inside and c not in picked]
    selected = frame.select(
        *[F.col(_quoted(c, have)).alias(c) for c in picked],
        *[F.transform(F.col(_quoted(c, have)), lambda item: item.isNull()).alias(c) for c in marks],
        *[F.col(_quoted(c, have)).alias(f"__order{n}") for n, c in enumerate(source.order_by)],
    )
    count = frame.count() if rows is None else rows
    without = dict.fromkeys(plan.without_column(usable), 1)
    return Prepared(plan, source, [], count, [], selected, without=without, shapes=[shape])


def _quoted(name: str, have: Sequence[str]) -> str:
    parts = [name] if name in have else [part.removesuffix(MANY) for part in name.split(".")]
    return ".".join(f"`{part.replace('`', '``')}`" for part in parts)


def inner_columns(types: Mapping[str, DataType]) -> set[str]:
    """What stands inside these columns, by path, as in tables that are no DataFrame (ingest/nested.py)."""
    from pyspark.sql import types as T  # noqa: N812

    def fields(kind: DataType) -> list[tuple[str, DataType]] | None:
        return [(f.name, f.dataType) for f in kind.fields] if isinstance(kind, T.StructType) else None

    def item(kind: DataType) -> DataType | None:
        return kind.elementType if isinstance(kind, T.ArrayType) else None

    return {path for path, _ in nested.inside(types, fields, item)}


def _is_open(name: str, types: Mapping[str, DataType]) -> bool:
    """Whether a path leads into something whose type does not tell what is in it: a map, or the members of a list as one list."""
    from pyspark.sql import types as T  # noqa: N812

    first, *rest = name.split(".")
    kind = types.get(first)
    for part in rest:
        if not isinstance(kind, T.StructType):
            return isinstance(kind, T.MapType | T.ArrayType) and MANY not in name
        kind = next((field.dataType for field in kind.fields if field.name == part), None)
    return False


def run_tasks(spark: SparkSession, items: Sequence[Any], function: Callable[[Any], int]) -> list[int]:
    """A whole number for each item, one Spark task per item, in order."""

    def each(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            ids = batch.column(0).to_pylist()
            yield pa.record_batch(
                [pa.array(ids), pa.array([function(items[i]) for i in ids], pa.int64())], ["id", "n"]
            )

    found = spark.range(0, len(items), 1, len(items)).mapInArrow(each, "id long, n long").collect()
    by_id = {row["id"]: row["n"] for row in found}
    return [by_id[n] for n in range(len(items))]


def collect(spark: SparkSession, frame: DataFrame) -> list[Any]:
    """The rows of a DataFrame; Ctrl-C cancels its Spark jobs."""
    context = getattr(spark, "_sc", None)
    if context is None:  # Spark Connect has no context, and cancels by itself
        return frame.collect()
    tag = f"timelapse-{uuid4().hex}"
    context.addJobTag(tag)
    try:
        return frame.collect()
    except KeyboardInterrupt:
        context.cancelJobsWithTag(tag)
        raise
    finally:
        context.removeJobTag(tag)
