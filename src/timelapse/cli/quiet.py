"""On a terminal, a line says that a command is at work where it has written nothing for a second.

It names what goes on (starting, working, ending), counts seconds, and goes away when something else is written. What commands write goes through
`console`, `print_json` and the views of progress, which call `before_output`.
"""

from __future__ import annotations

import atexit
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

_PATIENCE = 1.0
"""Seconds of silence."""
_CLEAR = "\r\x1b[2K"


class Quiet:
    """Watches one command. All methods may be called from any thread."""

    def __init__(self, screen: TextIO) -> None:
        self._screen = screen
        self._lock = threading.RLock()
        self._last = time.monotonic()
        self._shown = False
        self._moving = 0
        self._what = "starting"
        self._over = threading.Event()

    def begin(self) -> None:
        """Watch from now on, until `end`."""
        threading.Thread(target=self._watch, name="timelapse-quiet", daemon=True).start()

    def _watch(self) -> None:
        while not self._over.wait(_PATIENCE / 4):
            self.look(time.monotonic())

    def look(self, now: float) -> None:
        """Show the line where nothing was written for a second before `now`."""
        with self._lock:
            silent = now - self._last
            if silent < _PATIENCE or self._moving or self._over.is_set():
                return
            try:
                self._screen.write(f"{_CLEAR}{self._what} ... {silent:.0f} s")
                self._screen.flush()
                self._shown = True
            except (OSError, ValueError):  # the terminal has gone, or the stream is closed
                self._over.set()

    def before_output(self, what: str = "working") -> None:
        """Something is written: the line goes away."""
        with self._lock:
            self._last, self._what = time.monotonic(), what
            if self._shown:
                self._shown = False
                try:
                    self._screen.write(_CLEAR)
                    self._screen.flush()
                except (OSError, ValueError):
                    self._over.set()

    @contextmanager
    def moving(self) -> Iterator[None]:
        """Meanwhile something else moves on the screen."""
        with self._lock:
            self.before_output()
            self._moving += 1
        try:
            yield
        finally:
            with self._lock:
                self._moving -= 1
                self._last = time.monotonic()

    def end(self) -> None:
        """Nothing more is shown."""
        self.before_output()
        self._over.set()


_now: Quiet | None = None


def watch() -> None:
    """Watch this process's command, where its errors go to a terminal."""
    global _now
    if _now is not None or not sys.stderr.isatty():
        return
    _now = Quiet(sys.stderr)
    atexit.register(_now.end)  # after what else is done at the end: it was registered first
    _now.begin()


def before_output(what: str = "working", *, to: TextIO | None = None) -> None:
    """Something is written; behind it the command is at this. An answer that goes elsewhere than to the terminal may be shown by
    another program (`| less`), whose screen that is then: nothing more is shown.
    """
    if _now is None:
        return
    if to is None or to.isatty():
        _now.before_output(what)
    else:
        _now.end()


@contextmanager
def moving() -> Iterator[None]:
    """Meanwhile something moves on the screen."""
    if _now is None:
        yield
        return
    with _now.moving():
        yield
