"""When corrections are made, and the thread in which they run beside the program."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager

from timelapse.store.waiting import while_not
from timelapse.streaming.correction import Plan, Prepared
from timelapse.streaming.format import Epoch
from timelapse.streaming.head import Head

_SHARE = 0.5
"""Of the time a correction runs beside the program; for the rest it waits."""
_LONGEST = 1.0
"""Seconds that it waits at a time."""


class GivenUp(Exception):
    """A correction is not to go on."""


class Corrector:
    """Makes corrections, one at a time: `every` seconds after the first late row came, or once there are `rows` of them.

    A correction runs in a thread of its own; the loop that owns the epochs commits it. `now`: wall clock, microseconds.
    """

    def __init__(self, every: float, rows: int | None) -> None:
        self._every, self._rows = every, rows
        self._since: float | None = None
        self._thread: threading.Thread | None = None
        self._prepared: Prepared | None = None
        self._error: BaseException | None = None
        self._over, self._hurry = threading.Event(), threading.Event()

    @property
    def running(self) -> bool:
        """Whether a correction is being made."""
        return self._thread is not None

    def step(
        self, head: Head, lock: AbstractContextManager[bool], now: Callable[[], int], *, ended: bool
    ) -> Epoch | None:
        """Begin a correction, or commit one that is ready. `ended`: nothing comes any more, so all late rows are put into
        their places now. Returns the epoch that was committed. Raises what the correction has raised."""
        if self._thread is not None:
            if self._thread.is_alive() and not ended:
                return None
            self._hurry.set()
            self._thread.join()
            self._thread = None
            self._hurry.clear()
            if self._error is not None:
                raise self._error
            assert self._prepared is not None
            with lock:
                return head.correct(self._prepared, now())
        if not head.late.rows:
            self._since = None
            return None
        if self._since is None:
            self._since = time.monotonic()
        full = self._rows is not None and head.late.rows >= self._rows
        if not (ended or full or time.monotonic() - self._since >= self._every):
            return None
        plan = head.plan()
        assert plan is not None
        self._since = None
        if ended:
            prepared = head.prepare(plan)
            with lock:
                return head.correct(prepared, now())
        self._thread = threading.Thread(
            target=self._prepare, args=(head, plan), name="timelapse-correction", daemon=True
        )
        self._thread.start()
        return None

    def stop(self) -> None:
        """Give up what is being made: its rows wait in the epochs in which they came."""
        self._over.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _prepare(self, head: Head, plan: Plan) -> None:
        began = time.monotonic()

        def go_on() -> None:
            nonlocal began
            worked = time.monotonic() - began
            pause = 0.0 if self._hurry.is_set() else min(_LONGEST, worked * (1 / _SHARE - 1))
            if self._over.wait(pause):
                raise GivenUp
            began = time.monotonic()

        try:
            with while_not(self._over.is_set):
                self._prepared, self._error = head.prepare(plan, go_on), None
        except BaseException as error:
            self._error = error
