"""The programs of a live run: their files are kept with it, and found again."""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path

import msgspec

from timelapse.errors import Place, RunError, TimelapseError
from timelapse.program.fingerprint import fingerprint
from timelapse.program.kept import FOLDER, keep_sources, load_kept
from timelapse.program.load import load_program
from timelapse.program.program import Program
from timelapse.results.parameters import parameter
from timelapse.run.describe import source_of
from timelapse.store.scratch import process_folder, scratch_folder
from timelapse.streaming import chain
from timelapse.streaming.format import VERSIONS, Epoch, LiveRun
from timelapse.streaming.place import LivePlace, LocalPlace


def keep_program(place: LivePlace, program: Program) -> None:
    """Keep a program's files with the run, by its fingerprint: who keeps the same program finds them there."""
    folder, reference = _folder(fingerprint(program)), source_of(program)
    if isinstance(place, LocalPlace):
        keep_sources(type(program), reference, place.root / folder)
        return
    made = scratch_folder("program")
    try:
        keep_sources(type(program), reference, made)
        for path in made.rglob("*"):
            if path.is_file():
                with suppress(FileExistsError):
                    place.create(f"{folder}/{path.relative_to(made).as_posix()}", path.read_bytes())
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _folder(digest: str) -> str:
    return f"{VERSIONS}/{digest[:32]}"


def _here(place: LivePlace, folder: str) -> Path:
    """The folder on this machine with the files of a program."""
    if isinstance(place, LocalPlace):
        return place.root / folder
    made, inside = process_folder("program"), f"{folder}/{FOLDER}".lstrip("/")
    for one in place.files(inside):
        path = made / FOLDER / one.name.removeprefix(f"{inside}/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(place.read(one.name))
    return made


def program_now(place: LivePlace, run: LiveRun, last: Epoch | None) -> Program:
    """The program that runs at the end of an epoch. Raises RunError (TL943) where it cannot be found again."""
    if last is None or not last.last_change:
        return program_of(place, run)
    change = chain.read_epoch(place, last.last_change).about.change
    assert change is not None
    begun = msgspec.structs.replace(
        run,
        program=change.program,
        source=change.source,
        fingerprint=change.fingerprint,
        params=change.params,
    )
    return program_of(place, begun)


def program_of(place: LivePlace, run: LiveRun) -> Program:
    """The program of a live run, from where it was or from the files that were kept with it."""
    if run.source is None:
        raise RunError(
            f"where {run.program} was defined is not known", place=Place(str(place)), code="TL943",
            hint="give the program: Reading.open(out, program)",
        )  # fmt: skip
    values = {name: parameter(text) for name, text in run.params.items()}
    tried: list[type[Program]] = []
    try:
        tried.append(load_program(run.source))
    except Exception as error:  # it may be gone, or altered so that it does not load
        problem: Exception | None = error
    else:
        problem = None
    for cls in tried:
        try:
            found = cls(**values)
        except TimelapseError:  # it has other parameters now
            continue
        if fingerprint(found) == run.fingerprint:
            return found
    for folder in (
        _folder(run.fingerprint),
        "",
    ):  # runs of earlier versions have the first program's beside `live.json`
        kept = load_kept(_here(place, folder), run.source)
        if kept is not None:
            return kept(**values)
    if tried:
        return tried[0](**values)
    raise RunError(
        f"{run.source} cannot be loaded: {problem}",
        place=Place(str(place)),
        code="TL943",
        hint="give the program",
    )
