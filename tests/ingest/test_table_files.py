"""Parquet, ORC and Avro that are torn, packed, of codecs and types that others write; columns of tables that are coded."""

from __future__ import annotations

import gzip
import io
import json
import random
import zlib
from pathlib import Path
from typing import Any

import fastavro
import polars
import pyarrow as pa
import pyarrow.orc as orc
import pyarrow.parquet as pq
import pytest

import timelapse as tl
from timelapse.errors import IngestError
from timelapse.log import Log, Source


class Row(tl.Event):
    id: int
    user: str


ROWS = [{"ts": n, "id": n, "user": f"u{n % 7}"} for n in range(300)]
SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "Row",
    "fields": [
        {"name": "ts", "type": "long"}, {"name": "id", "type": "long"}, {"name": "user", "type": "string"},
    ],
}  # fmt: skip


def _avro(codec: str) -> bytes:
    out = io.BytesIO()
    fastavro.writer(out, fastavro.parse_schema(SCHEMA), ROWS, codec=codec, sync_interval=500)
    return out.getvalue()


def _long(value: int) -> bytes:
    value = (value << 1) ^ (value >> 63)
    out = b""
    while value > 0x7F:
        out, value = out + bytes([value & 0x7F | 0x80]), value >> 7
    return out + bytes([value])


def _text(value: bytes) -> bytes:
    return _long(len(value)) + value


def _packed_avro(codec: str) -> bytes:
    """A file of a codec that fastavro cannot write by itself, as Spark and others write it."""
    sync = b"sixteen bytes ok"
    meta = {b"avro.schema": json.dumps(SCHEMA).encode(), b"avro.codec": codec.encode()}
    out = (
        b"Obj\x01" + _long(len(meta)) + b"".join(_text(k) + _text(v) for k, v in meta.items()) + b"\0" + sync
    )
    for block in fastavro.block_reader(io.BytesIO(_avro("null"))):
        data = block.bytes_.getvalue()
        if codec == "snappy":
            packed = pa.Codec("snappy").compress(data, asbytes=True) + zlib.crc32(data).to_bytes(4, "big")
        else:
            packed = pa.Codec("zstd").compress(data, asbytes=True)
        out += _long(block.num_records) + _text(packed) + sync
    return out


@pytest.mark.parametrize("codec", ["snappy", "zstandard"])
def test_codecs_of_avro_that_need_no_other_package(codec: str, tmp_path: Path) -> None:
    data = _packed_avro(codec)
    (tmp_path / "a.avro").write_bytes(data)
    log = Log.write(tmp_path / "log", {Row: tmp_path / "a.avro"})
    assert [(e.ts, e.id, e.user) for e in log.events(Row)] == [(r["ts"], r["id"], r["user"]) for r in ROWS]
    at = len(data) // 2
    altered = data[:at] + bytes([data[at] ^ 0x55]) + data[at + 1 :]
    # blocks of zstandard have no checksum
    (tmp_path / "a.avro").write_bytes(altered if codec == "snappy" else data[:at])
    with pytest.raises(IngestError, match=r"TL412.*a\.avro"):
        Log.write(tmp_path / "torn", {Row: tmp_path / "a.avro"})


@pytest.mark.parametrize("kind", ["deflate", "xz", "bzip2", "parquet", "orc"])
def test_altered_files_are_named(kind: str, tmp_path: Path) -> None:
    """Bytes that are changed and ends that are missing: the rows that were written, or an error that names the file."""
    path = tmp_path / f"a.{'avro' if kind in ('deflate', 'xz', 'bzip2') else kind}"
    table = pa.Table.from_pylist(ROWS)
    if kind == "parquet":
        pq.write_table(table, path, row_group_size=50)
    elif kind == "orc":
        orc.write_table(table, path)
    else:
        path.write_bytes(_avro(kind))
    data, rng, refused = path.read_bytes(), random.Random(kind), 0
    for _ in range(12):
        altered = bytearray(data)
        for _ in range(rng.choice([1, 20])):
            altered[rng.randrange(len(data))] = rng.randrange(256)
        path.write_bytes(altered[: rng.choice([len(data), rng.randrange(len(data))])])
        try:
            log = Log.write(tmp_path / "log", {Row: path}, max_bad=1.0, overwrite=True)
        except IngestError as error:
            assert error.code in ("TL412", "TL413"), error
            assert str(path) in str(error)
            refused += 1
        else:
            assert log.manifest.ingests[0].sources[0].read == len(ROWS)
    assert refused > 3


def test_a_union_with_texts_is_read_as_texts(tmp_path: Path) -> None:
    """Whatever values a file has: the schema decides."""
    schema = {**SCHEMA, "fields": [*SCHEMA["fields"][:2], {"name": "user", "type": ["null", "string", "long", "boolean"]}]}  # fmt: skip
    for name, users in (("mixed", ["a", 7, True, None]), ("whole", [7, 8])):
        out = io.BytesIO()
        rows = [{"ts": n, "id": n, "user": user} for n, user in enumerate(users)]
        fastavro.writer(out, fastavro.parse_schema(schema), rows)
        (tmp_path / f"{name}.avro").write_bytes(out.getvalue())
        log = Log.write(tmp_path / name, {Row: tmp_path / f"{name}.avro"}, max_bad=1.0)
        wanted = ["a", "7", "true"] if name == "mixed" else ["7", "8"]
        assert [e.user for e in log.events(Row)] == wanted


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("a.avro.gz", gzip.compress(b"Obj\x01", mtime=0), "a packed Avro file is not read"),
        ("a.parquet.zst", b"x", "a packed Parquet file is not read"),
        ("a.csv.gz", b"", "the file has no bytes"),
        ("a.jsonl.zst", b"", "the file has no bytes"),
    ],
)
def test_packed_files_that_cannot_be(name: str, data: bytes, said: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(IngestError, match=f"TL412.*{said}"):
        Log.write(tmp_path / "log", {Row: tmp_path / name})


def test_columns_that_are_coded(tmp_path: Path) -> None:
    """Categories of Polars and runs of Arrow are read as their values; in expressions and hashes too."""
    plain = {"ts": [1, 2, 3], "id": [1, 2, 3], "user": ["a", "b", "a"]}
    coded = polars.DataFrame(plain).with_columns(polars.col("user").cast(polars.Categorical))
    runs = pa.RunEndEncodedArray.from_arrays([1, 2, 3], ["a", "b", "a"])
    whole = Log.write(tmp_path / "whole", {Row: pa.table(plain)})
    assert Log.write(tmp_path / "coded", {Row: coded}).id == whole.id
    assert Log.write(tmp_path / "runs", {Row: pa.table({**plain, "user": runs})}).id == whole.id
    upper = Log.write(tmp_path / "upper", {Row: Source(coded, compute={"user": "upper(user)"})})
    assert [e.user for e in upper.events(Row)] == ["A", "B", "A"]
    with pytest.raises(IngestError, match=r"TL411.*LazyFrame is no source") as raised:
        Log.write(tmp_path / "lazy", {Row: coded.lazy()})
    assert "collect() it first" in (raised.value.hint or "")
    with pytest.raises(IngestError, match=r"TL411.*only\['id'\] is 1"):
        Source(coded, only={"id": 1})  # type: ignore[dict-item]
