"""Steps of a log that stay at hand for some time, as arrays. More steps come at the end, and the first ones are forgotten."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
import numpy.typing as npt

from timelapse.kernels.native.decode import Batch, counts_of
from timelapse.kernels.native.memory.keeping import ROW
from timelapse.kernels.native.unit import Unit
from timelapse.log.reader import Chunk

Array = npt.NDArray[Any]
Ints = npt.NDArray[np.int64]


class _Grown:
    """An array that grows at its end."""

    def __init__(self, like: Array) -> None:
        self._all: Array = np.zeros((0, *like.shape[1:]), like.dtype)
        self.count = 0

    def add(self, values: Array) -> None:
        end = self.count + len(values)
        self._reserve(end)
        self._all[self.count : end] = values
        self.count = end

    def reserve(self, count: int) -> None:
        """So many more, whatever they are."""
        self._reserve(self.count + count)
        self.count += count

    def more(self, count: int) -> None:
        """So many zeros."""
        self.reserve(count)
        self._all[self.count - count : self.count] = 0

    def _reserve(self, count: int) -> None:
        if count > len(self._all):
            larger: Array = np.zeros((2 * count, *self._all.shape[1:]), self._all.dtype)
            larger[: self.count] = self._all[: self.count]
            self._all = larger

    def forget(self, count: int) -> None:
        left = self.count - count
        self._all[:left] = self._all[count : self.count]
        self.count = left

    @property
    def now(self) -> Array:
        return self._all[: self.count]

    @property
    def nbytes(self) -> int:
        return self._all.nbytes


class HeldSteps:
    """Steps of some kinds, with what the rows that each of them looked up held before it (`memory.keeping.note`).

    `copies` are these rows, as the compiled function takes them: at most `each` of a step, with at most `words` words. `base` is the seq of the first
    event of which something is noted. `before`: how many steps came before those that are held.
    """

    def __init__(self, unit: Unit, kinds: Collection[int], each: int, words: int) -> None:
        self._kinds, self._each = _Grown(np.zeros(0, np.int8)), each
        self._used = [kind for kind in range(len(unit.events)) if kind in kinds]
        self._when, self._noted, self._whose, self._first = (_Grown(np.zeros(0, np.int64)) for _ in range(4))
        self.position: Ints = np.zeros(len(unit.events), np.int64)
        """How many of each kind the function has gone through."""
        self._arrays = list[_Grown]()
        self._of = [n for n in range(len(unit.events)) for _ in range(2)] + [c.event for c in unit.columns]
        self.copies: Ints = np.zeros((1, max(ROW + words, ROW + 1)), np.int64)
        self.base = self.before = self._done = 0

    def add(self, batch: Batch, lo: int, hi: int, position: Ints, settled: int) -> int:
        """Add steps `lo` to `hi` of a batch, and return where they stand here. `position`: how many steps of each kind the batch has before `lo`; it is
        brought up to `hi`. No event before the seq `settled` is taken out any more."""
        if 2 * self._done > self._kinds.count:
            self._forget()
        if not self._arrays:
            self._arrays = [_Grown(array) for array in batch.arrays]
        assert batch.when is not None
        kinds, at = batch.kinds[lo:hi], self._kinds.count
        until = position + counts_of(kinds, len(position))
        self._kinds.add(kinds)
        self._when.add(batch.when[lo:hi])
        for notes in (self._noted, self._whose):
            notes.reserve(hi - lo)
        for grown, array, kind in zip(self._arrays, batch.arrays, self._of, strict=True):
            if kind in self._used:
                grown.add(array[position[kind] : until[kind]])
        position[:] = until
        self._note_events(settled)
        needed = 1 + self._each * self._kinds.count
        if len(self.copies) < needed:
            copies: Ints = np.zeros((2 * needed, self.copies.shape[1]), np.int64)
            copies[: len(self.copies)] = self.copies
            self.copies = copies
        self.copies[0, :2] = needed - 1, self._each
        return at

    def _note_events(self, settled: int) -> None:
        """Make room for what is noted of the events of steps."""
        seqs = [own.now for own in (self._arrays[2 * kind + 1] for kind in self._used) if own.count]
        if not seqs:
            return
        first, last = (pick(int(own[at]) for own in seqs) for pick, at in ((min, 0), (max, -1)))
        if not self._first.count:
            self.base = first
        elif first < self.base:  # only before anything was forgotten
            known, self._first = self._first.now, _Grown(self._when.now)
            self._first.more(self.base - first)
            self._first.add(known)
            self.base = first
        elif 2 * (min(first, settled) - self.base) > self._first.count:
            self._first.forget(min(first, settled) - self.base)
            self.base = min(first, settled)
        self._first.more(max(0, last + 1 - self.base - self._first.count))

    def settle(self, before: int) -> None:
        """Steps before a time may be forgotten: nobody goes back to them."""
        self._done = int(np.searchsorted(self._when.now, before))

    def _forget(self) -> None:
        """Forget the steps that may be."""
        gone, self._done = self._done, 0
        counts = counts_of(self._kinds.now[:gone], len(self.position))
        at, end = 1 + gone * self._each, 1 + self._kinds.count * self._each
        self.copies[1 : 1 + end - at] = self.copies[at:end]
        for steps in (self._kinds, self._when, self._noted, self._whose):
            steps.forget(gone)
        self.position -= counts
        for grown, kind in zip(self._arrays, self._of, strict=True):
            if kind in self._used:
                grown.forget(int(counts[kind]))
        self.before += gone

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
        return [self._noted.now, self._whose.now, self._first.now]

    @property
    def nbytes(self) -> int:
        """How many bytes all of this takes."""
        own = [self._kinds, self._when, self._noted, self._whose, self._first, *self._arrays]
        return self.copies.nbytes + sum(grown.nbytes for grown in own)
