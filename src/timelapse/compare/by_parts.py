"""What differs between two runs that no process has to hold: their files are read part by part, by tasks or one after the other.

1. Of each row its number, the 128-bit hash of what it is matched by, and that of what is compared, sent to a group by the first.
2. Each group, which has all rows of an identity, is matched as tables are (compare/match.py); it gives the numbers of the rows
   that are gone, new and changed.
3. The rows with these numbers are read where somebody asks for them.

Two rows are equal where the hashes of their contents are: 128 bits, as digests (tables/rowhash.py). What comes out is what `match`
and `unequal_pairs` give of whole tables. Differences that are too many for the driver are counted, and asking for them is an error (TL849).
"""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from timelapse.compare.match import IDENTITY_SEED, Found, Matching, match_lanes
from timelapse.compare.sides import I64, InFiles, common_schemas, compared_columns
from timelapse.env.jobs import Jobs
from timelapse.env.machine import memory_alone
from timelapse.errors import UsageError
from timelapse.frames.tables import Piece, Rows
from timelapse.tables.loops import U64
from timelapse.tables.rowhash import both_lanes, comparable, one_array

GROUP_ROWS = 2_000_000
"""Rows of both sides that a group has, about; fewer where memory is short."""
_ROW_BYTES = 200
"""What matching a row takes, about."""
_FEW_ROWS = 50_000
NUMBERS = 16_000_000
"""Differences whose rows' numbers the driver takes at most."""
FEWEST = 1000
"""and at least of each group."""
_SEED = 0x636F6E74656E74
_HEAD = np.dtype([("record", "<i4"), ("side", "<i4"), ("rows", "<i8")])


class Pair(NamedTuple):
    """A record type of both runs. `names`: the columns that are compared."""

    name: str
    identity: tuple[str, ...]
    names: tuple[str, ...]
    sides: tuple[InFiles, InFiles]

    @classmethod
    def of(cls, name: str, identity: tuple[str, ...], stored: Sequence[Rows | None]) -> Pair:
        """`stored`: the files of A and B, None where a side has no such type."""
        own = next(rows.stored for rows in stored if rows is not None)
        schemas = common_schemas(*(own if rows is None else rows.stored for rows in stored))
        left, right = (InFiles.of(rows, schema) for rows, schema in zip(stored, schemas, strict=True))
        return cls(name, identity, compared_columns(schemas[0]), (left, right))

    def hashes(self, side: int, piece: Piece) -> tuple[I64, U64, U64, U64, U64]:
        """Of each row of a part its number, and both lanes of its identity's and of its content's hash."""
        own, other = self.sides[side], self.sides[1 - side]
        table = own.read(piece, [*self.identity, *self.names])
        identity = both_lanes([one_array(table.column(n)) for n in self.identity], piece.rows, IDENTITY_SEED)
        columns = []
        for name in self.names:
            column = one_array(table.column(name))
            if not comparable(column.type, other.schema.field(name).type):
                # Values of two types always differ, unless both are null.
                column = pc.if_else(column.is_valid(), pa.scalar(side, pa.int8()), pa.scalar(None, pa.int8()))
            columns.append(column)
        content = both_lanes(columns, piece.rows, _SEED)
        return np.arange(piece.before, piece.before + piece.rows), *identity, *content


def compare_pairs(pairs: Sequence[Pair], jobs: Jobs, what: str) -> list[Found]:
    """What differs in each record type."""
    parts = [
        (record, side, piece)
        for record, pair in enumerate(pairs)
        for side, own in enumerate(pair.sides)
        for piece in own.pieces
        if piece.rows
    ]
    groups = groups_of(sum(piece.rows for *_, piece in parts), jobs)
    most = max(FEWEST, 2 * NUMBERS // groups)
    types = tuple(pairs)

    def send(part: int) -> Iterable[tuple[int, bytes]]:
        record, side, piece = parts[part]
        return _sent(record, side, types[record].hashes(side, piece), groups)

    def receive(pieces: list[bytes]) -> bytes:
        return pickle.dumps(_matched(pieces, most))

    found = [pickle.loads(one) for one in jobs.grouped(send, len(parts), receive, groups, what)]  # noqa: S301 our own bytes
    return [_together([group[n] for group in found if n in group]) for n in range(len(pairs))]


def groups_of(rows: int, jobs: Jobs) -> int:
    """Into how many groups so many rows are sent."""
    most = min(GROUP_ROWS, max(_FEW_ROWS, memory_alone() // _ROW_BYTES))
    return max(jobs.spread, -(-rows // most))


def _sent(
    record: int, side: int, columns: tuple[npt.NDArray[np.generic], ...], groups: int
) -> Iterator[tuple[int, bytes]]:
    """Rows, by column, as pieces: those of a group are one. Rows of one identity go to one group."""
    of = (columns[2].astype(np.uint64) % np.uint64(groups)).astype(np.int64)
    order = np.argsort(of, kind="stable")
    ends = np.searchsorted(of[order], np.arange(groups + 1))
    for group in range(groups):
        rows = order[ends[group] : ends[group + 1]]
        if len(rows):
            head = np.array([(record, side, len(rows))], _HEAD).tobytes()
            yield group, b"".join([head, *(c[rows].tobytes() for c in columns)])


def _unsent(data: bytes) -> tuple[int, int, list[U64]]:
    """The record, the side, and the columns of a piece, all as 64-bit words."""
    head = np.frombuffer(data, _HEAD, 1)[0]
    words = np.frombuffer(data, np.uint64, offset=_HEAD.itemsize).reshape(-1, int(head["rows"]))
    return int(head["record"]), int(head["side"]), list(words)


def _matched(pieces: list[bytes], most: int) -> dict[int, Found]:
    """What differs in one group, by record."""
    sides: dict[int, tuple[list[list[U64]], list[list[U64]]]] = {}
    for record, side, columns in map(_unsent, pieces):
        sides.setdefault(record, ([], []))[side].append(columns)
    found = {}
    for record, both in sides.items():
        (rows_a, *a), (rows_b, *b) = (_in_order(own) for own in both)
        pairs = match_lanes((a[0], a[1]), (b[0], b[1]))
        changed = (a[2][pairs.left] != b[2][pairs.right]) | (a[3][pairs.left] != b[3][pairs.right])
        numbers = Matching(
            rows_a[pairs.only_a],
            rows_b[pairs.only_b],
            rows_a[pairs.left[changed]],
            rows_b[pairs.right[changed]],
        )
        own = Found.of(numbers)
        found[record] = own if sum(own.counts) <= most else Found(own.counts, None)
    return found


def _in_order(pieces: list[list[U64]]) -> tuple[I64, U64, U64, U64, U64]:
    """A side's rows by their numbers: so the n-th of an identity is the n-th in the log."""
    if not pieces:
        none = np.zeros(0, np.uint64)
        return none.view(np.int64), none, none, none, none
    rows, *others = (np.concatenate(column) for column in zip(*pieces, strict=True))
    order = np.argsort(rows, kind="stable")
    low, high, own_low, own_high = (column[order] for column in others)
    return rows[order].view(np.int64), low, high, own_low, own_high


def _together(groups: list[Found]) -> Found:
    """What differs in all groups, in log order."""
    parts = [Found.nothing().numbers, *(g.numbers for g in groups)]
    there = [p for p in parts if p is not None]
    if len(there) < len(parts):
        gone, new, changed = (sum(g.counts[n] for g in groups) for n in range(3))
        return Found((gone, new, changed), None)
    only_a, only_b, left, right = (np.concatenate(column) for column in zip(*there, strict=True))
    order = np.argsort(left)
    return Found.of(Matching(np.sort(only_a), np.sort(only_b), left[order], right[order]))


def taken(
    asked: Sequence[tuple[InFiles, I64]],
    jobs: Jobs,
    what: str,
    refused: Callable[[str], UsageError] | None = None,
) -> list[pa.Table]:
    """Rows of sides by their numbers, in the order of these. Raises UsageError (TL849; what `refused` makes) where they take more than the
    driver's share."""
    parts: list[tuple[InFiles, Piece, I64]] = []
    orders, ends = [], []
    for side, rows in asked:
        starts = np.array([p.before for p in side.pieces], np.int64)
        of = (
            np.searchsorted(starts, rows, side="right") - 1
        )  # of parts that begin alike the last one has rows
        order = np.argsort(of, kind="stable")
        parts += [
            (side, side.pieces[n], rows[order][lo:hi] - side.pieces[n].before)
            for n, lo, hi in _runs(of[order])
        ]
        orders.append(order)
        ends.append(len(parts))
    size = sum(len(own) * (piece.bytes // piece.rows) for _, piece, own in parts)
    if size > (share := memory_alone() // 4):
        raise (refused or too_many)(
            f"{what} take about {size >> 20:,} MB, and its share is {share >> 20:,} MB"
        )

    def work(part: int) -> bytes:
        side, piece, own = parts[part]
        return table_bytes(side.read(piece).take(pa.array(own)))

    tables = [bytes_table(data) for data in jobs.each(work, len(parts), what)]
    found = []
    for (side, _), order, (lo, hi) in zip(asked, orders, itertools.pairwise([0, *ends]), strict=True):
        whole = pa.concat_tables([side.schema.empty_table(), *tables[lo:hi]])
        back = np.empty(len(order), np.int64)
        back[order] = np.arange(len(order))
        found.append(whole.take(pa.array(back)))
    return found


def _runs(values: I64) -> list[tuple[int, int, int]]:
    """The runs of equal values, which rise: the value, where its run begins and where it ends."""
    found, starts = np.unique(values, return_index=True)
    ends = itertools.pairwise([*starts.tolist(), len(values)])
    return [(value, lo, hi) for value, (lo, hi) in zip(found.tolist(), ends, strict=True)]


def too_many(what: str) -> UsageError:
    """What is raised where differences themselves are more than this process takes."""
    return UsageError(
        f"the differences are more than this process takes: {what}", code="TL849",
        hint="how many there are is known (`counts`, --fail-if); set TIMELAPSE_MEMORY higher, or compare a part of the log (--from, --to)",
    )  # fmt: skip


def table_bytes(table: pa.Table) -> bytes:
    """A table as an Arrow stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue().to_pybytes())


def bytes_table(data: bytes) -> pa.Table:
    """The table of an Arrow stream."""
    return pa.ipc.open_stream(pa.py_buffer(data)).read_all()


# --- distinct values ------------------------------------------------------------------------------------


class Distinct(NamedTuple):
    """How many distinct values each side has, and those of one side only, in the order in which they come first."""

    a: int
    b: int
    freed: pa.Array
    hit: pa.Array


def distinct(pair: tuple[InFiles, InFiles], field: str, jobs: Jobs, what: str) -> Distinct:
    """The distinct values of a field. Raises UsageError (TL849) where those of one side only are more than the driver's share."""
    parts = [(n, p) for n, own in enumerate(pair) for p in own.pieces if p.rows]
    groups = groups_of(sum(p.rows for _, p in parts), jobs)
    share = memory_alone() // 4
    types = tuple(own.schema.field(field).type for own in pair)

    def send(part: int) -> Iterator[tuple[int, bytes]]:
        number, piece = parts[part]
        column = one_array(pair[number].read(piece, [field]).column(field))
        values = pc.unique(column)
        first = _firsts(column, values) + piece.before
        of = (both_lanes([_hashable(values)], len(values), IDENTITY_SEED)[1] % np.uint64(groups)).astype(
            np.int64
        )
        table = pa.table({"row": pa.array(first), "value": values})
        for group in np.unique(of).tolist():
            yield group, pickle.dumps((number, table_bytes(table.filter(pa.array(of == group)))))

    def receive(pieces: list[bytes]) -> bytes:
        sides: list[pa.Table] = []
        got = [pickle.loads(data) for data in pieces]  # noqa: S301 our own bytes
        for number, kind in enumerate(types):
            none = pa.schema([("row", pa.int64()), ("value", kind)]).empty_table()
            own = pa.concat_tables([none, *(bytes_table(data) for n, data in got if n == number)])
            sides.append(_first_of_each(own.sort_by("row")))
        a, b = (t.column("value") for t in sides)
        freed = sides[0].filter(pc.invert(pc.is_in(a, value_set=b.combine_chunks())))
        hit = sides[1].filter(pc.invert(pc.is_in(b, value_set=a.combine_chunks())))
        few = freed.nbytes + hit.nbytes <= max(1 << 20, 2 * share // groups)
        return pickle.dumps(
            (len(a), len(b), *((table_bytes(freed), table_bytes(hit)) if few else (None, None)))
        )

    found = [pickle.loads(one) for one in jobs.grouped(send, len(parts), receive, groups, what)]  # noqa: S301 our own bytes
    if any(freed is None for *_, freed, _ in found):
        raise too_many(f"values of {field} that only one side has take more than {share >> 20:,} MB")
    only = []
    for number, kind in enumerate(types):
        none = pa.schema([("row", pa.int64()), ("value", kind)]).empty_table()
        whole = pa.concat_tables([none, *(bytes_table(group[2 + number]) for group in found)])
        only.append(one_array(whole.sort_by("row").column("value")))
    return Distinct(sum(g[0] for g in found), sum(g[1] for g in found), only[0], only[1])


def _firsts(column: pa.Array, values: pa.Array) -> I64:
    """Where each of the distinct values stands first."""
    codes = np.asarray(pc.index_in(column, value_set=values))
    return np.unique(codes, return_index=True)[1].astype(np.int64)


def _first_of_each(table: pa.Table) -> pa.Table:
    """The first row of each distinct value."""
    column = one_array(table.column("value"))
    return table.take(pa.array(_firsts(column, pc.unique(column)))) if len(column) else table


def _hashable(values: pa.Array) -> pa.Array:
    """Values such that those that count as one value hash alike."""
    return pc.add(values, 0.0) if pa.types.is_floating(values.type) else values
