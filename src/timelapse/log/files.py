"""Whether the files of a log are those that were written."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from timelapse.errors import Place, StorageError
from timelapse.segments import manifest as stored
from timelapse.segments.manifest import REMEDY, Manifest
from timelapse.segments.quarantine import FOLDER
from timelapse.store.parts import FileCheck, Part
from timelapse.store.remote import check_files as check_all

if TYPE_CHECKING:
    from timelapse.log.log import Log

_FOLDERS = ("segments", FOLDER)


def check_files(log: Log, *, every: bool = False) -> FileCheck:
    """Read all segment files of a log, and those of its quarantine, and compare them with their checksums; with `every`, those of
    all versions that are kept.

    What versions without checksums wrote is listed as unchecked. Raises StorageError (TL934) where that is all.
    """
    others = [stored.read(log.path, n) for n in stored.kept(log.path) if n != log.version]
    if log.version != (newest := stored.read(log.path)).version:
        others.append(newest)
    files = _files([log.manifest, *(others if every else ())])
    parts = {name: part for name, part in files.items() if part is not None}
    bare = tuple(name for name, part in files.items() if part is None)
    if bare and not parts:
        raise StorageError(
            "the log has no checksums: whether its files were altered cannot be checked",
            place=Place(str(log.path)), code="TL934",
            hint="its pages have some, which are checked when they are read; ingested again, it has all",
        )  # fmt: skip
    unnamed = {*bare, *(() if every else _files(others))}  # those of other versions are none of this one's
    found = [_checked(log.path, folder, parts, unnamed) for folder in _FOLDERS]
    return FileCheck(
        sum(one.files for one in found), sum(one.bytes for one in found), tuple(e for one in found for e in one.errors),
        tuple(name for one in found for name in one.others), bare,
    )  # fmt: skip


def _files(manifests: Collection[Manifest]) -> dict[str, Part | None]:
    """The files that manifests name, from the log on, with their checksums."""
    files = {f"segments/{s.folder}/{f.name}": f.part for m in manifests for s in m.segments for f in s.files}
    return files | {
        f"{FOLDER}/{n}": i.parts.get(n) for m in manifests for i in m.ingests for n in i.quarantine
    }


def _checked(log: Path, folder: str, parts: Mapping[str, Part], unnamed: Collection[str]) -> FileCheck:
    """One of the log's folders; its files are named from the log on."""
    start = f"{folder}/"
    own = {n.removeprefix(start): p for n, p in parts.items() if n.startswith(start)}
    found = check_all(
        log / folder, own, REMEDY, {n.removeprefix(start) for n in unnamed if n.startswith(start)}
    )
    return replace(found, others=tuple(start + name for name in found.others))
