"""The states that a pass's code uses: those that the program declares, their views, and hidden ones."""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Mapping, Sequence

from timelapse.errors import Place
from timelapse.kernels.native.lowering.code import Code
from timelapse.kernels.native.lowering.context import Context
from timelapse.kernels.native.lowering.states import StateCode, state_code
from timelapse.kernels.native.lowering.states.forms import view_of
from timelapse.kernels.native.lowering.values import Env, SelfRef
from timelapse.kernels.native.memory.layout import Layout, beside, layout_of, mode_of
from timelapse.kernels.native.refused import Refused
from timelapse.kernels.native.status import ABROAD, LISTS
from timelapse.kernels.native.windows import heads_spec, members_spec, views_in
from timelapse.kinds.base import StateSpec
from timelapse.model.types import TupleType
from timelapse.program.program import TimeUse
from timelapse.program.times import width_of
from timelapse.tables.table import key_types


def is_self(node: ast.expr, env: Env) -> bool:
    """Whether a name stands for the program."""
    return isinstance(node, ast.Name) and isinstance(env.get(node.id), SelfRef)


class States:
    """Finds what writes a state's operations, and is what that knows of the pass."""

    def __init__(self, ctx: Context, code: Code, tables: Sequence[tuple[str, ...]]) -> None:
        """`tables`: states that share a table. Others have one each."""
        self._ctx, self._code = ctx, code
        self.used: dict[str, StateCode] = {}
        self.listing = "listing"
        """The variable that says where the next list goes: behind those that loops around are going over."""
        self.own: tuple[str, ...] | None = None
        """The words of the key by which the event is shared out; None where events are not, or this one has none."""
        self.keys: dict[int, dict[str, set[tuple[str, ...]]]] = {}
        """For each type of event each state's keys, as they are spelt."""
        self._together = {name: table for table in tables for name in table}
        self._beside: dict[str, Layout] = {}
        """The layouts of states that share a table."""
        for table in tables:
            alone = [self._layout(n) for n in table]
            self._beside |= dict(zip(table, beside(alone) or alone, strict=True))

    def of(self, node: ast.expr, env: Env) -> StateCode | None:
        """The state, or view, that an expression stands for."""
        if isinstance(node, ast.Attribute) and is_self(node.value, env):
            if node.attr in self._ctx.spec.states:
                return self.named(node.attr)
        return self._view_of(node, env)

    def named(self, name: str) -> StateCode:
        """A state that the program declares."""
        if name not in self.used:
            spec, work, unit = self._ctx.spec.states[name], self._ctx.work, self._ctx.unit
            mode = mode_of(name, work)
            views = views_in(work, self._ctx.views, name)
            states = self._together.get(name, (name,))
            if mode != "ignored" and states not in unit.tables:
                unit.tables.append(states)
            layout = self._beside.get(name) or self._layout(name)
            table = unit.tables.index(states) if mode != "ignored" else -1
            number = len(unit.states)
            self.used[name] = state_code(spec, mode, layout, self._code, self, number, table, views)
            if mode != "ignored":
                unit.states.append(name)
                unit.layouts[name] = layout
        return self.used[name]

    def _layout(self, name: str) -> Layout:
        """The row of a state in a table of its own."""
        views = views_in(self._ctx.work, self._ctx.views, name)
        extra = 0 if views is None else views.extra
        return layout_of(self._ctx.spec.states[name], self._ctx.work, final=self._ctx.final, extra=extra)

    def _view_of(self, node: ast.expr, env: Env) -> StateCode | None:
        """The view that `self.x.last(W)` or `self.x.ago(L)` stands for."""
        ctx = self._ctx
        match node:
            case ast.Call(
                func=ast.Attribute(
                    value=ast.Attribute(value=ast.Name(id=receiver), attr=name), attr="last" | "ago" as what
                ),
                args=[length], keywords=[],
            ) if name in ctx.views and isinstance(env.get(receiver), SelfRef):  # fmt: skip
                function, place = ctx.stack[-1].function, Place(ctx.file, ctx.line)
                lag = width_of(
                    ctx.program, TimeUse(what, place, name, ast.unparse(length), receiver, function)
                )
                ctx.slides.append((ctx.event, name, lag))
                return view_of(self.named(name), lag, last=what == "last")
        return None

    # --- what the code of states knows of the pass ------------------------------------------------

    @property
    def now(self) -> str:
        """The time of the step."""
        return self._ctx.now

    @property
    def keeps(self) -> bool:
        """Whether rows are copied before they are written."""
        return self._ctx.keeps

    @property
    def steady(self) -> Mapping[str, int]:
        """Counters that are known to be small."""
        return self._ctx.steady

    @property
    def counted(self) -> Collection[str]:
        """SetOfs whose members are counted by key."""
        return self._ctx.counted

    @property
    def indexed(self) -> Collection[str]:
        """SetOfs whose members are listed by key."""
        return self._ctx.indexed

    def text(self, text: str | bytes) -> int:
        """The code of a constant string."""
        return self._ctx.text(text)

    def uses_key(self, state: str, words: Sequence[str]) -> None:
        """Note a state's key. Where events are shared out: see to it that it is under the event's own."""
        ctx = self._ctx
        self.keys.setdefault(ctx.event, {}).setdefault(state, set()).add(tuple(words))
        shared = ctx.work.by_key if ctx.unit.shared else None
        if shared is None or ctx.spec.states[state].key is None:
            return
        place = shared.states.get(state, -1)
        outer = ctx.spec.states[state].outer
        width = len(outer.items) if isinstance(outer, TupleType) else 1
        used = tuple(words) if place is None else tuple(words[place : place + width])
        if self.own is None or place == -1 or len(used) != len(self.own):
            raise Refused(f"{state}, which is not under the key of the event", ctx.line)
        for own, word in zip(self.own, used, strict=True):
            if own != word:
                self._code.leave_if(f"{own} != {word}", ABROAD)

    def hidden(self, spec: StateSpec) -> StateCode:
        """A state that the program has not declared. None of them is shared out with the events."""
        if self._ctx.unit.shared:
            raise Refused("members in a window, where events are shared out", self._ctx.line)
        if spec.name not in self.used:
            unit = self._ctx.unit
            layout = Layout(max(1, len(key_types(spec))), spec.value, "exact", tracked=False)
            unit.tables.append((spec.name,))
            self.used[spec.name] = state_code(
                spec, "exact", layout, self._code, self, len(unit.states), len(unit.tables) - 1
            )
            unit.states.append(spec.name)
            unit.layouts[spec.name] = layout
            unit.hidden[spec.name] = spec
        return self.used[spec.name]

    def members_of(self, spec: StateSpec) -> StateCode:
        """The counter of a SetOf's members by key. What asks for it has everything written again, knowing that."""
        if self._ctx.unit.shared:
            raise Refused(f"{spec.name}.count(), where events are shared out", self._ctx.line)
        counter = members_spec(spec)
        self._ctx.unit.counted[spec.name] = counter.name
        return self.hidden(counter)

    def heads_of(self, spec: StateSpec) -> StateCode:
        """The state that says where the list of a SetOf's members begins. What asks for it has everything written again."""
        if self._ctx.unit.shared:
            raise Refused(f"{spec.name}[k], where events are shared out", self._ctx.line)
        heads = heads_spec(spec)
        self._ctx.unit.indexed[spec.name] = heads.name
        code = self.hidden(heads)
        code.rows.mapped = False  # it never has a start state
        return code

    def list_of(self, code: Callable[[str], str], words: int) -> tuple[str, str]:
        """List something behind what loops around are going over: from where on, and how much. `code` lists it from a place on;
        `words`: of each row."""
        first = self.listing
        count = self._code.temp("int", code(first)).code
        self._code.leave_if(f"{first} + 2 * {count} > listed.shape[0]", LISTS)
        self._ctx.unit.lists = max(self._ctx.unit.lists, words)
        return first, count
