"""Iceberg tables, through `pyiceberg` (https://py.iceberg.apache.org): the data files of one snapshot are the parts."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, NamedTuple, Self

import pyarrow as pa

from timelapse.ingest.files import SourceFile
from timelapse.ingest.tables.base import Opened, Table, unreadable


@dataclass(frozen=True)
class Iceberg(Table):
    """An Iceberg table: its name (`shop.txn`), and the snapshot that is read; None: the current one.

    `catalog`: the name of a catalogue that pyiceberg is configured for (~/.pyiceberg.yaml, or the environment), or its properties
    ({"type": "sql", "uri": ..., "warehouse": ...}). Properties are not recorded.
    """

    name: str
    catalog: str | Mapping[str, str] = "default"
    snapshot: int | None = None

    def open(self) -> Opened:
        found = _load(self.name, self._catalog, self.snapshot)
        parts = sorted(found.tasks.items())
        files: list[SourceFile] = []
        rows: list[int] = []
        for path, task in parts:
            deleted = sorted(d.file_path for d in task.delete_files)
            mark = (
                hashlib.blake2b("\n".join(deleted).encode(), digest_size=8).hexdigest()
                if deleted
                else "whole"
            )
            files.append(
                SourceFile(
                    path, int(task.file.file_size_in_bytes), mark=mark,
                    part=_Part(self.name, self._catalog, found.snapshot, path),
                )
            )  # fmt: skip
            rows.append(int(task.file.record_count))
        told = {"snapshot": found.snapshot}
        return Opened("iceberg", files, rows, found.columns, told).only(self.parts)

    @property
    def _catalog(self) -> tuple[tuple[str, str], ...]:
        own = {"name": self.catalog} if isinstance(self.catalog, str) else dict(self.catalog)
        return tuple(sorted((key, str(value)) for key, value in own.items()))

    def some(self, opened: Opened, paths: Sequence[str]) -> Self:
        return replace(self, snapshot=opened.told["snapshot"], parts=tuple(paths))

    def describe(self) -> dict[str, Any]:
        where = self.catalog if isinstance(self.catalog, str) else self.catalog.get("name", "")
        return {"from": f"iceberg:{self.name}", **({"catalog": where} if where else {})}


class _Loaded(NamedTuple):
    """A snapshot of a table: the tasks that pyiceberg would read it by, by the path of their data file."""

    table: Any
    scan: Any
    snapshot: int | None
    tasks: dict[str, Any]
    columns: dict[str, pa.DataType]


@dataclass(frozen=True)
class _Part:
    """A data file of a snapshot, without the rows that were deleted."""

    name: str
    catalog: tuple[tuple[str, str], ...] = field(repr=False)
    snapshot: int | None
    path: str

    def read(self, most: int, columns: Sequence[str] | None) -> Iterator[pa.Table]:
        from pyiceberg.expressions import AlwaysTrue
        from pyiceberg.io.pyarrow import ArrowScan

        found = _known(self.name, self.catalog, self.snapshot)
        try:
            scan = found.scan if columns is None else found.scan.select(*columns)
            read = ArrowScan(found.table.metadata, found.table.io, scan.projection(), AlwaysTrue(), True)
            for batch in read.to_record_batches([found.tasks[self.path]]):
                whole = pa.Table.from_batches([batch])
                for first in range(0, whole.num_rows, most):
                    yield whole.slice(first, most)
        except Exception as error:  # pyiceberg's own errors share no class
            raise unreadable(f"{self.name}: {self.path}", error) from error


@lru_cache(maxsize=4)
def _known(name: str, catalog: tuple[tuple[str, str], ...], snapshot: int | None) -> _Loaded:
    """A snapshot, which does not change."""
    return _load(name, catalog, snapshot)


def _load(name: str, catalog: tuple[tuple[str, str], ...], snapshot: int | None) -> _Loaded:
    from pyiceberg.catalog import load_catalog
    from pyiceberg.io.pyarrow import schema_to_pyarrow

    try:
        properties = dict(catalog)
        table = load_catalog(properties.pop("name", "default"), **properties).load_table(name)
        current = table.current_snapshot()
        chosen = snapshot if snapshot is not None else None if current is None else current.snapshot_id
        scan = table.scan(snapshot_id=chosen)
        tasks = {task.file.file_path: task for task in scan.plan_files()} if chosen is not None else {}
        schema = schema_to_pyarrow(scan.projection(), include_field_ids=False)
    except Exception as error:  # pyiceberg's own errors share no class
        raise unreadable(
            f"iceberg:{name}", error, "catalog names one that pyiceberg is configured for, or has its properties: type, uri, warehouse, and name where it is not default"
        ) from error  # fmt: skip
    columns = {field.name: field.type for field in schema}
    return _Loaded(table, scan, chosen, tasks, columns)
