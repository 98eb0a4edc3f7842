"""Steps of a log that stay at hand for some time, as arrays. More steps come at the end, and the first ones are forgotten."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from typing import Any

import numpy as np
import numpy.typing as npt

from timelapse.kernels.native.decode import Batch, counts_of
from timelapse.kernels.native.lowering.unit import Unit
from timelapse.kernels.native.memory.again import HEAD
from timelapse.kernels.native.memory.keeping import ROW
from timelapse.segments.reader import Chunk

Array = npt.NDArray[Any]
Ints = npt.NDArray[np.int64]
_MOST_EXPECTED = 10.0
"""Not more steps are expected than a batch has, so many times."""
_NUMBERS: Ints = np.zeros(0, np.int64)


class _Grown:
    """An array that grows at its end. `expected`: so long it may become; memory is used as it grows. What is new has any values."""

    def __init__(self, like: Array, expected: int = 0) -> None:
        self._all: Array = np.empty((0, *like.shape[1:]), like.dtype)
        self._expected, self.count = expected, 0
        self._lent: Array | None = None
        """The array that it is a part of, and does not write to."""

    def add(self, values: Array) -> None:
        end = self.count + len(values)
        self._reserve(end)
        self._all[self.count : end] = values
        self.count = end

    def follow(self, array: Array, lo: int, hi: int) -> None:
        """Add what an array has from `lo` to `hi`, of which all before `lo` was added. It is not copied where there is nothing else left than that."""
        if self.count <= lo:
            if self._lent is not array:
                self._lent, self._all = array, array[lo - self.count :]
            self.count += hi - lo
        else:
            self.add(array[lo:hi])

    def reserve(self, count: int) -> None:
        """So many more, whatever they are."""
        self._reserve(self.count + count)
        self.count += count

    def more(self, count: int) -> None:
        """So many zeros."""
        self.reserve(count)
        self._all[self.count - count : self.count] = 0

    def _reserve(self, count: int) -> None:
        if count > len(self._all) or self._lent is not None:
            larger: Array = np.empty((max(2 * count, self._expected), *self._all.shape[1:]), self._all.dtype)
            larger[: self.count] = self._all[: self.count]
            self._all, self._lent = larger, None

    def forget(self, count: int) -> None:
        left = self.count - count
        if self._lent is not None:
            self._all = self._all[count:]
        else:
            self._all[:left] = self._all[count : self.count]
        self.count = left

    @property
    def now(self) -> Array:
        return self._all[: self.count]


class HeldSteps:
    """Steps of some kinds, with what the rows that each of them looked up held before it (memory/again.py).

    `copies` are these rows, as the compiled function takes them: at most `each` of a step, with at most `words` words; behind them is room for rows that
    are set aside. `again`: which steps are due. `base` is the seq of the first event of which something is noted. `before`: how many steps came before
    those that are held. A step is held for a time of `span`, about.
    """

    def __init__(self, unit: Unit, kinds: Collection[int], each: int, words: int, span: int) -> None:
        self.each, self._span = each, span
        self._used = [kind for kind in range(len(unit.events)) if kind in kinds]
        self._expected = 0
        """About so many steps there will be at a time."""
        self._when = deque[Array]()
        self._kinds = _Grown(np.zeros(0, np.int8))
        self._noted, self._rows, self._earlier, self._latest = (_Grown(_NUMBERS) for _ in range(4))
        self.position: Ints = np.zeros(len(unit.events), np.int64)
        """How many of each kind the function has gone through."""
        self._arrays = list[_Grown]()
        self._of = [n for n in range(len(unit.events)) for _ in range(2)] + [c.event for c in unit.columns]
        self.copies: Ints = np.zeros((1, ROW + 1 + max(words, 1)), np.int64)
        self.again: Ints = np.zeros(0, np.int64)
        self.base = self.before = self._done = 0

    def add(self, batch: Batch, lo: int, hi: int, position: Ints, settled: int) -> int:
        """Add steps `lo` to `hi` of a batch, and return where they stand here. `position`: how many steps of each kind the batch has before `lo`; it is
        brought up to `hi`. No event before the seq `settled` is taken out any more."""
        if 2 * self._done > self._kinds.count:
            self._forget()
        assert batch.when is not None
        if not self._arrays:
            self._begin(batch, batch.when, hi - lo)
        kinds, at = batch.kinds[lo:hi], self._kinds.count
        until = position + counts_of(kinds, len(position))
        self._kinds.follow(batch.kinds, lo, hi)
        self._when.append(batch.when[lo:hi])
        for notes in (self._noted, self._rows, self._earlier):
            notes.reserve(hi - lo)
        for grown, array, kind in zip(self._arrays, batch.arrays, self._of, strict=True):
            if kind in self._used:
                grown.follow(array, int(position[kind]), int(until[kind]))
        position[:] = until
        self._note_events(settled)
        return at

    def _begin(self, batch: Batch, when: Array, at_a_time: int) -> None:
        """The first steps come. Others are expected to be as many in the same time. They are forgotten when half of them may be."""
        lasts = max(1, int(when[-1]) - int(when[0]))
        self._expected = at_a_time + int(batch.events * min(_MOST_EXPECTED, 2.4 * self._span / lasts))
        self._kinds = _Grown(batch.kinds, self._expected)
        self._noted, self._rows, self._earlier = (_Grown(_NUMBERS, self._expected) for _ in range(3))
        self._arrays = [_Grown(array, self._expected) for array in batch.arrays]

    @property
    def is_due(self) -> bool:
        """Whether steps are to be done again."""
        return len(self.again) > 0 and bool(self.again[0])

    @property
    def end(self) -> int:
        """The end of the copies of steps."""
        return 1 + self.each * self._kinds.count

    def make_room(self, end: int) -> tuple[int, int]:
        """Make room for rows that are set aside and for steps that are due, beyond those there are. `end`: of the former, or of the copies. Returns beyond which
        place and number there may not be enough for one more step."""
        used, due = 2 * self.each, 2 * self.each + len(self.position)
        if len(self.copies) < end + 2 * used:
            rows = max(2 * (end + 2 * used), self._expected * self.each)
            copies: Ints = np.empty((rows, self.copies.shape[1]), np.int64)
            copies[: len(self.copies)] = self.copies
            self.copies = copies
        if len(self.again) < HEAD + used + int(self.again[:1].sum()) + 4 * due:
            again: Ints = np.zeros(2 * (len(self.again) + HEAD + used + 4 * due), np.int64)
            again[: len(self.again)] = self.again
            self.again = again
        self.copies[0, :2] = end - 1, self.each
        return len(self.copies) - used, len(self.again) - HEAD - used - 2 * due

    def _note_events(self, settled: int) -> None:
        """Make room for what is noted of the events of steps."""
        seqs = [own.now for own in (self._arrays[2 * kind + 1] for kind in self._used) if own.count]
        if not seqs:
            return
        first, last = (pick(int(own[at]) for own in seqs) for pick, at in ((min, 0), (max, -1)))
        if not self._latest.count:
            self.base = first
        elif first < self.base:  # only before anything was forgotten
            known, self._latest = self._latest.now, _Grown(_NUMBERS)
            self._latest.more(self.base - first)
            self._latest.add(known)
            self.base = first
        elif 2 * (min(first, settled) - self.base) > self._latest.count:
            self._latest.forget(min(min(first, settled) - self.base, self._latest.count))
            self.base = min(first, settled)
        self._latest.more(max(0, last + 1 - self.base - self._latest.count))

    def settle(self, now: int) -> None:
        """Steps longer ago may be forgotten: nobody goes back to them."""
        self._done = 0
        for when in self._when:
            gone = int(np.searchsorted(when, now - self._span))
            self._done += gone
            if gone < len(when):
                break

    def _forget(self) -> None:
        """Forget the steps that may be."""
        gone, self._done = self._done, 0
        counts = counts_of(self._kinds.now[:gone], len(self.position))
        at, end = 1 + gone * self.each, 1 + self._kinds.count * self.each
        self.copies[1 : 1 + end - at] = self.copies[at:end]
        for steps in (self._kinds, self._noted, self._rows, self._earlier):
            steps.forget(gone)
        self.before += gone
        while gone:
            when = self._when.popleft()
            if gone < len(when):
                self._when.appendleft(when[gone:])
            gone -= min(gone, len(when))
        self._rows.now[:] -= counts[self._kinds.now]
        self.position -= counts
        for grown, kind in zip(self._arrays, self._of, strict=True):
            if kind in self._used:
                grown.forget(int(counts[kind]))

    @property
    def count(self) -> int:
        """How many steps there are."""
        return self._kinds.count

    @property
    def batch(self) -> Batch:
        """The steps as the function takes them."""
        arrays = [grown.now for grown in self._arrays]
        for array in arrays:
            array.setflags(write=False)
        return Batch(self._kinds.now, arrays, Chunk(0, 0, {}))

    @property
    def notes(self) -> list[Ints]:
        """What the function notes of steps and events, in the order of its arguments (lowering/rejecting.py)."""
        return [self._noted.now, self._rows.now, self._earlier.now, self._latest.now, self.again]

    @property
    def nbytes(self) -> int:
        """How many bytes all of this takes."""
        own = [self._kinds, self._noted, self._rows, self._earlier, self._latest, *self._arrays]
        arrays = [self.copies[: self.end], self.again, *self._when, *(grown.now for grown in own)]
        return sum(array.nbytes for array in arrays)
