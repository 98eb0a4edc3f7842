"""What the serial loop put out and rejected, in the columns in which runs are stored."""

from __future__ import annotations

import pyarrow as pa

from timelapse.engine.job import same_name
from timelapse.kernels.python import timed
from timelapse.serial import SerialOutcome


def output_tables(outcome: SerialOutcome) -> dict[str, pa.Table]:
    """The loop's outputs by record type, in the stored columns."""
    tables = timed.output_tables(outcome.outputs)
    names = [cls.__name__ for cls in tables]
    for name in names:
        if names.count(name) > 1:
            raise same_name(name)
    return {cls.__name__: table for cls, table in tables.items()}


def rejected_table(outcome: SerialOutcome) -> pa.Table:
    """The loop's rejected events, in the stored columns."""
    return timed.rejected_table(outcome.refused)
