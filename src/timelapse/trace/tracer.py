"""Does single events of a run under observation, and puts together what they have told."""

from __future__ import annotations

import ast
import inspect
import types
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from timelapse.analysis import analyse, final_pass
from timelapse.analysis.result import PassProgram
from timelapse.code.source import function_source
from timelapse.errors import ReplayError, TimelapseError
from timelapse.ids import Phase
from timelapse.kernels.base import REJECTED_SCHEMA
from timelapse.kernels.python.derived import Derived
from timelapse.kernels.python.interpreted import InterpretedKernel
from timelapse.kernels.python.steps import Step as KernelStep
from timelapse.kernels.python.steps import SteppingKernel
from timelapse.kernels.walk import Moment
from timelapse.kinds.effects import Journal, undo
from timelapse.model.events import Event, Record
from timelapse.program.program import HandlerSpec, Program, params_of, runtime, spec_of
from timelapse.program.times import VIEWS
from timelapse.results.stored import StoredRun
from timelapse.serial import SerialOutcome
from timelapse.tables.rowhash import alike
from timelapse.trace import timed
from timelapse.trace.inside import Inside
from timelapse.trace.instrument import Sites, instrumented
from timelapse.trace.questions import Found
from timelapse.trace.recorder import MOST_CALLS, Recorder
from timelapse.trace.steps import EventTrace, HandlerTrace, Read
from timelapse.trace.views import Chosen, Telling, View

if TYPE_CHECKING:
    from timelapse.kernels.native.kernel import NativeKernel


_MANY_ROWS, _FEW_STEPS = 200_000, 8
"""Of a record type with more rows than the first, only the rows at a step's time are read, for as many steps as the second says. After that all
rows are read, once."""


class Tracer:
    """Does single events of a run under observation."""

    def __init__(self, run: StoredRun, about: Found | None = None) -> None:
        """`about`: the record that is asked about, if it is one."""
        self._run = run
        self._program = run.need_program()
        self._quarantine = run.manifest.quarantined
        self._spec = spec_of(self._program)
        work = final_pass(analyse(self._program))
        objects = [n for n, s in self._spec.states.items() if s.key is not None or not s.kind.attribute_style]
        plain = [n for n in self._spec.states if n not in objects]
        methods = _methods(type(self._program))
        self.emitting = _emitting(methods)
        """The names of handlers and other methods that may emit."""
        looked = {use.state for use in self._spec.times if use.what in VIEWS}
        self._sites = Sites(objects, plain, self.emitting, looked)
        called = methods.keys() - self._spec.states.keys() - params_of(self._program).keys()
        emits = {h.name: _emits_at_most(h.function, called) for h in self._spec.handlers}
        self._recorder = Recorder(self._sites, {n: most for n, most in emits.items() if most is not None})
        self._work = self._rewritten(work, methods)
        self._stored: dict[str, pa.Table] = {}
        self._asked: dict[str, int] = {}
        self._about = about

    def _record_of(self, root: int, phase: int, ts: int, first: int) -> int | None:
        """The place, among the records of a step, of the record that is asked about; None: it is none of them. `first`: the ordinal of the first of them."""
        about = self._about
        if about is None or about.ordinal is None or about.ordinal < first:
            return None
        own = (about.seq, *(about.dated or (ts, Phase.LOG_EVENT)))
        return about.ordinal - first if own == (root, ts, phase) else None

    def trace(self, event: Event, moment: Moment, slice_id: int) -> tuple[EventTrace, bool]:
        """Do the event at this moment. Also returns whether its writes are real. If not, the compiled pass does the event: of many calls most
        need not run as Python."""
        found = self._inside(event, moment, slice_id)
        return (self._whole(event, moment, slice_id), True) if found is None else (found, False)

    def _inside(self, event: Event, moment: Moment, slice_id: int) -> EventTrace | None:
        """The same where one call is told of an event that sends many others. None: it has to run as Python."""
        record = self._record_of(event.seq, Phase.LOG_EVENT, event.ts, 0)
        if record is None or moment.native is None:
            return None
        inside = Inside(moment.native, event, record)
        own = [h.events for h in self._work.handlers]
        calls = inside.calls({cls: sum(cls in events for events in own) for events in own for cls in events})
        if calls <= MOST_CALLS:
            return None
        told = self._recorder

        def live(name: str, journal: Journal | None) -> Any:
            return told.watch(self._spec.states[name], moment.live(name, journal))

        def one(place: int) -> list[Record]:
            """Do a call on its own, of which nothing is left."""
            with inside.before(place) as (given, records):
                told.go_on(records)
                journal: Journal = _Noted()
                kernel = _Kernel(self._program, self._work, live, told, journal, quarantine=None)
                kernel.derived = _Unheard(self._spec)
                try:
                    failure = kernel.one(given, None)
                finally:
                    told.leave()
                    undo([*journal])
            if failure is not None:
                raise ReplayError(
                    "a handler failed where it did not fail before", hint=str(failure), code="TL607"
                )
            return kernel.records

        told.clear(record, MOST_CALLS)
        at = inside.place()
        if at is None:
            raise self._differs(event.seq, str(self._about and self._about.record))
        one(at)
        reads = [s for s in told.steps if isinstance(s, Read)]
        writing = inside.writing(at, {(read.state, read.key) for read in reads if not read.every})
        if writing is None:
            return None
        told.clear(record, MOST_CALLS)
        for place in (*writing, at):
            one(place)
        none = REJECTED_SCHEMA.empty_table()
        found = self._told(event, inside.outputs, none, inside.records(), [], slice_id)
        return replace(found, calls=calls)

    def _whole(self, event: Event, moment: Moment, slice_id: int) -> EventTrace:
        told, views, shown = self._recorder, dict[str, View](), Chosen()
        told.clear(self._record_of(event.seq, Phase.LOG_EVENT, event.ts, 0))
        moment.look_from(event.ts)

        def live(name: str, journal: Journal | None) -> Any:
            state = moment.live(name, journal)
            if state._clock is not None:
                state._clock = Telling(state, told.watch, views, shown)
            return told.watch(self._spec.states[name], state)

        kernel = _Kernel(self._program, self._work, live, told, moment.journal, quarantine=self._quarantine)
        try:
            failure = kernel.one(event, lambda: event)
        finally:
            told.leave()
        if failure is not None:
            raise ReplayError(
                "a handler failed where it did not fail before", hint=str(failure), code="TL607"
            )
        outputs, rejected = kernel.put_out()
        taken_out = kernel.collected.quarantined
        found = self._told(event, outputs, rejected, kernel.records, taken_out, slice_id)
        return replace(found, views=views, shown=shown)

    def trace_step(
        self, step: timed.Step, place: int | None, given: Event | None, native: NativeKernel
    ) -> tuple[EventTrace, int]:
        """Do a step on the states of a kernel that has done everything before it; and the ordinal of the next record there.

        `place`: that of the step's handler; None: those that the log's events call. `given`: the event that these are given; None: a
        tick. Its writes are real.
        """
        told, views, shown = self._recorder, dict[str, View](), Chosen()
        in_tick = step.phase == Phase.TICK
        told.clear(self._record_of(step.root, step.phase, step.ts, step.ordinal))
        native.look_from(step.ts, tick=in_tick)

        def live(name: str, journal: Journal | None) -> Any:
            state = native.live(name, journal)
            if state._clock is not None:
                state._clock = Telling(state, told.watch, views, shown, in_tick=in_tick)
            return told.watch(self._spec.states[name], state)

        kernel = _StepKernel(self._program, self._work, live, told)
        kernel.numbered = (step.ts, step.phase, step.root), step.ordinal
        order = () if place is None else (place,)
        try:
            failure = kernel.one_step(
                KernelStep(step.ts, step.phase, step.root, order, given), lambda: step.event
            )
        finally:
            told.leave()
        if failure is not None:
            raise ReplayError(
                "a handler failed where it did not fail before", hint=str(failure), code="TL607"
            )
        outputs, rejected = kernel.put_out()
        found = self._told(step.event, outputs, rejected, kernel.records, [], 0, step)
        return replace(found, views=views, shown=shown), kernel.numbered[1]

    def observed(self, watched: timed.Watched, step: timed.Step, go: timed.Go) -> EventTrace:
        """Do a step of the serial loop under observation: `go` does it with given handlers. It leaves the loop as it was."""
        from timelapse.results.serial_tables import output_tables, rejected_table

        told, loop = self._recorder, watched.loop
        bound, before = loop.bound, loop.outcome
        told.clear(self._record_of(step.root, step.phase, step.ts, step.ordinal))
        for name, state in loop.states.items():
            told.watch(self._spec.states[name], state)
        kept, emit = loop.handlers, bound.__dict__["emit"]
        rewritten = {h.name: h.function for h in self._work.handlers}

        def ours(found: tuple[HandlerSpec, ...]) -> tuple[HandlerSpec, ...]:
            return tuple(replace(h, function=rewritten[h.name]) for h in found)

        loop.handlers = {t: ours(found) for t, found in kept.items()}
        own = {n: m for n, m in self._work.members.items() if n not in vars(type(bound))}
        for name, member in own.items():
            type.__setattr__(type(bound), name, member)

        def telling(record: Record) -> None:
            emit(record)
            told.emitted(record)

        bound.__dict__["emit"] = telling
        loop.outcome, watched.watch = SerialOutcome(states=before.states), told.watch
        try:
            go(ours(step.handlers))
            done = loop.outcome
        finally:
            loop.handlers, loop.outcome, watched.watch, bound.__dict__["emit"] = kept, before, None, emit
            for name in own:
                type.__delattr__(type(bound), name)
            told.leave()
        tables = output_tables(done)
        outputs = {type(o.record): tables[type(o.record).__name__] for o in done.outputs}
        records = [o.record for o in done.outputs]
        found = self._told(step.event, outputs, rejected_table(done), records, [], 0, step)
        return replace(found, views=dict(watched.views), shown=dict(watched.shown))

    def _told(
        self, event: Event, outputs: Mapping[type[Record], pa.Table], rejected: pa.Table, records: list[Record],
        taken_out: Sequence[Any], slice_id: int, step: timed.Step | None = None,
    ) -> EventTrace:  # fmt: skip
        """What the recorder has, put together. What the event put out must be what the run has put out."""
        told = self._recorder
        if step is None or step.phase == Phase.LOG_EVENT:
            self._compare(event, outputs, rejected)
        else:
            self._compare_dated(step, outputs, rejected)
        handlers = self._spec.handlers_of(type(event)) if step is None else step.handlers
        refusal = None
        if rejected.num_rows:
            row = rejected.to_pylist()[0]
            refusal = (row["handler"], row["reason"], told.line)
        # No handler may have begun: an event may only have handlers with after=, which come later.
        ends = [*(start for _, start in told.starts[1:]), len(told.steps)][: len(told.starts)]
        places = {h.name: h for h in self._spec.handlers}
        called = {name for name, _ in told.starts}
        known = {name: function_source(places[name].function).node is not None for name in called}
        traced = [
            HandlerTrace(
                name, places[name].place.line or 0, tuple(told.steps[start:end]), known[name],
                {at: (false, true) for at, (false, true) in rounds.items()},
            )
            for (name, start), end, rounds in zip(told.starts, ends, told.rounds, strict=True)
        ]  # fmt: skip
        file = handlers[0].place.file if handlers else None
        return EventTrace(
            event, file, tuple(traced), tuple(records), refusal, told.cut, slice_id, params_of(self._program),
            self._taken_out(event.seq) if taken_out else None, Phase.LOG_EVENT if step is None else step.phase,
            told.summed_calls,
        )  # fmt: skip

    def _taken_out(self, seq: int) -> tuple[str, str, int]:
        """What the run lists of an event that it took out: lines of the handlers as they are written."""
        stored = self._run.stored_quarantined()
        rows = stored.filter(pc.equal(stored["seq"], seq)).to_pylist()
        if not rows:
            raise self._differs(seq, "it raises")
        return rows[0]["handler"], rows[0]["error"], rows[0]["line"] or 0

    def _rewritten(self, work: PassProgram, methods: Mapping[str, Any]) -> PassProgram:
        told = self._recorder
        names = {h.name for h in self._spec.handlers}
        members: dict[str, Any] = dict(work.members)
        for name, member in methods.items():
            if name in names or name in members:
                continue
            if isinstance(member, types.FunctionType):
                members[name] = instrumented(member, self._sites, told)
            elif isinstance(member, property) and isinstance(member.fget, types.FunctionType):
                members[name] = property(instrumented(member.fget, self._sites, told))
            elif isinstance(member, staticmethod) and isinstance(member.__func__, types.FunctionType):
                members[name] = staticmethod(instrumented(member.__func__, self._sites, told, method=False))
        handlers = []
        for h in work.handlers:
            function = instrumented(h.function, self._sites, told)
            handlers.append(replace(h, function=_entering(function, h.name, told)))
            members.setdefault(h.name, function)  # handlers may call one another
        return replace(work, handlers=tuple(handlers), members=members)

    def _compare(self, event: Event, outputs: Mapping[type[Record], pa.Table], rejected: pa.Table) -> None:
        """What the traced event put out must be what the run put out there."""
        seq, place = event.seq, (event.ts, int(Phase.LOG_EVENT), event.seq)
        mine = {cls.__name__: table for cls, table in outputs.items()}
        for name in self._run.counts:
            stored = self._rows(name, *place)
            own = mine.pop(name, stored.slice(0, 0))
            if not _same(own, stored):
                raise self._differs(seq, name)
        if any(table.num_rows for table in mine.values()):
            raise self._differs(seq, next(iter(mine)))
        if not _same(rejected, self._rows("", *place)):
            raise self._differs(seq, "rejections")

    def _compare_dated(
        self, step: timed.Step, outputs: Mapping[type[Record], pa.Table], rejected: pa.Table
    ) -> None:
        """The same for a step that shares its place with others: ticks, and what stems from one event at one time."""
        stored: dict[str, pa.Table] = {cls.__name__: table for cls, table in outputs.items()}
        for name, own in (*stored.items(), ("", rejected)):
            if own.num_rows and (name == "" or name in self._run.counts):
                found = self._rows(name, step.ts, int(step.phase), step.root)
                if name:
                    found = found.filter(
                        pc.is_in(found["ordinal"], value_set=own["ordinal"].combine_chunks())
                    )
                elif found.num_rows > 1:
                    found = found.filter(pc.equal(found["handler"], own["handler"][0])).slice(0, 1)
                if not _same(own, found):
                    raise self._differs(step.root, name or "rejections")
            elif own.num_rows:
                raise self._differs(step.root, name)

    def _rows(self, name: str, ts: int, phase: int, root: int) -> pa.Table:
        """Stored rows of a step; of rejections with an empty name. Of many rows little is read, unless many steps are asked about."""
        if name not in self._stored:
            count = self._run.counts[name] if name else self._run.rejected_count
            self._asked[name] = self._asked.get(name, 0) + 1
            if count > _MANY_ROWS and self._asked[name] <= _FEW_STEPS:
                table = self._run.stored(name, at=ts) if name else self._run.stored_rejected(at=ts)
                return _of_step(table, ts, phase, root)
            self._stored[name] = self._run.stored(name) if name else self._run.stored_rejected()
        return _of_step(self._stored[name], ts, phase, root)

    @staticmethod
    def _differs(seq: int, what: str) -> TimelapseError:
        return ReplayError(
            f"event {seq}, done again, does not put out what the run did ({what})", code="TL608",
            hint="this is a bug in Timelapse, or the program depends on something outside: `timelapse verify` tells",
        )  # fmt: skip


class _Telling(InterpretedKernel):
    """Tells what it emits."""

    _told: Recorder

    @runtime("emit")
    def emit(self, record: Record) -> None:
        super().emit(record)
        self._told.emitted(record)

    @property
    def records(self) -> list[Record]:
        """What was put out, in order."""
        return _in_order(self.collected.rows)


class _Kernel(_Telling):
    """Handlers as Python, on somebody else's states."""

    def __init__(
        self, program: Program, work: PassProgram, live: Callable[[str, Journal | None], Any], told: Recorder,
        journal: Journal | None, *, quarantine: int | None,
    ) -> None:  # fmt: skip
        self._told = told
        super().__init__(program, work, {}, final=True, quarantine=quarantine, live=live, journal=journal)


class _Unheard(Derived):
    """What is sent is not done."""

    def add(self, event: Event) -> None:
        """It is forgotten."""


class _Noted(list[tuple[Any, Any, Any]]):
    """A journal that outlives its event."""

    def clear(self) -> None:
        """It is kept."""


class _StepKernel(_Telling, SteppingKernel):
    """The same for steps of programs with ticks or `after=`."""

    def __init__(
        self, program: Program, work: PassProgram, live: Callable[[str, Journal | None], Any], told: Recorder
    ) -> None:
        self._told = told
        super().__init__(program, work, {}, final=True, live=live)


def _in_order(found: Mapping[type[Record], Sequence[Any]]) -> list[Record]:
    """Records in the order in which they were put out."""
    rows = [(row[3], row[4]) for own in found.values() for row in own]
    return [record for _, record in sorted(rows, key=lambda r: r[0])]


def _entering(function: types.FunctionType, name: str, told: Recorder) -> Any:
    """The handler, told when it begins."""

    def handler(self: Any, *event: Any) -> None:
        told.enter(name)
        function(self, *event)

    # Kernels find the handler that rejected by its code object: each needs one of its own.
    return types.FunctionType(
        handler.__code__.replace(co_name=name, co_qualname=f"{name}"), handler.__globals__, name, None, handler.__closure__
    )  # fmt: skip


def _methods(cls: type[Program]) -> dict[str, Any]:
    """What the program's classes define, the most derived first."""
    found: dict[str, Any] = {}
    for base in cls.__mro__:
        if base is Program or not issubclass(base, Program):
            continue
        for name, member in base.__dict__.items():
            if not name.startswith("__"):
                found.setdefault(name, member)
    return found


def _emitting(methods: Mapping[str, Any]) -> set[str]:
    """The methods that emit, by themselves or through others."""
    calls: dict[str, set[str]] = {}
    for name, member in methods.items():
        function = inspect.unwrap(getattr(member, "__func__", member))
        if isinstance(function, types.FunctionType):
            node = function_source(function).node
            calls[name] = set() if node is None else _called(node)
    found = {"emit"}
    while more := {n for n, called in calls.items() if n not in found and called & found}:
        found |= more
    return found


_MANY_TIMES = (
    ast.For, ast.While, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.Lambda, ast.FunctionDef,
)  # fmt: skip


def _emits_at_most(handler: types.FunctionType, methods: Collection[str]) -> int | None:
    """How many records one call emits at most; None where that does not follow from its own text alone."""
    node = function_source(handler).node
    if not isinstance(node, ast.FunctionDef) or not node.args.args:
        return None
    own = node.args.args[0].arg
    inside = [n for statement in node.body for n in ast.walk(statement)]
    emits = [n.func for n in inside if isinstance(n, ast.Call) and _is_emit(n.func, own)]
    objects = [n.value for n in inside if isinstance(n, ast.Attribute)]
    often = [n for outer in inside if isinstance(outer, _MANY_TIMES) for n in ast.walk(outer)]
    for n in inside:
        if isinstance(n, ast.Name) and (n.id == "super" or (n.id == own and n not in objects)):
            return None  # somebody else may emit
        if isinstance(n, ast.Attribute) and (n.attr in methods or (n.attr == "emit" and n not in emits)):
            return None
    return None if any(n in often for n in emits) else len(emits)


def _is_emit(node: ast.expr, own: str) -> bool:
    return (
        isinstance(node, ast.Attribute)
        and node.attr == "emit"
        and isinstance(node.value, ast.Name)
        and node.value.id == own
    )


def _called(node: ast.AST) -> set[str]:
    return {
        n.func.attr for n in ast.walk(node) if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute)
    }


def _of_step(table: pa.Table, ts: int, phase: int, root: int) -> pa.Table:
    here = pc.and_(pc.equal(table["seq"], root), pc.equal(table["phase"], phase))
    return table.filter(pc.and_(here, pc.equal(table["ts"], ts)))


def _same(a: pa.Table, b: pa.Table) -> bool:
    if a.num_rows != b.num_rows:
        return False
    b = b.select(a.column_names)
    return a.num_rows == 0 or alike(a, b) or bool(repr(a.to_pylist()) == repr(b.to_pylist()))


__all__ = ["Tracer"]
