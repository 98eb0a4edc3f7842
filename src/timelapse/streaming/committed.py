"""States of the last committed epoch, for readers in other threads, also while the next epoch is processed or cannot be committed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from timelapse.kernels.former import Former, NeedsAll, ReadOnly
from timelapse.kernels.python.stores import PlainStore
from timelapse.kinds.base import ABSENT, StateSpec
from timelapse.streaming.format import Epoch
from timelapse.streaming.kernel import OpenKernel
from timelapse.streaming.running import Closed
from timelapse.tables.apply import empty
from timelapse.tables.lookup import MappedTable
from timelapse.tables.table import to_dict

T = TypeVar("T")
_GLANCE = 0.002
"""Seconds: a piece of events takes a quarter of that to a half."""


class NotKnown(Exception):
    """What states held at the last commit is not known any more: so much was written since, or the program runs as the serial loop.

    Who reads waits until nothing is being processed.
    """


class Replaced(Exception):
    """Another head has taken the place of the one whose states these are: who reads asks that one."""


@dataclass(frozen=True)
class _Moment:
    """A program that stood at the end of an epoch when it was shown."""

    opened: OpenKernel | Closed
    epoch: Epoch | None

    @property
    def guard(self) -> AbstractContextManager[None]:
        return nullcontext() if isinstance(self.opened, Closed) else self.opened.guard

    def former(self, spec: StateSpec) -> Former:
        """A state at that moment. Raises NotKnown."""
        if isinstance(self.opened, Closed):
            return _FormerStand(spec, self.opened)
        found = self.opened.former(spec.name)
        if found is None:
            raise NotKnown
        return found


class Committed:
    """What readers see. `show` is called by the thread that commits, all others by any thread.

    Each read is of one epoch, whose manifest it gives, and has the kernel's guard: never longer than it takes to look up, or to copy, what is asked for.
    So a kernel is closed once another one is shown: who had its guard is done then, and who gets it later sees that it is shown no more.
    """

    def __init__(self) -> None:
        self._now: _Moment | None = None
        self._over = False

    def show(self, opened: OpenKernel | Closed, epoch: Epoch | None) -> None:
        """A program stands at the end of the epoch that was committed last."""
        made, before = _Moment(opened, epoch), self._now
        with made.guard:
            if isinstance(opened, OpenKernel):
                opened.settle()
            self._now = made
        _close(before, opened)

    def close(self) -> None:
        """Nothing is shown any more: readers are told `Replaced`."""
        before, self._now, self._over = self._now, None, True
        _close(before)

    def look(self, asked: Sequence[tuple[StateSpec, Any]]) -> tuple[list[Any], Epoch | None]:
        """What states hold under some keys, as a handler would read them: all at one moment. Raises NotKnown."""

        def found(now: _Moment) -> list[Any]:
            late: dict[str, _Late] = {}
            values: list[Any] = []
            for spec, key in asked:
                former = now.former(spec)
                try:
                    values.append(_looked_up(spec, former, key, now.epoch))
                except NeedsAll:
                    if spec.name not in late:
                        late[spec.name] = _Late(former.taken())
                    values.append(late[spec.name])
            return values

        values, epoch = self._read(found)
        stores: dict[str, PlainStore] = {}
        for at, (spec, key) in enumerate(asked):
            if isinstance(late := values[at], _Late):
                if spec.name not in stores:
                    stores[spec.name] = PlainStore(late.taken())
                values[at] = _looked_up(spec, stores[spec.name], key, epoch)
        return values, epoch

    def glance(self, spec: StateSpec, key: Any) -> tuple[Any, Epoch | None] | None:
        """What a state holds under one key, as `look` gives it; None where that takes longer than a piece of events, or all of the state."""
        for _ in range(2):
            now = self._now
            if now is None:
                return None
            opened = now.opened
            with nullcontext(True) if isinstance(opened, Closed) else opened.guard.within(_GLANCE) as has:
                if not has:
                    return None
                if self._now is not now:  # an epoch was committed meanwhile
                    continue
                with suppress(NotKnown, NeedsAll):
                    return _looked_up(spec, now.former(spec), key, now.epoch), now.epoch
                return None
        return None

    def some(self, spec: StateSpec, most: int) -> tuple[list[tuple[Any, Any]], Epoch | None]:
        """So many of its keys with what is stored under them, or all. Raises NotKnown."""
        return self._read(lambda now: now.former(spec).some(most))

    def all(self, spec: StateSpec) -> tuple[dict[Any, Any], Epoch | None]:
        """All of them. Raises NotKnown."""
        made, epoch = self._read(lambda now: now.former(spec).taken())
        return made(), epoch

    def _read(self, look: Callable[[_Moment], T]) -> tuple[T, Epoch | None]:
        while True:
            now = self._now
            if now is None:
                raise Replaced if self._over else NotKnown
            with now.guard:
                if self._now is now:  # else an epoch was committed while this waited
                    return look(now), now.epoch


def _close(moment: _Moment | None, shown: OpenKernel | Closed | None = None) -> None:
    """Close the kernel that was shown until now, unless it still is."""
    if moment is not None and isinstance(moment.opened, OpenKernel) and moment.opened is not shown:
        moment.opened.close()


@dataclass(frozen=True)
class _Late:
    """A value that is found when the guard is given back, from all of a state."""

    taken: Callable[[], dict[Any, Any]]


def _looked_up(spec: StateSpec, store: Any, key: Any, epoch: Epoch | None) -> Any:
    state: Any = spec.kind(spec, store)
    state._now = lambda: 0 if epoch is None or epoch.complete is None else epoch.complete
    return looked_up(state, key)


def looked_up(state: Any, key: Any) -> Any:
    """What is under a key, whatever the kind: a value, whether a set has it, or the members of a group."""
    if state.presence:
        return key in state
    found = state[key]
    return (
        list(found) if isinstance(found, Iterable) and not isinstance(found, str | bytes | tuple) else found
    )


class _FormerStand(ReadOnly):
    """A state as a table, which nothing changes."""

    def __init__(self, spec: StateSpec, closed: Closed) -> None:
        self._spec = spec
        self._table = closed.stand.states.get(spec.name, empty(spec))

    def get(self, key: Any, default: Any) -> Any:
        found = MappedTable(self._spec, self._table).find(key)
        return default if found is ABSENT else found

    def some(self, most: int) -> list[tuple[Any, Any]]:
        return list(to_dict(self._spec, self._table.slice(0, most)).items())

    def taken(self) -> Callable[[], dict[Any, Any]]:
        return lambda: to_dict(self._spec, self._table)
