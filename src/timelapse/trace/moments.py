"""Moments of a run: the states between two events, by running a part of a slice again."""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

import pyarrow as pa

from timelapse.analysis import analyse, final_pass
from timelapse.errors import HandlerError, ReplayError
from timelapse.kernels.source import Source
from timelapse.kernels.walk import Visit, Walk
from timelapse.model.program import spec_of
from timelapse.model.times import refuse_times
from timelapse.run.run import Run


class Past:
    """A run's slices, to be gone through again. Start states are read once."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.program = run.need_program()
        refuse_times(self.program, "tracing events")
        self.reader = run.need_reader()
        self.spec = spec_of(self.program)
        self.cuts = run.manifest.cuts
        self.quarantine = run.manifest.quarantined is not None
        self._work = final_pass(analyse(self.program))
        self._refused: frozenset[int] | None = None
        self._starts: dict[int, dict[str, pa.Table]] = {}

    def slice_of(self, seq: int) -> int:
        """The slice that an event lies in; the last one for what lies behind the log."""
        return max(0, min(bisect.bisect_right(self.cuts, seq) - 1, len(self.cuts) - 2))

    @property
    def columns(self) -> Mapping[str, tuple[str, ...]]:
        """The fields that the program reads, by event type."""
        return self._work.columns

    def refused(self) -> frozenset[int]:
        """The events that had no effect: rejected, or taken out of the log."""
        if self._refused is None:
            tables = [self.run.stored_rejected(), self.run.stored_quarantined()]
            self._refused = frozenset(seq for t in tables for seq in t.column("seq").to_pylist())
        return self._refused

    def changed(self, state: str, key: Any, slice_id: int) -> bool:
        """Whether a slice left a key otherwise than it was before."""
        return self.run.changed(state, key, slice_id)

    def by_slice(self, seqs: Iterable[int]) -> Iterator[tuple[int, list[int]]]:
        """Ascending seqs, by slice."""
        for slice_id, found in groupby(seqs, self.slice_of):
            yield slice_id, list(found)

    def starts(self, slice_id: int) -> dict[str, pa.Table]:
        """All states at a slice's start."""
        if slice_id not in self._starts:
            self._starts.clear()  # one slice's states may be large
            self._starts[slice_id] = {
                name: self.run.table_at_cut(name, slice_id) for name in self.spec.states if slice_id
            }
        return self._starts[slice_id]

    def walk(self, slice_id: int, stops: Sequence[int], visit: Visit) -> None:
        """Go through a slice up to the last of the stops (ascending; each is the seq of the event after it)."""
        lo = self.cuts[slice_id]
        hi = max(lo, stops[-1] + 1) if stops else lo
        columns = self._work.columns
        classes: dict[str, Any] = {e.__name__: e for e in self.spec.events if e.__name__ in columns}
        source = Source(self.reader, lo, hi, classes, columns)
        walk = Walk(
            self.program,
            self._work,
            self.starts(slice_id),
            source,
            events=hi - lo,
            quarantine=self.quarantine,
        )
        try:
            walk.run(stops, visit)
        except HandlerError as error:
            raise ReplayError(
                "a handler failed where it did not fail before", hint=str(error), code="TL607"
            ) from error  # fmt: skip
