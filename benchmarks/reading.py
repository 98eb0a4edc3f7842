"""A log's Parquet files as tuples, as somebody would read them who writes a loop in plain Python instead of a program."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import timelapse as tl
from tests.programs.data import Event
from timelapse.segments.reader import LogReader


def files_of(log: tl.Log) -> list[tuple[str, Path]]:
    """The files of a log that has one segment, with the event type that is in each."""
    reader = log.reader
    assert isinstance(reader, LogReader)
    (segment,) = reader.segments
    folder = Path(reader.root, "segments", segment.folder)
    return [(reader.types[file.type].name, folder / file.name) for file in segment.files]


def rows_in(files: list[tuple[str, Path]]) -> list[Event]:
    """All events, in the order of the log: each file has its own and their places in a column."""
    found: list[Any] = [None] * sum(pq.read_metadata(path).num_rows for _, path in files)
    for name, path in files:
        table = pq.read_table(path)
        places, times = _values(table.column("_i")), _values(table.column("ts"))
        fields = [
            _values(c)
            for n, c in zip(table.column_names, table.columns, strict=True)
            if n not in ("_i", "ts")
        ]
        rows: Iterator[tuple[Any, ...]] = zip(*fields, strict=True)
        for place, ts, row in zip(places, times, rows, strict=True):
            found[place] = (name, ts, row)
    return found


def _values(column: pa.ChunkedArray) -> list[Any]:
    """A column as a list. By way of NumPy where that works: it is much faster."""
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    if pa.types.is_primitive(column.type) and not column.null_count:
        return column.to_numpy().tolist()  # type: ignore[no-any-return]
    return column.to_pylist()  # type: ignore[no-any-return]
