"""The kernel of programs that reach into other times: the serial loop, slice after slice.

It begins with the log's first event, and keeps what lies ahead and what was from one slice to the next.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

import pyarrow as pa

from timelapse.errors import HandlerError
from timelapse.kernels.base import REJECTED_SCHEMA, Abandoned, PassResult, Tick, output_schema, table_of
from timelapse.kernels.former import Guard
from timelapse.kernels.source import Source
from timelapse.kinds.base import ABSENT, State
from timelapse.model.events import Event, Record
from timelapse.program.failure import quarantined_row
from timelapse.program.program import Program, ProgramSpec, spec_of
from timelapse.serial import Loop, Output, Refusal, SerialOutcome
from timelapse.tables.apply import changes_table

_TICK = 8192
"""Events between two reports of progress."""


class TimedKernel:
    """Runs a whole program over slices, one after the other from the first.

    `open`: what is done to states is not asked for. With `quarantine` an event that fails in its own step is taken out, at most so many of a slice; what fails later fails
    the pass.
    """

    compiled = False
    why_python = ""
    workers = accompanied = False
    state_bytes = 0
    """States stay in memory: what looks back and ahead goes with them."""

    def __init__(self, program: Program, quarantine: int | None = None, *, open: bool = False) -> None:  # noqa: A002
        self._quarantine = quarantine
        self._spec = spec_of(program)
        self._loop = Loop(program)
        self.seconds: dict[str, float] = {}
        self.guard = Guard()
        self._open = open

    text_bytes = 0

    def live(self, name: str) -> State:
        """A state as handlers use it, as it stands."""
        found: State = self._loop.states[name]
        return found

    def held(self, name: str) -> Iterator[tuple[Any, Any]]:
        """The keys of a state, with what is stored under them, as it stands."""
        return iter(self._loop.outcome.states[name].items())

    def settle(self) -> None:
        """Nothing is kept of what states held before."""

    def former(self, name: str) -> None:
        """The loop does not keep what states held: who reads waits until they are settled."""

    def changes(self, later: int = 0) -> PassResult:
        """Always raises Abandoned: what lies ahead is kept in the loop, so nothing can go on from states alone."""
        raise Abandoned("the serial loop cannot go on from states")

    def carried(self) -> None:
        """Windows go with the loop."""
        return

    def close(self) -> None:
        """Let go of the loop, with its states."""
        vars(self).pop("_loop", None)

    def run(self, source: Source, tick: Tick) -> PassResult:
        """Process one slice, up to its end in time. After a failure the kernel is of no use."""
        loop, outcome = self._loop, self._loop.outcome
        before = None if self._open else {name: dict(data) for name, data in outcome.states.items()}
        outcome.outputs, outcome.refused, outcome.events = [], [], 0
        result = PassResult()
        try:
            if source.begin is not None:
                loop.begin(source.begin)
            events = source.events()
            while part := list(islice(events, _TICK)):
                for event in part:
                    try:
                        loop.step(event)
                    except HandlerError as failure:
                        self._take_out(failure, event, source, result)
                tick(len(part))
            if source.end is not None:
                loop.advance(source.end)
        except HandlerError as error:
            result.failure = error
            return result
        outcome.pending = loop.count_pending()
        result_of(self._spec, outcome, before, result)
        return result

    def _take_out(self, failure: HandlerError, event: Event, source: Source, result: PassResult) -> None:
        """Raises the failure where the event stays in the log."""
        first = event.ts == source.begin and any(h.every is not None for h in self._spec.handlers)
        if failure.seq != event.seq or self._quarantine is None or not failure.reproducible or first:
            raise failure
        if len(result.quarantined) >= self._quarantine:
            failure.taken = tuple(result.quarantined)
            raise failure
        result.quarantined.append(quarantined_row(failure))
        self._loop.outcome.events -= 1


def result_of(
    spec: ProgramSpec, outcome: SerialOutcome, before: Mapping[str, dict[Any, Any]] | None, result: PassResult
) -> None:
    """Have in the result what the loop gave. `before`: what states held when the slice began; None: what it did to them is not asked for."""
    result.events = outcome.events
    for name, data in outcome.states.items() if before is not None else ():
        old = {} if before is None else before.get(name, {})
        written = {
            key: old.get(key, ABSENT) for key in {**old, **data}
            if old.get(key, ABSENT) is not data.get(key, ABSENT)
        }  # fmt: skip
        table, change = changes_table(spec.declared[name], written, data, ABSENT)
        result.effects[name], result.changes[name] = table, change
    result.outputs = output_tables(outcome.outputs)
    result.rejected = rejected_table(outcome.refused)
    result.pending = outcome.pending


def output_tables(outputs: list[Output]) -> dict[type[Record], pa.Table]:
    """Outputs by record type, in the stored columns."""
    rows: dict[type[Record], list[tuple[Any, ...]]] = {}
    for output in outputs:
        rows.setdefault(type(output.record), []).append((*output.position, *output.record._values()))
    return {cls: table_of(output_schema(cls), found) for cls, found in rows.items()}


def rejected_table(refused: list[Refusal]) -> pa.Table:
    """Rejected events, in the stored columns."""
    return table_of(REJECTED_SCHEMA, [(*r.position[:3], r.event, r.handler, r.reason) for r in refused])
