"""Finding, compiled, which events are taken out of a log where calls of `after=` handlers fail: many of them at a time.

The meaning is that of beginning again without each event from which something fails, one after the other, in the order in which they fail.
Here a pass over the whole log lists all that fails, and goes on with what those events have done still there. Which rows a step can touch
follows from its event alone (lowering/touches.py), so it is known which events can have to do with each other. Those that an event that is taken out
can have to do with form a group with it. Of each group the first failure is certain: up to it nothing in the group was another than in
the log as it was. The next pass is without all events of which that was certain, over the groups in which something has failed and
what it takes to know what they find. In the last one nothing fails late.

What has failed at once on the way stays out, as it does where the log begins again: where that was certain, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from timelapse.analysis.result import PassProgram
from timelapse.env.machine import memory_alone
from timelapse.kernels.base import Abandoned
from timelapse.kernels.native.decode import Batch, Decoder
from timelapse.kernels.native.kernel import PIECE, Ints, NativeKernel, Shown
from timelapse.kernels.native.later import with_later, with_ticks
from timelapse.kernels.native.leaving import Failed, TooOften
from timelapse.kernels.native.lowering.values import number_of
from timelapse.kernels.native.memory import blocks
from timelapse.kernels.native.memory.spreading import AT_ONCE, LATE, needed, number, number_again, spread
from timelapse.kernels.native.memory.strings import Interned
from timelapse.kernels.native.raised import raised_rows
from timelapse.kernels.native.unit import Touch, Unit
from timelapse.kernels.source import Source
from timelapse.log.reader import Chunk
from timelapse.model.decimals import as_word
from timelapse.model.failure import Quarantined, quarantined_row
from timelapse.model.program import Program, params_of

Bools = npt.NDArray[np.bool_]
Numbers = npt.NDArray[np.int32]
Keys = npt.NDArray[np.uint64]
_SHARE = 4
"""What it holds takes one part in so many of the memory at most."""
_MOST_PASSES = 8
"""It may take as many steps as so many passes over the whole log have. Then the rest is done one after the other."""
_STEP, _FAILURE, _AGAIN = 5e-7, 1e-3, 1e-7
"""Seconds, about: what a step takes in such a pass; what an event takes that is found alone (rewinding.py), and each step that is done again for it."""
_MOST_TIES = 32
"""So often it is found out which events belong to groups."""
_MIX = np.uint64(0x9E3779B97F4A7C15)
_ANY = 1 << 40
"""So many events may fail."""


class NotTogether(Exception):
    """It cannot be done so; why."""


def cannot_find_together(unit: Unit) -> str:
    """Why this cannot be done for a pass; empty where it can."""
    if not unit.later:
        return "nothing is called later"
    if isinstance(unit.touches, str):
        return unit.touches
    if unit.left:
        return "some handlers run as Python"
    if unit.ticks:
        return "ticks run as Python"
    if unit.hidden or unit.indexed:
        return "members are counted or listed by key"
    return (
        "a handler reads a list"
        if any(column.part in ("items", "offsets") for column in unit.columns)
        else ""
    )


@dataclass(frozen=True)
class _Failure:
    """A step has failed: of an event by seq, and of a kind."""

    seq: int
    kind: int
    row: Quarantined


class _Listing(NativeKernel):
    """Goes through steps, and lists all that fail."""

    def __init__(
        self, program: Program, work: PassProgram, unit: Unit, events: int, interned: Interned, begins: int | None
    ) -> None:  # fmt: skip
        super().__init__(
            program, work, unit, {}, final=True, events=events, quarantine=_ANY, asked=(), interned=interned
        )
        self._taken.lists_late, self._taken.begins = True, begins
        self._found: list[_Failure] = []
        self._left_at = 0, -1
        """The place in its batch of the step that runs as Python, or did last, and its kind."""

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
                at = self._some(batch, at, min(at + PIECE, batch.events), position, None)
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
        """What the compiled function itself has listed."""
        words = self._outputs.take_raised_words()
        if len(words):
            rows = raised_rows(self._unit, words, self._interned)
            kinds = words[:, 2].tolist()
            self._found += [_Failure(row[2], kind, row) for row, kind in zip(rows, kinds, strict=True)]

    def _as_python(self, batch: Batch, at: int, position: Ints, shown: Shown | None) -> None:
        self._left_at = at, int(batch.kinds[at])
        self._list()
        super()._as_python(batch, at, position, shown)


class _Tables(dict[str, pa.Table]):
    """Some rows of a chunk's tables, for the few steps that run as Python."""

    def __init__(self, chunk: Chunk, rows: dict[str, Ints]) -> None:
        super().__init__()
        self._chunk, self._rows = chunk, rows

    def __missing__(self, name: str) -> pa.Table:
        found = self[name] = self._chunk.tables[name].take(pa.array(self._rows[name]))
        return found


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
        """Some of them. What is numbered is numbered anew."""
        batches, begin = list[Batch](), 0
        for batch in self.batches:
            own = keep[begin : begin + batch.events]
            begin += batch.events
            if own.any():
                batches.append(batch if own.all() else _part(unit, batch, own))
        events, event_count = _numbered_again(self.events.reshape(-1, 1), keep, self.event_count)
        cells, cell_count = _numbered_again(self.cells, keep, self.cell_count)
        return _Steps(
            batches, self.kinds[keep], self.seqs[keep], events.ravel(), cells, event_count, cell_count
        )

    def places(self, unit: Unit, failures: Sequence[_Failure]) -> Ints:
        """Where the steps are that have failed. Raises NotTogether."""
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

    def __init__(self, program: Program, work: PassProgram, unit: Unit, source: Source, events: int) -> None:
        """Raises NotTogether, NotCompiled."""
        self._program, self._work, self._unit = program, work, unit
        self._count, self._begins = events, source.begin
        self._interned = Interned(unit.texts)
        self._params = params_of(program)
        self._most = memory_alone() // _SHARE
        self._rows: dict[int, Quarantined] = {}
        assert not isinstance(unit.touches, str)
        self._width = max(map(len, unit.touches))
        self._writes: Bools = np.zeros((len(unit.events), self._width), np.bool_)
        for kind, touches in enumerate(unit.touches):
            self._writes[kind, : len(touches)] = [touch.writes for touch in touches]
        self._steps = self._read(with_ticks(with_later(source, unit), program, source, unit))
        times = [b.when for b in self._steps.batches if b.when is not None and len(b.when)]
        span = max(1, int(times[-1][-1]) - int(times[0][0]))
        lag = max(later.lag for later in unit.later.values())
        self._within = len(self._steps.kinds) * min(1.0, 1.5 * lag / span)
        """So many steps are done again for each event that is found alone, about."""

    def find(
        self, tick: Callable[[int, int], None], *, otherwise: bool = True
    ) -> tuple[list[Quarantined], bool]:
        """Events that are taken out, by rising seq, and whether these are all. `tick` is told of further steps of the log, and how many events
        were taken out. `otherwise`: the others can be found one after the other, compiled. Raises NotTogether."""
        budget, is_all = _MOST_PASSES * len(self._steps.kinds), False
        while not is_all and budget > 0:
            budget -= len(self._steps.kinds)
            kernel = _Listing(
                self._program, self._work, self._unit, self._count, self._interned, self._begins
            )
            try:
                failures = kernel.go(self._steps.batches, lambda steps: tick(steps, len(self._rows)))
            finally:
                kernel.close()
            late = sum(f.kind in self._unit.later for f in failures)
            is_all = not late
            certain = self._judge(failures)
            if otherwise and self._is_slower(certain, late - certain):
                break
        return [self._rows[seq] for seq in sorted(self._rows)], is_all

    def _is_slower(self, certain: int, left: int) -> bool:
        """Whether further passes take longer than to find the events one after the other. `certain`: so many were certain in the last one."""
        steps = len(self._steps.kinds)
        return left > 0 and steps * _STEP > certain * (_FAILURE + self._within * _AGAIN)

    # --- the log ----------------------------------------------------------------------------------

    def _read(self, chunks: Iterator[Chunk]) -> _Steps:
        unit, decoder = self._unit, Decoder(self._unit, self._interned)
        assert not isinstance(unit.touches, str)
        batches, keys, held = list[Batch](), list[tuple[Batch, int, Ints, Keys]](), 0
        begin = 0
        for chunk in chunks:
            batch = decoder.decode(chunk)
            for kind, touches in enumerate(unit.touches):
                own = self._keys(batch, kind, touches)
                if len(own):
                    keys.append((batch, kind, begin + np.flatnonzero(batch.kinds == kind), own))
                    held += 5 * own.nbytes
            batches.append(batch)
            begin += batch.events
            held += sum(array.nbytes for array in batch.arrays) + 4 * batch.events * (self._width + 4)
            if held > self._most:
                raise NotTogether("the log is too large to be held")
        if not batches:
            raise NotTogether("the log is empty")
        kinds = np.concatenate([batch.kinds for batch in batches])
        seqs: Ints = np.zeros(begin, np.int64)
        numbering = _Numbering(sum(own.size for *_, own in keys))
        cells: Numbers = np.full((begin, self._width), -1, np.int32)
        for batch, kind, rows, own in keys:
            seqs[rows] = batch.arrays[2 * kind + 1]
            cells[rows, : own.shape[1]] = numbering.numbered(own)
        events, event_count = _numbered_events(unit, kinds, seqs)
        return _Steps(batches, kinds, seqs, events, cells, event_count, numbering.count)

    def _keys(self, batch: Batch, kind: int, touches: Sequence[Touch]) -> npt.NDArray[np.uint64]:
        """What stands for the rows that each event of a kind can touch."""
        count = len(batch.arrays[2 * kind])
        found: npt.NDArray[np.uint64] = np.zeros((count, len(touches)), np.uint64)
        if not count:
            return found
        with np.errstate(over="ignore"):
            for at, touch in enumerate(touches):
                columns = {name: batch.arrays[number] for name, number in touch.columns.items()}
                names = _Names(columns, self._params)
                key: Any = np.uint64(touch.table + 1) * _MIX
                for word in touch.key:
                    value = np.asarray(eval(word, {"np": np}, names))  # noqa: S307 (the compiler's own code)
                    if value.dtype.kind not in "iub":
                        raise NotTogether("a key is no whole number")
                    key = (key ^ value.astype(np.int64).view(np.uint64)) * _MIX
                    key = key ^ (key >> np.uint64(29))
                found[:, at] = key | np.uint64(1)
        return found

    # --- what is certain --------------------------------------------------------------------------

    def _judge(self, failures: list[_Failure]) -> int:
        """Take out those events of which it is certain that they fail; of how many late ones it was. Leaves those steps that the next pass is to go through."""
        unit, steps = self._unit, self._steps
        places = steps.places(unit, failures)
        is_late: Bools = np.array([f.kind in unit.later for f in failures], np.bool_)
        failing: npt.NDArray[np.int8] = np.zeros(len(steps.kinds), np.int8)
        failing[places] = np.where(is_late, LATE, AT_ONCE)
        tied: Bools = np.zeros(steps.event_count, np.bool_)
        tied[steps.events[places[is_late]]] = True
        own = steps.events, steps.kinds, steps.cells, self._writes
        for _ in range(_MOST_TIES):
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


class _Names(dict[str, Any]):
    """What the words of keys are written with: columns, parameters, numbers."""

    def __init__(self, columns: dict[str, Any], params: dict[str, Any]) -> None:
        super().__init__(columns)
        self._given = params

    def __missing__(self, name: str) -> Any:
        number = number_of(name)
        if number is not None:
            return np.int64(number)
        if name == "ONE":
            return np.uint64(1)
        if name.startswith("p_"):
            return as_word(self._given[name[2:]])
        raise KeyError(name)


class _Numbering:
    """Numbers keys, at most so many of them. `count`: so many different ones there were."""

    def __init__(self, most: int) -> None:
        size = 1 << max(4, (3 * most // 2).bit_length())
        self._slots: Keys = blocks.zeros(2 * size).view(np.uint64).reshape(size, 2)
        self.count = 0

    def numbered(self, keys: Keys) -> Numbers:
        """Small numbers in place of keys, -1 where there is none."""
        into: Numbers = np.zeros(keys.size, np.int32)
        self.count = int(number(keys.ravel(), self._slots, self.count, into)[0])
        return into.reshape(keys.shape)


def _numbered_again(numbers: Numbers, keep: Bools, count: int) -> tuple[Numbers, int]:
    """What is left of rows of numbers, numbered anew, and how many there are."""
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


def _part(unit: Unit, batch: Batch, keep: Bools) -> Batch:
    """Some of a batch's steps."""
    kept = [np.flatnonzero(keep[batch.kinds == kind]) for kind in range(len(unit.events))]
    of = [kind for kind in range(len(unit.events)) for _ in range(2)] + [c.event for c in unit.columns]
    arrays = [
        array[kept[kind]] if len(array) else array for kind, array in zip(of, batch.arrays, strict=True)
    ]
    for array in arrays:
        array.setflags(write=False)
    rows = {unit.table_of(kind): own for kind, own in enumerate(kept)}
    chunk = batch.chunk._replace(tables=_Tables(batch.chunk, rows))
    when = None if batch.when is None else batch.when[keep]
    return replace(batch, kinds=batch.kinds[keep], arrays=arrays, chunk=chunk, when=when)
