"""What becomes of rows as they come: each waits for completeness, or is put aside."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from timelapse.program.program import Program
from timelapse.segments.types import EventType
from timelapse.streaming.arrivals import arrivals
from timelapse.streaming.correction import to_correct
from timelapse.streaming.declared import fitted
from timelapse.streaming.filters import Filters
from timelapse.streaming.marks import Marks
from timelapse.streaming.rows import Batch, bad_rows, parted
from timelapse.streaming.rules import Rules
from timelapse.streaming.streams import Partition, admit


@dataclass
class Admission:
    """The rows that one epoch takes.

    `now`: wall clock, microseconds. `complete`, `begin`: the time up to which everything has happened, and that of the journal's first row. `floor`: up to
    there nothing is ever corrected. `logged`: rows up to there are in the log that the run goes on from.
    """

    program: Program
    types: Sequence[EventType]
    marks: Marks
    rules: Rules
    filters: Filters
    now: int
    complete: int | None
    begin: int | None
    floor: int | None
    logged: int | None
    decisions: list[str]
    """What a clock or an operator has decided, for people."""
    sections: dict[str, list[pa.Table]] = field(default_factory=dict)
    """The rows by what becomes of them."""

    def take(self, batch: Batch, partition: Partition) -> None:
        """Take the rows of a batch that are behind their partition's position, and move that and the mark."""
        kind = next(t for t in self.types if t.name == self.marks.entry(batch.stream).type)
        new = batch.offsets > partition.position
        if self.logged is not None:
            in_log = new & (batch.ts <= self.logged)
            partition.skipped += int(in_log.sum())
            new &= ~in_log
        ts, fields, offsets = batch.ts, fitted(kind, batch.fields), batch.offsets
        if not new.all():
            ts, fields, offsets = ts[new], fields.filter(pa.array(new)), offsets[new]
        bad = [b for b in batch.bad if b.offset > partition.position]
        if (len(ts) or bad) and partition.idle:
            partition.idle, partition.floor = False, self.complete
            self.decisions.append(f"{self.marks.shown(partition)} is active again")
        found = admit(partition, ts, self.rules.lateness, self.rules.limits, self.now)
        stale = None
        found, filtered = self.filters.applied(partition, kind, ts, fields, found)
        if self.rules.late == "correct" and found.late.any():
            found, stale = to_correct(
                self.program, ts, found, complete=self.complete, begin=self.begin, horizon=self.rules.horizon, floor=self.floor
            )  # fmt: skip
            partition.stale += int(stale.sum())
        partition.aside += len(bad)
        partition.position = max(partition.position, batch.end)
        partition.cursor = batch.cursor or partition.cursor
        if len(ts):
            table = arrivals(kind, ts, fields, partition.stream, partition.number, offsets)
            for name, rows in parted(kind.name, table, found, stale, filtered):
                self.sections.setdefault(name, []).append(rows)
        if bad:
            self.sections.setdefault("bad", []).append(bad_rows(bad, partition, kind.name))
