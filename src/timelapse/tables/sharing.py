"""Sharing out work among threads: the one place where it is done.

It is worth it for calls that leave the interpreter's lock alone: machine code, Arrow, NumPy, files.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Self, TypeVar

T = TypeVar("T")


def in_order(call: Callable[[int], T], count: int, threads: int) -> Iterator[T]:
    """What `call` gives for 0 to `count` - 1, in order; so many at a time as there are threads."""
    if min(threads, count) < 2:
        yield from map(call, range(count))
        return
    with ThreadPoolExecutor(min(threads, count)) as pool:
        waiting: deque[Future[T]] = deque()
        for at in range(count):
            waiting.append(pool.submit(call, at))
            if len(waiting) >= threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def at_once(calls: Sequence[tuple[int, Callable[[], T]]], threads: int) -> list[T]:
    """What these calls give, in their order. The largest begin first: each comes with its size, in whatever unit.

    All have ended when this returns or raises. Of several errors the first in order is raised.
    """
    if min(threads, len(calls)) < 2:
        return [call() for _, call in calls]
    with ThreadPoolExecutor(min(threads, len(calls))) as pool:
        made: dict[int, Future[T]] = {}
        for at in sorted(range(len(calls)), key=lambda at: -calls[at][0]):
            made[at] = pool.submit(calls[at][1])
        return [made[at].result() for at in range(len(calls))]


class Beside:
    """Work done in one other thread while this one goes on, a piece at a time; here and at once where there is none.

    Leaving the block waits for it, and raises what it raised unless something else is being raised.
    """

    def __init__(self, threads: int) -> None:
        self._pool = ThreadPoolExecutor(1, "timelapse-beside") if threads > 1 else None
        self._last: Future[None] | None = None
        self.seconds = 0.0
        """What the work took that was done beside."""

    def do(self, work: Callable[[], None]) -> None:
        """Begin this once what was begun before has ended. Raises what that raised."""
        self.wait()
        if self._pool is None:
            work()
        else:
            self._last = self._pool.submit(self._timed, work)

    def wait(self) -> None:
        """Until what was begun has ended. Raises what it raised."""
        last, self._last = self._last, None
        if last is not None:
            last.result()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self.wait()
        finally:
            if self._pool is not None:
                self._pool.shutdown()

    def _timed(self, work: Callable[[], None]) -> None:
        began = time.perf_counter()
        try:
            work()
        finally:
            self.seconds += time.perf_counter() - began
