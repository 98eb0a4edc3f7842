"""What a replay keeps in memory that its budget does not bound (docs/memory.md): for whoever reads its run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from timelapse.analysis.views import LOOKING
from timelapse.engine.job import Job
from timelapse.kernels.native.lowered import loaded_whole
from timelapse.plan import Plan
from timelapse.program.program import ProgramSpec, spec_of
from timelapse.tables.effectlog import NET, OPS

_AHEAD = {"send", "dated"}


def memory_of(plan: Plan, job: Job, compiled: Mapping[str, bool]) -> dict[str, Any]:
    """For the certificate: a task's budget in bytes (None: half of its machine's memory, shared out), whether the user has set it, and
    what it does not bound. `compiled`: which passes ran compiled."""
    is_compiled = compiled.get("final", False)
    away = job.careful and bool(job.passes[-1].logs) and plan.mode != "staged" and not job.given
    found = [
        *_beside(plan, job),
        *_states(plan, job, compiled=is_compiled),
        *_times(job, away=away, compiled=is_compiled),
    ]
    return {"budget": job.memory, "set": job.careful, "unbounded": found}


def _beside(plan: Plan, job: Job) -> Iterator[str]:
    if plan.mode == "staged" and job.slices - job.given > 1:
        deltas = sorted(name for stage in plan.stages for name in stage.work.delta)
        more = f", and what slices do to {', '.join(deltas)} as a whole" if deltas else ""
        yield f"tasks that run side by side have a budget each, merging has one more{more}"


def _states(plan: Plan, job: Job, *, compiled: bool) -> Iterator[str]:
    if plan.final.takes_late or (plan.final.serial is not None and not compiled):
        yield "the serial loop, which keeps all states in memory"
        return
    whole = loaded_whole(job.program, plan.final, compiled=compiled)
    if whole and not (compiled and job.careful):  # such tables lie in files (native/starting.py)
        yield f"states that are loaded whole: {', '.join(whole)}"


def _times(job: Job, *, away: bool, compiled: bool) -> Iterator[str]:
    """`away`: what windows hold lies in files, or goes to one (native/starting.py, tables/shelf.py)."""
    spec: ProgramSpec = spec_of(job.program)
    logs = job.passes[-1].logs
    held = sorted(name for name, forms in logs.items() if any(form != NET for form in forms))
    if held and not away:
        yield f"windows over {', '.join(held)}"
    elif not compiled and (lines := sorted(name for name in logs if _keeps_rows(job, name))):
        yield f"what one key has in windows over {', '.join(lines)}"
    if any(use.what in _AHEAD for use in spec.times):
        yield "what is pending"
    if job.resumable and logs:
        yield "rows of states that are looked back on, which the run keeps"


def _keeps_rows(job: Job, name: str) -> bool:
    """Whether windows over a state have each row of a key as Python: operations and versions (kernels/python/windows.py)."""
    forms = job.passes[-1].logs[name]
    lines = set(LOOKING) - ({"last", "ago"} if NET in forms else {"last"})
    return OPS in forms or any(use.state == name and use.what in lines for use in spec_of(job.program).times)
