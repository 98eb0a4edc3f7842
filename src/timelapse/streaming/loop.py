"""The loop that owns a live run's epochs: it asks sources for rows, commits, writes checkpoints, and says how it goes."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from timelapse.display import many
from timelapse.env.garbage import passed_over
from timelapse.env.scheduler import give_way
from timelapse.errors import Place, StorageError, TimelapseError
from timelapse.program.program import Program
from timelapse.progress import Progress
from timelapse.segments.types import EventType
from timelapse.store.waiting import AWAY, while_not
from timelapse.streaming import lease
from timelapse.streaming.chain import Overtaken
from timelapse.streaming.correcting import Corrector
from timelapse.streaming.early import EarlyResults
from timelapse.streaming.filters import Refiltering
from timelapse.streaming.format import Epoch
from timelapse.streaming.head import Head
from timelapse.streaming.health import Committed, Health
from timelapse.streaming.kernel import said_live
from timelapse.streaming.place import RunPlace
from timelapse.streaming.rows import Batch
from timelapse.streaming.saving import Saver
from timelapse.streaming.sinks.base import Follower
from timelapse.streaming.sources.base import LiveSource, answering
from timelapse.streaming.sources.push import Push
from timelapse.streaming.streams import StreamEntry
from timelapse.streaming.turns import short_turns

MOST_ROWS = 1_000_000
"""Rows that one epoch asks of its sources, about."""
GROWN_ROWS = 8_000_000
"""The same at most where they have more each time, and epochs are processed as time slices: those gain by many rows."""
MOST_WAITING = 4 << 30
"""Bytes of rows that may wait for completeness before sources are no longer asked."""
_LOOK = 0.05
"""Seconds after which sources that do not say when rows come are asked again, where an epoch waits for rows."""
_FOLLOW = 0.2
"""Seconds after which a standby looks for further epochs."""
_AGAIN = 1.0
"""Seconds between two tries of what did not go."""
_BEHIND = 30.0
"""Seconds after which it is said that sources have more than is processed."""
_SINKS_WAIT = 30.0
"""Seconds in which sinks may catch up when a run ends."""


@dataclass(frozen=True)
class Timing:
    """When things happen, in seconds of wall clock. `idle`: after so long without rows, at its end, a partition no longer
    holds the others back (None: never). `trigger_rows`: an epoch waits until so many rows are there, for `trigger` at most (None: it takes what is there, and
    the next one begins `trigger` after it began). `correct`: so long after the first late row a correction begins, or once there are `correct_rows`."""

    trigger: float = 0.5
    trigger_rows: int | None = None
    idle: float | None = 10.0
    checkpoint: float = 30.0
    correct: float = 10.0
    correct_rows: int | None = None
    standby: float | None = None
    """Follow another process, and take over once it has not been heard of for so long; None: begin at once."""
    takes_over: bool = False
    """Begin also while another process runs the run, which stops when it next commits: this one has the next version."""


class Stopped(Exception):
    """The loop is to end."""


class Loop:
    """Runs until all streams have ended, `stop` is called, or something fails. One thread does all of it."""

    def __init__(
        self, make_head: Callable[[Callable[[str, float], None]], Head], place: RunPlace, program: Program,
        sources: Sequence[tuple[StreamEntry, LiveSource]], timing: Timing, progress: Progress,
        sinks: Sequence[Follower] = (), *, types: Sequence[EventType], early: EarlyResults | None = None,
    ) -> None:  # fmt: skip
        self._make_head, self._place, self._program = make_head, place, program
        self._kinds = {kind.name: kind for kind in types}
        self._sources, self._timing, self._progress = list(sources), timing, progress
        self.early = early
        self.followers: list[Callable[[Epoch, Mapping[str, Any]], None]] = []
        self.sinks = list(sinks)
        self.health = Health()
        self.error: BaseException | None = None
        self.head: Head | None = None
        self._wake, self._stop, self._resumed = threading.Event(), threading.Event(), threading.Event()
        self._resumed.set()
        self._over = threading.Event()
        self._lease: threading.Thread | None = None
        self.lock = threading.RLock()
        """Held while the program runs: who reads its states between epochs takes it."""
        self.changed = threading.Condition()
        self.cleanup: Callable[[], None] = lambda: None
        """Called when all has ended."""
        self._last_rows: dict[tuple[int, str], float] = {}
        self._saver = Saver(place, program, timing.checkpoint, self.health, progress, self._stop.is_set)
        self._full_since: float | None = None
        self._full_rows = 0
        self._asked = MOST_ROWS
        self._cut = False
        """Whether a source gave all that it was asked for: it may have more, and the next epoch does not wait for its time."""
        self._filters: deque[Refiltering] = deque()
        """What was asked for and is not recorded yet, in the order in which threads asked."""
        self._corrector = Corrector(timing.correct, timing.correct_rows)
        self.thread = threading.Thread(target=self._run, name="timelapse-live", daemon=True)

    # --- from outside ---------------------------------------------------------------------------------

    def stop(self) -> None:
        """End after the epoch that is being made."""
        self._stop.set()
        self._wake.set()
        self._resumed.set()
        for _, source in self._sources:
            source.hasten()

    def keep_out(self, change: Refiltering) -> None:
        """Have the next epoch, and those after it, put aside rows that one of other filters fits: what `change` makes of those that hold."""
        self._filters.append(change)
        self._wake.set()

    def pause(self) -> None:
        """Ask sources for nothing more until `resume`."""
        self._resumed.clear()

    def resume(self) -> None:
        """Go on after `pause`."""
        self._resumed.set()
        self._wake.set()

    @property
    def done(self) -> bool:
        """Whether the loop has ended."""
        return self.health.state in ("ended", "stopped", "failed")

    @property
    def owns(self) -> bool:
        """Whether this process commits the run's epochs."""
        return self.health.state != "standby"

    def push_of(self, kind: str, name: str) -> Push | None:
        """The stream of a type that rows are sent to."""
        for entry, source in self._sources:
            if isinstance(source, Push) and (entry.type, entry.name) == (kind, name):
                return source
        return None

    # --- the thread -----------------------------------------------------------------------------------

    def _run(self) -> None:
        with short_turns(), while_not(self._stop.is_set):
            self._run_until_stopped()

    def _run_until_stopped(self) -> None:
        try:
            self._open()
            give_way()  # after it: those whom senders and a standby wait for have threads of their own by now
            with passed_over():
                self._go()
        except Stopped:
            self._end("stopped")
        except BaseException as error:
            gave_up = self._stop.is_set() and isinstance(error, StorageError) and error.code == AWAY
            self.error = None if gave_up else said_live(error)
            self._end("stopped" if gave_up else "failed", str(error))
        finally:
            for _, source in self._sources:
                source.hasten()
                try:
                    source.close()
                except Exception as error:
                    self._progress.note(f"a source did not close: {error}")
            self.cleanup()

    def _end(self, state: str, problem: str = "") -> None:
        self._corrector.stop()
        if self.early is not None:
            self.early.stop()
        owns = self.owns and self._lease is not None  # else the run is somebody else's, or was not begun
        if state in ("stopped", "ended") and owns:
            try:
                self._saver.last(self.head, self.lock)
            except Exception as error:  # all is committed: the next process runs again what this one lacks
                why = str(error) if isinstance(error, OSError | TimelapseError) else repr(error)
                self._progress.note(f"the last checkpoint was not written: {why}")
        for sink in self.sinks:
            if sink.thread.is_alive() and not sink.end(_SINKS_WAIT):
                self._progress.note(
                    f"{sink.sink.text} has outputs up to epoch {sink.epoch:,} only; it gets the others when the run goes on"
                )
        self.health.state, self.health.problem = state, problem
        self._over.set()
        if self._lease is not None and self.head is not None and owns and state != "failed":
            self._lease.join()
            with suppress(OSError, StorageError):
                lease.hold(self._place, self.head.writer, 0, ended=True)
        with self.changed:
            self.changed.notify_all()

    def _open(self) -> None:
        self.health.started = time.time()
        head = self.head = self._make_head(self._wait)
        if self._timing.standby is not None:
            self._stand_by(head, self._timing.standby)
        elif not self._timing.takes_over and (other := lease.other(self._place, self._sleep)) is not None:
            raise Overtaken(
                f"process {other.process} on {other.host} runs this live run", place=Place(str(self._place)),
                hint="end it first; with standby= (--standby) this one waits until it is gone",
            )  # fmt: skip
        # Who only follows leaves them: the process that owns the run may be at epochs behind a checkpoint.
        head.spread.clean(0 if head.last is None else head.last.number)
        self._lease = threading.Thread(
            target=self._hold, args=(head.writer,), name="timelapse-lease", daemon=True
        )
        self._lease.start()
        for entry, source in self._sources:
            head.stream(entry)
            own = [p for p in head.partitions.values() if p.stream == entry.number]
            notes = head.notes(entry.number) if source.noted else []
            begin = partial(source.start, entry.number, self._kinds[entry.type], own, notes, self._wake.set)
            if self._timing.standby is None:
                with answering(entry.text, source):
                    begin()
            else:
                self._begin_again_and_again(entry.text, begin)
            if warning := getattr(source, "warning", ""):
                self._progress.note(f"{entry.text}, {source.text}: {warning}; they are read as they appear")
            for name in source.partitions():
                head.partition(entry.number, name)
        for sink in self.sinks:
            sink.thread.start()
        self.health.state = "running"
        self._saver.begin()
        with self.changed:
            self.changed.notify_all()

    def _begin_again_and_again(self, stream: str, begin: Callable[[], None]) -> None:
        """A process that has taken over waits for a source that does not answer: there is none that would begin it again."""
        while True:
            try:
                begin()
                return self._waited()
            except (TimeoutError, ConnectionError) as error:
                self._wait(f"{stream} does not answer, and is asked again: {error}", _AGAIN)

    def _stand_by(self, head: Head, patience: float) -> None:
        """Follow the epochs of another process until it is gone."""
        watch = lease.Watch(self._place, patience)
        self.health.state = "standby"
        while watch.alive():
            if self._stop.is_set():
                raise Stopped
            before = head.filters.entries
            with self.lock:
                followed = self._followed(head)
            if head.filters.entries != before:  # it is newer than what this process was started with
                self._filters.clear()
            if followed:
                with self.changed:
                    self.changed.notify_all()
            self._wake.wait(_FOLLOW)
            self._wake.clear()
        with self.lock:
            while self._followed(head) is None:
                self._stop.wait(_FOLLOW)
                if self._stop.is_set():
                    raise Stopped
        self._progress.note("the process that ran this live run is gone: this one takes over")

    def _followed(self, head: Head) -> int | None:
        """How many epochs of another process were taken over; None where the store is away, which is said."""
        try:
            return head.follow()
        except StorageError as error:
            if error.code != AWAY:
                raise
            self._tell_once(str(error))
            return None

    def _hold(self, writer: str) -> None:
        """Say again and again that this process is there."""
        count = 0
        with lease.running(writer, lambda: self._stop.is_set() or self._over.is_set()):
            while not self._over.is_set():
                count += 1
                with suppress(OSError, StorageError):
                    lease.hold(self._place, writer, count)
                self._over.wait(lease.EVERY)

    def _go(self) -> None:
        head = self.head
        assert head is not None
        while not self._stop.is_set():
            if not self._resumed.is_set():
                self.health.state = "paused"
                self._resumed.wait()
                self.health.state = "running"
                continue
            began = time.monotonic()
            self._wake.clear()
            batches = self._gather(head)
            ended = all(source.ended for _, source in self._sources)
            with self.lock:
                while self._filters:
                    head.keep_out(self._filters.popleft()(head.filters.entries))
                before = head.end_seq
                epoch = head.epoch(
                    batches, time.time_ns() // 1000, idle=self._idle(), active=[e.number for e, _ in self._sources], ended=ended
                )  # fmt: skip
            if epoch is not None:
                self._committed(epoch, batches, epoch.end_seq - before, time.monotonic() - began)
            self._correct(head, ended=ended)
            self._waited()
            if self.early is not None:
                self.early.step(head, self.lock)
            self._saver.step(head, self.lock)
            if ended:
                self._keep_up(full=False, ended=True)
                self._end("ended")
                return
            full = self._cut or _rows(batches) >= self._most_rows
            lags = full and not self._at_end()
            self._keep_up(full=lags, ended=False)
            sliced = lags and head.spread.told.last
            self._asked = min(2 * self._asked, GROWN_ROWS) if sliced else MOST_ROWS
            left = self._timing.trigger - (time.monotonic() - began)
            if left > 0 and not full and self._timing.trigger_rows is None:
                self._stop.wait(left) if batches else self._wake.wait(left)
        raise Stopped

    def _at_end(self) -> bool:
        """Whether sources had no more than was taken."""
        return all(source.at_end(name) for _, source in self._sources for name in source.partitions())

    def _keep_up(self, *, full: bool, ended: bool) -> None:
        """Say at which moment all that sources had is processed, and where they have more than is processed."""
        now, health = time.monotonic(), self.health
        if full:
            if self._full_since is None:
                self._full_since, self._full_rows = now, health.rows
            elif now - self._full_since >= _BEHIND:
                rate = (health.rows - self._full_rows) / (now - self._full_since)
                waiting = 0 if self.head is None else self.head.waiting[0]
                health.outrun = (
                    f"sources have more than is processed: {rate:,.0f} rows/s for {now - self._full_since:.0f} s, and more each time; "
                    f"{waiting:,} rows wait here, the others at their sources"
                )
                self._progress.note(health.outrun)
                self._full_since = None
            return
        self._full_since, health.outrun = None, ""
        if health.caught_up is None and (ended or self._at_end()):
            health.caught_up = time.time()
            seconds = max(1e-3, health.caught_up - health.started)
            last = None if self.head is None else self.head.last
            if health.read:
                self._progress.note(
                    f"caught up behind epoch {0 if last is None else last.number:,}: {many(health.read, 'row', 'rows')} in {seconds:,.1f} s "
                    f"({health.read / seconds:,.0f} rows/s)" + ("" if ended else "; live from here on")
                )

    def _correct(self, head: Head, *, ended: bool) -> None:
        """Put late rows into their places, where that is asked for and due."""
        while head.rules.late == "correct":
            began = time.monotonic()
            rows = head.end_seq
            try:
                epoch = self._corrector.step(head, self.lock, lambda: time.time_ns() // 1000, ended=ended)
            except StorageError as error:
                if error.code != AWAY:
                    raise
                epoch = None  # its rows are in their epochs: it is made anew
                self._wait(f"a correction is made again: {error}", _AGAIN)
            if epoch is not None:
                self._committed(epoch, [], epoch.end_seq - rows, time.monotonic() - began)
            if not ended or not head.late.rows:
                return

    @property
    def _most_rows(self) -> int:
        """Rows that one epoch asks of its sources, about."""
        return min(self._asked, self._timing.trigger_rows or self._asked)

    def _gather(self, head: Head) -> list[Batch]:
        """The rows of the next epoch."""
        self._cut = False
        began, batches = time.monotonic(), self._poll(head)
        if self._timing.trigger_rows is None:
            return batches
        while _rows(batches) < self._most_rows and any(
            not (source.ended or source.waits) for _, source in self._sources
        ):
            left = self._timing.trigger - (time.monotonic() - began)
            if left <= 0 or self._stop.is_set() or not self._resumed.is_set() or self._filters:
                break
            self._wake.wait(min(left, _LOOK))
            self._wake.clear()
            batches += self._poll(head)
        return batches

    def _poll(self, head: Head) -> list[Batch]:
        if head.waiting[1] > MOST_WAITING:
            self._tell_once(
                f"{head.waiting[0]:,} rows wait until all before them is complete: sources are not asked for more"
            )
            return []
        found: list[Batch] = []
        share = max(1, self._most_rows // max(1, len(self._sources)))
        began = time.monotonic()
        for entry, source in self._sources:
            for name in source.partitions():
                self._last_rows.setdefault((entry.number, name), began)
            try:
                batches = source.poll(share)
            except (OSError, TimeoutError) as error:
                self._tell_once(f"{entry.text} does not answer, and is asked again: {error}")
                self._last_rows |= dict.fromkeys(
                    ((entry.number, n) for n in source.partitions()), time.monotonic()
                )
                continue
            for name in source.partitions():
                head.partition(entry.number, name)
            found += batches
            self._cut |= _rows(batches) >= share
        now = time.monotonic()
        for batch in found:
            self._last_rows[batch.stream, batch.partition] = now
        return found

    _told = ""

    def _tell_once(self, text: str) -> None:
        if text != self._told:
            self._told = text
            self._progress.note(text)

    def _idle(self) -> list[tuple[int, str]]:
        """Partitions that have had no rows for so long, at the end of their source."""
        if self._timing.idle is None:
            return []
        now, found = time.monotonic(), []
        for entry, source in self._sources:
            for name in source.partitions():
                last = self._last_rows.setdefault((entry.number, name), now)
                if now - last > self._timing.idle and source.at_end(name):
                    found.append((entry.number, name))
        return found

    def _committed(self, epoch: Epoch, batches: Sequence[Batch], rows: int, seconds: float) -> None:
        read = sum(len(b.ts) + len(b.bad) for b in batches)
        self.health.rows += rows
        self.health.read += read
        self.health.recent.append(Committed(epoch, rows, read, seconds, time.time()))
        for decision in epoch.decisions:
            self._progress.note(decision)
        for entry, source in self._sources:
            own = [p for p in epoch.partitions if p.stream == entry.number]
            source.committed(own)
        assert self.head is not None
        if self.early is not None:
            self.early.settle(epoch, self.head.sections)
        for sink in self.sinks:
            sink.told(epoch.number)
        for follow in self.followers:
            follow(epoch, self.head.sections)
        with self.changed:
            self.changed.notify_all()

    def _wait(self, what: str, seconds: float) -> None:
        """An epoch cannot be written: wait, and say so."""
        if self._stop.is_set():
            raise Stopped
        self.health.state, self.health.problem = "waiting", what
        self._tell_once(what)
        self._stop.wait(seconds)

    def _sleep(self, seconds: float) -> None:
        if self._stop.wait(seconds):
            raise Stopped

    def _waited(self) -> None:
        """What waited is done."""
        if self.health.state == "waiting":
            self.health.state, self.health.problem, self._told = "running", "", ""


def _rows(batches: Sequence[Batch]) -> int:
    return sum(len(batch.ts) for batch in batches)
