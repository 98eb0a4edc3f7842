"""The kernel that runs a compiled pass over a slice's columns."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from timelapse.analysis.result import PassProgram
from timelapse.kernels import budget
from timelapse.kernels.base import Abandoned, PassResult, Tick
from timelapse.kernels.clock import Clock
from timelapse.kernels.former import Former
from timelapse.kernels.native.build import compiled
from timelapse.kernels.native.decode import Batch, Decoder
from timelapse.kernels.native.fallback import Credit, Fallback, handed_over, let_go
from timelapse.kernels.native.foreseen import Foreseen
from timelapse.kernels.native.former import former_of
from timelapse.kernels.native.later import Ticks, with_later, with_ticks
from timelapse.kernels.native.leaving import Failed, TooOften
from timelapse.kernels.native.logs import NEAR_THE_END, Logs
from timelapse.kernels.native.lowering.steady import Reach
from timelapse.kernels.native.lowering.unit import LISTED, Unit
from timelapse.kernels.native.memory import loops
from timelapse.kernels.native.memory.gathering import collect, collect_later
from timelapse.kernels.native.memory.growth import Growth, foretell, make_ready_beside, make_room
from timelapse.kernels.native.memory.keeping import Kept
from timelapse.kernels.native.memory.members import Members
from timelapse.kernels.native.memory.strings import Interned
from timelapse.kernels.native.memory.table import NativeTable, undo
from timelapse.kernels.native.outputs import Outputs
from timelapse.kernels.native.starting import asked_tables, hash_tables, start_tables, state_tables
from timelapse.kernels.native.status import ABROAD, HOPELESS, LEAVE, PAUSED, ROOM, SPENT, left
from timelapse.kernels.native.taken import TakenOut
from timelapse.kernels.native.ticks import TickRoom
from timelapse.kernels.native.usual import are_compiled, compile_usual
from timelapse.kernels.native.views import Foreign, live_state
from timelapse.kernels.native.within import Within
from timelapse.kernels.native.written import Written
from timelapse.kernels.python.interpreted import InterpretedKernel
from timelapse.kernels.python.steps import calls_ahead
from timelapse.kernels.python.stores import TrackedStore
from timelapse.kernels.rowlog import Before
from timelapse.kernels.source import Source
from timelapse.kernels.tuning import NATIVE, NativeTuning
from timelapse.kinds.effects import Journal
from timelapse.model.events import Event
from timelapse.program.program import Program, params_of, spec_of
from timelapse.segments.reader import Chunk
from timelapse.tables.apply import empty
from timelapse.tables.levels import Start, whole
from timelapse.tables.table import to_dict

if TYPE_CHECKING:
    from timelapse.kernels.native.beside import Companions

Ints = npt.NDArray[np.int64]
Shown = Callable[[int], Event]


class NativeKernel:
    """Runs one compiled pass. `starts` are state tables; a state missing there starts empty.

    An event that the compiled function leaves is undone in the tables and runs as Python on them; the
    function goes on with the next one. `left` counts them. `asked`: a slice's result is what it did to
    these states, no more (None: all of it). `before`: the rows of earlier slices, of states that are looked back on;
    `logged`: those of which the rows of each slice are asked for. Both only of what is added up, and of sets. `gone`: the
    events taken out of the log before, and here. `foreseen`: events that fail later are left out where that is known before.
    """

    def __init__(
        self, program: Program, work: PassProgram, unit: Unit, starts: Mapping[str, Start], *, final: bool,
        prefetch: bool = False, events: int = 0, memory: int | None = None, ahead: bool = False,
        quarantine: int | None = None, interned: Interned | None = None, share: tuple[int, int] = (0, 1),
        asked: Collection[str] | None = None, before: Before | None = None, logged: Collection[str] = (),
        gone: set[int] | None = None, foreseen: Foreseen | None = None, tuning: NativeTuning = NATIVE,
    ) -> None:  # fmt: skip
        loops.install()
        self._program, self._work, self._unit, self._final, self.tuning = program, work, unit, final, tuning
        self.prefetch, self._quarantine, self._asked = prefetch, quarantine, asked
        self._gone: set[int] = set() if gone is None else gone
        self._rounds = budget.ROUNDS if ahead else budget.UNBOUNDED
        self._function, self._spec = compiled(unit), spec_of(program)
        self._interned = Interned(unit.texts) if interned is None else interned
        own = [np.zeros((LISTED + 1, 2), np.int64), *(np.int64(n) for n in share)]
        self._share: list[Any] = own if unit.shared else []
        self.decoder, self._params = Decoder(unit, self._interned), unit.settings(params_of(program))
        known = {n: t for n, t in starts.items() if n in work.exact}
        self._starts = {n: whole(t) for n, t in known.items() if n not in unit.layouts}
        self._counts = np.zeros(len(unit.tables), np.int64)
        self._hashes = hash_tables(unit, asked, threads=2 if prefetch else 1, tuning=tuning.tables)
        entry = 3 + max((layout.live for layout in unit.layouts.values()), default=0)
        self._undo = np.zeros((max(unit.undo, 1), entry), np.int64)
        self._tables = state_tables(unit, self._spec.states, self._interned, self._hashes)
        start_tables(unit, self._tables, known, events, memory, 2 if prefetch else 1)
        self._members = {n: Members(self._tables[n], self._tables[h]) for n, h in unit.indexed.items()}
        self._logs = Logs(unit, work, self._spec.states, self._tables, before, logged)
        self._reach = Reach(unit.steady, known)
        self._events, self._most_rows = events, unit.most_rows
        self._growth = [Growth(events, table.rows) for table in self._hashes]
        self._outputs, self._tick_room = Outputs(unit), TickRoom(unit, self._members.values())
        self._taken = TakenOut(unit, self._gone)
        self._taken.foresee(program, work, self.decoder, self._interned, foreseen, quarantine, tuning.finding)
        self._fallback: Fallback | None = None
        self._ticks: Ticks | None = None
        self.credit, self._written = Credit(tuning.burst), Written()
        self.companions: Companions | None = None
        """What takes part in `run`: given before it, if at all."""
        self._done = self._passed = self.left = self._spent_at = 0
        self._kept = Kept(self._hashes, unit.keeps, tuning.tables) if unit.keeps >= 0 else None
        self.guard: AbstractContextManager[None] = nullcontext()
        """Held while tables change."""
        self.open = self._is_begun = False
        """Open: a slice goes on from run to run until `changes` is called; runs give what was put out."""

    close = let_go

    def expect(self, rows: Mapping[str, int], *, soon: bool = False) -> None:
        """So many keys of states there will be in the end, at least: tables get that room when they grow first. `soon`: see `foretell`."""
        foretell(self._unit.tables, self._growth, rows, soon=soon)
        for name, members in self._members.items():
            members.reserve(rows.get(name, 0))

    def run_steps(self, source: Source, tick: Tick) -> PassResult:
        """Process one slice of a program that is called at other times than those of the log's events too."""
        result = self.run(self.steps_of(source), tick, source.event)
        if self._final and source.is_last and result.failure is None:
            ahead = calls_ahead(self._program, self._spec.handlers, source, self._taken.all)
            result.pending = dict(sorted(ahead.items()))
        return result

    def steps_of(self, source: Source) -> Iterator[Chunk]:
        """A slice of such a program begins: all its steps."""
        self._ticks = Ticks(self._program, source) if self._unit.ticks else None
        self._taken.begins, self._taken.source = source.begin, source
        return with_ticks(with_later(source, self._unit), self._program, source, self._unit)

    def run(self, chunks: Iterator[Chunk], tick: Tick, shown: Shown, later: int = 0) -> PassResult:
        """Process one slice. After a failure the kernel is of no use. `shown` gives an event by seq for errors. `later`: as in Source.
        Raises TooOften in the middle of it; then `hand_over` gives what goes on."""
        result = PassResult()
        clock = Clock()
        beside = self.companions
        try:
            with self.decoder.batches(chunks, clock, ahead=self.prefetch) as batches:
                self.begin()
                if beside is not None:
                    beside.begin()
                for batch in self._taken.left_of(batches, clock):
                    with clock.phase("kernel"):
                        self.feed(batch, tick, shown)
                        if beside is not None:
                            beside.take(batch.chunk, self._outputs.take_reads())
            if beside is not None:
                beside.close()
            with clock.phase("kernel"):
                self.tick_until(None, tick)
            with clock.phase("write"):
                self.finish(result, later)
            if beside is not None:
                with clock.phase("kernel"):
                    result.beside = beside.end()
        except Failed as failed:
            result.failure, result.failed_seq = failed.failure, failed.seq
            self._list_quarantined(result)
            return result
        finally:
            if beside is not None:
                beside.stop()
        result.seconds = clock.seconds
        return result

    def begin(self) -> None:
        """A new slice begins, or the next part of one."""
        self._outputs = Outputs(self._unit, follow=self.companions is not None)
        if self._fallback is not None:
            self._fallback.python.begin()
        if self.open and self._is_begun:
            for growth in self._growth:
                growth.go_on(self._done)
            self._done = self._passed = self._spent_at = 0
            return
        self._is_begun = True
        for number, table in enumerate(self._hashes):
            table.begin()
            self._growth[number].go_on(self._done)
            if not table.exact:  # it is empty again
                self._growth[number] = Growth(self._events, table.rows)
        self._logs.begin()
        self._done = self._passed = self._spent_at = 0

    def finish(self, result: PassResult, later: int = 0) -> None:
        """The slice ends, or a part of it: what it did."""
        if not self.open:
            self.changes(result, later)
        self.end(result)

    def changes(self, result: PassResult, later: int = 0) -> None:
        """What the slice did to states. It ends here. `later`: as in Source. Raises Abandoned."""
        if not self._is_begun:
            self.begin()
        tables, logs = [self.collected()], self._logs.images()
        if not collect_later(tables, result, logs, later, again=self.open):
            threads = 2 if self.prefetch else 1  # the one that decoded is done by now
            collect(tables, result, threads, logs=logs)
        self._is_begun = False

    def end(self, result: PassResult) -> None:
        """The same without what it did to states."""
        result.events = self._done - self._passed
        if self._final and self._asked is None:
            self._put_out(result)
        self._list_quarantined(result)

    def look_from(self, ts: int, *, tick: bool = False) -> None:
        """What looks back is asked for an event at this time, or for a tick."""
        if self._logs:
            self._python().look_from(ts, tick=tick)

    def live(self, name: str, journal: Journal | None) -> Any:
        """A state as handlers use it, on this kernel's tables. Views of it are as of `look_from`."""
        if name in self._logs:
            return self._python().viewed(name, journal)
        table = self._tables.get(name)
        if table is None:  # no handler mentions it
            spec = self._spec.states[name]
            return spec.kind(spec, TrackedStore(to_dict(spec, self._starts.get(name)), journal))
        counts = self._tables.get(self._unit.counted.get(name, ""))
        return live_state(table, journal, counts=counts, members=self._members.get(name))

    def held(self, name: str) -> pa.Table:
        """An exact state's keys and values, in no order (NativeTable.held)."""
        if name in self._tables:
            return self._tables[name].held()
        return self._starts.get(name, empty(self._spec.states[name]))  # no handler mentions it

    def settle(self) -> None:
        """What states hold now is what `former` gives from now on, as far as rows are kept."""
        if self._kept is not None:
            if not self._kept.on:  # what the first checkpoint calls
                if not are_compiled():
                    compile_usual()
                self._logs.prepare()
            self._kept.settle()

    def former(self, name: str) -> Former | None:
        """A state as it was when this was settled; None where that is not known any more."""
        own = self._tables.get(name), self._starts.get(name), self._members.get(name)
        return former_of(self._spec.states[name], self._kept, self._hashes, *own)

    def take_written(self, name: str, key: Any) -> bool:
        """Whether a key of an exact state was written since the slice began, or since this was last asked."""
        return name in self._tables and self._written.take(self._tables[name], key)

    @property
    def unit(self) -> Unit:
        """What it runs."""
        return self._unit

    @property
    def turn(self) -> object:
        """Which event runs as Python, if one does."""
        return None if self._fallback is None else self._fallback.python.turn

    @property
    def state_bytes(self) -> int:
        """What the exact states take that need not be loaded whole. With windows they stay where they are."""
        if self._logs:
            return 0
        states = self._work.exact - self._unit.indexed.keys()
        mappable = {t.hash for n, t in self._tables.items() if n in states and t.can_be_mapped}
        return sum(table.nbytes for table in mappable) + self._interned.nbytes

    def hand_over(self) -> tuple[PassResult, InterpretedKernel]:
        """What was put out in the slice so far, and the kernel that goes on after it."""
        done = PassResult(self._done)
        if self._final:
            self._put_out(done)
        starts = {name: to_dict(self._spec.states[name], table) for name, table in self._starts.items()}
        own = self._program, self._work, self._tables, starts
        python = handed_over(*own, final=self._final, quarantine=self._quarantine)
        self._list_quarantined(done)
        python.collected.quarantined += done.quarantined
        return done, python

    def _list_quarantined(self, result: PassResult) -> None:
        result.quarantined = self._outputs.take_raised(self._interned)
        if self._fallback is not None:
            found = [*self._fallback.python.collected.quarantined, *result.quarantined]
            result.quarantined = sorted(found, key=lambda row: row[2])
        result.quarantined = self._taken.with_left_out(result.quarantined)

    def _put_out(self, result: PassResult) -> None:
        result.outputs = self._outputs.tables(self._interned)
        result.rejected = self._outputs.rejected(self._interned)
        if self._fallback is not None:
            result.join(*self._fallback.python.put_out())

    def collected(self) -> dict[str, NativeTable]:
        """The states of which it is asked what a slice did to them; one that no handler mentions is empty."""
        own = self._spec.states, self._tables, self._interned, self._asked
        return asked_tables(self._work, *own, final=self._final)

    def keep(self) -> None:
        """What was done on `live` states stays."""
        self._logs.keep()

    def forget_outputs(self) -> None:
        """What was put out so far is not asked for."""
        self._outputs = Outputs(self._unit)

    def feed(self, batch: Batch, tick: Tick, shown: Shown) -> None:
        """The next events. Raises Failed, TooOften, and where events are shared out Foreign."""
        self._passed += batch.passed
        self.through(batch, 0, batch.events, np.zeros(len(self._unit.events), np.int64), tick, shown)

    def through(self, batch: Batch, lo: int, end: int, position: Ints, tick: Tick, shown: Shown) -> None:
        """Steps lo to end of a batch, and the ticks that come before them or the one behind."""
        while self._ticks is not None and (at := self._ticks.place(batch)) is not None and at <= end:
            self._span(batch, lo, at, position, tick, shown)
            lo = max(lo, at)
            self.tick_until(batch, tick, at)
        self._span(batch, lo, end, position, tick, shown)

    def tick_until(self, batch: Batch | None, tick: Tick, at: int = 0) -> None:
        """The ticks before a step of a batch; without one all that are left."""
        if self._ticks is None:
            return
        for step in self._ticks.take(batch, at):
            self._outputs.keep()
            with self.guard:
                failure = self._python().tick(step)
                self._logs.keep()
            if failure is not None:
                raise Failed(-1, failure)
            tick(1)
            self._done += 1

    def _span(self, batch: Batch, lo: int, end: int, position: Ints, tick: Tick, shown: Shown) -> None:
        """Events lo to end of a batch. `position` counts the events of each type before `lo`, then before `end`."""
        most = self.tuning.piece_events if self._kept is None else self.tuning.watched_events
        while lo < end:
            hi = min(lo + most, end)
            if not self._reach.goes_on(hi - lo):
                self._hand_back(self._place(batch, lo, position)[2])
            if self._kept is not None:
                own = self._growth, self._most_rows, hi - lo, self._done, self.guard
                make_ready_beside(self._kept, *own, gradually=not self._logs.queued)
            with self.guard:
                at = self._some(batch, lo, hi, position, shown)
            tick(at - lo)
            lo = at

    def _some(self, batch: Batch, lo: int, hi: int, position: Ints, shown: Shown | None) -> int:
        """The same up to `hi` at most. Returns how far."""
        at, entries, why = left(self._call(batch, lo, hi, position))
        if why == SPENT:
            raise budget.Spent
        if why == ABROAD:
            raise Foreign
        if why == HOPELESS:
            raise Abandoned(NEAR_THE_END)
        full = self._outputs.full
        if why:
            batch.count_kinds(lo, at, position)
            self.take_back(batch, at, entries, position)
        self._outputs.keep()
        at = at if why else hi
        self._done += at - lo
        if why == LEAVE:
            self._as_python(batch, at, position, shown)
            self._done, at = self._done + 1, at + 1
        elif why:
            self._grow(why, entries, records=full)
        return at

    def do_part(
        self, batch: Batch, at: int, position: Ints, until: int, records: int, writes: int
    ) -> Within | None:
        """Do one event up to before the `until`-th of the events that it sends, or until after the one with which there are more than so many
        records, or writes; at most to its end. `take_back` undoes it. None: it cannot be left between them."""
        unit, room = self._unit, self._tick_room
        if not unit.sent or unit.rejects or unit.takes or self._logs:
            return None
        while True:
            room.paused[:4] = 1, until, records, writes
            _, entries, why = left(self._call(batch, at, at + 1, position.copy()))
            room.paused[0] = 0
            if why == PAUSED:
                return Within(unit, self._interned, room, self._tables, self._undo[:entries], self._outputs)
            full = self._outputs.full
            self.take_back(batch, at, entries, position)
            if not self._grow(why, entries, records=full):
                return None

    def _call(self, batch: Batch, lo: int, hi: int, position: Ints, again: int = 0) -> int:
        """Let the compiled function handle events lo to hi, or up to where it leaves. `again`: so many it may handle once more."""
        events = hi - lo + again
        unit, outputs, counts = self._unit, self._outputs, self._counts
        rest, pool = list[Any](), self._interned.buffers
        own = zip(self._hashes, self._growth, self._most_rows, strict=True)
        for index, (table, growth, (claims, finds)) in enumerate(own):
            more = claims if table.mapped is None else claims + finds
            growth.make_ready(table, more * events, self._done)
            counts[index] = table.rows
            rest += [table.slots, table.mask, table.description(*pool), table.base]
        now = self._time(batch, lo, position) if unit.windows else 0
        for name in unit.windows:
            rest += self._logs[name].ready(unit.pushes[name] * events, now)
        rest += self._tick_room.arguments(self._interned)
        rest += self._kept_arguments(events)
        rest += self._taken.arguments(events, self._may_take()) + self._params
        rest += outputs.buffers(events)
        head = [position, counts, outputs.used, self._undo, outputs.refused(events), self._rounds]
        status = self._function(batch.kinds, lo, hi, *head, *batch.arrays, *rest, *self._share)
        for table, rows in zip(self._hashes, counts.tolist(), strict=True):
            table.rows = rows
        self._taken.note()
        return status

    def _kept_arguments(self, events: int) -> list[Any]:
        """What the compiled function takes where it is asked what rows held before so many events."""
        return [] if self._kept is None else [self._kept.reserved(events)]

    def _may_take(self) -> int:
        """How many more events may be taken out of the slice."""
        python = 0 if self._fallback is None else len(self._fallback.python.collected.quarantined)
        return max(0, (self._quarantine or 0) - self._outputs.raised - python - self._taken.left_out)

    def _time(self, batch: Batch, at: int, position: Ints) -> int:
        """The time from which an event looks back."""
        kind = batch.kind_of(at)
        return int(batch.arrays[2 * kind][position[kind]]) - (kind in self._unit.ticking)

    def _place(self, batch: Batch, at: int, position: Ints) -> tuple[int, int, int]:
        """An event's type, its row there, its seq."""
        row = int(position[kind := batch.kind_of(at)])
        table = batch.chunk.tables[self._unit.table_of(kind)]
        return kind, row, table.column("seq")[row].as_py()

    def take_back(self, batch: Batch, at: int, entries: int, position: Ints) -> None:
        """Undo what the event that was left has written and put out."""
        undo(list(self._tables.values()), self._undo[:entries])
        self._logs.rewind()
        kind, row, seq = self._place(batch, at, position)
        self._outputs.take_back(seq, int(batch.arrays[2 * kind][row]))

    def _grow(self, why: int, entries: int, *, records: bool) -> bool:
        """Make room after one event of a loop needed more than there was; False: it was left for something else. `entries`: so many writes it
        had to keep; `records`: it put out too many. What is not full stays as it is: a loop may be long."""
        if why != ROOM:
            return self._tick_room.grow(why)
        if records:
            self._outputs.grow()
        elif entries >= len(self._undo):
            self._undo = np.zeros((2 * len(self._undo), self._undo.shape[1]), np.int64)
        elif not make_room(self._hashes):
            self._logs.grow()
        return True

    def _hand_back(self, seq: int) -> NoReturn:
        """From this event on everything runs as Python."""
        if self._logs or self._unit.steps:
            raise Abandoned("too many events of a program with windows or ticks leave the compiled function")
        raise TooOften(seq)

    def _python(self) -> Fallback:
        """What runs single steps as Python."""
        if self._fallback is None:
            self._fallback = Fallback(
                self._program, self._work, self._unit, self._tables, self._logs, self._members, self._tick_room,
                final=self._final, quarantine=self._quarantine, gone=self._gone, begin=self._taken.begins,
            )  # fmt: skip
        return self._fallback

    def _as_python(self, batch: Batch, at: int, position: Ints, shown: Shown | None) -> None:
        """Run one event as Python on the tables."""
        kind, row, seq = self._place(batch, at, position)
        self.left += 1
        since, self._spent_at = self._done - self._spent_at, self._done + 1
        if not self.credit.spend(since):
            self._hand_back(seq)
        fallback = self._python()
        fallback.python.collected.quarantined += self._outputs.take_raised(self._interned)
        try:
            failure = fallback.one(batch.chunk, kind, row, None if shown is None else lambda: shown(seq))
        except Foreign as foreign:
            if not self._logs:
                raise
            raise Abandoned(NEAR_THE_END) from foreign
        self._logs.keep()
        if failure is not None:
            raise Failed(-1 if fallback.python.derived.current is not None else max(seq, -1), failure)
        self._outputs.keep_reads(fallback.python.collected.take_reads(), self._interned)
        position[kind] += 1
