"""Time travel: states in the middle of a slice, by running a part of the slice again."""

from __future__ import annotations

import bisect
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from timelapse import serial
from timelapse.analysis import analyse, final_pass
from timelapse.env.machine import cores
from timelapse.errors import HandlerError, ReplayError
from timelapse.ids import INT64_MAX, INT64_MIN
from timelapse.kernels.base import Abandoned
from timelapse.kernels.choose import SliceKernel
from timelapse.kernels.source import Source
from timelapse.kernels.walk import Walk, walker
from timelapse.kinds.base import StateSpec
from timelapse.log.without import reader_without
from timelapse.model.decimals import in_usual_context
from timelapse.program.program import Program, spec_of
from timelapse.program.times import VIEWS
from timelapse.segments.reader import EventReader
from timelapse.segments.types import heard
from timelapse.tables import merge
from timelapse.tables.apply import empty
from timelapse.tables.table import state_table

if TYPE_CHECKING:
    from timelapse.results.stored import StoredRun


@in_usual_context
def states_before(run: StoredRun, at: int, specs: Sequence[StateSpec]) -> list[pa.Table]:
    """The tables of some states before everything at a time, in any order; hashes may be missing. What happened since the
    slice's start happens once for all.

    Compiled where the replay was.
    """
    program, reader = run.need_program(), run.need_reader()
    spec = spec_of(program)
    if spec.times:
        reader = reader_without(reader, run.stored_quarantined()["seq"].to_pylist())
        # Windows take more than the state at the slice's start: they begin with the log, compiled if that can be.
        looks = any(use.what in VIEWS for use in spec.times)
        found = None
        if looks or not (spec.serial_only or analyse(program).serial_only):
            found = _stepped_before(run, program, reader, at, specs, whole=looks)
        return _timed_before(run, program, reader, at, specs) if found is None else found
    cuts, seq = run.manifest.cuts, reader.seq_at(at)
    slice_id = min(max(0, bisect.bisect_right(cuts, seq) - 1), run.slices)
    if slice_id == run.slices or cuts[slice_id] == seq:
        return [run.table_at_cut(s, slice_id) for s in specs]
    starts = {name: run.table_at_cut(s, slice_id) for name, s in spec.states.items() if slice_id}
    lo = cuts[slice_id]
    work = final_pass(analyse(program))
    classes = {cls.__name__: cls for cls in spec.events if cls.__name__ in work.columns}
    kernel = walker(program, work, starts, seq - lo, quarantine=run.manifest.quarantined, tuning=run.tuning)
    source = Source(reader, lo, seq, classes, work.columns)
    if kernel.compiled:
        walk = Walk(kernel, source)
        try:
            walk.run([seq], lambda moment: False)
        except HandlerError as error:
            raise _failed(error) from error
        return [walk.held(s) for s in specs]
    return _after(kernel, source, starts, specs)


def _stepped_before(
    run: StoredRun, program: Program, reader: EventReader, at: int, specs: Sequence[StateSpec], *, whole: bool
) -> list[pa.Table] | None:
    """The same for a program with ticks, `after=` handlers or what lies ahead, before everything at `at`.

    `whole`: from the log's beginning, if that runs compiled; else None.
    """
    cuts, until = run.manifest.cuts, run.manifest.until
    first, last = reader.ts_first, reader.ts_before(INT64_MAX)
    if first is None or last is None or at <= first:
        return [run.table_at_cut(s, 0) for s in specs]
    if at > (last if until is None else max(last, until)):
        return [run.table_at_cut(s, run.slices) for s in specs]
    seq = reader.seq_at(at)
    slice_id = 0 if whole else min(bisect.bisect_right(cuts, seq) - 1, run.slices - 1)
    clocks = run.manifest.clocks
    while at <= clocks.get(slice_id, INT64_MIN):  # the slice begins with what happened until then
        slice_id -= 1
    lo = cuts[slice_id]
    starts = {n: run.table_at_cut(s, slice_id) for n, s in spec_of(program).states.items() if slice_id}
    work = final_pass(analyse(program))
    # Compiled steps begin with the log.
    kernel = SliceKernel(
        program, work, starts, seq - lo, final=True, prefetch=cores() > 1, alone=not slice_id, rows=False,
        asked=[s.name for s in specs], tuning=run.tuning,
    )  # fmt: skip
    if whole and not kernel.compiled:
        kernel.close()
        return None
    classes = {c.__name__: c for c in heard(spec_of(program), reader.types) if c.__name__ in work.columns}
    since = clocks.get(slice_id, reader.ts_before(lo)) if slice_id else None
    source = Source(reader, lo, seq, classes, work.columns, begin=first, end=at - 1, since=since)
    try:
        return _after(kernel, source, starts, specs)
    except Abandoned:
        return None
    finally:
        kernel.close()


def _after(
    kernel: SliceKernel, source: Source, starts: Mapping[str, pa.Table], specs: Sequence[StateSpec]
) -> list[pa.Table]:
    """The states after what the kernel goes through."""
    result = kernel.run(source, lambda _: None)
    if result.failure is not None:
        raise _failed(result.failure)
    return [merge.fold(s, starts.get(s.name, empty(s)), [result.effects[s.name]]) for s in specs]


def _failed(error: HandlerError) -> ReplayError:
    return ReplayError("a handler failed where it did not fail before", hint=str(error), code="TL607")


def _timed_before(
    run: StoredRun, program: Program, reader: EventReader, at: int, specs: Sequence[StateSpec]
) -> list[pa.Table]:
    """The same for a program that slices alone do not give: from the log's beginning, by the serial loop."""
    classes = {cls.__name__: cls for cls in heard(spec_of(program), reader.types)}
    last, until = reader.ts_before(INT64_MAX), run.manifest.until
    end = last if last is None or until is None else max(last, until)
    events = reader.events(0, reader.seq_at(at), classes)
    outcome = serial.run(program, events, before=at, begin=reader.ts_first, until=end)
    return [state_table(s, outcome.states[s.name].items()) for s in specs]
