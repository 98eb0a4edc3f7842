"""Work over many parts, each of which is read by itself: in this process, or as jobs of Spark (env/spark_jobs.py).

A job is a function of a part's number. What it gives is bytes: they are what reaches the driver. A grouped job sends pieces to
groups, and another function makes of each group's pieces what reaches the driver: so nothing is larger than a part or a group.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, Protocol

from timelapse.store.failures import writing
from timelapse.store.scratch import scratch_folder

Piece = tuple[int, bytes]
"""A group's number, and what is sent to it."""


class Jobs(Protocol):
    """Runs jobs. `spread` is how many parts it works on at a time. What a part's function raises is raised here."""

    @property
    def spread(self) -> int: ...
    @property
    def text(self) -> str:
        """Where that is, with what has been submitted."""
        ...

    def each(self, work: Callable[[int], bytes], parts: int, what: str) -> list[bytes]:
        """What `work` gives for each part, in their order. `what` describes the job to people."""
        ...

    def grouped(
        self, send: Callable[[int], Iterable[Piece]], parts: int, receive: Callable[[list[bytes]], bytes], groups: int, what: str
    ) -> list[bytes]:  # fmt: skip
        """What `receive` gives for each group that was sent something, in no order. Pieces come in no order."""
        ...


class InMemory:
    """Over what this process holds: what is sent to groups is held too."""

    spread = 1
    text = "this process"

    def each(self, work: Callable[[int], bytes], parts: int, what: str) -> list[bytes]:
        return [work(part) for part in range(parts)]

    def grouped(
        self, send: Callable[[int], Iterable[Piece]], parts: int, receive: Callable[[list[bytes]], bytes], groups: int, what: str
    ) -> list[bytes]:  # fmt: skip
        pieces: dict[int, list[bytes]] = {}
        for part in range(parts):
            for group, data in send(part):
                pieces.setdefault(group, []).append(data)
        return [receive(own) for own in pieces.values()]


class Here:
    """In this process, one part after the other. What is sent to groups waits in files, so memory holds one group."""

    spread = 1
    text = "this process, part by part"

    def each(self, work: Callable[[int], bytes], parts: int, what: str) -> list[bytes]:
        return [work(part) for part in range(parts)]

    def grouped(
        self, send: Callable[[int], Iterable[Piece]], parts: int, receive: Callable[[list[bytes]], bytes], groups: int, what: str
    ) -> list[bytes]:  # fmt: skip
        folder = scratch_folder("jobs", large=True)
        try:
            sent: set[int] = set()
            for part in range(parts):
                for group, data in send(part):
                    sent.add(group)
                    with writing(folder), _file(folder, group).open("ab") as file:
                        _put(file, data)
            return [receive(list(_pieces(_file(folder, group)))) for group in sorted(sent)]
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _file(folder: Path, group: int) -> Path:
    return folder / f"{group:06d}"


def _put(file: BinaryIO, data: bytes) -> None:
    file.write(len(data).to_bytes(8, "little"))
    file.write(data)


def _pieces(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while head := file.read(8):
            yield file.read(int.from_bytes(head, "little"))
