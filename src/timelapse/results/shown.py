"""State tables as users see them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from timelapse.kinds.base import StateSpec
from timelapse.kinds.grouped import parts_of
from timelapse.model.types import TupleType, ValueType
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
    key: Any = None
    under: Any = None
    if spec.outer is not None and spec.inner is not None:
        width = len(parts_of(spec.outer))
        key, under = _key(table, names[:width], spec.outer), _key(table, names[width:], spec.inner)
    elif spec.key is not None:
        key = _key(table, names, spec.key)
    stored = None if spec.value is None else table.column("v")
    return pa.table(spec.kind.shown(spec, key, under, stored))


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
