"""Ctrl-C, so that it is neither lost nor mistaken for an error.

Python raises KeyboardInterrupt wherever it happens to be, which may be inside a library's import or callback that
catches everything. So it is also remembered: progress raises it again, and whatever error it turned into is an
interruption.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_seen = threading.Event()


@contextmanager
def watching_interrupts() -> Iterator[None]:
    """While the block runs, Ctrl-C is remembered. Only in the main thread, where signals arrive."""
    _seen.clear()
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    if before == signal.SIG_IGN:  # started in the background: the shell wants it to go on
        yield
        return
    signal.signal(signal.SIGINT, _remember)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _remember(number: int, frame: FrameType | None) -> None:
    _seen.set()
    raise KeyboardInterrupt


def interrupted() -> bool:
    """Whether Ctrl-C was pressed since the command began."""
    return _seen.is_set()


def raise_if_interrupted() -> None:
    """Raise KeyboardInterrupt in the main thread if Ctrl-C was pressed and got lost."""
    if _seen.is_set() and threading.current_thread() is threading.main_thread():
        raise KeyboardInterrupt
