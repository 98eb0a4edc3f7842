"""Leaves events out of the log before their own steps, where it is known by then that they fail later.

A call of an `after=` handler that fails takes its event out of the log, with all that stems from it. If each event alone decides whether its
steps fail, the same events fail whichever others are there (lowering/decided.py). That is computed over columns for all events of a batch
when they are read; an event whose own step fails is left to that step. If states decide, the part of the program that decides is run ahead
(deciding.py), and batches wait until it is known which of their events fail. Their steps are passed over, and their calls later: the replay
runs without them from the start.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from timelapse.analysis.result import PassProgram
from timelapse.kernels.clock import Clock
from timelapse.kernels.native.columnwise import Columnwise, Left, Unknown, computed, without_signs
from timelapse.kernels.native.deciding import in_order, is_read
from timelapse.kernels.native.decode import Batch, Decoder, part_of
from timelapse.kernels.native.foreseen import Foreseen, NotForeseen
from timelapse.kernels.native.later import with_later
from timelapse.kernels.native.lowered import lowered_pass, refused
from timelapse.kernels.native.lowering.unit import Column, Unit
from timelapse.kernels.native.memory.strings import Interned
from timelapse.kernels.native.outputs import NUMPY
from timelapse.kernels.native.raised import raised_rows
from timelapse.kernels.source import Source
from timelapse.program.failure import Quarantined
from timelapse.program.program import Program, params_of

if TYPE_CHECKING:
    from timelapse.kernels.native.decider import Decider

Array = npt.NDArray[Any]
Bools = npt.NDArray[np.bool_]


def foresees(decider: Unit) -> bool:
    """Whether it can be known before events' own steps which of them fail later. `decider`: the pass, which finds what fails later."""
    decided, head = decider.decided, 2 * len(decider.events)
    if isinstance(decided, str) or decider.left or decider.ticks:
        return False
    if any(decided[n].code for n in decider.ticking) or not any(decided[n].code for n in decider.later):
        return False
    numbers = {n for decision in decided for n in decision.columns.values()}
    added = (n for decision in decided for add in decision.adds for n in add.columns.values())
    return is_read(decider.columns[n] for n in numbers | {n - head for n in added if n >= head})


class Foresight:
    """Finds the events of one pass's batches that fail later. `most`: so many may be taken out of the log. `most_added`: see FindingTuning."""

    def __init__(
        self, program: Program, unit: Unit, decider: Unit, decoder: Decoder, interned: Interned, foreseen: Foreseen, most: int,
        most_added: float,
    ) -> None:  # fmt: skip
        self._unit, self._decider, self._decoder, self._interned = unit, decider, decoder, interned
        self._foreseen, self._most, self._params = foreseen, most, params_of(program)
        self._most_added = most_added
        self._rows: list[Quarantined] = []
        decided, deciding = decider.decided, decider.deciding
        self._adds = [decision.adds for decision in decided] if not isinstance(decided, str) else []
        if not isinstance(deciding, str):
            self._adds = list(deciding.adds)
        self._kinds = in_order(unit)
        self._first = {kind: kinds[0] for kinds in self._kinds.values() for kind in kinds}
        self._lags = {number: later.lag for number, later in unit.later.items()}

    @classmethod
    def of(
        cls, program: Program, work: PassProgram, unit: Unit, decoder: Decoder, interned: Interned, foreseen: Foreseen, most: int,
        most_added: float,
    ) -> Foresight | None:  # fmt: skip
        """None where that is not known."""
        if not unit.later:
            return None
        try:
            decider = lowered_pass(
                program, replace(work, takes_out=True, keeps=True, finds_late=True), final=True
            )
        except refused():
            return None
        named = [[each.table_of(n) for n in range(len(each.events))] for each in (decider, unit)]
        same = decider.later == unit.later and decider.texts == unit.texts and named[0] == named[1]
        if not same or not (foreseen.decider or foresees(decider)):
            return None
        return cls(program, unit, decider, decoder, interned, foreseen, most, most_added)

    @property
    def count(self) -> int:
        """How many events were left out."""
        return self._foreseen.count

    @property
    def gone(self) -> set[int]:
        return self._foreseen.seqs

    def take(self) -> list[Quarantined]:
        """The events that were left out since this was last asked."""
        rows, self._rows = self._rows, []
        return rows

    def check(self, others: int) -> None:
        """So many `others` were taken out too. Raises NotForeseen where these are too many."""
        if self.count and self.count + others > self._most:
            raise NotForeseen("too many events fail")

    def without(self, batches: Iterator[Batch], source: Source | None, clock: Clock) -> Iterator[Batch]:
        """Batches of a slice without the events that fail later. Each is told of once. Raises NotForeseen."""
        waiting, begins = deque[Batch](), None if source is None else source.begin
        for batch in batches:
            with clock.phase("kernel"):
                waiting.append(batch)
                self._try(partial(self._look_at, waiting, begins))
            yield from self._known(waiting, clock)
        if source is not None:
            with clock.phase("kernel"):
                self._try(partial(self._look_ahead, source))
        yield from self._known(waiting, clock, all_of=True)

    def _try(self, look: Callable[[], None]) -> None:
        """Look which events fail, unless that is not known. Raises NotForeseen."""
        foreseen = self._foreseen
        if foreseen.is_off:
            return
        try:
            with np.errstate(all="ignore"):
                look()
            self.check(0)
        except Unknown as why:
            if foreseen.is_used:
                raise NotForeseen(str(why)) from None
            foreseen.is_off = True
            foreseen.out.clear()
            self._rows.clear()

    def _look_at(self, waiting: deque[Batch], begins: int | None) -> None:
        """Find out which events of the last batch fail later, or in their own steps, and leave them out. Raises Unknown."""
        batch, decider = waiting[-1], self._foreseen.decider
        self._add_up(batch)
        if decider is not None:
            self._decide(decider, batch, begins)
            if sum(array.nbytes for one in waiting for array in one.arrays) > decider.most:
                raise Unknown("what waits until it is known which events fail takes too much memory")
            return
        for name, kinds in self._kinds.items():
            places = self._failing(batch, kinds[0], kinds)
            self._leave_out(name, batch.arrays[2 * kinds[0] + 1][places])

    def _leave_out(self, name: str, seqs: Array) -> None:
        """Note that events of a type are left out."""
        if len(seqs):
            known = self._foreseen.out.get(name)
            self._foreseen.out[name] = np.sort(seqs if known is None else np.concatenate([known, seqs]))

    def _known(self, waiting: deque[Batch], clock: Clock, *, all_of: bool = False) -> Iterator[Batch]:
        """Those that come first of some batches, without the events that are left out: as long as it is known which are, or all."""
        foreseen = self._foreseen
        while waiting:
            decider = None if foreseen.is_off else foreseen.decider
            if decider is not None and not all_of and not decider.is_settled(waiting[0]):
                return
            with clock.phase("kernel"):
                batch = waiting.popleft()
                if decider is not None:
                    decider.release(batch)
                foreseen.is_used |= foreseen.count > 0
                batch = self._part(batch)
            yield batch

    def _part(self, batch: Batch) -> Batch:
        """A batch of which the steps of events that are left out are passed over."""
        places = list[Array]()
        for name, kinds in self._kinds.items():
            known = self._foreseen.out.get(name)
            for kind in kinds if known is not None else ():
                seqs = batch.arrays[2 * kind + 1]
                if not len(seqs):
                    continue
                assert known is not None
                own = known[np.searchsorted(known, seqs[0]) : np.searchsorted(known, seqs[-1], side="right")]
                if seqs[-1] - seqs[0] == len(seqs) - 1:
                    at = own - seqs[0]
                else:
                    at = np.searchsorted(seqs, own)
                    at = at[seqs[at] == own]
                if len(at):
                    places.append(np.flatnonzero(batch.kinds == kind)[at])
        return batch.passing(np.concatenate(places)) if places else batch

    # --- where states decide -----------------------------------------------------------------------

    def _decide(self, decider: Decider, batch: Batch, begins: int | None) -> None:
        """Have what decides go through a batch's steps, but for those that it has gone through. Raises Unknown."""
        if not decider.fits(self._interned):
            raise Unknown("its states no longer fit into memory as a whole")
        assert batch.when is not None
        if decider.ahead is not None and batch.events and batch.when[0] <= decider.ahead:
            batch = part_of(self._unit, batch, batch.when > decider.ahead)
            assert batch.when is not None
        if not batch.events:
            return
        columns = [self._column(batch, c.event, c) for c in decider.unit.columns]
        arrays = batch.arrays[: 2 * len(self._unit.events)] + columns
        rows = decider.go_on(replace(batch, arrays=arrays), begins)
        if len(rows):
            self._rows += raised_rows(decider.unit, rows, self._interned)
            for name, kinds in self._kinds.items():
                self._leave_out(name, rows[np.isin(rows[:, 2], kinds), 1])

    def _look_ahead(self, source: Source) -> None:
        """Behind the end of a slice, as far as it takes to know which of its events fail. Raises Unknown."""
        decider, end = self._foreseen.decider, self._foreseen.end
        if decider is None or source.end is None or end is None or source.end >= end:
            return
        until = min(end, source.end + decider.span)
        hi = source.reader.seq_at(until + 1)
        further = replace(source, lo=source.hi, hi=hi, since=source.end, end=until)
        for chunk in with_later(further, self._unit):
            self._decide(decider, self._decoder.decode(chunk), source.begin)
        decider.ahead = until

    def _failing(self, batch: Batch, first: int, kinds: list[int]) -> Array:
        """Which rows of a kind fail later, as rising places. Raises Unknown."""
        count = len(batch.arrays[2 * first])
        fails: Bools = np.zeros(count, np.bool_)
        if not count:
            return np.flatnonzero(fails)
        decided = self._decider.decided
        assert not isinstance(decided, str)
        left_alone: Bools = np.zeros(count, np.bool_)
        for kind in kinds:
            decision, times = decided[kind], self._times(batch, first, kind)
            begun: Bools = np.ones(count, np.bool_)
            if kind in self._lags:
                begun = times <= self._foreseen.end if self._foreseen.end is not None else ~begun
            if not decision.code:
                continue
            names = {
                name: self._column(batch, first, self._decider.columns[n])
                for name, n in decision.columns.items()
            }
            names |= {f"ts{kind}": times, f"seq{kind}": batch.arrays[2 * first + 1]}
            for left in Columnwise(names, self._params).leaving(decision.code, begun & ~left_alone):
                if left.handler < 0:
                    left_alone |= left.where
                    if kind in self._lags:
                        fails |= left.where
                        self._tell(batch, first, kind, times, left)
        return np.flatnonzero(fails)

    def _tell(self, batch: Batch, first: int, kind: int, times: Array, left: Left) -> None:
        """Events are left out."""
        at = np.flatnonzero(left.where)
        place = self._decider.raising[-1 - left.handler]
        words = [left.word(n, at) for n in range(place.words)]
        same = [np.full(len(at), n) for n in (kind, left.handler, 1)]
        rows = np.column_stack([times[at], batch.arrays[2 * first + 1][at], *same, *words])
        self._rows += raised_rows(self._decider, rows, self._interned)

    def _add_up(self, batch: Batch) -> None:
        """Note what the events of a batch add, or will. Raises Unknown where that is too much."""
        added = self._foreseen.added
        for kind, adds in enumerate(self._adds):
            first = self._first.get(kind, kind)
            count = len(batch.arrays[2 * first])
            for add in adds if count else ():
                names = {name: self._at(batch, first, kind, number) for name, number in add.columns.items()}
                most = without_signs(computed(add.key[0], names, self._params), count)
                added[add.table] = added.get(add.table, 0.0) + most
        if any(total >= self._most_added for total in added.values()):
            raise Unknown("a sum may leave int64")

    def _at(self, batch: Batch, first: int, kind: int, number: int) -> Array:
        """The array that has a number in the decider's batches, for rows of the first kind of a type."""
        head = 2 * len(self._unit.events)
        if number >= head:
            return self._column(batch, first, self._decider.columns[number - head])
        return batch.arrays[2 * first + 1] if number % 2 else self._times(batch, first, kind)

    def _times(self, batch: Batch, first: int, kind: int) -> Array:
        """The times of a kind's steps, for rows of the first kind of its type."""
        more = self._lags.get(kind, 0) - self._lags.get(first, 0)
        found: Array = batch.arrays[2 * first]
        return found + more if more else found

    def _column(self, batch: Batch, first: int, column: Column) -> Array:
        own = replace(column, event=first)
        if own in self._unit.columns:
            found: Array = batch.arrays[2 * len(self._unit.events) + self._unit.columns.index(own)]
            return found
        if not len(batch.arrays[2 * first]):
            return batch.arrays[0][:0].astype(NUMPY.get(column.kind, np.int64))
        return self._decoder.values(batch.chunk.tables[self._unit.table_of(first)], own)
