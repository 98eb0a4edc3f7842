"""Finding the source of a function, and making sure that it is the source of the code that runs."""

from __future__ import annotations

import ast
import dis
import inspect
import linecache
import types
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from timelapse.depth import roomy

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef
_LAMBDA = "<lambda>"


@dataclass(frozen=True)
class FunctionSource:
    """A function's syntax tree (line numbers are the file's), or why there is none."""

    file: str
    line: int
    node: FunctionNode | None
    problem: str | None = None


@roomy
@lru_cache(maxsize=8)
def tree_of(file: str, text: str) -> ast.Module:
    """A file's tree, which nobody may change. Kept, because every declaration in it is looked up there."""
    return ast.parse(text, file)


@dataclass(frozen=True)
class _Module:
    """A file's tree and all code objects that compiling it gives."""

    tree: ast.Module
    codes: dict[tuple[str, int], types.CodeType]
    """By qualified name and first line."""
    lambdas: dict[int, list[types.CodeType]]
    """By line."""
    functions: dict[tuple[str, int], FunctionNode]
    """By name and first line, which a decorator may be on."""


@roomy
@lru_cache(maxsize=64)
def _module(file: str, text: str) -> _Module | str:
    """What a file holds, or why it does not parse."""
    try:
        tree = tree_of(file, text)
        code = compile(text, file, "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        return str(error)
    found: dict[tuple[str, int], types.CodeType] = {}
    lambdas: dict[int, list[types.CodeType]] = {}
    todo: list[types.CodeType] = [code]
    while todo:
        for const in todo.pop().co_consts:
            if isinstance(const, types.CodeType):
                found[(const.co_qualname, const.co_firstlineno)] = const
                if const.co_name == _LAMBDA:
                    lambdas.setdefault(const.co_firstlineno, []).append(const)
                todo.append(const)
    functions: dict[tuple[str, int], FunctionNode] = {}
    for node in statements(tree):
        if isinstance(node, FunctionNode):
            functions.setdefault(
                (node.name, min([node.lineno, *(d.lineno for d in node.decorator_list)])), node
            )
    return _Module(tree, found, lambdas, functions)


def all_nodes(root: ast.AST) -> Iterator[ast.AST]:
    """`ast.walk` in half of its time; without the contexts of names (`ast.Load` and its like), which nobody looks for."""
    found = [root]
    for node in found:
        for name in node._fields:
            if name != "ctx":
                value = getattr(node, name, None)
                if isinstance(value, ast.AST):
                    found.append(value)
                elif isinstance(value, list):
                    found += [v for v in value if isinstance(v, ast.AST)]
        yield node


def statements(root: ast.AST) -> Iterator[ast.stmt]:
    """All statements below a node, in the order of `ast.walk`; expressions, which are most of a tree, are not gone through."""
    found = [root]
    for node in found:
        if isinstance(node, ast.stmt) and node is not root:
            yield node
        for name in _INNER:
            value = getattr(node, name, None)
            if isinstance(value, list):  # an expression's body is none
                found += value


_INNER = ("body", "handlers", "cases", "orelse", "finalbody")


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
    if code.co_name == _LAMBDA:
        return _find_lambda(code, file, parsed.tree, parsed.lambdas.get(line, []))
    compiled = parsed.codes.get((code.co_qualname, line))
    if compiled is None:  # the body of a cell or of exec: compiled without an enclosing scope
        there = parsed.codes.items()
        compiled = next((c for (_, n), c in there if n == line and c.co_name == code.co_name), None)
    if compiled is None or not _same(code, compiled):
        return FunctionSource(file, line, None, "its source differs from the code that runs")
    node = parsed.functions.get((code.co_name, line))
    return FunctionSource(file, line, node, None if node else "its definition was not found")


def _find_lambda(
    code: types.CodeType, file: str, tree: ast.Module, compiled: list[types.CodeType]
) -> FunctionSource:
    """The lambda on its line of which a code object was made, as a definition that returns what it does.

    A line may have several, of the same name: which one it is follows from the columns that its instructions come from.
    """
    line, spans = code.co_firstlineno, _spans(code)
    if not spans:
        return FunctionSource(file, line, None, "a lambda, and its code does not say where in its line it is")
    if not any(_same(code, c) and _spans(c) == spans for c in compiled):
        return FunctionSource(file, line, None, "its source differs from the code that runs")
    first, last = min(s[:2] for s in spans), max(s[2:] for s in spans)
    found = []
    for node in all_nodes(tree):
        if isinstance(node, ast.Lambda) and node.lineno == line:
            start = node.body.lineno, node.body.col_offset
            end = node.body.end_lineno or 0, node.body.end_col_offset or 0
            if start <= first and last <= end:
                found.append((start, node))
    if not found:
        return FunctionSource(file, line, None, "a lambda, and it was not found in its line")
    # Lambdas around it contain it, too. None inside it does: what makes those begins before their bodies.
    node = max(found, key=lambda f: f[0])[1]
    returned = ast.copy_location(ast.Return(node.body), node.body)
    made = ast.FunctionDef(_LAMBDA, node.args, [returned], [])
    return FunctionSource(file, line, ast.copy_location(made, node))


def _spans(code: types.CodeType) -> frozenset[tuple[int, int, int, int]]:
    """Where in the file a code object's instructions come from: first line and column, last line and column."""
    found = set()
    for instruction in dis.get_instructions(code):
        at = instruction.positions
        if at is None or at.lineno is None:  # what makes room for captured variables
            continue
        place = at.lineno, at.col_offset, at.end_lineno, at.end_col_offset
        if None in place:
            return frozenset()
        if place[:2] != place[2:]:  # else it comes from no expression: a function's first and last ones
            found.add(place)
    return frozenset(found)  # type: ignore[arg-type]


def wrapped(value: Any) -> Any:
    """What a decorator keeps as `__wrapped__`, without asking an object that makes up its attributes; None if nothing."""
    own = getattr(value, "__dict__", None)
    return own.get("__wrapped__") if isinstance(own, dict) else None


def function_source(function: types.FunctionType, *, lambdas: bool = False) -> FunctionSource:
    """The source of a function. `node` is None (with `problem`) where it cannot be trusted.

    `lambdas`: also of a lambda, for those who read functions and do not write them anew.
    """
    code = function.__code__
    file = inspect.getsourcefile(function) or code.co_filename
    if code.co_name == _LAMBDA and not lambdas:
        return FunctionSource(file, code.co_firstlineno, None, "it is a lambda")
    lines = linecache.getlines(file, function.__globals__)
    if not lines:
        return FunctionSource(file, code.co_firstlineno, None, "its source is not available")
    return _find(code, file, "".join(lines))
