"""States of a live run as of its last committed epoch, for readers in any thread, also where another head takes the place of the one that is read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any, TypeVar

from timelapse.errors import SourceError, UsageError
from timelapse.kinds.base import StateSpec
from timelapse.program.program import spec_of
from timelapse.streaming.committed import NotKnown, Replaced, looked_up
from timelapse.streaming.format import Epoch
from timelapse.streaming.head import Head
from timelapse.streaming.loop import Loop

T = TypeVar("T")
KeyOf = Callable[[StateSpec], Any]
"""Gives a key, where that depends on how its state is declared."""


class States:
    """What is asked is asked of one head, which has its program: a read never has the declaration of one and the states of another.

    Raises UsageError for a state that is not there, SourceError (TL945) where the run has not begun, or where an epoch was given up and must be waited for.
    """

    def __init__(self, loop: Loop) -> None:
        self._loop = loop

    def all(self, name: str) -> dict[Any, Any]:
        """What a state holds."""
        return self._asked(
            lambda head: head.committed.all(_spec(head, name))[0],
            lambda head: dict(head.kernel.items(_spec(head, name).name)),
        )

    def some(self, name: str, most: int) -> tuple[list[tuple[Any, Any]], Epoch | None]:
        """So many keys with what is stored under them, or all, and the epoch."""
        return self._asked(
            lambda head: head.committed.some(_spec(head, name), most),
            lambda head: (list(islice(head.kernel.items(_spec(head, name).name), most)), head.last),
        )

    def look(self, asked: Mapping[str, Sequence[Any]]) -> tuple[dict[str, list[Any]], Epoch | None]:
        """What states hold under some keys, and the epoch."""

        def pairs(head: Head) -> list[tuple[StateSpec, Any]]:
            return [(_spec(head, name), key) for name, keys in asked.items() for key in keys]

        values, epoch = self._look(pairs)
        found = iter(values)
        return {name: list(islice(found, len(keys))) for name, keys in asked.items()}, epoch

    def read(self, name: str, key_of: KeyOf) -> tuple[Any, Epoch | None]:
        """What a state holds under one key, and the epoch."""

        def pairs(head: Head) -> list[tuple[StateSpec, Any]]:
            spec = _spec(head, name)
            return [(spec, key_of(spec))]

        (value,), epoch = self._look(pairs)
        return value, epoch

    def glance(self, name: str, key_of: KeyOf) -> tuple[Any, Epoch | None] | None:
        """The same; None where an answer takes more than some milliseconds."""
        head = _there(self._loop.head)
        spec = _spec(head, name)
        return head.committed.glance(spec, key_of(spec))

    def _look(self, pairs: Callable[[Head], list[tuple[StateSpec, Any]]]) -> tuple[list[Any], Epoch | None]:
        return self._asked(
            lambda head: head.committed.look(pairs(head)),
            lambda head: ([looked_up(head.kernel.state(s.name), key) for s, key in pairs(head)], head.last),
        )

    def _asked(self, committed: Callable[[Head], T], settled: Callable[[Head], T]) -> T:
        """What one head keeps of its last epoch; where that is not known any more, what there is once nothing is being processed."""
        known = True
        while known:
            with suppress(Replaced):
                try:
                    return committed(_there(self._loop.head))
                except NotKnown:
                    known = False
        with self._loop.lock:
            head = _there(self._loop.head)
            if head.torn:
                raise SourceError(
                    "the run has ended within an epoch, and its states are not those of any", hint="begin it again", code="TL945"
                )  # fmt: skip
            return settled(head)


def _there(head: Head | None) -> Head:
    if head is None:
        raise SourceError(
            "the live run has not begun", hint="wait for its first epoch: run.until(...)", code="TL945"
        )
    return head


def _spec(head: Head, name: str) -> StateSpec:
    spec = spec_of(head.program)
    if name not in spec.declared:
        raise UsageError(
            f"{spec.name} has no state {name!r}", hint=f"states: {', '.join(spec.declared)}", code="TL810"
        )
    return spec.declared[name]
