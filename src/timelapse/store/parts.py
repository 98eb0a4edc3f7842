"""Parts: files that are written once, and whose size and checksums a manifest keeps.

A file's checksums are the CRC-32 of each block of 256 KiB. So a flipped bit is found when the block it lies in is read,
and who reads little of a large file checks little. They find damage, not forgery.
"""

from __future__ import annotations

import mmap
import os
import uuid
import zlib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec
import pyarrow as pa

from timelapse.errors import Place, StorageError
from timelapse.store.failures import writing

DAMAGED = "TL931"
"""The code of errors of a file that is not what was written."""
BLOCK = 256 * 1024
_DIGITS = 8


class Part(msgspec.Struct, frozen=True):
    """A file as its manifest knows it: its size, and the CRC-32 of each block as eight hex digits."""

    bytes: int
    crc32: str

    def blocks(self) -> range:
        return range(-(-self.bytes // BLOCK))

    def of(self, block: int) -> int:
        """A block's checksum."""
        return int(self.crc32[block * _DIGITS : (block + 1) * _DIGITS], 16)


class _Sums:
    """Checksums of bytes that come piece by piece."""

    def __init__(self) -> None:
        self._whole: list[str] = []
        self._sum = self._held = self._bytes = 0

    def add(self, data: memoryview) -> None:
        at = 0
        while at < len(data):
            piece = data[at : at + BLOCK - self._held]
            self._sum = zlib.crc32(piece, self._sum)
            self._held += len(piece)
            at += len(piece)
            if self._held == BLOCK:
                self._close()
        self._bytes += len(data)

    def _close(self) -> None:
        self._whole.append(f"{self._sum:08x}")
        self._sum = self._held = 0

    def part(self) -> Part:
        if self._held:
            self._close()
        return Part(self._bytes, "".join(self._whole))


class Written:
    """A file object as Arrow and Parquet write to, from front to back. Subclasses have `write`, and count what they are given in `_position`."""

    closed = False
    _position = 0

    def tell(self) -> int:
        return self._position

    def flush(self) -> None:
        pass

    def readable(self) -> bool:
        return False

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return False

    def close(self) -> None:
        """Nothing: Arrow closes what it has written to, also after an error."""


class PartWriter(Written):
    """A new file, written from front to back, which is there under its name when it is closed: whole or not at all.

    It is a file object, as Arrow and Parquet write to. Use it with `with`: an exception leaves nothing. `lasting`: its
    content is to outlive a loss of power; its name does once somebody syncs the folder. Raises StorageError (TL932) that names the file where there is no room. What is at
    `path` is replaced, unless it is `new`: then FileExistsError.
    """

    def __init__(self, path: Path, *, lasting: bool = False, new: bool = False) -> None:
        self.path = path
        self._aside = path.with_name(f".{path.name}.{uuid.uuid4().hex}.partial")
        self._lasting, self._new = lasting, new
        self._sums = _Sums()
        with writing(path):
            self._file = os.open(self._aside, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o666)

    def write(self, data: bytes | memoryview | pa.Buffer) -> int:
        view = memoryview(data).cast("B")
        self._sums.add(view)
        left = view
        with writing(self.path):
            while left:
                left = left[os.write(self._file, left) :]
        self._position += len(view)
        return len(view)

    def part(self) -> Part:
        """What was written. To be asked when it is closed."""
        return self._sums.part()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end(keep=kind is None)

    def finish(self) -> Part:
        """What leaving a `with` does, for writers that are open longer than a block. Returns what was written."""
        self._end(keep=True)
        return self.part()

    def _end(self, *, keep: bool) -> None:
        self.closed = True
        try:
            if keep and self._lasting:
                with writing(self.path):
                    os.fsync(self._file)
        finally:
            os.close(self._file)
            try:
                if keep:
                    self._put()
            finally:
                self._aside.unlink(missing_ok=True)

    def _put(self) -> None:
        put_file(self._aside, self.path, new=self._new)


def write_part(path: Path, data: bytes, *, lasting: bool = False, new: bool = False) -> Part:
    """Write a small file, as PartWriter does. Raises FileExistsError where it is to be `new` and something is there."""
    with PartWriter(path, lasting=lasting, new=new) as file:
        file.write(data)
    return file.part()


def put_file(made: Path, path: Path, *, lasting: bool = False, new: bool = False) -> None:
    """Give a finished file its name, in place of what is there: who looks finds one or the other, whole.

    `lasting`: its content is to outlive a loss of power; its name does once somebody syncs the folder. Raises FileExistsError where it
    is to be `new` and something is there.
    """
    if lasting:
        sync(made)
    if new:
        os.link(made, path)
        made.unlink()
    else:
        os.replace(made, path)


def sync(path: Path) -> None:
    """Make a file or a folder's entries durable."""
    handle = os.open(path, os.O_RDONLY)
    try:
        with writing(path):
            os.fsync(handle)
    finally:
        os.close(handle)


# --- reading ------------------------------------------------------------------------------------------------


def map_file(path: Path) -> pa.Buffer:
    """A file's bytes, mapped into memory. Raises OSError."""
    with open(path, "rb") as file:
        if os.fstat(file.fileno()).st_size == 0:
            return pa.py_buffer(b"")
        return pa.py_buffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


def part_of(data: pa.Buffer) -> Part:
    """Size and checksums of bytes."""
    sums = _Sums()
    sums.add(memoryview(data).cast("B"))
    return sums.part()


def part_at(path: Path) -> Part:
    """Size and checksums of a file as it is now. Raises OSError."""
    return part_of(map_file(path))


class CheckedFile:
    """A file mapped into memory, whose blocks are checked before they are used, once each.

    Raises StorageError (TL931) that names the file where its size or a checksum is another, OSError where it cannot be
    read. `remedy` says what to do then.
    """

    def __init__(self, path: Path, part: Part, remedy: str) -> None:
        self.path, self.part, self._remedy = path, part, remedy
        self.data = map_file(path)
        if self.data.size != part.bytes:
            raise self.altered(f"it has {self.data.size:,} bytes, not the {part.bytes:,} that were written")
        self._view = memoryview(self.data)
        self._unchecked = bytearray(b"\1" * len(part.blocks()))

    def need(self, first: int = 0, end: int | None = None) -> None:
        """Check the bytes from `first` to before `end`, by default all."""
        last = self.part.bytes if end is None else end
        for block in range(first // BLOCK, -(-last // BLOCK)):
            if self._unchecked[block]:
                held = self._view[block * BLOCK : (block + 1) * BLOCK]
                if zlib.crc32(held) != self.part.of(block):
                    where = f"bytes {block * BLOCK:,} to {block * BLOCK + len(held) - 1:,}"
                    raise self.altered(f"{where} are not those that were written")
                self._unchecked[block] = 0

    def need_at(self, address: int, size: int) -> None:
        """The same of what lies at an address of `data`. What lies elsewhere was never read from the file."""
        first = address - self.data.address
        if 0 <= first < self.data.size:
            self.need(first, min(first + size, self.data.size))

    def need_but(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Check all blocks but those that lie wholly in one of these ranges of addresses and sizes."""
        spared: set[int] = set()
        for address, size in ranges:
            first = address - self.data.address
            spared.update(range(-(-first // BLOCK), (first + size) // BLOCK))
        for block in set(self.part.blocks()) - spared:
            self.need(block * BLOCK, block * BLOCK + 1)

    def whole(self) -> pa.Buffer:
        """All of it, checked."""
        self.need()
        return self.data

    def altered(self, what: str) -> StorageError:
        return altered(self.path, what, self._remedy)


def altered(path: Path, what: str, remedy: str) -> StorageError:
    """The error for a file that is not what was written."""
    return StorageError(f"the file was altered: {what}", place=Place(str(path)), hint=remedy, code=DAMAGED)


@dataclass(frozen=True)
class FileCheck:
    """What reading all files of a run or log has found.

    `errors`: one for each file that is gone or altered, naming it. `others`: files that no manifest names.
    `unchecked`: files that are there and whose checksums are not known.
    """

    files: int
    bytes: int
    errors: tuple[StorageError, ...]
    others: tuple[str, ...] = ()
    unchecked: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        return not self.errors


def check_parts(
    folder: Path, parts: Mapping[str, Part], remedy: str, unnamed: Collection[str] = ()
) -> FileCheck:  # fmt: skip
    """Read all files of a folder, given by their paths in it. `unnamed` files are there besides."""
    errors = []
    for name, part in sorted(parts.items()):
        path = folder / name
        try:
            CheckedFile(path, part, remedy).need()
        except StorageError as error:
            errors.append(error)
        except OSError as error:
            errors.append(altered(path, f"it cannot be read ({error.strerror or error})", remedy))
    there = (p.relative_to(folder).as_posix() for p in sorted(folder.rglob("*")) if p.is_file())
    others = tuple(name for name in there if name not in parts and name not in unnamed)
    return FileCheck(len(parts), sum(part.bytes for part in parts.values()), tuple(errors), others)
