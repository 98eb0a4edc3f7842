"""Literals that functions are given get names, as constants have from the start (`values.spelled`)."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from timelapse.kernels.native.lowering.form import Assign, Do, For, If, Look, Node, While, parsed, walk
from timelapse.kernels.native.lowering.values import spelled


def with_names(body: Iterable[Node]) -> None:
    """Give names to the literals of statements."""
    for node in walk(body):
        match node:
            case Assign() | Do():
                node.code = named(node.code)
            case If() | While():
                node.test = named(node.test)
            case For():
                node.over = named(f"range({node.over})")[len("range(") : -1]
            case Look():
                node.key = tuple(map(_argument, node.key))


@lru_cache(maxsize=1 << 14)
def named(code: str) -> str:
    """An expression in which no function is given a literal integer or bool."""
    tree = parsed(code)
    if not any(_is_literal(a) for n in ast.walk(tree) if isinstance(n, ast.Call) for a in n.args):
        return code
    return ast.unparse(_Naming().visit(copy.deepcopy(tree)))


def _argument(code: str) -> str:
    """What a function is given."""
    tree = parsed(code)
    return ast.unparse(_name(tree)) if _is_literal(tree) else named(code)


class _Naming(ast.NodeTransformer):
    def visit_Call(self, node: ast.Call) -> ast.Call:
        self.generic_visit(node)
        node.args = [_name(a) if _is_literal(a) else a for a in node.args]
        return node


def _is_literal(node: ast.expr) -> bool:
    return _known(node) is not None


def _known(node: ast.expr) -> Any:
    """The value of a literal integer or bool; None for anything else."""
    match node:
        case ast.Constant(value=bool() | int() as value):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() as value)):
            return -value
    return None


def _name(node: ast.expr) -> ast.expr:
    value = _known(node)
    return ast.Name(str(value).upper() if isinstance(value, bool) else spelled(value), ast.Load())
