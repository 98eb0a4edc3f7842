"""Early results: what the rows that still wait would put out if no others came, for who does not want to wait for completeness.

They are computed on a copy of where the program stands at the end of an epoch, and the copy is thrown away: journal, outputs and digest know nothing
of them. They are marked as early, are in this process's memory alone, and go away as their times become complete: what the epoch puts out stands in
their place.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from timelapse.errors import StorageError, TimelapseError, UsageError, meant
from timelapse.ids import INT64_MAX, INT64_MIN
from timelapse.kernels.base import Abandoned, PassResult, output_schema
from timelapse.model.events import Record
from timelapse.program.program import Program, spec_of
from timelapse.program.silence import is_silent, silent
from timelapse.results.records import record_types
from timelapse.segments.types import EventType
from timelapse.streaming.arrivals import Taken, ordered
from timelapse.streaming.format import Epoch
from timelapse.streaming.head import Head
from timelapse.streaming.kernel import OpenKernel, is_restorable
from timelapse.streaming.running import Running
from timelapse.streaming.spans import Span, micros_of
from timelapse.streaming.stand import Stand
from timelapse.streaming.sums import Emitted
from timelapse.streaming.versions import common
from timelapse.streaming.window import JournalEnd

MARK = "@early"
"""The column of early outputs that has the epoch behind whose end they were computed."""
_LAST = 10.0
"""Seconds for which a run that ends waits for early results that are being computed."""
SHARE = 0.25
"""Of the time at most that early results are computed."""


@dataclass(frozen=True)
class Early:
    """What rows that waited at the end of an epoch would put out: `tables` by record, as outputs are stored.

    `until`: the greatest time of these rows, up to which they were processed; `problem`: why there is nothing, where the program failed.
    """

    epoch: int
    rows: int = 0
    until: int | None = None
    tables: Mapping[str, pa.Table] = field(default_factory=dict)
    problem: str = ""
    seconds: float = 0.0

    def after(self, complete: int | None) -> Early:
        """Those of later times."""
        if complete is None:
            return self
        left = {name: _parted(table, complete)[1] for name, table in self.tables.items()}
        return replace(self, tables={name: table for name, table in left.items() if table.num_rows})


def checked_every(program: Program, early: Span) -> float:
    """The seconds between two computations. Raises UsageError for what is no length of time, and for a program of which there is no copy."""
    every = micros_of(early, "early= (--early)") / 1e6
    if not is_restorable(program):
        raise UsageError(
            f"{spec_of(program).name} runs as the serial loop, and has no early results", code="TL810",
            hint="leave early= (--early) out; `timelapse explain` shows what makes it so",
        )  # fmt: skip
    return every


class Copies:
    """Copies of where a live program stands, one after the other: each is the one before with what was done to states since."""

    def __init__(
        self,
        program: Program,
        types: Sequence[EventType],
        *,
        quarantine: int | None,
        folder: Path | None = None,
    ) -> None:
        self.program, self._types, self._quarantine, self._folder = program, tuple(types), quarantine, folder
        self._on: Running | None = None
        self._make: Callable[[], Stand] = Stand
        self._parts: list[tuple[PassResult, int]] = []

    def planned(self, head: Head) -> Callable[[], Early]:
        """What computes early results as of the head's last epoch, in any thread. It is called before this is called again, or never. Raises Abandoned."""
        on, here = head.on, head.here()
        if on is not self._on or on.parts is None:
            self._make, self._parts = head.basis(), []
            self._on, on.parts = on, []
        elif here is not None and isinstance(on.opened, OpenKernel):
            on.ask(here)
            self._parts += on.parts
            on.parts.clear()
        waiting, journal, opened = head.held.all(), on.journal.followed_by({}, 0), on.opened
        once = head.once.copy()
        gone = set(opened.gone) if isinstance(opened, OpenKernel) else set[int]()
        number, compiled, before = (
            0 if head.last is None else head.last.number,
            not opened.given_up,
            head.complete,
        )

        def compute() -> Early:
            began = time.perf_counter()
            taken = ordered(
                self._types,
                {n: pa.concat_tables(t).combine_chunks() for n, t in waiting.items()},
                journal.count,
            )
            taken, _ = once.parted(taken, INT64_MAX)
            if not taken.rows:
                return Early(number)
            stand = self._stand()
            ends = [int(pc.max(table.column("ts")).as_py()) for table in taken.tables.values()]
            found, problem = {}, ""
            try:
                if before is not None and is_silent(self.program, before, taken.first):
                    raise silent(self.program, before, min(taken.tables), taken.first, journal.count)
                found = dict(self._run(stand, journal, taken, max(ends), gone, compiled=compiled).outputs)
            except StorageError:
                raise
            except TimelapseError as error:  # it may be another one once all rows are there
                problem = str(error)
            return Early(number, taken.rows, max(ends), found, problem, time.perf_counter() - began)

        return compute

    def _stand(self) -> Stand:
        try:
            stand = self._make()
        except StorageError:
            self._on = None  # the checkpoint that it begins with may be gone: begin with another one
            raise
        if self._parts:
            stand, self._parts = stand.after(self.program, self._parts).trimmed(self.program), []
        self._make = lambda: stand
        return stand

    def _run(
        self, stand: Stand, journal: JournalEnd, taken: Taken, until: int, gone: set[int], *, compiled: bool
    ) -> Emitted:
        count, own = journal.count, journal.followed_by(taken.tables, taken.rows)
        kernel = OpenKernel(
            self.program, self._types, own, stand, quarantine=self._quarantine, folder=self._folder, gone=set(gone),
            compiled=compiled,
        )  # fmt: skip
        try:
            return Emitted.of(kernel.run(count, count + taken.rows, until))
        except Abandoned:
            if not compiled:
                raise
            return self._run(stand, journal, taken, until, gone, compiled=False)
        finally:
            kernel.close()


@dataclass
class Tally:
    """What became of early results that were shown, once their times were complete: rows that were put out just so,
    and rows that were not, or that others had replaced before."""

    confirmed: int = 0
    retracted: int = 0


class EarlyResults:
    """Computes early results beside a live run, `every` seconds at most, and shows the newest ones."""

    def __init__(self, every: float, copies: Copies, tell: Callable[[str], None]) -> None:
        self._every, self._copies, self._tell = every, copies, tell
        self._thread: threading.Thread | None = None
        self._next, self._planned = 0.0, -1
        self._lock = threading.Lock()
        self._complete: int | None = None
        self._said = ""
        self.now = Early(0)
        """What is shown, replaced as a whole each time."""
        self.tally = Tally()

    def settle(self, epoch: Epoch, sections: Mapping[str, pa.Table]) -> None:
        """An epoch was committed: what is shown of its times is confirmed by what it has put out, or retracted."""
        with self._lock:
            self._complete = epoch.complete
            confirmed = retracted = 0
            for name, table in self.now.tables.items():
                due, _ = _parted(table, INT64_MIN if epoch.complete is None else epoch.complete)
                same = _again(due, sections.get(f"out/{name}"))
                confirmed += same
                retracted += due.num_rows - same
            self.now = self.now.after(epoch.complete)
            self.tally.confirmed += confirmed  # who sees them counted no longer finds them
            self.tally.retracted += retracted

    def show(self, found: Early) -> None:
        """Show these in the place of what is shown."""
        with self._lock:
            found = found.after(self._complete)
            for name, table in self.now.tables.items():
                self.tally.retracted += table.num_rows - _again(table, found.tables.get(name))
            self.now = found

    def shown(self, record: type[Record] | str) -> pa.Table:
        """What is shown of a record type, marked. Raises UsageError for a record that the program does not have."""
        now, name = self.now, record if isinstance(record, str) else record.__name__
        known = {cls.__name__: cls for cls in record_types(self._copies.program)}
        if name not in now.tables and name not in known:
            raise UsageError(
                f"the program has no record {name}",
                hint=f"{meant(name, known)}records: {', '.join(known)}",
                code="TL810",
            )
        table = now.tables[name] if name in now.tables else output_schema(known[name]).empty_table()
        mark = pa.field(MARK, pa.int64(), nullable=False)
        return table.add_column(0, mark, pa.array(np.full(table.num_rows, now.epoch)))

    def step(self, head: Head, lock: AbstractContextManager[bool]) -> None:
        """Begin to compute them anew, where that is due. The loop calls this between epochs."""
        number = 0 if head.last is None else head.last.number
        if (
            number == self._planned
            or time.monotonic() < self._next
            or (self._thread is not None and self._thread.is_alive())
        ):
            return
        try:
            with lock:
                compute = self._copies.planned(head)
        except Abandoned as why:
            with lock:
                head.give_up(why)
            return
        self._planned = number
        self._thread = threading.Thread(
            target=self._compute, args=(compute,), name="timelapse-early", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Wait until none is being computed, which needs the run's folder; for some seconds at most."""
        if self._thread is not None:
            self._thread.join(_LAST)

    def _compute(self, compute: Callable[[], Early]) -> None:
        began = time.monotonic()
        try:
            found = compute()
            self.show(found)
            said = f"early results: {found.problem}" if found.problem else ""
        except Exception as error:
            said = f"early results are computed later: {error}"
            self._planned = -1
        took = time.monotonic() - began
        self._next = began + max(self._every, took / SHARE)
        if said and said != self._said:
            self._tell(said)
        self._said = said


def _again(rows: pa.Table, others: pa.Table | None) -> int:
    """How many rows are among others, wherever their roots stand: `seq` moves where rows come before."""
    if others is None or not rows.num_rows or rows.schema.names != others.schema.names:
        return 0
    columns = [name for name in rows.column_names if name != "seq"]
    return int(common([rows.column(c) for c in columns], [others.column(c) for c in columns])[0].sum())


def _parted(table: pa.Table, complete: int) -> tuple[pa.Table, pa.Table]:
    """The rows up to a time, and those behind it."""
    due = table.column("ts").to_numpy() <= complete
    return table.filter(pa.array(due)), table.filter(pa.array(~due))
