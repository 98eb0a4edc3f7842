"""Parity: the journal replayed, and compared with what live has put out."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from timelapse.display import many
from timelapse.program.program import Program
from timelapse.run import replay
from timelapse.streaming import chain
from timelapse.streaming.declared import types_of
from timelapse.streaming.format import Epoch
from timelapse.streaming.handover import origin_of
from timelapse.streaming.journal import as_live, journal
from timelapse.streaming.kernel import lag_of
from timelapse.streaming.place import LivePlace
from timelapse.streaming.recovery import ANY, Recovery
from timelapse.streaming.sums import digest_of


@dataclass(frozen=True)
class Parity:
    """What a replay of the journal has found. `same`: all outputs and rejections are equal, to the last bit."""

    same: bool
    epoch: int
    events: int
    digest: str
    live: str
    records: dict[str, tuple[int, int]]
    """By record type: rows of live, rows of the replay."""
    seconds: float

    @property
    def text(self) -> str:
        """For people."""
        if not self.digest:
            return "nothing to compare: the run has no epoch yet"
        if self.same:
            total = sum(rows for rows, _ in self.records.values())
            return f"the same: {many(total, 'output', 'outputs')} of {many(self.events, 'event', 'events')} up to epoch {self.epoch:,}, digest {self.digest} ({self.seconds:.1f} s)"
        lines = [f"DIFFERENT up to epoch {self.epoch:,}: live {self.live}, replay {self.digest}"]
        lines += [
            f"  {name}: {ours:,} rows live, {theirs:,} in the replay"
            for name, (ours, theirs) in sorted(self.records.items())
        ]
        return "\n".join(lines)


def parity(place: LivePlace, program: Program, *, spark: Any = False, upto: int | None = None) -> Parity:
    """Replay the journal up to its last epoch, or `upto`, and compare. Raises RunError, StorageError, HandlerError."""
    began = time.perf_counter()
    log, last = journal(place, upto)
    if last is None:
        return Parity(True, 0, 0, "", "", {}, 0.0)
    if last.last_change:
        return _since_change(place, program, last, began)
    start = chain.read_run(place)[0].start_from
    options = as_live(log, last, start, takes_out=last.quarantined > 0)
    run = replay(program, log, spark=spark, **options)
    ours = {name: row.rows for name, row in last.outputs.items()}
    names = sorted({*ours, *run.counts})
    records = {name: (ours.get(name, 0), run.counts.get(name, 0)) for name in names}
    found = digest_of(last)
    return Parity(
        run.digest == found, last.number, log.count, run.digest, found, records, time.perf_counter() - began
    )


def _since_change(place: LivePlace, program: Program, last: Epoch, began: float) -> Parity:
    """What was put out since the program changed: from where it began then, run again as Python, without any checkpoint."""
    run, _ = chain.read_run(place)
    recovery = Recovery(
        place,
        program,
        types_of(place, run, last),
        quarantine=ANY if last.quarantined else None,
        tell=lambda _: None,
        checkpoints=False,
        origin=origin_of(place, run, program) if lag_of(program) else None,
    )
    running, _ = recovery.begin(last, compiled=False, compare=False)
    sums = running.sums
    digest = sums.digest
    ours, theirs = ({name: row.rows for name, row in side.items()} for side in (last.outputs, sums.outputs))
    records = {name: (ours.get(name, 0), theirs.get(name, 0)) for name in sorted({*ours, *theirs})}
    found = digest_of(last)
    return Parity(
        digest == found, last.number, running.rerun, digest, found, records, time.perf_counter() - began
    )
