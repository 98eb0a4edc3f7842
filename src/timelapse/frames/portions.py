"""A run's outputs cut by their places, so that a task reads all record types of a range: how they become a log (segments/derived.py)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from timelapse.frames.tables import Piece, Rows
from timelapse.ids import INT64_MAX, INT64_MIN
from timelapse.results.stored import StoredRun

PORTION_BYTES = 256 << 20
"""What the outputs of a portion take, about, when they are not compressed."""
_COLUMNS = ("ts", "phase", "seq", "ordinal")
Place = tuple[int, int, int, int]
"""Where an output stands: by these columns outputs are in order."""


@dataclass(frozen=True)
class Portion:
    """The outputs from one place up to another; None: without a bound. It travels to tasks: it holds no data."""

    parts: Mapping[str, tuple[Rows, tuple[Piece, ...]]]
    first: Place | None
    last: Place | None

    def stored(self, record: str) -> pa.Table:
        """Those of a record type, as `Run.stored` gives all."""
        rows, pieces = self.parts[record]
        found = [rows.stored.empty_table()]
        for piece in pieces:
            table = rows.stored_rows(piece.file, piece.group, rows.stored.names)
            lo = 0 if self.first is None else _reaching(table, self.first)
            hi = table.num_rows if self.last is None else _reaching(table, self.last)
            if lo < hi:  # an empty part would hold on to its table
                found.append(table.slice(lo, hi - lo))
        return pa.concat_tables(found)


def _reaching(table: pa.Table, place: Place) -> int:
    """The first row at a place or behind it."""
    lo, hi = 0, table.num_rows
    for name, value in zip(_COLUMNS, place, strict=True):
        column = np.asarray(table.column(name)).astype(np.int64, copy=False)[lo:hi]
        lo, hi = lo + int(np.searchsorted(column, value)), lo + int(np.searchsorted(column, value, "right"))
        if lo == hi:
            break
    return lo


@dataclass(frozen=True)
class Whole:
    """All outputs, as tables."""

    tables: Mapping[str, pa.Table]

    def stored(self, record: str) -> pa.Table:
        return self.tables[record]


def portions(run: StoredRun, records: Mapping[str, pa.Schema]) -> list[Portion]:
    """A run's outputs of these types, in portions that follow one another. A portion has at most a part of a file of each type more than
    PORTION_BYTES, however many outputs are of one time. Raises RunError (TL920) where they are not as many as the run tells."""
    files = {
        name: Rows.of(run, f"outputs/{name}", schema, run.counts.get(name, 0))
        for name, schema in records.items()
    }
    pieces = {name: [p for p in rows.pieces() if p.rows] for name, rows in files.items()}
    sizes = Counter[int]()
    for piece in (p for own in pieces.values() for p in own):
        sizes[piece.first] += piece.bytes
    crowded = {ts for ts, size in sizes.items() if size > PORTION_BYTES}
    begins = {
        name: [_first(files[name], p) if p.first in crowded else _before(p.first) for p in own]
        for name, own in pieces.items()
    }
    cuts: list[Place | None] = [None]
    held, largest = 0, None
    sized = ((at, p.bytes) for name, own in pieces.items() for at, p in zip(begins[name], own, strict=True))
    for at, size in sorted(sized):
        if held and held + size > PORTION_BYTES and at != largest:
            cuts.append(at)
            held = 0
        held += size
        largest = at
    found = []
    for lo, hi in zip(cuts, [*cuts[1:], None], strict=True):
        there = {
            name: (
                files[name],
                tuple(
                    p
                    for n, p in enumerate(own)
                    if (lo is None or _end(own, begins[name], n, crowded) >= lo)
                    and (hi is None or begins[name][n] < hi)
                ),
            )
            for name, own in pieces.items()
        }
        found.append(Portion(there, lo, hi))
    return found


def _first(rows: Rows, piece: Piece) -> Place:
    """Where a part's first output stands."""
    row = rows.stored_rows(piece.file, piece.group, _COLUMNS).slice(0, 1)
    ts, phase, seq, ordinal = (int(row.column(n)[0].cast(pa.int64()).as_py()) for n in _COLUMNS)
    return ts, phase, seq, ordinal


def _before(ts: int) -> Place:
    return ts, INT64_MIN, INT64_MIN, INT64_MIN


def _end(own: list[Piece], begins: list[Place], number: int, crowded: set[int]) -> Place:
    """A place that a part's last output is at or before."""
    if number + 1 < len(own) and own[number + 1].first in crowded:
        return begins[number + 1]
    return own[number].last, INT64_MAX, INT64_MAX, INT64_MAX
