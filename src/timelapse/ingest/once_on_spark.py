"""Duplicates on Spark: of rows that `unique` makes one only the one stays (ingest/unique.py has the rule)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from timelapse.ids import INT64_MIN
from timelapse.ingest.batches import Batch
from timelapse.ingest.convert import wire_type
from timelapse.ingest.plan import Plan
from timelapse.ingest.prepare import Prepared, types_of
from timelapse.ingest.task import BAD, GONE, SAME, TWICE
from timelapse.ingest.unique import Before, Rule, reach, rows_at, rule_of, why_left_out
from timelapse.ingest.wire_on_spark import KEYS, encode, spark_schema, spark_type
from timelapse.model.types import TIME
from timelapse.segments.beside import FILE, known_late
from timelapse.segments.quarantine import NOT_KEPT
from timelapse.segments.reader import LogReader
from timelapse.segments.types import EventType
from timelapse.tables.rowhash import one_array

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def frame_place(number: int, prepared: Sequence[Prepared]) -> int:
    """What rows of a DataFrame, source `number`, have in place of a row number: they stand in front of files, in the order of the sources."""
    return number - len(prepared)


def once(
    spark: SparkSession, whole: DataFrame, prepared: Sequence[Prepared], before: Before | None
) -> DataFrame:
    """The rows, of those that `unique` makes one only the one; the others become notes, and so do events of the log whose place they take.

    `before`: the log that is appended to; the rows are read twice then.
    """
    from pyspark.sql import functions as F  # noqa: N812
    from pyspark.sql.window import Window

    new = whole
    bases = np.cumsum([0, *(len(p.files) for p in prepared)]).tolist()
    known = bases[-1]  # files of the log are numbered behind these, and what is of no file stands before all
    whole = whole.withColumn("p", F.col("f") * 2).withColumn("l", F.lit(False))
    for number, kind in enumerate(types_of(prepared)):
        own = [n for n, one in enumerate(prepared) if one.plan.kind == kind]
        rule = rule_of(kind, [prepared[n].source for n in own])
        if rule is None:
            continue
        if before is not None:
            files = [(max(prepared[n].source.position, 0), f.path) for n in own for f in prepared[n].files]
            places = before.places(kind, files, bases[own[0]])
            there = _of_log(
                spark, new, before.reader, kind, prepared[own[0]].plan, number, rule, known, places
            )
            whole = whole.unionByName(there, allowMissingColumns=True)
        event = f"e{number}"
        keys = [F.col("ts") if f == "ts" else F.col(f"{event}.{f}") for f in rule.fields]
        taking_part = F.col("t") == number
        for key in keys:
            taking_part = taking_part & key.isNotNull()
        # other rows are alone: each has a key of its own
        alone = F.when(taking_part, F.lit(None)).otherwise(F.monotonically_increasing_id())
        arrived = F.col("ts") + F.coalesce(F.col(f"{event}._"), F.lit(0))
        whole = whole.withColumn("_alone", alone).withColumn("_a", F.when(taking_part, arrived))
        orders = [c for c in whole.columns if c.startswith("o")]
        in_log = F.col("l")
        ranked = [F.col("_a"), F.col("ts"), F.col("p"), ~in_log, F.col("r"), *map(F.col, orders), F.col("k")]
        ordered = [c.desc_nulls_last() if rule.keep == "last" else c.asc_nulls_first() for c in ranked]
        alike = Window.partitionBy("_alone", *[F.when(taking_part, key) for key in keys])
        each = alike.orderBy(*ordered)
        rows = whole.withColumn("_wins", F.row_number().over(each) == 1)
        rows = rows.withColumn("_h1", F.first("h").over(each)).withColumn("_l1", F.first("l").over(each))
        told = Window.partitionBy("_alone", *[F.when(taking_part, key) for key in keys], "h").orderBy(
            F.col("_wins").desc(), in_log.desc(), *ordered
        )
        rows = rows.withColumn("_d", F.row_number().over(told))
        # of events of the log that go, one says which new one takes their place
        rows = rows.withColumn("_first", F.min(F.when(in_log, F.col("r"))).over(alike))
        says = ~F.col("_l1") & (F.col("_first") == F.col("r"))
        instead = F.when(says, F.lower(F.hex("_h1"))).otherwise(F.lit(""))
        rows = rows.withColumn("_by", instead).filter(~in_log | ~F.col("_wins") | ~(F.col("t") == number))
        out, same = taking_part & ~F.col("_wins"), F.col("_d") > 1
        source = F.lit(str(own[0]))
        for n in own:
            its = F.col("f") >= bases[n]
            if prepared[n].frame is not None:
                its = (F.col("f") < 0) & (F.col("r") == frame_place(n, prepared))
            source = F.when(~in_log & its, F.lit(str(n))).otherwise(source)
        hidden = F.lit(any(prepared[n].plan.private is not None for n in own))
        conflict = F.concat(F.lit("conflict "), F.lower(F.hex("h")), F.lit(f" {why_left_out(rule)}"))
        text = F.when(same, F.lit(SAME)).otherwise(conflict)
        text = F.when(in_log, F.concat(F.col("_by"), F.lit(" "), text)).otherwise(text)
        mark = F.when(in_log, F.lit(GONE)).when(same, F.lit(TWICE)).otherwise(F.lit(BAD))
        changed = {
            "why": F.when(out, F.concat(source, F.lit(" "), text)).otherwise(F.col("why")),
            "raw": F.when(out & ~same, F.when(hidden, F.lit(NOT_KEPT)).otherwise(F.col("ts").cast("string"))).otherwise(F.col("raw")),
            "_t": F.when(out, mark).otherwise(F.col("t")),
            "f": F.when(out & in_log & (F.col("f") < known), F.lit(-1)).otherwise(F.col("f")),
        }  # fmt: skip
        rows = rows.withColumns(changed).withColumn(
            "ts", F.when(F.col("_t") < 0, F.lit(INT64_MIN)).otherwise(F.col("ts"))
        )
        rows = rows.withColumn("l", F.lit(False)).withColumn("t", F.col("_t").cast("int"))
        whole = rows.drop(*(c for c in rows.columns if c.startswith("_")))
    return whole.drop("p", "l")


def _of_log(
    spark: SparkSession, new: DataFrame, log: LogReader, kind: EventType, plan: Plan, number: int, rule: Rule, first: int,
    places: npt.NDArray[np.int64],
) -> DataFrame:  # fmt: skip
    """The events of one type of a log that have the same values as some new rows, in wire form, marked (`l`), with their places in log
    order (`p`, `Before.places`).

    Of all events only the rule's fields are read (where the time is one of them: of the times that new rows have); all fields of blocks in
    which something was found. `new`: all new rows, of which this reads those of type `number`. `first`: the number of the log's first file.
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
    inside = [n for n, s in enumerate(log.segments) if s.base < hi and s.base + s.count > lo]

    def keys(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for place in batch.column(0).to_pylist():
                segment = log.segments[inside[place]]
                yield from keys_of(
                    log, kind, rule, max(lo, segment.base), min(hi, segment.base + segment.count)
                )

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for files, one in events_at(log, kind, batch.column("r").to_numpy()):
                done = 0
                for made in encode(0, number, plan, -1, one, hashed=True):
                    if (rows := made.filter(pa.array(np.asarray(made.column("t")) >= 0))).num_rows:
                        own = files[done : done + rows.num_rows]
                        done += rows.num_rows
                        numbers = pa.array(np.where(own < 0, own, own + first))
                        rows = rows.set_column(rows.schema.get_field_index("f"), "f", numbers)
                        yield rows.append_column("p", pa.array(places[own]))

    fields = {"ts": TIME, **{f.name: f.type for f in kind.fields}}
    types = [spark_type(fields[f]).simpleString() for f in rule.fields]
    told = ", ".join(
        f"{name} {type_}" for name, type_ in [("s", "long"), ("r", "long"), *zip(names, types, strict=True)]
    )
    known = spark.range(0, len(inside), 1, max(1, len(inside))).mapInArrow(keys, told)
    alike = known.join(own, names, "left_semi").select("s", "r").repartition("s").sortWithinPartitions("r")
    made = alike.mapInArrow(read, spark_schema(kind).add("p", "long"))
    return made.select(
        *KEYS, "k", "why", "raw", "h", "p", F.lit(True).alias("l"), F.col("e").alias(f"e{number}")
    )


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


def events_at(
    log: LogReader, kind: EventType, seqs: npt.NDArray[np.int64]
) -> Iterator[tuple[npt.NDArray[np.int64], Batch]]:
    """The events of a type that have these seqs, which rise, with the numbers of their files. Only blocks that have some of them are read."""
    starts = np.asarray([segment.base + start for segment in log.segments for start in segment.starts])
    blocks = np.searchsorted(starts, seqs, "right")
    whole = replace(log, beside=True)
    for own in np.split(seqs, np.flatnonzero(np.diff(blocks)) + 1) if len(seqs) else ():
        for table in rows_at(whole, kind, own):
            columns = [one_array(table[f.name].cast(wire_type(f.type))) for f in kind.fields]
            ts = table["ts"].cast(pa.int64()).to_numpy()
            made = Batch(ts, table["seq"].to_numpy(), columns, late=known_late(table))
            yield table[FILE].to_numpy().astype(np.int64), made
