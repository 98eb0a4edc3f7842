"""Finds, compiled, which events are taken out of a log because calls of `after=` handlers fail: many events in one pass.

Beginning again defines what is right: the first event from which something fails is taken out, the log begins again without it, and so on.
Here one pass over the whole log lists all failures. It goes on after each, and what the failing events have done stays there. The rows that
a step can touch follow from its event alone (lowering/touches.py), so it is known which events can affect each other. An event that is taken
out forms a group with the events that it can affect. The first failure of each group is certain: up to there the group has seen what it
sees in the whole log. The next pass leaves out the events whose failure was certain. It goes over the groups in which something has failed,
and over the steps that write what these groups read. In the last pass nothing fails late.

If each event alone decides whether it fails (lowering/decided.py), the first pass finds all. If it is known which part of the program decides
(lowering/deciding.py), the passes run only that part: it has fewer columns, tables and keys, and the same steps fail.

An event whose own step has failed stays out too, if that failure was certain, as it does when the log begins again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from timelapse.analysis.result import PassProgram
from timelapse.env.machine import memory_alone
from timelapse.kernels.base import Abandoned
from timelapse.kernels.native.columnwise import computed, without_signs
from timelapse.kernels.native.decode import Batch, Decoder, part_of
from timelapse.kernels.native.failing import FailingKernel
from timelapse.kernels.native.kernel import Ints, Shown
from timelapse.kernels.native.later import with_later, with_ticks
from timelapse.kernels.native.leaving import Failed, TooOften
from timelapse.kernels.native.lowering.unit import Touch, Unit
from timelapse.kernels.native.memory import blocks
from timelapse.kernels.native.memory.spreading import AT_ONCE, LATE, needed, number, number_again, spread
from timelapse.kernels.native.memory.strings import Interned
from timelapse.kernels.native.raised import raised_rows
from timelapse.kernels.source import Source
from timelapse.kernels.tuning import NativeTuning
from timelapse.program.failure import Quarantined, quarantined_row
from timelapse.program.program import Program, params_of
from timelapse.segments.reader import Chunk

Bools = npt.NDArray[np.bool_]
Numbers = npt.NDArray[np.int32]
Keys = npt.NDArray[np.uint64]
_SHARE = 4
"""Its batches and tables take at most this part of the memory: one in so many."""
_MIX = np.uint64(0x9E3779B97F4A7C15)


class NotTogether(Exception):
    """Events cannot be found together; the message says why."""


def cannot_find_together(unit: Unit) -> str:
    """Why this cannot be done for a pass; empty where it can."""
    if not unit.later:
        return "nothing is called later"
    if unit.left:
        return "some handlers run as Python"
    if unit.ticks:
        return "ticks run as Python"
    return _cannot_group(unit) if isinstance(unit.decided, str) else ""


def _cannot_group(unit: Unit) -> str:
    """Why it is not known which events can affect each other; empty where it is."""
    if isinstance(unit.touches, str):
        return unit.touches
    if unit.hidden or unit.indexed:
        return "members are counted or listed by key"
    lists = any(column.part in ("items", "offsets") for column in unit.columns)
    return "a handler reads a list" if lists else ""


@dataclass(frozen=True)
class _Failure:
    """A failed step: the seq of its event, its kind (-1: not known), and the row of the quarantine."""

    seq: int
    kind: int
    row: Quarantined


class _Listing(FailingKernel):
    """Goes through steps, and lists all that fail."""

    def __init__(
        self, program: Program, work: PassProgram, unit: Unit, events: int, interned: Interned, begins: int | None,
        tuning: NativeTuning,
    ) -> None:  # fmt: skip
        super().__init__(program, work, unit, events, interned, tuning)
        self._taken.begins = begins
        self._found: list[_Failure] = []
        self._left_at = 0, -1
        """Of the step that runs as Python, or did last: its place in the batch, and its kind."""

    def go(self, batches: Iterable[Batch], tick: Callable[[int], None]) -> list[_Failure]:
        """Raises NotTogether."""
        self.begin()
        try:
            for batch in batches:
                self._all_of(batch)
                self._list()
                self._outputs.drop()
                tick(batch.events)
        except (Abandoned, TooOften) as why:
            raise NotTogether("too many events run as Python") from why
        if self._fallback is not None:
            rows = self._fallback.python.collected.quarantined
            self._found += [_Failure(row[2], -1, row) for row in rows]
        return self._found

    def _all_of(self, batch: Batch) -> None:
        position: Ints = np.zeros(len(self._unit.events), np.int64)
        at = 0
        while at < batch.events:
            try:
                at = self._some(batch, at, min(at + self.tuning.piece_events, batch.events), position, None)
            except Failed as failed:
                failure, (at, kind) = failed.failure, self._left_at
                if kind not in self._unit.later or not failure.reproducible:
                    raise NotTogether("something fails that stems from no event") from failure
                assert self._fallback is not None
                self._fallback.python.take_back()
                self._logs.keep()
                self.credit.refill()
                self._found.append(_Failure(failure.seq, kind, quarantined_row(failure)))
                position[kind] += 1
                at += 1

    def _list(self) -> None:
        """Take over the failures that the compiled function has listed."""
        words = self._outputs.take_raised_words()
        if len(words):
            rows = raised_rows(self._unit, words, self._interned)
            kinds = words[:, 2].tolist()
            self._found += [_Failure(row[2], kind, row) for row, kind in zip(rows, kinds, strict=True)]

    def take_back(self, batch: Batch, at: int, entries: int, position: Ints) -> None:
        if self._work.decides:
            raise NotTogether("only Python can tell whether an event fails")
        super().take_back(batch, at, entries, position)

    def _as_python(self, batch: Batch, at: int, position: Ints, shown: Shown | None) -> None:
        self._left_at = at, int(batch.kinds[at])
        self._list()
        super()._as_python(batch, at, position, shown)


@dataclass(frozen=True)
class _Steps:
    """Steps of the log: their batches, and of each its kind, its seq, the number of its event, and the numbers of the rows that it can touch
    (-1: none)."""

    batches: list[Batch]
    kinds: npt.NDArray[np.int8]
    seqs: Ints
    events: Numbers
    cells: Numbers
    event_count: int
    cell_count: int

    def only(self, unit: Unit, keep: Bools) -> _Steps:
        """The steps where `keep` holds. Events and rows get new numbers."""
        batches, begin = list[Batch](), 0
        for batch in self.batches:
            own = keep[begin : begin + batch.events]
            begin += batch.events
            if own.any():
                batches.append(batch if own.all() else part_of(unit, batch, own))
        events, event_count = _numbered_again(self.events.reshape(-1, 1), keep, self.event_count)
        cells, cell_count = _numbered_again(self.cells, keep, self.cell_count)
        at = np.flatnonzero(keep)
        return _Steps(batches, self.kinds[at], self.seqs[at], events.ravel(), cells, event_count, cell_count)

    def places(self, unit: Unit, failures: Sequence[_Failure]) -> Ints:
        """The places of the failed steps. Raises NotTogether."""
        kinds = np.array([f.kind for f in failures], np.int64)
        seqs = np.array([f.seq for f in failures], np.int64)
        found: Ints = np.full(len(failures), -1, np.int64)
        for kind in range(len(unit.events)):
            at_once = kind not in unit.later and kind not in unit.ticking
            which = np.flatnonzero((kinds == kind) | (at_once & (kinds < 0) & (found < 0)))
            if not len(which):
                continue
            own = np.flatnonzero(self.kinds == kind)
            known = np.append(self.seqs[own], -1)
            at = np.searchsorted(known[:-1], seqs[which])
            is_there = known[at] == seqs[which]
            found[which[is_there]] = own[at[is_there]]
        if (found < 0).any():
            raise NotTogether("a step is not known")
        return found


class Together:
    """The steps of a whole log, and what was found of them. `events`: how many the log has."""

    def __init__(
        self,
        program: Program,
        work: PassProgram,
        unit: Unit,
        source: Source,
        events: int,
        tuning: NativeTuning,
    ) -> None:
        """Raises NotTogether, NotCompiled."""
        self._tuning, self._finding = tuning, tuning.finding
        self._program, self._work, self._unit = program, work, unit
        self._count, self._begins = events, source.begin
        self._interned = Interned(unit.texts)
        self._params = params_of(program)
        self._most = memory_alone() // _SHARE
        self._rows: dict[int, Quarantined] = {}
        self._held = 0
        """Bytes."""
        self._batches = list(self._read(with_ticks(with_later(source, unit), program, source, unit)))
        if not self._batches:
            raise NotTogether("the log is empty")

    def find(
        self, tick: Callable[[int, int], None], *, otherwise: bool = True
    ) -> tuple[list[Quarantined], bool]:
        """Events that are taken out, by rising seq, and whether these are all. `tick` is told of further steps of the log, and how many events
        were taken out. `otherwise`: the others can be found one after the other, compiled. Raises NotTogether."""
        if self._is_decided() and self._find_at_once(tick):
            return [self._rows[seq] for seq in sorted(self._rows)], True
        if self._work.decides and not self._are_small(self._decides()):
            raise NotTogether("a sum may leave int64")
        self._steps = self._laid_out()
        times = [b.when for b in self._batches if b.when is not None and len(b.when)]
        span = max(1, int(times[-1][-1]) - int(times[0][0]))
        lag = max(later.lag for later in self._unit.later.values())
        # About so many steps are done again for each event that is found alone.
        within = len(self._steps.kinds) * min(1.0, 1.5 * lag / span)
        budget, is_all = self._finding.most_passes * len(self._steps.kinds), False
        while not is_all and budget > 0:
            budget -= len(self._steps.kinds)
            failures, _ = self._listed(self._steps.batches, tick)
            late = sum(f.kind in self._unit.later for f in failures)
            is_all = not late
            certain = self._judge(failures)
            if otherwise and self._is_slower(within, certain, late - certain):
                break
        return [self._rows[seq] for seq in sorted(self._rows)], is_all

    def _is_slower(self, within: float, certain: int, left: int) -> bool:
        """Whether further passes take longer than to find the events one after the other. `certain`: so many were certain in the last one."""
        steps, own = len(self._steps.kinds), self._finding
        found = own.failure_seconds + within * own.again_seconds
        return left > 0 and steps * own.step_seconds > certain * found

    def _listed(
        self, batches: Iterable[Batch], tick: Callable[[int, int], None]
    ) -> tuple[list[_Failure], int]:
        """The failures of a pass over these batches, and the number of steps that ran as Python."""
        kernel = _Listing(
            self._program, self._work, self._unit, self._count, self._interned, self._begins, self._tuning
        )
        try:
            return kernel.go(batches, lambda steps: tick(steps, len(self._rows))), kernel.left
        finally:
            kernel.close()

    # --- where it follows from each event whether it fails -----------------------------------------

    def _is_decided(self) -> bool:
        """Whether it follows from each event alone, in this log, whether its steps fail: the same events fail whichever others are taken out."""
        if isinstance(self._unit.decided, str):
            return False
        return self._are_small([decision.adds for decision in self._unit.decided])

    def _decides(self) -> Sequence[Sequence[Touch]]:
        """What each kind of step adds to tables, where the part that decides takes for granted that sums stay within int64."""
        assert not isinstance(self._unit.deciding, str)
        return self._unit.deciding.adds

    def _are_small(self, adds: Sequence[Sequence[Touch]]) -> bool:
        """Whether no sum leaves int64 in this log, whichever events are taken out. `adds`: what is added, by kind."""
        added = dict[int, float]()
        for batch in self._batches:
            for own in adds:
                for add in own:
                    most = without_signs(self._computed(batch, add)[0], batch.events)
                    added[add.table] = added.get(add.table, 0.0) + most
        return all(total < self._finding.most_added for total in added.values())

    def _find_at_once(self, tick: Callable[[int, int], None]) -> bool:
        """Take out each event that fails, for its first failure. False where some ran as Python: nothing is known of these."""
        failures, python = self._listed(self._batches, tick)
        if python:
            return False
        for failure in sorted(failures, key=lambda f: (f.row[0], f.kind)):
            self._rows.setdefault(failure.seq, failure.row)
        return True

    # --- the log ----------------------------------------------------------------------------------

    def _read(self, chunks: Iterator[Chunk]) -> Iterator[Batch]:
        decoder = Decoder(self._unit, self._interned)
        for chunk in chunks:
            batch = decoder.decode(chunk)
            self._hold(sum(array.nbytes for array in batch.arrays) + 9 * batch.events)
            yield batch

    def _hold(self, bytes_: int) -> None:
        self._held += bytes_
        if self._held > self._most:
            raise NotTogether("the log is too large to be held")

    def _laid_out(self) -> _Steps:
        """The steps, with the rows that they can touch."""
        unit, keys, count = self._unit, list[tuple[Batch, int, Ints, Keys]](), 0
        why = _cannot_group(unit)
        if why or isinstance(unit.touches, str):
            raise NotTogether(why)
        width = max(map(len, unit.touches))
        self._writes: Bools = np.zeros((len(unit.events), width), np.bool_)
        for kind, touches in enumerate(unit.touches):
            self._writes[kind, : len(touches)] = [touch.writes for touch in touches]
        for batch in self._batches:
            for kind, touches in enumerate(unit.touches):
                own = self._keys(batch, kind, touches)
                if len(own):
                    keys.append((batch, kind, count + np.flatnonzero(batch.kinds == kind), own))
                    self._hold(5 * own.nbytes)
            count += batch.events
            self._hold(4 * batch.events * (width + 4))
        kinds = np.concatenate([batch.kinds for batch in self._batches])
        seqs: Ints = np.zeros(count, np.int64)
        numbering = _Numbering(sum(own.size for *_, own in keys))
        cells: Numbers = np.full((count, width), -1, np.int32)
        for batch, kind, rows, own in keys:
            seqs[rows] = batch.arrays[2 * kind + 1]
            cells[rows, : own.shape[1]] = numbering.numbered(own)
        events, event_count = _numbered_events(unit, kinds, seqs)
        return _Steps(self._batches, kinds, seqs, events, cells, event_count, numbering.count)

    def _keys(self, batch: Batch, kind: int, touches: Sequence[Touch]) -> Keys:
        """For each event of a kind the rows that it can touch, as hashes."""
        count = len(batch.arrays[2 * kind])
        found: Keys = np.zeros((count, len(touches)), np.uint64)
        if not count:
            return found
        with np.errstate(over="ignore"):
            for at, touch in enumerate(touches):
                key: Any = np.uint64(touch.table + 1) * _MIX
                for value in self._computed(batch, touch):
                    key = (key ^ value.astype(np.int64).view(np.uint64)) * _MIX
                    key = key ^ (key >> np.uint64(29))
                found[:, at] = key | np.uint64(1)
        return found

    def _computed(self, batch: Batch, touch: Touch) -> list[npt.NDArray[Any]]:
        """The words of a touch, for each event of its kind, or one for all."""
        columns, found = {n: batch.arrays[at] for n, at in touch.columns.items()}, list[npt.NDArray[Any]]()
        for word in touch.key:
            found.append(computed(word, columns, self._params))
            if found[-1].dtype.kind not in "iub":
                raise NotTogether("a key is no whole number")
        return found

    # --- what is certain --------------------------------------------------------------------------

    def _judge(self, failures: list[_Failure]) -> int:
        """Take out the events whose failure is certain. Leaves the steps of the next pass. Returns how many of the certain failures were late."""
        unit, steps = self._unit, self._steps
        places = steps.places(unit, failures)
        is_late: Bools = np.array([f.kind in unit.later for f in failures], np.bool_)
        failing: npt.NDArray[np.int8] = np.zeros(len(steps.kinds), np.int8)
        failing[places] = np.where(is_late, LATE, AT_ONCE)
        tied: Bools = np.zeros(steps.event_count, np.bool_)
        tied[steps.events[places[is_late]]] = True
        own = steps.events, steps.kinds, steps.cells, self._writes
        for _ in range(self._finding.most_ties):
            parents: Numbers = np.arange(steps.event_count + 1, dtype=np.int32)
            holds: Numbers = np.zeros(steps.cell_count, np.int32)
            failed: Bools = np.zeros(steps.event_count + 1, np.bool_)
            decided: Bools = np.zeros(steps.event_count, np.bool_)
            certain: Bools = np.zeros(len(steps.kinds), np.bool_)
            if spread(*own, failing, tied, parents, holds, failed, decided, certain):
                break
        else:
            raise NotTogether("events have too much to do with each other")
        out: Bools = np.zeros(steps.event_count, np.bool_)
        for at in np.flatnonzero(certain[places]).tolist():
            self._rows[failures[at].seq] = failures[at].row
        out[steps.events[places[certain[places]]]] = True
        wanted: Bools = np.zeros(len(steps.kinds), np.bool_)
        needed(*own, tied, parents, failed, np.zeros(steps.cell_count, np.bool_), wanted)
        self._steps = steps.only(unit, wanted & ~out[steps.events])
        return int(np.count_nonzero(certain[places] & is_late))


class _Numbering:
    """Numbers keys, at most so many of them. `count`: so many different ones there were."""

    def __init__(self, most: int) -> None:
        size = 1 << max(4, (3 * most // 2).bit_length())
        self._slots: Keys = blocks.zeros(2 * size).view(np.uint64).reshape(size, 2)
        self.count = 0

    def numbered(self, keys: Keys) -> Numbers:
        """Small numbers in place of keys; -1 stands for no key."""
        into: Numbers = np.zeros(keys.size, np.int32)
        self.count = int(number(keys.ravel(), self._slots, self.count, into)[0])
        return into.reshape(keys.shape)


def _numbered_again(numbers: Numbers, keep: Bools, count: int) -> tuple[Numbers, int]:
    """The rows of numbers that are kept, with new numbers; and how many numbers there are."""
    into: Numbers = np.zeros((int(np.count_nonzero(keep)), numbers.shape[1]), np.int32)
    known: Numbers = np.full(count, -1, np.int32)
    return into, int(number_again(numbers, keep, known, into))


def _numbered_events(unit: Unit, kinds: npt.NDArray[np.int8], seqs: Ints) -> tuple[Numbers, int]:
    """The number of each step's event, and how many there are. Each tick is one."""
    ticks: Bools = np.zeros(len(unit.events), np.bool_)
    ticks[list(unit.ticking)] = True
    is_tick = ticks[kinds]
    logged = seqs[~is_tick] if unit.ticking else seqs
    first = int(logged.min()) if len(logged) else 0
    count = int(logged.max()) - first + 1 if len(logged) else 0
    if count > 4 * len(logged):  # most of the log's events are of types that nobody listens to
        known, own = np.unique(logged, return_inverse=True)
        count = len(known)
    else:
        own = logged - first
    found: Numbers = np.zeros(len(kinds), np.int32)
    found[~is_tick] = own
    more = len(kinds) - len(logged)
    found[is_tick] = count + np.arange(more)
    return found, count + more
