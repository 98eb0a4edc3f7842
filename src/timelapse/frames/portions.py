"""A run's outputs cut by time, so that a task reads all record types of a range: how they become a log (log/derived.py)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from timelapse.frames.tables import Piece, Rows
from timelapse.run.run import Run

PORTION_BYTES = 256 << 20
"""What the outputs of a portion take, about, when they are not compressed."""


@dataclass(frozen=True)
class Portion:
    """The outputs with `first <= ts < last`; None: without a bound. It travels to tasks: it holds no data."""

    parts: Mapping[str, tuple[Rows, tuple[Piece, ...]]]
    first: int | None
    last: int | None

    def stored(self, record: str) -> pa.Table:
        """Those of a record type, as `Run.stored` gives all."""
        rows, pieces = self.parts[record]
        found = [rows.stored.empty_table()]
        for piece in pieces:
            table = rows.stored_rows(piece.file, piece.group, rows.stored.names)
            ts = np.asarray(table.column("ts"))
            lo = 0 if self.first is None else int(np.searchsorted(ts, self.first))
            hi = len(ts) if self.last is None else int(np.searchsorted(ts, self.last))
            found.append(table.slice(lo, hi - lo))
        return pa.concat_tables(found)


@dataclass(frozen=True)
class Whole:
    """All outputs, as tables."""

    tables: Mapping[str, pa.Table]

    def stored(self, record: str) -> pa.Table:
        return self.tables[record]


def portions(run: Run, records: Mapping[str, pa.Schema]) -> list[Portion]:
    """A run's outputs of these types, in portions that follow one another; outputs of one time are in one portion. Raises RunError
    (TL920) where they are not as many as the run tells."""
    files = {
        name: Rows.of(run, f"outputs/{name}", schema, run.counts.get(name, 0))
        for name, schema in records.items()
    }
    pieces = {name: rows.pieces() for name, rows in files.items()}
    cuts: list[int | None] = [None]
    held, largest = 0, None
    for first, size in sorted((p.first, p.bytes) for own in pieces.values() for p in own if p.rows):
        if held and held + size > PORTION_BYTES and first != largest:
            cuts.append(first)
            held = 0
        held += size
        largest = first
    found = []
    for lo, hi in zip(cuts, [*cuts[1:], None], strict=True):
        there = {
            name: (
                files[name],
                tuple(p for p in own if (lo is None or p.last >= lo) and (hi is None or p.first < hi)),
            )
            for name, own in pieces.items()
        }
        found.append(Portion(there, lo, hi))
    return found
