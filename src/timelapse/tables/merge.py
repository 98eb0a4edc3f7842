"""State tables that need not fit into memory: merged range of key hashes by range of key hashes.

State and effect tables are sorted by `h`, the key's hash, which is spread evenly over 64 bits. So a
range of `h` holds a predictable share of every table, all rows of a key lie in one range, and what
is merged range by range, in order, is again sorted. Only one range is in memory at a time; what is
read is memory-mapped, what is written goes to the file at once, one record batch per range.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.ipc

from timelapse.kinds.base import StateSpec
from timelapse.store.parts import Part, PartWriter
from timelapse.tables.apply import NO_CHANGE, Change, apply, net
from timelapse.tables.rowhash import hash_order
from timelapse.tables.sharing import in_order
from timelapse.tables.table import hashes_of, key_list, key_names, read_table

RANGE_ROWS = 1 << 18
"""Rows of all tables together that are merged at a time, at most."""
_ROW_BYTES = 512
"""What a row that is merged may take meanwhile: a range takes no more than the budget that is given."""

_FEWEST = 1 << 12
"""Fewer rows at a time are not worth it, however little memory there is."""

Write = Callable[[pa.Table], None]


def cut_points(
    tables: Sequence[pa.Table], part: tuple[int, int] = (0, 1), budget: int | None = None
) -> list[list[int]]:
    """For each table the rows at which its ranges begin and end; the same ranges for all.

    `budget`: bytes that a range should not need more of. `part` = (i, n): only the i-th of n equal parts of all hashes.
    """
    rows = sum(t.num_rows for t in tables)
    index, parts = part
    ranges = max(1, -(-rows // (_range_rows(budget) * parts)))
    edges = [(index * ranges + k) * 2**64 // (parts * ranges) for k in range(ranges + 1)]
    return [[_rows_below(t, edge) for edge in edges] for t in tables]


def _range_rows(budget: int | None) -> int:
    return RANGE_ROWS if budget is None else min(RANGE_ROWS, max(_FEWEST, budget // _ROW_BYTES))


def _rows_below(table: pa.Table, edge: int) -> int:
    """Rows with `h` below the edge."""
    if edge >= 2**64:
        return int(table.num_rows)
    found = 0
    for chunk in table.column("h").chunks:
        inside = int(np.searchsorted(np.asarray(chunk), np.uint64(edge)))
        found += inside
        if inside < len(chunk):
            break
    return found


def prefix(
    spec: StateSpec, start: pa.Table, effects: Sequence[pa.Table], paths: Sequence[Path | None],
    part: tuple[int, int] = (0, 1), threads: int = 1, budget: int | None = None,
) -> list[Change]:  # fmt: skip
    """Apply effects one after the other and write the state after each (None: not that one). Returns what each changed.

    Peak memory is that of one range of hashes for each of `threads`, whatever the tables' size; every table is
    read and written once. With `part` = (i, n) this is done for the i-th of n parts of the hashes only: the
    files of all parts are the state, in this order, and their changes add up.
    """
    changes = [NO_CHANGE] * len(effects)
    bounds = cut_points([start, *effects], part, budget)

    def merged(at: int) -> list[tuple[pa.Table, Change]]:
        state, found = _rows(start, bounds[0], at), []
        for table, own in zip(effects, bounds[1:], strict=True):
            state, change = apply(spec, state, _rows(table, own, at))
            found.append((state, change))
        return found

    with ExitStack() as stack:
        writes = [
            None if path is None else stack.enter_context(writing(path, start.schema)) for path in paths
        ]
        for found in in_order(merged, len(bounds[0]) - 1, threads):
            for i, (state, change) in enumerate(found):
                changes[i] += change
                if (write := writes[i]) is not None:
                    write(state)
    return changes


def fold(spec: StateSpec, start: pa.Table, changes: Sequence[pa.Table]) -> pa.Table:
    """The state after const effects, one after the other."""
    parts = list(_folded(spec, start, changes))
    return pa.concat_tables(parts) if parts else start


def fold_to(
    spec: StateSpec, start: pa.Table, changes: Sequence[pa.Table], path: Path, budget: int | None = None
) -> None:
    """`fold` into a file. Peak memory is that of one range of hashes."""
    with writing(path, start.schema) as write:
        for part in _folded(spec, start, changes, budget):
            write(part)


def together_to(spec: StateSpec, changes: Sequence[pa.Table], path: Path, budget: int | None = None) -> bool:
    """Const effects one after the other as one, into a file. False, and no file, where two keys share a hash: then only
    the state that they change can say what comes of them. Peak memory is that of one range of hashes."""
    bounds = cut_points(changes, budget=budget)
    try:
        with writing(path, changes[0].schema) as write:
            for at in range(len(bounds[0]) - 1):
                found = _last(spec, [_rows(c, own, at) for c, own in zip(changes, bounds, strict=True)])
                if found is None:
                    raise _Clash
                write(found)
    except _Clash:
        return False
    return True


def together(spec: StateSpec, changes: Sequence[pa.Table]) -> pa.Table:
    """Const effects, at least one, one after the other as one."""
    found = _last(spec, changes)
    return _last_by_key(spec, changes) if found is None else found


def net_to(
    spec: StateSpec, start: Sequence[pa.Table], changes: Sequence[pa.Table], path: Path, budget: int | None = None,
    *, lasting: bool = False,
) -> tuple[Change, Part]:  # fmt: skip
    """What const effects, one after the other, come to, into a file: for each key the last, where it leaves another thing than was
    there. `start`: a state table, and const effects on it, of which only rows of keys that changed are read. Peak memory is that of one
    range of hashes."""
    whole, known = NO_CHANGE, [t for t in start if t.num_rows]
    # Each table of the start has a row at most for each that changed.
    bounds = cut_points(changes, budget=None if budget is None else budget // (1 + len(known)))
    path.parent.mkdir(exist_ok=True)
    with PartWriter(path, lasting=lasting) as file:
        schema = changes[0].schema
        with pa.PythonFile(file, "w") as sink, pyarrow.ipc.new_file(sink, schema) as writer:
            for at in range(len(bounds[0]) - 1):
                parts = [_rows(t, own, at) for t, own in zip(changes, bounds, strict=True)]
                later = [part for part in parts if part.num_rows]
                if not later:
                    continue
                together = _last(spec, later)
                if together is None:
                    together = _last_by_key(spec, later)
                state, wanted = start[0].slice(0, 0), hashes_of(together)
                wanted = wanted[np.append(True, wanted[1:] != wanted[:-1])]
                for table in known:
                    part = _with_hashes(table, wanted)
                    state = part if table is start[0] else apply(spec, state, part)[0]
                found, change = net(spec, state, together)
                whole += change
                if found.num_rows:
                    writer.write_table(found.replace_schema_metadata(schema.metadata))
    return whole, file.part()


def _with_hashes(table: pa.Table, wanted: npt.NDArray[np.uint64]) -> pa.Table:
    """A table's rows that have one of these hashes, which rise. Of a file no others are read."""
    found = []
    for batch in table.to_batches():
        have = np.asarray(batch.column("h"))
        if not len(have):
            continue
        own = wanted[np.searchsorted(wanted, have[0]) : np.searchsorted(wanted, have[-1], "right")]
        if not len(own):
            continue
        first, last = np.searchsorted(have, own), np.searchsorted(have, own, "right")
        count = last - first
        rows = np.repeat(first - np.cumsum(count) + count, count) + np.arange(count.sum())
        if len(rows):
            found.append(batch.take(pa.array(rows)))
    return pa.Table.from_batches(found, table.schema).combine_chunks()


def _last_by_key(spec: StateSpec, changes: Sequence[pa.Table]) -> pa.Table:
    """The last const effect for each key, where keys may share a hash."""
    table = pa.concat_tables([c.replace_schema_metadata(changes[0].schema.metadata) for c in changes])
    last = {key: row for row, key in enumerate(key_list(spec, table))}
    rows = np.fromiter(last.values(), np.int64, len(last))
    found = table.take(pa.array(rows)).combine_chunks()
    return found.take(pa.array(hash_order(hashes_of(found))))


class _Clash(Exception):
    """Two keys share a hash."""


def _folded(
    spec: StateSpec, start: pa.Table, changes: Sequence[pa.Table], budget: int | None = None
) -> Iterator[pa.Table]:
    changes = [c for c in changes if c.num_rows]
    bounds = cut_points([start, *changes], budget=budget)
    for at in range(len(bounds[0]) - 1):
        state = _rows(start, bounds[0], at)
        parts = [_rows(c, own, at) for c, own in zip(changes, bounds[1:], strict=True)]
        together = _last(spec, parts)
        if together is not None and not state.num_rows:
            # Nothing was there before: no need to look for what they replace, and nobody asks for hashes.
            yield together.filter(together.column("present")).select(state.column_names).cast(state.schema)
            continue
        for effects in parts if together is None else [together]:
            state, _ = apply(spec, state, effects)
        yield state


def _last(spec: StateSpec, changes: Sequence[pa.Table]) -> pa.Table | None:
    """Const effects one after the other as one: the last for each key. None where two keys share a hash."""
    if len(changes) < 2:
        return changes[0] if changes else None
    table = pa.concat_tables([c.replace_schema_metadata(changes[0].schema.metadata) for c in changes])
    table = table.combine_chunks()
    if not table.num_rows:
        return table
    h = hashes_of(table)
    order = hash_order(h)
    ordered = h[order]
    repeated = ordered[1:] == ordered[:-1]
    if repeated.any():
        first, second = pa.array(order[:-1][repeated]), pa.array(order[1:][repeated])
        for name in key_names(spec):
            column = table.column(name)
            if not column.take(first).equals(column.take(second)):
                return None
    return table.take(pa.array(order[np.append(~repeated, True)]))


def _rows(table: pa.Table, bounds: Sequence[int], at: int) -> pa.Table:
    """One range's rows, each column in one piece."""
    lo, hi = bounds[at], bounds[at + 1]
    return table.slice(lo, hi - lo).combine_chunks()


@contextmanager
def writing(path: Path, schema: pa.Schema) -> Iterator[Write]:
    """An Arrow IPC file that is written piece by piece and is there when all of it is."""
    path.parent.mkdir(exist_ok=True)  # one level: a job's folder that is gone is not made again
    with (
        PartWriter(path) as file,
        pa.PythonFile(file, "w") as sink,
        pyarrow.ipc.new_file(sink, schema) as writer,
    ):

        def write(table: pa.Table) -> None:
            if table.num_rows:
                writer.write_table(table)

        yield write


def join(paths: Sequence[Path], path: Path) -> None:
    """Parts of a state, in order, as one file."""
    tables = [read_table(part) for part in paths]
    with writing(path, tables[0].schema) as write:
        for table in tables:
            write(table)
