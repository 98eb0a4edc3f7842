"""Delta tables, through `deltalake` (no JVM): a table per record type, the epoch as the transaction's marker.

A commit names the table's version that it was made for, and is not retried: where another process was first, what it did is looked at again.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from timelapse.errors import Place
from timelapse.store.places import absolute_path
from timelapse.streaming.sinks.base import MARKER, Marker, SinkError, check_folder, refuse_used


class Delta:
    """A folder with a Delta table for each record type: FOLDER/Record."""

    def __init__(self, folder: str | Path) -> None:
        self._folder = absolute_path(folder, "sink")

    @property
    def text(self) -> str:
        return f"Delta tables in {self._folder}"

    def check(self, records: Sequence[str]) -> None:
        _need()
        check_folder(self._folder)
        for record in records:
            refuse_used(self, record)

    def open(self, run: str) -> None:
        _need()
        check_folder(self._folder)
        self._folder.mkdir(parents=True, exist_ok=True)
        self._run = run

    def _table(self, record: str) -> Any:
        from deltalake import DeltaTable

        path = str(self._folder / record)
        return DeltaTable(path) if DeltaTable.is_deltatable(path) else None

    def marker(self, record: str) -> Marker | None:
        table = self._table(record)
        if table is None:
            return None
        for entry in table.history():  # the newest first
            if MARKER in entry:
                return Marker(**json.loads(entry[MARKER]))
        raise SinkError(
            "the table has no outputs of a live run",
            place=Place(str(self._folder / record)),
            hint="give a folder of its own",
        )

    def put(self, record: str, table: pa.Table, before: Marker | None, now: Marker) -> None:
        from deltalake import CommitProperties, Transaction, write_deltalake
        from deltalake.exceptions import CommitFailedError, DeltaError

        # A later version of the program may have other fields, so any may be missing; Delta keeps a column's rule for good.
        table = table.cast(pa.schema([field.with_nullable(True) for field in table.schema]))
        there = self._table(record)
        if there is not None and self.marker(record) != before:
            raise OSError("another process has added to the table meanwhile")
        properties = CommitProperties(
            max_commit_retries=0, app_transactions=[Transaction(f"timelapse-{now.run}", now.epoch)],
            custom_metadata={MARKER: json.dumps({"run": now.run, "epoch": now.epoch, "hash": now.hash})},
        )  # fmt: skip
        try:
            write_deltalake(
                there if there is not None else str(self._folder / record), table,
                mode="append" if there is not None else "error", schema_mode="merge" if there is not None else None,
                commit_properties=properties,
            )  # fmt: skip
        except CommitFailedError as error:
            raise OSError(f"the commit failed: {error}") from None
        except DeltaError as error:
            if there is None and self._table(record) is not None:
                raise OSError(f"another process has made the table: {error}") from None
            raise SinkError(
                str(error), place=Place(str(self._folder / record)), hint="give a folder of its own"
            ) from None

    def close(self) -> None:
        """Nothing is open."""


def _need() -> None:
    try:
        import deltalake  # noqa: F401
    except ImportError:
        raise SinkError("deltalake is not installed", hint="pip install deltalake") from None
