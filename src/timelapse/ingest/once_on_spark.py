"""Duplicates on Spark: of rows that `unique` makes one only the one stays (ingest/unique.py has the rule)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from timelapse.ids import INT64_MIN
from timelapse.ingest.batches import Batch
from timelapse.ingest.convert import wire_type
from timelapse.ingest.plan import Plan
from timelapse.ingest.prepare import Prepared, types_of
from timelapse.ingest.private import NOT_KEPT
from timelapse.ingest.task import BAD, TWICE
from timelapse.ingest.unique import Rule, reach, rows_at, rule_of, why_left_out
from timelapse.ingest.wire_on_spark import KEYS, encode, spark_schema, spark_type
from timelapse.log.reader import LogReader
from timelapse.log.types import EventType
from timelapse.model.types import TIME
from timelapse.tables.rowhash import one_array

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_IN_LOG = -2
"""In place of a file's number: rows that are in the log already."""


def once(
    spark: SparkSession, whole: DataFrame, prepared: Sequence[Prepared], log: LogReader | None
) -> DataFrame:
    """The rows, of those that `unique` makes one only the one; the others become notes. `log`: that is appended to; the rows are read
    twice then."""
    from pyspark.sql import functions as F  # noqa: N812
    from pyspark.sql.window import Window

    new = whole
    files = np.cumsum([0, *(len(p.files) for p in prepared)]).tolist()
    for number, kind in enumerate(types_of(prepared)):
        own = [n for n, one in enumerate(prepared) if one.plan.kind == kind]
        rule = rule_of(kind, [prepared[n].source for n in own])
        if rule is None:
            continue
        if log is not None:
            whole = whole.unionByName(
                _of_log(spark, new, log, kind, prepared[own[0]].plan, number, rule), allowMissingColumns=True
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
        hidden = source.isin([str(n) for n in own if prepared[n].plan.private is not None])
        why = F.when(F.col("_log"), F.lit(why_left_out(rule, in_log=True))).otherwise(
            F.lit(why_left_out(rule, in_log=False))
        )
        changed = {
            "why": F.when(out & same, F.concat(source, F.lit(" "))).when(out, F.concat(source, F.lit(" conflict "), why)).otherwise(F.col("why")),
            "raw": F.when(out & ~same, F.when(hidden, F.lit(NOT_KEPT)).otherwise(F.col("ts").cast("string"))).otherwise(F.col("raw")),
            "_t": F.when(out & same, F.lit(TWICE)).when(out, F.lit(BAD)).otherwise(F.col("t")),
        }  # fmt: skip
        rows = rows.withColumns(changed).withColumn(
            "ts", F.when(F.col("_t") < 0, F.lit(INT64_MIN)).otherwise(F.col("ts"))
        )
        whole = rows.withColumn("t", F.col("_t").cast("int")).drop("_alone", "_n", "_ts", "_e", "_log", "_t")
    return whole


def _of_log(
    spark: SparkSession, new: DataFrame, log: LogReader, kind: EventType, plan: Plan, number: int, rule: Rule
) -> DataFrame:
    """The events of one type of a log that have the same values as some new rows, in wire form.

    Of all events only the rule's fields are read (where the time is one of them: of the times that new rows have); all fields of blocks in
    which something was found. `new`: all new rows, of which this reads those of type `number`.
    """
    from pyspark.sql import functions as F  # noqa: N812

    names = [f"k{n}" for n in range(len(rule.fields))]
    columns = [F.col("ts") if f == "ts" else F.col(f"e{number}.{f}") for f in rule.fields]
    own = new.filter(F.col("t") == number).select([c.alias(n) for c, n in zip(columns, names, strict=True)])
    times = None
    if "ts" in rule.fields:
        key = names[rule.fields.index("ts")]
        found = own.agg(F.min(key), F.max(key)).first()
        times = None if found is None or found[0] is None else (found[0], found[1])
    lo, hi = reach(log, rule, times)
    places = [n for n, s in enumerate(log.segments) if s.base < hi and s.base + s.count > lo]

    def keys(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for place in batch.column(0).to_pylist():
                segment = log.segments[places[place]]
                yield from keys_of(
                    log, kind, rule, max(lo, segment.base), min(hi, segment.base + segment.count)
                )

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for one in events_at(log, kind, batch.column("r").to_numpy()):
                for made in encode(0, number, plan, _IN_LOG, one):
                    yield made.filter(pa.array(np.asarray(made.column("t")) >= 0))

    fields = {"ts": TIME, **{f.name: f.type for f in kind.fields}}
    types = [spark_type(fields[f]).simpleString() for f in rule.fields]
    told = ", ".join(
        f"{name} {type_}" for name, type_ in [("s", "long"), ("r", "long"), *zip(names, types, strict=True)]
    )
    known = spark.range(0, len(places), 1, max(1, len(places))).mapInArrow(keys, told)
    alike = known.join(own, names, "left_semi").select("s", "r").repartition("s").sortWithinPartitions("r")
    made = alike.mapInArrow(read, spark_schema(kind))
    return made.select(*KEYS, "k", "why", "raw", F.col("e").alias(f"e{number}"))


def keys_of(log: LogReader, kind: EventType, rule: Rule, lo: int, hi: int) -> Iterator[pa.RecordBatch]:
    """What the rule compares of the events lo <= seq < hi of a type, with the segment and the seq of each."""
    bases = [segment.base for segment in log.segments]
    kinds = {"ts": pa.int64(), **{f.name: wire_type(f.type) for f in kind.fields}}
    for chunk in log.chunks(lo, hi, {kind.name: [f for f in rule.fields if f != "ts"]}):
        table = chunk.tables.get(kind.name)
        if table is None:
            continue
        seqs = table["seq"].to_numpy()
        fields = [table[f].cast(kinds[f]) for f in rule.fields]
        columns = [
            pa.array(np.searchsorted(bases, seqs, "right") - 1),
            pa.array(seqs),
            *map(one_array, fields),
        ]
        yield pa.record_batch(columns, ["s", "r", *(f"k{n}" for n in range(len(fields)))])


def events_at(log: LogReader, kind: EventType, seqs: npt.NDArray[np.int64]) -> Iterator[Batch]:
    """The events of a type that have these seqs, which rise. Only blocks that have some of them are read."""
    starts = np.asarray([segment.base + start for segment in log.segments for start in segment.starts])
    blocks = np.searchsorted(starts, seqs, "right")
    for own in np.split(seqs, np.flatnonzero(np.diff(blocks)) + 1) if len(seqs) else ():
        for table in rows_at(log, kind, own):
            columns = [one_array(table[f.name].cast(wire_type(f.type))) for f in kind.fields]
            yield Batch(table["ts"].cast(pa.int64()).to_numpy(), table["seq"].to_numpy(), columns)
