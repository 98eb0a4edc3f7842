"""What was used last, by key, in a bounded number."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Kept(Generic[K, V]):
    """At most so many values; the one that was asked for longest ago goes first. For any number of threads."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._found: OrderedDict[K, V] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: K, make: Callable[[], V]) -> V:
        """The value of a key, which is made where there is none. Two threads may make it at once: both get the same one."""
        with self._lock:
            if key in self._found:
                self._found.move_to_end(key)
                return self._found[key]
        made = make()
        with self._lock:
            value = self._found.setdefault(key, made)
            self._found.move_to_end(key)
            while len(self._found) > self._most:
                self._found.popitem(last=False)
        return value

    def clear(self) -> None:
        """Forget all of them."""
        with self._lock:
            self._found.clear()
