"""Whether the files of a run are those that were written."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from timelapse.errors import Place, RunError, StorageError
from timelapse.program.kept import FOLDER
from timelapse.results.manifest import REMEDY
from timelapse.run.verified import altered_verified
from timelapse.store.parts import FileCheck
from timelapse.store.remote import check_files as check_all

if TYPE_CHECKING:
    from timelapse.run.run import Run

_UNNAMED = frozenset({"run.json", "verified.json"})
"""What a run's manifest does not name: itself, and what is written later."""


def check_files(run: Run) -> FileCheck:
    """Read all files of a run and compare them with their checksums. Raises StorageError (TL934) where it has none."""
    if run.path is None or run.manifest.files is None:
        raise StorageError(
            "the run has no checksums: whether its files were altered cannot be checked",
            place=Place(None if run.path is None else str(run.path)), code="TL934",
            hint="`timelapse verify` compares its content with the serial meaning; replayed again, it has them",
        )  # fmt: skip
    found = check_all(run.path, run.manifest.files, REMEDY, _UNNAMED)
    wrong = altered_verified(run.path)
    return found if wrong is None else replace(found, errors=(*found.errors, wrong))


def need_files(run: Run) -> None:
    """Raise an error for the first file of a run that is gone (RunError, TL920) or was altered (StorageError, TL931).

    A run without checksums passes; so does one whose kept program was altered, which is told apart when it is loaded.
    """
    if run.path is None or run.manifest.files is None:
        return
    results = {n: part for n, part in run.manifest.files.items() if not n.startswith(f"{FOLDER}/")}
    gone = [name for name in results if not (run.path / name).exists()]
    if gone:
        raise RunError(
            "the run is not whole: the file is not there", place=Place(str(run.path / gone[0])), code="TL920",
            hint="put back what was removed from the run's folder, or replay again",
        )  # fmt: skip
    for error in check_all(run.path, results, REMEDY).errors:
        raise error
