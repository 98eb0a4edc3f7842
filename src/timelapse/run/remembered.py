"""The run that a plain replay goes on from: what the last replay of the same program made over another version of the log.

The cache knows its place (cache/runs.py). The replay goes the way of `start_from` (run/earlier.py) if that run is still there as it was
made, and the log has the same events up to the end of its last untouched slice: by hashes, not by what manifests say. Then it takes over
what these slices put out. Where one of this is not so, all is replayed, and the new run says why.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from timelapse.analysis import Analysis
from timelapse.cache.key import program_key
from timelapse.cache.runs import LastRun, last_run, remember
from timelapse.cache.store import Store, open_store
from timelapse.cache.tuning import USUAL, CacheTuning
from timelapse.engine.resume import Begun
from timelapse.errors import TimelapseError
from timelapse.log import Log
from timelapse.plan import Plan
from timelapse.program.program import Program
from timelapse.program.times import kept
from timelapse.results.manifest import REMEDY, RunManifest, read_manifest
from timelapse.results.parameters import params_text
from timelapse.run.describe import about
from timelapse.run.earlier import Earlier, open_after
from timelapse.run.late_rows import EndApart, end_apart
from timelapse.run.request import Request, Settings
from timelapse.run.run import Run
from timelapse.run.source import Source
from timelapse.segments.changed import same_events
from timelapse.segments.joined import version_with
from timelapse.segments.without import base_of, read_as
from timelapse.store.parts import check_parts
from timelapse.store.remote import RemotePath


@dataclass(frozen=True)
class Remembered:
    """What the last replay made. `reason`: why nothing of it is taken over; empty where `source` is what is left to read, and `earlier`
    what it stands on."""

    place: str
    reason: str = ""
    source: Source | None = None
    earlier: Earlier | None = None
    found: LastRun | None = None

    @property
    def begun(self) -> Begun | None:
        """What a replay that is killed says of the run that it went on from."""
        if self.earlier is None or self.found is None:
            return None
        return Begun(self.found.place, self.found.seal, self.found.log_id, self.earlier.slices)

    def describe(self) -> dict[str, Any]:
        """For the new run's certificate, and for `explain`."""
        if self.earlier is None:
            return {
                "run": self.place,
                "remembered": True,
                "reason": self.reason,
                "slices": 0,
                "events": 0,
                "changed_from": None,
            }
        return {**self.earlier.describe(), "remembered": True}

    def text(self) -> str:
        """For people."""
        from timelapse.run.views import started_from

        return f"the last replay of this program: {started_from(self.describe())}"


def remembered(
    program: Program, analysis: Analysis, source: Source, log: Log | str | Path, settings: Settings
) -> Remembered | None:
    """What the last replay of the program made over another version of this log; None where there is no such run, or none is looked for."""
    known = _store_and_key(program, analysis, source, settings)
    found = None if known is None else last_run(*known)
    if found is None or found.log_id == source.id:
        return None
    opened = log if isinstance(log, Log) else Log.open(log)
    before = version_with(opened.path, base_of(found.log_id))
    if before is not None and before.version > opened.version:
        return None
    return _taken(found, program, analysis, opened, settings)


def begun_again(
    begun: Begun, program: Program, analysis: Analysis, log: Log | str | Path, settings: Settings
) -> Remembered:
    """What a replay that was killed went on from, if that is still what it was then."""
    opened = log if isinstance(log, Log) else Log.open(log)
    found = LastRun(begun.place, begun.seal, begun.log_id)
    last = _taken(found, program, analysis, opened, replace(settings, slices=begun.slices + 1))
    if last.earlier is not None and last.earlier.slices != begun.slices:
        return Remembered(begun.place, "fewer of its slices hold")
    return last


def _taken(found: LastRun, program: Program, analysis: Analysis, log: Log, settings: Settings) -> Remembered:
    try:
        reason, taken = _usable(found, program, analysis, log, settings)
    except TimelapseError as error:
        reason, taken = error.message, None
    return Remembered(found.place, reason) if taken is None else Remembered(found.place, "", *taken, found)


def remember_run(request: Request, manifest: RunManifest, out: Path) -> None:
    """Say that a replay made a run that stays, for those over another version of its log."""
    settings, left = request.settings, request.interrupted
    if left is not None and left.how is not None and left.what["strategy"] is None:
        settings = replace(settings, strategy=None)  # it is that of the replay that was killed
    known = _store_and_key(request.program, request.analysis, request.source, settings)
    if known is None or isinstance(out, RemotePath):
        return
    try:
        seal = read_manifest(out).seal
    except TimelapseError:  # somebody has removed it already
        return
    assert request.source.id is not None
    remember(*known, LastRun(str(out.absolute()), seal or "", request.source.id), about(manifest))


def end_for_late(request: Request, plan: Plan, cuts: Sequence[int]) -> EndApart | None:
    """Where the last of the slices of a replay is cut once more, so that one of the log's next version goes on from there; None: nowhere.

    That is where this replay is one pass in log order, in as many slices as the log's size takes; and where another goes on from it. Where
    nothing tells how late rows come, it is long, and the log is one that grows, unless handlers run as Python: beside them a cut costs next to nothing.
    """
    source, settings = request.source, request.settings
    if (
        plan.mode == "staged"
        or settings.slices is not None
        or (kept(request.program) and not settings.resumable)
    ):
        return None
    signs = source.late.told
    if plan.ratio() * plan.law.serial_seconds >= _tuning().long_seconds and (
        source.late.grows or not plan.law.compiled
    ):
        signs += source.late.assumed
    found = end_apart(source.reader, cuts, signs)
    if found is None or _store_and_key(request.program, request.analysis, source, settings) is None:
        return None
    return found


def _tuning() -> CacheTuning:
    """The thresholds of the user's cache."""
    store = open_store()
    return USUAL if store is None else store.tuning


def _store_and_key(
    program: Program, analysis: Analysis, source: Source, settings: Settings
) -> tuple[Store, str] | None:
    """Where it is said which run a replay made, and under which key; None where nobody says it."""
    if source.id is None or source.path is None or source.part or source.types or source.logs:
        return None
    if (
        not settings.cache
        or settings.several is not None
        or settings.strategy is not None
        or settings.allow_impure
    ):
        return None
    if (store := open_store()) is None or source.reader.count < store.tuning.least_events:
        return None
    params = repr(sorted(params_text(program).items()))
    asked = repr((settings.until, settings.quarantine))
    place = os.path.realpath(source.path) if os.path.isabs(source.path) else source.path
    key = program_key(program, analysis, "run", params, place, read_as(source.id), asked)
    return None if key is None else (store, key)


def _usable(
    found: LastRun, program: Program, analysis: Analysis, log: Log, settings: Settings
) -> tuple[str, tuple[Source, Earlier] | None]:
    """What a replay goes on with, or why it does not. Raises TimelapseError where it cannot."""
    place = Path(found.place)
    if not place.exists():
        return "it is gone", None
    run = Run.open(place)
    if run.manifest.seal != found.seal:
        return "another run is at its place now", None
    before = version_with(log.path, base_of(found.log_id))
    if before is None:
        return "the version of the log that it was over was removed", None
    most = run.slices if settings.slices is None else settings.slices - 1
    if not most or run.slices > _tuning().most_slices:
        return f"it has {run.slices:,} slices" if most else "one slice was asked for", None
    source, earlier = open_after(run, log, program, analysis, quarantine=settings.quarantine, most=most)
    if earlier.reason:
        return earlier.reason, None
    if not same_events(log.path, before, log.manifest, earlier.cuts[-1]):
        return "the log's events before its first change could not be proven to be the same", None
    parts = {name: part for name, part in earlier.parts.items() if part is not None}
    if len(parts) < len(earlier.parts):
        return "it has no checksums", None
    for error in check_parts(place, parts, REMEDY).errors:
        return f"{error.place.file if error.place else place}: {error.message}", None
    return "", (source, earlier)
