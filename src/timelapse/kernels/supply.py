"""Making the items of an iterator for several threads that all go through them, by whichever of them has the time."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from typing import Generic, TypeVar

T = TypeVar("T")

WAITING = 3
"""Items that wait for a thread at most: this bounds the memory."""


class Supply(Generic[T]):
    """The items of an iterator for several threads, in order, each for all of them.

    Who asks while nobody makes one and few wait makes the next: a thread for that alone would compete with the takers for
    cores, and they would wait for it in turn. What the iterator raises ends it for all; `check` raises it.
    """

    def __init__(self, made: Iterator[T], takers: int) -> None:
        self._made = made
        self._waiting: list[deque[T]] = [deque() for _ in range(takers)]
        self._changed = threading.Condition()
        self._making = self._over = False
        self._error: BaseException | None = None

    def of(self, taker: int) -> Iterator[T]:
        """What one thread gets."""
        while (item := self._next(self._waiting[taker])) is not None:
            yield item

    def close(self) -> None:
        """No more is made, after an error or the last item."""
        with self._changed:
            self._over = True
            self._changed.notify_all()

    def check(self) -> None:
        """Raise what went wrong in making items, if anything did."""
        if self._error is not None:
            raise self._error

    def _next(self, own: deque[T]) -> T | None:
        while True:
            with self._changed:
                while not (makes := self._is_wanted()) and not own and not self._over:
                    self._changed.wait()
                if not makes:
                    self._changed.notify_all()  # there is room for one more
                    return own.popleft() if own else None
                self._making = True
            self._make()

    def _is_wanted(self) -> bool:
        return not self._making and not self._over and max(map(len, self._waiting)) < WAITING

    def _make(self) -> None:
        item, error = None, None
        try:
            item = next(self._made, None)
        except BaseException as raised:
            error = raised
        with self._changed:
            self._making = False
            if item is None:
                self._over = True
                self._error = self._error or error
            else:
                for waiting in self._waiting:
                    waiting.append(item)
            self._changed.notify_all()
