"""Making the next items of an iterator in another thread while this one works on those before."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

T = TypeVar("T")

DEPTH = 3
"""Items that wait at most, beside the one that is being made: this bounds the memory."""
_LOOK = 0.05
"""Seconds after which a thread that waits for room looks whether its items are still wanted."""


class _End(Generic[T]):
    """The last thing in a queue: how the iterator ended."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.error = error


@contextmanager
def ahead(make: Callable[[], Iterator[T]], depth: int = DEPTH) -> Iterator[Iterator[T]]:
    """The items of `make()`, in order, made in a thread of their own.

    What the iterator raises is raised in its place. Leaving the block, for whatever reason, closes the
    iterator and ends the thread; an item that is just being made is finished first. It is worth it where
    making items leaves the interpreter's lock alone.
    """
    items: queue.Queue[T | _End[T]] = queue.Queue(depth)
    stop = threading.Event()
    thread = threading.Thread(target=_fill, args=(make, items, stop), name="timelapse-decode", daemon=True)
    thread.start()
    try:
        yield _taken(items)
    finally:
        stop.set()
        thread.join()


def _fill(make: Callable[[], Iterator[T]], items: queue.Queue[T | _End[T]], stop: threading.Event) -> None:
    end: _End[T] = _End()
    try:
        made = make()
        try:
            for item in made:
                if not _put(item, items, stop):
                    return
        finally:
            if hasattr(made, "close"):
                made.close()
    except BaseException as error:
        end = _End(error)
    _put(end, items, stop)


def _put(item: T | _End[T], items: queue.Queue[T | _End[T]], stop: threading.Event) -> bool:
    """Whether the item was put in before the items were no longer wanted."""
    while not stop.is_set():
        try:
            items.put(item, timeout=_LOOK)
        except queue.Full:
            continue
        return True
    return False


def _taken(items: queue.Queue[T | _End[T]]) -> Iterator[T]:
    while True:
        item = items.get()
        if isinstance(item, _End):
            if item.error is not None:
                raise item.error
            return
        yield item
