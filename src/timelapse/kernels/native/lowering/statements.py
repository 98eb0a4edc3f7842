"""Statements: assignments and branches."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import TYPE_CHECKING

from timelapse.kernels.native.lowering.code import Code
from timelapse.kernels.native.lowering.comparisons import present
from timelapse.kernels.native.lowering.context import Context, Frame
from timelapse.kernels.native.lowering.flow import Moves
from timelapse.kernels.native.lowering.scopes import leaves_always, pattern_test
from timelapse.kernels.native.lowering.stateful import States, is_self
from timelapse.kernels.native.lowering.states import StateCode
from timelapse.kernels.native.lowering.values import NONE, Env, Value
from timelapse.kernels.native.refused import Refused

if TYPE_CHECKING:
    from timelapse.kernels.native.lowering.rules import Rules


class Statements:
    """Writes statements."""

    def __init__(self, ctx: Context, code: Code, states: States, rules: Rules) -> None:
        self._ctx, self._code, self._states, self._rules = ctx, code, states, rules

    def block(self, body: Sequence[ast.stmt], env: Env, frame: Frame) -> Env | None:
        """Write statements; the names after them, or None where nothing comes after them."""
        with self._code.taking.standing():
            return self._statements(body, env, frame)

    def _statements(self, body: Sequence[ast.stmt], env: Env, frame: Frame) -> Env | None:
        for place, statement in enumerate(body):
            self._ctx.line = getattr(statement, "lineno", self._ctx.line)
            self._code.taking.stand_at(statement, frame)
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
                    refusal.line = self._ctx.line
                if not refusal.file:
                    refusal.file = self._ctx.file
                raise
            if left is None:
                return None
            env = left
        return env

    def _if(
        self, test: ast.expr, yes: Sequence[ast.stmt], no: Sequence[ast.stmt], env: Env, frame: Frame
    ) -> Env | None:
        code = self._rules.test(test, env, frame)
        if code in ("True", "False"):
            return self.block(yes if code == "True" else no, dict(env), frame)
        return self._branches(code, yes, no, env, frame)

    def _branches(
        self, test: str, yes: Sequence[ast.stmt], no: Sequence[ast.stmt], env: Env, frame: Frame
    ) -> Env | None:
        ways: list[tuple[Env, Moves]] = []

        def way(body: Sequence[ast.stmt]) -> None:
            left = self.block(body, dict(env), frame)
            if left is not None:
                ways.append((left, self._code.moves()))

        with self._code.when(test):
            way(yes)
        with self._code.otherwise():
            way(no)
        return self._code.met(ways)

    # --- statements -------------------------------------------------------------------------------

    def _statement(self, statement: ast.stmt, env: Env, frame: Frame) -> Env | None:
        match statement:
            case ast.Pass() | ast.Expr(value=ast.Constant()):
                pass
            case ast.Raise():
                self._rules.raises(statement, env, frame)
                return None
            case (
                ast.Expr(value=ast.Call(func=ast.Attribute(attr="reject", value=owner)) as call)
                | ast.Return(value=ast.Call(func=ast.Attribute(attr="reject", value=owner)) as call)
            ) if is_self(owner, env):
                self._rules.reject(call, env, frame)
                return None
            case ast.Return(value=value):
                self._rules.return_(NONE if value is None else self._rules.expr(value, env, frame), frame)
                return None
            case ast.Expr(value=ast.Call() as call):
                self._rules.call_expr(call, env, frame)
            case ast.Expr(value=value):
                self._rules.expr(value, env, frame)
            case ast.Assign(targets=targets, value=value):
                found = self._code.fixed(self._rules.expr(value, env, frame))
                for target in targets:
                    self.assign(target, found, env, frame)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                self.assign(target, self._code.fixed(self._rules.expr(value, env, frame)), env, frame)
            case ast.AnnAssign(value=None):
                pass
            case ast.AugAssign(target=ast.Name(id=name) as target, op=op, value=value):
                old = self._rules.variable(name, env, frame)
                right = self._rules.expr(value, env, frame)
                made = ast.copy_location(ast.BinOp(target, op, value), statement)
                env[name] = self._rules.operated(made, old, right, env, frame)
            case ast.AugAssign(target=ast.Subscript() | ast.Attribute() as target, op=op, value=value):
                state, key = self._target(target, env, frame)
                calls = any(isinstance(n, ast.Call) for n in ast.walk(value))
                state.change(key, op, lambda: self._rules.expr(value, env, frame), writes=calls)
            case ast.Delete(targets=targets):
                for target in targets:
                    self._delete(target, env, frame)
            case ast.Assert(test=test):
                code = self._rules.test(test, env, frame)
                if code != "True":
                    self._rules.asserts(statement, f"not {code}", env, frame)
            case ast.While():
                return self._rules.while_(statement, env, frame)
            case ast.For():
                return self._rules.for_(statement, env, frame)
            case ast.Break():
                self._rules.break_(env)
                return None
            case ast.Continue():
                self._rules.continue_(env)
                return None
            case ast.Match():
                return self._if_chain(statement, env, frame)
            case _:
                word = type(statement).__name__.lower().removesuffix("star")
                raise Refused(f"the statement `{word}`", statement.lineno)
        return env

    def _delete(self, target: ast.expr, env: Env, frame: Frame) -> None:
        if isinstance(target, ast.Name):
            self._rules.variable(target.id, env, frame)
            env.pop(target.id, None)
        else:
            state, key = self._target(target, env, frame)
            state.delete(key)

    def assign(self, target: ast.expr, value: Value, env: Env, frame: Frame) -> None:
        match target:
            case ast.Name(id=name):
                env[name] = value
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                value = present(self._code, value)
                if value.kind != "tuple" or any(isinstance(p, ast.Starred) for p in parts):
                    raise Refused(f"unpacking {value.text}", self._ctx.line)
                if len(parts) != len(value.items):
                    raise Refused(
                        f"unpacking {len(value.items)} values to {len(parts)} names", self._ctx.line
                    )
                for part, item in zip(parts, value.items, strict=True):
                    self.assign(part, item, env, frame)
            case ast.Subscript() | ast.Attribute():
                state, key = self._target(target, env, frame)
                state.set(key, value)
            case _:
                raise Refused("this assignment", self._ctx.line)

    def _target(self, target: ast.expr, env: Env, frame: Frame) -> tuple[StateCode, Value | None]:
        """The state, and the key's value if it has one, of `self.x[k]` or `self.x`."""
        if isinstance(target, ast.Subscript):
            state = self._states.of(target.value, env)
            if state is not None:
                return state, self._code.fixed(self._rules.expr(target.slice, env, frame))
        state = self._states.of(target, env)
        if state is None or state.spec.key is not None or not state.attribute:
            raise Refused("an assignment to something that is not a state", self._ctx.line)
        return state, None

    def _if_chain(self, statement: ast.Match, env: Env, frame: Frame) -> Env | None:
        """`match` over constants and wildcards, as `if`s."""
        subject = self._code.name(".subject")
        env[subject] = self._code.fixed(self._rules.expr(statement.subject, env, frame))
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
        return self.block(chain, env, frame)


def _assignment(name: str, value: str, like: ast.AST) -> ast.stmt:
    made = ast.Assign([ast.Name(name, ast.Store())], ast.Name(value, ast.Load()))
    return ast.fix_missing_locations(ast.copy_location(made, like))
