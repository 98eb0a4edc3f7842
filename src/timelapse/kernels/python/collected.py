"""What a slice that runs as Python puts out, event by event."""

from __future__ import annotations

import pyarrow as pa

from timelapse.kernels.base import REJECTED_SCHEMA, output_schema, table_of
from timelapse.model.events import Record
from timelapse.program.failure import Quarantined
from timelapse.tables.table import transposed

Row = tuple[int, int, int, int, Record]
Refusal = tuple[int, int, int, str, str, str]


class Collected:
    """What the slice, or the part of it under way, has put out."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Nothing is put out yet."""
        self.rows: dict[type[Record], list[Row]] = {}
        """Records, with their places."""
        self.reads: dict[type[Record], list[Record]] = {}
        """What a pass recorded of reads, which has no places."""
        self.refused: list[Refusal] = []
        """Events that were rejected."""
        self.quarantined: list[Quarantined] = []
        """Events that were taken out of the log."""

    def read(self, record: Record) -> None:
        """A record of reads."""
        self.reads.setdefault(type(record), []).append(record)

    def take_reads(self) -> dict[type[Record], list[Record]]:
        """What was recorded of reads since the last call."""
        found, self.reads = self.reads, {}
        return found

    def tables(self) -> tuple[dict[type[Record], pa.Table], pa.Table]:
        """The records and the rejections."""
        outputs = {cls: _table(cls, found) for cls, found in self.rows.items()}
        for cls, read in self.reads.items():
            outputs[cls] = _table(cls, [(0, 0, 0, 0, r) for r in read])
        return outputs, table_of(REJECTED_SCHEMA, self.refused)


def _table(cls: type[Record], rows: list[Row]) -> pa.Table:
    """Outputs as a table in the stored columns, in order."""
    schema = output_schema(cls)
    *columns, records = transposed(rows, 5)
    # Rows do not iterate for users; here they are the tuples that they are underneath.
    columns += transposed([tuple(tuple.__iter__(r)) for r in records], len(cls.__fields__))
    return pa.table(
        [pa.array(column, f.type) for column, f in zip(columns, schema, strict=True)], schema=schema
    )
