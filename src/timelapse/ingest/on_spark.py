"""Ingest on Spark: read every source, sort by the log's total order, write segments from the tasks.

The rows of all sources travel through one shuffle in one wide form (a struct column per event type). Each
range of the total order is written by the task that sorted it, into folders with names of their own, so a
task that Spark runs twice does no harm: the driver keeps what the successful attempts report.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pyarrow as pa

from timelapse.errors import TimelapseError
from timelapse.ids import INT64_MIN
from timelapse.ingest import runs
from timelapse.ingest.batches import Bad, Batch
from timelapse.ingest.canonical import canonical_bytes
from timelapse.ingest.convert import wire_type
from timelapse.ingest.doubts import refuse_without_zone
from timelapse.ingest.noticed import notice
from timelapse.ingest.parse import parse_table
from timelapse.ingest.plan import Plan
from timelapse.ingest.prepare import Prepared, Task, beside_of, file_numbers, read_task, types_of
from timelapse.ingest.prepare_spark import collect
from timelapse.ingest.task import BAD, FATAL, TWICE, Note, TaskReport, notes_of, noticed_note, write_partition
from timelapse.ingest.unique import rule_of, why_left_out
from timelapse.log.reader import LogReader
from timelapse.log.segment import SEGMENT_EVENTS
from timelapse.log.types import EventType
from timelapse.model.decimals import DIGITS
from timelapse.model.types import DecimalType, ListType, OptionalType, ValueType

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType

OUT_ROWS = 32 * 1024
KEYS = ("ts", "t", "f", "r")


# --- the wire form --------------------------------------------------------------------------------------


def _wire_schema(kind: EventType) -> pa.Schema:
    return pa.schema(
        [
            pa.field("ts", pa.int64()), pa.field("t", pa.int32()), pa.field("f", pa.int64()),
            pa.field("r", pa.int64()), pa.field("k", pa.binary()), pa.field("why", pa.string()),
            pa.field("raw", pa.string()), pa.field("e", _struct(kind)),
        ]
    )  # fmt: skip


def _struct(kind: EventType) -> pa.DataType:
    # Spark has no empty struct that travels well; "_" is how late the row arrived.
    return pa.struct([pa.field("_", pa.int64()), *(pa.field(f.name, wire_type(f.type)) for f in kind.fields)])


def _spark_type(kind: ValueType) -> DataType:
    from pyspark.sql import types as T  # noqa: N812

    if isinstance(kind, OptionalType):
        return _spark_type(kind.inner)
    if isinstance(kind, ListType):
        return T.ArrayType(_spark_type(kind.inner), True)
    if isinstance(kind, DecimalType):
        return T.DecimalType(DIGITS, kind.scale)
    plain: dict[str, DataType] = {
        "int": T.LongType(), "Time": T.LongType(), "float": T.DoubleType(), "bool": T.BooleanType(),
        "str": T.StringType(), "bytes": T.BinaryType(),
    }  # fmt: skip
    return plain[kind.text]


def _spark_struct(kind: EventType) -> StructType:
    from pyspark.sql import types as T  # noqa: N812

    own = [T.StructField(f.name, _spark_type(f.type), True) for f in kind.fields]
    return T.StructType([T.StructField("_", T.LongType(), True), *own])


def _spark_schema(kind: EventType) -> StructType:
    from pyspark.sql import types as T  # noqa: N812

    plain: list[tuple[str, DataType]] = [
        ("ts", T.LongType()), ("t", T.IntegerType()), ("f", T.LongType()), ("r", T.LongType()),
        ("k", T.BinaryType()), ("why", T.StringType()), ("raw", T.StringType()), ("e", _spark_struct(kind)),
    ]  # fmt: skip
    return T.StructType([T.StructField(name, kind_, True) for name, kind_ in plain])


def _encode(
    number: int,
    type_: int,
    plan: Plan,
    file: int,
    batch: Batch,
    order: Sequence[pa.Array] = (),
    *,
    keyed: bool = False,
) -> Iterator[pa.RecordBatch]:
    """A batch of source `number`, of type number `type_`, in wire form, in parts that Spark can take, the rows that were left out first."""
    schema = _wire_schema(plan.kind)
    notes = [*notes_of(number, batch), noticed_note(number, notice(plan, file, batch))]
    yield _notes(notes, file, schema, order)
    total = len(batch.ts)
    if not total:
        return
    kinds = [f.type for f in plan.kind.fields]
    size = sum(c.nbytes for c in batch.columns)
    step = max(1, min(OUT_ROWS, total * (32 << 20) // max(size, 1)))
    for lo in range(0, total, step):
        n = min(step, total - lo)
        own = [c.slice(lo, n) for c in batch.columns]
        key = canonical_bytes(own, kinds, n) if keyed else _places(batch, lo, n)
        late = pa.nulls(n, pa.int64()) if batch.late is None else pa.array(batch.late[lo : lo + n])
        event = pa.StructArray.from_arrays([late, *own], fields=list(schema.field("e").type))
        columns = [
            pa.array(batch.ts[lo : lo + n]), _filled(n, type_, pa.int32()), _filled(n, file, pa.int64()),
            pa.array(batch.rows[lo : lo + n]), key, pa.nulls(n, pa.string()), pa.nulls(n, pa.string()), event,
        ]  # fmt: skip
        yield _with_order(columns, schema, [o.slice(lo, n) for o in order])


def _places(batch: Batch, lo: int, n: int) -> pa.Array:
    """What orders the events of one row: their places in it."""
    if batch.items is None:
        return pa.nulls(n, pa.binary())
    return pa.array([place.to_bytes(8, "big") for place in batch.items[lo : lo + n].tolist()], pa.binary())


def _filled(n: int, value: int, kind: pa.DataType) -> pa.Array:
    return pa.array(np.full(n, value), type=kind)


def _with_order(columns: list[pa.Array], schema: pa.Schema, order: Sequence[pa.Array]) -> pa.RecordBatch:
    names = [*schema.names, *(f"__order{n}" for n in range(len(order)))]
    return pa.record_batch([*columns, *order], names)


def _notes(
    notes: Sequence[Note],
    file: int,
    schema: pa.Schema,
    order: Sequence[pa.Array],
) -> pa.RecordBatch:
    n = len(notes)
    marks, rows, whys, raws = zip(*notes, strict=True)
    columns = [
        _filled(n, INT64_MIN, pa.int64()), pa.array(marks, pa.int32()), _filled(n, file, pa.int64()),
        pa.array(rows, pa.int64()), pa.nulls(n, pa.binary()), pa.array(whys, pa.string()), pa.array(raws, pa.string()),
        pa.nulls(n, schema.field("e").type),
    ]  # fmt: skip
    return _with_order(columns, schema, [pa.nulls(n, o.type) for o in order])


def _fatal(error: TimelapseError, plan: Plan, order: Sequence[pa.Array] = ()) -> pa.RecordBatch:
    """An error that ends the ingest, sent to the driver through the data so that it keeps its form."""
    text = msgspec.json.encode([error.code, error.message, str(error.place), error.hint]).decode()
    return _notes([(FATAL, 0, text, None)], -1, _wire_schema(plan.kind), order)


# --- the job --------------------------------------------------------------------------------------------


def _read_files(
    plans: Sequence[Plan], types: Sequence[int], tasks: Sequence[Task]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                task = tasks[number]
                plan = plans[task.source]
                try:
                    for file, done in read_task(task, plan):
                        yield from _encode(task.source, types[task.source], plan, file, done)
                except TimelapseError as error:
                    yield _fatal(error, plan)

    return read


def _read_frame(
    number: int, type_: int, plan: Plan
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            table = pa.Table.from_batches([batch])
            names = [n for n in table.column_names if n.startswith("__order")]
            order = [batch.column(table.column_names.index(n)) for n in names]
            try:
                done = parse_table(plan, table, 0)
                refuse_without_zone(plan.kind, done.doubts, f"DataFrame for {plan.kind.name}", numbered=False)
                kept = pa.array(done.rows)
                done.rows = np.full(len(done.ts), -1, np.int64)
                done.bad = [Bad(-1, *b[1:]) for b in done.bad]
                yield from _encode(number, type_, plan, -1, done, [o.take(kept) for o in order], keyed=True)
            except TimelapseError as error:
                yield _fatal(error, plan, order)

    return read


def _frames(spark: SparkSession, prepared: Sequence[Prepared]) -> DataFrame:
    """All sources as one DataFrame in wire form, with a struct column `e<n>` per event type."""
    from pyspark.sql import functions as F  # noqa: N812
    from pyspark.sql import types as T  # noqa: N812

    plans = [p.plan for p in prepared]
    kinds = types_of(prepared)
    types = [kinds.index(plan.kind) for plan in plans]
    structs = [_spark_struct(kind) for kind in kinds]
    frames: list[DataFrame] = []
    orders: list[tuple[int, DataType]] = []
    read: list[tuple[int, DataFrame, int]] = []
    for number, one in enumerate(prepared):
        schema = _spark_schema(one.plan.kind)
        order_types: list[DataType] = []
        if one.frame is not None:
            order_types = [f.dataType for f in one.frame.schema.fields if f.name.startswith("__order")]
            extra = [T.StructField(f"__order{n}", t, True) for n, t in enumerate(order_types)]
            made = one.frame.mapInArrow(
                _read_frame(number, types[number], one.plan), T.StructType([*schema.fields, *extra])
            )
        elif one.tasks:
            ids = spark.range(0, len(one.tasks), 1, len(one.tasks))
            made = ids.mapInArrow(_read_files(plans, types, one.tasks), schema)
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
        frames.append(made.select(*KEYS, "k", "why", "raw", *order_columns, *events))
    if not frames:
        return spark.createDataFrame([], "ts long, t int, f long, r long, k binary, why string, raw string")
    whole = frames[0]
    for frame in frames[1:]:
        whole = whole.unionByName(frame)
    return whole


def run(
    spark: SparkSession,
    prepared: Sequence[Prepared],
    folder: Path,
    partitions: int | None,
    log: LogReader | None = None,
) -> list[TaskReport]:
    """Sort everything and write the segments below `folder`. The tasks' reports, in log order. `log`: that is appended to.

    Files are read and sorted in two steps of tasks (ingest/runs.py). DataFrames, and types with duplicates to be found, go through one sort of
    Spark's.
    """
    from pyspark import StorageLevel

    if not any(one.frame is not None or one.source.unique for one in prepared):
        return _in_runs(spark, prepared, folder, partitions, log)
    # Spark looks for the bounds of ranges by computing what it sorts once more: it is kept, so that no source is read twice.
    kept = _once(spark, _frames(spark, prepared), prepared, log).persist(StorageLevel.DISK_ONLY)
    whole = kept
    total = sum(p.rows for p in prepared)
    orders = [c for c in whole.columns if c.startswith("o")]
    keys = [*KEYS, *orders, "k"]
    number = partitions or _partitions(spark, total)
    ordered = whole.repartitionByRange(number, *keys).sortWithinPartitions(*keys).drop(*orders, "k")
    types, kinds = types_of(prepared), [p.plan.kind for p in prepared]
    files = [f.path for p in prepared for f in p.files]
    target = str(folder)
    beside, numbers = beside_of(prepared), file_numbers(prepared, log)

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        partition = context.partitionId() if context is not None else 0
        report = write_partition(batches, Path(target), partition, types, kinds, files, beside, numbers)
        yield pa.record_batch(
            [pa.array([partition], pa.int64()), pa.array([msgspec.json.encode(report)])], ["p", "report"]
        )

    try:
        rows = collect(spark, ordered.mapInArrow(write, "p long, report binary"))
    finally:
        kept.unpersist()
    found = sorted((row["p"], bytes(row["report"])) for row in rows)
    return [msgspec.json.decode(report, type=TaskReport) for _, report in found]


def _in_runs(
    spark: SparkSession,
    prepared: Sequence[Prepared],
    folder: Path,
    partitions: int | None,
    log: LogReader | None,
) -> list[TaskReport]:
    beside, numbers = beside_of(prepared), file_numbers(prepared, log)
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

    read = [msgspec.json.decode(d, type=runs.Read) for d in _each(spark, len(tasks), first)]
    found = [run for one in read for run in one.runs]
    reports = [one.report for one in read]
    if any(report.fatal is not None for report in reports):
        return reports
    parts = runs.ranges(folder, found, partitions, _cores(spark))

    def second(number: int) -> bytes:
        return msgspec.json.encode(runs.write(number, parts[number], found, Path(target), types, beside))

    written = [msgspec.json.decode(d, type=TaskReport) for d in _each(spark, len(parts), second)]
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


_IN_LOG = -2
"""In place of a file's number: rows that are in the log already."""


def _once(
    spark: SparkSession, whole: DataFrame, prepared: Sequence[Prepared], log: LogReader | None
) -> DataFrame:
    """The rows, of those that `unique` makes one only the one; the others become notes (ingest/unique.py has the rule)."""
    from pyspark.sql import functions as F  # noqa: N812
    from pyspark.sql.window import Window

    files = np.cumsum([0, *(len(p.files) for p in prepared)]).tolist()
    for number, kind in enumerate(types_of(prepared)):
        own = [n for n, one in enumerate(prepared) if one.plan.kind == kind]
        rule = rule_of(kind, [prepared[n].source for n in own])
        if rule is None:
            continue
        if log is not None:
            whole = whole.unionByName(
                _of_log(spark, whole, log, kind, prepared[own[0]].plan, number), allowMissingColumns=True
            )
        event = f"e{number}"
        keys = [F.col("ts") if f == "ts" else F.col(f"{event}.{f}") for f in rule.fields]
        taking_part = F.col("t") == number
        for key in keys:
            taking_part = taking_part & key.isNotNull()
        # other rows are alone: each has a key of its own
        whole = whole.withColumn(
            "_alone", F.when(taking_part, F.lit(None)).otherwise(F.monotonically_increasing_id())
        )
        orders = [c for c in whole.columns if c.startswith("o")]
        in_log = F.col("f") == _IN_LOG
        turned = [F.when(in_log, F.lit(None)).otherwise(F.col(c)) for c in (*KEYS, *orders, "k")]
        ranked = (
            [c.desc_nulls_last() for c in turned]
            if rule.keep == "last"
            else [c.asc_nulls_first() for c in turned]
        )
        each = Window.partitionBy("_alone", *[F.when(taking_part, key) for key in keys]).orderBy(
            in_log.desc(), F.when(in_log, F.col("r")), *ranked
        )
        rows = (
            whole.withColumn("_n", F.row_number().over(each))
            .withColumn("_ts", F.first("ts").over(each)).withColumn("_e", F.first(event).over(each))
            .withColumn("_log", F.first("f").over(each) == _IN_LOG)
            .filter(~in_log)
        )  # fmt: skip
        out = taking_part & (F.col("_n") > 1)
        same = F.col("_ts").eqNullSafe(F.col("ts"))
        for field in kind.fields:  # how late a row arrived makes no difference
            same = same & F.col(f"_e.{field.name}").eqNullSafe(F.col(f"{event}.{field.name}"))
        source = F.lit(str(own[0]))
        for n in own:
            source = F.when(F.col("f") >= files[n], F.lit(str(n))).otherwise(source)
        why = F.when(F.col("_log"), F.lit(why_left_out(rule, in_log=True))).otherwise(
            F.lit(why_left_out(rule, in_log=False))
        )
        changed = {
            "why": F.when(out & same, F.concat(source, F.lit(" "))).when(out, F.concat(source, F.lit(" conflict "), why)).otherwise(F.col("why")),
            "raw": F.when(out & ~same, F.lit("")).otherwise(F.col("raw")),
            "_t": F.when(out & same, F.lit(TWICE)).when(out, F.lit(BAD)).otherwise(F.col("t")),
        }  # fmt: skip
        rows = rows.withColumns(changed).withColumn(
            "ts", F.when(F.col("_t") < 0, F.lit(INT64_MIN)).otherwise(F.col("ts"))
        )
        whole = rows.withColumn("t", F.col("_t").cast("int")).drop("_alone", "_n", "_ts", "_e", "_log", "_t")
    return whole


def _of_log(
    spark: SparkSession, whole: DataFrame, log: LogReader, kind: EventType, plan: Plan, number: int
) -> DataFrame:
    """The events of one type of a log in wire form, in tasks of a segment each."""
    from pyspark.sql import functions as F  # noqa: N812

    schema = _spark_schema(kind)

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for segment in batch.column(0).to_pylist():
                entry = log.segments[segment]
                for chunk in log.chunks(entry.base, entry.base + entry.count, {kind.name: None}):
                    table = chunk.tables.get(kind.name)
                    if table is None:
                        continue
                    columns = [table[f.name].combine_chunks().cast(wire_type(f.type)) for f in kind.fields]
                    one = Batch(table["ts"].cast(pa.int64()).to_numpy(), table["seq"].to_numpy(), columns)
                    for made in _encode(0, number, plan, _IN_LOG, one):
                        yield made.filter(pa.array(np.asarray(made.column("t")) >= 0))

    ids = spark.range(0, len(log.segments), 1, max(1, len(log.segments)))
    made = ids.mapInArrow(read, schema)
    return made.select(*KEYS, "k", "why", "raw", F.col("e").alias(f"e{number}"))


def _cores(spark: SparkSession) -> int:
    """About how many tasks run at a time."""
    return int(spark.conf.get("spark.sql.shuffle.partitions") or 4)


def _partitions(spark: SparkSession, rows: int) -> int:
    """Enough ranges for about a segment each, and for all cores where there is enough to do."""
    return max(1, math.ceil(rows / SEGMENT_EVENTS), min(_cores(spark), rows // 100_000))
