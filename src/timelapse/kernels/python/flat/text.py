"""Statements and expressions from text, at the place of what they stand for.

Errors then name the user's file, line and text, as if the handler ran as it is written.
"""

from __future__ import annotations

import ast
import copy
from functools import lru_cache
from typing import Any


@lru_cache(maxsize=4096)
def _parsed(text: str) -> ast.Module:
    return ast.parse(text)


class _Fill(ast.NodeTransformer):
    def __init__(self, like: ast.AST, parts: dict[str, ast.expr]) -> None:
        line, column = getattr(like, "lineno", 1), getattr(like, "col_offset", 0)
        self._place = {
            "lineno": line, "col_offset": column,
            "end_lineno": getattr(like, "end_lineno", None) or line,
            "end_col_offset": getattr(like, "end_col_offset", None) or column,
        }  # fmt: skip
        self._parts = parts

    def visit(self, node: ast.AST) -> Any:
        if isinstance(node, ast.Name) and node.id in self._parts:
            return copy.deepcopy(self._parts[node.id])
        if "lineno" in node._attributes:
            for name, value in self._place.items():
                setattr(node, name, value)
        return self.generic_visit(node)


def statements(text: str, like: ast.AST, **parts: ast.expr) -> list[ast.stmt]:
    """Statements in which the named parts stand for expressions."""
    made = copy.deepcopy(_parsed(text).body)
    fill = _Fill(like, parts)
    return [fill.visit(statement) for statement in made]


def expression(text: str, like: ast.AST, **parts: ast.expr) -> ast.expr:
    """The same for one expression."""
    (made,) = statements(text, like, **parts)
    assert isinstance(made, ast.Expr)
    return made.value
