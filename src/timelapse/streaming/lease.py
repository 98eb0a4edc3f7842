"""Who runs a live run: a hint that keeps two processes from quarrelling. It is no lock, and nothing depends on it: of two processes that
commit an epoch one comes second, and stops (streaming/chain.py)."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import msgspec

from timelapse.decoding import decoded
from timelapse.errors import StorageError
from timelapse.store.scratch import is_running
from timelapse.store.waiting import at_most
from timelapse.streaming.place import RunPlace

NAME = "lease"
EVERY = 0.5
"""Seconds between two renewals."""
LOOK = EVERY / 2
"""Seconds between two looks whether somebody else has renewed it."""
SURE = 2.0
"""Seconds after which a lease that nobody has renewed is nobody's."""
_MOMENT = 0.02
_own: dict[str, Callable[[], bool]] = {}
"""The writers that run in this process, and whether each was asked to end."""


class Lease(msgspec.Struct, frozen=True):
    """Who has a live run, and how often it said so: who waits watches that number, as clocks of two machines differ."""

    writer: str
    host: str
    process: int
    count: int
    ended: bool = False


def hold(place: RunPlace, writer: str, count: int, *, ended: bool = False) -> None:
    """Say that a writer is there, or that it has ended."""
    lease = Lease(writer, socket.gethostname(), os.getpid(), count, ended)
    with at_most(EVERY):
        place.hint(NAME, msgspec.json.encode(lease))


@contextmanager
def running(writer: str, ending: Callable[[], bool]) -> Iterator[None]:
    """A writer runs in this process meanwhile. `ending`: whether it was asked to end."""
    _own[writer] = ending
    try:
        yield
    finally:
        del _own[writer]


def other(place: RunPlace, wait: Callable[[float], object]) -> Lease | None:
    """Who has a live run now: the lease, where somebody renews it. `wait` sleeps so many seconds.

    Returns at once where there is none, its holder has ended, or was a process of this machine that is gone. One of this process that was asked to end is waited for.
    """
    first = _read_here(place)
    if first is None or first.ended:
        return None
    if first.host == socket.gethostname():
        if first.process == os.getpid():
            while (ending := _own.get(first.writer)) is not None:
                if not ending():
                    return first
                wait(_MOMENT)
            return None
        if not is_running(first.process):
            return None
    for _ in range(
        round(SURE / LOOK)
    ):  # looks, not seconds: while this process is held up, so may the other be
        wait(LOOK)
        found = _read_here(place)
        if found is not None and found != first:
            return None if found.ended else found
    return None


def _read_here(place: RunPlace) -> Lease | None:
    with suppress(StorageError):
        return read(place)
    return None


def read(place: RunPlace) -> Lease | None:
    """The lease; None where there is none that can be read. Raises StorageError where the store is away."""
    try:
        with at_most(EVERY):
            return decoded(place.read(NAME), Lease)
    except (OSError, msgspec.MsgspecError):
        return None


class Watch:
    """Whether a writer is there: it has renewed its lease within the last seconds, by this process's clock.

    Between two looks `EVERY` counts at most: who was held up for longer has not looked meanwhile, and the other may have been held up too.
    """

    def __init__(self, place: RunPlace, patience: float) -> None:
        self._place, self._patience = place, patience
        self._seen: Lease | None = None
        self._silent, self._looked = 0.0, time.monotonic()

    def alive(self) -> bool:
        """Asked again and again; False once nobody has renewed the lease for so long, or its holder has ended.

        While a store is away nobody can renew it: the time in which it has to be renewed begins anew.
        """
        now = time.monotonic()
        passed, self._looked = min(now - self._looked, EVERY), now
        try:
            found = read(self._place)
        except StorageError:
            self._silent = 0.0
            return True
        self._silent = self._silent + passed if found == self._seen else 0.0
        self._seen = found
        return (found is None or not found.ended) and self._silent <= self._patience
