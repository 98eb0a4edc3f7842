"""What stands on a log: runs and entries of the cache, the version each is over, and what of it holds for the newest one."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from timelapse.cache.store import Entry, Store
from timelapse.errors import TimelapseError
from timelapse.log import Log
from timelapse.results.manifest import NAME, RunManifest, read_manifest
from timelapse.run.untouched import untouched
from timelapse.segments import manifest as stored
from timelapse.segments.without import base_of

_DEEP = 4
"""Folders are searched so many levels down."""


@dataclass(frozen=True)
class Citing:
    """A run, or an entry of the cache. `version`: the log's that it is over; None: one that was removed. `slices`, `of`: so many of its
    slices (of an entry: start states) hold for the newest version, of how many; `events`: up to this event."""

    kind: str
    place: str
    program: str
    version: int | None
    slices: int
    of: int
    events: int

    @property
    def holds(self) -> str:
        """For people."""
        what = "slices" if self.kind == "run" else "start states"
        if self.version is None:
            return "its version was removed: it keeps its results, and cannot be verified"
        if self.slices == self.of:
            return f"holds whole, up to event {self.events:,}"
        return (
            f"{self.slices} of {self.of} {what} hold, up to event {self.events:,}"
            if self.slices
            else "nothing of it holds"
        )


def runs_over(log: Log, folders: Sequence[Path]) -> list[Citing]:
    """The runs below some folders that are over a version of this log, by their places."""
    found = []
    for path in sorted({p for folder in folders for p in _runs(folder)}):
        try:
            manifest = read_manifest(path)
        except TimelapseError:
            continue  # not a run of this format
        if manifest.log is not None and _same(manifest.log, log.path):
            found.append(_run(manifest, path, log))
    return found


def _runs(folder: Path) -> Iterator[Path]:
    base = len(folder.parts)
    for place, names, files in os.walk(folder):
        if NAME in files:
            yield Path(place)
            names.clear()
        elif len(Path(place).parts) - base >= _DEEP:
            names.clear()
        names[:] = [name for name in names if not name.startswith(".")]


def _run(manifest: RunManifest, path: Path, log: Log) -> Citing:
    left = untouched(manifest, log)
    count = len(manifest.cuts) - 1
    if left is None:
        return Citing("run", str(path), manifest.program, None, 0, count, 0)
    return Citing("run", str(path), manifest.program, left.version, left.slices, count, left.end)


def entries_over(log: Log, store: Store) -> list[tuple[Citing, Entry]]:
    """The entries of the cache that are over a version of this log."""
    versions = {log.manifest.id: log.version}
    for number in stored.kept(log.path):
        versions.setdefault(stored.read(log.path, number).id, number)
    found = []
    for entry in store.entries():
        about = entry.head.about
        if not entry.head.files or not about.get("log") or not _same(about["log"], log.path):
            continue
        version = versions.get(base_of(about.get("log_id", "")))
        cuts = [int(cut) for cut in about.get("cuts", "").split(",") if cut]
        first = _first_changed(log, version)
        within = [cut for cut in cuts[1:] if version is not None and (first is None or cut <= first)]
        found.append(
            (
                Citing(
                    "cache", entry.head.key, about.get("program", ""), version, len(within), max(0, len(cuts) - 1),
                    within[-1] if within else 0,
                ),
                entry,
            )
        )  # fmt: skip
    return found


def _first_changed(log: Log, version: int | None) -> int | None:
    """The first seq from which the newest version has other events than this one had."""
    places = [
        i.rewritten
        for i in log.manifest.ingests
        if version is not None and i.version > version and i.rewritten is not None
    ]
    return min(places, default=None)


def _same(given: str, path: Path) -> bool:
    try:
        return Path(given).resolve() == path.resolve()
    except OSError:
        return False
