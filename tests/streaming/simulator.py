"""A place that fails: what a file system, an object store or a machine may do at any moment, by seed."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator

from timelapse.errors import StorageError


class Crash(BaseException):
    """The process is gone."""


class Disk:
    """What is durable: it outlives processes."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.hints: dict[str, bytes] = {}
        self.on_the_way: list[tuple[str, bytes]] = []
        """Writes that nobody waits for any more, and that may land yet."""


class SimulatedPlace:
    """A process's view of a disk. `crash`: how likely the process dies around a write; `trouble`: how likely an answer is
    an error, whether the write has landed or not; `late`: how likely such a write lands some time later, as in an object store, and how likely nothing is answered."""

    def __init__(
        self, disk: Disk, rng: random.Random, crash: float = 0.0, trouble: float = 0.0, late: float = 0.0
    ) -> None:
        self.disk, self.rng, self.crash, self.trouble, self.late = disk, rng, crash, trouble, late
        self.writes = 0

    def _arrive(self) -> None:
        """Some of what is on the way arrives; it was put if there was none."""
        still = self.disk.on_the_way
        self.disk.on_the_way = []
        for name, data in still:
            if self.rng.random() < 0.3:
                self.disk.files.setdefault(name, data)
            else:
                self.disk.on_the_way.append((name, data))

    def create(self, name: str, data: bytes) -> None:
        self.writes += 1
        self._arrive()
        if self.late and self.rng.random() < self.late:
            self.disk.on_the_way.append((name, data))
            raise StorageError("it is on the way", code="TL935")
        if self.rng.random() < self.crash:
            raise Crash(f"before {name}")
        if self.rng.random() < self.trouble:
            raise OSError(5, "it did not land")
        if name in self.disk.files:
            raise FileExistsError(17, name)
        self.disk.files[name] = data
        if self.rng.random() < self.crash:
            raise Crash(f"after {name}")
        if self.rng.random() < self.trouble:
            raise FileExistsError(17, name) if self.rng.random() < 0.3 else OSError(5, "it has landed")

    def read(self, name: str) -> bytes:
        self._arrive()
        if self.late and self.rng.random() < self.late:
            raise StorageError("nothing is answered", code="TL935")
        if name in self.disk.hints:
            return self.disk.hints[name]
        try:
            return self.disk.files[name]
        except KeyError:
            raise FileNotFoundError(2, name) from None

    def pieces(self, name: str, start: int = 0) -> Iterator[bytes]:
        data = self.read(name)
        for at in range(start, len(data), 64):
            yield data[at : at + 64]

    def remove(self, names: Iterable[str]) -> None:
        for name in names:
            if self.rng.random() < self.crash:
                raise Crash(f"before {name} is removed")
            self.disk.files.pop(name, None)

    def exists(self, name: str) -> bool:
        return name in self.disk.files

    def hint(self, name: str, data: bytes) -> None:
        if self.rng.random() < self.crash:
            raise Crash("at a hint")
        if self.rng.random() < 0.7:
            self.disk.hints[name] = data

    def names(self, folder: str) -> Iterator[str]:
        return iter(sorted(n.partition("/")[2] for n in self.disk.files if n.startswith(f"{folder}/")))

    def __str__(self) -> str:
        return "simulated"
