"""The rows of a log's sources that are no events: where they stood, why they were left out, their text."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from timelapse.log.manifest import Manifest

QUARANTINE = pa.schema(
    [
        pa.field("file", pa.string()), pa.field("line", pa.int64()), pa.field("type", pa.string()),
        pa.field("reason", pa.string()), pa.field("raw", pa.string()),
    ]
)  # fmt: skip


def bad_rows(path: Path, manifest: Manifest) -> pa.Table:
    """The quarantine of the log at `path`, in the order of its ingests."""
    names = [n for i in manifest.ingests for n in i.quarantine]
    tables = [pq.read_table(path / "quarantine" / name) for name in names]
    return pa.concat_tables(tables) if tables else QUARANTINE.empty_table()
