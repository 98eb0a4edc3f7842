"""What runs how: which passes will be compiled, on which executor, and what did run compiled in the end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import PurePath
from typing import Any

from timelapse.analysis.result import PassProgram
from timelapse.engine.driver import repair_name
from timelapse.engine.job import Job
from timelapse.env.machine import cores as usable
from timelapse.kernels.choose import (
    Choice,
    cold_events,
    foresee,
    share_of,
    switch_now,
    uncompiled,
)
from timelapse.kernels.tuning import USUAL, KernelTuning
from timelapse.plan.cost import IsCompiled
from timelapse.plan.plan import Plan
from timelapse.plan.strategy import Strategy
from timelapse.program.program import Program


def compiled_facts(
    program: Program,
    events: int,
    slices: int | None,
    cores: int,
    *,
    sliced: bool = False,
    tuning: KernelTuning = USUAL,
) -> IsCompiled | None:
    """Tells of a pass whether it will run compiled; None where none will. `sliced`: the final pass in time slices, of
    which a process sees as few events as of the others; else in one pass."""
    if switch_now() == "auto" and events < tuning.warm_events:
        return None
    each = share_of(events, slices or cores, cores)

    def compiled(work: PassProgram, final: bool) -> bool:
        return foresee(
            program, work, each if sliced or not final else events, final=final, tuning=tuning
        ).compiled

    return compiled


def fewer_tasks(program: Program, events: int, cores: int, tuning: KernelTuning) -> list[int]:
    """With how many tasks at a time passes over slices may run compiled that would be Python with one for each core: these have too few
    events each to wait for the compiler, or to load what it made."""
    if switch_now() != "auto":
        return []
    found = {events // tuning.warm_events, events // cold_events(program, tuning)}
    return sorted((n for n in found if 1 < n < cores), reverse=True)


@contextmanager
def compiling(program: Program, plan: Plan, job: Job, cores: int) -> Iterator[None]:
    """Compile what the job's passes lack at the same time, each in a process of its own: the compiler does one
    thing at a time. A task that needs a pass that is being made waits for it.

    Passes that run as Python because nobody should wait for the compiler are compiled too, after the others and for
    the next run: the compiler may go on when this one is done.
    """
    each = share_of(job.reader.count, job.slices if plan.mode == "staged" else 1, cores)
    works = [(job.passes[-1], each, True)]
    if plan.mode == "staged" and len(job.spans) > 1:  # a single task has no pass ahead
        stages = zip(plan.stages, job.passes, strict=False)
        works += [(work, each, False) for s, work in stages if s.strategy is not Strategy.ITERATE]
    if job.reader.count < job.tuning.warm_events:
        yield
        return
    now, later = uncompiled(program, works, job.tuning)
    if now and job.tuning.times > 1:  # workers do not know that, and load what is there
        from timelapse.kernels.native.parallel import compile_all

        compile_all(now, max(cores, 1))
        now = []
    if not now and not later:
        yield
        return
    from timelapse.kernels.native.parallel import Compiling, compile_later

    # A single one is made where it is needed; beside it what all passes call, where no pass was ever compiled.
    with Compiling(now if len(now) > 1 else [], max(cores, 1), usual=bool(now) and usable() > 1):
        compile_later(later)
        yield


def foreseen(program: Program, plan: Plan, job: Job, cores: int) -> dict[str, str]:
    """For each pass "compiled", or "Python" and why, as it looks before the run."""
    if job.reader.count < job.tuning.warm_events and switch_now() == "auto":
        why = f"Python: {job.tuning.too_few}"
        return {**{stage.name: why for stage in plan.stages}, "final": why, **_guessed(plan)}
    guessed = [stage.name for stage in plan.stages if stage.strategy is Strategy.ITERATE]
    stages = list(zip(plan.stages, job.passes, strict=False)) if plan.mode == "staged" else []
    works = [(s.name, work, False) for s, work in stages if s.name not in guessed]
    works += [("final", job.passes[-1], True)]
    events = share_of(job.reader.count, job.slices if plan.mode == "staged" else 1, cores)
    found = _guessed(plan)
    for name, work, final in works:
        why_not = foresee(program, work, events, final=final, tuning=job.tuning)
        found[name] = "compiled" if why_not.compiled else f"Python: {why_text(work, why_not)}"
    return found


def _guessed(plan: Plan) -> dict[str, str]:
    """How stages run whose slices are guessed and repaired."""
    names = [stage.name for stage in plan.stages if stage.strategy is Strategy.ITERATE]
    why = "Python: what its events read and write is recorded"
    return {name: why for stage in names for name in (stage, repair_name(stage))}


def used_kernels(
    before: Mapping[str, str], ran: Mapping[str, bool], tried: Mapping[str, str]
) -> dict[str, str]:
    """For each pass that ran "compiled", or "Python" and why: what was foretold, or what `tried` says."""
    found = {}
    for name, compiled in ran.items():
        why = f"Python: {tried.get(name) or 'an event needed it'}"
        expected = before.get(name, "")
        found[name] = "compiled" if compiled else why if name in tried or expected == "compiled" else expected
    return found


def why_text(work: PassProgram, why: Choice) -> str:
    """The reason with its place."""
    file = next((file_of(h.function) for h in work.handlers), "")
    return f"{why.reason} ({file}:{why.line})" if why.line else why.reason


def file_of(function: Any) -> str:
    """The name of the file that a function is written in."""
    return PurePath(function.__code__.co_filename).name
