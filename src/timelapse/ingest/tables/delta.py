"""Delta tables, through `deltalake` (https://delta-io.github.io/delta-rs): the data files of one version are the parts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
import pyarrow.dataset as pads

from timelapse.ingest.files import SourceFile
from timelapse.ingest.tables.base import Opened, Table, unreadable


@dataclass(frozen=True)
class Delta(Table):
    """A Delta table: its path or address, and the version that is read; None: the newest one.

    `options`: those of deltalake's storage, such as credentials; by default the environment has them. They are not recorded.
    """

    path: str | Path
    version: int | None = None
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    def open(self) -> Opened:
        where = str(self.path) if "://" in str(self.path) else str(Path(self.path).expanduser().absolute())
        version, dataset, rows = _dataset(
            where, self.version, tuple(sorted(self.options.items())), fresh=self.version is None
        )
        schema = dataset.schema
        parts = [
            (f.path, _Part(where, version, tuple(sorted(self.options.items())), f.path))
            for f in dataset.get_fragments()
        ]
        counts, sizes = rows
        parts.sort(key=lambda one: one[0].encode("utf-8", "surrogateescape"))
        files = [
            SourceFile(f"{where}/{name}", sizes.get(name, 0), part=part, mark=f"{sizes.get(name, 0)}")
            for name, part in parts
        ]
        return Opened(
            "delta", files, [counts.get(name, 0) for name, _ in parts],
            dict(zip(schema.names, schema.types, strict=True)), {"version": version},
        ).only(self.parts)  # fmt: skip

    def some(self, opened: Opened, paths: Sequence[str]) -> Self:
        return replace(self, version=int(opened.told["version"]), parts=tuple(paths))

    def describe(self) -> dict[str, Any]:
        return {"from": f"delta:{self.path}"}


@dataclass(frozen=True)
class _Part:
    """A data file of a version of a table."""

    table: str
    version: int
    options: tuple[tuple[str, str], ...] = field(repr=False)
    name: str

    def read(self, most: int, columns: Sequence[str] | None) -> Iterator[pa.Table]:
        _, dataset, _ = _dataset(self.table, self.version, self.options)
        fragment = next(f for f in dataset.get_fragments() if f.path == self.name)
        try:
            scanner = fragment.scanner(
                schema=dataset.schema,
                columns=None if columns is None else list(columns),
                batch_size=most,
                use_threads=False,
            )
            for batch in scanner.to_batches():
                if batch.num_rows:
                    yield pa.Table.from_batches([batch])
        except (OSError, pa.ArrowException) as error:
            raise unreadable(f"{self.table}/{self.name}", error) from error


_Found = tuple[int, pads.Dataset, tuple[dict[str, int], dict[str, int]]]


def _dataset(
    where: str, version: int | None, options: tuple[tuple[str, str], ...], *, fresh: bool = False
) -> _Found:
    """A version of a table: its number, its data, and the rows and bytes of each of its files. Raises IngestError (TL418)."""
    return _opened.__wrapped__(where, version, options) if fresh else _opened(where, version, options)


@lru_cache(maxsize=4)
def _opened(where: str, version: int | None, options: tuple[tuple[str, str], ...]) -> _Found:
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError, DeltaProtocolError, TableNotFoundError

    try:
        table = DeltaTable(where, version=version, storage_options=dict(options) or None)
        actions = pa.table(table.get_add_actions(flatten=True))
        names = actions["path"].to_pylist()
        rows = (
            actions["num_records"].to_pylist()
            if "num_records" in actions.column_names
            else [None] * len(names)
        )
        sizes = dict(zip(names, actions["size_bytes"].to_pylist(), strict=True))
        dataset = table.to_pyarrow_dataset()
        counts = {f.path: 0 for f in dataset.get_fragments()}
        known = dict(zip(names, rows, strict=True))
        for fragment in dataset.get_fragments():
            found = known.get(fragment.path)
            counts[fragment.path] = fragment.count_rows() if found is None else int(found)
        return table.version(), dataset, (counts, {name: int(size) for name, size in sizes.items()})
    except TableNotFoundError as error:
        raise unreadable(
            where, error, "is it a Delta table? Folders of Parquet files are read as such"
        ) from None
    except (DeltaProtocolError, NotImplementedError) as error:
        raise unreadable(
            where, error, "deltalake reads no files of tables with such a feature: read it by Spark, or rewrite it (REORG TABLE ... APPLY (PURGE))"
        ) from error  # fmt: skip
    except (DeltaError, OSError, ValueError, OverflowError, pa.ArrowException) as error:
        raise unreadable(where, error, "" if version is None else _newest(where, version, options)) from error


def _newest(where: str, version: int, options: tuple[tuple[str, str], ...]) -> str:
    """What to do about a version that a table does not have; empty where that is not what is wrong."""
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    try:
        newest = DeltaTable(where, storage_options=dict(options) or None).version()
    except (DeltaError, OSError, ValueError, pa.ArrowException):
        return ""
    return "" if 0 <= version <= newest else f"there is no version {version}: the newest is {newest}"
