"""The rows of a log's sources that are no events: where they stood, why they were left out, their text."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from timelapse.log.manifest import REMEDY, IngestEntry, Manifest
from timelapse.store.parts import CheckedFile, Part

FOLDER = "quarantine"
QUARANTINE = pa.schema(
    [
        pa.field("file", pa.string()), pa.field("line", pa.int64()), pa.field("type", pa.string()),
        pa.field("reason", pa.string()), pa.field("raw", pa.string()),
    ]
)  # fmt: skip


def replaced_later(ingests: Sequence[IngestEntry]) -> list[set[tuple[str, str]]]:
    """For each ingest the files, by type and path, that a later one took in again because they were corrected."""
    found: list[set[tuple[str, str]]] = []
    later: set[tuple[str, str]] = set()
    for entry in reversed(ingests):
        found.append(set(later))
        later |= {(s.type, path) for s in entry.sources for path in entry.replaced}
    return found[::-1]


def count_bad(ingests: Sequence[IngestEntry]) -> int:
    """The bad rows of a log's files as they were taken in last."""
    return sum(
        source.bad - sum(n for path, n in source.bad_in.items() if (source.type, path) in gone)
        for entry, gone in zip(ingests, replaced_later(ingests), strict=True)
        for source in entry.sources
    )


def bad_rows(path: Path, manifest: Manifest) -> pa.Table:
    """The quarantine of the log at `path`, in the order of its ingests; without the rows of files that were corrected since.

    Raises StorageError (TL931) for a file that was altered.
    """
    tables: list[pa.Table] = []
    for entry, gone in zip(manifest.ingests, replaced_later(manifest.ingests), strict=True):
        for name in entry.quarantine:
            table = _read(path / FOLDER / name, entry.parts.get(name))
            if gone:
                places = zip(table["type"].to_pylist(), table["file"].to_pylist(), strict=True)
                table = table.filter(pa.array([place not in gone for place in places], pa.bool_()))
            tables.append(table)
    return pa.concat_tables(tables) if tables else QUARANTINE.empty_table()


def _read(path: Path, part: Part | None) -> pa.Table:
    if part is None:  # a version that kept no checksums wrote it
        return pq.read_table(path)
    return pq.read_table(pa.BufferReader(CheckedFile(path, part, REMEDY).whole()))
