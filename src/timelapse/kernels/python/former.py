"""States of handlers that run as Python, as they were when the kernel was last settled."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Any

from timelapse.kernels.former import ReadOnly
from timelapse.kernels.python.stores import PlainStore, TrackedStore
from timelapse.kinds.base import ABSENT
from timelapse.kinds.grouped import GROUPS, Grouped
from timelapse.model.types import TupleType


class FormerDict(ReadOnly):
    """`before` has what keys held that were written since, or ABSENT.

    A kernel notes what a key held before it writes the key. So who looks at the key first and then at what was noted finds the one or the other,
    whatever the kernel does meanwhile, also without a guard.
    """

    def __init__(
        self,
        data: dict[Any, Any],
        before: Mapping[Any, Any],
        under: Callable[[tuple[Any, ...]], list[Any]] | None = None,
    ) -> None:
        """`under`: gives the stored keys under a declared one, as they are now."""
        self._data, self._before, self._now_under = data, before, under
        if under is not None:
            self.stored_under = self._under

    def _under(self, head: tuple[Any, ...]) -> list[Any]:
        assert self._now_under is not None
        now = self._now_under(head)
        written = [key for key in dict(self._before) if key[: len(head)] == head]
        return [key for key in dict.fromkeys([*now, *written]) if self.get(key, ABSENT) is not ABSENT]

    def get(self, key: Any, default: Any) -> Any:
        now = self._data.get(key, ABSENT)
        was = self._before.get(key, now)
        return default if was is ABSENT else was

    def some(self, most: int) -> list[tuple[Any, Any]]:
        while True:
            try:  # each key that was written is one that may not have been there
                now = list(islice(self._data.items(), most + len(self._before)))
                break
            except RuntimeError:  # a key came while this looked
                continue
        before = dict(self._before)
        found = [(key, before.get(key, value)) for key, value in now]
        have = {key for key, _ in now}
        found += [(key, value) for key, value in before.items() if key not in have]
        return [(key, value) for key, value in found if value is not ABSENT][:most]

    def taken(self) -> Callable[[], dict[Any, Any]]:
        data = dict(self._data)
        before = dict(self._before)

        def made() -> dict[Any, Any]:
            data.update(before)
            return {key: value for key, value in data.items() if value is not ABSENT}

        return made


def settle(stores: Iterable[TrackedStore | PlainStore]) -> None:
    """What states hold now is what `former_of` gives from now on."""
    for store in stores:
        if isinstance(store, TrackedStore):
            store.settle()


def former_of(store: TrackedStore | PlainStore, state: Any, *, indexed: bool) -> FormerDict:
    """A state, from where its values are. `indexed`: whether its index is told of all that is written (FlatKernel does not)."""
    before = store.before if isinstance(store, TrackedStore) else {}
    groups = state._own.get(GROUPS) if indexed and isinstance(state, Grouped) else None
    if groups is None:
        return FormerDict(store.data, before)
    of_tuples = isinstance(state._spec.outer, TupleType)

    def under(head: tuple[Any, ...]) -> list[Any]:
        found = groups.get(head if of_tuples else head[0])
        return [] if found is None else list(found.values())

    return FormerDict(store.data, before, under)
