"""Ingest on Spark: read every source, sort by the log's total order, write segments from the tasks.

The rows of all sources travel through one shuffle in one wide form (a struct column per event type). Each
range of the total order is written by the task that sorted it, into folders with names of their own, so a
task that Spark runs twice does no harm: the driver keeps what the successful attempts report.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pyarrow as pa

from timelapse.decoding import decoded
from timelapse.errors import TimelapseError
from timelapse.ingest import runs
from timelapse.ingest.batches import Bad
from timelapse.ingest.doubts import refuse_without_zone
from timelapse.ingest.once_on_spark import frame_place, once
from timelapse.ingest.parse import parse_table
from timelapse.ingest.plan import Plan
from timelapse.ingest.prepare import Prepared, Task, beside_of, file_numbers, read_task, types_of
from timelapse.ingest.prepare_spark import collect
from timelapse.ingest.task import TaskReport, write_partition
from timelapse.ingest.unique import Before
from timelapse.ingest.wire_on_spark import KEYS, encode, fatal, spark_schema, spark_struct
from timelapse.segments.periods import Period
from timelapse.segments.segment import SEGMENT_EVENTS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType

# --- the job --------------------------------------------------------------------------------------------


def _read_files(
    plans: Sequence[Plan], types: Sequence[int], tasks: Sequence[Task], once: AbstractSet[int]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                task = tasks[number]
                plan = plans[task.source]
                try:
                    for file, done in read_task(task, plan):
                        type_ = types[task.source]
                        yield from encode(task.source, type_, plan, file, done, hashed=type_ in once)
                except TimelapseError as error:
                    yield fatal(error, plan)

    return read


def _read_frame(
    number: int, type_: int, plan: Plan, names: Sequence[str], *, hashed: bool, place: int, numbered: bool
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            table = pa.Table.from_batches([batch]).rename_columns(list(names))
            order = [batch.column(n) for n, name in enumerate(names) if name.startswith("__order")]
            try:
                done = parse_table(plan, table, 0)
                refuse_without_zone(plan.kind, done.doubts, f"DataFrame for {plan.kind.name}", numbered=False)
                kept = pa.array(done.rows)
                done.rows = np.full(len(done.ts), place, np.int64)
                # rows of a table in memory are ordered by their number
                at = [order[0][b.row].as_py() + 1 if numbered else -1 for b in done.bad]
                done.bad = [Bad(row, *b[1:]) for row, b in zip(at, done.bad, strict=True)]
                own = [o.take(kept) for o in order]
                yield from encode(number, type_, plan, -1, done, own, keyed=not numbered, hashed=hashed)
            except TimelapseError as error:
                yield fatal(error, plan, order)

    return read


def _frames(spark: SparkSession, prepared: Sequence[Prepared]) -> DataFrame:
    """All sources as one DataFrame in wire form, with a struct column `e<n>` per event type."""
    from pyspark.sql import functions as F  # noqa: N812
    from pyspark.sql import types as T  # noqa: N812

    plans = [p.plan for p in prepared]
    kinds = types_of(prepared)
    types = [kinds.index(plan.kind) for plan in plans]
    once = frozenset(n for n, one in zip(types, prepared, strict=True) if one.source.unique)
    structs = [spark_struct(kind) for kind in kinds]
    frames: list[DataFrame] = []
    orders: list[tuple[int, DataType]] = []
    read: list[tuple[int, DataFrame, int]] = []
    for number, one in enumerate(prepared):
        schema = spark_schema(one.plan.kind)
        order_types: list[DataType] = []
        if one.frame is not None:
            order_types = [f.dataType for f in one.frame.schema.fields if f.name.startswith("__order")]
            extra = [T.StructField(f"__order{n}", t, True) for n, t in enumerate(order_types)]
            names = one.frame.columns
            plain = one.frame.toDF(
                *(f"c{n}" for n in range(len(names)))
            )  # mapInArrow takes dots in names for paths
            made = plain.mapInArrow(
                _read_frame(
                    number,
                    types[number],
                    one.plan,
                    names,
                    hashed=types[number] in once,
                    place=frame_place(number, prepared),
                    numbered=one.source.is_table,
                ),
                T.StructType([*schema.fields, *extra]),
            )
        elif one.tasks:
            ids = spark.range(0, len(one.tasks), 1, len(one.tasks))
            made = ids.mapInArrow(_read_files(plans, types, one.tasks, once), schema)
        else:
            continue
        orders.extend((number, t) for t in order_types)
        read.append((number, made, len(order_types)))
    for number, made, own_orders in read:
        events = [
            (F.col("e") if n == types[number] else F.lit(None).cast(struct)).alias(f"e{n}")
            for n, struct in enumerate(structs)
        ]
        mine = iter(range(own_orders))
        order_columns = [
            (F.col(f"__order{next(mine)}") if owner == number else F.lit(None).cast(kind)).alias(f"o{place}")
            for place, (owner, kind) in enumerate(orders)
        ]
        frames.append(made.select(*KEYS, "k", "why", "raw", "h", *order_columns, *events))
    if not frames:
        return spark.createDataFrame(
            [], "ts long, t int, f long, r long, k binary, why string, raw string, h binary"
        )
    whole = frames[0]
    for frame in frames[1:]:
        whole = whole.unionByName(frame)
    return whole


def run(
    spark: SparkSession,
    prepared: Sequence[Prepared],
    folder: Path,
    partitions: int | None,
    before: Before | None = None,
    period: Period | None = None,
) -> list[TaskReport]:
    """Sort everything and write the segments below `folder`. The tasks' reports, in log order. `before`: the log that is appended to.
    `period`: each segment lies in one.

    Files are read and sorted in two steps of tasks (ingest/runs.py). DataFrames, and types with duplicates to be found, go through one sort of
    Spark's.
    """
    from pyspark import StorageLevel

    if not any(one.frame is not None or one.source.unique for one in prepared):
        return _in_runs(spark, prepared, folder, partitions, before, period)
    # Spark looks for the bounds of ranges by computing what it sorts once more: it is kept, so that no source is read twice.
    frames = _frames(spark, prepared)
    if compared := before is not None and any(one.source.unique for one in prepared):
        frames = frames.persist(StorageLevel.DISK_ONLY)
    kept = once(spark, frames, prepared, before).persist(StorageLevel.DISK_ONLY)
    whole = kept
    total = sum(p.rows for p in prepared)
    orders = [c for c in whole.columns if c.startswith("o")]
    keys = [*KEYS, *orders, "k"]
    number = partitions or _partitions(spark, total)
    ordered = whole.repartitionByRange(number, *keys).sortWithinPartitions(*keys).drop(*orders, "k", "h")
    types, kinds = types_of(prepared), [p.plan.kind for p in prepared]
    files = [f.path for p in prepared for f in p.files]
    target = str(folder)
    beaten = None if before is None else before.beaten
    if before is not None:
        files += [path for _, _, path in before.files]
    beside, numbers = beside_of(prepared), file_numbers(prepared, before)

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        partition = context.partitionId() if context is not None else 0
        report = write_partition(
            batches, Path(target), partition, types, kinds, files, beside, numbers, beaten, period
        )
        yield pa.record_batch(
            [pa.array([partition], pa.int64()), pa.array([msgspec.json.encode(report)])], ["p", "report"]
        )

    try:
        rows = collect(spark, ordered.mapInArrow(write, "p long, report binary"))
    finally:
        kept.unpersist()
        if compared:
            frames.unpersist()
    found = sorted((row["p"], bytes(row["report"])) for row in rows)
    return [decoded(report, TaskReport) for _, report in found]


def _in_runs(
    spark: SparkSession,
    prepared: Sequence[Prepared],
    folder: Path,
    partitions: int | None,
    before: Before | None,
    period: Period | None,
) -> list[TaskReport]:
    beside, numbers = beside_of(prepared), file_numbers(prepared, before)
    types, kinds = types_of(prepared), [p.plan.kind for p in prepared]
    files = [f.path for p in prepared for f in p.files]
    plans, tasks = [p.plan for p in prepared], [task for p in prepared for task in p.tasks]
    (folder / runs.FOLDER).mkdir()
    target = str(folder)

    def first(number: int) -> bytes:
        task = tasks[number]
        plan = plans[task.source]
        try:
            done = runs.read(
                number, task, plan, types.index(plan.kind), Path(target), kinds, files, beside, numbers
            )
        except TimelapseError as error:
            told = [error.code, error.message, str(error.place), error.hint]
            done = runs.Read(TaskReport(fatal=told), [])
        return msgspec.json.encode(done)

    read = [decoded(d, runs.Read) for d in _each(spark, len(tasks), first)]
    found = [run for one in read for run in one.runs]
    reports = [one.report for one in read]
    if any(report.fatal is not None for report in reports):
        return reports
    parts = runs.ranges(folder, found, partitions, _cores(spark))

    def second(number: int) -> bytes:
        done = runs.write(number, parts[number], found, Path(target), types, beside, period)
        return msgspec.json.encode(done)

    written = [decoded(d, TaskReport) for d in _each(spark, len(parts), second)]
    shutil.rmtree(folder / runs.FOLDER, ignore_errors=True)
    return [*reports, *written]


def _each(spark: SparkSession, count: int, function: Callable[[int], bytes]) -> list[bytes]:
    """What a function gives for each number, one task each, in order."""
    if not count:
        return []

    def each(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield pa.record_batch(
                    [pa.array([number], pa.int64()), pa.array([function(number)], pa.binary())], ["n", "d"]
                )

    found = collect(spark, spark.range(0, count, 1, count).mapInArrow(each, "n long, d binary"))
    by_number = {row["n"]: bytes(row["d"]) for row in found}
    return [by_number[n] for n in range(count)]


def _cores(spark: SparkSession) -> int:
    """About how many tasks run at a time."""
    return int(spark.conf.get("spark.sql.shuffle.partitions") or 4)


def _partitions(spark: SparkSession, rows: int) -> int:
    """Enough ranges for about a segment each, and for all cores where there is enough to do."""
    return max(1, math.ceil(rows / SEGMENT_EVENTS), min(_cores(spark), rows // 100_000))
