"""One pass run by both kernels that run handlers as Python: as they are written, and rewritten."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest

import timelapse as tl
from tests.native.fuzz.compare import passes
from tests.native.oracle import assert_equal
from timelapse.analysis import PassProgram
from timelapse.kernels.base import PassResult
from timelapse.kernels.choose import SWITCH, SliceKernel
from timelapse.kernels.python.flat.kernel import FlatKernel
from timelapse.kernels.source import Source
from timelapse.log import MemoryLog
from timelapse.model.events import Event
from timelapse.program.program import spec_of
from timelapse.tables.apply import empty
from timelapse.tables.merge import fold


def run(
    program: tl.Program, work: PassProgram, final: bool, events: Sequence[Event], cuts: Sequence[int], switch: str,
    *, quarantine: bool = False, mapped: bool = False,
) -> tuple[list[PassResult], list[int]]:  # fmt: skip
    """The results of consecutive slices. `mapped`: a new kernel for each, which looks keys up in the state before."""
    types = spec_of(program).events
    log = MemoryLog(events, list(types))
    classes = {c.__name__: c for c in types if c.__name__ in work.columns}
    results: list[PassResult] = []
    ticks: list[int] = []
    specs = spec_of(program).states
    starts = {name: empty(spec) for name, spec in specs.items()} if mapped else {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(SWITCH, switch)
        memory = 0 if mapped else None
        kernel = SliceKernel(
            program, work, starts, 0, final=final, quarantine=10**9 if quarantine else None, memory=memory
        )
        for lo, hi in pairwise(cuts):
            assert isinstance(kernel.parts[0], FlatKernel) is (switch == "python")
            told: list[int] = []
            results.append(kernel.run(Source(log, lo, hi, classes, work.columns), told.append))
            ticks.append(sum(told))
            if results[-1].failure is not None:
                break
            if mapped:
                starts = {n: fold(s, starts[n], [results[-1].effects[n]]) for n, s in specs.items()}
                kernel = SliceKernel(
                    program, work, starts, 0, final=final, quarantine=10**9 if quarantine else None, memory=0
                )
    return results, ticks


def agree(
    program: tl.Program, events: Sequence[Event], cuts: Sequence[int], *, quarantine: bool = False
) -> list[PassResult]:
    """Compare every pass of a program. Returns what the final one gives."""
    for work, final in passes(type(program)):
        for mapped in (False, True) if final else (False,):
            expected, ticks = run(
                program, work, final, events, cuts, "interpreted", quarantine=quarantine, mapped=mapped
            )
            found, told = run(
                program, work, final, events, cuts, "python", quarantine=quarantine, mapped=mapped
            )
            assert len(found) == len(expected)
            for a, b in zip(found, expected, strict=True):
                assert_equal(a, b)
                assert a.quarantined == b.quarantined
                if b.failure is not None:
                    assert a.failure is not None
                    assert a.failure.place == b.failure.place
                    assert a.failure.cause == b.failure.cause
            assert told == ticks or expected[-1].failure is not None
    return found
