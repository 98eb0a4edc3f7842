"""Arrow types that Spark does not take, as those that it does."""

from __future__ import annotations

import pyarrow as pa

from timelapse.model.types import TIME


def plain_type(kind: pa.DataType) -> pa.DataType:
    """Text and bytes with short offsets, also inside lists and structs."""
    if pa.types.is_dictionary(kind):
        return plain_type(kind.value_type)
    if pa.types.is_large_string(kind):
        return pa.string()
    if pa.types.is_large_binary(kind):
        return pa.binary()
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(plain_type(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([f.with_type(plain_type(f.type)) for f in kind])
    return kind


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """A schema of such types; `ts` is a time."""
    fields = [
        pa.field(f.name, TIME.arrow if f.name == "ts" else plain_type(f.type), f.nullable) for f in schema
    ]
    return pa.schema(fields)


def plain(table: pa.Table) -> pa.Table:
    """A table with such types."""
    return table.cast(plain_schema(table.schema))
