"""Reading a live run that another process runs: its states and outputs as of the last committed epoch, from this one.

It runs the epochs again as they are committed, as a standby does, and never takes over. It writes nothing; where the run changes its program it goes on with the new one.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from timelapse.errors import HandlerError, RunError, StorageError, UsageError
from timelapse.program.program import Program, as_program
from timelapse.progress import Progress, Silent
from timelapse.store.scratch import scratch_folder
from timelapse.store.waiting import AWAY
from timelapse.streaming import chain
from timelapse.streaming.declared import types_of
from timelapse.streaming.format import Epoch
from timelapse.streaming.handover import origin_of
from timelapse.streaming.head import Head
from timelapse.streaming.health import Committed
from timelapse.streaming.live import Live
from timelapse.streaming.loop import Loop, Stopped, Timing
from timelapse.streaming.opening import newest_epoch
from timelapse.streaming.place import LivePlace, LocalPlace, live_place
from timelapse.streaming.programs import program_now
from timelapse.streaming.recovery import ANY
from timelapse.streaming.rules import Rules

_NEAR, _FAR = 0.02, 0.5
"""Seconds after which it is looked for further epochs: on a disk, and in an object store, where that is a request."""


def follow(
    out: str | Path, program: Program | type[Program] | None = None, *, progress: Progress | None = None
) -> Following:
    """Follow a live run, for reads of its states and outputs. Returns when it has begun; it goes on in the background, also while nobody runs the run.

    `program`: where it is not found at its place. Raises RunError (TL940) where there is no live run.
    """
    place = live_place(out)
    chain.read_run(place)
    given = None if program is None else as_program(program)
    loop = _Loop(place, given, Silent() if progress is None else progress)
    found = Following(place, loop)
    loop.thread.start()
    return found


class Following(Live):
    """A live run of another process, as of its last committed epoch. Use it with `with`: it ends with it, and the run goes on."""

    def __init__(self, place: LivePlace, loop: _Loop) -> None:
        super().__init__(place, loop.first, loop)
        self._first = loop.first

    @property
    def program(self) -> Program:
        """The program of the epoch that is shown."""
        head = self._loop.head
        return self._first if head is None else head.program

    def keep_out(self, *filters: str, timeout: float = 10.0) -> NoReturn:
        """Raises UsageError (TL810)."""
        raise not_its_own()

    def filter(
        self, add: Sequence[str] = (), remove: Sequence[str] = (), *, timeout: float = 10.0
    ) -> NoReturn:
        """Raises UsageError (TL810)."""
        raise not_its_own()

    def pause(self) -> NoReturn:
        """Raises UsageError (TL810)."""
        raise not_its_own()

    def resume(self) -> NoReturn:
        """Raises UsageError (TL810)."""
        raise not_its_own()

    def follow(self, each: Callable[[Epoch, Mapping[str, Any]], None]) -> NoReturn:
        """Raises UsageError (TL810)."""
        raise not_its_own()


def not_its_own() -> UsageError:
    """Why this process has no say in how the run goes on."""
    return UsageError(
        "this process only reads the live run", code="TL810", hint="ask the one that runs it: timelapse live"
    )


class _Loop(Loop):
    """Follows until it is stopped."""

    def __init__(self, place: LivePlace, given: Program | None, progress: Progress) -> None:
        last = newest_epoch(place)
        self._at, self._given = place, given
        self.first = self._found(last)
        """The program before there is a head, which has its own."""
        self._folder = scratch_folder("live", large=True)
        types = types_of(place, chain.read_run(place)[0], last)
        super().__init__(self._opened, place, self.first, [], Timing(), progress, types=types)
        self.cleanup = lambda: shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def owns(self) -> bool:
        return False

    def _found(self, last: Epoch | None) -> Program:
        """The program at the end of an epoch."""
        run, _ = chain.read_run(self._at)
        return program_now(self._at, run, last) if self._given is None else self._given

    def _opened(self, wait: Callable[[str, float], None]) -> Head:
        """The run as it stands now."""
        last = newest_epoch(self._at)
        program = self._found(last)
        run, digest = chain.read_run(self._at)
        rules = (
            Rules() if last is None else Rules(last.lateness, quarantine=ANY if last.quarantined else None)
        )
        return Head(
            self._at, program, run, digest, types_of(self._at, run, last), rules, wait=wait, tell=self._progress.note, folder=self._folder,
            origin=origin_of(self._at, run, program),
        )  # fmt: skip

    def _open(self) -> None:
        self.health.started = time.time()
        self._begin()
        self.health.state = "following"

    def _begin(self) -> None:
        """Stand at the newest epoch; who reads is given the one before until then, with its program."""
        head = self._make_head(self._wait)
        with self.lock:
            before, self.head = self.head, head
            if before is not None:
                before.committed.close()
        with self.changed:
            self.changed.notify_all()

    def _go(self) -> None:
        pause = _NEAR if isinstance(self._at, LocalPlace) else _FAR
        while not self._stop.is_set():
            newest = self._newest()
            if newest is not None:
                self._go_to(newest)
            self._wake.wait(pause)
            self._wake.clear()
        raise Stopped

    def _newest(self) -> Epoch | None:
        """The newest epoch, where it is not the one that is shown. None also where the store is away, which is said.

        Raises RunError where another live run has taken the place and has no epoch yet."""
        assert self.head is not None
        last = self.head.last
        shown = 0 if last is None else last.number
        try:
            number = chain.newest(self._at)
            if number == shown:
                return None
            if number < shown and chain.read_run(self._at)[0].run == self.head.run.run:
                chain.read_epoch(self._at, shown)  # it is gone
            return chain.read_about(self._at, number) if number else None
        except StorageError as error:
            if error.code != AWAY:
                raise
            self._tell_once(str(error))
            return None

    def _go_to(self, newest: Epoch) -> None:
        """Follow up to an epoch, or a later one."""
        head = self.head
        assert head is not None
        before = head.end_seq
        if self._is_other(newest):
            self._begin()
        else:
            try:
                with self.lock:
                    followed = self._followed(head)
            except (RunError, HandlerError):  # has it changed between the two?
                again = self._newest()
                if again is None or not self._is_other(again):
                    raise
                return
            if followed is None:
                return
        self._told = ""
        assert self.head is not None
        last = self.head.last
        if last is not None:
            now, rows = time.time(), last.end_seq - before
            self.health.rows += rows
            self.health.recent.append(Committed(last, rows, rows, now - last.written / 1e6, now))
        with self.changed:
            self.changed.notify_all()

    def _is_other(self, newest: Epoch) -> bool:
        """Whether what was made for the epochs so far does not do for one: the program has changed, events are taken out for the first time, or
        another live run lies here."""
        head = self.head
        assert head is not None
        if newest.run != head.run.run:
            return True
        changed = newest.last_change > (0 if head.last is None else head.last.last_change)
        return changed or (newest.quarantined > 0 and head.rules.quarantine is None)
