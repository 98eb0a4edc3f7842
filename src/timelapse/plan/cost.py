"""What a pass costs, relative to the final pass, and what that means for time slices.

The work of a pass is estimated from its code: bytecode instructions of the handlers it keeps (with the helpers that
they call), plus what making an event costs, per event type and weighted with the types' counts where a log is known.
Only ratios are used.
"""

from __future__ import annotations

import dis
import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from timelapse.analysis.result import PassProgram

EVENT_WORK = 30.0
"""Cost of an event in a pass at all, in instructions."""
COLUMN_WORK = 6.0
"""Cost of one of its columns."""
SECONDS_PER_INSTRUCTION = 4.8e-8
"""Measured over 400,000 anti-spam events, handlers as plain Python: 4.5e-8 to 5.2e-8 for each of the three passes."""
TASK_SECONDS = 0.03
"""What each task costs beside its work: scheduling, files, the merge."""
MERGE_SHARE = 0.05
"""Applying all effects to the states, relative to the final pass."""
TYPICAL_EVENTS = 1_000_000
"""Size of a log that is not known."""


def work_of(work: PassProgram, counts: Mapping[str, int] | None) -> float:
    """Instructions that a pass executes over the log; over one event of each type without counts."""
    by_type: dict[str, float] = {}
    for handler in work.handlers:
        cost = function_work(handler.function, work.members)
        for event in handler.events:
            name = event.__name__
            start = EVENT_WORK + COLUMN_WORK * len(work.columns.get(name, ()))
            by_type[name] = by_type.get(name, start) + cost
    return sum(cost * (1 if counts is None else counts.get(name, 0)) for name, cost in by_type.items())


def function_work(function: Any, members: Mapping[str, Any], depth: int = 4) -> float:
    """Instructions in a function and in the helpers that it names."""
    code = getattr(_plain(function), "__code__", None)
    if code is None:
        return 0.0
    total = float(_size(code))
    if depth:
        scope = getattr(_plain(function), "__globals__", {})
        for name in code.co_names:
            helper = members.get(name, scope.get(name))
            if isinstance(_plain(helper), types.FunctionType) and not isinstance(helper, type):
                total += function_work(helper, members, depth - 1)
    return total


def _plain(value: Any) -> Any:
    value = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
    return getattr(value, "__wrapped__", value)


def _size(code: types.CodeType) -> int:
    return sum(1 for _ in dis.get_instructions(code)) + sum(
        _size(c) for c in code.co_consts if isinstance(c, types.CodeType)
    )


@dataclass(frozen=True)
class Law:
    """The cost law: time relative to the serial loop, as a function of cores (design.md, section 3)."""

    scan: tuple[float, ...]
    """Relative cost of each pass that runs over all slices at once."""
    chain: tuple[float, ...]
    """Relative cost of each pass that runs slice after slice."""
    serial_seconds: float
    """What the final pass alone would take, one slice after the other."""

    @property
    def total(self) -> float:
        """R: all passes together, relative to the final one."""
        return sum(self.scan) + sum(self.chain)

    def staged(self, cores: int, slices: int | None = None) -> float:
        """T/T1 of the staged plan, with `slices` slices (default: one per core)."""
        s = slices or cores
        rounds = -(-s // cores)
        ahead = -(-(s - 1) // cores) / s if s > 1 else 0.0
        time = rounds / s + sum(self.scan) * ahead + sum(self.chain) * (s - 1) / s
        tasks = rounds + len(self.scan) * rounds + len(self.chain)
        return time + tasks * self._task()

    def one_by_one(self, slices: int = 1) -> float:
        """T/T1 of the whole program, slice after slice."""
        return 1.0 + slices * self._task() * 0.1

    def _task(self) -> float:
        return TASK_SECONDS / self.serial_seconds if self.serial_seconds > 0 else 0.0

    def ideal(self, cores: int) -> float:
        """The law without constants: 1/C + (C-1)/C^2 * R_scan + (C-1)/C * R_chain."""
        share = (cores - 1) / cores
        return 1 / cores + share / cores * sum(self.scan) + share * sum(self.chain)


def law_of(
    passes: Sequence[tuple[bool, PassProgram]], final: PassProgram, counts: Mapping[str, int] | None
) -> tuple[Law, list[float]]:
    """The law for passes (is it a chain?, its work), and each one's relative cost."""
    whole = work_of(final, counts) or 1.0
    costs = [work_of(work, counts) / whole for _, work in passes]
    if counts is None:
        types_ = max(1, len({e for h in final.handlers for e in h.events}))
        seconds = whole / types_ * TYPICAL_EVENTS * SECONDS_PER_INSTRUCTION
    else:
        seconds = whole * SECONDS_PER_INSTRUCTION
    scan = tuple(c for c, (slow, _) in zip(costs, passes, strict=True) if not slow)
    chain = tuple(c for c, (slow, _) in zip(costs, passes, strict=True) if slow)
    return Law(scan, chain, seconds), costs
