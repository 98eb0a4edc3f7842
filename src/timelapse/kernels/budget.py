"""A bound on what one event may take in a pass that runs ahead.

Such a pass begins from start states that are only predicted, or keeps a part of the handlers only. A loop that
ends in the serial meaning may then go on for ever, and the pass would never tell. So it has a budget: rounds of
its loops in compiled code, processor time of its thread in Python. What spends it is no error: the slice counts
as unknown, and runs again once its start is exact, without one.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

ROUNDS = 100_000_000
"""Rounds of loops that one event may take in compiled code that runs ahead."""
UNBOUNDED = 2**62
"""The same where the start is exact."""
SECONDS = 5.0
"""Processor seconds that one event may take as Python, in a pass that runs ahead."""
_LOOK = 0.1


def _raise(ident: int, error: type[BaseException] | None) -> None:
    """Have a thread raise this at its next instruction; None takes back what it has not raised yet."""
    what = None if error is None else ctypes.py_object(error)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(ident), what)


class Spent(BaseException):
    """The budget of one event is spent. No handler catches it as an error of its own."""


class Budget:
    """Raises Spent in this thread when one turn takes more than so many seconds of its processor time.

    `turn` says what the thread is at: anything that changes when it goes on to something else, None while there is
    nothing to bound. It is asked by another thread, ten times a second. Code in C that does not come back to the
    interpreter cannot be interrupted. Where the system does not tell a thread's processor time, time passes instead.

    Spent may come a moment late, in the turn after. It does not come once the block is left.
    """

    def __init__(self, seconds: float, turn: Callable[[], object]) -> None:
        self._seconds, self._turn = seconds, turn
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._ident = 0
        self._clock: Callable[[], float] = time.monotonic

    def __enter__(self) -> Self:
        self._ident = threading.get_ident()
        clock_of = getattr(time, "pthread_getcpuclockid", None)
        if clock_of is not None:
            clock = clock_of(self._ident)
            self._clock = lambda: time.clock_gettime(clock)
        threading.Thread(target=self._watch, name="timelapse-budget", daemon=True).start()
        return self

    def _watch(self) -> None:
        last, since = self._turn(), self._clock()
        while not self._over.wait(min(_LOOK, self._seconds / 4)):
            now = self._turn()
            if now is None or now != last:
                last, since = now, self._clock()
            elif self._clock() - since > self._seconds:
                with self._lock:
                    if not self._over.is_set():
                        _raise(self._ident, Spent)
                since = self._clock() - self._seconds / 2  # again, where a handler has caught it

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._stop()
        except Spent:  # it came just now, when all was done
            self._stop()

    def _stop(self) -> None:
        self._over.set()
        with self._lock:  # the other thread is not in the middle of it
            _raise(self._ident, None)
