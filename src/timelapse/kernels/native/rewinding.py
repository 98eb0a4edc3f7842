"""Finds, compiled, which events are taken out of a log because calls of `after=` handlers fail: one after the other.

Beginning again without each event from which something fails defines what is right. Before an event the log is the same with it and without it.
So the kernel goes back to a moment before the event, and goes on from there without it. It keeps several moments, as far back as the longest
lag. Rows of tables are copied before their first write after a moment (memory/keeping.py); going back restores the copies. The logs of windows
are kept for as long, and are rolled back too. After each late failure the steps since the moment are done again: those of one lag, and half of
those between two moments.

An event that has failed on the way stays out, as it does when the log begins again, even if it failed because of an event that is taken
out after it.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from timelapse.analysis.result import PassProgram
from timelapse.env.machine import memory_alone
from timelapse.errors import HandlerError
from timelapse.ids import INT64_MIN
from timelapse.kernels.base import Abandoned
from timelapse.kernels.native.decode import Batch
from timelapse.kernels.native.kernel import Ints, NativeKernel, Shown
from timelapse.kernels.native.leaving import Failed, TooOften
from timelapse.kernels.native.lowering.unit import Unit
from timelapse.kernels.native.memory.effectlog import NativeLog
from timelapse.kernels.native.memory.keeping import Kept
from timelapse.kernels.source import Source
from timelapse.kernels.tuning import FindingTuning, NativeTuning
from timelapse.program.failure import Quarantined, quarantined_row
from timelapse.program.program import Program

_MARK = 200.0
"""About so many steps take twice as long as noting a moment. Measured in November 2026: 0.1 ms, and 1 microsecond a step."""
_SHARE = 8
"""What is kept for going back takes at most this part of the memory: one in so many."""
_EARLY = 16
"""The number of late failures after which that bound is checked."""


def cannot_rewind(unit: Unit) -> str:
    """Why this cannot be done for a pass; empty where it can."""
    if not unit.later:
        return "nothing is called later"
    queued = next((name for name, views in unit.windows.items() if views.queued), None)
    if queued is not None:
        return f"the best of {queued} within a window is looked back on"
    if any(views.stamped for views in unit.windows.values()) and unit.hidden:
        return "members within a window are counted"
    if unit.indexed:
        return "members are listed by key"
    return "ticks run as Python" if unit.ticks else ""


class CannotRewind(Exception):
    """It takes too long, or something has happened that is left to the loop in Python (kernels/takeout/)."""


@dataclass
class _Mark:
    """A moment before a step of a batch. `reached`: the time of the last step before it. `copies`: the old contents of the rows that are
    written from there to the next moment, if there is one."""

    batch: int
    at: int
    position: Ints
    reached: int
    steps: int
    logs: list[Ints] = field(default_factory=list)
    copies: Ints = field(default_factory=lambda: np.zeros((1, 2), np.int64))


@dataclass
class _Held:
    """A batch that may be run again. `gone`: the places of its steps that are left out, as their events are taken out."""

    batch: Batch
    gone: list[int] = field(default_factory=list)


class _Marks:
    """The moments noted, the latest one last, at most so many. `longest`: the longest lag."""

    def __init__(self, kept: Kept, logs: Iterable[NativeLog], longest: int, most: int) -> None:
        self.marks: list[_Mark] = []
        self._kept, self._logs, self._longest, self._most = kept, list(logs), longest, most

    def add(self, mark: _Mark) -> None:
        """Note the present moment. Moments are forgotten that nothing pending can need, also after going back once."""
        self._close_last()
        marks, needed = self.marks, mark.reached - 2 * self._longest
        before = [n for n, m in enumerate(marks) if m.reached < needed]
        del marks[: before[-1] if before else 0]
        mark.logs = [log.moment() for log in self._logs]
        marks.append(mark)
        if len(marks) > self._most:
            self._thin()
        for log, then in zip(self._logs, marks[0].logs, strict=True):
            log.hold(then)

    def back_to(self, ts: int) -> _Mark:
        """Restore the tables to the latest moment before everything at a time. Raises CannotRewind."""
        self._close_last()
        marks = self.marks
        if marks[0].reached >= ts:  # it has gone back again and again
            raise CannotRewind
        while (mark := marks[-1]).reached >= ts:
            self._kept.put_back(mark.copies)
            del marks[-1]
        self._kept.put_back(mark.copies)
        for log, then in zip(self._logs, mark.logs, strict=True):
            log.go_back(then)
        return mark

    @property
    def nbytes(self) -> int:
        return sum(mark.copies.nbytes for mark in self.marks)

    def _close_last(self) -> None:
        copies = self._kept.take()
        if copies is None:
            raise CannotRewind
        if self.marks:
            self.marks[-1].copies = copies

    def _thin(self) -> None:
        """Forget every second moment. The one before it takes over its copies."""
        marks = self.marks
        for mark, gone in zip(marks[:-2:2], marks[1:-1:2], strict=False):
            mark.copies = np.concatenate([mark.copies, gone.copies[1:]])
            mark.copies[0, 0] = len(mark.copies) - 1
        last = marks[-1]
        del marks[1:-1:2]
        assert marks[-1] is last


def _spacing(steps: int, late: int, finding: FindingTuning) -> int:
    """So many steps between two moments cost least, as often as something fails late."""
    return min(finding.first_spacing, max(finding.least_spacing, int((_MARK * steps / late) ** 0.5)))


class RewindingKernel(NativeKernel):
    """Goes through a whole log for the events that fail alone, at most `most` of them."""

    def __init__(
        self, program: Program, work: PassProgram, unit: Unit, events: int, most: int, tuning: NativeTuning
    ) -> None:
        super().__init__(
            program, work, unit, {}, final=True, events=events, quarantine=most + 1, asked=(), tuning=tuning
        )
        self._most, self._late = most, list[Quarantined]()
        self._room = memory_alone() // _SHARE
        self._held: list[_Held] = []
        self._first = 0
        """The number of the first batch that is held."""
        self._furthest = (0, 0)
        """Batch and place behind the last step that was ever done."""
        self._over = True
        """Whether no event has been taken out behind the step under way."""
        self._left_at = 0, -1
        """The place in its batch of the step that runs as Python, or did last, and its type."""
        self._placed: set[int] = set()
        """The events whose own steps are left out where they come again."""
        self._again = 0
        assert self._kept is not None
        longest = max(later.lag for later in unit.later.values())
        self._marks = _Marks(self._kept, self._logs.values(), longest, tuning.finding.most_moments)

    def find(self, source: Source, tick: Callable[[int, int], None]) -> list[Quarantined]:
        """The events that are taken out, by rising seq. `tick` is told of further events of the log, and how many have been
        taken out. Raises CannotRewind."""
        try:
            with self.decoder.batches(self.steps_of(source), ahead=False) as batches:
                self.begin()
                self._go(batches, tick)
        except (Abandoned, TooOften) as why:
            raise CannotRewind from why
        at_once = self._outputs.take_raised(self._interned)
        if self._fallback is not None:
            at_once += self._fallback.python.collected.quarantined
        found = sorted([*at_once, *self._late], key=lambda row: row[2])
        if len(found) > self._most:
            raise CannotRewind
        return found

    def _go(self, batches: Any, tick: Callable[[int, int], None]) -> None:
        number, at, steps = 0, 0, 0
        position: Ints = np.zeros(len(self._unit.events), np.int64)
        reached, spacing, since = INT64_MIN, self.tuning.finding.first_spacing, 0
        self._mark(_Mark(0, 0, position.copy(), reached, 0))
        while True:
            if number - self._first == len(self._held):
                batch = next(batches, None)
                if batch is None:
                    return
                self._held.append(_Held(batch))
                tick(self._logged(batch), len(self._gone))
            held = self._held[number - self._first]
            batch = held.batch
            if at == batch.events:
                number, at, position = number + 1, 0, np.zeros_like(position)
                self._outputs.drop()
                continue
            if since >= spacing:
                self._mark(_Mark(number, at, position.copy(), reached, steps))
                since = 0
            place = bisect_left(held.gone, at)
            hi = min(at + spacing - since, batch.events)
            if place < len(held.gone):
                if held.gone[place] == at:
                    position[batch.kinds[at]] += 1
                    at += 1
                    continue
                hi = min(hi, held.gone[place])
            self._over = (number, at) >= self._furthest
            try:
                done = self._some(batch, at, hi, position, None)
            except Failed as failed:
                self._furthest = max(self._furthest, (number, self._left_at[0]))
                mark = self._without(failed.failure, steps)
                spacing = _spacing(steps, len(self._late), self.tuning.finding)
                number, at, position = mark.batch, mark.at, mark.position.copy()
                reached, steps, since = mark.reached, mark.steps, 0
                continue
            assert batch.when is not None
            if done > at:  # else there was no room
                reached = int(batch.when[done - 1])
            steps, since, at = steps + done - at, since + done - at, done
            self._furthest = max(self._furthest, (number, at))

    def _may_take(self) -> int:
        """What comes before the last event that is known to be gone is taken out by Python, which puts it in its place among them."""
        return super()._may_take() if self._over else 0

    def _logged(self, batch: Batch) -> int:
        """How many events of the log it has."""
        unit = self._unit
        return sum(
            len(batch.arrays[2 * n])
            for n in range(len(unit.events))
            if n not in unit.later and n not in unit.ticking
        )

    def _mark(self, mark: _Mark) -> None:
        """Note the present moment."""
        self._marks.add(mark)
        first = self._marks.marks[0].batch
        del self._held[: first - self._first]
        self._first = first
        batches = sum(array.nbytes for held in self._held for array in held.batch.arrays)
        if batches + self._marks.nbytes > self._room:
            raise CannotRewind

    def _without(self, failure: HandlerError, steps: int) -> _Mark:
        """Take out the event that a failure stems from, and go back: to this moment."""
        seq = failure.seq
        if self._left_at[1] not in self._unit.later or not failure.reproducible or seq in self._gone:
            raise CannotRewind
        self._late.append(quarantined_row(failure))
        if len(self._late) > self._most:
            raise CannotRewind
        if len(self._gone) != len(self._placed):  # some have failed at once
            for other in self._gone - self._placed:
                self._leave_out(other)
        at = self._leave_out(seq)
        if at is None:
            raise CannotRewind
        mark = self._marks.back_to(at)
        if self._fallback is not None:
            self._fallback.python.give_up()
        self._outputs.drop()
        self._taken.again(seq)
        self.credit.refill()
        self._again += steps - mark.steps
        all_steps = steps if len(self._late) > _EARLY else max(steps, 2 * self._events)
        if self._again > self.tuning.finding.most_again * all_steps:
            raise CannotRewind
        return mark

    def _leave_out(self, seq: int) -> int | None:
        """Have an event's own step left out: the event's time. None where it is not known any more."""
        unit, found = self._unit, None
        self._placed.add(seq)
        for held in self._held:
            batch = held.batch
            assert batch.when is not None
            for kind in range(len(unit.events)):
                times, seqs = batch.arrays[2 * kind : 2 * kind + 2]
                row = int(np.searchsorted(seqs, seq))
                if kind in unit.ticking or row == len(seqs) or seqs[row] != seq:
                    continue
                at = int(times[row])
                if kind in unit.later:
                    found = at - unit.later[kind].lag
                    continue
                first, last = (int(np.searchsorted(batch.when, at, side=side)) for side in ("left", "right"))
                same = first + np.flatnonzero(batch.kinds[first:last] == kind)
                insort(held.gone, int(same[row - int(np.searchsorted(times, at))]))
                return at
        return found

    def _as_python(self, batch: Batch, at: int, position: Ints, shown: Shown | None) -> None:
        self._left_at = at, int(batch.kinds[at])
        super()._as_python(batch, at, position, shown)
