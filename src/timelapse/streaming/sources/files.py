"""Files as they appear in a folder, or match a pattern: each is read once, whole.

The files of a stream are one partition. A row's position is the number of its file, in the order in which files were taken, and
its line (or row) in it. Which file has which number is noted in the epoch that begins to read it. Of the files that are new
together, older ones (by their time of change) come first, and those of one time by name.
"""

from __future__ import annotations

import itertools
import os
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np

from timelapse.decoding import decoded
from timelapse.errors import IngestError, Place, SourceError
from timelapse.ingest.batches import Batch as Parsed
from timelapse.ingest.files import list_files
from timelapse.ingest.prepare import front_to_back, prepare_files, read_task
from timelapse.ingest.source import Source
from timelapse.segments.types import EventType
from timelapse.streaming.rows import Batch
from timelapse.streaming.sources.base import LiveSource, Wake, batch_of
from timelapse.streaming.streams import Partition

ONE = "files"
"""The name of the one partition."""
_LINES = 1 << 32
SETTLE = 0.2
"""Seconds that a file must not have changed for before it is read: who writes into the folder may not be done."""


class _Taken(msgspec.Struct, frozen=True):
    """A file that was begun: its number, path, size."""

    number: int
    path: str
    size: int


class Files(LiveSource):
    """A folder, a pattern, or several: new files are read as they appear. `once`: those that are there now, and no more."""

    def __init__(self, source: Source, *, once: bool = False) -> None:
        self._source, self._once = source, once
        self._taken: dict[str, _Taken] = {}
        self._waiting: deque[_Taken] = deque()
        self._reading: Iterator[tuple[Parsed, int]] | None = None
        self._now: _Taken | None = None
        self._position = -1
        self._looked = self._checked = False
        self._folders = {path: False for path in map(_folder, source.paths) if "://" not in path}
        """Where files appear, and whether that was there."""
        self._noted: set[int] = set()
        """Numbers of files of which some epoch has noted that they were begun."""

    @property
    def text(self) -> str:
        return "files " + ", ".join(os.path.abspath(p) if "://" not in p else p for p in self._source.paths)

    noted = True  # which it has read

    def check(self, kind: EventType) -> None:
        if self._once and self.warning and not any(os.path.isdir(p) for p in self._source.paths):
            raise SourceError(
                "there are no files",
                place=Place(", ".join(self._source.paths)),
                hint="give a file, a folder or a glob",
                code="TL945",
            )
        self._checked = True

    def start(
        self, stream: int, kind: EventType, partitions: Sequence[Partition], notes: Sequence[str], wake: Wake
    ) -> None:
        self._stream, self._kind = stream, kind
        if not notes and not self._checked:
            self.check(kind)
        self._position = next((p.position for p in partitions if p.name == ONE), -1)
        for note in notes:
            file = decoded(note, _Taken)
            self._taken[file.path] = file
            self._noted.add(file.number)
        if self._taken:
            self._folders = dict.fromkeys(self._folders, True)
            last = max(self._taken.values(), key=lambda f: f.number)
            self._check(last)
            self._waiting.append(last)

    @property
    def warning(self) -> str:
        """What looks wrong before the first row; empty where nothing does."""
        try:
            list_files(self._source.paths)
        except IngestError:
            return "there are no files yet"
        return ""

    def _check(self, file: _Taken) -> None:
        """Raises SourceError where a file that was begun is not what it was."""
        try:
            size = os.stat(file.path).st_size
        except FileNotFoundError:
            size = -1
        if size != file.size:
            what = "is gone" if size < 0 else f"has {size:,} bytes, and had {file.size:,} when it was read"
            raise SourceError(
                f"the file {what}", place=Place(file.path), code="TL945",
                hint="files of a stream are written once, under a name of their own; put further rows into further files",
            )  # fmt: skip

    def partitions(self) -> Sequence[str]:
        return (ONE,)

    def poll(self, most: int) -> list[Batch]:
        found: list[Batch] = []
        rows = 0
        while rows < most:
            try:
                if self._reading is None and not self._next():
                    break
                assert self._reading is not None
                assert self._now is not None
                read = next(self._reading, None)
            except (OSError, IngestError):
                if self._reading is not None and self._now is not None:  # it is read from its beginning again
                    self._reading = None
                    self._waiting.appendleft(self._now)
                if found:
                    break
                raise
            if read is None:
                self._reading = None
                continue
            parsed, first = read
            base = self._now.number * _LINES
            offsets = np.asarray(parsed.rows, np.int64) + (base - first)
            bad = [b.row + base - first for b in parsed.bad]
            end = max([int(offsets[-1]) if len(offsets) else -1, *bad, base])
            note = () if self._now.number in self._noted else (msgspec.json.encode(self._now).decode(),)
            self._noted.add(self._now.number)
            if end > self._position or note:
                found.append(
                    batch_of(
                        self._stream,
                        ONE,
                        self._kind,
                        parsed,
                        offsets,
                        bad,
                        end,
                        cursor=self._now.path,
                        notes=note,
                    )
                )
                rows += len(parsed.ts)
        return found

    def _next(self) -> bool:
        """Begin the next file, if there is one."""
        if not self._waiting and not (self._once and self._looked):
            self._look()
        if not self._waiting:
            return False
        self._now = self._waiting.popleft()
        self._reading = self._parsed(self._now)
        return True

    def _look(self) -> None:
        """Find files that are new. Raises FileNotFoundError where a folder is gone: a disk that is away is no folder without files."""
        self._looked = True
        for folder, was in self._folders.items():
            if os.path.isdir(folder):
                self._folders[folder] = True
            elif was:
                raise FileNotFoundError(f"the folder {folder} is gone")
        try:
            there = list_files(self._source.paths)
        except IngestError as error:
            if error.code != "TL412":
                raise
            there = []
        new = []
        for file in there:
            known = self._taken.get(file.path)
            if known is not None:
                if known.size != file.size:
                    self._check(known)
                continue
            changed = os.stat(file.path).st_mtime_ns
            if not self._once and time.time_ns() - changed < SETTLE * 1e9:
                continue
            new.append((changed, os.fsencode(file.path), file))
        for _, _, file in sorted(new, key=lambda one: one[:2]):
            number = max((f.number for f in self._taken.values()), default=-1) + 1
            taken = self._taken[file.path] = _Taken(number, file.path, file.size)
            self._waiting.append(taken)

    def _parsed(self, file: _Taken) -> Iterator[tuple[Parsed, int]]:
        """A file's rows, and what is taken from their numbers: positions count lines from 1, and rows of tables from 0."""
        one = prepare_files(0, self._kind, replace(self._source, data=[Path(file.path)]), None, 0)
        front_to_back([one])
        for task in one.tasks:
            for _, parsed in read_task(task, one.plan):
                yield parsed, 1 if task.groups else 0

    def at_end(self, partition: str) -> bool:
        return self._reading is None and not self._waiting

    @property
    def ended(self) -> bool:
        return self._once and self._looked and self.at_end(ONE)

    def close(self) -> None:
        """Nothing is open between polls but what is read."""
        self._reading = None


def _folder(path: str) -> str:
    """Where files of a folder, a pattern or a file's name appear, as far as that is one place."""
    parts = Path(path).expanduser().parts
    plain = list(itertools.takewhile(lambda part: not any(c in part for c in "*?["), parts))
    found = os.path.join(*plain) if plain else "."
    return found if len(plain) < len(parts) or os.path.isdir(found) else os.path.dirname(found) or "."
