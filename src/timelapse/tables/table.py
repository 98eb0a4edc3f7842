"""State as Arrow tables: what is exchanged between slices, stored with runs, and read by people.

A *state table* has the columns `h` (uint64: lane 0 of the key's row hash), the key's parts `k0`,
`k1`, ... and, for kinds with values, `v`; one row per present key, sorted by `h`. An *effect table*
has `h`, the key's parts, and the columns of its form (kinds/effects.py), sorted by `h` as well, so
that both are joined by their sorted hashes; keys are always compared too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.ipc

from timelapse.ids import INT64_MIN
from timelapse.kinds.base import UNKEYED, StateSpec
from timelapse.kinds.effects import Delta, Form
from timelapse.model import decimals
from timelapse.model.types import DecimalType, ListType, OptionalType, ScalarType, TupleType, ValueType
from timelapse.store.parts import Part, PartWriter, map_file
from timelapse.tables.loops import U64, loops
from timelapse.tables.rowhash import KEY_SEED, hash_order, one_array, row_hashes


def key_types(spec: StateSpec) -> tuple[ValueType, ...]:
    """The types of the key's parts; none for a state without a key."""
    if spec.key is None:
        return ()
    return spec.key.items if isinstance(spec.key, TupleType) else (spec.key,)


def key_names(spec: StateSpec) -> list[str]:
    return [f"k{i}" for i in range(len(key_types(spec)))]


def value_type(spec: StateSpec) -> ValueType | None:
    """The type of stored values; None where presence is all there is (Set)."""
    return spec.value


def key_arrays(spec: StateSpec, keys: Sequence[Any]) -> list[pa.Array]:
    """Keys as columns."""
    types = key_types(spec)
    if not types:
        return []
    if not isinstance(spec.key, TupleType):
        return [value_array(types[0], keys)]
    return [value_array(t, column) for column, t in zip(transposed(keys, len(types)), types, strict=True)]


def transposed(rows: Sequence[Any], width: int) -> list[list[Any]]:
    """Tuples of so many items as columns. `zip(*rows)` makes an iterator for each row: five times slower for millions."""
    return [list(map(itemgetter(place), rows)) for place in range(width)]


def key_list(spec: StateSpec, table: pa.Table) -> list[Any]:
    """The keys of a table's rows, as handlers write them."""
    types = key_types(spec)
    if not types:
        return [UNKEYED] * table.num_rows
    parts = [to_python(table.column(n), t) for n, t in zip(key_names(spec), types, strict=True)]
    return list(zip(*parts, strict=True)) if isinstance(spec.key, TupleType) else parts[0]


def key_hashes(columns: list[pa.Array], rows: int) -> U64:
    """The `h` column for key columns."""
    return row_hashes(columns, rows, KEY_SEED, 0)


def value_array(kind: ValueType, values: Sequence[Any]) -> pa.Array:
    """Values as a column; None gives null. Integers outside int64 are taken modulo 2^64, decimals likewise."""
    inner = kind.inner if isinstance(kind, OptionalType) else kind
    if isinstance(inner, DecimalType):
        places = inner.scale
        words = [0 if v is None else wrap(decimals.unscaled(v, places, "a value")) for v in values]
        missing = np.fromiter((v is None for v in values), np.bool_, len(values))
        return decimals.to_column(np.array(words, np.int64), inner.arrow, missing)
    try:
        return pa.array(values, kind.arrow)
    except OverflowError:
        return pa.array([None if v is None else wrap(v) for v in values], kind.arrow)


def wrap(n: int) -> int:
    """n modulo 2^64, in the int64 range."""
    return (n - INT64_MIN) % (1 << 64) + INT64_MIN


def to_python(column: pa.ChunkedArray | pa.Array, kind: ValueType) -> list[Any]:
    """A column's values as handlers see them: tuples, NamedTuples, int times."""
    array = one_array(column)
    if isinstance(kind, OptionalType):
        return to_python(array, kind.inner)
    if isinstance(kind, DecimalType):
        return decimals.to_list(array, kind.scale)
    if isinstance(kind, ScalarType):
        values: list[Any] = (array.cast(pa.int64()) if kind.name == "Time" else array).to_pylist()
        return values
    if isinstance(kind, TupleType):
        parts = [to_python(array.field(i), t) for i, t in enumerate(kind.items)]
        make: Any = tuple if kind.cls is None else kind.cls._make  # type: ignore[attr-defined]
        rows = [make(row) for row in zip(*parts, strict=True)]
        if array.null_count:
            rows = [row if ok else None for row, ok in zip(rows, array.is_valid().to_pylist(), strict=True)]
        return rows
    if isinstance(kind, ListType):
        items = to_python(array.flatten(), kind.inner)  # skips what stands under nulls
        lengths = array.value_lengths().to_pylist()
        found, at = [], 0
        for n in lengths:
            found.append(None if n is None else tuple(items[at : at + n]))
            at += n or 0
        return found
    raise TypeError(f"no reader for {kind.text}")


def state_table(spec: StateSpec, items: Iterable[tuple[Any, Any]]) -> pa.Table:
    """A state table of these (key, value) pairs."""
    pairs = list(items)
    columns = key_arrays(spec, [k for k, _ in pairs])
    names = key_names(spec)
    kind = value_type(spec)
    if kind is not None:
        columns = [*columns, value_array(kind, [v for _, v in pairs])]
        names = [*names, "v"]
    return _sorted(names, columns, len(key_names(spec)), len(pairs))


def _sorted(names: list[str], columns: list[pa.Array], keys: int, rows: int) -> pa.Table:
    h = key_hashes(columns[:keys], rows)
    table = pa.table([pa.array(h), *columns], names=["h", *names])
    return table.take(pa.array(hash_order(h)))


def to_dict(spec: StateSpec, table: pa.Table | None) -> dict[Any, Any]:
    """A state table as a dict; values are True for a Set."""
    if table is None:
        return {}
    keys = key_list(spec, table)
    kind = value_type(spec)
    if kind is None:
        return dict.fromkeys(keys, True)
    return dict(zip(keys, to_python(table.column("v"), kind), strict=True))


def effect_table(delta: Delta) -> pa.Table:
    """What a delta object collected, as an effect table."""
    spec = delta.spec
    keys, columns = delta.columns()
    return make_effects(spec, delta.form, keys, columns)


def make_effects(
    spec: StateSpec,
    form: Form,
    keys: Sequence[Any],
    columns: Mapping[str, Any],
) -> pa.Table:
    """An effect table from lists, or arrays of flags, in the form's columns."""
    return effects_of(spec, form, key_arrays(spec, keys), len(keys), columns)


def effects_of(
    spec: StateSpec, form: Form, keys: Sequence[pa.Array], rows: int, columns: Mapping[str, Any]
) -> pa.Table:
    """The same from the parts of the keys as columns."""
    arrays = list(keys)
    names = key_names(spec)
    kind = value_type(spec)
    for name, values in columns.items():
        if name in ("present", "reset", "a_present"):
            arrays.append(pa.array(values, pa.bool_()))
        elif name == "p_op":
            arrays.append(pa.array(values, pa.int8()))
        elif name == "n":
            arrays.append(_int64(values))
        elif kind is not None:
            arrays.append(value_array(kind, values))
        else:
            continue
        names.append(name)
    table = _sorted(names, arrays, len(key_names(spec)), rows)
    return table.replace_schema_metadata({"form": form})


def form_of(table: pa.Table) -> Form:
    form: Form = table.schema.metadata[b"form"].decode()
    return form


def _int64(values: list[int]) -> pa.Array:
    try:
        return pa.array(values, pa.int64())
    except OverflowError:
        return pa.array([wrap(v) for v in values], pa.int64())


def hashes_of(table: pa.Table) -> U64:
    """The `h` column."""
    return np.asarray(one_array(table.column("h")), dtype=np.uint64)


def locate(spec: StateSpec, table: pa.Table, wanted: pa.Table) -> tuple[npt.NDArray[np.int64], bool]:
    """For each row of `wanted` the row of `table` with the same key, or -1. Both are sorted by `h`.

    Also whether two keys have one hash, within a table or between both: astronomically rare, and still exact.
    """
    place, clash = loops().places(hashes_of(table), hashes_of(wanted))
    hit = place >= 0
    if not clash and hit.any():
        rows = pa.array(place[hit])
        mask = pa.array(hit)
        clash = not all(
            one_array(table.column(name)).take(rows).equals(one_array(wanted.column(name).filter(mask)))
            for name in key_names(spec)
        )
    if clash:
        index = {key: i for i, key in enumerate(key_list(spec, table))}
        place = np.array([index.get(key, -1) for key in key_list(spec, wanted)], np.int64)
    return place, clash


def write_table(table: pa.Table, path: Path, *, lasting: bool = False) -> Part:
    """Write an Arrow IPC file, atomically; durably if it is `lasting`."""
    return write_tables([table], table.schema, path, lasting=lasting)


def write_tables(tables: Iterable[pa.Table], schema: pa.Schema, path: Path, *, lasting: bool = False) -> Part:
    """Write tables one after the other into one Arrow IPC file."""
    path.parent.mkdir(exist_ok=True)  # one level: a job's folder that is gone is not made again
    with PartWriter(path, lasting=lasting) as file:
        with pa.PythonFile(file, "w") as sink, pyarrow.ipc.new_file(sink, schema) as writer:
            for table in tables:
                writer.write_table(table)
    return file.part()


def read_table(path: Path) -> pa.Table:
    """Open an Arrow IPC file, memory-mapped."""
    return table_of_buffer(
        map_file(path)
    )  # Arrow would read the footer of a file of its own in another thread


def table_of_buffer(data: pa.Buffer) -> pa.Table:
    """The table in the bytes of an Arrow IPC file, which it goes on to use."""
    return pyarrow.ipc.open_file(pa.BufferReader(data)).read_all()


def buffers_of(table: pa.Table) -> list[tuple[int, int]]:
    """The addresses and sizes of a table's memory."""
    arrays = (array for column in table.columns for array in column.chunks)
    return [(b.address, b.size) for array in arrays for b in array.buffers() if b is not None]
