"""`tl.run_serial`: the reference as a Run, so that it can be asked the same questions as a replay."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from timelapse import __version__, serial
from timelapse.engine.digest import hash_outputs, hash_rejected, run_digest, state_digest
from timelapse.ids import INT64_MAX
from timelapse.kernels.base import quarantined_table
from timelapse.kernels.takeout.taking import without_failing
from timelapse.kernels.tuning import TAKING, TakingTuning
from timelapse.kinds.base import ABSENT, StateSpec
from timelapse.log import Log, MemoryLog
from timelapse.log.only import OnlyReader
from timelapse.log.part import PartReader
from timelapse.log.without import reader_without
from timelapse.model.events import Event
from timelapse.model.order import in_order
from timelapse.moments import Moment, micros
from timelapse.program.failure import Quarantined, most_failures, quarantined_row
from timelapse.program.fingerprint import fingerprint
from timelapse.program.program import Program, as_program, spec_of
from timelapse.program.times import has_own_times
from timelapse.results.data import MemoryData
from timelapse.results.manifest import FORMAT, RunManifest, StateEntry
from timelapse.results.parameters import params_text
from timelapse.results.records import record_entries
from timelapse.results.serial_tables import output_tables, rejected_table
from timelapse.results.stored import RunContext
from timelapse.run.run import Run
from timelapse.run.source import check_heard, end_of, refuse_silence
from timelapse.segments.reader import EventReader, LogReader
from timelapse.segments.types import heard
from timelapse.serial import SerialOutcome
from timelapse.tables.apply import changes_table
from timelapse.tables.rowhash import HashSum


class _SerialRun(Run):
    """A run that the serial loop made: state at a time comes from the loop as well."""

    def __init__(
        self,
        manifest: RunManifest,
        data: MemoryData,
        context: RunContext,
        program: Program,
        events: list[Event],
        clock: tuple[int | None, int | None],
    ) -> None:
        super().__init__(manifest, data, None, context)
        self._program = program
        self._events = events
        self._clock = clock

    def _states_before(self, at: int, specs: Sequence[StateSpec]) -> list[pa.Table]:
        from timelapse.tables.table import state_table

        # Where something happens at other times, the events here are without those already.
        quarantine = self.manifest.quarantined is not None and not has_own_times(self._program)
        begin, end = self._clock
        outcome = serial.run(
            self._program, self._events, before=at, quarantine=quarantine, begin=begin, until=end
        )
        return [state_table(s, outcome.states[s.name].items()) for s in specs]


def run_serial(
    program: Program | type[Program], events: Any, *, quarantine: bool = False, max_quarantined: int | None = None,
    until: Moment | None = None,
) -> Run:  # fmt: skip
    """Process events one by one, in plain Python, without Spark: the definition of what is right.

    `events` is a tl.Log, its path, or events in log order. With `quarantine` an event at which a handler raises
    counts as if it had not been in the log (`Run.quarantined`), of at most `max_quarantined` events (default: 1,000, or
    one in twenty if that is more). `until` (microseconds UTC, ISO 8601 text or a
    datetime) is the time to
    which the clock goes on after the last event: everything due until then happens. Raises HandlerError,
    EventOrderError, TooManyQuarantined, UsageError for an `until` before the last event.
    """
    return run_serial_as(program, events, quarantine, max_quarantined, until, TAKING)


def run_serial_as(
    program: Program | type[Program], events: Any, quarantine: bool, max_quarantined: int | None, until: Moment | None,
    tuning: TakingTuning,
) -> Run:  # fmt: skip
    """`run_serial` with other thresholds of what is taken out."""
    program = as_program(program)
    until = None if until is None else micros(until, "until=")
    started = time.perf_counter()
    path = log_id = None
    left_out: tuple[int, ...] = ()
    part: tuple[int, int] | None = None
    types: tuple[str, ...] = ()
    if isinstance(events, str | Path):
        events = Log.open(events)
    if isinstance(events, Log):
        check_heard(events, program)
        path, log_id, left_out = str(events.path), events.id, events.left_out
        part, types = events.part, events.only_types
    reader: EventReader | None
    reader = (
        events.reader
        if isinstance(events, Log)
        else events
        if isinstance(events, MemoryLog | LogReader | PartReader | OnlyReader)
        else None
    )
    taken: list[Quarantined] | None = None
    found: SerialOutcome | None = None
    if max_quarantined is not None:
        most_failures(max_quarantined, 0)
    if quarantine and has_own_times(program):
        if reader is None:
            listed = list(events)
            reader = MemoryLog(listed, list(dict.fromkeys([*spec_of(program).events, *map(type, listed)])))
        end_of(reader.ts_before(INT64_MAX), until)
        refuse_silence(program, reader)
        most = most_failures(max_quarantined, reader.count)
        found, taken = without_failing(program, reader, most=most, until=until, tuning=tuning)
        reader = reader_without(reader, (row[2] for row in taken))
        quarantine = False
    if reader is None:
        listed = list(in_order(events))
    else:
        classes = {cls.__name__: cls for cls in heard(spec_of(program), reader.types)}
        listed = list(reader.events(0, INT64_MAX, classes))
    count = len(listed) if reader is None else reader.count
    if reader is None:
        first, last = (listed[0].ts, listed[-1].ts) if listed else (None, None)
    else:
        first, last = reader.ts_first, reader.ts_before(INT64_MAX)
    end = end_of(last, until)
    if reader is not None:
        refuse_silence(program, reader)
    begin, most = None if reader is None else first, most_failures(max_quarantined, count)
    outcome = found or serial.run(
        program, listed, quarantine=quarantine, most=most, begin=begin, until=end
    )  # fmt: skip
    seconds = time.perf_counter() - started
    manifest = _manifest(program, outcome, count, seconds, path, log_id, until)
    manifest = msgspec.structs.replace(
        manifest, without=list(left_out), part=list(part or ()), types=list(types)
    )
    if quarantine:
        taken = [quarantined_row(failure) for failure in outcome.quarantined]
    if taken is not None:
        manifest = msgspec.structs.replace(manifest, quarantined=len(taken))
    listing = quarantined_table(taken or [])
    data = MemoryData(
        output_tables(outcome), rejected_table(outcome), listing, lambda name: outcome.states[name]
    )
    return _SerialRun(manifest, data, RunContext(program=program), program, listed, (first, end))


def content_hashes(program: Program, states: dict[str, dict[Any, Any]]) -> dict[str, HashSum]:
    """The hash of each state's contents, as a run adds it up from changes."""
    result = {}
    for name, spec in spec_of(program).declared.items():
        _, change = changes_table(spec, dict.fromkeys(states[name], ABSENT), states[name], ABSENT)
        result[name] = change.content
    return result


def _manifest(
    program: Program,
    outcome: SerialOutcome,
    events: int,
    seconds: float,
    path: str | None,
    log_id: str | None,
    until: int | None,
) -> RunManifest:
    spec = spec_of(program)
    tables = output_tables(outcome)
    refused = rejected_table(outcome)
    hashes = {name: hash_outputs(name, table) for name, table in tables.items()}
    schemas = {name: table.schema for name, table in tables.items()}
    return RunManifest(
        format=FORMAT,
        timelapse=__version__,
        program=spec.name,
        source=None,
        fingerprint=fingerprint(program),
        params=params_text(program),
        log=path,
        log_id=log_id,
        events=events,
        cuts=[0, events],
        records=record_entries(program, hashes, schemas),
        states=[StateEntry.of(s) for s in spec.declared.values()],
        rejected=refused.num_rows,
        digest=run_digest(hashes, schemas, hash_rejected(refused)),
        state_digest=state_digest(content_hashes(program, outcome.states)),
        started="",
        seconds=seconds,
        timings={"serial": seconds},
        executor="serial reference",
        certificate={"mode": "serial"},
        plan="one event at a time",
        pending=outcome.pending,
        until=until,
    )
