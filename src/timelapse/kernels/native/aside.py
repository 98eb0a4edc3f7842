"""A compiled pass that uses no state: parts of a slice side by side, each in a thread of its own.

What such a pass does with an event depends on nothing before it, so the parts' results in log order are the slice's.
An output part that runs on kept reads (cache/reads.py) is of this kind, and so is a program without states.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from timelapse.analysis.result import PassProgram
from timelapse.kernels.base import PassResult, Tick
from timelapse.kernels.native.kernel import NativeKernel
from timelapse.kernels.native.lowering.unit import Unit
from timelapse.kernels.source import Source
from timelapse.kernels.tuning import NATIVE, NativeTuning
from timelapse.program.program import Program
from timelapse.tables.sharing import at_once


def uses_no_state(work: PassProgram, unit: Unit) -> bool:
    """Whether a final pass knows and finds no state, and is called at its events' times only."""
    known = work.exact or work.targets or work.delta
    return not (known or unit.states or unit.steps or unit.shared)


class AsideKernel:
    """Runs one compiled pass without states in so many threads."""

    def __init__(
        self,
        program: Program,
        work: PassProgram,
        unit: Unit,
        *,
        workers: int,
        events: int,
        quarantine: int | None,
        tuning: NativeTuning = NATIVE,
    ) -> None:
        self._make: Callable[[], NativeKernel] = partial(
            NativeKernel,
            program,
            work,
            unit,
            {},
            final=True,
            events=events // workers,
            quarantine=quarantine,
            tuning=tuning,
        )
        self._workers = workers

    def run(self, source: Source, tick: Tick) -> PassResult:
        """Process one slice. Raises TooOften where a plain loop is faster; then nothing of it is done."""
        span = source.hi - source.lo
        ends = [source.lo + span * n // self._workers for n in range(self._workers + 1)]
        parts = [replace(source, lo=a, hi=b) for a, b in itertools.pairwise(ends)]
        done = [0] * len(parts)
        told = 0

        def tell(more: int) -> None:
            # Only the first part's thread calls `tick`, which need not be safe for several.
            nonlocal told
            done[0] += more
            now = sum(done)
            tick(now - told)
            told = now

        def count(number: int, more: int) -> None:
            done[number] += more

        def run(number: int, part: Source) -> PassResult:
            told_by = tell if number == 0 else partial(count, number)
            return self._make().run(part.chunks(), told_by, part.event)

        try:
            calls = [(part.hi - part.lo, partial(run, number, part)) for number, part in enumerate(parts)]
            results = at_once(calls, self._workers)
        except BaseException:
            tick(-told)
            raise
        tick(sum(done) - told)
        return _joined(results)


def _joined(results: list[PassResult]) -> PassResult:
    """The parts' results as one. What fails first in log order is the failure."""
    whole, *others = results
    for result in others:
        if whole.failure is not None:
            break
        if result.failure is not None:
            return result
        whole.events += result.events
        whole.join(result.outputs, result.rejected)
        whole.quarantined += result.quarantined
        for phase, seconds in result.seconds.items():
            whole.seconds[phase] = whole.seconds.get(phase, 0.0) + seconds
    return whole
