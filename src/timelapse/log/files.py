"""Whether the files of a log are those that were written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from timelapse.errors import Place, StorageError
from timelapse.log.manifest import REMEDY
from timelapse.store.parts import FileCheck, check_parts

if TYPE_CHECKING:
    from timelapse.log.log import Log


def check_files(log: Log) -> FileCheck:
    """Read all segment files of a log and compare them with their checksums.

    What versions without checksums wrote is listed as unchecked. Raises StorageError (TL934) where that is all.
    """
    files = {f"segments/{s.folder}/{f.name}": f for s in log.manifest.segments for f in s.files}
    parts = {name: file.part for name, file in files.items() if file.part is not None}
    bare = tuple(name for name, file in files.items() if file.part is None)
    if bare and not parts:
        raise StorageError(
            "the log has no checksums: whether its files were altered cannot be checked",
            place=Place(str(log.path)), code="TL934",
            hint="its pages have some, which are checked when they are read; ingested again, it has all",
        )  # fmt: skip
    found = check_parts(
        log.path / "segments", {n.removeprefix("segments/"): p for n, p in parts.items()}, REMEDY
    )
    named = {name.removeprefix("segments/") for name in bare}
    others = tuple(f"segments/{name}" for name in found.others if name not in named)
    return FileCheck(found.files, found.bytes, found.errors, others, bare)
