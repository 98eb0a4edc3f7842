"""Finding the source of a function, and making sure that it is the source of the code that runs."""

from __future__ import annotations

import ast
import inspect
import linecache
import types
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class FunctionSource:
    """A function's syntax tree (line numbers are the file's), or why there is none."""

    file: str
    line: int
    node: FunctionNode | None
    problem: str | None = None


@lru_cache(maxsize=64)
def _module(file: str, text: str) -> tuple[ast.Module, dict[tuple[str, int], types.CodeType]] | str:
    """A file's tree, and all code objects that compiling it gives, by (qualified name, first line)."""
    try:
        tree = ast.parse(text, file)
        code = compile(text, file, "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        return str(error)
    found: dict[tuple[str, int], types.CodeType] = {}
    todo: list[types.CodeType] = [code]
    while todo:
        for const in todo.pop().co_consts:
            if isinstance(const, types.CodeType):
                found[(const.co_qualname, const.co_firstlineno)] = const
                todo.append(const)
    return tree, found


def _same(a: types.CodeType, b: types.CodeType) -> bool:
    """Whether two code objects do the same (positions and file names aside)."""
    if (a.co_code, a.co_names, a.co_varnames, a.co_freevars, a.co_cellvars, a.co_flags, a.co_argcount) != (
        b.co_code, b.co_names, b.co_varnames, b.co_freevars, b.co_cellvars, b.co_flags, b.co_argcount,
    ):  # fmt: skip
        return False
    if len(a.co_consts) != len(b.co_consts):
        return False
    return all(_same_const(x, y) for x, y in zip(a.co_consts, b.co_consts, strict=True))


def _same_const(x: Any, y: Any) -> bool:
    if isinstance(x, types.CodeType):
        return isinstance(y, types.CodeType) and _same(x, y)
    if type(x) is not type(y):
        return False
    if isinstance(x, tuple):
        return len(x) == len(y) and all(map(_same_const, x, y))
    if isinstance(x, frozenset):  # equal ones may list their elements in different orders
        return sorted(map(repr, x)) == sorted(map(repr, y))
    return repr(x) == repr(y)


@lru_cache(maxsize=4096)
def _find(code: types.CodeType, file: str, text: str) -> FunctionSource:
    line = code.co_firstlineno
    parsed = _module(file, text)
    if isinstance(parsed, str):
        return FunctionSource(file, line, None, f"its file does not parse: {parsed}")
    tree, codes = parsed
    compiled = codes.get((code.co_qualname, line))
    if compiled is None:  # the body of a cell or of exec: compiled without an enclosing scope
        compiled = next((c for (_, n), c in codes.items() if n == line and c.co_name == code.co_name), None)
    if compiled is None or not _same(code, compiled):
        return FunctionSource(file, line, None, "its source differs from the code that runs")
    for node in ast.walk(tree):
        if isinstance(node, FunctionNode) and node.name == code.co_name:
            first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            if first == line:
                return FunctionSource(file, line, node)
    return FunctionSource(file, line, None, "its definition was not found")


def function_source(function: types.FunctionType) -> FunctionSource:
    """The source of a function. `node` is None (with `problem`) where it cannot be trusted."""
    code = function.__code__
    file = inspect.getsourcefile(function) or code.co_filename
    lines = linecache.getlines(file, function.__globals__)
    if not lines:
        return FunctionSource(file, code.co_firstlineno, None, "its source is not available")
    return _find(code, file, "".join(lines))
