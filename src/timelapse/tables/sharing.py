"""Sharing out work among threads: the one place where it is done.

It is worth it for calls that leave the interpreter's lock alone: machine code, Arrow, NumPy, files.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

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
