"""The kernel that runs handlers as Python, rewritten."""

from __future__ import annotations

import inspect
import operator
import types
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from timelapse.analysis.result import PassProgram
from timelapse.ids import Phase
from timelapse.kernels.base import PassResult, Tick, output_schema
from timelapse.kernels.flat import loop
from timelapse.kernels.flat.functions import Pass
from timelapse.kernels.flat.infer import MISSING
from timelapse.kernels.flat.rewrite import handler
from timelapse.kernels.flat.states import PLAIN, TRACKED, StateCode
from timelapse.kernels.flat.types import GUARD_NAMES
from timelapse.kernels.interpreted import InterpretedKernel, not_a_record
from timelapse.kernels.source import Source
from timelapse.kinds.base import ABSENT, UNKEYED
from timelapse.kinds.effects import Journal, undo
from timelapse.kinds.grouped import Grouped
from timelapse.log.reader import Chunk
from timelapse.model.events import Event, Record
from timelapse.model.program import RUNTIME_NAMES, Program, Rejection, params_of
from timelapse.model.types import FLOAT
from timelapse.tables.lookup import LazyDict


class FlatKernel(InterpretedKernel):
    """Runs a pass's handlers, rewritten over plain dicts and columns (rewrite.py), on the stores of InterpretedKernel.

    Whatever InterpretedKernel does with single events works here too, at the same moment in the same slice.
    """

    def __init__(
        self, program: Program, work: PassProgram, starts: Mapping[str, dict[Any, Any]], *, final: bool,
        quarantine: bool = False, live: Callable[[str, Journal | None], Any] = lambda name, journal: None,
        journal: Journal | None = None,
    ) -> None:  # fmt: skip
        super().__init__(
            program, work, starts, final=final, quarantine=quarantine, live=live, journal=journal
        )
        self._dicts = {name: store.data for name, store in self._stores.items()}
        self._kinds: dict[int, str] = {}
        """The event types of handlers' code objects, by id: those of two types may be equal. "" for handlers that stayed as they are."""
        self._lists: dict[type[Record], list[tuple[Any, ...]]] = {}
        self._cells: dict[str, types.CellType] = {
            n: types.CellType(0) for n in ("_tl_ts", "_tl_seq", "_tl_n")
        }
        self._loops: dict[frozenset[str], Loop] = {}
        self._copies: dict[str, dict[Any, Any]] = {}
        """What states held at the slice's start, where changes are found by comparing."""
        self._resumed = False
        self._position: Any = iter(())

    @property
    def turn(self) -> object:
        """What the loop over events is at: which chunk, and how far in it."""
        if not self._turn % 2:
            return None
        return (self._turn, operator.length_hint(self._position), self._bound.__dict__["now"])

    def begin(self) -> None:
        super().begin()
        self._lists = {}
        self._copies = {}
        self._resumed = False

    def resume(self, name: str, before: dict[Any, Any]) -> None:
        super().resume(name, before)
        self._resumed = True

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
        self._copies = {name: dict(self._dicts[name]) for name in compared}
        live = self._bound.__dict__
        emit = live["emit"]
        if self._final:
            live["emit"] = self._put
        found.begin(self)
        try:
            for chunk in source.chunks():
                if not self._chunk_of(found, chunk, source, result, tick):
                    return result
        finally:
            live["emit"] = emit
        self._compare()
        self._finish(result)
        return result

    def _compared(self, source: Source) -> frozenset[str]:
        """Tracked states that are copied now and compared at the end, which is cheaper than keeping track.

        A copy takes as long as a few writes per hundred keys; a state that is larger than the slice is left alone.
        """
        if self._resumed:
            return frozenset()
        events = source.hi - source.lo
        return frozenset(
            name for name, store in self._tracked.items()
            if not isinstance(store.data, LazyDict) and len(store.data) <= events
        )  # fmt: skip

    def _compare(self) -> None:
        for name, was in self._copies.items():
            data = self._dicts[name]
            if not was:
                before = dict.fromkeys(data, ABSENT)
            else:
                old = was.get
                before = {k: old(k, ABSENT) for k, v in data.items() if old(k, ABSENT) is not v}
                before.update((k, v) for k, v in was.items() if k not in data)
            self._tracked[name].before = before
        self._copies = {}

    def _chunk_of(self, run: Loop, chunk: Chunk, source: Source, result: PassResult, tick: Tick) -> bool:
        """Process a chunk. False after a failure, which is in the result then."""
        rows = loop.rows(run.turns, chunk, single=run.single)
        if rows is None:
            return True
        self._position = rows.position
        done = 0
        while True:
            self._turn += 1
            failure: Exception | None = None
            try:
                run.function(*rows.arguments)
            except Rejection as refusal:
                self._reject(refusal, source)
            except Exception as error:
                trace = error.__traceback__
                failure = error.with_traceback(None if trace is None else trace.tb_next)
            finally:
                self._turn += 1
            at = rows.count - operator.length_hint(rows.position)
            result.events += at - done
            tick(at - done)
            done = at
            if failure is not None:
                seq = self._cells["_tl_seq"].cell_contents
                event = source.event(seq)
                if not self._take_out(event, failure):
                    result.failure = self._failed(event, failure)
                    result.failed_seq = seq if self._current is None else -1
                    return False
                self._take_back(seq)
            if done == rows.count:
                return True

    def _reject(self, refusal: Rejection, source: Source) -> None:
        """Undo the event under way and note why."""
        if self._journal is None or not self._work.rejects:
            raise RuntimeError("an event was rejected in a pass that rejects none") from refusal
        undo(self._journal)
        self._settle()
        ts, seq = (self._cells[n].cell_contents for n in ("_tl_ts", "_tl_seq"))
        self._take_back(seq)
        if refusal.record is not None and self._final:
            self._put(refusal.record)
        trace = refusal.__traceback__
        while trace is not None and trace.tb_frame.f_code not in self._names:
            trace = trace.tb_next
        kind = "" if trace is None else self._kinds.get(id(trace.tb_frame.f_code), "")
        name = self._handler_of(refusal.__traceback__)
        kind = kind or type(source.event(seq)).__name__
        self._refused.append((ts, Phase.LOG_EVENT, seq, kind, name, refusal.reason))

    def _take_back(self, seq: int) -> None:
        """Take back what an event has put out."""
        for rows in self._lists.values():
            while rows and rows[-1][2] == seq:
                rows.pop()
        self._cells["_tl_n"].cell_contents = 0

    def _put(self, record: Record) -> None:
        """Put out a record at the event under way."""
        if not isinstance(record, Record):
            raise not_a_record(record)
        if record.__reads__:
            self._reads.setdefault(type(record), []).append(record)
            return
        ts, seq, n = (self._cells[name].cell_contents for name in ("_tl_ts", "_tl_seq", "_tl_n"))
        row = (ts, Phase.LOG_EVENT, seq, n, *tuple.__iter__(record))
        self._lists.setdefault(type(record), []).append(row)
        self._cells["_tl_n"].cell_contents = n + 1

    def put_out(self) -> tuple[dict[type[Record], pa.Table], pa.Table]:
        outputs, rejected = super().put_out()
        for cls, rows in self._lists.items():
            if not rows:
                continue
            schema = output_schema(cls)
            columns = zip(*rows, strict=True)
            made = pa.table(
                [pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema=schema
            )
            if cls in outputs and not cls.__reads__:
                result = PassResult(outputs={cls: outputs[cls]})
                result.join({cls: made}, None)
                made = result.outputs[cls]
            outputs[cls] = made
        return outputs, rejected


class Loop:
    """A pass's functions, for one choice of states whose changes are found by comparing."""

    def __init__(self, kernel: FlatKernel, compared: frozenset[str]) -> None:
        program, work, spec = kernel._program, kernel._work, kernel._spec
        self._kernel = kernel
        tracked = kernel._tracked.keys() - compared
        codes = {
            name: StateCode(
                spec.states[name], TRACKED if name in tracked else PLAIN, kernel._journal is not None
            )
            for name in kernel._dicts
        }
        cls = type(program)

        def member(name: str) -> Any:
            if name in RUNTIME_NAMES:
                return MISSING
            return work.members.get(name, inspect.getattr_static(cls, name, MISSING))

        indexed = frozenset(
            name for name, data in kernel._dicts.items()
            if issubclass(spec.states[name].kind, Grouped) and not isinstance(data, LazyDict)
        )  # fmt: skip
        self._pass = Pass(codes, params_of(program), member, cls.__mro__, indexed, kernel._final)
        self._own: dict[str, types.CellType] = {}
        turns: dict[type[Event], tuple[list[str], list[str], bool]] = {}
        self._functions: dict[str, Any] = {}
        kept = False
        for number, spec_ in enumerate(work.handlers):
            for place, event in enumerate(spec_.events):
                calls, fields, whole = turns.setdefault(event, ([], [], False))
                name = f"_tl_h_{number}_{place}"
                made = handler(self._pass, spec_.function, event)
                if made is None:
                    kept = True
                    self._functions[name] = spec_.function
                    kernel._kinds[id(spec_.function.__code__)] = ""
                    calls.append(f"{name}(_tl_self, event)")
                    whole = True
                else:
                    self._functions[name] = made
                    kernel._names[made.code] = spec_.name
                    kernel._kinds[id(made.code)] = event.__name__
                    arguments = [f"_tl_f_{f}" for f in made.fields] + (["event"] if made.event else [])
                    calls.append(f"{name}({', '.join(arguments)})")
                    fields += made.fields
                    whole = whole or made.event
                turns[event] = (calls, fields, whole)
        self.turns = []
        for event, (calls, fields, whole) in turns.items():
            used = (
                work.columns[event.__name__]
                if whole
                else [f.name for f in event.__fields__ if f.name in fields]
            )
            self.turns.append(loop.Turn(event, tuple(used), whole, tuple(calls)))
        if not self.turns:
            self.function: Callable[..., None] = lambda rows: None
            self.single = True
            return
        free = {
            n
            for made in (*self._functions.values(), *self._pass.made.values())
            for n in getattr(made, "free", ())
        }
        clocks = {f"_tl_S_{n}" for n in codes if spec.states[n].kind.uses_now}
        now = kept or "_tl_self" in free or bool(free & clocks) or bool(self._pass.kept)
        code, self.single = loop.write(self.turns, now=now, journal=kernel._journal is not None, count=True)
        self.function = loop.bound(code, self._cell)

    def begin(self, kernel: FlatKernel) -> None:
        """What names stand for in the slice that begins."""
        for name, cell in self._own.items():
            what, _, state = name.removeprefix("_tl_").partition("_")
            if what == "b" and state in kernel._tracked:
                cell.cell_contents = kernel._tracked[state].before
            elif what == "r":
                rows = kernel._lists.setdefault(self._pass.records[int(state)], [])
                cell.cell_contents = rows.append
            elif what == "i":
                cell.cell_contents = kernel.states[state]._groups()
        if kernel._journal is not None:
            kernel._journal.clear()

    def _cell(self, name: str) -> types.CellType:
        """What a name of generated code stands for."""
        found = self._kernel._cells.get(name) or self._own.get(name)
        if found is None:
            found = self._own[name] = types.CellType(None)
            found.cell_contents = self._value(name)
        return found

    def _value(self, name: str) -> Any:
        kernel = self._kernel
        if name in GUARD_NAMES:
            return GUARD_NAMES[name]
        if name in self._functions:
            made = self._functions[name]
            return made.bind(self._cell) if hasattr(made, "bind") else made
        if name in self._pass.made:
            return self._pass.made[name].bind(self._cell)
        if name in self._pass.kept:
            return types.MethodType(self._pass.kept[name], kernel._bound)
        fixed = {
            "_tl_self": kernel._bound, "_tl_live": kernel._bound.__dict__, "_tl_A": ABSENT, "_tl_u": UNKEYED,
            "_tl_derived": kernel._derived, "_tl_next": kernel._next, "_tl_types": kernel._by_type,
            "_tl_settle": kernel._settle,
            "_tl_phase": Phase.LOG_EVENT, "_tl_emit": kernel._put, "_tl_journal": kernel._journal,
        }  # fmt: skip
        if name in fixed:
            return fixed[name]
        what, _, of = name.removeprefix("_tl_").partition("_")
        if name == "_tl_j":
            assert kernel._journal is not None
            return kernel._journal.append
        if what == "make":
            return self.turns[int(of)].event._raw_maker()
        if what == "p":
            return self._pass.params[of]
        if what in ("r", "i", "b"):
            return None  # known when a slice begins
        state = kernel.states[of]
        known: dict[str, Callable[[], Any]] = {
            "d": lambda: kernel._dicts[of], "g": lambda: kernel._dicts[of].get, "S": lambda: state,
            "C": lambda: state._check_key, "V": lambda: state._check_value, "D": lambda: state._default,
            "o": lambda: state._own, "F": lambda: FLOAT.checker(f"a value of {of}"),
        }  # fmt: skip
        return known[what]()
