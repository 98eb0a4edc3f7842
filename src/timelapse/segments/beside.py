"""What a log keeps beside its events: the file that each came from, and how late it arrived.

These columns are no fields: programs do not see them, and the log's id does not depend on them. With them rows of the same time
stand in the order of their files whenever these were taken in, a corrected file can replace its old version, and the
order of arrival is known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from timelapse.segments.manifest import IngestEntry

FILE, LATE = "_file", "_late"
BESIDE = pa.schema([pa.field(FILE, pa.int32(), nullable=False), pa.field(LATE, pa.int64(), nullable=True)])
"""`_file`: the number of the event's file (`files_of`), -1 where it came from no file, or this is not known. `_late`: how long after
its event the row arrived, in microseconds; null where this is not known."""


def files_of(ingests: Sequence[IngestEntry]) -> list[tuple[str, int, str]]:
    """The files that a log was made of, in the order of their numbers: type, position of the source, path."""
    return [
        (source.type, source.position, path)
        for ingest in ingests
        for source in ingest.sources
        for path in source.taken
    ]


def ranks_of(ingests: Sequence[IngestEntry]) -> npt.NDArray[np.int64]:
    """Each file's place among all by (source, path), by its number; behind them one for events of no file, which stand first.

    A file that was taken in again has the place that it had.
    """
    places = [(position, path.encode("utf-8", "surrogateescape")) for _, position, path in files_of(ingests)]
    order = {place: n for n, place in enumerate(sorted(set(places)))}
    return np.asarray([*(order[place] for place in places), -1], np.int64)


def filled(name: str, rows: int) -> pa.Array:
    """A column for events of which it is not known."""
    kind = BESIDE.field(name).type
    return pa.array(np.full(rows, -1), kind) if name == FILE else pa.nulls(rows, kind)


def columns_beside(columns: Mapping[str, pa.ChunkedArray], names: Sequence[str], rows: int) -> list[pa.Array]:
    """The named columns, filled where they are not there."""
    return [columns[n].cast(BESIDE.field(n).type) if n in columns else filled(n, rows) for n in names]


def with_beside(table: pa.Table, beside: Mapping[str, pa.Array]) -> pa.Table:
    """A table of fields with such columns."""
    if not table.num_columns and beside:  # a type without fields: such a table may not know its rows
        return pa.table(dict(beside))
    for name, column in beside.items():
        table = table.append_column(BESIDE.field(name), column)
    return table


def known_late(table: pa.Table) -> npt.NDArray[np.int64]:
    """How late the events of a table arrived; 0 where this is not known."""
    return np.asarray(pc.fill_null(table[LATE], 0), np.int64)
