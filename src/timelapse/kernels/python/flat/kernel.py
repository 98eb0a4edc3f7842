"""The kernel that runs handlers as Python, rewritten."""

from __future__ import annotations

import operator
import time
import types
from collections.abc import Mapping
from itertools import islice, repeat
from typing import Any, NoReturn

import pyarrow as pa

from timelapse.analysis.result import PassProgram
from timelapse.ids import Phase
from timelapse.kernels.base import PassResult, Tick
from timelapse.kernels.python.flat import loop
from timelapse.kernels.python.flat.calls import Loop
from timelapse.kernels.python.flat.grouped import Nested, key_columns, nested, pairs
from timelapse.kernels.python.flat.output import Packed, Tuples, rows_of
from timelapse.kernels.python.flat.refusals import takes_back
from timelapse.kernels.python.flat.written import members_of
from timelapse.kernels.python.held import Held, Live, nobody_else
from timelapse.kernels.python.interpreted import (
    FIRST_TICK,
    InterpretedKernel,
    next_size,
    not_a_record,
    refuse_dated,
)
from timelapse.kernels.source import Source
from timelapse.kinds.base import ABSENT
from timelapse.kinds.effects import Journal, undo
from timelapse.model.events import Event, Record
from timelapse.program.program import Program, Rejection, params_of, rejection, runtime
from timelapse.program.times import check_sent, loop_bound
from timelapse.segments.reader import Chunk
from timelapse.tables.apply import Change, changes_of_empty
from timelapse.tables.lookup import LazyDict
from timelapse.tables.table import key_arrays

_AT_LOG = int(Phase.LOG_EVENT)


class FlatKernel(InterpretedKernel):
    """Runs a pass's handlers, rewritten over plain dicts and columns (rewrite.py), on the stores of InterpretedKernel.

    Whatever InterpretedKernel does with single events works here too, at the same moment in the same slice.
    """

    def __init__(
        self, program: Program, work: PassProgram, starts: Mapping[str, dict[Any, Any]], *, final: bool,
        quarantine: int | None = None, live: Live = nobody_else,
        journal: Journal | None = None,
    ) -> None:  # fmt: skip
        super().__init__(
            program, work, starts, final=final, quarantine=quarantine, live=live, journal=journal
        )
        self._dicts = {name: store.data for name, store in self._held.stores.items()}
        self.rejects = self._journal is not None and bool(work.rejects)
        """Whether events may be rejected."""
        self.journals = self._journal is not None and (
            quarantine is not None
            or journal is not None
            or takes_back(
                ((h.function, h.events) for h in work.handlers),
                self._spec.states,
                params_of(program),
                members_of(type(program), work),
            )
        )
        """Whether what an event has written may have to be undone."""
        self._lists: dict[type[Record], Tuples | Packed] = {}
        self._cells: dict[str, types.CellType] = {
            n: types.CellType(0) for n in ("_tl_ts", "_tl_seq", "_tl_n", "_tl_kind")
        }
        self._cells["_tl_sent"] = types.CellType(None)
        self._sent: list[tuple[Any, ...]] = []
        """What the events of the transaction have sent, in order (loop.py); what is being handled is in a cell."""
        self._rejected_types: list[str] = []
        """The names of event types, by that number."""
        self._numbers: dict[type[Event], int] = {}
        """Event types by the number of what happens at them."""
        self._loops: dict[frozenset[str], Loop] = {}
        self._copies: dict[str, dict[Any, Any]] = {}
        """What states held at the slice's start, where changes are found by comparing."""
        self._nested: dict[str, Nested] = {}
        """SetOfs that the slice keeps by key alone (grouped.py), until they are asked for."""
        self._made: set[str] = set()
        """The states among these that were empty."""
        self._size = FIRST_TICK
        """After how many events progress is told."""
        self._position: Any = iter(())

    def _settle_nested(self, *names: str) -> None:
        """Put what was kept by key where the states have it."""
        for name in names or tuple(self._nested):
            members = self._nested.pop(name, None)
            if members is not None:
                data = self._dicts[name]
                data.clear()
                data.update(dict.fromkeys(pairs(members), True))
                self.states[name]._own.clear()

    @property
    def held(self) -> Held:
        self._settle_nested()
        return self._held

    @property
    def turn(self) -> object:
        """What the loop over events is at: which chunk, and how far in it."""
        if not self._turn % 2:
            return None
        return (self._turn, operator.length_hint(self._position), self._bound.__dict__["now"])

    def begin(self) -> None:
        self._settle_nested()
        super().begin()
        self._lists = {}
        self._copies = {}
        self._made = set()
        self._size = FIRST_TICK

    def run_source(self, source: Source, tick: Tick) -> PassResult:
        """Process one slice. After a failure the kernel's state is of no use."""
        self.begin()
        return self.go_on_source(source, tick)

    def go_on_source(self, source: Source, tick: Tick) -> PassResult:
        """Process the rest of the slice that was begun."""
        result = PassResult()
        compared = self._compared(source)
        found = self._loops.get(compared)
        if found is None:
            found = self._loops[compared] = Loop(self, compared)
            self._rejected_types = [turn.event.__name__ for turn in found.turns]
        self._copies = {name: dict(self._dicts[name]) for name in compared}
        live = self._bound.__dict__
        kept = {name: live[name] for name in ("emit", "send")}
        live["send"] = self._queue
        if self._final:
            live["emit"] = self._put
        self._nested = {name: nested(self._dicts[name]) for name in found.nested}
        found.begin(self)
        try:
            for chunk in source.chunks():
                if not self._chunk_of(found, chunk, source, result, tick):
                    return result
        finally:
            live.update(kept)
        self._compare()
        self._finish(result)
        return result

    def _compared(self, source: Source) -> frozenset[str]:
        """Tracked states that are copied now and compared at the end, which is cheaper than keeping track.

        A copy takes as long as a few writes per hundred keys; a state that is larger than the slice is left alone.
        """
        if self.open:
            return frozenset()
        events = source.hi - source.lo
        return frozenset(
            name for name, store in self._held.tracked.items()
            if not isinstance(store.data, LazyDict) and len(store.data) <= events
        )  # fmt: skip

    def _compare(self) -> None:
        for name, was in self._copies.items():
            data = self._dicts[name]
            if was:
                self._settle_nested(name)
                self._held.tracked[name].before = _replaced(was, data)
            else:
                self._made.add(name)
        self._copies = {}

    def _changed(self, name: str) -> tuple[pa.Table, Change]:
        if name in self._made:
            spec, members, data = self._spec.states[name], self._nested.get(name), self._dicts[name]
            if members is not None:
                keys = key_columns(spec, members)
                return changes_of_empty(spec, keys, len(keys[0]), ())
            return changes_of_empty(spec, key_arrays(spec, list(data)), len(data), list(data.values()))
        return super()._changed(name)

    def _chunk_of(self, run: Loop, chunk: Chunk, source: Source, result: PassResult, tick: Tick) -> bool:
        """Process a chunk. False after a failure, which is in the result then."""
        rows = loop.rows(run.turns, chunk, single=run.single)
        if rows is None:
            return True
        self._position = rows.position
        events, *nexts = rows.arguments
        done = 0
        while True:
            began = time.perf_counter()
            self._turn += 1
            failure: Exception | None = None
            try:
                run.function(islice(events, self._size), *nexts)
            except Rejection as refusal:
                raise RuntimeError("an event was rejected in a pass that rejects none") from refusal
            except Exception as error:
                trace = error.__traceback__
                failure = error.with_traceback(None if trace is None else trace.tb_next)
            finally:
                self._turn += 1
            at = rows.count - operator.length_hint(rows.position)
            result.events += at - done
            tick(at - done)
            if at - done == self._size:
                self._size = next_size(self._size, time.perf_counter() - began)
            done = at
            if failure is not None:
                seq = self._cells["_tl_seq"].cell_contents
                event = source.event(seq)
                self.derived.current = self._derived_event()
                if not self._take_out(event, failure):
                    result.failure = self._fatal(event, failure)
                    result.failed_seq = seq if self.derived.current is None else -1
                    result.quarantined = self.collected.quarantined
                    return False
                self._take_back(seq)
            if done == rows.count:
                return True

    def _refuse(self, reason: str, handler: str) -> None:
        """Undo the event under way and note why."""
        journal, cells = self._journal, self._cells
        if journal:
            undo(journal)
        if self._sent:
            self._settle()
        ts, seq = cells["_tl_ts"].cell_contents, cells["_tl_seq"].cell_contents
        if cells["_tl_n"].cell_contents:
            self._take_back(seq)
        kind = self._rejected_types[cells["_tl_kind"].cell_contents]
        self.collected.refused.append((ts, _AT_LOG, seq, kind, handler, reason))

    def _refuse_with(self, reason: str | Record, handler: str) -> None:
        """The same for what `self.reject` is given."""
        refusal = rejection(reason)
        self._refuse(refusal.reason, handler)
        if refusal.record is not None and self._final:
            self._put(refusal.record)

    def _caught(self, refusal: Rejection) -> None:
        """The same for what somebody has raised that has the program itself."""
        self._refuse(refusal.reason, self._handler_of(refusal.__traceback__))
        if refusal.record is not None and self._final:
            self._put(refusal.record)

    def _kept(self, cls: type[Record]) -> Tuples | Packed:
        """The rows of a type that are put out in this slice."""
        found = self._lists.get(cls)
        if found is None:
            found = self._lists[cls] = rows_of(cls)
        return found

    def _take_back(self, seq: int) -> None:
        """Take back what an event has put out."""
        for rows in self._lists.values():
            rows.take_back(seq)
        self._cells["_tl_n"].cell_contents = 0

    @runtime("emit")
    def _put(self, record: Record) -> None:
        """Put out a record at the event under way."""
        if not isinstance(record, Record):
            raise not_a_record(record)
        if record.__reads__:
            self.collected.read(record)
            return
        ts, seq, n = (self._cells[name].cell_contents for name in ("_tl_ts", "_tl_seq", "_tl_n"))
        self._kept(type(record)).add(ts, seq, n, *tuple.__iter__(record))
        self._cells["_tl_n"].cell_contents = n + 1

    @runtime("send")
    def _queue(
        self, event: Event, *, after: int | None = None, at: int | None = None, key: Any = None
    ) -> None:
        """`self.send`, where it is not written out."""
        if (after, at, key) != (None, None, None):
            refuse_dated()
        cls = check_sent(self._spec, event)
        if len(self._sent) >= self._spec.loop:
            self._over()
        self._sent.append((self._numbers.get(cls, -1), *event._values()))

    def _over(self) -> NoReturn:
        raise loop_bound(self._spec)

    def _derived_event(self) -> Event | None:
        """The event that was sent and is being handled, if one is."""
        sent = self._cells["_tl_sent"].cell_contents
        if sent is None:
            return None
        number, *values = sent
        cls = next(c for c, n in self._numbers.items() if n == number)
        ts, seq = (self._cells[n].cell_contents for n in ("_tl_ts", "_tl_seq"))
        return cls._raw((*values, ts, seq))

    def _settle(self) -> None:
        super()._settle()
        self._sent.clear()
        self._cells["_tl_sent"].cell_contents = None

    def put_out(self) -> tuple[dict[type[Record], pa.Table], pa.Table]:
        outputs, rejected = super().put_out()
        for cls, rows in self._lists.items():
            made = rows.table()
            if not made.num_rows:
                continue
            if cls in outputs and not cls.__reads__:
                result = PassResult(outputs={cls: outputs[cls]})
                result.join({cls: made}, None)
                made = result.outputs[cls]
            outputs[cls] = made
        return outputs, rejected


def _replaced(was: dict[Any, Any], data: dict[Any, Any]) -> dict[Any, Any]:
    """What keys held of which the dict holds another object now than its copy, or nothing; ABSENT for those that are new."""
    if len(data) >= len(was) and all(map(operator.is_, was, data)):
        # None was removed: a dict is in the order in which keys came, so its first ones are the copy's.
        before = {k: w for k, w, v in zip(was, was.values(), data.values(), strict=False) if w is not v}
        before.update(zip(islice(data, len(was), None), repeat(ABSENT)))
        return before
    old = was.get
    before = {k: old(k, ABSENT) for k, v in data.items() if old(k, ABSENT) is not v}
    before.update((k, v) for k, v in was.items() if k not in data)
    return before
