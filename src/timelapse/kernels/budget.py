"""A bound on what one event may take in a pass that runs ahead.

Such a pass begins from start states that are only predicted, or keeps a part of the handlers only. A loop that
ends in the serial meaning may then go on for ever, and the pass would never tell. So it has a budget: rounds of
its loops in compiled code, processor time of its thread in Python. What spends it is no error: the slice counts
as unknown, and runs again once its start is exact, without one.
"""

from __future__ import annotations

import contextlib
import ctypes
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import TypeVar

_T = TypeVar("_T")

ROUNDS = 100_000_000
"""Rounds of loops that one event may take in compiled code that runs ahead."""
UNBOUNDED = 2**62
"""The same where the start is exact."""
SECONDS = 5.0
"""Processor seconds that one event may take as Python, in a pass that runs ahead."""
_LOOK = 0.1
_AGAIN = 0.5
"""Processor seconds, at least, between telling a thread and telling it again, where a handler has caught it."""


class Spent(BaseException):
    """The budget of one event is spent. No handler catches it as an error of its own."""


class _Over(BaseException):
    """There is no budget any more."""


class _Gone(Exception):
    """The thread has ended."""


def within(seconds: float, turn: Callable[[], object], call: Callable[[], _T]) -> _T:
    """What `call` returns. Raises Spent when one turn takes more than so many seconds of this thread's processor time.

    `turn` says what the thread is at: anything that changes when it goes on to something else, None while there is
    nothing to bound. It is asked by another thread, ten times a second. `call` is a function in Python. Code in C
    that does not come back to the interpreter cannot be interrupted. Where the system does not tell a thread's
    processor time, time passes instead.

    Spent may come a moment late, in the turn after, and where `call` has just returned. It never comes once this has.
    """
    watch = _Watch(seconds, turn, sys._getframe())
    try:
        try:
            watch.begin()
            return call()
        finally:
            watch.end()
    except Spent:
        watch.end()  # it may have come in the first `end`, before that did anything
        raise


class _Watch:
    """The other thread, and what ends it."""

    def __init__(self, seconds: float, turn: Callable[[], object], within: FrameType) -> None:
        self._seconds, self._turn = seconds, turn
        self._within: FrameType | None = within
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._ident = threading.get_ident()
        self._clock = _clock(self._ident)
        self._told = False

    def begin(self) -> None:
        threading.Thread(target=self._follow, name="timelapse-budget", daemon=True).start()

    def end(self) -> None:
        self._over.set()
        with self._lock:  # the other thread is not in the middle of it
            if self._told:
                self._settle()
            self._within = None

    def _settle(self) -> None:
        """See to it that nothing is left to be raised in this thread.

        To take it back, by None, would leave the interpreter's mark that there is something: all code is slower then, and
        CPython 3.11 never gets past the first call of a function that is traced. So something else takes its place, and comes.
        """
        try:
            _raise(self._ident, _Over)
            while True:
                pass
        except _Over:
            self._told = False

    def _follow(self) -> None:
        with contextlib.suppress(_Gone):
            self._watch()

    def _watch(self) -> None:
        last, since = self._at(), self._clock()
        while not self._over.wait(min(_LOOK, self._seconds / 4)):
            now = self._at()
            if now is None or now != last:
                last, since = now, self._clock()
            elif self._clock() - since > self._seconds:
                with self._lock:
                    if not self._over.is_set() and self._interruptible():
                        self._told = True
                        _raise(self._ident, Spent)
                since = self._clock() - self._seconds + max(self._seconds / 2, _AGAIN)

    def _at(self) -> object:
        """What the thread is at; None once it is over: who was asked may be closed then."""
        with self._lock:
            return None if self._over.is_set() else self._turn()

    def _interruptible(self) -> bool:
        """Whether the thread is in what `call` called.

        Not so in `within`, `begin` and `end`: what comes there twice would be raised outside of every `try`, and
        leave this thread raising for ever.
        """
        frame, below = sys._current_frames().get(self._ident), None
        while frame is not None and frame is not self._within:
            frame, below = frame.f_back, frame
        return frame is not None and below is not None and below.f_code not in _OURS


_OURS = (_Watch.begin.__code__, _Watch.end.__code__, _Watch._settle.__code__)


def _clock(ident: int) -> Callable[[], float]:
    clock_of = getattr(time, "pthread_getcpuclockid", None)
    if clock_of is None:
        return time.monotonic
    clock = clock_of(ident)

    def seconds() -> float:
        try:
            return time.clock_gettime(clock)
        except OSError:  # a thread may end between `end` and the other one's next look
            raise _Gone from None

    return seconds


def _raise(ident: int, error: type[BaseException]) -> None:
    """Have a thread raise this soon, in place of what it was to raise so and has not."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(ident), ctypes.py_object(error))
