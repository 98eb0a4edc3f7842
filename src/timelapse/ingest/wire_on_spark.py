"""How rows travel through Spark while a log is made: one wide form, a struct column per event type, beside what orders them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pyarrow as pa

from timelapse.errors import TimelapseError
from timelapse.ids import INT64_MIN
from timelapse.ingest.batches import Batch
from timelapse.ingest.canonical import canonical_bytes
from timelapse.ingest.convert import wire_type
from timelapse.ingest.noticed import notice
from timelapse.ingest.plan import Plan
from timelapse.ingest.task import FATAL, Note, notes_of, noticed_note
from timelapse.ingest.unique import hashes_of
from timelapse.model.decimals import DIGITS
from timelapse.model.types import DecimalType, ListType, OptionalType, ValueType
from timelapse.segments.types import EventType

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

OUT_ROWS = 32 * 1024
KEYS = ("ts", "t", "f", "r")


def wire_schema(kind: EventType) -> pa.Schema:
    return pa.schema(
        [
            pa.field("ts", pa.int64()), pa.field("t", pa.int32()), pa.field("f", pa.int64()),
            pa.field("r", pa.int64()), pa.field("k", pa.binary()), pa.field("why", pa.string()),
            pa.field("raw", pa.string()), pa.field("h", pa.binary()), pa.field("e", _struct(kind)),
        ]
    )  # fmt: skip


def _struct(kind: EventType) -> pa.DataType:
    # Spark has no empty struct that travels well; "_" is how late the row arrived.
    return pa.struct([pa.field("_", pa.int64()), *(pa.field(f.name, wire_type(f.type)) for f in kind.fields)])


def spark_type(kind: ValueType) -> DataType:
    from pyspark.sql import types as T  # noqa: N812

    if isinstance(kind, OptionalType):
        return spark_type(kind.inner)
    if isinstance(kind, ListType):
        return T.ArrayType(spark_type(kind.inner), True)
    if isinstance(kind, DecimalType):
        return T.DecimalType(DIGITS, kind.scale)
    plain: dict[str, DataType] = {
        "int": T.LongType(), "Time": T.LongType(), "float": T.DoubleType(), "bool": T.BooleanType(),
        "str": T.StringType(), "bytes": T.BinaryType(),
    }  # fmt: skip
    return plain[kind.text]


def spark_struct(kind: EventType) -> StructType:
    from pyspark.sql import types as T  # noqa: N812

    own = [T.StructField(f.name, spark_type(f.type), True) for f in kind.fields]
    return T.StructType([T.StructField("_", T.LongType(), True), *own])


def spark_schema(kind: EventType) -> StructType:
    from pyspark.sql import types as T  # noqa: N812

    plain: list[tuple[str, DataType]] = [
        ("ts", T.LongType()), ("t", T.IntegerType()), ("f", T.LongType()), ("r", T.LongType()),
        ("k", T.BinaryType()), ("why", T.StringType()), ("raw", T.StringType()), ("h", T.BinaryType()),
        ("e", spark_struct(kind)),
    ]  # fmt: skip
    return T.StructType([T.StructField(name, kind_, True) for name, kind_ in plain])


def encode(
    number: int,
    type_: int,
    plan: Plan,
    file: int,
    batch: Batch,
    order: Sequence[pa.Array] = (),
    *,
    keyed: bool = False,
    hashed: bool = False,
) -> Iterator[pa.RecordBatch]:
    """A batch of source `number`, of type number `type_`, in wire form, in parts that Spark can take, the rows that were left out first.

    `hashed`: with a hash of each event.
    """
    schema = wire_schema(plan.kind)
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
        ts = pa.array(batch.ts[lo : lo + n])
        columns = [
            ts, _filled(n, type_, pa.int32()), _filled(n, file, pa.int64()),
            pa.array(batch.rows[lo : lo + n]), key, pa.nulls(n, pa.string()), pa.nulls(n, pa.string()),
            _hashes(plan.kind, ts, own) if hashed else pa.nulls(n, pa.binary()), event,
        ]  # fmt: skip
        yield _with_order(columns, schema, [o.slice(lo, n) for o in order])


def _hashes(kind: EventType, ts: pa.Array, columns: Sequence[pa.Array]) -> pa.Array:
    fields = pa.table(list(columns), kind.schema.names).cast(kind.schema)
    return pa.array([one.tobytes() for one in hashes_of(kind, ts, fields)], pa.binary())


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
        pa.nulls(n, pa.binary()), pa.nulls(n, schema.field("e").type),
    ]  # fmt: skip
    return _with_order(columns, schema, [pa.nulls(n, o.type) for o in order])


def fatal(error: TimelapseError, plan: Plan, order: Sequence[pa.Array] = ()) -> pa.RecordBatch:
    """An error that ends the ingest, sent to the driver through the data so that it keeps its form."""
    text = msgspec.json.encode([error.code, error.message, str(error.place), error.hint]).decode()
    return _notes([(FATAL, 0, text, None)], -1, wire_schema(plan.kind), order)
