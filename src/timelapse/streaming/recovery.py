"""Bringing a program to the end of a live run's newest epoch: from its newest checkpoint that counts, by the journal since.

A correction is the same, with further rows in the journal: from a checkpoint before the first of them.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from timelapse.errors import Place, RunError
from timelapse.kernels.base import Abandoned
from timelapse.program.failure import Quarantined
from timelapse.program.program import Program
from timelapse.segments.types import EventType
from timelapse.streaming import chain, checkpoints
from timelapse.streaming.arrivals import Taken
from timelapse.streaming.declared import fitted, put_out
from timelapse.streaming.format import Checkpoint, Epoch
from timelapse.streaming.handover import Origin
from timelapse.streaming.kernel import OpenKernel, is_restorable, lag_of
from timelapse.streaming.pack import Pack
from timelapse.streaming.place import RunPlace
from timelapse.streaming.running import Closed, Running
from timelapse.streaming.sliced import SLICED_ROWS, replayed
from timelapse.streaming.spread import Spread
from timelapse.streaming.stand import Stand
from timelapse.streaming.sums import Emitted, Sums
from timelapse.streaming.versions import Inserted, at_places, corrections, journalled, shift_of, valid
from timelapse.streaming.window import Block, JournalEnd

PIECE_ROWS = 1_000_000
"""So many rows behind a checkpoint go through the program at once, about, where there are many."""
ANY = 1 << 40
"""As many failing events of an epoch as there are: the run has bounded them."""


@dataclass
class PutOut:
    """What was put out since some epoch, by record."""

    outputs: dict[str, list[pa.Table]] = field(default_factory=dict)
    rejected: list[pa.Table] = field(default_factory=list)
    quarantined: list[Quarantined] = field(default_factory=list)
    inserted: dict[str, list[pa.Table]] = field(default_factory=dict)
    """By event type: rows that were inserted, as they stand in the journal."""
    removed: dict[str, list[pa.Table]] = field(default_factory=dict)
    """By event type: rows that were removed, as they stood in the version before."""
    moved: int = 0
    """How many more rows there are in the journal now."""

    def add(self, emitted: Emitted) -> None:
        for name, table in emitted.outputs.items():
            self.outputs.setdefault(name, []).append(table)
        if emitted.rejected.num_rows:
            self.rejected.append(emitted.rejected)
        self.quarantined += emitted.quarantined


class Recovery:
    """Makes a program run on, at the end of an epoch. It writes nothing, so it may be done beside what goes on.

    `checkpoints` False: none is used, so that all is run again from where the program began; `sliced`: in time slices, where there are many rows.
    """

    def __init__(
        self, place: RunPlace, program: Program, types: Sequence[EventType], *, quarantine: int | None, tell: Callable[[str], None],
        folder: Path | None = None, origin: Origin | None = None, checkpoints: bool = True, sliced: bool = False,
    ) -> None:  # fmt: skip
        self.checkpoints, self.sliced = checkpoints, sliced
        self._place, self.program, self._types = place, program, list(types)
        self._quarantine, self._tell, self._folder, self._origin = quarantine, tell, folder, origin
        self._lag = lag_of(program)
        self.restorable = is_restorable(program)
        self.problems: list[str] = []
        self.keep = False
        """Whether to keep where the program stood, for `stand`."""
        self.stood: Stand | None = None
        self.spread: Spread | None = None
        """Processes rows behind a checkpoint as time slices, where there are many; None: the open kernel does."""
        self._changed = 0
        """The epoch at which this program began, where it was not the first."""

    @property
    def floor(self) -> int | None:
        """Where the run ended that live goes on from."""
        return None if self._origin is None else self._origin.complete

    def base(self) -> Stand:
        """Where the program stood before its first epoch."""
        if self._changed:
            return begun_at(chain.read_epoch(self._place, self._changed))
        return Stand() if self._origin is None else self._origin.stand()

    def begin(
        self, last: Epoch | None, *, compiled: bool = True, late: Inserted | None = None, stopped: Callable[[], None] = lambda: None,
        compare: bool = True,
    ) -> tuple[Running, PutOut]:  # fmt: skip
        """The program at the end of `last` (None: at the beginning), and what it has put out since `Running.start`.

        `late`: rows that are inserted and removed, too. Without any, what is put out is compared with the epochs' sums (TL944). `stopped` is
        called again and again, and raises to give up. Raises StorageError, HandlerError.
        """
        try:
            running = self._at_checkpoint(last, compiled, late)
            found = PutOut()
            collected = None if late is None else found
            at = running.start
            if last is not None and late is None and compare and self._is_long(running, last):
                running, at = self._in_pieces(running, last, stopped), last.number
            if last is not None and at < last.number:
                self.again(running, at + 1, last, late, collected, stopped, compare=compare)
            return running, found
        except Abandoned:
            if not compiled:
                raise
            return self.begin(last, compiled=False, late=late, stopped=stopped, compare=compare)

    def _at_checkpoint(self, last: Epoch | None, compiled: bool, late: Inserted | None) -> Running:
        """The program at its newest checkpoint that counts; with `late`, at one before the first of these rows."""
        before = None if late is None else late.first
        number = 0 if last is None else last.number
        self._changed = 0 if last is None else last.last_change
        found = None
        if self.restorable and self.checkpoints:
            counts = valid(self._place, last)
            found = checkpoints.newest_whole(
                self._place, number, self.problems, lambda about: counts(about) and (before is None or about.complete < before)
            )  # fmt: skip
        for problem in self.problems:
            self._tell(f"a checkpoint is of no use, an older one is: {problem}")
        self.problems.clear()
        journal = JournalEnd(self._types, self._lag)
        stand, sums, gone, start, begin = Stand(), Sums(), set[int](), 0, None
        if found is None and self._changed:
            stand, start = self.base(), self._changed
            epoch = chain.read_epoch(self._place, start).about
            begin, gone = epoch.begin, self._recall(epoch, journal)
        elif found is None and late is None and (running := self._by_slices(last, compiled)) is not None:
            return running
        elif found is None and self._origin is not None:
            stand, sums, begin = self.base(), self._origin.sums(), self._origin.begin
            journal.begin(self._origin.count, begin, self._blocks_before())
        if found is not None:
            stand, start = found.stand(self.program, self.base), found.about.epoch
            epoch = chain.read_epoch(self._place, start).about
            sums, begin = Sums.of(epoch), epoch.begin
            gone = self._recall(epoch, journal)
        kernel = OpenKernel(
            self.program, self._types, journal, stand, quarantine=self._quarantine, folder=self._folder, gone=gone, compiled=compiled
        )  # fmt: skip
        self.stood = stand if self.keep else None
        made = Running(kernel, journal, sums, begin, stand.complete, start, journal.count)
        if self._changed:
            made.earlier = put_out(self._place, chain.read_about(self._place, self._changed))
        if found is not None:
            made.checkpoint, made.changes, made.noted = found.name, found.changes, found.noted
            made.reached = found.about.epoch
        return made

    def stand(
        self, last: Epoch | None, then: tuple[Taken, int] | None = None, *, compiled: bool = True
    ) -> Stand:
        """Where the program stands at the end of `last`, or after further rows, up to a time. Raises as `begin` does."""
        self.keep = True
        running, _ = self.begin(last, compiled=compiled)
        assert self.stood is not None
        if then is None and (running.complete is None or running.begin is None):
            return self.stood
        try:
            if then is not None:
                running.put(*then)
            changes = running.kernel.changes()
        except Abandoned:
            if not compiled:
                raise
            return self.stand(last, then, compiled=False)
        return self.stood.then(self.program, changes, running.complete or 0).trimmed(self.program)

    def _by_slices(self, last: Epoch | None, compiled: bool) -> Running | None:
        """The program at the end of `last`, by a replay of the journal, where that is quicker. Raises RunError (TL944) as `again` does."""
        if last is None or not self.restorable or not self.sliced:
            return None
        start = None if self._origin is None else self._origin.path
        found = replayed(
            self._place, self.program, last, start, quarantine=self._quarantine is not None, folder=self._folder, tell=self._tell
        )  # fmt: skip
        if found is None:
            return None
        stand, journal = found.stand(), JournalEnd(self._types, self._lag)
        blocks = found.blocks((found.complete or 0) - self._lag) if self._lag else ()
        journal.begin(found.count, found.begin, blocks)
        self._compare(found.sums(), chain.read_epoch(self._place, last.number))
        kernel = OpenKernel(
            self.program, self._types, journal, stand, quarantine=self._quarantine, folder=self._folder, compiled=compiled
        )  # fmt: skip
        self.stood = stand if self.keep else None
        made = Running(kernel, journal, found.sums(), found.begin, stand.complete, last.number, journal.count)
        made.whole, made.rerun = (last.number, stand), found.count
        return made

    def at(
        self, stand: Stand, epoch: Epoch | None, *, compiled: bool = True, then: Taken | None = None,
        gone: set[int] | None = None,
    ) -> Running:  # fmt: skip
        """A program that stands so at the end of an epoch (None: before the first), or after further rows.

        `gone`: of these rows, those that were taken out; they stay so, as those before (None: it decides by itself what to take out).
        """
        journal, out = JournalEnd(self._types, self._lag), set[int]()
        if epoch is not None:
            out = self._recall(epoch, journal)
        elif self._origin is not None:
            journal.begin(self._origin.count, self._origin.begin, self._blocks_before())
        if then is not None:
            journal.add(then.tables, then.rows)
        kernel = OpenKernel(
            self.program, self._types, journal, stand, quarantine=self._quarantine, folder=self._folder, compiled=compiled, gone=None if gone is None else out | gone
        )  # fmt: skip
        begin, number = (journal.ts_first, 0) if epoch is None else (epoch.begin, epoch.number)
        return Running(kernel, journal, Sums(), begin, stand.complete, number, journal.count)

    def closed(self, running: Running, stand: Stand, number: int) -> Running:
        """A program whose rows up to the end of an epoch were processed elsewhere, and which stands so there: a kernel is made when it is asked for."""
        before, given_up = running.opened, running.opened.given_up

        def make() -> OpenKernel:
            return OpenKernel(
                self.program, self._types, running.journal, stand, quarantine=self._quarantine, folder=self._folder, compiled=not given_up
            )  # fmt: skip

        return replace(
            running, opened=Closed(stand, make, given_up, before.compiled, before.why_python), checkpoint="", reached=0, changes=0,
            whole=(number, stand), unsaved=[], written=None, parts=None,
        )  # fmt: skip

    def around(self, start: Epoch | None, reaching: int, last: Epoch, ts: int) -> tuple[Taken, Taken]:
        """The rows of one epoch before a time and from it on, in the newest version; `start`: the last one before with rows."""
        inserted, pack = Inserted(self._types), chain.read_epoch(self._place, reaching)
        inserted.add_all(corrections(self._place, last, reaching - 1))
        after = None if start is None else start.complete
        seq = pack.about.first_seq if start is None else start.end_seq
        return journalled(self._types, pack, inserted, after, seq).parted(ts)

    def _blocks_before(self, since: int | None = None) -> Sequence[Block]:
        """What of the log that the run goes on from `after=` handlers will still be called for."""
        origin = self._origin
        if origin is None or origin.complete is None or not self._lag:
            return ()
        kinds = {kind.name: kind for kind in self._types}
        return [
            replace(block, tables={n: fitted(kinds[n], t) for n, t in block.tables.items() if n in kinds})
            for block in origin.blocks((origin.complete if since is None else since) - self._lag)
        ]

    def _recall(self, epoch: Epoch, journal: JournalEnd) -> set[int]:
        """Read the end of the journal, as far as `after=` handlers will still be called. Returns the events taken out of it."""
        assert epoch.complete is not None
        packs: deque[Pack[Epoch]] = deque()
        number = epoch.number if self._lag else 0
        until: int | None = None
        while number:
            pack = chain.read_epoch(self._place, number)
            if pack.about.complete is None or pack.about.complete <= epoch.complete - self._lag:
                until = pack.about.complete
                break
            packs.appendleft(pack)
            number -= 1
        before = self._blocks_before(epoch.complete) if not number else ()
        journal.begin(epoch.end_seq, epoch.begin, before)
        if not packs:
            return set()
        inserted = Inserted(self._types)
        inserted.add_all([p for p in packs if p.about.correction is not None])
        rows = inserted.more(until, epoch.complete) + sum(
            p.about.rows for p in packs if p.about.correction is None
        )
        journal.begin(epoch.end_seq - rows, epoch.begin, before)
        for pack in packs:
            if pack.about.correction is None and pack.about.complete is not None:
                taken = journalled(self._types, pack, inserted, until, journal.count)
                journal.add(taken.tables, taken.rows)
                until = pack.about.complete
        return taken_out(packs)

    def again(
        self, running: Running, first: int, last: Epoch, late: Inserted | None, found: PutOut | None,
        stopped: Callable[[], None] = lambda: None, *, compare: bool = True,
    ) -> None:  # fmt: skip
        """Run epochs of the journal from `first` on, in its newest version, with what `late` inserts and removes. Raises RunError (TL944) where they
        now give something else than what is in the epochs."""
        since = corrections(self._place, last, first - 1)
        inserted = Inserted(self._types)
        inserted.add_all(since)
        now = Inserted(self._types)
        now.add_all(since)
        if late is not None:
            inserted.join(late)
        exact = since[-1].about.number if since else 0
        begin = inserted.first if inserted.rows else None
        for pack in chain.epochs(self._place, first, last.number):
            stopped()
            about = pack.about
            if about.correction is None and about.change is None and about.complete is not None:
                taken = journalled(self._types, pack, inserted, running.complete, running.journal.count)
                if running.begin is None:
                    known = [ts for ts in (about.begin, begin) if ts is not None and ts <= about.complete]
                    running.begin = min(known, default=None)
                if running.begin is None:
                    continue
                running.rerun += taken.rows
                before = running.complete
                emitted = running.put(taken, about.complete)
                if found is not None:
                    found.add(emitted)
                if found is not None and late is not None:
                    first_seq = running.journal.count - taken.rows - found.moved
                    found.moved += late.more(before, about.complete)
                    self._note(taken, late.between(before, about.complete), found.inserted)
                    if gone := late.removed(before, about.complete):
                        self._note(journalled(self._types, pack, now, before, first_seq), gone, found.removed)
            if late is None and compare and about.number >= exact:
                self._compare(running.sums, pack)

    def _is_long(self, running: Running, last: Epoch) -> bool:
        """Whether so many rows came behind a checkpoint that slices may be quicker. Not where a correction or a change lies between."""
        return (
            self.spread is not None
            and not self.keep
            and running.begin is not None
            and max(last.last_correction, last.last_change) <= running.start
            and last.end_seq - running.journal.count >= SLICED_ROWS
        )

    def _in_pieces(self, running: Running, last: Epoch, stopped: Callable[[], None]) -> Running:
        """Run the epochs behind a checkpoint, many at a time: as time slices, or in the open kernel, whichever is quicker. Raises as `again` does."""
        assert self.spread is not None
        nothing, waiting, ends = Inserted(self._types), list[Taken](), running.complete
        about: Checkpoint | None = None
        for pack in chain.epochs(self._place, running.start + 1, last.number):
            stopped()
            complete = pack.about.complete
            if complete is not None:
                first = running.journal.count + sum(taken.rows for taken in waiting)
                waiting.append(journalled(self._types, pack, nothing, ends, first))
                ends = complete
            if pack.about.number < last.number and sum(taken.rows for taken in waiting) < PIECE_ROWS:
                continue
            if ends is not None and ends != running.complete:
                here = pack.about.number, about, ends
                running = self._piece(running, Taken.joined(waiting), *here, taken_out=last.quarantined)
                about = Checkpoint(pack.about.run, pack.about.number, pack.hash, ends, pack.about.fingerprint, whole=False)  # fmt: skip
            waiting = []
            self._compare(running.sums, pack)
        return running

    def _piece(
        self, running: Running, taken: Taken, number: int, before: Checkpoint | None, complete: int, *, taken_out: int
    ) -> Running:  # fmt: skip
        """Run rows up to the end of an epoch. `before`: a checkpoint of where the program stands, which may still be written."""
        assert self.spread is not None
        began = time.perf_counter()
        running.rerun += taken.rows
        way, done = self.spread.way(taken, running.opened, taken_out=taken_out), None
        if way is not None:
            basis = running.basis(self.program, self._place, self.base, before)
            done = self.spread.run(number, way, basis, running.journal, taken, complete)
        if done is None:
            running.put(taken, complete)
        else:
            running = self.closed(running, done.stand, number)
            running.journal.add(taken.tables, taken.rows)
            running.took(self.program, done.emitted, complete)
        self.spread.took(time.perf_counter() - began)
        return running

    def _note(self, taken: Taken, some: Mapping[int, pa.Table], found: dict[str, list[pa.Table]]) -> None:
        """Keep some rows as they stand in the journal."""
        for number, own in some.items():
            table = taken.tables[self._types[number].name]
            here, _ = at_places(table, own)
            found.setdefault(self._types[number].name, []).append(table.filter(pa.array(here)))

    def _compare(self, sums: Sums, pack: Pack[Epoch]) -> None:
        if (sums.outputs, sums.rejected) != (dict(pack.about.outputs), pack.about.rejected):
            raise RunError(
                f"epoch {pack.about.number} has put out something else than it does now", place=Place(pack.name), code="TL944",
                hint="the program reads what is no part of the log, or a library has changed: `timelapse parity` shows where",
            )  # fmt: skip


def begun_at(pack: Pack[Epoch]) -> Stand:
    """Where a program begins that the run changes to in an epoch."""
    change = pack.about.change
    assert change is not None
    return checkpoints.stand_in(pack, change.seen, pack.about.complete)


def begun_in(pack: Pack[Epoch]) -> tuple[str, int | None]:
    """The fingerprint of the program that a run changes to in an epoch, and the time up to which all was complete."""
    assert pack.about.change is not None
    return pack.about.change.fingerprint, pack.about.complete


def taken_out(packs: Iterable[Pack[Epoch]]) -> set[int]:
    """The events that were taken out in some epochs, in the numbering of the last one."""
    gone = np.zeros(0, np.int64)
    for pack in packs:
        if pack.about.correction is not None:
            gone = shift_of(pack)(gone)
            gone = gone[(gone >= 0) & (gone < pack.about.correction.first)]
        if "quarantined" in pack.sections:
            gone = np.concatenate([gone, pack.table("quarantined").column("seq").to_numpy()])
    return set(gone.tolist())
