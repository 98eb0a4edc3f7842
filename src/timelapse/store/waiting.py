"""How long a store that does not answer is asked again."""

from __future__ import annotations

import os
import random
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from timelapse.errors import Place as Where
from timelapse.errors import StorageError, UsageError

AWAY = "TL935"
"""The code of errors of a store that does not answer."""
PATIENCE = "TIMELAPSE_PATIENCE"
"""Environment variable: for so many seconds a store that is away is asked again."""
_SECONDS = 60.0
_FIRST, _MOST = 0.1, 5.0
_TELL = 1.5
"""So many seconds of waiting go untold."""
_brief: ContextVar[float | None] = ContextVar("patience", default=None)


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """In the block a store that is away is asked again for so long at most, and nothing is printed: who calls waits by itself, and says so."""
    before = _brief.set(seconds)
    try:
        yield
    finally:
        _brief.reset(before)


_stopped: ContextVar[Callable[[], bool] | None] = ContextVar("stopped", default=None)
_LOOK = 0.1
_LAST = 1.0
"""Seconds for which a store is asked at most once nobody wants to wait any more."""


@contextmanager
def while_not(stopped: Callable[[], bool]) -> Iterator[None]:
    """In the block a store that is away is hardly asked again once this says so: who asks is to end."""
    before = _stopped.set(stopped)
    try:
        yield
    finally:
        _stopped.reset(before)


def _is_over() -> bool:
    stopped = _stopped.get()
    return stopped is not None and stopped()


class Patience:
    """Pauses between tries, each twice as long as the one before, up to five seconds, with jitter."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._began: float | None = None
        self._tries = 0
        self._told = False

    def answered(self) -> None:
        """Something came: what fails from here on fails anew."""
        self._began, self._tries = None, 0

    def wait(self, why: str) -> None:
        """Pause. Raises StorageError (TL935) where it was asked for long enough."""
        now = time.monotonic()
        self._began = now if self._began is None else self._began
        most = min(patience(), _LAST) if _is_over() else patience()
        if now - self._began >= most:
            raise StorageError(
                f"the store does not answer, for {most:g} s: {why}", place=Where(self._what), code=AWAY,
                hint=f"when it is there again, run the same command again; {PATIENCE}=600 waits ten minutes",
            )  # fmt: skip
        if not self._told and _brief.get() is None and now - self._began >= _TELL:
            self._told = True
            said = f"{self._what}: the store does not answer; asking again for {most:g} s ({why})"
            print("".join(c if c.isprintable() else "?" for c in said), file=sys.stderr)
        pause = min(_MOST, _FIRST * 2.0**self._tries) * random.uniform(0.5, 1.0)  # not secret
        self._tries += 1
        end = now + min(pause, self._began + most - now)
        over = _is_over()
        while (left := end - time.monotonic()) > 0 and (over or not _is_over()):
            time.sleep(min(left, _LOOK))


def patience() -> float:
    """Seconds. Raises UsageError for a text that is no number."""
    brief = _brief.get()
    if brief is not None:
        return brief
    given = os.environ.get(PATIENCE, "")
    if not given:
        return _SECONDS
    try:
        return max(0.0, float(given))
    except ValueError:
        raise UsageError(f"{PATIENCE} is {given!r}", hint="set it to a number of seconds") from None
