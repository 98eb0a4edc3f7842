"""Statements of the compiler's form, from their text."""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Sequence

from timelapse.kernels.native.lowering import form

_LOOK = re.compile(r"(find|look|claim|own)([123])$")


def nodes(text: str) -> list[form.Node]:
    """The statements that Python spells so. A call of `find1` and the like is a look-up, `u = save(...)` saves a row."""
    return _block(ast.parse(textwrap.dedent(text)).body)


def _block(body: Sequence[ast.stmt]) -> list[form.Node]:
    return [_node(statement) for statement in body if not isinstance(statement, ast.Pass)]


def _node(statement: ast.stmt) -> form.Node:
    text = ast.unparse
    match statement:
        case ast.Assign(targets=[target], value=ast.Call(func=ast.Name(id="save"), args=args)):
            assert isinstance(target, ast.Name)
            return form.Save(text(args[4]), 0, 0, 2, 1)
        case ast.Assign(targets=[target], value=ast.Call(func=ast.Name(id=name), args=[table, *rest])) if (
            found := _LOOK.match(name)
        ):
            key = tuple(map(text, rest[-int(found[2]) :]))
            return form.Look(text(target), found[1], int(text(table)[1:]), key)
        case ast.Assign(targets=[target], value=value):
            return form.Assign(text(target), text(value))
        case ast.AugAssign(target=target, op=ast.Add(), value=value):
            return form.Assign(text(target), text(value), "+=")
        case ast.Expr(value=value):
            return form.Do(text(value))
        case ast.If(test=test, body=body, orelse=orelse):
            chained = len(orelse) == 1 and isinstance(orelse[0], ast.If)
            return form.If(text(test), _block(body), _block(orelse) if orelse else None, chained)
        case ast.While(test=test, body=body):
            return form.While(text(test), _block(body))
        case ast.For(target=target, iter=ast.Call(args=args), body=body):
            return form.For(text(target), ", ".join(map(text, args)), _block(body))
        case ast.Break():
            return form.Break()
        case ast.Continue():
            return form.Continue()
        case ast.Return(value=ast.Constant(value=int() as reason)):
            return form.Leave(reason)
    raise TypeError(text(statement))
