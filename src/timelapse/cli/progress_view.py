"""Progress on stderr: bars with ETA on a terminal, otherwise a plain line at each stage and every two seconds."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from timelapse.cli.console import clean, console
from timelapse.cli.interrupt import raise_if_interrupted
from timelapse.cli.quiet import before_output, moving
from timelapse.cli.view import took
from timelapse.display import many
from timelapse.progress import Progress

_EVERY_SECONDS = 2.0
_PATIENCE = 1.0
"""Seconds for which nothing is shown of what mostly takes no time."""
_BEFORE = "getting ready"
_BETWEEN = "working"


class PlainProgress:
    """Lines, for logs and pipes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._started: dict[str, float] = {}
        self._said = 0.0
        self._first = threading.Timer(_PATIENCE, self._say, [f"{_BEFORE} ..."])
        self._first.daemon = True

    def __enter__(self) -> Self:
        self._first.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._first.cancel()

    def stage(self, name: str, total: int) -> None:
        """Says that the stage begins."""
        raise_if_interrupted()
        self._first.cancel()
        self._started[name] = self._said = time.monotonic()
        self._say(f"{name} ..." if not total else f"{name}: {many(total, 'event', 'events')} ...")

    def advance(self, name: str, done: int, total: int) -> None:
        """Says how far the stage is, at most every two seconds."""
        raise_if_interrupted()
        now = time.monotonic()
        with self._lock:
            if now - self._said < _EVERY_SECONDS or not total:
                return
            self._said = now
        passed = now - self._started.get(name, now)
        left = (
            f"  ETA {took(passed * (total - done) / done)}" if done * 20 >= total else ""
        )  # a guess from less is none
        self._say(f"{name}: {100 * done / total:.0f}%{left}")

    def finish(self, name: str, seconds: float) -> None:
        """Says how long the stage took."""
        self._say(f"{name}: {took(seconds)}")

    def note(self, text: str) -> None:
        """Says it."""
        self._say(text)

    def _say(self, text: str) -> None:
        with self._lock:
            before_output()
            sys.stderr.write(clean(text) + "\n")
            sys.stderr.flush()


class BarProgress:
    """One bar per stage, with the time left; finished stages stay on the screen. While no stage is open a line says so."""

    def __init__(self) -> None:
        from rich.progress import BarColumn, SpinnerColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as RichProgress

        self._screen = console(stderr=True)
        self._bars = RichProgress(
            SpinnerColumn(finished_text=" "),
            TextColumn("{task.fields[label]:<24}", markup=False),
            BarColumn(bar_width=30),
            TextColumn("{task.fields[state]:>14}", markup=False),
            TimeRemainingColumn(compact=True),
            console=self._screen,
            transient=False,
        )
        self._tasks: dict[str, Any] = {}
        self._open: set[str] = set()
        self._waiting: Any = None
        self._lock = threading.Lock()
        self._moves = moving()

    def __enter__(self) -> Self:
        self._moves.__enter__()
        self._wait(_BEFORE)
        self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            self._wait("")
        self._bars.stop()
        self._moves.__exit__(kind, error, trace)

    def _wait(self, label: str) -> None:
        """The line for the time in which no stage is open. Empty: none."""
        if self._waiting is not None:
            self._bars.remove_task(self._waiting)
        self._waiting = self._bars.add_task("", total=None, label=label, state="") if label else None

    def stage(self, name: str, total: int) -> None:
        """Adds a bar, or starts the one of that name again."""
        raise_if_interrupted()
        with self._lock:
            self._wait("")
            self._open.add(name)
            old = self._tasks.pop(name, None)
            if old is not None and not self._bars._tasks[old].finished:
                self._bars.remove_task(old)
            label = clean(name)
            self._tasks[name] = self._bars.add_task(
                "", total=total or None, label=label if len(label) <= 24 else label[:23] + "…", state=""
            )

    def advance(self, name: str, done: int, total: int) -> None:
        """Moves the bar."""
        raise_if_interrupted()
        task = self._tasks.get(name)
        if task is not None:
            self._bars.update(task, completed=done, total=total or None, state=f"{done:,}")

    def finish(self, name: str, seconds: float) -> None:
        """Fills the bar."""
        task = self._tasks.get(name)
        if task is not None:
            total = self._bars._tasks[task].total or 1
            self._bars.update(task, completed=total, total=total, state=took(seconds))
        with self._lock:
            self._open.discard(name)
            if not self._open:
                self._wait(_BETWEEN)

    def note(self, text: str) -> None:
        """A line above the bars."""
        self._bars.console.print(clean(text))


def progress_for(as_json: bool) -> PlainProgress | BarProgress:
    """The progress that fits: bars when stderr is a terminal and nobody wants JSON."""
    if as_json or not sys.stderr.isatty():
        return PlainProgress()
    return BarProgress()


def one_by_one(progress: Progress, total: int, then: str) -> Callable[[int], None]:
    """Takes how many more events a run one by one has done. Shows how far it is, and from its last event on what is done `then`."""
    name, done, began = "events one by one", 0, time.monotonic()
    progress.stage(name, total)

    def advance(more: int) -> None:
        nonlocal done
        done += more
        progress.advance(name, done, total)
        if done == total:
            progress.finish(name, time.monotonic() - began)
            progress.note(f"{then} ...")

    return advance


class LateProgress:
    """For what mostly takes no time: what is told shows from the second second on, then at once, be it that nothing is told.

    What is noted shows at once.
    """

    def __init__(self, what: str, shown: PlainProgress | BarProgress) -> None:
        self._what, self._inner = what, shown
        self._lock = threading.RLock()
        self._late = self._started = False
        self._stage: tuple[str, int] | None = None
        self._open = ""
        self._timer = threading.Timer(_PATIENCE, self._wake)
        self._timer.daemon = True

    def __enter__(self) -> Self:
        self._timer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()
        with self._lock:
            self._late = False
            if self._started:
                self._inner.__exit__(kind, error, trace)

    def _wake(self) -> None:
        with self._lock:
            self._late = True
            if not self._started:
                self._show().note(f"{self._what} ...")

    def _show(self) -> PlainProgress | BarProgress:
        if not self._started:
            self._started = True
            self._inner.__enter__()
        return self._inner

    def stage(self, name: str, total: int) -> None:
        """Remembered, and shown if it is late."""
        raise_if_interrupted()
        with self._lock:
            self._stage, self._open = (name, total), ""

    def advance(self, name: str, done: int, total: int) -> None:
        """Shown if it is late."""
        raise_if_interrupted()
        with self._lock:
            if not self._late:
                return
            inner = self._show()
            if self._open != name and self._stage is not None:
                inner.stage(*self._stage)
                self._open = name
            inner.advance(name, done, total)

    def finish(self, name: str, seconds: float) -> None:
        """Shown if the stage was."""
        with self._lock:
            if self._open == name:
                self._inner.finish(name, seconds)
                self._open = ""

    def note(self, text: str) -> None:
        """Shown at once."""
        with self._lock:
            self._show().note(text)


_: type[Progress] = PlainProgress
_ = BarProgress
_ = LateProgress
