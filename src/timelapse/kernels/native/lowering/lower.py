"""From a pass's handlers to the source of one flat function.

Handlers and the helpers that they call are written one after the other into the body of a loop over
events. What is not on the list below raises Refused, and the pass is interpreted. What can go wrong
while it runs (an integer outside int64, a zero divisor, `raise`) leaves the function with 1.

A slice's events come as columns per type and as one array that tells each event's type.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from timelapse.analysis.result import PassHandler, PassProgram
from timelapse.kernels.native.lowering.code import Code
from timelapse.kernels.native.lowering.context import Context
from timelapse.kernels.native.lowering.decided import decided
from timelapse.kernels.native.lowering.deciding import Slice, deciding
from timelapse.kernels.native.lowering.events import events_of
from timelapse.kernels.native.lowering.form import (
    Assign,
    Break,
    Do,
    If,
    Keep,
    Look,
    Node,
    Occupy,
    Save,
    While,
    walk,
    with_jumps,
)
from timelapse.kernels.native.lowering.grouping import together
from timelapse.kernels.native.lowering.owners import Owners
from timelapse.kernels.native.lowering.passes import SHORTER, WRITTEN, About, through
from timelapse.kernels.native.lowering.rejecting import Rejecting, by_type, noting_rows, passed_over
from timelapse.kernels.native.lowering.rules import Rules
from timelapse.kernels.native.lowering.sending import Derived
from timelapse.kernels.native.lowering.slides import Slides
from timelapse.kernels.native.lowering.source import source_of
from timelapse.kernels.native.lowering.stateful import States
from timelapse.kernels.native.lowering.touches import touches
from timelapse.kernels.native.lowering.trying import Trial
from timelapse.kernels.native.lowering.unit import TAKES, Unit
from timelapse.kernels.native.lowering.values import EventRef, SelfRef
from timelapse.kernels.native.memory.again import MOST_STATES
from timelapse.kernels.native.memory.layout import row_words
from timelapse.kernels.native.refused import ReadsAll, Refused
from timelapse.kernels.native.windows import KEPT, USED
from timelapse.kinds.grouped import Grouped
from timelapse.program.program import Program, spec_of

Show = Callable[[Unit, str, Sequence[Node]], None]
"""Called with what is made, a type of event and its code, once nothing is left in it that is not needed."""


def lowered(program: Program, work: PassProgram, *, final: bool, show: Show | None = None) -> Unit:
    """A pass as source, with a table for states that are used under the same keys. Raises Refused.

    Handlers of ticks run as Python, all of them, where one of them cannot be compiled, and there are others.
    """
    try:
        return _lowered(program, work, final=final, show=show)
    except Refused:
        ticking = {h.name for h in spec_of(program).handlers if h.every is not None}
        if len({h.name in ticking for h in work.handlers}) < 2:
            raise
    return _lowered(program, work, final=final, ticks_apart=True, show=show)


def _lowered(
    program: Program, work: PassProgram, *, final: bool, ticks_apart: bool = False, show: Show | None = None
) -> Unit:
    """It is written once to see which states share a table, which counters are steady and of which SetOfs the members are
    counted or listed, and then knowing that."""
    alone = Lowering(program, work, final=final, ticks_apart=ticks_apart)
    alone.write()
    tables = [states for states in alone.together() if len(states) > 1]
    steady = alone.steady_states()
    counted, indexed = list(alone.unit.counted), list(alone.unit.indexed)
    if not tables and not steady and not counted and not indexed:
        return alone.finish(show)
    again = Lowering(
        program, work, final=final, ticks_apart=ticks_apart, tables=tables, steady=steady, counted=counted,
        indexed=indexed,
    )  # fmt: skip
    return again.run(show)


class Lowering:
    """Writes one pass. Raises Refused."""

    def __init__(
        self, program: Program, work: PassProgram, *, final: bool, ticks_apart: bool = False,
        tables: Sequence[tuple[str, ...]] = (), steady: Mapping[str, int] | None = None,
        counted: Collection[str] = (), indexed: Collection[str] = (),
    ) -> None:  # fmt: skip
        """`ticks_apart`: whether handlers of ticks run as Python. The others: what writing the pass once has shown (`_lowered`)."""
        self._ctx = Context(program, work, final=final, steady=steady, counted=counted, indexed=indexed)
        self._code = Code(self._ctx)
        self._states = States(self._ctx, self._code, tables)
        self._trial = Trial(self._ctx, self._code, self._states)
        self._rules = Rules(self._ctx, self._code, self._states, self._trial)
        self._owners = Owners(self._ctx, self._code, self._states, self._rules)
        self._derived = Derived(self._ctx, self._code)
        self._slides = Slides(self._ctx, self._code)
        self._rejecting = Rejecting(self._ctx, self._code, self._states, self._rules)
        self._ticks_apart = ticks_apart
        self._heads: list[list[Node]] = []
        """For each type of event the code that finds its key, where events are shared out."""
        self._bodies: list[list[Node]] = []
        """The code of each type of event."""
        self._following: list[list[Node]] = []
        """The code of each type of event that is sent."""

    @property
    def unit(self) -> Unit:
        """What is made of the pass."""
        return self._ctx.unit

    # --- writing ----------------------------------------------------------------------------------

    def run(self, show: Show | None = None) -> Unit:
        """Write everything."""
        self.write()
        return self.finish(show)

    def write(self) -> None:
        """Write the handlers of each event. What is used how is known then."""
        unit, work = self.unit, self._ctx.work
        own = events_of(self._ctx, ticks_apart=self._ticks_apart)
        unit.handlers = [h.name for h in work.handlers]
        unit.shared = self._ctx.final and work.by_key is not None and not unit.steps
        refusals: list[Refused] = []
        for index, event in enumerate(unit.events):
            self._ctx.event = index
            self._heads.append(self._owners.of(event.__name__) if unit.shared else [])
            handlers = [h for h in own[index] if event in h.events or index in unit.ticking]
            refusal = self._write_event(handlers)
            if refusal is not None:
                refusals.append(refusal)
                unit.left[event.__name__] = refusal.reason
            self._bodies.append(with_jumps(self._code.finished()))
        self._following = self._derived.write(own[0], self._handler) if self._ctx.sent else []
        if refusals and not self._has_tables():
            raise refusals[0]
        if unit.ticks:  # what they use is not looked at: every state has a table
            for name in sorted(work.exact):
                self._states.named(name)
        used = self._states.used
        unit.windows = {n: v for n in unit.states if (v := used[n].views) is not None}
        unit.hidden = {name: spec for name, spec in unit.hidden.items() if name in unit.states}
        unit.counted = {name: counter for name, counter in unit.counted.items() if counter in unit.states}
        unit.indexed = {name: h for name, h in unit.indexed.items() if {name, h} <= {*unit.states}}
        unit.pushes = {name: used[name].rows.pushes for name in unit.windows}

    def _write_event(self, handlers: Sequence[PassHandler]) -> Refused | None:
        """Write what handles one type of event. Where it is left to Python, all of it: why."""
        self._code.begin()
        mark = self._trial.mark()
        for handler in handlers:
            try:
                self._handler(handler)
            except Refused as refusal:
                named = Refused(f"{handler.name}: {refusal.reason}", refusal.line, refusal.file)
                if not isinstance(refusal, ReadsAll) or not self._may_leave():
                    raise named from None
                self._trial.back(mark)
                self._code.leave()
                return named
        return None

    def _handler(self, handler: PassHandler) -> None:
        self._ctx.handler = self.unit.handlers.index(handler.name)
        self._rules.handler(handler, [SelfRef()] if self._ctx.ticks else [SelfRef(), EventRef()])

    def _may_leave(self) -> bool:
        """Whether all events of a type may be left to Python.

        An event that reads every key takes long in any case, so there are few of them: where there are not, the
        rest of the slice runs as Python. The index of a grouped state, and views, are not kept in tables.
        """
        grouped = any(issubclass(spec.kind, Grouped) for spec in self._ctx.spec.states.values())
        beyond = bool(self._ctx.spec.times) and not self._ctx.work.timeless
        return not (self._ctx.unit.shared or grouped or beyond)

    def _has_tables(self) -> bool:
        """Whether every state of the pass has a table, and some events are compiled."""
        unit, work = self._ctx.unit, self._ctx.work
        return work.exact | work.delta <= set(unit.states) and len(unit.left) < len(unit.events)

    # --- what writing it once has shown -----------------------------------------------------------

    def together(self) -> list[tuple[str, ...]]:
        """The states of each table, once it is written."""
        used = [
            {name: frozenset(keys) for name, keys in event.items()} for event in self._states.keys.values()
        ]
        unit = self._ctx.unit
        stamped = {n for n, views in unit.windows.items() if views.stamped or views.queued}
        alone = {*stamped, *unit.hidden, *unit.indexed}
        states = [n for n in unit.states if n not in alone]
        return together(states, self._ctx.spec.states, unit.layouts, used)

    def steady_states(self) -> dict[str, int]:
        """The exact states that are told nothing but small constants, once it is written; and how much an event adds."""
        if self._ctx.unit.left or self._ctx.unit.shared or self._ctx.unit.ticks:
            return {}
        return {
            name: code.steps.most
            for name, code in self._states.used.items()
            if code.steps is not None and code.mode == "exact" and code.steps.steady
            and name not in self._ctx.unit.hidden
        }  # fmt: skip

    # --- putting it together ----------------------------------------------------------------------

    def finish(self, show: Show | None = None) -> Unit:
        """Put the function together."""
        unit, filled = self.unit, frozenset(self._code.filled)
        after = About(filled, exits_follow=bool(self._following))
        of_log = [replace(after, ahead=i, shared=unit.shared) for i in range(len(unit.events))]
        following = [through(SHORTER, body, after) for body in self._following]
        bodies = [through(SHORTER, body, about) for body, about in zip(self._bodies, of_log, strict=True)]
        if self._ctx.work.decides:
            bodies, unit.deciding = self._deciding(bodies, following)
            found = touches(bodies)
            if not isinstance(found, str):  # which of its rows are written is not noted
                writes = unit.deciding.writes
                found = tuple(
                    tuple(t._replace(writes=n in writes) for t in own) for n, own in enumerate(found)
                )
            unit.touches = found
        unit.goes_back = self._ctx.goes_back
        if unit.goes_back:
            if any(len(states) > MOST_STATES for states in unit.tables):
                raise Refused("too many states have the same keys")
            words = [row_words([unit.layouts[state] for state in states]) for states in unit.tables]
            bodies = [noting_rows(body, words, loops=unit.loops) for body in bodies]
        self._count([*bodies, *following])
        if show is not None:
            sent = [f"{event.__name__}, sent" for event in self._ctx.sent]
            for name, body in zip(
                [*map(unit.table_of, range(len(unit.events))), *sent], [*bodies, *following], strict=True
            ):
                show(unit, name, body)
        unit.rejects = bool(self._ctx.rejections)
        unit.takes = bool(unit.raising) or (self._ctx.work.takes_out and bool(unit.later))
        if self._ctx.work.finds_late and not self._ctx.work.decides:
            sends = "handlers send events" if following or unit.sends else ""
            told = {name for r in self._ctx.rejections if r.raises for name in r.fields}
            unit.touches, unit.decided = sends or touches(bodies), sends or decided(bodies, told)
            if isinstance(unit.decided, str):
                try:
                    unit.deciding = self._deciding(bodies, following).about
                except Refused as refusal:
                    unit.deciding = refusal.reason
        following = [through(WRITTEN, body, after) for body in following]
        if not self._ctx.work.decides:  # what decides looks back at nothing
            bodies = [[*self._slides.before(i), *body] for i, body in enumerate(bodies)]
        bodies = [through(WRITTEN, body, about) for body, about in zip(bodies, of_log, strict=True)]
        if following:
            steps = self._rejecting.transaction(bodies, self._derived.loop(following))
        else:
            steps = by_type([self._step(i, body) for i, body in enumerate(bodies)])
        if unit.later and not (unit.shared or unit.goes_back):
            steps = [If("k >= 0", steps, passed_over(len(bodies)))]
        unit.source = source_of(unit, steps, self._heads)
        return unit

    def _deciding(self, bodies: Sequence[Sequence[Node]], following: Sequence[object]) -> Slice:
        """What decides which steps fail. Raises Refused where that is not known."""
        places = {n: r for n, r in enumerate(self._ctx.rejections, 1) if r.raises}
        found: Slice | str = "handlers send events"
        if not (following or self.unit.sends):
            told = {name for place in places.values() for name in place.fields}
            found = deciding(bodies, told, {n: place.event for n, place in places.items()})
        if isinstance(found, str):
            raise Refused(found)
        return found

    def _count(self, bodies: Sequence[Sequence[Node]]) -> None:
        """How much of everything one event can take, as the code now has it. Of a table the first state stands for all."""
        unit, events = self.unit, [list(walk(body)) for body in bodies]
        for number, names in enumerate(unit.tables):
            looks = [
                [n for n in event if isinstance(n, Look | Occupy) and n.table == number] for event in events
            ]
            made = [sum(isinstance(n, Occupy) or n.makes for n in own) for own in looks]
            taken = [sum(isinstance(n, Look) and n.what == "look" for n in own) for own in looks]
            first = next(name for name in names if name in unit.states)
            unit.claims[first], unit.finds[first] = max(made, default=0), max(taken, default=0)
        saved, kept = (
            max((sum(isinstance(n, kind) for n in event) for event in events), default=0)
            for kind in (Save, Keep)
        )
        unit.undo, unit.keeps = saved, kept if self._ctx.keeps else -1

    def _step(self, i: int, body: list[Node]) -> list[Node]:
        """What is done with one event of a type."""
        unit, before, after = self.unit, list[Node](), list[Node]()
        if self._ctx.work.decides and not body:
            return [Assign(f"q{i}", "ONE", "+=")]
        noted = {n.log for n in walk(body) if isinstance(n, Do) and n.log is not None}
        if unit.shared:
            before = [Assign(f"q{i}", "own"), *self._heads[i][:-1]]
        if self._ctx.goes_back:
            if any(r.event == i for r in self._ctx.rejections):
                body = [While("True", [*body, Break()]), *self._rejecting.after(i)]
            return self._rejecting.of_step(i, body)
        if unit.takes and i in unit.later:  # of an event that was taken out nothing comes later
            turn = TAKES + list(unit.later).index(i)
            body = [If(f"not is_gone(takes, gone, {turn}, seq{i}[q{i}])", body)]
        if i in unit.ticking:  # records of one tick are numbered through all its handlers
            now = f"ts{i}[q{i}]"
            before.append(Assign("ordinal", f"ticked[1] if ticked[0] == {now} else 0"))
            after = [Assign("ticked[0]", now), Assign("ticked[1]", "ordinal")]
        elif any(r.event == i for r in self._ctx.rejections):
            before.append(Assign("rejected", "0"))
            body = [While("True", [*body, Break()])]
            after = self._rejecting.after(i)
        after += [Assign(f"k{n}[{KEPT}]", f"k{n}[{USED}]") for n in sorted(noted)]
        if not unit.shared:
            after.append(Assign(f"q{i}", "ONE", "+="))
        return [*before, *body, *after]
