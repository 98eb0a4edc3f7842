"""Running generated code without compiling it: as Python over NumPy scalars, whose integers wrap as Numba's do.

A hundred times faster to try than a compilation, it finds what is wrong with the generated text itself. What
Numba makes of it is for the compiled runs.
"""

from __future__ import annotations

import ast
import types
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np


class _Words(ast.NodeTransformer):
    """Integer literals become int64, so that no Python integer takes part in an operation."""

    def visit_Constant(self, node: ast.Constant) -> ast.expr:
        if type(node.value) is not int:
            return node
        where = {"lineno": node.lineno, "col_offset": node.col_offset}
        return ast.Call(ast.Name("int64_of", ast.Load(), **where), [node], [], **where)


@lru_cache(maxsize=256)
def emulated(text: str) -> Callable[..., Any]:
    """The function `run` of a pass's whole source, as Python."""
    tree = ast.parse(text)
    tree.body = [
        _Words().visit(n) if isinstance(n, ast.FunctionDef) and n.name == "run" else n for n in tree.body
    ]
    module = types.ModuleType("emulated")
    module.__dict__["int64_of"] = np.int64
    exec(compile(tree, "<emulated pass>", "exec"), module.__dict__)
    function = module.__dict__["run"]
    scalars = (int, float, bool)

    def call(*args: Any) -> Any:
        with np.errstate(all="ignore"):
            return function(*(np.asarray(a)[()] if isinstance(a, scalars) else a for a in args))

    return call
