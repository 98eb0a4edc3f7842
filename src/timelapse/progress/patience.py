"""Lines about work that tells nothing itself, where it takes longer than a second."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Timer

from timelapse.progress import Progress

_PATIENCE = 1.0
"""Seconds for which nothing is said of what mostly takes no time."""


@contextmanager
def looking(progress: Progress, what: str) -> Iterator[None]:
    """A piece of work that tells nothing itself: a line says what it is if it takes longer than a second. Empty: no line."""
    if isinstance(progress, _Passing):
        progress.told()  # what is being done has another name from here on
    timer = _after(progress, what)
    if what:
        timer.start()
    try:
        yield
    finally:
        timer.cancel()


@contextmanager
def until_told(progress: Progress, what: str) -> Iterator[Progress]:
    """A listener that passes on what it is told; if that is nothing for a second, a line says what is being done."""
    timer = _after(progress, what)
    timer.start()
    try:
        yield _Passing(progress, timer)
    finally:
        timer.cancel()


def _after(progress: Progress, what: str) -> Timer:
    timer = Timer(_PATIENCE, progress.note, [f"{what} ..."])
    timer.daemon = True
    return timer


class _Passing:
    """Passes on what it is told, and stops a timer then."""

    def __init__(self, inner: Progress, timer: Timer) -> None:
        self._inner, self.told = inner, timer.cancel

    def stage(self, name: str, total: int) -> None:
        self.told()
        self._inner.stage(name, total)

    def advance(self, name: str, done: int, total: int) -> None:
        self.told()
        self._inner.advance(name, done, total)

    def finish(self, name: str, seconds: float) -> None:
        self.told()
        self._inner.finish(name, seconds)

    def note(self, text: str) -> None:
        self.told()
        self._inner.note(text)


__all__ = ["looking", "until_told"]
