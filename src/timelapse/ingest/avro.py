"""Avro files, through `fastavro`: the columns of their records, those inside them by path, and rows as tables."""

from __future__ import annotations

import io
import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any

import pyarrow as pa

from timelapse.ingest.batches import as_text
from timelapse.ingest.objects import MANY


def look(stream: Any) -> tuple[dict[str, str], dict[str, str], int]:
    """The columns of a file with their types, what stands inside them by path, and how many rows there are."""
    reader = _reader(stream, blocks=True)
    top, inner = _types(reader.writer_schema)
    told = [{path: _text(kind) for path, kind in one.items()} for one in (top, inner)]
    return told[0], told[1], sum(block.num_records for block in reader)


def tables(
    stream: Any, wanted: Callable[[Sequence[str], Sequence[str]], list[str]], most: int
) -> Iterator[pa.Table]:
    """A file's rows: values of logical types as Python has them. What may be a text or something else by its schema is a text.

    `wanted`: which columns are read, of the record's own and of all with what stands inside them (ingest/nested.py).
    """
    reader = _reader(stream)
    top, inner = _types(reader.writer_schema)
    names = wanted(list(top), [*top, *inner])
    texts = {name for name in names if _is_text_or_other(top[name] if name in top else inner[name])}
    paths = {name: [name] if name in top else name.split(".") for name in names}
    waiting: list[Any] = []

    def table() -> pa.Table:
        return pa.table({name: _column(waiting, path, name in texts) for name, path in paths.items()})

    for row in reader:
        waiting.append(row)
        if len(waiting) == most:
            yield table()
            waiting = []
    if waiting:
        yield table()


def _reader(stream: Any, *, blocks: bool = False) -> Any:
    """Raises ValueError for a schema that is none."""
    from fastavro.schema import SchemaParseException

    try:
        return (_avro().block_reader if blocks else _avro().reader)(stream)
    except SchemaParseException as error:
        raise ValueError(str(error)) from None


def _column(rows: Sequence[Any], path: Sequence[str], as_texts: bool) -> pa.Array:
    """The values under some keys of records; of a list that is taken apart a list."""
    at = next((n for n, key in enumerate(path) if key.endswith(MANY)), None)
    if at is None:
        return _array([_under(row, path) for row in rows], as_texts)
    outer, within = [*path[:at], path[at].removesuffix(MANY)], path[at + 1 :]
    lists = [_under(row, outer) or [] for row in rows]
    items = [item for one in lists for item in one]
    values = (
        _array([_under(item, within) for item in items], as_texts)
        if within
        else pa.array([i is None for i in items], pa.bool_())
    )
    ends = [0]
    for one in lists:
        ends.append(ends[-1] + len(one))
    return pa.LargeListArray.from_arrays(pa.array(ends, pa.int64()), values)


def _under(row: Any, path: Sequence[str]) -> Any:
    for key in path:
        row = row.get(key) if isinstance(row, dict) else None
    return row


def _array(values: list[Any], as_texts: bool) -> pa.Array:
    return pa.array([None if v is None else as_text(v) for v in values] if as_texts else values)


# --- schemas --------------------------------------------------------------------------------------------


def _types(schema: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """The types of a record's fields, and of those inside them by path. A field of such a name goes before a path."""
    named: dict[str, Any] = {}
    _name(schema, named, "")
    top = dict(_fields(schema, named))
    inner: dict[str, Any] = {}

    def walk(path: str, kind: Any, around: tuple[int, ...]) -> None:
        for record in _records(kind, named):
            if id(record) in around:  # a record may hold its like
                continue
            for name, own in _fields(record, named):
                inner.setdefault(f"{path}.{name}", own)
                walk(f"{path}.{name}", own, (*around, id(record)))
        for one in _members(kind, named):
            if (
                MANY not in path
                and isinstance(one, dict)
                and one["type"] == "array"
                and _records(one["items"], named)
            ):
                inner.setdefault(path + MANY, "boolean")
                walk(path + MANY, one["items"], around)

    for name, kind in top.items():
        walk(name, kind, ())
    return top, {path: kind for path, kind in inner.items() if path not in top}


def _name(schema: Any, into: dict[str, Any], space: str) -> None:
    """Find the types that a schema names, by their names with and without what they are qualified by."""
    if isinstance(schema, list):
        for one in schema:
            _name(one, into, space)
    elif isinstance(schema, dict):
        space = schema.get("namespace", space)
        if "name" in schema and schema["type"] in ("record", "error", "enum", "fixed"):
            into[schema["name"]] = schema
            into[f"{space}.{schema['name']}"] = schema
        for own in schema.get("fields", ()):
            _name(own["type"], into, space)
        for inside in ("items", "values", "type"):
            if isinstance(schema.get(inside), dict | list):
                _name(schema[inside], into, space)


def _members(kind: Any, named: dict[str, Any]) -> list[Any]:
    """The types of a union without null, or the one that it is."""
    found = []
    for one in kind if isinstance(kind, list) else [kind]:
        own = one
        while isinstance(own, dict) and isinstance(own["type"], dict):
            own = own["type"]
        own = named.get(own, own) if isinstance(own, str) else own
        if own != "null":
            found.append(own)
    return found


def _records(kind: Any, named: dict[str, Any]) -> list[Any]:
    return [
        one for one in _members(kind, named) if isinstance(one, dict) and one["type"] in ("record", "error")
    ]


def _fields(kind: Any, named: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    for record in _records(kind, named):
        for own in record["fields"]:
            yield own["name"], own["type"]


def _text(schema: Any) -> str:
    """A type in short: that it may be null is not told."""
    if isinstance(schema, list):
        return " or ".join(_text(one) for one in schema if one != "null")
    if isinstance(schema, dict):
        return str(schema.get("logicalType") or schema.get("name") or _text(schema["type"]))
    return str(schema)


def _is_text_or_other(kind: Any) -> bool:
    """Whether a field's type is a union of texts and other values."""
    own = [k for k in kind if k != "null"] if isinstance(kind, list) else []
    return len(own) > 1 and "string" in own


# --- codecs ---------------------------------------------------------------------------------------------


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
