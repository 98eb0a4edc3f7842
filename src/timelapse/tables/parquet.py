"""How columns are stored in Parquet files."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa


def differences(schema: pa.Schema) -> dict[str, str]:
    """The encoding of each column of 64-bit integers: as differences to the value before.

    Most are places, times and identities. Beside LZ4 alone differences take half the space and less, and rising numbers
    are read five to ten times faster; of random numbers they take one part in a hundred more, and are read as fast.
    """
    leaves = [leaf for field in schema for leaf in _leaves(field.name, field.type)]
    numbers = [name for name, kind in leaves if pa.types.is_int64(kind) or pa.types.is_timestamp(kind)]
    return dict.fromkeys(numbers, "DELTA_BINARY_PACKED")


def others(schema: pa.Schema) -> list[str]:
    """The other columns."""
    known = differences(schema)
    leaves = (leaf for field in schema for leaf, _ in _leaves(field.name, field.type))
    return [leaf for leaf in leaves if leaf not in known]


def _leaves(name: str, kind: pa.DataType) -> Iterator[tuple[str, pa.DataType]]:
    """The columns that Parquet makes of one."""
    if pa.types.is_struct(kind):
        for field in kind.fields:
            yield from _leaves(f"{name}.{field.name}", field.type)
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        yield from _leaves(f"{name}.list.element", kind.value_type)
    else:
        yield name, kind
