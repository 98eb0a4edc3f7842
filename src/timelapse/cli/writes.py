"""Files that a command is to write at its end: whether it can is looked at before any work is done."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from timelapse.errors import Place, UsageError
from timelapse.store.failures import file_in_the_way

PLOTS = (".svg", ".png", ".pdf")


def file_of(option: str, example: str) -> Callable[[str], Path]:
    """The parser of an option that names a file. A path forgets the slash at its end, so it is seen here.

    Raises UsageError (TL809) for the path of a folder, whether it is there or not.
    """

    def parsed(text: str) -> Path:
        if not text or text.endswith(("/", os.sep)) or Path(text).name in ("", "..") or Path(text).is_dir():
            raise UsageError(
                f"{option}: this is a folder" if text else f"{option}: no file is named", place=Place(text),
                hint=f"name a file in it: {option} {os.path.join(text, example)}", code="TL809",  # keeps ./
            )  # fmt: skip
        return Path(text)

    parsed.__name__ = "FILE"
    return parsed


def check_file(
    option: str, path: Path | None, suffixes: Sequence[str] = (), *, code: str = "TL809", makes_folder: bool = False
) -> None:  # fmt: skip
    """Raise UsageError where a file cannot be written; nothing is asked of None.

    `code` is the error's for another suffix than these; what else is in the way is TL809. `makes_folder`: who writes
    it makes the folders above it.
    """
    if path is None:
        return
    place = Place(str(path))
    if suffixes and path.suffix.lower() not in suffixes:
        listed = f"{', '.join(suffixes[:-1])} or {suffixes[-1]}" if len(suffixes) > 1 else suffixes[0]
        raise UsageError(
            f"{option}: a file called so is not written; it ends in {listed}", place=place,
            hint=f"{option} {path.with_suffix(suffixes[0]).name}", code=code,
        )  # fmt: skip
    if path.is_dir():
        raise UsageError(f"{option}: this is a folder", place=place, hint="name a file in it", code="TL809")
    folder = path.absolute().parent
    while makes_folder and not folder.exists():
        folder = folder.parent
    if not folder.is_dir():
        what = file_in_the_way(path) or "its folder is not there"
        raise UsageError(
            f"{option}: {what}", place=place, hint="make the folder, or name another", code="TL809"
        )
    if not os.access(path if path.exists() else folder, os.W_OK):
        raise UsageError(
            f"{option}: this must not be written", place=place, hint="check its permissions, or name another place",
            code="TL809",
        )  # fmt: skip


def check_report(option: str, path: Path | None, *, overwrite: bool = False) -> None:
    """The same for a report, which does not replace what is no report (TL830)."""
    from timelapse.reporting.page import check_place

    check_file(option, path, makes_folder=True)
    if path is not None and not overwrite:
        check_place(path)
