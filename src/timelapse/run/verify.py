"""Checking a run against the serial meaning: over the whole log, or a prefix of it."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa

from timelapse import serial
from timelapse.display import many
from timelapse.divergence import Divergence, Result, Row, compare_runs
from timelapse.engine.digest import hash_outputs, hash_rejected
from timelapse.errors import UsageError
from timelapse.ids import Phase
from timelapse.log.without import reader_without
from timelapse.model.events import Event
from timelapse.program.failure import quarantined_row
from timelapse.program.program import Program, spec_of
from timelapse.program.silence import count_ticks
from timelapse.program.times import has_own_times
from timelapse.progress import Progress
from timelapse.progress.notebook import default_progress
from timelapse.results.serial_tables import output_tables, rejected_table
from timelapse.run.files import need_files
from timelapse.run.run import Run
from timelapse.run.takeout import taken_out
from timelapse.segments.reader import EventReader
from timelapse.segments.types import heard
from timelapse.tables.rowhash import hash_sum, one_array
from timelapse.tables.table import key_names, state_table, to_dict

_STAGE = "serial reference"
_TAKEN_OUT = "events taken out of the log"
_TICK = 20_000


@dataclass(frozen=True)
class Verification:
    """The outcome of a verification.

    `events` of the log's `total` were processed by the serial reference; `outputs` and `rejected` are how many of each
    were compared; `boundaries` is the number of slice boundaries at which the whole state was compared; `divergence`
    is the first difference.
    """

    ok: bool
    events: int
    total: int
    boundaries: int
    outputs: int
    seconds: float
    divergence: Divergence | None = None
    rejected: int = 0

    @property
    def covers(self) -> bool:
        """Whether there was anything to compare: outputs, rejections or states. The whole log always counts."""
        return bool(self.outputs or self.rejected or self.boundaries) or self.events == self.total

    @property
    def compared(self) -> str:
        """What was compared: `12 outputs, state at 2 slice boundaries`."""
        bounds = (
            f"state at {many(self.boundaries, 'slice boundary', 'slice boundaries')}"
            if self.boundaries
            else ""
        )
        refused = many(self.rejected, "rejection", "rejections") if self.rejected else ""
        return ", ".join(t for t in (many(self.outputs, "output", "outputs"), refused, bounds) if t)

    @property
    def text(self) -> str:
        """One line, or the first difference."""
        part = "all" if self.events == self.total else f"the first {self.events:,} of"
        if self.divergence is not None:
            return f"differs from the serial reference\n{self.divergence.text}"
        if not self.covers:
            return (
                f"nothing: {part} {self.total:,} events have no output, no rejection and no slice boundary "
                f"({self.seconds:.1f} s); the serial reference has none there either"
            )
        more = "" if self.events == self.total or self.boundaries else "; no state was compared"
        return f"equal to the serial reference: {part} {self.total:,} events, {self.compared}, {self.seconds:.1f} s{more}"


FURTHER = 5
"""A part of a log in which there is nothing to compare is made up to so many times as long."""
AT_LEAST = 100_000
"""So many events are cheap enough to be processed in any case."""


def covering(run: Run, events: int) -> int:
    """How much of the log's beginning to verify where `events` are asked for: enough to have something to compare.

    That is up to the first output, rejection or slice boundary, if it comes within FURTHER times `events` or within
    AT_LEAST events; else what was asked for.
    """
    reader = run.need_reader()
    total = reader.count
    if events >= total:
        return total
    firsts = [cut for cut in run.manifest.cuts if cut > 0][:1]
    tables = [run.stored(name) for name, count in run.counts.items() if count]
    for table in [*tables, run.stored_rejected()]:
        if table.num_rows:
            ts, phase, seq = (
                one_array(table.column(n).slice(0, 1)).cast(pa.int64())[0].as_py()
                for n in ("ts", "phase", "seq")
            )
            firsts.append(seq + 1 if phase == Phase.LOG_EVENT else reader.seq_at(ts) + 1)
    if not firsts:
        return events
    needed = bisect_left(range(total), min(firsts), key=reader.seq_after)
    return max(events, needed) if needed <= max(events * FURTHER, AT_LEAST) else events


class _Stop(Exception):
    """The state differs at a boundary: no need to go on."""


def verify(run: Run, events: int | None = None, progress: Progress | None = None) -> Verification:
    """See Run.verify. Raises UsageError for a number of events that makes no sense, StorageError (TL931) for a file of the run
    that was altered."""
    need_files(run)
    program, reader = run.need_program(), run.need_reader()
    total = reader.count
    if events is not None and events < 1:
        raise UsageError(f"verify takes at least one event, not {events}", code="TL811")
    wanted = total if events is None else min(events, total)
    listener = progress or default_progress()
    started = time.perf_counter()
    hi = reader.seq_after(wanted)
    quarantine = run.manifest.quarantined is not None
    expected: list[Row] | None = None
    if quarantine and has_own_times(program):
        quarantine = False
        expected = _gone(run, program, reader, None if wanted == total else hi, listener)
        reader = reader_without(reader, run.stored_quarantined()["seq"].to_pylist())
    classes = {cls.__name__: cls for cls in heard(spec_of(program), reader.types)}
    # Time goes on with every event of the log, also of types that the program does not hear.
    begin, end = reader.ts_first, reader.ts_before(hi)
    until = run.manifest.until
    if wanted == total and until is not None and end is not None:
        end = max(end, until)
    cuts = [c for c in run.manifest.cuts if 0 < c < hi] if spec_of(program).times else []
    clocks = {run.manifest.cuts[slices]: clock for slices, clock in run.manifest.clocks.items()}
    moments = [(c, max(ts, clocks.get(c, ts))) for c in cuts if (ts := reader.ts_before(c)) is not None]
    checker = _Boundaries(run, program, hi)
    clock = _Clock(program, wanted, begin, end)
    listener.stage(_STAGE, clock.total)
    try:
        outcome = serial.run(
            program, _ticking(reader.events(0, hi, classes), listener, clock), watch=checker.watch,
            quarantine=quarantine,
            begin=begin, until=end, moments=moments,
        )  # fmt: skip
        checker.finish(outcome.states, whole=wanted == total)
        divergence, outputs = _compare(
            run, outcome, expected, hi, None if wanted == total else reader.ts_before(hi)
        )
        refused = len(outcome.refused)
        if divergence is None and wanted == total and outcome.pending != run.pending:
            divergence = Divergence("pending", "", outcome.pending, run.pending, names=("serial", "run"))
    except _Stop:
        divergence, outputs, refused = checker.divergence, 0, 0
    seconds = time.perf_counter() - started
    listener.finish(_STAGE, seconds)
    return Verification(
        divergence is None, wanted, total, checker.compared, outputs, seconds, divergence, refused
    )  # fmt: skip


class _Clock:
    """How far the loop is: its events, and the ticks up to them."""

    def __init__(self, program: Program, events: int, begin: int | None, end: int | None) -> None:
        self._program, self._begin = program, begin
        self.total = events + (0 if end is None else self.ticks(end))

    def ticks(self, to: int) -> int:
        return 0 if self._begin is None else count_ticks(self._program, self._begin, to)


def _ticking(events: Iterator[Event], listener: Progress, clock: _Clock) -> Iterator[Event]:
    done = 0
    while part := list(islice(events, _TICK)):
        yield from part
        done += len(part)
        listener.advance(_STAGE, done + clock.ticks(part[-1].ts), clock.total)


class _Boundaries:
    """Compares the state at each slice boundary that the serial loop passes."""

    def __init__(self, run: Run, program: Program, hi: int) -> None:
        self._run = run
        self._specs = spec_of(program).declared
        self._tables = {name: run.tables_at_cuts(run.state_spec(name)) for name in self._specs}
        self._cuts = [(i, cut) for i, cut in enumerate(run.manifest.cuts) if i > 0 and cut <= hi]
        self._next = 0
        self._hi = hi
        self.compared = 0
        self.divergence: Divergence | None = None

    def watch(self, seq: int, states: dict[str, dict[Any, Any]]) -> None:
        while self._next < len(self._cuts) and seq >= self._cuts[self._next][1]:
            self._check(self._cuts[self._next][0], states)
            self._next += 1

    def finish(self, states: dict[str, dict[Any, Any]], *, whole: bool) -> None:
        """The boundaries at the end of what was processed."""
        while self._next < len(self._cuts) and (whole or self._cuts[self._next][1] <= self._hi):
            self._check(self._cuts[self._next][0], states)
            self._next += 1

    def _check(self, slices: int, states: dict[str, dict[Any, Any]]) -> None:
        """Called for one boundary after the other."""
        self.compared += 1
        for name, spec in self._specs.items():
            mine = state_table(spec, states[name].items())
            other = next(self._tables[name])
            names = [*key_names(spec), *(["v"] if spec.value is not None else [])]
            if _same(mine, other, names):
                continue
            stored = to_dict(spec, other)
            if _same(mine, state_table(spec, stored.items()), names):
                continue
            found = compare_runs(
                Result(states={name: to_dict(spec, mine)}),
                Result(states={name: stored}),
                names=("serial", "run"),
            )
            if found is not None:
                cut = self._run.manifest.cuts[slices]
                self.divergence = Divergence(
                    found.kind,
                    f"{name} (before seq {cut})",
                    found.a,
                    found.b,
                    key=found.key,
                    names=found.names,
                )
                raise _Stop


def _same(a: pa.Table, b: pa.Table, names: list[str]) -> bool:
    if a.num_rows != b.num_rows:
        return False
    sums = [hash_sum([one_array(t.column(n)) for n in names], t.num_rows, 0) for t in (a, b)]
    return sums[0] == sums[1]


def _compare(
    run: Run, outcome: serial.SerialOutcome, expected: list[Row] | None, hi: int, end: int | None
) -> tuple[Divergence | None, int]:
    """Outputs and rejections up to the event before `hi`, which is at the time `end` (None: all there are).

    `expected` is what must have been taken out, where the outcome does not say it.
    """
    tables, refused = output_tables(outcome), rejected_table(outcome)
    taken = _failures(outcome) if expected is None else expected
    mine: dict[str, list[Row]] = {_TAKEN_OUT: taken}
    other: dict[str, list[Row]] = {_TAKEN_OUT: _listed(_before(run.stored_quarantined(), hi, end))}
    fields: dict[str, tuple[str, ...]] = {_TAKEN_OUT: ("event", "handler", "error")}
    for name in dict.fromkeys([*tables, *run.counts]):
        stored = _before(run.stored(name) if name in run.counts else None, hi, end)
        table = tables.get(name)
        if table is not None and stored is not None and table.num_rows == stored.num_rows:
            if hash_outputs(name, table) == hash_outputs(name, stored.cast(table.schema)):
                continue
        if (table is None or not table.num_rows) and (stored is None or not stored.num_rows):
            continue
        mine[name], other[name] = _rows(table), _rows(stored)
        fields[name] = tuple((table if table is not None else stored).column_names[4:])  # type: ignore[union-attr]
    stored_refused = _before(run.stored_rejected(), hi, end)
    assert stored_refused is not None
    left: list[Row] = []
    right: list[Row] = []
    if hash_rejected(refused) != hash_rejected(stored_refused):
        left, right = _refusals(refused), _refusals(stored_refused)
    found = compare_runs(
        Result(mine, left, fields=fields), Result(other, right, fields=fields), names=("serial", "run")
    )
    return found, len(outcome.outputs)


def _before(table: pa.Table | None, hi: int, end: int | None) -> pa.Table | None:
    """The rows of what happened until `end`: of log events at that time only those before `hi`."""
    if table is None or end is None:
        return table
    ts, phase, seq = (np.asarray(one_array(table.column(n)).cast(pa.int64())) for n in ("ts", "phase", "seq"))
    return table.filter(pa.array((ts < end) | ((ts == end) & ((phase != Phase.LOG_EVENT) | (seq < hi)))))


def _rows(table: pa.Table | None) -> list[Row]:
    if table is None:
        return []
    columns = [_plain(c) for c in table.columns]
    return [Row(r[0], r[1], r[2], r[3], tuple(r[4:])) for r in zip(*columns, strict=True)]


def _refusals(table: pa.Table) -> list[Row]:
    columns = [_plain(c) for c in table.columns]
    return [Row(r[0], r[1], r[2], None, tuple(r[3:])) for r in zip(*columns, strict=True)]


def _gone(run: Run, program: Program, reader: EventReader, hi: int | None, listener: Progress) -> list[Row]:
    """What must have been taken out for a program in which something happens at other times than the events'.

    What stems from an event may fail long after it, so a part of the log does not tell: then the run's own list is
    what the outputs are compared for.
    """
    if hi is not None:
        return _listed(_before(run.stored_quarantined(), hi, reader.ts_before(hi)))
    until = run.manifest.until
    rows = taken_out(program, reader, most=reader.count, until=until, progress=listener)
    return [Row(r[0], r[1], r[2], 0, r[3:6]) for r in rows]


def _failures(outcome: serial.SerialOutcome) -> list[Row]:
    """What was taken out of the log. Where the code stands is no part of what it means."""
    rows = map(quarantined_row, outcome.quarantined)
    return [Row(r[0], r[1], r[2], 0, r[3:6]) for r in rows]


def _listed(table: pa.Table | None) -> list[Row]:
    return [] if table is None else [Row(r[0], r[1], r[2], 0, r[3:6]) for r in _by_row(table)]


def _by_row(table: pa.Table) -> Iterator[tuple[Any, ...]]:
    return zip(*(_plain(c) for c in table.columns), strict=True)


def _plain(column: pa.ChunkedArray) -> list[Any]:
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    values = column.to_pylist()
    return [tuple(v) if isinstance(v, list) else v for v in values]
