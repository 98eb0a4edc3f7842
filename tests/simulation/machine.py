"""A machine on which simulated processes live and die: its clock and its disk."""

from __future__ import annotations

import contextlib
import os
import queue
import random
import shutil
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from timelapse.store.disk import LocalDisk
from timelapse.store.parts import Part

T = TypeVar("T")


class Killed(BaseException):
    """The process is gone: none of its code runs any more."""


@dataclass
class Faults:
    """How likely things go wrong, by operation or task."""

    kill: float = 0.0
    """The driver's process is killed at an operation of its disk."""
    error: float = 0.0
    """Such an operation fails."""
    full: float = 0.0
    """A task's write fails: no space."""
    crash: float = 0.0
    """An attempt at a task dies, having written some of its files, and another one is begun."""
    lost: float = 0.0
    """Spark gives a task up: its attempts died too often."""
    hang: float = 0.0
    """An attempt takes very long."""
    twice: float = 0.0
    """A result is delivered twice."""
    lie: float = 0.0
    """A pass that runs ahead finds something else than what the program does: a bug in the analysis."""
    tear: float = 0.0
    """Of files that were there when a driver was killed: one is altered."""
    power: float = 0.0
    """A kill is a loss of power: what was not synced may be lost."""
    locks: bool = True
    two: bool = False
    """Two drivers at once."""


@dataclass
class Machine:
    """`root` is a folder on a real file system, in memory."""

    root: Path
    rng: random.Random
    faults: Faults
    time: float = 0.0
    dead: set[str] = field(default_factory=set)
    synced: set[int] = field(default_factory=set)
    """Files and folders whose content is safe from a loss of power, by inode."""
    trace: list[str] = field(default_factory=list)
    late: list[Callable[[], None]] = field(default_factory=list)
    """What executors still write for drivers that were killed."""
    _count: int = 0
    _names: dict[str, str] = field(default_factory=dict)

    def number(self) -> int:
        """Another number, the same in the same run."""
        self._count += 1
        return self._count

    def say(self, who: str, what: str, *paths: Path) -> None:
        """Note something."""
        told = [str(path).removeprefix(str(self.root)) for path in paths]
        self.trace.append(f"{self.time:.3f} {who} {what} {' '.join(told)}")

    def files(self) -> list[Path]:
        """All files in the place where runs are made."""
        return sorted(path for path in (self.root / "runs").rglob("*") if path.is_file())

    def lose_power(self) -> None:
        """Files whose content was not synced are empty, cut, or gone."""
        for path in self.files():
            if path.stat().st_ino not in self.synced and self.rng.random() < 0.5:
                self.say("power", "lost", path)
                _damage(path, self.rng)

    def tear(self) -> None:
        """Alter a file, or have two change places."""
        there = [path for path in self.files() if not path.name.endswith(".lock")]
        if not there:
            return
        path = self.rng.choice(there)
        if self.rng.random() < 0.4 and len(there) > 1:
            other = self.rng.choice([p for p in there if p != path])
            self.say("disk", "swapped", path, other)
            aside = path.with_name(path.name + "~")
            os.rename(path, aside)
            os.rename(other, path)
            os.rename(aside, other)
        else:
            self.say("disk", "tore", path)
            _damage(path, self.rng)


def _damage(path: Path, rng: random.Random) -> None:
    data = bytearray(path.read_bytes())
    kind = rng.randrange(3) if data else 2
    if kind == 0:
        data = data[: rng.randrange(len(data))]
    elif kind == 1:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    path.unlink()
    if kind < 2 or rng.random() < 0.5:
        path.write_bytes(bytes(data) if kind < 2 else b"")


class SimulatedClock:
    """Time passes only where the executor says so."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def now(self) -> float:
        return self._machine.time

    def wait(self, arrivals: queue.SimpleQueue[T], seconds: float) -> T:
        return arrivals.get_nowait()


class SimulatedDisk(LocalDisk):
    """A process's view of the machine's disk. Every operation may be its last."""

    def __init__(self, machine: Machine, name: str, turn: Turn | None = None) -> None:
        self.machine, self.name, self.alive = machine, name, True
        self._turn = turn
        self._held: dict[Path, int] = {}

    def die(self) -> None:
        """Kill the process: the system closes what it had open."""
        self.alive = False
        self.machine.say(self.name, "killed")
        self.machine.dead.add(self.name)
        for handle in self._held.values():
            os.close(handle)
        self._held.clear()

    def _at(self, what: str, *paths: Path, writes: bool = True) -> None:
        if not self.alive:
            raise Killed(self.name)
        if self._turn is not None:
            self._turn.over(self.name)
            if not self.alive:
                raise Killed(self.name)
        self.machine.say(self.name, what, *paths)
        if not writes:
            return
        if self.machine.rng.random() < self.machine.faults.kill:
            self.die()
            raise Killed(self.name)
        if self.machine.rng.random() < self.machine.faults.error:
            raise OSError(5, "the disk does not answer", str(paths[0]) if paths else None)

    def owner(self) -> str:
        return self.name

    def unique(self) -> str:
        return f"{self.machine.number():08x}"

    def is_dead(self, owner: str) -> bool:
        return owner in self.machine.dead

    def hold(self, path: Path) -> int | None:
        self._at("hold", path)
        if not self.machine.faults.locks:
            return None
        handle = super().hold(path)
        assert handle is not None
        self._held[path] = handle
        return handle

    def let_go(self, path: Path, handle: int) -> None:
        self._at("let go", path, writes=False)
        self._held.pop(path, None)
        super().let_go(path, handle)

    def make(self, folder: Path) -> None:
        self._at("make", folder)
        super().make(folder)

    def make_all(self, folder: Path) -> None:
        self._at("make all", folder)
        super().make_all(folder)

    def names(self, folder: Path) -> list[str]:
        self._at("names", folder, writes=False)
        return super().names(folder)

    def files(self, folder: Path) -> list[str]:
        self._at("files", folder, writes=False)
        return super().files(folder)

    def read(self, path: Path) -> bytes:
        self._at("read", path, writes=False)
        return super().read(path)

    def write(self, path: Path, data: bytes, *, lasting: bool = False, new: bool = False) -> Part:
        self._at("write", path)
        part = super().write(path, data, lasting=lasting, new=new)
        if lasting:
            self.machine.synced.add(path.stat().st_ino)
        return part

    def move(self, old: Path, new: Path) -> None:
        self._at("move", old, new)
        super().move(old, new)

    def swap(self, a: Path, b: Path) -> bool:
        self._at("swap", a, b)
        return super().swap(a, b)

    def remove(self, path: Path) -> None:
        self._at("remove", path)
        if self.machine.rng.random() < self.machine.faults.kill and path.is_dir():  # in the middle of it
            for inner in sorted(p for p in path.rglob("*") if p.is_file())[::2]:
                inner.unlink()
            self.die()
            raise Killed(self.name)
        super().remove(path)

    def sync(self, path: Path) -> None:
        self._at("sync", path)
        with contextlib.suppress(FileNotFoundError):
            self.machine.synced.add(path.stat().st_ino)
        if not path.exists():
            raise FileNotFoundError(2, "No such file or directory", str(path))


class Turn:
    """Two processes that take turns, as the seed has it: one of two threads runs at a time."""

    def __init__(self, rng: random.Random, names: tuple[str, str]) -> None:
        self._rng = rng
        self._names = names
        self._gates = {name: threading.Semaphore(0) for name in names}
        self._done: set[str] = set()

    def begin(self, name: str) -> None:
        """Wait for the first turn."""
        self._gates[name].acquire()

    def go(self) -> None:
        """Let the first one run."""
        self._gates[self._names[0]].release()

    def over(self, name: str) -> None:
        """Whoever runs may have to wait here while the other does."""
        other = self._names[1 - self._names.index(name)]
        if other not in self._done and self._rng.random() < 0.25:
            self._gates[other].release()
            self._gates[name].acquire()

    def end(self, name: str) -> None:
        """A process is done, or dead."""
        self._done.add(name)
        self._gates[self._names[1 - self._names.index(name)]].release()


def clear(folder: Path) -> None:
    """Remove what a seed left."""
    shutil.rmtree(folder, ignore_errors=True)
