"""Files of tables: Parquet, ORC and Avro. What columns and rows they have, and their rows in parts."""

from __future__ import annotations

import io
import lzma
import struct
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq

from timelapse.errors import IngestError, Place
from timelapse.ingest.batches import as_text
from timelapse.ingest.files import Format, SourceFile

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

    @property
    def told(self) -> dict[str, str]:
        """The columns with their types, for people."""
        return {name: self.texts.get(name, str(kind)) for name, kind in self.columns.items()}


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
            reader = _avro().block_reader(stream)
            texts = {f["name"]: _avro_type(f["type"]) for f in reader.writer_schema["fields"]}
            rows_ = sum(block.num_records for block in reader)
            return Shape(dict.fromkeys(texts, pa.null()), [rows_] if rows_ else [], texts)
    except _TORN as error:
        if isinstance(error, IngestError):
            raise
        raise _unreadable(format_, file, error) from error


def _avro_type(schema: Any) -> str:
    """An Avro type in short: that it may be null is not told."""
    if isinstance(schema, list):
        return " or ".join(_avro_type(one) for one in schema if one != "null")
    if isinstance(schema, dict):
        return str(schema.get("logicalType") or schema.get("name") or _avro_type(schema["type"]))
    return str(schema)


def spans(file: SourceFile, column: str) -> list[tuple[Any, Any] | None]:
    """Of each row group of a Parquet file the least and the greatest value of a column, where statistics tell. Raises IngestError (TL412)."""
    system, path = file.locate()
    try:
        with system.open_input_file(path) as stream, pq.ParquetFile(stream) as opened:
            meta = opened.metadata
            at = next((n for n in range(meta.num_columns) if meta.schema.column(n).path == column), None)
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
    return Shape(dict(zip(schema.names, schema.types, strict=True)), rows)


def read(format_: Format, file: SourceFile, group: int, most: int, plan: Plan | None) -> Iterator[pa.Table]:
    """The rows of a part of a file, in their order, with the columns that the plan needs (None: all). Raises IngestError (TL412)."""
    if file.part is not None:
        yield from file.part.read(most, _wanted(tuple(file.columns or ()), file, plan))
        return
    system, path = file.locate()
    try:
        with system.open_input_file(path) as stream:
            if format_ == "parquet":
                with pq.ParquetFile(stream) as opened:
                    names = _wanted(opened.schema_arrow.names, file, plan)
                    for batch in opened.iter_batches(most, [group], names, use_threads=False):
                        yield pa.Table.from_batches([batch])
            elif format_ == "orc":
                found = orc.ORCFile(stream)
                names = _wanted(found.schema.names, file, plan)
                stripe = pa.Table.from_batches([found.read_stripe(group, columns=names)])
                for first in range(0, stripe.num_rows, most):
                    yield stripe.slice(first, most)
            else:
                yield from _avro_tables(stream, file, most, plan)
    except _TORN as error:
        if isinstance(error, IngestError):
            raise
        raise _unreadable(format_, file, error) from error


def _wanted(have: Sequence[str], file: SourceFile, plan: Plan | None) -> list[str]:
    if plan is None or plan.applied is not None:
        return list(have)
    own = plan.within(file.partition, tuple(have))
    return [c for c in own.needed if c in have and c not in plan.partitions]


def _avro_tables(stream: Any, file: SourceFile, most: int, plan: Plan | None) -> Iterator[pa.Table]:
    """Avro's records: values of logical types as Python has them. What may be a text or something else by its schema is a text."""
    reader = _avro().reader(stream)
    fields = {f["name"]: f["type"] for f in reader.writer_schema["fields"]}
    names = _wanted(tuple(fields), file, plan)
    texts = {name for name in names if _is_text_or_other(fields[name])}
    waiting: list[Any] = []

    def table() -> pa.Table:
        columns = {name: [row[name] for row in waiting] for name in names}
        return pa.table(
            {
                name: pa.array(
                    [None if v is None else as_text(v) for v in values] if name in texts else values
                )
                for name, values in columns.items()
            }
        )

    for row in reader:
        waiting.append(row)
        if len(waiting) == most:
            yield table()
            waiting = []
    if waiting:
        yield table()


def _is_text_or_other(kind: Any) -> bool:
    """Whether a field's type is a union of texts and other values."""
    own = [k for k in kind if k != "null"] if isinstance(kind, list) else []
    return len(own) > 1 and "string" in own


@cache
def _avro() -> Any:
    """fastavro, with the codecs that it needs other packages for from Arrow: Spark writes snappy by default."""
    import fastavro.read

    readers = fastavro.read.BLOCK_READERS
    plain = readers["null"]
    readers["snappy"] = lambda fo: io.BytesIO(_snappy(plain(fo).read()))
    readers["zstandard"] = lambda fo: pa.input_stream(pa.BufferReader(plain(fo).read()), compression="zstd")
    return fastavro


def _snappy(data: bytes) -> bytes:
    """A block of Avro: what was compressed, which begins with its length, and the CRC-32 of what it was."""
    length = shift = at = 0
    while True:
        length |= (data[at] & 0x7F) << shift
        shift, at = shift + 7, at + 1
        if data[at - 1] < 0x80:
            break
    found: bytes = pa.Codec("snappy").decompress(data[:-4], length, asbytes=True)
    if zlib.crc32(found).to_bytes(4, "big") != data[-4:]:
        raise ValueError("the checksum of a block differs")
    return found


def _unreadable(format_: Format, file: SourceFile, error: Exception) -> IngestError:
    return IngestError(
        f"not a readable {_NAMES[format_]} file: {str(error).strip() or type(error).__name__}",
        place=Place(file.path),
        code="TL412",
        hint="check the file, or leave it out",
    )
