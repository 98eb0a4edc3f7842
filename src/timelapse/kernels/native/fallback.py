"""Events that only Python can handle: run one by one on a compiled pass's tables, or all from there on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from timelapse.analysis.result import ByKey, PassProgram
from timelapse.errors import HandlerError
from timelapse.ids import Phase
from timelapse.kernels.native.looking import Views
from timelapse.kernels.native.lowering.unit import Unit
from timelapse.kernels.native.memory.effectlog import NativeLog
from timelapse.kernels.native.memory.members import Members
from timelapse.kernels.native.memory.table import NativeTable
from timelapse.kernels.native.ticks import TickRoom
from timelapse.kernels.native.views import Turn, fill, live_state
from timelapse.kernels.python.interpreted import InterpretedKernel
from timelapse.kernels.python.steps import Step, SteppingKernel
from timelapse.kinds.effects import Journal
from timelapse.model.events import Event
from timelapse.program.program import Program
from timelapse.segments.reader import Chunk
from timelapse.segments.rows import row_maker

SHARE = 64
"""One event in so many may run as Python without the rest of the slice doing so too."""


class Credit:
    """Tells when single events run as Python so often that a plain loop is faster: `burst` of them one after the other."""

    def __init__(self, burst: float) -> None:
        self._left = self._burst = burst

    def refill(self) -> None:
        """As at the beginning."""
        self._left = self._burst

    def spend(self, events: int) -> bool:
        """One more event runs as Python, after so many compiled ones. False: there are too many."""
        self._left = min(self._burst, self._left + events / SHARE) - 1
        return self._left > 0


class Fallback:
    """Runs single events of a pass as Python, on the tables of the compiled pass."""

    def __init__(
        self,
        program: Program,
        work: PassProgram,
        unit: Unit,
        tables: Mapping[str, NativeTable],
        logs: Mapping[str, NativeLog],
        members: Mapping[str, Members],
        ticks: TickRoom,
        *,
        final: bool,
        quarantine: int | None,
        gone: set[int],
        begin: int | None,
    ) -> None:
        self._unit, self._work, self._program = unit, work, program
        self._keys = work.by_key if unit.shared else None
        turn = self._turn = Turn()
        self._logs, self._ticks = logs, ticks
        self._views = Views(tables, logs)

        def live(name: str, journal: Journal | None) -> Any:
            table = tables.get(name)
            if table is None:
                return None
            if name in logs:
                return self._views.live(name, journal)
            if self._keys is None:
                counts = tables.get(unit.counted.get(name, ""))
                return live_state(table, journal, counts=counts, members=members.get(name))
            return live_state(table, journal, turn, self._keys.states[name])

        self._steps: SteppingKernel | None = None
        if unit.steps:
            self.python: InterpretedKernel = SteppingKernel(
                program, work, {}, final=final, live=live, quarantine=quarantine, gone=gone
            )
            self._steps = self.python
            self._steps.log_begins = begin
        else:
            self.python = InterpretedKernel(program, work, {}, final=final, quarantine=quarantine, live=live)
        self._makers: dict[type[Event], Any] = {}

    def one(
        self, chunk: Chunk, kind: int, row: int, shown: Callable[[], Event] | None
    ) -> HandlerError | None:
        """Process one event, by its row in its table; the failure, if it fails and stays in the log. `shown`: see InterpretedKernel.one."""
        ticking = self._unit.ticking.get(kind)
        if ticking is not None:
            ts = chunk.tables[self._unit.table_of(kind)].column("ts")[row].as_py()
            return self.tick(Step(ts, Phase.TICK, -1, (ticking.place,), None))
        event = self._event(chunk, kind, row)
        later = self._unit.later.get(kind)
        ts = event.ts if later is None else event.ts + later.lag
        if self._logs:
            self._views.begin(ts)
        if self._steps is None:
            return self.python.one(event, shown)
        phase, order = (Phase.LOG_EVENT, ()) if later is None else (Phase.DATED_EVENT, (later.place,))
        return self._steps.one_step(Step(ts, phase, event.seq, order, event), shown)

    def look_from(self, ts: int, *, tick: bool = False) -> None:
        """Views are asked for an event at this time, or for a tick."""
        self._views.begin(ts, tick=tick)

    def viewed(self, name: str, journal: Journal | None) -> Any:
        """A state with views, as handlers use it."""
        return self._views.live(name, journal)

    def tick(self, step: Step) -> HandlerError | None:
        """Process a tick: it sees what was there before its time."""
        assert self._steps is not None
        if self._logs:
            self._views.begin(step.ts, tick=True)
        self._steps.numbered = (step.ts, Phase.TICK, -1), self._ticks.records(step.ts)
        failure = self._steps.one_step(step, _nothing)
        self._ticks.put_out(step.ts, self._steps.numbered[1])
        return failure

    def _event(self, chunk: Chunk, kind: int, row: int) -> Event:
        cls = self._unit.events[kind]
        maker = self._makers.get(cls)
        if maker is None:
            maker = self._makers[cls] = row_maker(cls, self._work.columns[cls.__name__])
        (event,) = maker(chunk.tables[self._unit.table_of(kind)].slice(row, 1))
        found: Event = event
        if self._keys is not None:
            self._turn.key = self._key(self._keys, found)
        return found

    def _key(self, keys: ByKey, event: Event) -> Any:
        key = keys.keys.get(type(event).__name__)
        try:
            return object() if key is None else key.function(self._program, event)
        except Exception:  # then no use of a state is under it
            return object()


def _nothing() -> Event:
    raise LookupError("a tick has no event")


def handed_over(
    program: Program, work: PassProgram, tables: Mapping[str, NativeTable], starts: Mapping[str, dict[Any, Any]],
    *, final: bool, quarantine: int | None,
) -> InterpretedKernel:  # fmt: skip
    """An interpreted kernel in the middle of a slice, with what a compiled one has done so far.

    `starts`: the values of exact states that the compiled pass has no table for.
    """
    values = {name: t.present() for name, t in tables.items() if name in work.exact}
    python = InterpretedKernel(program, work, {**starts, **values}, final=final, quarantine=quarantine)
    python.begin()
    for name, table in tables.items():
        if name in work.exact:
            python.held.resume(name, table.before() if table.layout.tracked else {})
        elif name in work.delta:
            fill(python.held.deltas[name], table)
    return python


def let_go(kernel: Any) -> None:
    """Have a compiled kernel let go of its tables. What runs as Python on them holds them, and itself. (Threads end with each slice.)"""
    if fallback := vars(kernel).get("_fallback"):
        fallback.python.close()
    vars(kernel).clear()
