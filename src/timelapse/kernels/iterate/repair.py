"""Iterate: a slice's events run from a guessed start, and those run again that would have decided otherwise.

`guess` runs a pass over a slice from whatever start and records what each event did and why (kernels/iterate/tracer.py,
kernels/iterate/recording.py). `RepairKernel` is given the exact start, and goes through the recording (kernels/iterate/sweep.py),
which costs little: most events did what they would have done anyway. Where one would not, its handlers run on the
exact state, and what it does takes the place of what it did; later events that read what it wrote are found by
going on. So the state at the end of the slice is exact, and the next slice can be repaired from there: each event
runs again at most once. Where too many would, the rest of the slice runs as in a chain, from the exact state there.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from timelapse.analysis.result import PassProgram
from timelapse.kernels import budget
from timelapse.kernels.base import PassResult, Repaired, Tick
from timelapse.kernels.clock import Clock
from timelapse.kernels.iterate import sweep
from timelapse.kernels.iterate.bounds import NOTHING
from timelapse.kernels.iterate.recording import Codes, Recorder, Recording
from timelapse.kernels.iterate.tracer import Base, Failed, TracedStore, Tracer, Untraceable
from timelapse.kernels.python.interpreted import InterpretedKernel
from timelapse.kernels.python.starts import starting
from timelapse.kernels.source import Source
from timelapse.kinds.base import ABSENT, StateSpec
from timelapse.model.events import Event
from timelapse.program.program import Program, spec_of
from timelapse.segments.reader import Chunk
from timelapse.segments.rows import row_maker
from timelapse.segments.types import bind
from timelapse.tables.levels import Start

MOST = 0.3
"""Of the events gone through, so many may run again; with more it is no worse to run them all."""
FEWEST = 64
"""So many may in any case."""
_TICK = 8192


def specs_of(program: Program, work: PassProgram) -> dict[str, StateSpec]:
    """The states whose keys a pass's recording is about."""
    return {name: spec for name, spec in spec_of(program).states.items() if name in work.exact}


def guess(
    program: Program, work: PassProgram, starts: Mapping[str, Start], source: Source, events: int, tick: Tick,
    memory: int | None = None,
) -> Recording:  # fmt: skip
    """Run a pass over a slice from a start that may be wrong.

    Where that leads to something that cannot be told event by event (a handler asks for every key, or spends its
    budget) the recording says why, and is of no use.
    """
    states = specs_of(program, work)
    data = {
        name: starting(spec, starts[name], events, memory) if name in starts else {}
        for name, spec in states.items()
    }

    def base(name: str) -> Callable[[Any], Any]:
        get = data[name].get
        return lambda key: get(key, ABSENT)

    tracer = Tracer(program, work, {name: base(name) for name in states})
    recorder = Recorder(states)
    stores = list(tracer.stores.values())
    done = 0

    def record() -> None:
        nonlocal done
        for event in source.events():
            done += 1
            try:
                tracer.run(event)
            except Failed:
                recorder.add_failed(event.seq)
            else:
                recorder.add(event.seq, stores, data)
            if done % _TICK == 0:
                tick(_TICK)

    try:
        budget.within(budget.SECONDS, lambda: tracer.turn, record)
    except budget.Spent:
        return recorder.recording("an event spent its budget on the guessed state")
    except Untraceable as why:
        return recorder.recording(str(why))
    found = recorder.recording()
    found.events = done
    tick(done % _TICK)
    return found


class RepairKernel:
    """Finds what slices did, one after the other, from the exact start of the first and all their recordings.

    `recording` gives that of the slice which begins at a seq, None where there is none. Results are those of a
    chain over the same pass.
    """

    compiled = False
    why_python = ""
    workers = accompanied = False

    def __init__(
        self, program: Program, work: PassProgram, starts: Mapping[str, Start], events: int, *,
        recording: Callable[[int], Recording | None], memory: int | None = None, quarantine: int | None = None,
    ) -> None:  # fmt: skip
        specs = spec_of(program).states
        known = {name: starting(specs[name], table, events, memory) for name, table in starts.items()}
        self._python = InterpretedKernel(program, work, known, final=False, quarantine=quarantine)
        self._program, self._work, self._recording = program, work, recording
        self._clock = Clock()
        self._tracer: Tracer | None = None

    @property
    def seconds(self) -> dict[str, float]:
        """What making it took, as far as it is known apart."""
        return self._clock.seconds

    def carried(self) -> None:
        """There are no windows in what is repaired."""
        return

    def close(self) -> None:
        """Let go of the states, and of what has the recordings."""
        if python := vars(self).pop("_python", None):
            python.close()
        self.__dict__.pop("_recording", None)
        self._tracer = None

    @property
    def state_bytes(self) -> int:
        """What the exact states take in memory, roughly."""
        return self._python.state_bytes

    def run(self, source: Source, tick: Tick) -> PassResult:
        """Process one slice. After a failure the kernel is of no use. Raises budget.Spent."""
        return budget.within(budget.SECONDS, self._turn, lambda: self._run(source, tick))

    def _turn(self) -> object:
        return self._python.turn or (None if self._tracer is None else self._tracer.turn)

    def _run(self, source: Source, tick: Tick) -> PassResult:
        found = Repaired()
        recording = self._recording(source.lo)
        self._python.begin()
        rest: Iterator[Event] | None = None
        done = 0
        if recording is None or recording.reason:
            found.reason = "nothing was recorded" if recording is None else recording.reason
            rest = source.events()
        else:
            found.events = len(recording.rows.seqs)
            going = _Sweeping(self._program, self._work, self._python, recording, source, found)
            self._tracer = going.tracer
            done, seq = going.go(tick)
            self._tracer = None
            if seq is not None:
                rest = replace(source, lo=seq).events()
        before = done
        result = self._python.go_on(iter(()) if rest is None else rest, tick)
        found.rest = result.events
        result.events += before
        result.repaired = found
        return result


class _Sweeping:
    """One slice's recording, gone through from its exact start."""

    def __init__(
        self, program: Program, work: PassProgram, python: InterpretedKernel, recording: Recording, source: Source,
        found: Repaired,
    ) -> None:  # fmt: skip
        self._python, self._recording, self._source, self._found = python, recording, source, found
        self._codes = recording.codes
        self._events = _Events(source)
        self._depths: dict[tuple[str, Any], int] = {}
        large = len(recording.rows.keys) >= sweep.COMPILED_ROWS
        self._sweep: Callable[..., int] = sweep.compiled() if large else sweep.sweep
        rows = recording.rows
        columns = [rows.begins, *rows.columns]
        self._columns: list[Any] = columns if large else [np.asarray(c).tolist() for c in columns]
        words, present = [0] * recording.size, [0] * recording.size
        self._numbers: dict[str, dict[Any, int]] = {}
        bases: dict[str, Base] = {}
        for name in specs_of(program, work):
            keys, numbers = recording.keys[name], recording.numbers[name]
            self._numbers[name] = dict(zip(keys, numbers, strict=True))
            bases[name] = functools.partial(self._holds, name)
        self.tracer = Tracer(program, work, bases)
        for name, own in self._numbers.items():
            store, get = self.tracer.stores[name], python.held.stores[name].data.get
            for key, number in own.items():
                value = get(key, ABSENT)
                if value is not ABSENT:
                    present[number] = 1
                    words[number] = value if store.integers else self._codes[name].code(value)
        written = [0] * recording.size
        as_large: Any = lambda column: np.array(column, np.int64)  # noqa: E731
        self._words: Any = as_large(words) if large else words
        self._present: Any = as_large(present) if large else present
        self._written: Any = as_large(written) if large else written

    def go(self, tick: Tick) -> tuple[int, int | None]:
        """Go through it. Gives how many events are done, and the seq from which the rest is to run in order, if any."""
        found, seqs = self._found, self._recording.rows.seqs
        at, told, end = 0, 0, len(seqs)
        seq: int | None = None
        while True:
            at = int(self._sweep(at, end, *self._columns, self._words, self._present, self._written))
            if at - told >= _TICK or at == end:
                tick(at - told)
                told = at
            if at == end:
                break
            seq = int(seqs[at])
            if found.again >= max(FEWEST, MOST * (at + 1)):
                found.reason = f"{found.again:,} of {at:,} events had to run again"
                break
            try:
                self.tracer.run(self._events.at(seq))
            except Failed:
                found.reason = "a handler raised"
                break
            except Untraceable as why:
                found.reason = str(why)
                break
            found.again += 1
            self._commit()
            at += 1
            seq = None
        self._flush()
        return at, seq

    def _holds(self, name: str, key: Any) -> Any:
        """What a key holds now."""
        number = self._numbers[name].get(key)
        if number is None:
            return self._python.held.stores[name].data.get(key, ABSENT)
        return self._content(self.tracer.stores[name], self._codes[name], number)

    def _content(self, store: TracedStore, codes: Codes, number: int) -> Any:
        word = int(self._words[number])
        if store.counts:
            return word if word else ABSENT
        if not self._present[number]:
            return ABSENT
        return word if store.integers else codes.values[word]

    def _commit(self) -> None:
        """What the tracer's event did."""
        touched = self.tracer.touched()
        depth = 1 + max((self._depths.get((s.spec.name, k), 0) for s, k, _ in touched), default=0)
        self._found.depth = max(self._found.depth, depth)
        for store, key, read in touched:
            if read.effect == NOTHING:
                continue
            name = store.spec.name
            self._depths[name, key] = depth
            value = store.after(read)
            number = self._numbers[name].get(key)
            if number is None:
                self._write(name, store, key, value)
                continue
            self._written[number] = 1
            self._present[number] = int(value is not ABSENT)
            if value is ABSENT:
                self._words[number] = 0
            else:
                self._words[number] = value if store.integers else self._codes[name].code(value)

    def _write(self, name: str, store: TracedStore, key: Any, value: Any) -> None:
        target = self._python.held.stores[name]
        if value is ABSENT or (store.counts and value == 0):
            target.drop(key)
        else:
            target.put(key, value)

    def _flush(self) -> None:
        """What was written is the state from now on."""
        written = self._written if isinstance(self._written, list) else self._written.tolist()
        for name, own in self._numbers.items():
            store, codes = self.tracer.stores[name], self._codes[name]
            for key, number in own.items():
                if written[number]:
                    self._write(name, store, key, self._content(store, codes, number))
        if self._python.journal is not None:
            self._python.journal.clear()


class _Events:
    """Single events of a slice, asked for in rising order."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._chunks: Iterator[Chunk] | None = None
        self._chunk: Chunk | None = None
        self._seqs: dict[str, Any] = {}
        self._makers = {
            name: row_maker(cls, [f.name for f in cls.__fields__ if f.name in source.columns[name]])
            for name, cls in source.classes.items()
        }

    def at(self, seq: int) -> Event:
        """The event with this seq."""
        if self._chunks is None:
            source = self._source
            bind(source.reader.types, source.classes.values())
            columns = {name: list(source.columns[name]) for name in source.classes}
            self._chunks = source.reader.chunks(seq, source.hi, columns)
        while self._chunk is None or seq >= self._chunk.seq_hi:
            self._chunk = next(self._chunks)
            self._seqs = {name: table["seq"].to_numpy() for name, table in self._chunk.tables.items()}
        for name, seqs in self._seqs.items():
            row = int(np.searchsorted(seqs, seq))
            if row < len(seqs) and seqs[row] == seq:
                return next(iter(self._makers[name](self._chunk.tables[name].slice(row, 1))))
        raise LookupError(f"the slice has no event {seq}")
