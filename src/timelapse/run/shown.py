"""State tables as users see them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from timelapse.kinds.base import StateSpec
from timelapse.kinds.distinct import Distinct, estimate
from timelapse.kinds.frequent import Frequent, total
from timelapse.kinds.grouped import parts_of
from timelapse.kinds.mapof import MapOf
from timelapse.kinds.mean import NUMBER, SUM, Mean
from timelapse.kinds.quantiles import Quantiles, bits_of, middle_of
from timelapse.kinds.smoothed import Decayed, Smoothed
from timelapse.kinds.sum import SCALE, Sum, amount_type
from timelapse.model import decimals
from timelapse.model.types import TIME, DecimalType, TupleType, ValueType
from timelapse.tables.table import key_names, to_dict


def presentable(spec: StateSpec, table: pa.Table) -> pa.Table:
    """A state table as users see it, in key order: `key` and `value`, where the kind has no columns of its own."""
    names = key_names(spec)
    if names and table.num_rows:
        order = _order(table, names)
        if any(pa.types.is_boolean(table.schema.field(n).type) for n in names):
            keys = list(to_dict(spec, table))
            order = pa.array(np.array(sorted(range(len(keys)), key=keys.__getitem__), np.int64))
        table = table.take(order)
    columns: dict[str, Any] = {}
    if spec.outer is not None and spec.inner is not None:
        width = len(parts_of(spec.outer))
        columns["key"] = _key(table, names[:width], spec.outer)
        if spec.kind is Mean:
            return _means(columns["key"], table, width, spec)
        if spec.kind is Quantiles:
            bits = bits_of(spec.option("error"))
            middles = [middle_of(n, bits) for n in table.column(names[width]).to_pylist()]
            columns |= {"value": pa.array(middles, pa.float64()), "count": table.column("v")}
            return pa.table(columns)
        columns["field" if spec.kind is MapOf else "member"] = _key(table, names[width:], spec.inner)
    elif spec.key is not None:
        columns["key"] = _key(table, names, spec.key)
    if spec.kind in (Smoothed, Decayed):
        columns |= _smoothed(spec, table.column("v").combine_chunks())
    elif spec.kind is Frequent:
        columns["value"] = pa.array([total(spec.inner, v) for v in table.column("v").to_pylist()], pa.int64())
    elif spec.kind is Distinct:
        columns["value"] = pa.array([estimate(v) for v in table.column("v").to_pylist()], pa.float64())
    elif spec.kind is Sum:
        columns["value"] = amounts(spec, table.column("v"))
    elif spec.value is not None:
        columns["value"] = table.column("v")
    return pa.table(columns)


def rows_under(table: pa.Table, key: Any) -> pa.Table:
    """The rows of a state table, as users see it, whose `key` is this one."""
    column = table.column("key")
    if not isinstance(key, tuple):
        return table.filter(pc.equal(column, pa.scalar(key, column.type)))
    keep = pa.scalar(True)
    for number, part in enumerate(key):
        field = pc.struct_field(column, number)
        keep = pc.and_(keep, pc.equal(field, pa.scalar(part, field.type)))
    return table.filter(keep)


def amounts(spec: StateSpec, units: Any) -> Any:
    """Whole numbers of the smallest unit as the amounts that they stand for."""
    kind = amount_type(spec)
    return decimals.to_column(np.asarray(units), kind.arrow) if isinstance(kind, DecimalType) else units


def _order(table: pa.Table, names: list[str]) -> pa.Array:
    """The rows by their keys."""
    if len(names) == 1 and pa.types.is_int64(table.schema.field(names[0]).type):  # several times as fast
        return pa.array(np.argsort(np.asarray(table.column(names[0]))))
    return pc.sort_indices(table, sort_keys=[(n, "ascending") for n in names])


def _key(table: pa.Table, names: list[str], kind: ValueType) -> Any:
    """A key's parts as one column: a struct where it is a tuple of several."""
    if not isinstance(kind, TupleType) or len(names) == 1:
        return table.column(names[0])
    parts = [table.column(n).combine_chunks() for n in names]
    return pa.StructArray.from_arrays(parts, names=[f"f{i}" for i in range(len(names))])


def _means(key: Any, table: pa.Table, width: int, spec: StateSpec) -> pa.Table:
    """One row per key with values: their mean, sum and number."""
    key = key.combine_chunks() if isinstance(key, pa.ChunkedArray) else key
    part = table.column(f"k{width}").to_pylist()
    rows: list[list[int]] = []  # the row of the key, sum, number
    before: Any = None
    keys = key.to_pylist()
    for i, (which, n) in enumerate(zip(part, table.column("v").to_pylist(), strict=True)):
        if not rows or keys[i] != before:
            before = keys[i]
            rows.append([i, 0, 0])
        rows[-1][1 if which == SUM else 2] = n
    rows = [row for row in rows if row[2]]
    unit = 10 ** (spec.option(SCALE) or 0)
    assert {SUM, NUMBER} >= set(part)
    return pa.table({
        "key": key.take(pa.array([i for i, _, _ in rows], pa.int64())),
        "value": pa.array([total / (number * unit) for _, total, number in rows], pa.float64()),
        "sum": amounts(spec, pa.array([total for _, total, _ in rows], pa.int64())),
        "count": pa.array([number for _, _, number in rows], pa.int64()),
    })  # fmt: skip


def _smoothed(spec: StateSpec, stored: pa.Array) -> dict[str, Any]:
    """The average, or the count as it was when it was last written (`at`)."""
    if spec.kind is Decayed:
        return {"value": stored.field(0), "at": stored.field(1).cast(TIME.arrow)}
    if spec.option("alpha") is not None:
        return {"value": stored}
    return {"value": pc.divide(stored.field(0), stored.field(1)), "at": stored.field(2).cast(TIME.arrow)}
