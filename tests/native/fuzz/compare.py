"""One random program, run every way there is, and everything that comes out compared to the last bit."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import pytest

import timelapse as tl
from tests.native.fuzz.emulate import emulated
from tests.native.fuzz.logs import random_log
from tests.native.fuzz.writer import random_handlers
from tests.native.oracle import assert_equal
from tests.writers.sources import load_source
from timelapse.analysis import PassProgram, analyse, build_pass, final_pass
from timelapse.errors import AnalysisError, HandlerError
from timelapse.kernels.base import PassResult
from timelapse.kernels.choose import SWITCH, SliceKernel, choice
from timelapse.kernels.native import build
from timelapse.kernels.source import Source
from timelapse.log import MemoryLog
from timelapse.model.events import Event
from timelapse.program.program import spec_of
from timelapse.testing import check_replay


@dataclass
class Tally:
    """What was compared: without it nobody sees that nothing compiles any more."""

    programs: int = 0
    passes: int = 0
    compiled: int = 0
    slices: int = 0
    failures: int = 0
    stayed: int = 0
    runs: int = 0
    reasons: Counter[str] = field(default_factory=Counter)

    @property
    def text(self) -> str:
        shown = "\n".join(f"{n:6} {reason}" for reason, n in self.reasons.most_common(40))
        return (
            f"{self.programs} programs, {self.compiled} of {self.passes} passes compile; "
            f"{self.runs} runs of {self.slices} slices, {self.failures} ended by an exception, "
            f"{self.stayed} stayed compiled\n{shown}"
        )


def check(seed: int, patch: pytest.MonkeyPatch, tally: Tally, *, emulate: bool, size: int = 4) -> None:
    """Compare one program. `emulate`: without compiling it. Raises AssertionError with the source's seed."""
    program = load_source(random_handlers(seed, size))
    tally.programs += 1
    rng = random.Random(seed)
    if emulate:
        patch.setattr(build, "_get", lambda text, *, compile_it: emulated(text))
    for work, final in passes(program):
        tally.passes += 1
        found = choice(program(), work, final=final)
        if not found.compiled:
            tally.reasons[found.reason.split(": ", 1)[-1]] += 1
            continue
        tally.compiled += 1
        for edges in (0.0, 0.03, 0.3, 0.7):
            count = rng.choice((0, 12, 25, 40, 40, 40))
            events = random_log(program, rng.randrange(10**9), count, edges)
            cuts = sorted([0, count, *(rng.randint(0, count) for _ in range(rng.randrange(3)))])
            try:
                _compare(program, work, final, events, cuts, patch, tally)
            except Exception as error:
                kind = "final" if final else f"{work.targets} (delta {work.delta})"
                raise AssertionError(f"seed {seed}, pass {kind}, edges {edges}: {error!r}") from error


def passes(program: type[tl.Program]) -> Iterator[tuple[PassProgram, bool]]:
    """Passes as a planner could make them: exact and delta, and some that it would not, and the final one."""
    found = analyse(program)
    for component in found.components:
        delta = [
            s for s in component if found.facts[s].composes is None and s not in found.facts[s].depends_on
        ]
        for name, states in (("exact", ()), ("delta", delta)):
            try:
                yield build_pass(found, name, component, states), False
            except AnalysisError:
                assert name == "delta"  # it would read a state whose start it does not know
    yield final_pass(found), True


def _compare(
    program: type[tl.Program], work: PassProgram, final: bool, events: Sequence[Event], cuts: Sequence[int],
    patch: pytest.MonkeyPatch, tally: Tally,
) -> None:  # fmt: skip
    python, _, ticks = _run(program, work, final, events, cuts, "interpreted", patch)
    native, kernel, told = _run(program, work, final, events, cuts, "native", patch)
    assert len(native) == len(python)
    for a, b in zip(native, python, strict=True):
        assert_equal(a, b)
    failed = python[-1].failure is not None
    assert failed or told == ticks
    tally.runs += 1
    tally.slices += len(python)
    tally.failures += failed
    tally.stayed += kernel.compiled


def _run(
    program: type[tl.Program], work: PassProgram, final: bool, events: Sequence[Event], cuts: Sequence[int],
    switch: str, patch: pytest.MonkeyPatch,
) -> tuple[list[PassResult], SliceKernel, list[int]]:  # fmt: skip
    types = spec_of(program).events
    log = MemoryLog(events, list(types))
    classes = {c.__name__: c for c in types if c.__name__ in work.columns}
    patch.setenv(SWITCH, switch)
    kernel = SliceKernel(program(), work, {}, 0, final=final)
    results, ticks = [], []
    for lo, hi in pairwise(cuts):
        told: list[int] = []
        results.append(kernel.run(Source(log, lo, hi, classes, work.columns), told.append))
        ticks.append(sum(told))
        if results[-1].failure is not None:
            break
    return results, kernel, ticks


def replayed(seed: int, patch: pytest.MonkeyPatch, size: int = 3) -> bool:
    """Replays of one program in all slicings, by both kernels, against the serial meaning. Whether it raised."""
    program = load_source(random_handlers(seed, size))
    rng = random.Random(seed)
    raised = []
    for edges in (0.0, 0.1):
        events = random_log(program, rng.randrange(10**9), rng.choice((5, 9)), edges)
        slices = (2, 7) if edges else (1, 3)
        for switch in ("native", "python"):
            patch.setenv(SWITCH, switch)
            try:
                check_replay(program, events, slices=slices)
            except HandlerError as error:
                raised.append(str(error))
            except Exception as error:
                raise AssertionError(f"seed {seed}, {switch}, edges {edges}: {error!r}") from error
            else:
                raised.append("")
    assert raised[::2] == raised[1::2]
    return any(raised)
