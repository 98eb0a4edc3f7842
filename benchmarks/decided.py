"""What the driver would do on so many hosts of one core: its own planning, over a log that is not there.

The log is like one that is: the same types of events in the same proportions, at the same rate, only longer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import timelapse as tl
from timelapse.analysis import analyse
from timelapse.explanation.model import counts_of
from timelapse.kernels.once import passes_once
from timelapse.plan.schedule import Shape
from timelapse.program.program import spec_of
from timelapse.run.conflicts import plan_of
from timelapse.run.planning import in_threads
from timelapse.run.slices import default_slices, spans


@dataclass(frozen=True)
class Decided:
    """How a replay is cut. `inside`: how many slices each task takes."""

    shapes: tuple[Shape, ...]
    shares: tuple[float, ...]
    lead: int = 0
    inside: tuple[int, ...] = (1,)

    @property
    def text(self) -> str:
        if len(self.shares) == 1:
            return "one pass"
        how = "one after the other" if self.lead >= len(self.shares) - 1 else f"{self.lead} lead"
        return f"{sum(self.inside)} slices, {how}"


class Longer:
    """A log's reader as planning sees it, with more events."""

    def __init__(self, reader: Any, events: int) -> None:
        first, last = reader.ts_first, reader.ts_before(reader.seq_after(reader.count))
        self.count = events
        self.ts_first = first
        self._last = (
            None if first is None or last is None else first + (last - first) * events // max(1, reader.count)
        )

    def seq_after(self, events: int) -> int:
        return events

    def ts_before(self, seq: int) -> int | None:
        return self._last


@passes_once()
def decided(program: tl.Program, log: tl.Log, events: int, hosts: int) -> Decided:
    """What `tl.replay` would do on a cluster whose hosts have a core each. How much memory they have is not known, so slices are as large
    as is quickest: what does not fit runs in portions."""
    reader: Any = Longer(log.reader, events)
    counts = {
        name: count * events // max(1, log.reader.count) for name, count in (counts_of(log) or {}).items()
    }
    plan = plan_of(
        program, analyse(program), reader, counts, cores=hosts, threads=1, known={}, machines=hosts
    )
    slices = default_slices(1, hosts, plan)
    if plan.mode != "staged" or slices < 2:
        return Decided(plan.shapes, (1.0,))
    tasks = slices
    if in_threads(plan) and not spec_of(program).times:
        tasks = spans(reader, slices, plan, hosts, 1)
    found = plan.arrange(tasks, apart=True)
    inside = tuple(slices * (n + 1) // tasks - slices * n // tasks for n in range(tasks))
    return Decided(plan.shapes, found.shares, found.lead, inside)
