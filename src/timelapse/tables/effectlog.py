"""The log of a state that is looked back on: what was done to its stored keys, when. One table of rows per slice.

A row has `ts` (int64 microseconds, of the step that wrote), the key's parts `k0`, `k1`, ... as in state tables, and by the
log's form

- *net* (Counter, Mean): `n`, the key's integer after the write minus that before it; writes that change nothing have no row;
- *present* (all other kinds): `present`, and for kinds with values `v`: what the write leaves under the key. Every
  write has its row, also one that changes nothing: the window of a Set, SetOf, Value or MapOf is what its writes make of nothing;
- *ops* (where a window is more than that): `op`, the operation as MessagePack (its name, what it was called with). The
  key is the one as declared: operations on a SetOf's key may concern all that stands under it.

Rows are in the order in which they were done, so times do not decrease. Those of a transaction that was undone are not
there. Work shared out by key gives one table per worker: a key's rows are all in one of them.

A window of W at a cut is made of the rows of the last W before it; `x[k]` as of L ago is, for integers, x[k] minus the sum of
the last L. So what a slice needs at its start is no more than the rows of earlier slices with ts > (end of the slice before) -
(the longest W or L). Values as of a time take the rows of whole slices, and the state before the first of these.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from timelapse.ids import INT64_MAX, INT64_MIN
from timelapse.kinds.base import ABSENT, StateSpec
from timelapse.model.decimals import packable
from timelapse.program.pending import tuples
from timelapse.tables.rowhash import HashSum, both_lanes, one_array, seed_of, sum_of
from timelapse.tables.table import key_arrays, key_hashes, key_list, key_names, to_python, value_array

Rows = tuple[list[int], list[Any], list[Any]]
"""Times, stored keys, and what each row says: n, or the value left (True for a Set), or ABSENT, or (ts, operation)."""

NET, PRESENT, OPS = "net", "present", "ops"
"""The forms."""

_WORD = 1 << 64


def form_of_rows(table: pa.Table) -> str:
    """What a table of rows says."""
    names = table.column_names
    return NET if "n" in names else OPS if "op" in names else PRESENT


def keyed(spec: StateSpec, form: str) -> StateSpec:
    """The state with the key that the rows have."""
    return replace(spec, key=spec.outer) if form == OPS and spec.outer is not None else spec


def rows_table(spec: StateSpec, rows: Rows, form: str) -> pa.Table:
    """Rows as a table."""
    times, keys, values = rows
    if form == NET and values and not (min(values) >= INT64_MIN and max(values) <= INT64_MAX):
        times, keys, values = _split(times, keys, values)
    seen = keyed(spec, form)
    columns = [pa.array(times, pa.int64()), *key_arrays(seen, keys)]
    names = ["ts", *key_names(seen)]
    if form == NET:
        columns.append(pa.array(values, pa.int64()))
        names.append("n")
    elif form == OPS:
        columns.append(pa.array([_packed(operation) for _, operation in values], pa.large_binary()))
        names.append("op")
    else:
        columns.append(pa.array([v is not ABSENT for v in values], pa.bool_()))
        names.append("present")
        if spec.value is not None:
            columns.append(value_array(spec.value, [None if v is ABSENT else v for v in values]))
            names.append("v")
    return pa.table(columns, names=names)


def _packed(operation: Any) -> bytes:
    return msgspec.msgpack.encode(_plain(operation))


def _plain(value: Any) -> Any:
    """What handlers gave, as the plainest value that a state takes for the same."""
    if value is None or type(value) in (bool, str, bytes, float):
        return value
    if isinstance(value, Decimal):
        return packable(value)
    if isinstance(value, int):
        return int(value) if INT64_MIN <= value <= INT64_MAX else float(value)  # only floats go so far
    if isinstance(value, dict):
        return {name: _plain(v) for name, v in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(v) for v in value]
    if isinstance(value, float | str):
        return float(value) if isinstance(value, float) else str.__str__(value)
    if isinstance(value, bytes):
        return bytes(value)
    raise TypeError(f"{type(value).__name__} is no value of a state")


def _unpacked(data: bytes) -> Any:
    method, arguments, named = msgspec.msgpack.decode(data)
    return method, tuple(map(tuples, arguments)), {name: tuples(v) for name, v in named.items()}


def _split(times: Sequence[int], keys: Sequence[Any], values: Sequence[int]) -> Rows:
    """A change that is no int64 itself, as two or three that are.

    From one int64 to another it is less than 2^64; a larger one is undone by the IntRange that it ends in.
    """
    found: Rows = ([], [], [])
    for ts, key, n in zip(times, keys, values, strict=True):
        parts = [n] if INT64_MIN <= n <= INT64_MAX else [n // 2, n // 2, n % 2] if abs(n) < _WORD else []
        for part in filter(None, parts):  # a row of nothing could leave a window that has nothing
            for column, value in zip(found, (ts, key, part), strict=True):
                column.append(value)
    return found


def rows_of(spec: StateSpec, table: pa.Table) -> Rows:
    """A table's rows."""
    times = one_array(table.column("ts")).to_pylist()
    form = form_of_rows(table)
    keys = key_list(keyed(spec, form), table)
    if form == NET:
        return times, keys, one_array(table.column("n")).to_pylist()
    if form == OPS:
        return times, keys, list(zip(times, map(_unpacked, table.column("op").to_pylist()), strict=True))
    present = one_array(table.column("present")).to_pylist()
    if spec.value is None:
        return times, keys, [True if p else ABSENT for p in present]
    values = to_python(table.column("v"), spec.value)
    return times, keys, [v if p else ABSENT for p, v in zip(present, values, strict=True)]


def rows_sum(spec: StateSpec, table: pa.Table) -> HashSum:
    """A sum of hashes over the rows: equal for logs that give equal windows, however they were shared out."""
    rows = table.num_rows
    if not rows:
        return HashSum(0, 0, 0)
    columns = [one_array(c) for c in table.columns]
    form = form_of_rows(table)
    if form != NET:
        columns.append(_rank(keyed(spec, form), table))
    seed = seed_of(f"ops:{spec.name}" if form == OPS else f"log:{spec.name}")
    return sum_of(both_lanes(columns, rows, seed), np.ones(rows, np.bool_))


def _rank(spec: StateSpec, table: pa.Table) -> pa.Array:
    """Each row's place among those of its key at its time: there the order matters."""
    h = key_hashes([one_array(table.column(n)) for n in key_names(spec)], table.num_rows)
    ts = np.asarray(one_array(table.column("ts")))
    order = np.lexsort((ts, h))  # stable: rows of one key and time stay in order
    new = np.ones(len(order), np.bool_)
    new[1:] = (h[order][1:] != h[order][:-1]) | (ts[order][1:] != ts[order][:-1])
    places = np.arange(len(order))
    found = np.empty(len(order), np.int64)
    found[order] = places - np.maximum.accumulate(np.where(new, places, 0))
    return pa.array(found)


def joined(tables: Sequence[pa.Table]) -> pa.Table:
    """The rows of all workers, in the order of times; each key's in its own order."""
    if len(tables) == 1:
        return tables[0]
    whole = pa.concat_tables(tables).combine_chunks()
    ts = np.asarray(one_array(whole.column("ts")))
    return whole.take(pa.array(np.argsort(ts, kind="stable")))


def since(tables: Iterable[pa.Table], ts: int) -> list[pa.Table]:
    """The rows that are later than a time, without copying. Tables without such rows are left out."""
    found = []
    for table in tables:
        first = int(np.searchsorted(np.asarray(one_array(table.column("ts"))), ts, side="right"))
        if first < table.num_rows:
            found.append(table.slice(first))
    return found
