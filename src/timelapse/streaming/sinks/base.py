"""What a sink is, and the thread that has it follow the epochs.

A sink keeps a marker in its own transaction: which epoch of which run it has, and that epoch's hash. So whatever is lost between the two
(an answer, a process, either side's power), it is asked what it has, and goes on behind that.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from timelapse.errors import Place, StorageError, TimelapseError
from timelapse.store.waiting import AWAY, while_not
from timelapse.streaming import chain
from timelapse.streaming.declared import joined
from timelapse.streaming.format import Epoch
from timelapse.streaming.pack import Pack
from timelapse.streaming.place import RunPlace

MOST_ROWS = 200_000
"""Rows that are put into a sink at once, about."""
MOST_EPOCHS = 500
_PAUSES = (0.1, 0.5, 2.0, 5.0)
MARKER = "timelapse"


class SinkError(TimelapseError):
    """A sink holds outputs of another run, or of a history that this run does not have; or cannot take what comes."""

    code = "TL946"


@dataclass(frozen=True)
class Marker:
    """What a sink has: all epochs of a run up to one, whose hash this is."""

    run: str
    epoch: int
    hash: str


class Sink(Protocol):
    """Takes outputs. All calls come from one thread."""

    @property
    def text(self) -> str:
        """Where outputs go, for people."""

    def open(self, run: str) -> None:
        """Connect. Raises SinkError where it cannot be used, OSError where it does not answer: it is asked again."""

    def marker(self, record: str) -> Marker | None:
        """What it has of a record type; None where it has nothing."""

    def put(self, record: str, table: pa.Table, before: Marker | None, now: Marker) -> None:
        """Add outputs and move the marker, both or none. `table` has the stored columns: ts, phase, seq, ordinal, fields; it may
        have no rows. Raises OSError where it does not answer; then what it has is asked again."""

    def close(self) -> None: ...


def refuse_used(sink: Sink, record: str) -> None:
    """Raise SinkError where a sink has outputs of a record type: they are of another run than one that is to be begun."""
    if sink.marker(record) is not None:
        raise _others(Place(what=f"{record} in {sink.text}"))


def check_folder(folder: Path) -> None:
    """Raise SinkError for a folder that cannot be made, or written to."""
    there = next(path for path in (folder, *folder.parents) if path.exists())
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        raise SinkError(
            f"{there} {'may not be written to' if there.is_dir() else 'is no folder'}", place=Place(str(folder)),
            hint="give a folder in which files can be made",
        )  # fmt: skip


def check_sinks(sinks: Sequence[Sink], records: Sequence[str]) -> None:
    """Before a new run is begun. Raises SinkError for a sink that cannot be used, or does not answer.

    A sink may have a method `check(records)`. It is given the names of the records that the run may put out, raises as `open` and `put` do
    where they cannot be put there at all, and makes nothing.
    """
    for sink in sinks:
        check = getattr(sink, "check", None)  # those of users may have none
        if check is None:
            continue
        try:
            check(records)
        except OSError as error:
            sink.close()
            raise SinkError(
                f"it does not answer: {error}", place=Place(what=sink.text),
                hint="check the address, and begin the run again: nothing was made",
            ) from error  # fmt: skip
        except BaseException:
            sink.close()
            raise


def _others(place: Place) -> SinkError:
    return SinkError(
        "it has outputs of another live run",
        place=place,
        hint="give each run a place of its own, or empty this one",
    )


def can_retract(sink: Sink) -> bool:
    """Whether it can take back what it has: with an attribute `retracts`."""
    return bool(getattr(sink, "retracts", False))


class Follower:
    """Has a sink follow a run's epochs, in a thread of its own: a slow sink holds nobody back."""

    def __init__(self, sink: Sink, place: RunPlace, run: str, tell: Callable[[str], None]) -> None:
        self.sink, self._place, self._run, self._tell = sink, place, run, tell
        self.epoch = 0
        """It has all epochs up to this one."""
        self.error: BaseException | None = None
        self._newest = 0
        self._news = threading.Condition()
        self._ending = False
        self._markers: dict[str, Marker | None] = {}
        self._said = ""
        self.thread = threading.Thread(target=self._go, name="timelapse-sink", daemon=True)

    def told(self, epoch: int) -> None:
        """There are epochs up to this one."""
        with self._news:
            self._newest = max(self._newest, epoch)
            self._news.notify_all()

    def end(self, timeout: float) -> bool:
        """Let it catch up and end. Whether it has."""
        with self._news:
            self._ending = True
            self._news.notify_all()
        self.thread.join(timeout)
        return not self.thread.is_alive()

    def _go(self) -> None:
        with while_not(lambda: self._ending):
            self._go_on()

    def _go_on(self) -> None:
        try:
            self._again(lambda: self.sink.open(self._run))
            self._again(lambda: self.told(chain.newest(self._place)))
            self._follow()
        except _Ended:
            pass
        except BaseException as error:
            self.error = error
            self._tell(f"{self.sink.text} gets no more outputs: {error}")
        finally:
            self.sink.close()

    def _follow(self) -> None:
        known: set[str] = set()
        while True:
            with self._news:
                while self._newest <= self.epoch:
                    if self._ending:
                        return
                    self._news.wait(1.0)
                newest = self._newest
            packs: list[Pack[Epoch]] = []
            self._again(lambda packs=packs, newest=newest: self._read(packs, newest))  # type: ignore[misc]
            known |= set(packs[-1].about.schemas)
            for record in sorted(known):
                self._again(lambda record=record, packs=packs: self._put(record, packs))  # type: ignore[misc]
            self.epoch = packs[-1].about.number

    def _read(self, packs: list[Pack[Epoch]], newest: int) -> None:
        """Read what comes next. Raises SinkError where the sink cannot take it."""
        del packs[:]
        rows = 0
        for pack in chain.epochs(self._place, self.epoch + 1, min(newest, self.epoch + MOST_EPOCHS)):
            if not can_retract(self.sink) and pack.names("retracted"):
                raise SinkError(
                    f"epoch {pack.about.number:,} takes back outputs that were put out before", place=Place(self.sink.text),
                    hint="it cannot: read the feed of additions and retractions (Live.feed)",
                )  # fmt: skip
            packs.append(pack)
            rows += sum(s.rows for name, s in pack.sections.items() if name.startswith("out/"))
            if rows >= MOST_ROWS:
                break

    def _put(self, record: str, packs: Sequence[Pack[Epoch]]) -> None:
        """Put what a sink lacks of some epochs."""
        if record not in self._markers:
            found = self._markers[record] = self.sink.marker(record)
            if found is not None:
                self._check(record, found)
        before = self._markers[record]
        have = 0 if before is None else before.epoch
        own = [p for p in packs if p.about.number > have and f"out/{record}" in p.sections]
        last = packs[-1]
        if last.about.number <= have or not own:
            return
        table = joined([p.table(f"out/{record}") for p in own])
        now = Marker(self._run, last.about.number, last.hash)
        try:
            self.sink.put(record, table, before, now)
        except BaseException:
            del self._markers[record]  # it may have been put: it is asked
            raise
        self._markers[record] = now

    def _check(self, record: str, found: Marker) -> None:
        """Raises SinkError where what a sink has is no part of this run."""
        place = Place(what=f"{record} in {self.sink.text}")
        if found.run != self._run:
            raise _others(place)
        newest = chain.newest(self._place)
        if found.epoch > newest or chain.read_epoch(self._place, found.epoch).hash != found.hash:
            raise SinkError(
                f"it has outputs up to epoch {found.epoch:,} of a history that this run does not have", place=place,
                hint="the run was restored from an older copy: empty the sink, and it is filled again",
            )  # fmt: skip

    def _again(self, do: Callable[[], None]) -> None:
        """Do something until it is done; a sink or a store that does not answer is asked again."""
        attempt = 0
        while True:
            try:
                do()
            except (OSError, TimeoutError, StorageError) as error:
                away = isinstance(error, StorageError) and error.code == AWAY
                if not away and not isinstance(error, OSError):
                    raise
                if str(error) != self._said:
                    self._said = str(error)
                    said = "waits for the run's place" if away else "does not answer, and is asked again"
                    self._tell(f"{self.sink.text} {said}: {error}")
                if self._ending and attempt > 2:
                    raise _Ended from None
                time.sleep(_PAUSES[min(attempt, len(_PAUSES) - 1)])
                attempt += 1
                continue
            self._said = ""
            return


class _Ended(Exception):
    """The run ends, and the sink does not answer: it is filled when the run is begun again."""
