"""Replays that were killed, and what of them the next one can use (engine/resume.py does it)."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from timelapse import __version__
from timelapse.engine.job import Job
from timelapse.engine.resume import Cut, Identity, read_identity, take_over, write_identity
from timelapse.model.fingerprint import fingerprint
from timelapse.model.program import Program, spec_of
from timelapse.plan import Plan
from timelapse.run.parameters import params_text
from timelapse.run.source import Source
from timelapse.store.folders import abandoned


@dataclass(frozen=True)
class Interrupted:
    """A replay that was killed: its folder, and how it was cut. `folder` is None where there was none to go on with.

    `what` tells a replay by its program, parameters, log and settings.
    """

    what: dict[str, Any]
    folder: Path | None = None
    how: Cut | None = None

    @classmethod
    def of(cls, program: Program, source: Source, settings: Any, place: Path) -> Interrupted | None:
        """What was left of the same replay into `place`. None where a replay leaves nothing to go on with: of events in memory,
        of several at once, and of programs that reach into other times, whose rows of windows are not kept by slice.
        """
        if source.path is None or settings.several is not None or source.begin or spec_of(program).times:
            return None
        what = {
            "timelapse": __version__, "program": fingerprint(program), "parameters": params_text(program),
            "log": source.id, "events": source.reader.count, "without": list(source.without), "slices": settings.slices,
            "strategy": settings.strategy if settings.strategy is None else str(settings.strategy),
            "quarantine": settings.quarantine, "max_quarantined": settings.max_quarantined, "until": settings.until,
        }  # fmt: skip
        found = [(p, how) for p in abandoned(place) if (how := read_identity(p, what)) is not None]
        if not found:
            return cls(what)
        folder, how = max(found, key=lambda one: len(list((one[0] / "scratch" / "done").glob("*.json"))))
        return cls(what, folder, how)

    def begin(self, job: Job, plan: Plan, lead: int) -> None:
        """Take over what there is, and say for the next one what is being made."""
        how = Cut(plan.mode, job.cuts, lead, job.runs, _stages(plan))
        if self.folder is not None and self.how is not None:
            take_over(
                self.folder, job.scratch, stages=(how.mode, how.stages) == (self.how.mode, self.how.stages)
            )
            shutil.rmtree(self.folder, ignore_errors=True)
        if job.marks:
            write_identity(job.scratch, Identity(self.what, how))


def _stages(plan: Plan) -> tuple[str, ...]:
    return tuple(f"{s.strategy}: {', '.join(s.states)}, {s.parts}" for s in plan.stages)
