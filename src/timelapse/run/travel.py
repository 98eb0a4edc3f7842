"""Time travel: the state in the middle of a slice, by running a part of the slice again."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa

from timelapse import serial
from timelapse.analysis import analyse, final_pass
from timelapse.env.machine import cores
from timelapse.errors import ReplayError
from timelapse.ids import INT64_MAX
from timelapse.kernels.choose import SliceKernel
from timelapse.kernels.source import Source
from timelapse.kinds.base import StateSpec
from timelapse.log.reader import EventReader
from timelapse.log.types import heard
from timelapse.model.program import Program, spec_of
from timelapse.tables import merge
from timelapse.tables.apply import empty
from timelapse.tables.table import state_table


def state_before(
    program: Program,
    reader: EventReader,
    starts: Mapping[str, pa.Table],
    lo: int,
    hi: int,
    spec: StateSpec,
    *,
    quarantine: bool = False,
) -> pa.Table:
    """The state table of one state after the events lo <= seq < hi, from the state tables before `lo`.

    Compiled where the replay was.
    """
    work = final_pass(analyse(program))
    kernel = SliceKernel(
        program,
        work,
        starts,
        hi - lo,
        final=True,
        prefetch=cores() > 1,
        quarantine=quarantine,
        asked=spec.name,
    )
    classes = {cls.__name__: cls for cls in spec_of(program).events if cls.__name__ in work.columns}
    result = kernel.run(Source(reader, lo, hi, classes, work.columns), lambda _: None)
    if result.failure is not None:
        raise ReplayError(
            "a handler failed where it did not fail before", hint=str(result.failure), code="TL607"
        )
    return merge.fold(spec, starts.get(spec.name, empty(spec)), [result.effects[spec.name]])


def stepped_state_before(
    program: Program, reader: EventReader, stored: Callable[[StateSpec, int], pa.Table], cuts: Sequence[int],
    at: int, until: int | None, spec: StateSpec,
) -> pa.Table:  # fmt: skip
    """The same for a program with ticks or `after=` handlers, before everything at `at`.

    `stored` gives a state after so many slices.
    """
    first, last = reader.ts_first, reader.ts_before(INT64_MAX)
    if first is None or last is None or at <= first:
        return stored(spec, 0)
    if at > (last if until is None else max(last, until)):
        return stored(spec, len(cuts) - 1)
    seq = reader.seq_at(at)
    slice_id = min(bisect.bisect_right(cuts, seq) - 1, len(cuts) - 2)
    lo = cuts[slice_id]
    starts = {n: stored(s, slice_id) for n, s in spec_of(program).states.items() if slice_id}
    work = final_pass(analyse(program))
    kernel = SliceKernel(program, work, starts, seq - lo, final=True)
    classes = {c.__name__: c for c in heard(spec_of(program), reader.types) if c.__name__ in work.columns}
    since = reader.ts_before(lo) if slice_id else None
    source = Source(reader, lo, seq, classes, work.columns, begin=first, end=at - 1, since=since)
    result = kernel.run(source, lambda _: None)
    if result.failure is not None:
        raise ReplayError(
            "a handler failed where it did not fail before", hint=str(result.failure), code="TL607"
        )
    return merge.fold(spec, starts.get(spec.name, empty(spec)), [result.effects[spec.name]])


def timed_state_before(
    program: Program, reader: EventReader, at: int, until: int | None, spec: StateSpec
) -> pa.Table:
    """The same for a program that reaches into other times, before everything at `at`, from the log's beginning."""
    classes = {cls.__name__: cls for cls in heard(spec_of(program), reader.types)}
    last = reader.ts_before(INT64_MAX)
    end = last if last is None or until is None else max(last, until)
    events = reader.events(0, reader.seq_at(at), classes)
    outcome = serial.run(program, events, before=at, begin=reader.ts_first, until=end)
    return state_table(spec, outcome.states[spec.name].items())
