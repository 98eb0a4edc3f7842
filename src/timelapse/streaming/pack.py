"""Packs: a header and sections of Arrow data in one file, so that one write puts all of it in place.

    8 bytes "TLpack1\\n" · 4 bytes length of the header · 4 bytes CRC-32 of the header · header (JSON) · sections

Numbers are little-endian. The header has each section's place, length and CRC-32. A section is an Arrow IPC stream; its
buffers are compressed with LZ4. Sections are checked when they are read.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterator, Mapping
from typing import Generic, TypeVar

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.ipc

from timelapse.decoding import decoded
from timelapse.errors import Place, StorageError

_MAGIC = b"TLpack1\n"
_FIXED = len(_MAGIC) + 8
_ALIGNED = 8
"""Arrow's kernels want each buffer to begin at a multiple of its values' width."""
_PIECE = 1 << 19
H = TypeVar("H", bound=msgspec.Struct)


class Section(msgspec.Struct, frozen=True, array_like=True):
    """A section of a pack: where it begins behind the header, its bytes, their CRC-32, and its rows."""

    at: int
    bytes: int
    crc32: int
    rows: int


class _Whole(msgspec.Struct, Generic[H]):
    about: H
    sections: dict[str, Section]


def packed(about: msgspec.Struct, tables: Mapping[str, pa.Table]) -> tuple[bytes, str]:
    """A pack's bytes, and its hash: that of the header, which has the checksums of all else."""
    sections: dict[str, Section] = {}
    bodies: list[bytes] = []
    at = 0
    for name, table in tables.items():
        crc = size = 0
        for piece in _stream(table):
            crc, size = zlib.crc32(piece, crc), size + len(piece)
            bodies.append(piece)
        sections[name] = Section(at, size, crc, table.num_rows)
        at += size
    header = msgspec.json.encode(_Whole(about, sections))
    head = _MAGIC + len(header).to_bytes(4, "little") + zlib.crc32(header).to_bytes(4, "little") + header
    return b"".join([head, *bodies]), hash_of(header)


def _stream(table: pa.Table) -> Iterator[bytes]:
    """A table's bytes, in pieces: other threads wait for Python's lock while one is copied, 15 ms for all of a checkpoint. (To join many, it is given away.)"""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="lz4" if table.nbytes > 4096 else None)
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    found = sink.getvalue()
    for at in range(0, found.size, _PIECE):
        yield found.slice(at, min(_PIECE, found.size - at)).to_pybytes()


def hash_of(header: bytes) -> str:
    """The hash by which the next pack of a chain names this one."""
    return hashlib.blake2b(header, digest_size=16).hexdigest()


def header(name: str, pieces: Iterator[bytes], kind: type[H], remedy: str) -> H:
    """What a pack says of itself, from as many of its first bytes as it takes. Raises StorageError (TL931)."""
    data = b""
    for piece in pieces:
        data += piece
        if len(data) >= _FIXED and len(data) >= _FIXED + int.from_bytes(data[8:12], "little"):
            break
    return Pack(name, data, kind, remedy).about


class Pack(Generic[H]):
    """A pack that was read. Raises StorageError (TL931) that names the file where it is torn or altered."""

    def __init__(self, name: str, data: bytes, kind: type[H], remedy: str) -> None:
        self.name, self._remedy = name, remedy
        self._data = memoryview(data)
        size = int.from_bytes(data[8:12], "little")
        header = bytes(data[_FIXED : _FIXED + size])
        whole = data[:8] == _MAGIC and len(header) == size
        if not whole or zlib.crc32(header) != int.from_bytes(data[12:16], "little"):
            raise self._altered("its header is not what was written")
        try:
            found = decoded(header, _Whole[kind])  # type: ignore[valid-type]
        except msgspec.MsgspecError as error:
            raise StorageError(
                f"the file was written by another version of Timelapse: {error}", place=Place(name), code="TL931",
                hint="read it with the version that wrote it",
            ) from None  # fmt: skip
        self.about: H = found.about
        self.sections: dict[str, Section] = found.sections
        self.hash = hash_of(header)
        self._first = _FIXED + size

    @property
    def data(self) -> bytes:
        """The file as it was read."""
        return bytes(self._data)

    def names(self, prefix: str) -> list[str]:
        """What stands behind `prefix/` in the names of sections."""
        return [n.removeprefix(f"{prefix}/") for n in self.sections if n.startswith(f"{prefix}/")]

    def table(self, name: str) -> pa.Table:
        """A section. Raises StorageError (TL931) where it is not what was written."""
        body = self._body(name)
        data = pa.py_buffer(body)
        if data.address % _ALIGNED:  # its columns would lie as it does
            data = pa.py_buffer(np.frombuffer(body, np.uint8).copy())  # which keeps no other thread waiting
        with pa.ipc.open_stream(data) as reader:
            return reader.read_all()

    def check(self) -> None:
        """Check all sections."""
        for name in self.sections:
            self._body(name)

    def _body(self, name: str) -> memoryview:
        """A section's bytes, checked."""
        section = self.sections[name]
        body = self._data[self._first + section.at : self._first + section.at + section.bytes]
        if len(body) != section.bytes or zlib.crc32(body) != section.crc32:
            raise self._altered(f"its section {name} is not what was written")
        return body

    def _altered(self, what: str) -> StorageError:
        return StorageError(
            f"the file was altered: {what}", place=Place(self.name), hint=self._remedy, code="TL931"
        )
