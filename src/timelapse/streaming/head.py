"""The head of a live run: from rows that arrive to a committed epoch. No threads and no clock: who calls brings both.

What an epoch takes is decided by rows, their positions and what is recorded; the program runs over it; then all of it becomes
one file. Memory is a cache of these files, at most one epoch ahead of them: after an error that leaves open what was
committed, a head is thrown away and opened again.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from timelapse.errors import Place, RunError, StorageError
from timelapse.ids import INT64_MIN
from timelapse.kernels.base import Abandoned, quarantined_table
from timelapse.moments import time_text
from timelapse.program.fingerprint import fingerprint
from timelapse.program.program import Program
from timelapse.program.silence import is_silent, silent
from timelapse.segments.types import EventType
from timelapse.streaming import chain, checkpoints
from timelapse.streaming.admission import Admission
from timelapse.streaming.arrivals import Held, Taken
from timelapse.streaming.choosing import IN_KERNEL, Slicing
from timelapse.streaming.committed import Committed
from timelapse.streaming.correction import Pending, Plan, Prepared, sections_of
from timelapse.streaming.counting import Counting
from timelapse.streaming.declared import another, types_of, unsafe
from timelapse.streaming.filters import Filter, Filters
from timelapse.streaming.format import Checkpoint, Epoch, LiveRun
from timelapse.streaming.handover import Origin
from timelapse.streaming.kernel import OpenKernel
from timelapse.streaming.marks import Marks
from timelapse.streaming.once import Once
from timelapse.streaming.pack import Pack, packed
from timelapse.streaming.place import RunPlace
from timelapse.streaming.recovery import PutOut, Recovery, begun_in
from timelapse.streaming.rows import Batch, late_as_asked
from timelapse.streaming.rules import Rules
from timelapse.streaming.running import Closed, Running, Saving
from timelapse.streaming.spread import Spread
from timelapse.streaming.stand import Stand
from timelapse.streaming.streams import Partition, StreamEntry
from timelapse.streaming.succession import Successor
from timelapse.streaming.sums import Emitted, Sums

FORGOTTEN = 1 << 28
"""Bytes of texts beyond twice what it began with that a kernel may hold before it is made anew."""


class Head:
    """A live run that is open for writing, from its newest epoch on.

    Raises RunError (TL943) where the program is another than the run's, StorageError (TL931) where the journal is damaged, HandlerError.
    `wait` is called when an epoch cannot be written (chain.put). `tell` is told what is worth a line.
    """

    def __init__(
        self, place: RunPlace, program: Program, run: LiveRun, run_hash: str, types: Sequence[EventType], rules: Rules, *,
        wait: Callable[[str, float], None], tell: Callable[[str], None], folder: Path | None = None, origin: Origin | None = None,
        change: Successor | None = None, rebuild: bool = False, slicing: Slicing = IN_KERNEL,
    ) -> None:  # fmt: skip
        self._place, self.program, self._types = place, program, tuple(types)
        self.run, self.rules = run, rules
        self._wait, self._tell, self._folder, self._origin = wait, tell, folder, origin
        self.writer = uuid.uuid4().hex
        self._fingerprint = fingerprint(program)
        self._recovery = Recovery(
            place, program, types, quarantine=rules.quarantine, tell=tell, folder=folder, origin=origin, checkpoints=not rebuild, sliced=True
        )  # fmt: skip
        self.marks = Marks(rules.lateness)
        self.spread = Spread(place, program, types, slicing, quarantine=rules.quarantine, tell=tell, folder=folder)  # fmt: skip
        """Epochs of many rows are processed by it, and many rows behind a checkpoint."""
        self._recovery.spread = self.spread
        self.held, self.committed = Held(types), Committed()
        self.last: Epoch | None = None
        self._hash = run_hash
        self._changed_at: int | None = None
        self.filters = Filters((), types)
        """Which rows are put aside as they come."""
        self.late = Pending(types)
        """Late rows that a correction will put into their places."""
        self.once = Once(types, rules.once, rules.within)
        """Which rows came before."""
        self._open(change)

    # --- opening ------------------------------------------------------------------------------------

    def _open(self, change: Successor | None) -> None:
        number = chain.newest(self._place)
        if number:
            pack = chain.read_epoch(self._place, number)
            about = self.last = pack.about
            if about.run != self.run.run:
                raise RunError("the epochs are of another live run", place=Place(pack.name), code="TL940")
            self._hash = pack.hash
            self.marks.follow(about)
            self.filters = Filters(about.filters, self._types)
            if self.rules.late == "correct":
                for earlier in chain.epochs(self._place, about.corrected + 1, number):
                    self.late.follow(earlier)
            if about.lateness != self.rules.lateness:  # marks are others now: what is complete stays so
                self.marks.close(about.complete)
            if about.held:
                for earlier in chain.epochs(self._place, about.held_from, number):
                    self.held.recall(earlier, about.complete)
        self.once.recall(self._place, self.last, self._origin)
        begun = self.run.fingerprint
        if self.last is not None and self.last.last_change:
            begun, self._changed_at = begun_in(chain.read_epoch(self._place, self.last.last_change))
        if self._is_another(begun, self.last):
            if change is None:
                raise another(self.program, str(self._place))
            if self.last is None or self.last.complete is None:
                raise unsafe(
                    self.program, "no row was processed yet", "begin another live run, in another directory"
                )
            self._change(change, self.last)
        self._begin_kernel(compiled=True)
        self._recovery.checkpoints = True

    def _is_another(self, digest: str, last: Epoch | None) -> bool:
        """Whether the program that ran at the end of an epoch, or its event types, are not this one's."""
        return digest != self._fingerprint or self._types != types_of(self._place, self.run, last)

    def _change(self, change: Successor, last: Epoch) -> None:
        """Have another program go on from here: an epoch of its own, which has where that program begins."""
        made = change(last)
        if self.late.rows:
            made.done.append(f"{self.late.rows:,} late rows that waited for a correction stay aside")
        self.late.drop(last.number)
        number = last.number + 1
        epoch = self._about(
            number, made.now, last.complete, last.end_seq, 0, Sums(), begin=last.begin, decisions=made.done, ended=False,
            **made.about(number),
        )  # fmt: skip
        self._put(epoch, made.sections, {})
        self._changed_at = last.complete
        for line in made.done:
            self._tell(line)

    def _begin_kernel(self, *, compiled: bool, last: Epoch | None = None) -> None:
        """Make the kernel, at the newest checkpoint, and bring it to the newest epoch, or to one that is followed."""
        self._stand_at(self._recovery.begin(last or self.last, compiled=compiled)[0], last)

    def _stand_at(self, running: Running, last: Epoch | None = None) -> None:
        """Go on with a program that stands at the end of the newest epoch."""
        self.on = running
        self.committed.show(running.opened, last or self.last)
        self._texts = 2 * running.kernel.text_bytes

    def basis(self) -> Callable[[], Stand]:
        """What gives where the program stands now (Running.basis). Raises Abandoned."""
        return self.on.basis(self.program, self._place, self._recovery.base, self.here())

    def base(self) -> Stand:
        """Where the program stood before the journal began."""
        return self._recovery.base()

    @property
    def kernel(self) -> OpenKernel:
        """The program, at the end of the newest epoch."""
        return self.on.kernel

    def notes(self, stream: int) -> list[str]:
        """What a stream's source has noted in all epochs, in order."""
        epoch, notes = self.on.noted
        last = 0 if self.last is None else self.last.number
        notes = [*notes, *checkpoints.noted(self._place, epoch + 1, last)]
        return [text for number, text in notes if number == stream]

    torn = False
    """Whether the program stands somewhere in an epoch, or at the end of one that is not committed."""

    def follow(self) -> int:
        """Take over the epochs that another process has committed since. Returns how many. Raises as opening does."""
        if self.torn:
            self._begin_kernel(compiled=True)
            self.torn = False
        before, newest = 0 if self.last is None else self.last.number, chain.newest(self._place)
        for pack in chain.epochs(self._place, before + 1, newest):
            last = self.last
            try:
                self._follow(pack)
            except StorageError:  # who follows may ask again
                self.last, self.torn = last, True
                raise
        return newest - before

    def _follow(self, pack: Pack[Epoch]) -> None:
        about = pack.about
        if about.change is not None and self._is_another(about.change.fingerprint, about):
            raise another(self.program, pack.name)
        self._changed_at = self._changed_at if about.change is None else about.complete
        version = 0 if self.last is None else self.last.version
        if about.version != version or about.change is not None:
            self._begin_kernel(compiled=True, last=about)
        else:
            try:
                self._recovery.again(self.on, about.number, about, None, None)
            except Abandoned:
                self._begin_kernel(compiled=False, last=about)
        self.held.recall(pack, about.complete)
        if about.complete is not None:
            self.held.take(about.complete, 0)
        self.once.follow(pack)
        self.late.follow(pack)
        self.marks.follow(about)
        self.filters = Filters(about.filters, self._types)
        self.committed.show(self.on.opened, about)
        self.last, self._hash = about, pack.hash  # who waits for the epoch can read it

    # --- an epoch -----------------------------------------------------------------------------------

    @property
    def complete(self) -> int | None:
        """The time up to which everything has happened."""
        if self.last is None or self.last.complete is None:
            return None if self._origin is None else self._origin.complete
        return self.last.complete

    @property
    def end_seq(self) -> int:
        """The number of rows in the journal, with those of the log that it goes on from."""
        return self.run.first_seq if self.last is None else self.last.end_seq

    @property
    def waiting(self) -> tuple[int, int]:
        """How many rows wait until all before them is complete, and the memory they take."""
        return self.held.rows, self.held.nbytes

    @property
    def partitions(self) -> dict[tuple[int, str], Partition]:
        """How far partitions were read, by stream and name."""
        return self.marks.partitions

    def stream(self, entry: StreamEntry) -> None:
        """A stream takes part from now on. Its number is its own for good."""
        self.marks.stream(entry)

    def partition(self, stream: int, name: str) -> Partition:
        """A partition; one that was not there before appears now."""
        return self.marks.partition(stream, name, self.complete)

    def keep_out(self, entries: Sequence[Filter]) -> None:
        """From the next epoch on, which records it, rows that one of these fits are put aside as they come. Raises UsageError."""
        self.filters = self.filters.then(entries)

    def epoch(
        self, batches: Sequence[Batch], now: int, *, idle: Sequence[tuple[int, str]] = (), active: Sequence[int] | None = None,
        ended: bool = False,
    ) -> Epoch | None:  # fmt: skip
        """Take rows, process what is complete, commit. `now`: wall clock, microseconds.

        `idle`: partitions that no longer hold the others back. `active`: the streams that are read now (None: all). `ended`: nothing comes any more, so all that
        waits is processed. None, and nothing written, where nothing has happened. Rows up to a partition's position are skipped.
        """
        decisions, before = self.filters.take_told(), self.marks.places()
        logged = None if self._origin is None else self._origin.complete
        rows = Admission(
            self.program, self._types, self.marks, self.rules, self.filters, now, self.complete, None if self.last is None else self.last.begin,
            self._floor, logged, decisions,
        )  # fmt: skip
        for batch in batches:
            rows.take(batch, self.partition(batch.stream, batch.partition))
        sections = rows.sections
        told, complete = self.marks.idle([self.partition(*at) for at in idle], active, self.complete)
        decisions += told
        # Rows that wait in this epoch's file: those that are not complete yet, or else they stand in the journal.
        arrived = {n.removeprefix("held/"): t for n, t in sections.items() if n.startswith("held/")}
        complete = self.marks.ended(self.complete) if ended else complete
        if not (sections or decisions or before != self.marks.places() or complete != self.complete):
            return None
        if ended:
            self.marks.close(complete)
        for name, tables in arrived.items():
            for table in tables:
                self.held.add(name, table)
            whole = pa.concat_tables(tables)
            waits = np.asarray(whole.column("ts")) > (INT64_MIN if complete is None else complete)
            sections[f"held/{name}"] = [whole.filter(pa.array(waits))]
        return self._commit(batches, sections, complete, decisions, now, ended=ended)

    @property
    def _floor(self) -> int | None:
        """Up to this time nothing is ever corrected: it belongs to the run that live goes on from, or to another program."""
        ends = [self._changed_at, None if self._origin is None else self._origin.complete]
        return max((ts for ts in ends if ts is not None), default=None)

    def _commit(
        self, batches: Sequence[Batch], sections: Mapping[str, list[pa.Table]], complete: int | None, decisions: Sequence[str],
        now: int, *, ended: bool,
    ) -> Epoch:  # fmt: skip
        number = 1 if self.last is None else self.last.number + 1
        origin = self._origin
        first_seq = self.end_seq
        taken, again = Taken({}, 0, 0), dict[str, pa.Table]()
        if complete is not None:
            taken, again = self.once.parted(self.held.take(complete, first_seq), complete)
            self.marks.count(again)
        begin = (None if origin is None else origin.begin) if self.last is None else self.last.begin
        begin = taken.first if begin is None and taken.rows else begin
        tables = {name: pa.concat_tables(parts) for name, parts in sections.items()}
        tables = {name: table for name, table in tables.items() if table.num_rows}
        self.held.came(number, tables, complete)
        tables |= {f"duplicate/{name}": table for name, table in again.items()}
        sums = self.on.sums
        if begin is not None and complete is not None:
            emitted = self._process(taken, first_seq, complete)
            sums, self.on.begin = self.on.sums, begin
            tables |= {f"journal/{name}": table for name, table in taken.tables.items()}
            tables |= {f"out/{name}": table for name, table in emitted.outputs.items()}
            if emitted.rejected.num_rows:
                tables["rejected"] = emitted.rejected
            if emitted.quarantined:
                tables["quarantined"] = quarantined_table(emitted.quarantined)
        streams = {(b.stream, note) for b in batches for note in b.notes}
        self.late.add(number, tables, self.rules.late)
        about = self._about(
            number, now, complete, first_seq, taken.rows, sums, begin=begin, decisions=list(decisions), notes=sorted(streams), ended=ended
        )  # fmt: skip
        found = self._put(about, late_as_asked(tables, self.rules.late), tables)
        self.committed.show(self.on.opened, found)
        return found

    def _about(
        self, number: int, now: int, complete: int | None, first_seq: int, rows: int, sums: Sums, **further: Any
    ) -> Epoch:  # fmt: skip
        """The manifest of an epoch; `further` are fields that belong to it alone."""
        last = self.last
        return Epoch(
            number=number, run=self.run.run, previous=self._hash, writer=self.writer, attempt=uuid.uuid4().hex, written=now,
            fingerprint=self._fingerprint, lateness=self.rules.lateness, late_rows=self.rules.late, complete=complete,
            first_seq=first_seq, rows=rows, streams=self.marks.streams,
            partitions=self.marks.ordered,
            held=self.held.rows, held_from=self.held.first(number),
            outputs=sums.outputs, schemas=sums.schemas, rejected=sums.rejected, quarantined=sums.quarantined,
            **{
                "version": 0 if last is None else last.version, "last_correction": 0 if last is None else last.last_correction,
                "last_change": 0 if last is None else last.last_change,
                "corrected": self.late.upto(number), "filters": list(self.filters.entries), **further,
            },
        )  # fmt: skip

    def _put(self, about: Epoch, sections: Mapping[str, pa.Table], seen: Mapping[str, pa.Table]) -> Epoch:
        """Commit an epoch. `seen`: its sections, for who follows in this process."""
        data, found = packed(about, sections)
        chain.put(self._place, about.number, data, self._wait)
        self.last = msgspec.structs.replace(
            about, partitions=[msgspec.structs.replace(p) for p in about.partitions]
        )
        self._hash, self.sections, self.torn = found, seen, False
        return self.last

    # --- corrections ----------------------------------------------------------------------------------

    def plan(self) -> Plan | None:
        """A correction that puts all late rows so far into their places; None where none wait."""
        if not self.late.rows or self.last is None:
            return None
        late = self.late.all()
        return Plan(late, Counting(self._types, self.once, late), self.last)

    def prepare(self, plan: Plan, stopped: Callable[[], None] = lambda: None) -> Prepared:
        """Run a correction up to the epoch at which it was planned. It may be done in another thread, while epochs are made.

        Raises HandlerError, StorageError, and what `stopped` raises, which is called again and again.
        """
        plan.counting.go_on(self._place, plan.last, self._origin)
        if not plan.change.rows:
            return Prepared(plan, None, PutOut(), plan.last)
        running, found = self._recovery.begin(plan.last, late=plan.change, stopped=stopped)
        return Prepared(plan, running, found, plan.last)

    def correct(self, prepared: Prepared, now: int) -> Epoch:
        """Bring a correction up to the newest epoch, and commit it. The program goes on from there. Raises as `epoch` does."""
        last, plan = self.last, prepared.plan
        assert last is not None
        plan.counting.go_on(self._place, last, self._origin)
        if prepared.running is not None and prepared.at.number < last.number:
            try:
                self._recovery.again(
                    prepared.running, prepared.at.number + 1, last, plan.change, prepared.found
                )
            except Abandoned:
                running, found = self._recovery.begin(last, compiled=False, late=plan.change)
                prepared = Prepared(plan, running, found, last)
        correction, sections = sections_of(self._place, prepared, last)
        self.late.drop(correction.upto)
        for part, count in (("duplicate/", 1), ("removed/", 1)):
            self.marks.count(
                {n.removeprefix(part): t for n, t in sections.items() if n.startswith(part)}, count
            )
        self.marks.count({n: pa.concat_tables(own) for n, own in plan.counting.again.items()}, -1)
        on, number, begin = prepared.running, last.number + 1, last.begin
        sums, done = Sums.of(last), f"{plan.late.rows:,} late rows came before"
        if on is not None:
            sums, begin = replace(on.sums, schemas={**last.schemas, **on.sums.schemas}), on.begin
            done = f"version {correction.version} of the journal: {plan.late.rows:,} late rows from {time_text(correction.cut)} on are in their places"
        about = self._about(
            number, now, last.complete, last.end_seq, plan.change.net, sums, begin=begin, decisions=[done], ended=last.ended,
            version=correction.version, last_correction=last.last_correction if on is None else number, correction=correction,
        )  # fmt: skip
        committed = self._put(about, sections, sections)
        self.once.took(sections, sections.__getitem__, last.complete or 0)
        if on is not None:
            self._stand_at(replace(on, sums=sums))
        return committed

    sections: Mapping[str, pa.Table] = {}
    """What the last epoch has: for who follows in the same process."""

    def _process(self, taken: Taken, first_seq: int, complete: int) -> Emitted:
        before, self.torn = self.complete, True
        if before is not None and taken.rows and is_silent(self.program, before, taken.first):
            name = min(taken.tables, key=lambda n: int(taken.tables[n].column("seq")[0].as_py()))
            raise silent(self.program, before, name, taken.first, first_seq)
        began = time.perf_counter()
        try:
            emitted = self._in_slices(taken, complete) or self.on.put(taken, complete)
        except Abandoned as why:
            self.give_up(why)
            emitted = self.on.put(taken, complete)
        self.spread.took(time.perf_counter() - began)
        return emitted

    def _in_slices(self, taken: Taken, complete: int) -> Emitted | None:
        """Process rows as time slices, where there are so many of them; None where it is the open kernel's turn."""
        number, taken_out = (1, 0) if self.last is None else (self.last.number + 1, self.last.quarantined)
        way, on = self.spread.way(taken, self.on.opened, taken_out=taken_out), self.on
        if way is None:
            return None
        done = self.spread.run(number, way, self.basis(), on.journal, taken, complete)
        if done is None:
            return None
        self.on = self._recovery.closed(on, done.stand, number)
        self.on.journal.add(taken.tables, taken.rows)
        self.on.took(self.program, done.emitted, complete)
        return done.emitted

    def give_up(self, why: Abandoned) -> None:
        """Go on without machine code, at the end of the newest epoch."""
        self._tell(f"handlers run as Python from now on: {why.reason}")
        self._begin_kernel(compiled=False)

    # --- checkpoints ----------------------------------------------------------------------------------

    def here(self) -> Checkpoint | None:
        """A checkpoint of this moment; None where nothing has happened yet."""
        last = self.last
        if last is None or last.complete is None or last.begin is None:
            return None
        own = self._fingerprint
        return Checkpoint(self.run.run, last.number, self._hash, last.complete, own, whole=False)

    def checkpoint(self) -> str | None:
        """Write what was done to states since the last checkpoint. Returns its name; None where there is nothing to write, or what
        was done is not committed. Raises OSError and StorageError, after which the next one has what this one lacks."""
        saving = self.saving()
        return None if saving is None else saving.now()

    def saving(self) -> Saving | None:
        """The same, still to be written: in any thread, while epochs are made. Then this takes note (Saving.done)."""
        about = self.here()
        if not self._recovery.restorable or about is None or self.torn:
            return None
        if self.on.checkpoint and not self._place.exists(self.on.checkpoint):
            self._begin_kernel(compiled=True)  # removed while this followed or corrected (collecting.py)
        if self.on.reached == about.epoch and not self.on.unsaved and self.on.whole is None:
            return None  # as long as no rows come; else files would become more and more
        try:
            return self.on.saving(self._place, about)
        except Abandoned as why:
            self.give_up(why)
            return self.on.saving(self._place, about)

    def renew(self) -> bool:
        """After a checkpoint: make the kernel anew where it holds far more texts than it began with. Whether it was."""
        if isinstance(self.on.opened, Closed) or self.kernel.text_bytes <= self._texts + FORGOTTEN:
            return False
        self._begin_kernel(compiled=True)
        return True

    def whole_at(self, name: str) -> None:
        """A whole checkpoint was written that has all up to the checkpoint of this name."""
        self.on.changes = 0 if name == self.on.checkpoint else self.on.changes
