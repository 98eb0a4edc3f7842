"""Where a pass spends its time, by phase."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")
_END = object()

now = time.perf_counter
"""What time is measured with; benchmarks replace it by the thread's processor time."""


class Clock:
    """Seconds by phase. Two threads may use it for different phases."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def add(self, phase: str, seconds: float) -> None:
        self.seconds[phase] = self.seconds.get(phase, 0.0) + seconds

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """What happens inside counts for the phase."""
        began = now()
        try:
            yield
        finally:
            self.add(name, now() - began)

    def items(self, phase: str, made: Iterator[T]) -> Iterator[T]:
        """The same items; making each counts for the phase."""
        while True:
            with self.phase(phase):
                item = next(made, _END)
            if item is _END:
                return
            yield item  # type: ignore[misc]

    def call(self, phase: str, function: Callable[[T], R]) -> Callable[[T], R]:
        """The same function; each call counts for the phase."""

        def timed(argument: T) -> R:
            with self.phase(phase):
                return function(argument)

        return timed
