"""Replays that were killed, and what of them the next one can use (engine/resume.py does it)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from timelapse import __version__
from timelapse.engine.job import Job
from timelapse.engine.publish import put_finished, working_place
from timelapse.engine.resume import Begun, Cut, Identity, marks_in, read_identity, same, tidy, write_identity
from timelapse.errors import Place, TimelapseError, UsageError
from timelapse.plan import Plan
from timelapse.program.fingerprint import fingerprint
from timelapse.program.program import Program, spec_of
from timelapse.results.manifest import NAME, read_manifest
from timelapse.results.parameters import params_text
from timelapse.run.earlier import Earlier
from timelapse.run.request import Resume, Settings
from timelapse.run.source import Source
from timelapse.store.disk import DISK, Disk
from timelapse.store.folders import abandoned, elsewhere
from timelapse.store.parts import check_parts
from timelapse.store.remote import RemotePath

_SAID = {
    "timelapse": "it was made by another version of Timelapse", "program": "it was of another program, or of another version of it",
    "parameters": "it was with other parameters", "log": "it was over another log, or another version of it",
    "events": "it was over another log, or another version of it", "without": "it left other events out",
    "slices": "it was with another --slices", "strategy": "it was with another --strategy",
    "quarantine": "it was with another --quarantine", "max_quarantined": "it was with another --max-quarantined",
    "until": "it was with another --until", "resumable": "it was with another --resumable",
    "start_from": "it started from another run, or from none",
}  # fmt: skip
_NOT_KEPT = (
    "its program looks back on states, or writes into the future, and runs as one pass in log order: what the next slice needs of "
    "those before is not on disk (--resumable keeps it)"
)
_SERIAL = "its program runs as the serial loop, which begins with the log"


@dataclass(frozen=True)
class Interrupted:
    """A replay that was killed: its folder, and how it was cut. `folder` is None where there was none to go on with.

    `finished`: the folder has a whole run, which was not put into its place in an object store.
    `what` tells a replay by its program, parameters, log and settings. `why`: why the next one cannot go on with what was there.
    """

    what: dict[str, Any]
    folder: Path | None = None
    how: Cut | None = None
    why: str = ""
    finished: bool = False
    disk: Disk = field(default=DISK, compare=False)

    @classmethod
    def of(
        cls, program: Program, source: Source, settings: Settings, place: Path, disk: Disk = DISK,
        start_from: Earlier | None = None,
    ) -> Interrupted:  # fmt: skip
        """What was left of the same replay into `place`, which starts from the same run where one was named."""
        what = same({
            "timelapse": __version__, "parameters": params_text(program), "program": fingerprint(program),
            "log": source.id, "events": source.reader.count, "without": list(source.without), "slices": settings.slices,
            "strategy": settings.strategy if settings.strategy is None else str(settings.strategy),
            "quarantine": settings.quarantine, "max_quarantined": settings.max_quarantined, "until": settings.until,
            "resumable": settings.resumable,
            "start_from": None if start_from is None or start_from.reason else [start_from.manifest.seal, start_from.cuts],
        })  # fmt: skip
        where = working_place(place)
        there = abandoned(where, disk) + (elsewhere(where, disk) if settings.resume is True else [])
        told = [(path, found) for path in there if (found := read_identity(path, disk)) is not None]
        good = [(path, found.how) for path, found in told if found.what == what and not found.why]
        if good:
            folder, how = max(good, key=lambda one: marks_in(one[0], disk))
            whole = isinstance(place, RemotePath) and (folder / NAME).is_file()
            return cls(what, folder, how, finished=whole, disk=disk)
        return cls(what, why=_why(what, [found for _, found in told]), disk=disk)

    def put(self, place: RemotePath, *, overwrite: bool) -> RemotePath | None:
        """Put what is `finished` into its place, once all its files are seen to be what was written; else None.

        Raises as PartialRun does: then it stays.
        """
        assert self.folder is not None
        try:
            files = read_manifest(self.folder).files
        except TimelapseError:
            return None
        if files is None or not check_parts(self.folder, files, "").ok:
            return None
        return put_finished(self.folder, place, files, overwrite=overwrite)

    def without(self, why: str) -> Interrupted:
        """The same where nothing of it is of use."""
        return replace(self, folder=None, how=None, finished=False, why=why)

    def begin(self, job: Job, plan: Plan, lead: int, begun: Begun | None) -> None:
        """Make ready what there is, and say for the next one what is being made. `begun`: the run that this one found to go on from."""
        how = Cut(plan.mode, job.cuts, lead, job.runs, _stages(plan), begun)
        if self.how is not None:
            same_stages = (how.mode, how.stages) == (self.how.mode, self.how.stages)
            tidy(job.out, self.disk, stages=same_stages)
        why = unable(job, plan)
        write_identity(job.scratch, Identity(self.what, how, why), self.disk)


def unable(job: Job, plan: Plan) -> str:
    """Why nobody can go on with a replay by this plan, if it is killed; "" where one can."""
    if plan.mode == "staged" or not spec_of(job.program).times:
        return ""
    if job.passes[-1].serial is not None or job.passes[-1].takes_late:
        return _SERIAL
    return "" if job.resumable else _NOT_KEPT


def left_by_none(source: Source, settings: Settings) -> str:
    """Why a replay leaves nothing to go on with: of events in memory, and of several at once."""
    if source.path is None:
        return "its events were in memory"
    return "it was one of several at once" if settings.several is not None else ""


def demand(found: Interrupted | None, why: str, resume: Resume, place: Path | None) -> None:
    """Raise UsageError (TL822) where a replay is to go on and there is nothing to go on with."""
    if resume is not True or (found is not None and found.how is not None):
        return
    if place is None:
        reason = "it needs the place (--out) of the one that was killed"
    elif found is None:
        reason = why
    else:
        reason = found.why or "no replay into this place was killed, or what it left is gone"
    raise UsageError(
        f"there is nothing to go on with: {reason}", place=Place(None if place is None else str(place)), code="TL822",
        hint="leave --resume out: then it begins again where it has to",
    )  # fmt: skip


def _why(what: dict[str, Any], found: Sequence[Identity]) -> str:
    """Why none of these is what is wanted."""
    for one in found:
        other = [name for name in what if one.what.get(name) != what[name]]
        return _SAID.get(other[0], f"another {other[0]}") if other else one.why
    return ""


def _stages(plan: Plan) -> tuple[str, ...]:
    return tuple(f"{s.strategy}: {', '.join(s.states)}, {s.parts}" for s in plan.stages)
