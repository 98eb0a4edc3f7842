"""Some rows or columns of a stored table: what is read of a file is checked, the rest is not touched."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from timelapse.store.parts import CheckedFile

_TAIL = 8
"""A Parquet file ends with the length of its footer, in 4 bytes, and 4 letters."""
_BATCH = 1 << 16


def rows_of_part(
    data: CheckedFile | pa.Buffer, columns: Sequence[str] | None, at: int | None
) -> tuple[int, pa.Table]:
    """How many rows a Parquet file has; and some columns (None: all) of its rows, or of those with `ts` equal to `at`.

    Raises StorageError (TL931) where what is read was altered.
    """
    checked = data if isinstance(data, CheckedFile) else None
    buffer = data.data if isinstance(data, CheckedFile) else data
    if checked is not None:
        _need_footer(checked)
    with pq.ParquetFile(pa.BufferReader(buffer)) as file:
        groups = range(file.metadata.num_row_groups)
        if at is None:
            _need(checked, file.metadata, groups, columns)
            return file.metadata.num_rows, file.read(columns=columns)
        own = [g for g in groups if _may_hold(file.metadata.row_group(g), at)]
        _need(checked, file.metadata, own, ["ts"])
        found: list[pa.RecordBatch] = []
        for group in own:
            times = np.asarray(file.read_row_group(group, ["ts"]).column("ts"))
            hits = np.flatnonzero(times == at)
            if len(hits):
                _need(checked, file.metadata, [group], columns)
                found += _picked(file, group, columns, hits)
        schema = file.schema_arrow
        if columns is not None:
            schema = pa.schema([schema.field(name) for name in columns])
        return file.metadata.num_rows, pa.Table.from_batches(found, schema)


def _picked(
    file: pq.ParquetFile, group: int, columns: Sequence[str] | None, hits: npt.NDArray[np.int64]
) -> Iterable[pa.RecordBatch]:
    """These rows (ascending) of a row group. It is read up to the last of them."""
    at = 0
    for batch in file.iter_batches(_BATCH, row_groups=[group], columns=columns):
        own = hits[np.searchsorted(hits, at) : np.searchsorted(hits, at + batch.num_rows)]
        if len(own):
            yield batch.take(pa.array(own - at))
        at += batch.num_rows
        if at > hits[-1]:
            return


def _may_hold(group: pq.RowGroupMetaData, at: int) -> bool:
    """Whether a row group may have rows of a time."""
    for number in range(group.num_columns):
        column = group.column(number)
        if column.path_in_schema == "ts" and column.statistics is not None and column.statistics.has_min_max:
            return bool(column.statistics.min <= at <= column.statistics.max)
    return True


def _need_footer(checked: CheckedFile) -> None:
    size = checked.part.bytes
    checked.need(max(0, size - _TAIL), size)
    length = int.from_bytes(memoryview(checked.data)[-_TAIL:-4], "little")
    checked.need(max(0, size - _TAIL - length), size)


def _need(
    checked: CheckedFile | None,
    metadata: pq.FileMetaData,
    groups: Iterable[int],
    columns: Sequence[str] | None,
) -> None:
    """Check what these columns (None: all) of row groups are read from."""
    if checked is None:
        return
    for group in groups:
        own = metadata.row_group(group)
        for number in range(own.num_columns):
            column = own.column(number)
            if columns is not None and column.path_in_schema.partition(".")[0] not in columns:
                continue
            first = column.data_page_offset
            if column.dictionary_page_offset:
                first = min(first, column.dictionary_page_offset)
            checked.need(first, first + column.total_compressed_size)


__all__ = ["rows_of_part"]
