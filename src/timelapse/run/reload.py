"""Finding a stored run's program and log again, and making sure that they are the same."""

from __future__ import annotations

from pathlib import Path

from timelapse.errors import Place, RunError, TimelapseError
from timelapse.log import Log
from timelapse.log.reader import EventReader
from timelapse.model.fingerprint import fingerprint
from timelapse.model.load import load_program
from timelapse.model.program import Program, spec_of
from timelapse.model.versions import load_versioned, split_revision
from timelapse.run.manifest import RunManifest
from timelapse.run.run import parameter, text_of


def reload_program(manifest: RunManifest) -> Program:
    """The program that made a run. Raises RunError when it is not to be found or has changed."""
    if manifest.source is None:
        raise RunError(
            f"the run does not say where {manifest.program} is defined",
            hint="open it with the program: tl.Run.open(path, program=Antispam())", code="TL604",
        )  # fmt: skip
    try:
        revision = split_revision(manifest.source)[1]
        cls = load_program(manifest.source) if revision is None else load_versioned(manifest.source)
        defaults = {name: text_of(p.default) for name, p in spec_of(cls).params.items() if not p.required}
        given = {n: text for n, text in manifest.params.items() if defaults.get(n) != text}
        program = cls(**{name: parameter(text) for name, text in given.items()})
    except (TimelapseError, ValueError, SyntaxError) as error:
        raise RunError(
            f"the run's program cannot be loaded from {manifest.source}: {error}",
            hint="open it with the program: tl.Run.open(path, program=Antispam())", code="TL604",
        ) from error  # fmt: skip
    if fingerprint(program) != manifest.fingerprint:
        raise RunError(
            f"{manifest.program} has changed since the run", place=Place(manifest.source),
            hint="replay again, or check out the version that made the run", code="TL605",
        )  # fmt: skip
    return program


def reopen_log(manifest: RunManifest) -> EventReader:
    """The log of a run. Raises RunError when it is gone or was written anew."""
    if manifest.log is None or not Path(manifest.log).exists():
        raise RunError(
            f"the run's log is not there any more: {manifest.log or 'it was in memory'}",
            hint="put it back at that path, or replay from another log", code="TL604",
        )  # fmt: skip
    log = Log.open(manifest.log)
    if manifest.without and max(manifest.without) < log.count:
        log = log.without(manifest.without)
    if log.id != manifest.log_id:
        raise RunError(
            "the log at the run's path is another one than it was", place=Place(manifest.log),
            hint="replay again", code="TL605",
        )  # fmt: skip
    return log.reader
