"""What more machines would bring: the planner's own choices and costs, played through for each number of machines.

For n machines with c cores each the plan is made for n * c cores, and its run is foretold as the planner foretells it
(plan/schedule.py): passes over slices, merges in their order, final passes, what each task costs. Added is what
travels between machines: effects of all slices but the last, of which (n - 1) / n are wanted on another machine.
A run that goes slice after slice, or that shares out its events among threads, stays on one machine whatever
their number.

Beside it stands what ReStream's authors measured of theirs (Schleier-Smith, Krogen, Hellerstein, "ReStream:
Accelerating Backtesting and Stream Replay with Serial-Equivalent Parallel Processing", 2016): throughput grew about
70% with every doubling of the hosts, for programs whose state does not depend on itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from timelapse.errors import UsageError
from timelapse.plan.plan import Plan
from timelapse.plan.schedule import merging
from timelapse.plan.strategy import Strategy

DOUBLING = 1.7
"""ReStream's throughput with twice the hosts."""
NETWORK_BYTES = 1.25e9
"""Bytes per second into a machine: 10 Gbit/s."""
EFFECT_BYTES = 40
"""An effect as it travels: hash, key, presence or sum."""


@dataclass(frozen=True)
class ScaleRow:
    """What is foretold for a number of machines. Seconds of a whole replay, warm; `rate` in events per second."""

    machines: int
    cores: int
    """Of all machines."""
    mode: str
    slices: int
    seconds: float
    rate: float
    speedup: float
    """Relative to the first row."""
    exchange: float
    """Seconds of it that effects travel between machines, at most: as if every write were of another key."""
    serial: float
    """Seconds of it that do not shrink with more machines: what goes slice after slice, and merges."""
    restream: float
    """The speedup over the first row that ReStream's measured growth would give."""


def scale(
    make: Callable[[int, int], Plan], events: int, writes: float, machines: Sequence[int], cores: int,
    forced: int | None = None,
) -> list[ScaleRow]:  # fmt: skip
    """Foretell a replay of so many events on each number of machines with `cores` cores each.

    `make` gives the plan for so many cores on so many machines; `writes` is how many effects an event has in passes over slices;
    `forced` how many slices there are, where that is not the planner's choice.
    Raises UsageError for numbers that are no numbers of machines.
    """
    if not machines or any(n < 1 for n in machines):
        raise UsageError("--scale takes numbers of machines", hint="--scale 1,2,4,8,16", code="TL810")
    rows: list[ScaleRow] = []
    for n in machines:
        plan = make(n * cores, n)
        whole = plan.law.serial_seconds
        staged = plan.mode == "staged"
        slices = (forced or plan.slices()) if staged else 1
        exchange = 0.0
        if staged and n > 1:
            share = (slices - 1) / slices * (n - 1) / n
            exchange = events * writes * EFFECT_BYTES * share / (n * NETWORK_BYTES)
        seconds = plan.ratio(slices=slices) * whole + exchange
        chained = sum(s.cost for s in plan.stages if s.strategy is Strategy.CHAIN) * (slices - 1) / slices
        # Each state's merges are one after the other.
        merges = (
            plan.law.merge_seconds * (slices - 1) / 2 / max(1, len(plan.spec.states)) / merging(n * cores)
        )
        serial = chained * whole + merges if staged else seconds
        first = rows[0] if rows else None
        rows.append(
            ScaleRow(
                n, n * cores, plan.mode, slices, seconds, events / seconds if seconds else math.inf,
                1.0 if first is None else first.seconds / seconds, exchange, serial,
                1.0 if first is None else DOUBLING ** math.log2(n / first.machines),
            )
        )  # fmt: skip
    return rows


def scale_lines(rows: Sequence[ScaleRow], cores: int) -> list[str]:
    """The rows as an aligned table, with what it assumes."""
    head = ("machines", "cores", "mode", "slices", "seconds", "M events/s", "speedup", "exchange s", "not shrinking s", "as ReStream")  # fmt: skip
    cells = [head]
    for r in rows:
        cells.append((
            f"{r.machines}", f"{r.cores}", r.mode, f"{r.slices}", f"{r.seconds:.2f}", f"{r.rate / 1e6:.2f}", f"{r.speedup:.2f}",
            f"{r.exchange:.2f}", f"{r.serial:.2f}", f"{r.restream:.2f}",
        ))  # fmt: skip
    widths = [max(len(row[i]) for row in cells) for i in range(len(head))]
    lines = ["  ".join(cell.rjust(w) for cell, w in zip(row, widths, strict=True)) for row in cells]
    lines.append(
        f"a model: {cores} core{'s' if cores != 1 else ''} and 10 Gbit/s per machine, the planner's costs, warm; every write counted as "
        "another key. `timelapse bench scale` holds it against runs on this machine; it has not been checked on a cluster"
    )
    return lines
