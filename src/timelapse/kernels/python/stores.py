"""Where an interpreted kernel keeps a state's values: dicts, loaded at the slice's start."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from timelapse.kinds.base import ABSENT
from timelapse.kinds.effects import Journal


class PlainStore:
    """A state that the pass keeps exactly but whose changes nobody asks for."""

    __slots__ = ("data", "get", "items", "put")

    def __init__(self, data: dict[Any, Any]) -> None:
        self.data = data
        self.get: Callable[[Any, Any], Any] = data.get
        self.put: Callable[[Any, Any], None] = data.__setitem__
        self.items: Callable[[], Iterable[tuple[Any, Any]]] = data.items

    def drop(self, key: Any) -> None:
        self.data.pop(key, None)

    def side(self, table: dict[Any, Any], key: Any, value: Any) -> None:
        """Nothing is ever undone here."""
        if value is ABSENT:
            table.pop(key, None)
        else:
            table[key] = value


class TrackedStore:
    """A state whose changes are collected: `before` holds what each written key was at the start.

    With a journal, writes can be undone within an event.
    """

    __slots__ = ("_older", "before", "data", "get", "items", "journal")

    def __init__(self, data: dict[Any, Any], journal: Journal | None) -> None:
        self.data = data
        self.get: Callable[[Any, Any], Any] = data.get
        self.items: Callable[[], Iterable[tuple[Any, Any]]] = data.items
        self.before: dict[Any, Any] = {}
        self._older: dict[Any, Any] | None = None
        self.journal = journal

    def begin(self) -> None:
        """A new slice begins. An empty `before` stays the same one: somebody may be reading beside it."""
        self.before, self._older = self.before and {}, None

    def settle(self) -> None:
        """From now on `before` is what written keys hold now; `since_start` still tells what they held at the start."""
        if self._older is None:
            self._older = self.before
        else:
            for key, value in self.before.items():
                self._older.setdefault(key, value)
        self.before = {}

    @property
    def since_start(self) -> dict[Any, Any]:
        """What each written key held at the slice's start."""
        return self.before if self._older is None else {**self.before, **self._older}

    def put(self, key: Any, value: Any) -> None:
        data = self.data
        if key not in self.before:
            self.before[key] = data.get(key, ABSENT)
        if self.journal is not None:
            self.journal.append((data, key, data.get(key, ABSENT)))
        data[key] = value

    def drop(self, key: Any) -> None:
        data = self.data
        old = data.get(key, ABSENT)
        if old is ABSENT:
            return
        self.before.setdefault(key, old)
        if self.journal is not None:
            self.journal.append((data, key, old))
        del data[key]

    def side(self, table: dict[Any, Any], key: Any, value: Any) -> None:
        if self.journal is not None:
            self.journal.append((table, key, table.get(key, ABSENT)))
        if value is ABSENT:
            table.pop(key, None)
        else:
            table[key] = value


class NullStore:
    """A state that matters to nobody in this pass."""

    __slots__ = ()

    def get(self, key: Any, default: Any) -> Any:
        return default

    def put(self, key: Any, value: Any) -> None:
        """Dropped."""

    def drop(self, key: Any) -> None:
        """Dropped."""

    def items(self) -> Iterable[tuple[Any, Any]]:
        return ()

    def side(self, table: dict[Any, Any], key: Any, value: Any) -> None:
        """Dropped."""
