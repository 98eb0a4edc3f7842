"""Streams, their partitions, and how far each is complete: which rows are late, and which may be processed.

A partition's *mark* (a low watermark of its own) is the greatest time among its rows so far, minus the allowed lateness, minus one
microsecond. Marks follow positions: they do not depend on how rows came in batches. A row is late if its time is at or
below the mark from the rows before it, or at or below what was complete when the partition appeared or woke up.

Completeness never goes back and is at or below every mark of an active partition; a partition that is idle does not hold
the others back (StreamScope's completeness marks; "idle" as in Flink's watermark strategies).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from timelapse.ids import INT64_MAX, INT64_MIN

I64 = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


class StreamEntry(msgspec.Struct, frozen=True):
    """A stream as the run knows it: its number, its event type, its name, what it reads from."""

    number: int
    type: str
    name: str
    source: str

    @property
    def text(self) -> str:
        """For people."""
        return f"{self.type}:{self.name}" if self.name else self.type


class Partition(msgspec.Struct):
    """A partition of a stream, as far as it was read.

    `position`: its last row that was accepted (-1: none). `greatest`: the greatest time among these, absurd ones left
    aside. `floor`: what was complete when it appeared or woke up. `cursor`: what its source needs to go on.
    """

    stream: int
    number: int
    name: str
    position: int = -1
    greatest: int | None = None
    floor: int | None = None
    idle: bool = False
    rows: int = 0
    late: int = 0
    aside: int = 0
    skipped: int = 0
    """Rows that are in the log that the run goes on from."""
    cursor: str = ""
    stale: int = 0
    """Late rows that were older than the horizon of corrections."""
    filtered: int = 0
    """Rows that a filter kept from the run (filters.py)."""
    duplicates: int = 0
    """Rows that came before (once.py)."""

    def mark(self, lateness: int) -> int:
        """Up to here no more rows come that are not late."""
        mark = INT64_MIN if self.greatest is None else max(INT64_MIN, self.greatest - lateness - 1)
        return mark if self.floor is None else max(mark, self.floor)


class Limits(NamedTuple):
    """Which times are absurd, in microseconds: further ahead of the receipt than `ahead`, or before `not_before`."""

    ahead: int | None
    not_before: int | None


class Admitted(NamedTuple):
    """What becomes of rows: each is accepted, late, or absurd. `marks`: the partition's mark before each."""

    accepted: Bools
    late: Bools
    absurd: Bools
    marks: I64


def admit(partition: Partition, ts: I64, lateness: int, limits: Limits, received: int) -> Admitted:
    """Decide about further rows of a partition, in their order, and move its mark. `received`: the time now."""
    absurd = np.zeros(len(ts), np.bool_)
    if limits.ahead is not None:
        absurd |= ts > received + limits.ahead
    if limits.not_before is not None:
        absurd |= ts < limits.not_before
    known = INT64_MIN if partition.greatest is None else partition.greatest
    seen = np.maximum.accumulate(
        np.concatenate([np.array([known], np.int64), np.where(absurd, INT64_MIN, ts)])
    )
    # The mark before each row, without leaving int64.
    marks = np.where(seen[:-1] < INT64_MIN + lateness + 1, INT64_MIN, seen[:-1] - (lateness + 1))
    late = (ts <= marks) & (seen[:-1] > INT64_MIN)
    if partition.floor is not None:
        late |= ts <= partition.floor
        marks = np.maximum(marks, partition.floor)
    late &= ~absurd
    if seen[-1] > INT64_MIN:
        partition.greatest = int(seen[-1])
    partition.rows += len(ts)
    partition.late += int(late.sum())
    partition.aside += int(absurd.sum())
    return Admitted(~(late | absurd), late, absurd, marks)


def completeness(partitions: Iterable[Partition], lateness: int, before: int | None) -> int | None:
    """How far all is complete now; None where time has not begun to move."""
    marks = [p.mark(lateness) for p in partitions if not p.idle]
    least = min(marks, default=INT64_MIN)
    if least in (INT64_MIN, INT64_MAX):
        return before
    return least if before is None else max(before, least)


def journal_order(ts: I64, places: Sequence[I64]) -> I64:
    """The order of rows in the journal: by time, then by `places` (type, stream, partition, position)."""
    return np.lexsort([*reversed(places), ts])
