"""Files of tables: Parquet, ORC and Avro. What columns and rows they have, and their rows in parts."""

from __future__ import annotations

import lzma
import struct
import zlib
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq

from timelapse.errors import IngestError, Place
from timelapse.ingest import avro
from timelapse.ingest.files import Format, SourceFile
from timelapse.ingest.nested import flat, inner_columns, root_of, shown, with_marks
from timelapse.ingest.objects import MANY

if TYPE_CHECKING:
    from timelapse.ingest.plan import Plan

_NAMES = {
    "parquet": "Parquet",
    "orc": "ORC",
    "avro": "Avro",
    "delta": "Delta",
    "iceberg": "Iceberg",
    "postgres": "PostgreSQL",
}
_TORN = (
    OSError, pa.ArrowException, ValueError, LookupError, TypeError, EOFError, StopIteration, ArithmeticError, struct.error, zlib.error,
    lzma.LZMAError, MemoryError, SystemError,
)  # fmt: skip
"""What readers raise for files that are torn or altered; a length that was altered may ask for more memory than there is."""


@dataclass(frozen=True)
class Shape:
    """The columns of a file with their types, and the rows of its parts: row groups, stripes; of Avro all are one part."""

    columns: dict[str, pa.DataType]
    groups: Sequence[int]
    texts: dict[str, str] = field(default_factory=dict)
    """The types as the file calls them, where Arrow's are not known."""
    inner: dict[str, pa.DataType] | None = None
    """What stands inside the columns, by path; None: as their types tell."""

    @cached_property
    def every(self) -> dict[str, pa.DataType]:
        """The columns, and what stands inside them by path."""
        return {**self.columns, **(inner_columns(self.columns) if self.inner is None else self.inner)}

    def told(self, used: Collection[str]) -> dict[str, str]:
        """The columns with their types, for people; in place of those of which parts are used these parts."""
        return {
            name: self.texts.get(name, str(self.every[name]))
            for name in shown(self.columns, self.every, used)
        }


def shape(format_: Format, file: SourceFile) -> Shape:
    """What is known of a file before its rows are read. Raises IngestError (TL412; TL413 where two columns have one name)."""
    assert file.part is None
    if file.packed:
        raise IngestError(
            f"a packed {_NAMES[format_]} file is not read", place=Place(file.path), code="TL412",
            hint="unpack it: it is compressed inside",
        )  # fmt: skip
    system, path = file.locate()
    try:
        with system.open_input_file(path) as stream:
            if format_ == "parquet":
                with pq.ParquetFile(stream) as opened:
                    meta = opened.metadata
                    return _shape(
                        file,
                        opened.schema_arrow,
                        [meta.row_group(n).num_rows for n in range(meta.num_row_groups)],
                    )
            if format_ == "orc":
                found = orc.ORCFile(stream)
                rows = [found.read_stripe(n, columns=[]).num_rows for n in range(found.nstripes)]
                return _shape(file, found.schema, rows)
            types, inner, count = avro.look(stream)
            unknown = dict.fromkeys(types, pa.null())
            return Shape(
                unknown, [count] if count else [], {**types, **inner}, dict.fromkeys(inner, pa.null())
            )
    except _TORN as error:
        if isinstance(error, IngestError):
            raise
        raise _unreadable(format_, file, error) from error


def spans(file: SourceFile, column: str) -> list[tuple[Any, Any] | None]:
    """Of each row group of a Parquet file the least and the greatest value of a column, where statistics tell. Raises IngestError (TL412)."""
    system, path = file.locate()
    try:
        with system.open_input_file(path) as stream, pq.ParquetFile(stream) as opened:
            meta = opened.metadata
            of_name = [n for n in range(meta.num_columns) if meta.schema.column(n).path == column]
            at = of_name[0] if len(of_name) == 1 else None  # a path, and a column of that name
            found: list[tuple[Any, Any] | None] = []
            for group in range(meta.num_row_groups):
                told = None if at is None else meta.row_group(group).column(at).statistics
                if told is not None and told.has_min_max and told.null_count == 0:
                    found.append((told.min, told.max))
                else:
                    found.append(None)
            return found
    except _TORN as error:
        raise _unreadable("parquet", file, error) from error


def _shape(file: SourceFile, schema: pa.Schema, rows: Sequence[int]) -> Shape:
    if twice := next((name for name, n in Counter(schema.names).items() if n > 1), None):
        raise IngestError(
            f"two columns are named {twice!r}",
            place=Place(file.path),
            code="TL413",
            hint="write the file with another name for one of them",
        )
    found = Shape(dict(zip(schema.names, schema.types, strict=True)), rows)
    _ = found.every  # names that are no text are an error now
    return found


def read(format_: Format, file: SourceFile, group: int, most: int, plan: Plan | None) -> Iterator[pa.Table]:
    """The rows of a part of a file, in their order, with the columns that the plan needs (None: all). Raises IngestError (TL412)."""
    if file.part is not None:
        top = file.columns or ()
        names = _wanted(top, (*top, *file.inner), file, plan)
        whole = list(dict.fromkeys(name if name in top else root_of(name) for name in names))
        for table in file.part.read(most, whole):
            yield table if names == whole else flat(table, names)
        return
    system, path = file.locate()
    try:
        with system.open_input_file(path) as stream:
            if format_ == "parquet":
                with pq.ParquetFile(stream) as opened:
                    names, picked = _picked(opened.schema_arrow, file, plan)
                    for batch in opened.iter_batches(most, [group], picked, use_threads=False):
                        yield flat(pa.Table.from_batches([batch]), names)
            elif format_ == "orc":
                found = orc.ORCFile(stream)
                names, picked = _picked(found.schema, file, plan)
                stripe = pa.Table.from_batches([found.read_stripe(group, columns=picked)])
                for first in range(0, stripe.num_rows, most):
                    yield flat(stripe.slice(first, most), names)
            else:
                yield from avro.tables(stream, lambda top, every: _wanted(top, every, file, plan), most)
    except _TORN as error:
        if isinstance(error, IngestError):
            raise
        raise _unreadable(format_, file, error) from error


def _picked(schema: pa.Schema, file: SourceFile, plan: Plan | None) -> tuple[list[str], list[str]]:
    """The columns that are needed, and what is read of the file for them: of structs the members alone, lists of structs whole."""
    top = dict(zip(schema.names, schema.types, strict=True))
    names = _wanted(top, (*top, *inner_columns(top)), file, plan)
    return names, list(dict.fromkeys(name if name in top else name.partition(MANY)[0] for name in names))


def _wanted(top: Collection[str], every: Collection[str], file: SourceFile, plan: Plan | None) -> list[str]:
    """The columns that are needed of these, which are all with what stands inside them."""
    if plan is None or plan.applied is not None:
        return list(top)
    own = plan.within(file.partition, tuple(every))
    return [c for c in with_marks(own.needed) if c in every and c not in plan.partitions]


def _unreadable(format_: Format, file: SourceFile, error: Exception) -> IngestError:
    return IngestError(
        f"not a readable {_NAMES[format_]} file: {str(error).strip() or type(error).__name__}",
        place=Place(file.path),
        code="TL412",
        hint="check the file, or leave it out",
    )
