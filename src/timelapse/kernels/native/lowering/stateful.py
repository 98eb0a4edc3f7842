"""The states that a pass's code uses: those that the program declares, their views, and hidden ones."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from timelapse.errors import Place
from timelapse.kernels.native.lowering.emitter import Emitter
from timelapse.kernels.native.lowering.states import StateCode, state_code
from timelapse.kernels.native.lowering.states.forms import view_of
from timelapse.kernels.native.lowering.values import Env, Refused, SelfRef
from timelapse.kernels.native.memory.layout import Layout, mode_of
from timelapse.kernels.native.unit import LISTS
from timelapse.kernels.native.windows import heads_spec, members_spec, views_in
from timelapse.kinds.base import StateSpec
from timelapse.model.program import TimeUse, spec_of
from timelapse.model.times import width_of
from timelapse.tables.table import key_types


class Stateful(Emitter):
    """Finds what writes a state's operations."""

    _listing = "listing"
    """The variable that says where the next list goes: behind those that loops around are going over."""

    def _state_of(self, node: ast.expr, env: Env) -> StateCode | None:
        if isinstance(node, ast.Attribute) and self._is_self(node.value, env):
            if node.attr in spec_of(self._program).states:
                return self._state(node.attr)
        return self._view_of(node, env)

    def _state(self, name: str) -> StateCode:
        if name not in self._states:
            spec, work, unit = spec_of(self._program).states[name], self._work, self.unit
            mode = mode_of(name, work)
            views = views_in(work, self._views, name)
            states = self._together.get(name, (name,))
            if mode != "ignored" and states not in unit.tables:
                unit.tables.append(states)
            layout = self._beside.get(name) or self._layout(name)
            table = unit.tables.index(states) if mode != "ignored" else -1
            self._states[name] = state_code(spec, mode, layout, self, len(unit.states), table, views)
            if mode != "ignored":
                unit.states.append(name)
                unit.layouts[name] = layout
        return self._states[name]

    def hidden(self, spec: StateSpec) -> StateCode:
        """A state that the program has not declared."""
        if spec.name not in self._states:
            unit = self.unit
            layout = Layout(max(1, len(key_types(spec))), spec.value, "exact", tracked=False)
            unit.tables.append((spec.name,))
            self._states[spec.name] = state_code(
                spec, "exact", layout, self, len(unit.states), len(unit.tables) - 1
            )
            unit.states.append(spec.name)
            unit.layouts[spec.name] = layout
            unit.hidden[spec.name] = spec
        return self._states[spec.name]

    def members_of(self, spec: StateSpec) -> StateCode:
        """The counter of a SetOf's members by key. What asks for it has everything written again, knowing that."""
        if self.unit.shared:
            raise Refused(f"{spec.name}.count(), where events are shared out", self._line)
        counter = members_spec(spec)
        self.unit.counted[spec.name] = counter.name
        return self.hidden(counter)

    def heads_of(self, spec: StateSpec) -> StateCode:
        """The state that says where the list of a SetOf's members begins. What asks for it has everything written again."""
        if self.unit.shared:
            raise Refused(f"{spec.name}[k], where events are shared out", self._line)
        heads = heads_spec(spec)
        self.unit.indexed[spec.name] = heads.name
        code = self.hidden(heads)
        code.mapped = False  # it never has a start state
        return code

    def list_of(self, code: Callable[[str], str], words: int) -> tuple[str, str]:
        """List something behind what loops around are going over: from where on, and how much. `code` lists it from a place on;
        `words`: of each row."""
        first = self._listing
        count = self.temp("int", code(first)).code
        self.line(f"if {first} + 2 * {count} > listed.shape[0]:")
        self.line(f"    return left(j, u, {LISTS})")
        self.unit.lists = max(self.unit.lists, words)
        return first, count

    @contextmanager
    def rounds(self, count: str) -> Iterator[str]:
        """Lines written inside run so many times; gives the number of the round."""
        n = self.name("n")
        self._loops += 1
        with self.block(f"for {n} in range({count}):"):
            yield n
        self._loops -= 1

    def _view_of(self, node: ast.expr, env: Env) -> StateCode | None:
        """The view that `self.x.last(W)` or `self.x.ago(L)` stands for."""
        match node:
            case ast.Call(
                func=ast.Attribute(
                    value=ast.Attribute(value=ast.Name(id=receiver), attr=name), attr="last" | "ago" as what
                ),
                args=[length], keywords=[],
            ) if name in self._views and isinstance(env.get(receiver), SelfRef):  # fmt: skip
                function, place = self._stack[-1].function, Place(self._file, self._line)
                lag = width_of(
                    self._program, TimeUse(what, place, name, ast.unparse(length), receiver, function)
                )
                self._slides.append((self._event, name, lag))
                return view_of(self._state(name), lag, last=what == "last")
        return None
