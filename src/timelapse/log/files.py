"""Whether the files of a log are those that were written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from timelapse.errors import Place, StorageError
from timelapse.log import manifest as stored
from timelapse.log.manifest import REMEDY
from timelapse.store.parts import FileCheck
from timelapse.store.remote import check_files as check_all

if TYPE_CHECKING:
    from timelapse.log.log import Log


def check_files(log: Log, *, every: bool = False) -> FileCheck:
    """Read all segment files of a log and compare them with their checksums; with `every`, those of all versions that are kept.

    What versions without checksums wrote is listed as unchecked. Raises StorageError (TL934) where that is all.
    """
    manifests = [log.manifest]
    kept = [n for n in stored.kept(log.path) if n != log.version]
    if every:
        manifests += [stored.read(log.path, n) for n in kept]
    files = {f"{s.folder}/{f.name}": f for m in manifests for s in m.segments for f in s.files}
    parts = {name: file.part for name, file in files.items() if file.part is not None}
    bare = tuple(name for name, file in files.items() if file.part is None)
    if bare and not parts:
        raise StorageError(
            "the log has no checksums: whether its files were altered cannot be checked",
            place=Place(str(log.path)), code="TL934",
            hint="its pages have some, which are checked when they are read; ingested again, it has all",
        )  # fmt: skip
    unnamed = {*bare}
    if not every:  # those of other versions are none of this one's
        unnamed |= {
            f"{s.folder}/{f.name}" for n in kept for s in stored.read(log.path, n).segments for f in s.files
        }
        if log.version != (newest := stored.read(log.path)).version:
            unnamed |= {f"{s.folder}/{f.name}" for s in newest.segments for f in s.files}
    found = check_all(log.path / "segments", parts, REMEDY, unnamed)
    others = tuple(f"segments/{name}" for name in found.others)
    return FileCheck(found.files, found.bytes, found.errors, others, tuple(f"segments/{b}" for b in bare))
