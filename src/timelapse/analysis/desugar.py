"""Statements rewritten into simpler ones with the same meaning, before the graph is built.

- `a and self.f()` as a statement becomes an `if`;
- `del a, b` becomes two statements;
- `return self.reject(...)` becomes `self.reject(...)`;
- an assignment with several targets, one of them a state, goes through locals.

The syntax tree that is given is shared and stays as it is; what is not rewritten is shared with it.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T", bound=ast.AST)
IsState = Callable[[ast.AST], bool]


class Desugar:
    """Rewrites the statements of one function. `is_state`: whether an expression is `self.X`, a state."""

    def __init__(self, receiver: str | None, is_state: IsState) -> None:
        self._receiver = receiver
        self._is_state = is_state
        self._count = 0

    def block(self, body: Sequence[ast.stmt]) -> list[ast.stmt]:
        """A block, rewritten; a leading docstring stays."""
        return [new for s in body for new in self._statement(s)]

    def _statement(self, node: ast.stmt) -> list[ast.stmt]:
        match node:
            case ast.Expr(value=ast.BoolOp(op=op, values=values)):
                test: ast.expr = values[0]
                rest = values[1] if len(values) == 2 else _at(ast.BoolOp(op, values[1:]), node)
                if isinstance(op, ast.Or):
                    test = _at(ast.UnaryOp(ast.Not(), test), node)
                return [_at(ast.If(test, self._statement(_at(ast.Expr(rest), node)), []), node)]
            case ast.Expr(value=ast.IfExp(test=test, body=body, orelse=orelse)):
                yes = self._statement(_at(ast.Expr(body), node))
                no = self._statement(_at(ast.Expr(orelse), node))
                return [_at(ast.If(test, yes, no), node)]
            case ast.Return(value=ast.Call() as call) if self.is_reject(call):
                return [_at(ast.Expr(call), node)]
            case ast.Delete(targets=targets) if len(targets) > 1:
                return [_at(ast.Delete([t]), node) for t in targets]
            case ast.Assign(targets=targets, value=value) if any(self._mentions(t) for t in targets):
                return self._assign(node, targets, value)
            case ast.If(test=test, body=body, orelse=orelse):
                return [_at(ast.If(test, self.block(body), self.block(orelse)), node)]
            case ast.While(test=test, body=body, orelse=orelse):
                return [_at(ast.While(test, self.block(body), self.block(orelse)), node)]
            case ast.For(target=target, iter=it, body=body, orelse=orelse):
                return [_at(ast.For(target, it, self.block(body), self.block(orelse)), node)]
            case ast.With(items=items, body=body):
                return [_at(ast.With(items, self.block(body)), node)]
            case ast.Try(body=body, handlers=handlers, orelse=orelse, finalbody=final):
                caught = [_at(ast.ExceptHandler(h.type, h.name, self.block(h.body)), h) for h in handlers]
                made = ast.Try(self.block(body), caught, self.block(orelse), self.block(final))
                return [_at(made, node)]
            case ast.Match(subject=subject, cases=cases):
                return [_at(ast.Match(subject, [
                    ast.match_case(c.pattern, c.guard, self.block(c.body)) for c in cases
                ]), node)]  # fmt: skip
        return [node]

    def is_reject(self, node: ast.AST) -> bool:
        """Whether it is `self.reject(...)`."""
        return (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "reject"
            and isinstance(node.func.value, ast.Name)
            and node.func.value.id == self._receiver
        )

    def _mentions(self, target: ast.expr) -> bool:
        if isinstance(target, ast.Tuple | ast.List):
            return any(self._mentions(t) for t in target.elts)
        if isinstance(target, ast.Subscript):
            return self._is_state(target.value)
        return self._is_state(target)

    def _assign(self, node: ast.Assign, targets: list[ast.expr], value: ast.expr) -> list[ast.stmt]:
        if len(targets) == 1 and not isinstance(targets[0], ast.Tuple | ast.List):
            return [node]
        if len(targets) == 1:
            target = targets[0]
            assert isinstance(target, ast.Tuple | ast.List)
            plain = isinstance(value, ast.Tuple) and len(value.elts) == len(target.elts)
            if not plain or any(isinstance(e, ast.Starred) for e in (*target.elts, *value.elts)):  # type: ignore[attr-defined]
                return [node]
            names = [self._name() for _ in target.elts]
            first = [_assign(n, v, node) for n, v in zip(names, value.elts, strict=True)]  # type: ignore[attr-defined]
            then = [s for t, n in zip(target.elts, names, strict=True) for s in self._to(t, n, node)]
            return [*first, *then]
        name = self._name()
        return [_assign(name, value, node), *(s for t in targets for s in self._to(t, name, node))]

    def _to(self, target: ast.expr, name: str, node: ast.Assign) -> list[ast.stmt]:
        return self._statement(_at(ast.Assign([target], _at(ast.Name(name, ast.Load()), node)), node))

    def _name(self) -> str:
        self._count += 1
        return f"_tl_{self._count}"


def _assign(name: str, value: ast.expr, node: ast.AST) -> ast.Assign:
    return _at(ast.Assign([_at(ast.Name(name, ast.Store()), node)], value), node)


def _at(new: T, old: ast.AST) -> T:
    return ast.copy_location(new, old)
