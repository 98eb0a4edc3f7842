"""Text files in pieces: byte ranges that start and end at line ends, with true line numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.fs as pafs

from timelapse.errors import IngestError, Place
from timelapse.ingest.files import SourceFile

PIECE_BYTES = 32 << 20
_COUNTED = 64 << 10
BLOCK_BYTES = 4 << 20
_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class Piece:
    """The lines of a file that start in [start, end); a compressed file is one piece (`end` is None).

    `before` is the number of line ends in the bytes before `start - 1`.
    """

    file: SourceFile
    number: int
    start: int
    end: int | None
    before: int = 0


class Lines(NamedTuple):
    """Whole lines, without the last line end, the number of the first (from 1), and how many there are, where that is known.

    `starts`: of CSV with records of several lines, the places of their first lines."""

    first: int
    data: bytes
    known: int | None = None
    starts: list[int] | None = None


def pieces(file: SourceFile, number: int, size: int = PIECE_BYTES) -> list[Piece]:
    """A file's pieces, with `before` not known yet but for the first."""
    if file.packed:
        return [Piece(file, number, 0, None)]
    starts = range(0, max(file.size, 1), size)
    return [Piece(file, number, s, min(s + size, file.size)) for s in starts]


def _from(piece: Piece) -> int:
    return max(0, piece.start - 1)


def line_ends(data: bytes) -> int:
    """How many line ends there are."""
    return count_of(data, b"\n")


def count_of(data: bytes, byte: bytes) -> int:
    """What `data.count` of one byte gives, in a fourth of the time where it is frequent: piece by piece, so that what is made of each stays in the processor's cache."""
    found = np.frombuffer(data, np.uint8)
    return sum(
        int(np.count_nonzero(found[lo : lo + _COUNTED] == byte[0])) for lo in range(0, len(found), _COUNTED)
    )


def whole_files(parts: Sequence[Piece]) -> list[Piece]:
    """The same lines, with a file's pieces as one, for whoever reads them one after the other: no line ends have to be counted."""
    return [replace(p, end=p.end if p.end is None else p.file.size) for p in parts if not p.start]


def count_line_ends(piece: Piece) -> int:
    """The line ends in a piece's bytes, both ends moved back by one: summed up they give `before`."""
    if piece.end is None:
        return 0
    total, place, end = 0, _from(piece), max(0, piece.end - 1)
    with _open(piece) as stream:
        stream.seek(place)
        while place < end:
            data = stream.read(min(BLOCK_BYTES, end - place))
            if not data:
                break
            total += line_ends(data)
            place += len(data)
    return total


def _open(piece: Piece) -> pa.NativeFile:
    system, path = piece.file.locate()
    try:
        if piece.end is None:
            return system.open_input_stream(path, compression="detect")
        return system.open_input_file(path)
    except (OSError, pa.ArrowInvalid) as error:
        raise _unreadable(piece.file, error) from error


def _unreadable(file: SourceFile, error: Exception) -> IngestError:
    return IngestError(
        f"cannot be read: {error}",
        place=Place(file.path),
        code="TL412",
        hint="check the file, or leave it out",
    )


def read_lines(piece: Piece, block: int = BLOCK_BYTES) -> Iterator[Lines]:
    """The piece's lines in blocks of about `block` bytes. A byte order mark at the file's start is dropped."""
    here = isinstance(piece.file.locate()[0], pafs.LocalFileSystem)
    whole = piece.start == 0 and piece.end == piece.file.size
    with _open(piece) as stream:
        try:
            yield from _whole_file(stream, block) if here and whole else _blocks(piece, stream, block)
        except (OSError, pa.ArrowInvalid) as error:
            raise _unreadable(piece.file, error) from error


def _whole_file(stream: pa.NativeFile, block: int) -> Iterator[Lines]:
    """The lines of a file on this machine, where looking for a line end costs nothing: blocks are read up to one, and not copied again."""
    size, line = stream.size(), 1
    place = len(_BOM) if stream.read_at(len(_BOM), 0) == _BOM else 0
    while place < size:
        cut, end = None, place
        while cut is None and end < size:
            first, end = end, min(end + block, size)
            cut = _last_line_end(stream, first, end)
        if cut is None or (end == size and cut < size - 1):
            cut = size  # its last line does not end
        data = stream.read_at(cut - place, place)
        count = line_ends(data) + 1
        yield Lines(line, data, count)
        if len(data) < cut - place:
            return  # the file has become shorter
        line, place = line + count, cut + 1


def _last_line_end(stream: pa.NativeFile, first: int, end: int) -> int | None:
    """Where the last line end between two places is."""
    step = 4096
    while end > first:
        start = max(first, end - step)
        at: int = stream.read_at(end - start, start).rfind(b"\n")
        if at >= 0:
            return start + at
        end, step = start, 8 * step
    return None


def _blocks(piece: Piece, stream: pa.NativeFile, block: int) -> Iterator[Lines]:
    line = 1
    place = 0
    ahead = rest = b""
    if piece.start:
        # The line that the byte before the piece belongs to is the piece before's.
        place = piece.start - 1
        stream.seek(place)
        line = piece.before + 2
        while True:
            data = stream.read(block)
            if not data:
                return
            at = data.find(b"\n")
            place += len(data) if at < 0 else at + 1
            if at >= 0:
                ahead = data[at + 1 :]
                break
        if piece.end is not None and place >= piece.end:
            return
    at_start = piece.start == 0
    # `rest` has no line end; `place` is the offset of its first byte.
    while True:
        data, ahead = ahead or stream.read(block), b""
        if at_start and data:
            at_start = False
            if data.startswith(_BOM):
                data, place = data[len(_BOM) :], len(_BOM)
                if not data:
                    continue
        limit = _limit(piece, place, rest, data)
        if limit is not None:
            whole = (rest + data)[:limit]
            if whole:
                yield Lines(line, whole.removesuffix(b"\n"))
            return
        if not data:
            if rest:
                yield Lines(line, rest)
            return
        cut = data.rfind(b"\n")
        if cut < 0:
            rest += data
            continue
        whole = b"".join((rest, memoryview(data)[:cut]))
        rest = data[cut + 1 :]
        count = line_ends(whole) + 1
        yield Lines(line, whole, count)
        line += count
        place += len(whole) + 1


def _limit(piece: Piece, place: int, rest: bytes, data: bytes) -> int | None:
    """How many bytes of `rest` (at offset `place`) and `data` are the piece's, once the end of its last line is seen."""
    if piece.end is None or place + len(rest) + len(data) < piece.end:
        return None
    if piece.end >= piece.file.size:
        return None
    at = (rest + data).find(b"\n", max(0, piece.end - 1 - place))
    return None if at < 0 else at + 1


def first_lines(file: SourceFile, count: int) -> list[bytes]:
    """A file's first lines, at most so many, and no more than start in its first 64 KiB, without their line ends."""
    piece = Piece(file, 0, 0, None if file.packed else file.size)
    for lines in read_lines(piece, 64 << 10):
        return [line.removesuffix(b"\r") for line in lines.data.split(b"\n", count)[:count]]
    return []


def header_line(file: SourceFile) -> bytes:
    """A file's first line, without the line end."""
    return next(iter(first_lines(file, 1)), b"")


def with_line_numbers(parts: Sequence[Piece], counts: Sequence[int]) -> list[Piece]:
    """Pieces with `before` filled in from the counts of `count_line_ends`, in the same order."""
    done: list[Piece] = []
    total, file = 0, -1
    for piece, count in zip(parts, counts, strict=True):
        if piece.number != file:
            total, file = 0, piece.number
        done.append(Piece(piece.file, piece.number, piece.start, piece.end, total))
        total += count
    return done
