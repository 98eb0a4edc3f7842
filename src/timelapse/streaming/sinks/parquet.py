"""Parquet files: a folder per record type, one file for some epochs. Any reader of Parquet datasets reads them.

A file appears whole, under a name with its last epoch; so the files that are there are the marker.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from timelapse.decoding import decoded
from timelapse.errors import Place
from timelapse.store.parts import PartWriter, sync
from timelapse.store.places import absolute_path
from timelapse.streaming.sinks.base import MARKER, Marker, SinkError, check_folder, refuse_used


class Parquet:
    """A folder for files of outputs: FOLDER/Record/epochs-000000000007-000000000042.parquet."""

    def __init__(self, folder: str | Path) -> None:
        self._folder = absolute_path(folder, "sink")

    @property
    def text(self) -> str:
        return f"Parquet files in {self._folder}"

    def check(self, records: Sequence[str]) -> None:
        check_folder(self._folder)
        for record in records:
            refuse_used(self, record)

    def open(self, run: str) -> None:
        check_folder(self._folder)
        self._folder.mkdir(parents=True, exist_ok=True)

    def _files(self, record: str) -> list[Path]:
        return sorted((self._folder / record).glob("epochs-*.parquet"))

    def marker(self, record: str) -> Marker | None:
        files = self._files(record)
        if not files:
            return None
        try:
            held = (pq.read_schema(files[-1]).metadata or {}).get(MARKER.encode())
            return decoded(held or b"", Marker)
        except (pa.ArrowInvalid, msgspec.MsgspecError) as error:
            raise SinkError(
                f"the file is no output of a live run: {error}",
                place=Place(str(files[-1])),
                hint="give a folder of its own",
            ) from None

    def put(self, record: str, table: pa.Table, before: Marker | None, now: Marker) -> None:
        folder = self._folder / record
        folder.mkdir(exist_ok=True)
        table = table.replace_schema_metadata({MARKER: msgspec.json.encode(now)})
        first = 1 if before is None else before.epoch + 1
        with PartWriter(folder / f"epochs-{first:012}-{now.epoch:012}.parquet", lasting=True) as file:
            pq.write_table(table, file, compression="zstd")
        sync(folder)

    def close(self) -> None:
        """Nothing is open."""
