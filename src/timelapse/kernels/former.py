"""Reading states of a kernel that stays open as they were at some moment, while it goes on."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn, Protocol


class Guard:
    """What a kernel holds while it changes what readers look into. It is handed on: who waits for it gets it before who has just let go of it
    asks again. With a plain lock a kernel that takes it for every few thousand events would be quicker than any reader each time.
    """

    def __init__(self) -> None:
        self._next, self._held = threading.Lock(), threading.Lock()

    def __enter__(self) -> None:
        with self._next:
            self._held.acquire()

    def __exit__(self, *error: object) -> None:
        self._held.release()

    @contextmanager
    def within(self, seconds: float) -> Iterator[bool]:
        """The same for who does not wait longer, twice at most: whether it has it."""
        has = self._next.acquire(timeout=seconds)
        if has:
            has = self._held.acquire(timeout=seconds)
            self._next.release()
        try:
            yield has
        finally:
            if has:
                self._held.release()


class NeedsAll(Exception):
    """What is asked of a state takes all its keys: `Former.taken` has them."""


class Former(Protocol):
    """A state as it was when its kernel was last settled (`EpochKernel.settle`): a store (kinds.base.Store) that is only read, by whoever
    holds the kernel's guard. Operations that take all keys raise NeedsAll.
    """

    stored_under: Callable[[tuple[Any, ...]], Iterable[Any]] | None
    """Gives the stored keys that begin with the parts of a declared one; None where there is no index of these."""

    def get(self, key: Any, default: Any) -> Any:
        """What the key held, or the default."""

    def some(self, most: int) -> list[tuple[Any, Any]]:
        """So many keys with what they held, or all."""

    def taken(self) -> Callable[[], dict[Any, Any]]:
        """All of it, copied now. What is given makes a dict of it, which needs no guard."""


class ReadOnly:
    """The rest of such a store."""

    stored_under: Callable[[tuple[Any, ...]], Iterable[Any]] | None = None

    def items(self) -> NoReturn:
        raise NeedsAll

    def put(self, key: Any, value: Any) -> NoReturn:
        raise TypeError("states of a moment that is past are only read")

    def drop(self, key: Any) -> NoReturn:
        raise TypeError("states of a moment that is past are only read")

    def side(self, table: dict[Any, Any], key: Any, value: Any) -> None:
        table[key] = value
