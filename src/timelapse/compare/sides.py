"""One side's outputs of a record type in a comparison: as a table, or as the files of a run, which are read part by part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from timelapse.frames.tables import Piece, Rows

I64 = npt.NDArray[np.int64]


class Side(Protocol):
    """Rows in log order, by number. `schema`: all columns of either side; those that this one does not have are null."""

    @property
    def schema(self) -> pa.Schema: ...
    @property
    def rows(self) -> int: ...
    def table(self) -> pa.Table:
        """All rows, in memory."""
        ...

    def span(self) -> tuple[int, int] | None:
        """The times of the first and the last row; None where there is no row."""
        ...


@dataclass(frozen=True)
class Held:
    """A table in memory."""

    data: pa.Table

    @property
    def schema(self) -> pa.Schema:
        return self.data.schema

    @property
    def rows(self) -> int:
        return int(self.data.num_rows)

    def table(self) -> pa.Table:
        return self.data

    def span(self) -> tuple[int, int] | None:
        ts = np.asarray(self.data.column("ts")).astype(np.int64, copy=False)
        return (int(ts.min()), int(ts.max())) if len(ts) else None


@dataclass(frozen=True)
class InFiles:
    """A run's files. `stored` is None where the run has no such record type. It travels to tasks: it holds no data."""

    stored: Rows | None
    schema: pa.Schema
    pieces: tuple[Piece, ...]

    @classmethod
    def of(cls, stored: Rows | None, schema: pa.Schema) -> InFiles:
        return cls(stored, schema, () if stored is None else tuple(stored.pieces()))

    @property
    def rows(self) -> int:
        return sum(piece.rows for piece in self.pieces)

    @property
    def bytes(self) -> int:
        """What all rows take in files, not compressed."""
        return sum(piece.bytes for piece in self.pieces)

    def read(self, piece: Piece, columns: Sequence[str] | None = None) -> pa.Table:
        """Columns (by default all) of a part."""
        assert self.stored is not None
        names = self.schema.names if columns is None else list(dict.fromkeys(columns))
        own = [n for n in names if n in self.stored.stored.names]
        there = self.stored.stored_rows(piece.file, piece.group, own or ["ts"])
        schema = pa.schema([self.schema.field(n) for n in names])
        columns_ = [
            there.column(n) if n in own else pa.nulls(piece.rows, self.schema.field(n).type) for n in names
        ]
        return pa.table(columns_, schema=schema)

    def table(self) -> pa.Table:
        return pa.concat_tables([self.schema.empty_table(), *(self.read(p) for p in self.pieces)])

    def span(self) -> tuple[int, int] | None:
        there = [p for p in self.pieces if p.rows]
        if not there:
            return None
        first, last = (self.read(p, ["ts"]).column("ts") for p in (there[0], there[-1]))
        return first[0].as_py(), last[-1].as_py()


def common_schemas(a: pa.Schema, b: pa.Schema) -> tuple[pa.Schema, pa.Schema]:
    """Both sides' columns with all of either: one that a side does not have is null there."""
    if a == b:
        return a, b
    names = list(dict.fromkeys([*a.names, *b.names]))
    left, right = (
        pa.schema([(n, (own if n in own.names else other).field(n).type) for n in names])
        for own, other in ((a, b), (b, a))
    )
    return left, right


def held(table: pa.Table, schema: pa.Schema) -> Held:
    """A table with the columns of such a schema."""
    if table.schema == schema:
        return Held(table)
    columns = [
        table.column(f.name) if f.name in table.column_names else pa.nulls(table.num_rows, f.type)
        for f in schema
    ]
    return Held(pa.table(columns, schema=schema))


def compared_columns(schema: pa.Schema) -> tuple[str, ...]:
    """What says whether a matched pair is changed. Matched by event, a row's number among the event's outputs says nothing; matched
    by key, its event counts."""
    return tuple(n for n in schema.names if n not in ("phase", "ordinal"))


def parts_of(side: Side) -> list[Piece | None]:
    """The parts of a side that have rows; a table in memory is one (None)."""
    return [piece for piece in side.pieces if piece.rows] if isinstance(side, InFiles) else [None]


def read_part(side: Side, piece: Piece | None, columns: Sequence[str]) -> pa.Table:
    """Columns of a part of a side."""
    if piece is not None and isinstance(side, InFiles):
        return side.read(piece, columns)
    return side.table().select(list(dict.fromkeys(columns)))
