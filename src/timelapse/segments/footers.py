"""The ends of segment files, which say where their pages are."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from timelapse.errors import LogError, Place, StorageError
from timelapse.kept import Kept
from timelapse.segments.manifest import REMEDY, FileEntry
from timelapse.store.parts import CheckedFile, Part

_FOOTERS: Kept[tuple[str | int | Part | None, ...], pq.FileMetaData] = Kept(32)
"""To parse one takes longer than to read a column of a block."""


def footer(path: Path, entry: FileEntry) -> pq.FileMetaData:
    """What the end of a segment file says, checked and parsed once as long as the file stays as it is."""

    def read() -> pq.FileMetaData:
        _check(path, entry)
        return pq.read_metadata(path, memory_map=True)

    found = path.stat()
    identity = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)
    return _FOOTERS.get((str(path), entry.part, *identity), read)


def _check(path: Path, entry: FileEntry) -> None:
    """Check the end of a segment file, which says where its pages are; those have checksums of their own.

    Raises LogError (TL405) where it was altered, OSError where it cannot be read.
    """
    if entry.part is None:
        return
    try:
        file = CheckedFile(path, entry.part, REMEDY)
        end = entry.bytes - _TAIL
        file.need(max(end, 0))
        length = int.from_bytes(file.data[end : end + 4].to_pybytes(), "little") if end > 0 else 0
        file.need(max(end - length, 0))
    except StorageError as error:
        raise unreadable(path, error.message) from None


_TAIL = 8
"""Bytes at the end of a Parquet file: the footer's length and a mark."""


def unreadable(path: Path, reason: object) -> LogError:
    """The error for a segment file that is missing or damaged."""
    return LogError(
        f"a segment file cannot be read: {reason}", place=Place(str(path)), code="TL405",
        hint=REMEDY,
    )  # fmt: skip


def first_rows(file: pq.ParquetFile, group: int, columns: Sequence[str], rows: int) -> pa.Table:
    """A row group's first rows, of these columns. Only the pages that have them are read. Raises OSError, ArrowInvalid."""
    found: list[pa.RecordBatch] = []
    for batch in file.iter_batches(rows, row_groups=[group], columns=columns, use_threads=False):
        found.append(batch)
        if sum(b.num_rows for b in found) >= rows:
            break
    return pa.Table.from_batches(found).slice(0, rows)


__all__ = ["first_rows", "footer", "unreadable"]
