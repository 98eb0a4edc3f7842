"""Finding a stored run's program and log again, and making sure that they are the same."""

from __future__ import annotations

from pathlib import Path

from timelapse.errors import Place, RunError, TimelapseError
from timelapse.log import Log
from timelapse.log.part import PartLog
from timelapse.program.fingerprint import fingerprint
from timelapse.program.kept import load_kept
from timelapse.program.program import Program, spec_of
from timelapse.program.versions import load_named
from timelapse.results.manifest import RunManifest
from timelapse.results.parameters import parameter, text_of
from timelapse.segments.joined import joined, version_with
from timelapse.segments.manifest import Manifest
from timelapse.segments.place import as_path, opened
from timelapse.segments.reader import EventReader
from timelapse.segments.without import base_of


def reload_program(manifest: RunManifest, path: Path | None = None) -> Program:
    """The program that made the run at `path`: where it was, or else as its files were kept with the run.

    Raises RunError when it is not to be found, or has changed and was not kept.
    """
    if manifest.source is None:
        raise RunError(
            f"the run does not say where {manifest.program} is defined",
            hint="in Python, open it with the program: tl.Run.open(path, program)", code="TL604",
        )  # fmt: skip
    reference = manifest.source
    problem: Exception | None = None
    try:
        program = _made(load_named(reference), manifest)
        if fingerprint(program) == manifest.fingerprint:
            return program
    except (TimelapseError, ValueError, SyntaxError) as error:
        problem = error
    try:
        kept = None if path is None else load_kept(path, reference)
        if kept is not None and fingerprint(program := _made(kept, manifest)) == manifest.fingerprint:
            return program
    except (TimelapseError, ValueError, SyntaxError):
        pass  # what is wrong with the program where it was says more
    if problem is not None:
        raise RunError(
            f"the run's program cannot be loaded from {reference}: {problem}",
            hint="in Python, open it with the program: tl.Run.open(path, program)", code="TL604",
        ) from problem  # fmt: skip
    raise RunError(
        f"{manifest.program} has changed since the run", place=Place(reference),
        hint="replay again, or check out the version that made the run", code="TL605",
    )  # fmt: skip


def _made(cls: type[Program], manifest: RunManifest) -> Program:
    """The program with the run's parameters."""
    defaults = {name: text_of(p.default) for name, p in spec_of(cls).params.items() if not p.required}
    given = {n: text for n, text in manifest.params.items() if defaults.get(n) != text}
    return cls(**{name: parameter(text) for name, text in given.items()})


def reopen_log(manifest: RunManifest) -> EventReader:
    """The log of a run. Raises RunError when it is gone or was written anew."""
    return log_of(manifest).reader


def log_of(manifest: RunManifest) -> Log:
    """The log of a run as it was then: that version, where events were appended since. Raises RunError."""
    named = manifest.logs or [[manifest.log or "", base_of(manifest.log_id or "")]]
    parts = [(where := opened(as_path(path)), _version(where, log_id)) for path, log_id in named if path]
    if len(parts) < len(named):
        raise RunError(
            "the run's events were in memory, and are not there any more",
            hint="write them to a log with tl.Log.from_events, and replay it: what a run of that is asked later has them", code="TL604",
        )  # fmt: skip
    first = parts[0][0]
    log = Log(first, parts[0][1] if len(parts) == 1 else joined(parts))
    log = replayed(log, manifest)
    if log.id != manifest.log_id:
        raise _another(named[0][0])
    for path, _ in named:
        Log.open(path)  # says what is wrong with its files
    return log


def replayed(log: Log, manifest: RunManifest) -> Log:
    """What of a log a run was over."""
    if manifest.without and max(manifest.without) < log.manifest.count:
        log = log.without(manifest.without)
    if manifest.types:
        log = log.only(*manifest.types)
    return PartLog(log, *manifest.part) if manifest.part else log


def _version(path: Path, log_id: str) -> Manifest:
    if not path.exists():
        raise _gone(str(path))
    found = version_with(path, log_id)
    if found is None:
        raise _another(str(path))
    return found


def _gone(where: str) -> RunError:
    return RunError(
        f"the run's log is not there any more: {where}",
        hint="put it back at that path, or replay from another log", code="TL604",
    )  # fmt: skip


def _another(path: str) -> RunError:
    return RunError(
        "the version of the log that the run was over is not there: it was removed, as Log.expire (--expire) does, or another log is at that path", place=Place(path),
        hint="the run keeps its results; to verify it or ask why, replay again", code="TL605",
    )  # fmt: skip
