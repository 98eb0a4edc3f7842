"""`timelapse verify --files` and `timelapse log --verify`: whether files are those that were written."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from timelapse.store.parts import FileCheck


def verify_files(path: Path, *, as_json: bool, alone: bool) -> None:
    """Check the files of a run or log against their checksums. Exit code 1 where one was altered or is gone."""
    from timelapse.errors import UsageError
    from timelapse.log import Log
    from timelapse.log.files import check_files as check_log
    from timelapse.run import Run
    from timelapse.run.files import check_files as check_run
    from timelapse.segments.manifest import NAME

    if not alone:
        raise UsageError("--files and --events exclude each other", hint="give one of them")
    is_log = (path / NAME).is_file() and not (path / "run.json").exists()
    _tell_files(check_log(Log.open(path)) if is_log else check_run(Run.open(path)), as_json=as_json)


def verify_log(path: Path, *, as_json: bool) -> None:
    """Check the files of all versions of a log. Exit code 1 where one was altered or is gone."""
    from timelapse.log import Log
    from timelapse.log.files import check_files
    from timelapse.segments import manifest as stored
    from timelapse.segments.place import as_path

    place = as_path(path)  # not Log.open: it stops at the first file that is too short
    _tell_files(check_files(Log(place, stored.read(place)), every=True), as_json=as_json)


def _tell_files(found: FileCheck, *, as_json: bool) -> None:
    from timelapse.cli.console import line, print_json

    if as_json:
        altered = [{"file": e.place.file, "what": e.message} for e in found.errors]
        print_json(
            {
                "ok": found.ok, "files": found.files, "bytes": found.bytes, "altered": altered,
                "others": list(found.others), "unchecked": list(found.unchecked),
            }
        )  # fmt: skip
    else:
        for error in found.errors:
            line((f"{error.code} ", "bold red"), f"{error.place}: {error.message}")
        for name in found.others:
            line(("not named by the manifest ", "yellow"), name)
        if found.unchecked:
            line(f"{len(found.unchecked)} files have no checksums: an earlier version wrote them")
        good = found.files - len(found.errors)
        line(
            (f"{good:,} of {found.files:,} files are those that were written", "bold"),
            f"   {found.bytes / 1e6:,.1f} MB read",
        )
    if not found.ok:
        raise typer.Exit(1)
