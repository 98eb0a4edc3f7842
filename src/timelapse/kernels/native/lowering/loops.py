"""Loops, and the variables that they carry from round to round."""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from timelapse.kernels.native.lowering.code import Code
from timelapse.kernels.native.lowering.context import Context, Frame
from timelapse.kernels.native.lowering.flow import Join, Level, Widened, variables
from timelapse.kernels.native.lowering.form import Break, Continue
from timelapse.kernels.native.lowering.iteration import Rounds
from timelapse.kernels.native.lowering.scopes import assigned
from timelapse.kernels.native.lowering.stateful import States
from timelapse.kernels.native.lowering.trying import Trial
from timelapse.kernels.native.lowering.values import Bound, Env, Value, common, whole
from timelapse.kernels.native.refused import Refused

if TYPE_CHECKING:
    from timelapse.kernels.native.lowering.rules import Rules

_UNROLLED = 32
"""Rounds of a loop over a tuple, which are written out one after the other."""


class Loops:
    """Writes loops."""

    def __init__(self, ctx: Context, code: Code, states: States, trial: Trial, rules: Rules) -> None:
        self._ctx, self._code, self._states, self._trial, self._rules = ctx, code, states, trial, rules

    def while_(self, node: ast.While, env: Env, frame: Frame) -> Env | None:
        """`while`."""

        def head(inner: Env) -> str:
            return self._rules.test(node.test, inner, frame)

        return self._loop(node, head, lambda inner: None, env, frame)

    def for_(self, node: ast.For, env: Env, frame: Frame) -> Env | None:
        """`for`."""
        listing = self._states.listing
        try:
            rounds = self._rules.rounds(node.iter, env, frame)
            if isinstance(rounds, list):
                if len(rounds) > _UNROLLED:
                    raise Refused(f"a loop over {len(rounds)} values", node.lineno)
                return self._unrolled(node, rounds, env, frame)
            return self._counted(node, rounds, env, frame)
        finally:
            self._states.listing = listing  # what it went over is not needed any more

    def _counted(self, node: ast.For, rounds: Rounds, env: Env, frame: Frame) -> Env | None:
        """A loop whose number of rounds is known where it begins."""
        counter = self._code.name(".n")
        env = {**env, counter: whole(0)}

        def place(inner: Env) -> Value:
            found = inner[counter]
            assert isinstance(found, Value)
            return found

        def bind(inner: Env) -> None:
            now = place(inner)
            inner[counter] = self._code.temp("int", f"{now.code} + 1")
            self._rules.assign(node.target, self._code.fixed(rounds.item(now)), inner, frame)

        return self._loop(node, lambda inner: f"({place(inner).code} < {rounds.count.code})", bind, env, frame,
                          {counter})  # fmt: skip

    def _loop(
        self, node: ast.While | ast.For, head: Callable[[Env], str], bind: Callable[[Env], None], env: Env,
        frame: Frame, more: Collection[str] = (),
    ) -> Env | None:  # fmt: skip
        changed = assigned(node) | set(more)
        # No variable can hold now this list, now that one: in the loop it has none, until it is assigned.
        env = {n: v for n, v in env.items() if n not in changed or not _is_list(v)}
        names = [n for n in env if n in changed and isinstance(env[n], Value)]
        shapes: dict[str, Value] = {n: v for n in names if isinstance(v := env[n], Value)}
        for _ in range(2 * len(names) + 2):
            mark = self._trial.mark()
            level: Level | None = None
            try:
                level = self._begin(shapes, env)
                level.hidden = frozenset(more)
                return self._written(level, node, head, bind, env, frame)
            except Widened as wider:
                if wider.level is not level:
                    raise
                self._trial.back(mark)
                shapes[wider.name] = wider.shape
        raise Refused("a loop that changes the types of its variables", node.lineno)

    def _begin(self, shapes: Mapping[str, Value], env: Env) -> Level:
        """Begin a loop with the variables that it carries from round to round."""
        carried = {name: variables(shape, self._code.name("carried")) for name, shape in shapes.items()}
        pairs: list[tuple[Join | Value, Value]] = []
        for name, variable in carried.items():
            value = env[name]
            assert isinstance(value, Value)
            pairs.append((variable, value))
        self._code.moves(pairs)
        self._code.loops += 1
        level = self._code.open(user=True)
        level.carried = carried
        level.begun = dict(zip(carried, (value for _, value in pairs), strict=True))
        return level

    def _written(
        self, level: Level, node: ast.While | ast.For, head: Callable[[Env], str], bind: Callable[[Env], None],
        env: Env, frame: Frame,
    ) -> Env | None:  # fmt: skip
        inner: Env = dict(env) | level.carried
        test = head(inner)
        if test != "True":
            with self._code.when(f"not {test}"):
                self._else(level, node.orelse, dict(inner), frame)
        self._code.round_begins()
        bind(inner)
        left = self._rules.block(node.body, inner, frame)
        if left is not None:
            self._carry(level, left)
        self._code.close(level)
        self._code.loops -= 1
        return self._code.met(level.outs)

    def _else(self, level: Level, orelse: Sequence[ast.stmt], env: Env, frame: Frame) -> None:
        """The loop's end without `break`."""
        level.user = False  # `break` in it means an outer loop
        left = self._rules.block(orelse, env, frame)
        level.user = True
        if left is not None:
            self._out(level, left)
            self._code.jump_behind(level)

    def _carry(self, level: Level, env: Env) -> None:
        """At the end of a round: its variables for the next one."""
        pairs: list[tuple[Join | Value, Value]] = []
        for name, variable in level.carried.items():
            value = env.get(name)
            if not isinstance(value, Value):
                raise Refused(f"the loop changes the type of {name}", self._ctx.line)
            shape = common(variable, value) or common(level.begun[name], value)  # it may have begun with 0
            if shape is None or value.kind == "list":
                raise Refused(f"the loop changes {name} from {variable.text} to {value.text}", self._ctx.line)
            if shape.shape != variable.shape:
                raise Widened(level, name, shape)
            pairs.append((variable, value))
        self._code.moves(pairs)

    def _out(self, level: Level, env: Env) -> None:
        """A way out of a loop."""
        level.outs.append(({n: v for n, v in env.items() if n not in level.hidden}, self._code.moves()))

    def _user_loop(self) -> Level:
        return next(level for level in reversed(self._code.levels) if level.user)

    def break_(self, env: Env) -> None:
        """`break`."""
        level = self._user_loop()
        self._out(level, env)
        self._code.jump_behind(level)

    def continue_(self, env: Env) -> None:
        """`continue`."""
        level = self._user_loop()
        if level.again is not None:
            self._out(level.again, env)
            self._code.jump_behind(level.again)
            return
        self._carry(level, env)
        inner = self._code.levels[-1]
        if inner is level:
            self._code.add(Continue())
            return
        raise Refused("`continue` in this place", self._ctx.line)

    def _unrolled(self, node: ast.For, rounds: Sequence[Value], env: Env, frame: Frame) -> Env | None:
        """A loop over a tuple: its rounds one after the other."""
        jumps = any(isinstance(n, ast.Break | ast.Continue) for n in ast.walk(node))
        left: Env | None = env
        if not jumps:
            for item in rounds:
                if left is not None:
                    self._rules.assign(node.target, item, left, frame)
                    left = self._rules.block(node.body, left, frame)
            return left if left is None else self._rules.block(node.orelse, left, frame)
        level = self._code.open(user=True)
        for item in rounds:
            if left is None:
                break
            level.again = self._code.open()
            level.again.user = False
            self._rules.assign(node.target, item, left, frame)
            left = self._rules.block(node.body, left, frame)
            if left is not None:
                self._out(level.again, left)
                self._code.add(Break())
            self._code.close(level.again)
            left = self._code.met(level.again.outs)
        level.again, level.user = None, False
        if left is not None:
            left = self._rules.block(node.orelse, left, frame)
        if left is not None:
            self._out(level, left)
            self._code.add(Break())
        self._code.close(level)
        return self._code.met(level.outs)


def _is_list(value: Bound) -> bool:
    return isinstance(value, Value) and value.kind == "list"
