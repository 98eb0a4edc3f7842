"""A text file that grows: its complete lines, as they are added. A line's position is the byte at which it begins."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

import numpy as np

from timelapse.errors import IngestError, Place, SourceError
from timelapse.ingest.lines import Lines
from timelapse.ingest.parse import parse_lines
from timelapse.ingest.prepare import prepare_files
from timelapse.ingest.source import Source
from timelapse.segments.types import EventType
from timelapse.streaming.rows import Batch
from timelapse.streaming.sources.base import LiveSource, Wake, batch_of, pieces
from timelapse.streaming.streams import Partition

ONE = "file"
_READ = 4 << 20
_LINE = 120
"""Bytes that a line has, about."""


class Follow(LiveSource):
    """One file of CSV, JSON lines or text that is only ever added to. `once`: what it has now, and no more."""

    def __init__(self, source: Source, *, once: bool = False) -> None:
        if source.multiline:
            raise IngestError(
                "multiline= (--multiline) is for whole files: of a file that grows, lines are taken as they come", code="TL411",
                hint="write one line per record, such as JSON lines, or follow a folder of files",
            )  # fmt: skip
        self._source, self._once = source, once
        (path,) = source.paths
        self._path = Path(path).expanduser().absolute()
        self._file: BinaryIO | None = None
        self._at = 0
        self._rest = b""
        self._header = False
        self._ended = False
        self._plan = None
        self._until: int | None = None

    @property
    def text(self) -> str:
        return f"lines of {self._path}"

    def check(self, kind: EventType) -> None:
        if self._once and self.warning:
            raise SourceError(
                "there is no file",
                place=Place(str(self._path)),
                hint="give a file, a folder or a glob",
                code="TL945",
            )

    def start(
        self, stream: int, kind: EventType, partitions: Sequence[Partition], notes: Sequence[str], wake: Wake
    ) -> None:
        self._stream, self._kind = stream, kind
        cursor = next((p.cursor for p in partitions if p.name == ONE), "")
        self._at = int(cursor or 0)
        self.check(kind)
        if self._once:
            self._until = self._size()

    @property
    def warning(self) -> str:
        """What looks wrong before the first row; empty where nothing does."""
        return "" if self._path.exists() else "the file does not exist yet"

    def _size(self) -> int:
        try:
            size = os.stat(self._path).st_size
        except FileNotFoundError:
            if self._at:
                raise self._moved("is gone") from None
            return 0
        if size < self._at:
            raise self._moved(f"has {size:,} bytes, and {self._at:,} were read")
        return size

    def _moved(self, what: str) -> SourceError:
        return SourceError(
            f"the file {what}", place=Place(str(self._path)), code="TL945",
            hint="a file that is followed is only added to; give the folder of files that are rotated",
        )  # fmt: skip

    def partitions(self) -> Sequence[str]:
        return (ONE,)

    def poll(self, most: int) -> list[Batch]:
        return pieces(most, lambda: self._piece(most))

    def _piece(self, most: int) -> Batch | None:
        """The next whole lines: about so many at most, and no more than are parsed at once."""
        if self._ended:
            return None
        size = self._size() if self._until is None else self._until
        if self._at + len(self._rest) >= size and not self._once:
            return None
        if self._file is None:
            if not self._path.exists():
                return None
            self._file = open(self._path, "rb")  # noqa: SIM115  it stays open
            self._file.seek(self._at)
        want = min(size - self._at - len(self._rest), max(1 << 16, min(_READ, most * _LINE)))
        data = self._rest + self._file.read(max(0, want))
        cut = data.rfind(b"\n") + 1
        if self._once and self._at + len(data) >= size:
            self._ended, cut = True, len(data)  # what follows no line's end is a line too
        self._rest = data[cut:]
        if not cut:
            return None
        whole, begin = data[:cut], self._at
        self._at += cut
        return self._batch(whole, begin)

    def _batch(self, data: bytes, begin: int) -> Batch:
        if self._plan is None:
            one = prepare_files(0, self._kind, replace(self._source, data=[self._path]), None, 0)
            self._plan = one.plan  # type: ignore[assignment]
        plan = self._plan
        assert plan is not None
        text = data.removesuffix(b"\n")
        ends = np.flatnonzero(np.frombuffer(text, np.uint8) == 10)
        starts = np.concatenate([np.zeros(1, np.int64), ends + 1]) + begin
        # Lines count from 1 where the file begins, whose first line may be a header, and from 2 elsewhere.
        first = 1 if begin == 0 else 2
        parsed = parse_lines(plan, Lines(first, text))
        offsets = starts[np.asarray(parsed.rows, np.int64) - first]
        bad = [int(starts[b.row - first]) for b in parsed.bad]
        return batch_of(
            self._stream, ONE, self._kind, parsed, offsets, bad, int(starts[-1]), cursor=str(self._at)
        )

    def at_end(self, partition: str) -> bool:
        try:
            return self._at + len(self._rest) >= self._size()
        except SourceError:
            return False

    @property
    def ended(self) -> bool:
        return self._ended

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
