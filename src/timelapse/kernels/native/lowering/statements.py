"""Statements: assignments, branches, loops, and functions written out."""

from __future__ import annotations

import ast
import types
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from timelapse.analysis.result import PassHandler
from timelapse.kernels.native.lowering.comparisons import present
from timelapse.kernels.native.lowering.emitter import Frame, node_of
from timelapse.kernels.native.lowering.evaluation import Evaluation
from timelapse.kernels.native.lowering.flow import Join, Level, Moves, Widened, variables
from timelapse.kernels.native.lowering.iteration import Rounds
from timelapse.kernels.native.lowering.scopes import assigned, leaves_always, pattern_test, returns_in_place
from timelapse.kernels.native.lowering.states import StateCode
from timelapse.kernels.native.lowering.values import NONE, Bound, Env, Refused, Value, common

_MAX_DEPTH = 12
_UNROLLED = 32
"""Rounds of a loop over a tuple, which are written out one after the other."""


class Statements(Evaluation):
    """Writes statements."""

    # --- functions --------------------------------------------------------------------------------

    def _call_handler(self, handler: PassHandler, given: list[Any]) -> None:
        with self._raising_in(handler.function):
            self._call(handler.function, given, {}, 0, handler.text)

    def _call(
        self, function: types.FunctionType, args: Sequence[Any], named: Mapping[str, Any], depth: int,
        text: str = "",
    ) -> Value:  # fmt: skip
        """Write a function out; its result."""
        node = node_of(function, text)
        if depth > _MAX_DEPTH:
            raise Refused(f"{node.name} calls itself, or calls are nested too deeply", self._line)
        self._frames += 1
        frame = Frame(self._frames, function, depth)
        env = self._bound(function, node, args, named)
        outer = self._line, self._file
        self._file = function.__code__.co_filename
        if not returns_in_place(node.body):
            frame.level = self._open()
        self._stack.append(frame)
        left = self._block(node.body, env, frame)
        if left is not None:
            self._moves([(frame.result, NONE)])
        if frame.level is not None:
            if left is not None:
                self.line("break")
            self._close(frame.level)
        self._stack.pop()
        self._line, self._file = outer
        return self._joined(frame.result, f"{node.name} returns") if frame.result.values else NONE

    def _bound(
        self,
        function: types.FunctionType,
        node: ast.FunctionDef,
        args: Sequence[Any],
        named: Mapping[str, Any],
    ) -> Env:
        """The parameters of a call."""
        spec, name = node.args, node.name
        if spec.vararg or spec.kwarg:
            raise Refused(f"{name} takes any number of arguments", self._line)
        places = [a.arg for a in (*spec.posonlyargs, *spec.args)]
        if len(args) > len(places):
            raise Refused(f"the arguments of {name}", self._line)
        env: Env = dict(zip(places, args, strict=False))
        allowed = {*places[len(spec.posonlyargs) :], *(a.arg for a in spec.kwonlyargs)}
        if set(named) & set(env) or not set(named) <= allowed:
            raise Refused(f"the arguments of {name}", self._line)
        env |= named
        defaults = function.__defaults__ or ()
        given = dict(zip(places[len(places) - len(defaults) :], defaults, strict=True))
        given |= function.__kwdefaults__ or {}
        for parameter in [*places, *(a.arg for a in spec.kwonlyargs)]:
            if parameter not in env:
                if parameter not in given:
                    raise Refused(f"the arguments of {name}", self._line)
                env[parameter] = self._const(given[parameter])
        return env

    def _return(self, value: Value, frame: Frame) -> None:
        self._moves([(frame.result, value)])
        if frame.level is not None:
            self._leave(frame.level)

    # --- blocks -----------------------------------------------------------------------------------

    def _block(self, body: Sequence[ast.stmt], env: Env, frame: Frame) -> Env | None:
        """Write statements; the names after them, or None where nothing comes after them."""
        with self._standing():
            return self._statements(body, env, frame)

    def _statements(self, body: Sequence[ast.stmt], env: Env, frame: Frame) -> Env | None:
        for place, statement in enumerate(body):
            self._line = getattr(statement, "lineno", self._line)
            self._stand_at(statement, frame)
            try:
                left: Env | None
                if isinstance(statement, ast.If):
                    rest = body[place + 1 :]
                    if rest and frame.level is None and leaves_always(statement.body) is not None:
                        yes: Sequence[ast.stmt] = statement.body
                        return self._if(statement.test, yes, [*statement.orelse, *rest], env, frame)
                    if rest and frame.level is None and leaves_always(statement.orelse) is not None:
                        return self._if(
                            statement.test, [*statement.body, *rest], statement.orelse, env, frame
                        )
                    left = self._if(statement.test, statement.body, statement.orelse, env, frame)
                else:
                    left = self._statement(statement, env, frame)
            except Refused as refusal:
                if not refusal.line:
                    refusal.line = self._line
                if not refusal.file:
                    refusal.file = self._file
                raise
            if left is None:
                return None
            env = left
        return env

    def _if(
        self, test: ast.expr, yes: Sequence[ast.stmt], no: Sequence[ast.stmt], env: Env, frame: Frame
    ) -> Env | None:
        code = self._test(test, env, frame)
        if code in ("True", "False"):
            return self._block(yes if code == "True" else no, dict(env), frame)
        return self._branches(code, yes, no, env, frame)

    def _branches(
        self, test: str, yes: Sequence[ast.stmt], no: Sequence[ast.stmt], env: Env, frame: Frame
    ) -> Env | None:
        ways: list[tuple[Env, Moves]] = []

        def way(body: Sequence[ast.stmt]) -> None:
            left = self._block(body, dict(env), frame)
            if left is not None:
                ways.append((left, self._moves()))

        self.line(f"if {test}:")
        self._nested_lines(lambda: way(yes))
        if no or not ways:
            self.line("else:")
            self._nested_lines(lambda: way(no))
        else:
            self.line("else:")
            self._nested_lines(lambda: way(()))
        return self._met(ways)

    def _met(self, ways: Sequence[tuple[Env, Moves]]) -> Env | None:
        """The names after several ways have met; each way's moves are filled."""
        if not ways:
            return None
        (first, _), *rest = ways
        if not rest:
            return dict(first)
        env: Env = {}
        for name, value in first.items():
            found = [other.get(name) for other, _ in rest]
            if all(f == value for f in found):
                env[name] = value
            elif isinstance(value, Value) and all(isinstance(f, Value) for f in found):
                self._joined_name(name, value, ways, env)
        return env

    def _joined_name(self, name: str, value: Value, ways: Sequence[tuple[Env, Moves]], env: Env) -> None:
        join = Join(self.name("v"))
        values: list[Any] = [way[name] for way, _ in ways]
        join.values = values
        if any(v.kind == "list" for v in values) or join.finish() is None:
            return  # of no common type: it can only be used where it is assigned again
        for (_, moves), one in zip(ways, values, strict=True):
            moves.pairs.append((join, one))
        assert join.found is not None
        env[name] = join.found

    # --- statements -------------------------------------------------------------------------------

    def _statement(self, statement: ast.stmt, env: Env, frame: Frame) -> Env | None:
        match statement:
            case ast.Pass() | ast.Expr(value=ast.Constant()):
                pass
            case ast.Raise():
                self._raise(statement, env, frame)
                return None
            case (
                ast.Expr(value=ast.Call(func=ast.Attribute(attr="reject", value=owner)) as call)
                | ast.Return(value=ast.Call(func=ast.Attribute(attr="reject", value=owner)) as call)
            ) if self._is_self(owner, env):
                self._reject(call, env, frame)
                return None
            case ast.Return(value=value):
                self._return(NONE if value is None else self._expr(value, env, frame), frame)
                return None
            case ast.Expr(value=ast.Call() as call):
                self._call_expr(call, env, frame)
            case ast.Expr(value=value):
                self._expr(value, env, frame)
            case ast.Assign(targets=targets, value=value):
                found = self._fixed(self._expr(value, env, frame))
                for target in targets:
                    self._assign(target, found, env, frame)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                self._assign(target, self._fixed(self._expr(value, env, frame)), env, frame)
            case ast.AnnAssign(value=None):
                pass
            case ast.AugAssign(target=ast.Name(id=name) as target, op=op, value=value):
                old = self._variable(name, env, frame)
                right = self._expr(value, env, frame)
                made = ast.copy_location(ast.BinOp(target, op, value), statement)
                env[name] = self._operated(made, old, right, env, frame)
            case ast.AugAssign(target=ast.Subscript() | ast.Attribute() as target, op=op, value=value):
                state, key = self._target(target, env, frame)
                calls = any(isinstance(n, ast.Call) for n in ast.walk(value))
                state.change(key, op, lambda: self._expr(value, env, frame), writes=calls)
            case ast.Delete(targets=targets):
                for target in targets:
                    self._delete(target, env, frame)
            case ast.Assert(test=test):
                code = self._test(test, env, frame)
                if code != "True":
                    self._assert(statement, f"not {code}", env, frame)
            case ast.While():
                return self._while(statement, env, frame)
            case ast.For():
                return self._for(statement, env, frame)
            case ast.Break():
                self._break(env)
                return None
            case ast.Continue():
                self._continue(env)
                return None
            case ast.Match():
                return self._if_chain(statement, env, frame)
            case _:
                word = type(statement).__name__.lower().removesuffix("star")
                raise Refused(f"the statement `{word}`", statement.lineno)
        return env

    def _delete(self, target: ast.expr, env: Env, frame: Frame) -> None:
        if isinstance(target, ast.Name):
            self._variable(target.id, env, frame)
            env.pop(target.id, None)
        else:
            state, key = self._target(target, env, frame)
            state.delete(key)

    def _assign(self, target: ast.expr, value: Value, env: Env, frame: Frame) -> None:
        match target:
            case ast.Name(id=name):
                env[name] = value
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                value = present(self, value)
                if value.kind != "tuple" or any(isinstance(p, ast.Starred) for p in parts):
                    raise Refused(f"unpacking {value.text}", self._line)
                if len(parts) != len(value.items):
                    raise Refused(f"unpacking {len(value.items)} values to {len(parts)} names", self._line)
                for part, item in zip(parts, value.items, strict=True):
                    self._assign(part, item, env, frame)
            case ast.Subscript() | ast.Attribute():
                state, key = self._target(target, env, frame)
                state.set(key, value)
            case _:
                raise Refused("this assignment", self._line)

    def _target(self, target: ast.expr, env: Env, frame: Frame) -> tuple[StateCode, Value | None]:
        """The state, and the key's value if it has one, of `self.x[k]` or `self.x`."""
        if isinstance(target, ast.Subscript):
            state = self._state_of(target.value, env)
            if state is not None:
                return state, self._fixed(self._expr(target.slice, env, frame))
        state = self._state_of(target, env)
        if state is None or state.spec.key is not None or not state.attribute:
            raise Refused("an assignment to something that is not a state", self._line)
        return state, None

    def _if_chain(self, statement: ast.Match, env: Env, frame: Frame) -> Env | None:
        """`match` over constants and wildcards, as `if`s."""
        subject = self.name(".subject")
        env[subject] = self._fixed(self._expr(statement.subject, env, frame))
        chain: list[ast.stmt] = []
        for case in reversed(statement.cases):
            test = pattern_test(case.pattern, subject)
            body: list[ast.stmt] = list(case.body)
            if isinstance(case.pattern, ast.MatchAs) and case.pattern.name is not None:
                body.insert(0, _assignment(case.pattern.name, subject, statement))
            if case.guard is not None:
                if isinstance(case.pattern, ast.MatchAs) and case.pattern.name is not None:
                    raise Refused("a `case` that names what it tests", case.pattern.lineno)
                test = case.guard if test is None else ast.BoolOp(ast.And(), [test, case.guard])
            chain = body if test is None else [ast.copy_location(ast.If(test, body, chain), statement)]
        for node in chain:
            ast.fix_missing_locations(node)
        return self._block(chain, env, frame)

    # --- loops ------------------------------------------------------------------------------------

    def _while(self, node: ast.While, env: Env, frame: Frame) -> Env | None:
        def head(inner: Env) -> str:
            return self._test(node.test, inner, frame)

        return self._loop(node, head, lambda inner: None, env, frame)

    def _for(self, node: ast.For, env: Env, frame: Frame) -> Env | None:
        listing = self._listing
        try:
            rounds = self._rounds(node.iter, env, frame)
            if isinstance(rounds, list):
                if len(rounds) > _UNROLLED:
                    raise Refused(f"a loop over {len(rounds)} values", node.lineno)
                return self._unrolled(node, rounds, env, frame)
            return self._counted(node, rounds, env, frame)
        finally:
            self._listing = listing  # what it went over is not needed any more

    def _counted(self, node: ast.For, rounds: Rounds, env: Env, frame: Frame) -> Env | None:
        """A loop whose number of rounds is known where it begins."""
        counter = self.name(".n")
        env = {**env, counter: Value("int", "0", const=0)}

        def place(inner: Env) -> Value:
            found = inner[counter]
            assert isinstance(found, Value)
            return found

        def bind(inner: Env) -> None:
            now = place(inner)
            inner[counter] = self.temp("int", f"{now.code} + 1")
            self._assign(node.target, self._fixed(rounds.item(now)), inner, frame)

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
            mark = self._mark()
            level: Level | None = None
            try:
                level = self._begin(shapes, env)
                level.hidden = frozenset(more)
                return self._written(level, node, head, bind, env, frame)
            except Widened as wider:
                if wider.level is not level:
                    raise
                self._rollback(mark)
                shapes[wider.name] = wider.shape
        raise Refused("a loop that changes the types of its variables", node.lineno)

    def _begin(self, shapes: Mapping[str, Value], env: Env) -> Level:
        """Begin a loop with the variables that it carries from round to round."""
        carried = {name: variables(shape, self.name("carried")) for name, shape in shapes.items()}
        pairs: list[tuple[Join | Value, Value]] = []
        for name, variable in carried.items():
            value = env[name]
            assert isinstance(value, Value)
            pairs.append((variable, value))
        self._moves(pairs)
        self._loops += 1
        level = self._open(user=True)
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
            self.line(f"if not {test}:")
            self._nested_lines(lambda: self._else(level, node.orelse, dict(inner), frame))
        self.round_begins()
        bind(inner)
        left = self._block(node.body, inner, frame)
        if left is not None:
            self._carry(level, left)
        self._close(level)
        self._loops -= 1
        return self._met(level.outs)

    def _else(self, level: Level, orelse: Sequence[ast.stmt], env: Env, frame: Frame) -> None:
        """The loop's end without `break`."""
        level.user = False  # `break` in it means an outer loop
        left = self._block(orelse, env, frame)
        level.user = True
        if left is not None:
            self._out(level, left)
            self._leave(level)

    def _carry(self, level: Level, env: Env) -> None:
        """At the end of a round: its variables for the next one."""
        pairs: list[tuple[Join | Value, Value]] = []
        for name, variable in level.carried.items():
            value = env.get(name)
            if not isinstance(value, Value):
                raise Refused(f"the loop changes the type of {name}", self._line)
            shape = common(variable, value) or common(level.begun[name], value)  # it may have begun with 0
            if shape is None or value.kind == "list":
                raise Refused(f"the loop changes {name} from {variable.text} to {value.text}", self._line)
            if shape.shape != variable.shape:
                raise Widened(level, name, shape)
            pairs.append((variable, value))
        self._moves(pairs)

    def _out(self, level: Level, env: Env) -> None:
        """A way out of a loop."""
        level.outs.append(({n: v for n, v in env.items() if n not in level.hidden}, self._moves()))

    def _user_loop(self) -> Level:
        return next(level for level in reversed(self._levels) if level.user)

    def _break(self, env: Env) -> None:
        level = self._user_loop()
        self._out(level, env)
        self._leave(level)

    def _continue(self, env: Env) -> None:
        level = self._user_loop()
        if level.again is not None:
            self._out(level.again, env)
            self._leave(level.again)
            return
        self._carry(level, env)
        inner = self._levels[-1]
        if inner is level:
            self.line("continue")
            return
        raise Refused("`continue` in this place", self._line)

    def _unrolled(self, node: ast.For, rounds: Sequence[Value], env: Env, frame: Frame) -> Env | None:
        """A loop over a tuple: its rounds one after the other."""
        jumps = any(isinstance(n, ast.Break | ast.Continue) for n in ast.walk(node))
        left: Env | None = env
        if not jumps:
            for item in rounds:
                if left is not None:
                    self._assign(node.target, item, left, frame)
                    left = self._block(node.body, left, frame)
            return left if left is None else self._block(node.orelse, left, frame)
        level = self._open(user=True)
        for item in rounds:
            if left is None:
                break
            level.again = self._open()
            level.again.user = False
            self._assign(node.target, item, left, frame)
            left = self._block(node.body, left, frame)
            if left is not None:
                self._out(level.again, left)
                self.line("break")
            self._close(level.again)
            left = self._met(level.again.outs)
        level.again, level.user = None, False
        if left is not None:
            left = self._block(node.orelse, left, frame)
        if left is not None:
            self._out(level, left)
            self.line("break")
        self._close(level)
        return self._met(level.outs)


def _assignment(name: str, value: str, like: ast.AST) -> ast.stmt:
    made = ast.Assign([ast.Name(name, ast.Store())], ast.Name(value, ast.Load()))
    return ast.fix_missing_locations(ast.copy_location(made, like))


__all__ = ["Bound", "Statements"]


def _is_list(value: Bound) -> bool:
    return isinstance(value, Value) and value.kind == "list"
