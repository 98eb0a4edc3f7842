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
from timelapse.kernels.native.memory.spreading import AT_ONCE, LATE, needed, number, spread
from timelapse.kernels.native.memory.strings import Interned
from timelapse.kernels.native.raised import raised_rows
from timelapse.kernels.native.unit import Touch, Unit
from timelapse.kernels.source import Source
from timelapse.log.reader import Chunk
from timelapse.model.decimals import as_word
from timelapse.model.failure import Quarantined, quarantined_row
from timelapse.model.program import Program, params_of

Bools = npt.NDArray[np.bool_]
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

    def __init__(self, chunk: Chunk, rows: dict[str, Bools]) -> None:
        super().__init__()
        self._chunk, self._rows = chunk, rows

    def __missing__(self, name: str) -> pa.Table:
        found = self[name] = self._chunk.tables[name].filter(pa.array(self._rows[name]))
        return found


class Together:
    """The steps of a whole log, and what was found of them. `events`: how many the log has."""

    def __init__(self, program: Program, work: PassProgram, unit: Unit, source: Source, events: int) -> None:
        """Raises NotTogether, NotCompiled."""
        self._program, self._work, self._unit = program, work, unit
        self._events, self._begins = events, source.begin
        self._interned = Interned(unit.texts)
        self._params = params_of(program)
        self._most = memory_alone() // _SHARE
        self._batches: list[Batch] = []
        self._rows: dict[int, Quarantined] = {}
        self._read(with_ticks(with_later(source, unit), program, source, unit))

    def find(
        self, tick: Callable[[int, int], None], *, otherwise: bool = True
    ) -> tuple[list[Quarantined], bool]:
        """Events that are taken out, by rising seq, and whether these are all. `tick` is told of further steps of the log, and how many events
        were taken out. `otherwise`: the others can be found one after the other, compiled. Raises NotTogether."""
        keep: Bools = np.ones(len(self._kinds), np.bool_)
        budget, is_all = _MOST_PASSES * len(keep), False
        while not is_all and budget > 0:
            budget -= int(np.count_nonzero(keep))
            kernel = _Listing(
                self._program, self._work, self._unit, self._events, self._interned, self._begins
            )
            try:
                failures = kernel.go(self._some(keep), lambda steps: tick(steps, len(self._rows)))
            finally:
                kernel.close()
            late = sum(f.kind in self._unit.later for f in failures)
            is_all = not late
            certain = self._judge(keep, failures)
            if otherwise and self._is_slower(int(np.count_nonzero(keep)), certain, late - certain):
                break
        return [self._rows[seq] for seq in sorted(self._rows)], is_all

    def _is_slower(self, steps: int, certain: int, left: int) -> bool:
        """Whether further passes over so many steps take longer than to find the events one after the other. `certain`: so many
        were certain in the last one."""
        return left > 0 and steps * _STEP > certain * (_FAILURE + self._within * _AGAIN)

    # --- the log ----------------------------------------------------------------------------------

    def _read(self, chunks: Iterator[Chunk]) -> None:
        unit, decoder = self._unit, Decoder(self._unit, self._interned)
        assert not isinstance(unit.touches, str)
        width, held = max(map(len, unit.touches)), 0
        kinds, seqs, keys = list[npt.NDArray[np.int8]](), list[Ints](), list[npt.NDArray[np.uint64]]()
        for chunk in chunks:
            batch = decoder.decode(chunk)
            seq: Ints = np.zeros(batch.events, np.int64)
            key: npt.NDArray[np.uint64] = np.zeros((batch.events, width), np.uint64)
            for kind, touches in enumerate(unit.touches):
                own = batch.kinds == kind
                seq[own] = batch.arrays[2 * kind + 1]
                key[own, : len(touches)] = self._keys(batch, kind, touches)
            self._batches.append(batch)
            kinds.append(batch.kinds)
            seqs.append(seq)
            keys.append(key)
            held += sum(array.nbytes for array in batch.arrays) + 4 * key.nbytes
            if held > self._most:
                raise NotTogether("the log is too large to be held")
        if not kinds:
            raise NotTogether("the log is empty")
        self._kinds, self._seqs = np.concatenate(kinds), np.concatenate(seqs)
        self._cells, self._cell_count = _numbered(np.concatenate(keys))
        self._number_events()
        times = [b.when for b in self._batches if b.when is not None and len(b.when)]
        span = max(1, int(times[-1][-1]) - int(times[0][0]))
        lag = max(later.lag for later in unit.later.values())
        self._within = len(self._kinds) * min(1.0, 1.5 * lag / span)
        """So many steps are done again for each event that is found alone, about."""
        self._writes: Bools = np.zeros((len(unit.events), width), np.bool_)
        for kind, touches in enumerate(unit.touches):
            self._writes[kind, : len(touches)] = [touch.writes for touch in touches]

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

    def _number_events(self) -> None:
        """Number the events. Each tick is one."""
        ticks = np.isin(self._kinds, list(self._unit.ticking))
        seqs = self._seqs[~ticks]
        first = int(seqs.min()) if len(seqs) else 0
        logged = int(seqs.max()) - first + 1 if len(seqs) else 0
        if logged > 4 * len(seqs):  # most of the log's events are of types that nobody listens to
            known, own = np.unique(seqs, return_inverse=True)
            logged = len(known)
        else:
            own = seqs - first
        count = int(np.count_nonzero(ticks))
        self._event: Ints = np.zeros(len(self._kinds), np.int64)
        self._event[~ticks] = own
        self._event[ticks] = logged + np.arange(count)
        self._event_count = logged + count
        places = [np.flatnonzero(self._kinds == kind) for kind in range(len(self._unit.events))]
        self._steps_of = [(self._seqs[steps], steps) for steps in places]

    def _some(self, keep: Bools) -> Iterator[Batch]:
        """Batches with some of the steps."""
        begin = 0
        for batch in self._batches:
            own = keep[begin : begin + batch.events]
            begin += batch.events
            if own.all():
                yield batch
            elif own.any():
                yield self._part(batch, own)

    def _part(self, batch: Batch, keep: Bools) -> Batch:
        unit = self._unit
        kept = [keep[batch.kinds == kind] for kind in range(len(unit.events))]
        of = [kind for kind in range(len(unit.events)) for _ in range(2)] + [c.event for c in unit.columns]
        arrays = [
            array[kept[kind]] if len(array) else array for kind, array in zip(of, batch.arrays, strict=True)
        ]
        for array in arrays:
            array.setflags(write=False)
        rows = {unit.table_of(kind): own for kind, own in enumerate(kept)}
        chunk = batch.chunk._replace(tables=_Tables(batch.chunk, rows))
        return replace(
            batch, kinds=batch.kinds[keep], arrays=arrays, chunk=chunk, when=None if batch.when is None else batch.when[keep]
        )  # fmt: skip

    # --- what is certain --------------------------------------------------------------------------

    def _judge(self, keep: Bools, failures: list[_Failure]) -> int:
        """Take out those events of which it is certain that they fail; of how many late ones it was. Leaves those steps that the next pass is to go through."""
        places = np.flatnonzero(keep)
        events, kinds, cells = self._event[places], self._kinds[places], self._cells[places]
        steps = [self._step(f) for f in failures]
        failing: npt.NDArray[np.int8] = np.zeros(len(keep), np.int8)
        tied: Bools = np.zeros(self._event_count, np.bool_)
        for step, failure in zip(steps, failures, strict=True):
            is_late = failure.kind in self._unit.later
            failing[step] = LATE if is_late else AT_ONCE
            tied[self._event[step]] |= is_late
        for _ in range(_MOST_TIES):
            parents: Ints = np.arange(self._event_count + 1)
            holds: Ints = np.zeros(self._cell_count, np.int64)
            failed: Bools = np.zeros(self._event_count + 1, np.bool_)
            decided: Bools = np.zeros(self._event_count, np.bool_)
            certain: Bools = np.zeros(len(places), np.bool_)
            own = events, kinds, cells, self._writes
            if spread(*own, failing[places], tied, parents, holds, failed, decided, certain):
                break
        else:
            raise NotTogether("events have too much to do with each other")
        is_certain: Bools = np.zeros(len(keep), np.bool_)
        is_certain[places] = certain
        out: Bools = np.zeros(self._event_count, np.bool_)
        late = 0
        for step, failure in zip(steps, failures, strict=True):
            if is_certain[step]:
                self._rows[failure.seq] = failure.row
                out[self._event[step]] = True
                late += failure.kind in self._unit.later
        wanted: Bools = np.zeros(len(places), np.bool_)
        needed(*own, tied, parents, failed, np.zeros(self._cell_count, np.bool_), wanted)
        keep[places] = wanted & ~out[events]
        return late

    def _step(self, failure: _Failure) -> int:
        """Where the step is that has failed."""
        unit = self._unit
        own = [n for n in range(len(unit.events)) if n not in unit.later and n not in unit.ticking]
        for kind in own if failure.kind < 0 else [failure.kind]:
            seqs, steps = self._steps_of[kind]
            at = int(np.searchsorted(seqs, failure.seq))
            if at < len(steps) and seqs[at] == failure.seq:
                return int(steps[at])
        raise NotTogether("a step is not known")


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


def _numbered(keys: npt.NDArray[np.uint64]) -> tuple[npt.NDArray[np.int32], int]:
    """Small numbers in place of keys, -1 where there is none, and how many there are."""
    flat = keys.ravel()
    size = 1 << max(4, (3 * int(np.count_nonzero(flat)) // 2).bit_length())
    into: npt.NDArray[np.int32] = np.zeros(len(flat), np.int32)
    count = number(flat, np.zeros(size, np.uint64), np.zeros(size, np.int32), into)
    return into.reshape(keys.shape), int(count)
