"""Checkpoints of a live run, beside its epochs: when they are written, and when they are put together."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager

from timelapse.errors import StorageError
from timelapse.program.program import Program
from timelapse.progress import Progress
from timelapse.store.waiting import while_not
from timelapse.streaming.checkpoints import compact
from timelapse.streaming.collecting import collect
from timelapse.streaming.head import Head
from timelapse.streaming.health import Health
from timelapse.streaming.place import RunPlace
from timelapse.streaming.running import Saving

_WHOLE_AFTER = 8
"""After so many checkpoints of changes a whole one is written."""


class Saver:
    """Writes a checkpoint `every` seconds. The thread that owns the epochs calls it between two of them, and gives no more time than it takes to ask the
    program what was done to its states: in another thread that is found, as far as it can be while the program goes on, and the file is written."""

    def __init__(
        self, place: RunPlace, program: Program, every: float, health: Health, progress: Progress, stopped: Callable[[], bool]
    ) -> None:  # fmt: skip
        self._place, self._program, self._every = place, program, every
        self._health, self._progress, self._stopped = health, progress, stopped
        self._last = time.monotonic()
        self._saving: Saving | None = None
        self._writing: threading.Thread | None = None
        self._compacting: threading.Thread | None = None
        self._error: Exception | None = None

    def begin(self) -> None:
        """The run begins: the first one comes after the time."""
        self._last = time.monotonic()

    def step(self, head: Head, lock: AbstractContextManager[bool]) -> None:
        """Take note of a checkpoint that is written, and begin the next one where it is due."""
        if self._writing is not None and not self._writing.is_alive():
            self._note(head, lock)
        if self._writing is None and time.monotonic() - self._last > self._every:
            self._begin(head, lock)

    def last(self, head: Head | None, lock: AbstractContextManager[bool]) -> None:
        """Write one more, and wait until all is done."""
        if head is not None:
            if self._writing is not None:
                self._note(head, lock)
            self._begin(head, lock)
            if self._writing is not None:
                self._note(head, lock)
        if self._compacting is not None:
            self._compacting.join()

    def _begin(self, head: Head, lock: AbstractContextManager[bool]) -> None:
        self._last = time.monotonic()
        try:
            with lock:
                self._saving = head.saving()
        except (OSError, StorageError) as error:
            self._failed(error)
            return
        if self._saving is not None:
            self._writing = threading.Thread(
                target=self._write, args=(self._saving,), name="timelapse-checkpoint", daemon=True
            )
            self._writing.start()

    def _write(self, saving: Saving) -> None:
        try:
            with while_not(self._stopped):
                saving.write()
        except Exception as error:
            self._error = error

    def _note(self, head: Head, lock: AbstractContextManager[bool]) -> None:
        """Wait until it is written, and take note."""
        assert self._writing is not None
        assert self._saving is not None
        self._writing.join()
        error, self._writing, self._error = self._error, None, None
        with lock:
            name = self._saving.done()
            if error is None:
                self._renew(head)
        if isinstance(error, OSError | StorageError):
            self._failed(error)
            return
        if error is not None:
            raise error
        self._health.checkpoints += 1
        if head.on.changes >= _WHOLE_AFTER and (self._compacting is None or not self._compacting.is_alive()):
            self._compacting = threading.Thread(
                target=self._compact, args=(head, name), name="timelapse-compact", daemon=True
            )
            self._compacting.start()

    def _renew(self, head: Head) -> None:
        try:
            if head.renew():
                self._progress.note(
                    "the program was loaded anew from its checkpoint, to forget texts of the past"
                )
        except (OSError, StorageError) as error:
            self._progress.note(f"the program was not loaded anew from its checkpoint: {error}")

    def _failed(self, error: OSError | StorageError) -> None:
        self._progress.note(f"a checkpoint was not written, the next one will have it: {error}")

    def _needed(self, head: Head) -> str:
        """The checkpoint on which the next one will stand: a correction goes on from one of long ago."""
        saving = self._saving
        return head.on.checkpoint if self._writing is None or saving is None else saving.parent

    def _compact(self, head: Head, name: str) -> None:
        try:
            with while_not(self._stopped):
                compact(self._place, self._program, head.base)
                head.whole_at(name)
                rules = head.rules
                collect(
                    self._place,
                    corrected=rules.late == "correct",
                    horizon=rules.horizon,
                    needed=lambda: self._needed(head),
                )
        except (OSError, StorageError) as error:
            self._progress.note(f"checkpoints were not put together: {error}")
