"""How long a thread keeps Python's lock while others wait for it: briefly while a live run goes on, since others read from it.

Python's own 5 ms are what a reader then waits each time that it asks for the lock: over HTTP several times for one answer.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

TURN = 0.0005
"""Seconds."""
_LOCK = threading.Lock()
_RUNNING: list[float] = []
"""For each live run of this process what held before it began."""


@contextmanager
def short_turns() -> Iterator[None]:
    """Meanwhile turns are short; then they are as long as before, should nobody else have changed that."""
    with _LOCK:
        _RUNNING.append(sys.getswitchinterval() if not _RUNNING else _RUNNING[0])
        if _RUNNING[0] > TURN:
            sys.setswitchinterval(TURN)
    try:
        yield
    finally:
        with _LOCK:
            before = _RUNNING.pop()
            if not _RUNNING and before > TURN == sys.getswitchinterval():
                sys.setswitchinterval(before)
