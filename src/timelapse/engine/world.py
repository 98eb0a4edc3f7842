"""What a driver knows of the world: time and the disk. Executors (engine/executor.py) are the rest: other processes, and the network.

All are interfaces. A simulated world needs no time, fails at will, and is the same each time.
"""

from __future__ import annotations

import queue
import time
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from timelapse.store.disk import DISK, Disk

T = TypeVar("T")


class Clock(Protocol):
    """What the driver knows of time."""

    def now(self) -> float:
        """Seconds from some moment on; never less than before."""

    def wait(self, arrivals: queue.SimpleQueue[T], seconds: float) -> T:
        """What arrives first. Raises queue.Empty when so many seconds have passed without."""


class RealClock:
    """This machine's."""

    def now(self) -> float:
        return time.perf_counter()

    def wait(self, arrivals: queue.SimpleQueue[T], seconds: float) -> T:
        return arrivals.get(timeout=seconds)


@dataclass(frozen=True)
class Straggling:
    """When a task that hangs is begun again elsewhere: it takes `factor` times what its events took in other tasks of the same
    pass (their median, of at least `others` tasks), and `seconds` at least."""

    factor: float = 3.0
    seconds: float = 5.0
    others: int = 2


@dataclass(frozen=True)
class World:
    """Where a driver is."""

    clock: Clock = field(default_factory=RealClock)
    disk: Disk = DISK
    straggling: Straggling = field(default_factory=Straggling)


REAL = World()
