"""Small questions to the syntax of calls and assignments."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from functools import lru_cache
from typing import Any


@lru_cache(maxsize=256)
def signature(function: Callable[..., Any]) -> tuple[list[str], dict[str, Any]]:
    """The names of a method's parameters (after self) that have a place, and the defaults among them."""
    found = list(inspect.signature(function).parameters.values())[1:]
    parameters = [p for p in found if p.kind is not p.KEYWORD_ONLY]
    return [p.name for p in parameters], {p.name: p.default for p in parameters if p.default is not p.empty}


def children(node: ast.expr) -> list[ast.expr]:
    """The arguments of a call, in the order of evaluation."""
    if not isinstance(node, ast.Call):
        return []
    return [*node.args, *(k.value for k in node.keywords)]


def tuple_of(node: ast.Call, parts: list[ast.expr]) -> ast.Tuple:
    """The key of an operation that is given it in parts: one tree per call, however often it is asked for."""
    found = getattr(node, "_tl_key", None)
    if isinstance(found, ast.Tuple):
        return found
    made = ast.copy_location(ast.Tuple(parts, ast.Load()), node)
    node._tl_key = made  # type: ignore[attr-defined]
    return made
