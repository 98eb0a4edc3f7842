"""Expressions in a handler, or in a method that it calls, as expressions of `self` and the event `e` alone."""

from __future__ import annotations

import ast
import builtins
import copy
import types
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from timelapse.analysis.depend import Graph
from timelapse.analysis.ir import FunctionIR, Vertex
from timelapse.code.source import all_nodes
from timelapse.errors import Place


class NotClosed(Exception):
    """It depends on something else: why."""


class Closed:
    """Makes an expression depend on `self` and the event `e` alone."""

    def __init__(
        self, graph: Graph, fn: FunctionIR, vertex: Vertex, event_name: str, place: Place,
        given: Mapping[str, ast.expr] | None = None,
    ) -> None:  # fmt: skip
        """`given`: what parameters stand for, in terms of `self` and `e`."""
        self._graph, self._fn, self._vertex, self._place = graph, fn, vertex, place
        self._event_name = event_name
        self._given = dict(given or {})
        self._bound = _bound_names(fn)
        function = fn.function
        free = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        self._cells: dict[str, Any] = {}
        for name, cell in free:
            try:
                self._cells[name] = cell.cell_contents
            except ValueError:
                continue
        self.free: dict[str, Any] = {}
        """Captured values that expressions use."""

    def expression(self, node: ast.expr, depth: int = 0) -> Any:
        """A copy with the names `self` and `e`. Raises NotClosed where it depends on something else."""
        if isinstance(node, ast.Lambda | ast.NamedExpr | ast.Starred | ast.Await | ast.Yield | ast.YieldFrom):
            raise NotClosed(f"the key is not computable beforehand ({self._place})")
        if isinstance(node, ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
            raise NotClosed(f"the key is not computable beforehand ({self._place})")
        if isinstance(node, ast.Name):
            return self._name(node, depth)
        if isinstance(node, ast.Attribute) and _is(node.value, self._fn.receiver or "self"):
            found = node.attr
            spec = self._graph.functions.spec
            if found not in spec.params and found not in spec.states and found != "now":
                raise NotClosed(f"the key needs self.{found} ({self._place})")
            if found in spec.states and depth:
                raise NotClosed(f"the key needs another state through a local ({self._place})")
        make: Any = type(node)
        made = make(**{name: self._part(value, depth) for name, value in ast.iter_fields(node)})
        return ast.copy_location(made, node)

    def _part(self, value: Any, depth: int) -> Any:
        """What stands in a field of a node."""
        if isinstance(value, list):
            return [self._part(v, depth) for v in value]
        if isinstance(value, ast.keyword):
            if value.arg is None:
                raise NotClosed(f"the key is not computable beforehand ({self._place})")
            return ast.copy_location(ast.keyword(value.arg, self._part(value.value, depth)), value)
        return self.expression(value, depth) if isinstance(value, ast.expr) else value

    def _name(self, node: ast.Name, depth: int) -> ast.expr:
        fn, name = self._fn, node.id
        if name == fn.receiver:
            return ast.copy_location(ast.Name("self", ast.Load()), node)
        if name == self._event_name and name not in self._bound:
            return ast.copy_location(ast.Name("e", ast.Load()), node)
        if name in self._given and name not in self._bound:
            return copy.deepcopy(self._given[name])
        if name in fn.params or name in self._bound:
            return self._local(node, depth)
        if name in self._cells:
            self.free[name] = self._cells[name]
        elif name not in fn.function.__globals__ and not hasattr(builtins, name):
            raise NotClosed(f"the key needs {name} ({self._place})")
        if name in ("self", "e"):
            raise NotClosed(f"the key needs a global name {name} ({self._place})")
        return ast.copy_location(ast.Name(name, ast.Load()), node)

    def _local(self, node: ast.Name, depth: int) -> ast.expr:
        """A local that is set once, to something that depends on the event alone."""
        fn, name = self._fn, node.id
        into = fn.reaching.get(self._vertex.node.index, {}).get(name, set())
        stores = [n for s in fn.body for n in all_nodes(s) if isinstance(n, ast.Name) and n.id == name
                  and not isinstance(n.ctx, ast.Load)]  # fmt: skip
        if len(into) == 1 and len(stores) == 1 and name not in fn.params and depth < 8:
            made = fn.nodes[next(iter(into))]
            value = None if made.guarded else _assigned(made.ast, name)
            match value:
                case ast.expr():
                    inner = Closed(self._graph, fn, made.main, self._event_name, self._place, self._given)
                    found: ast.expr = inner.expression(value, depth + 1)
                    self.free |= inner.free
                    return found
        raise NotClosed(f"the key needs the local {name} ({self._place})")

    def function(self, expression: ast.expr) -> types.FunctionType:
        """`(self, e) -> expression`, in the function's own globals."""
        return function_of(expression, self._fn.function, self.free)


def function_of(
    expression: ast.expr, like: types.FunctionType, free: Mapping[str, Any], name: str = "recorded"
) -> types.FunctionType:
    """A function of (self, e) that returns an expression: with another's globals, and these captured values."""
    body: list[ast.stmt] = [ast.Return(expression)]
    return closed_function(body, like, free, name)


def closed_function(
    body: list[ast.stmt], like: types.FunctionType, free: Mapping[str, Any], name: str
) -> types.FunctionType:
    """A function of (self, e) with this body."""
    empty = ast.arguments([], [ast.arg("self"), ast.arg("e")], None, [], [], None, [])
    inner = ast.FunctionDef(name, empty, body, [], None, None)
    outer = ast.FunctionDef(
        "_tl_scope", ast.arguments([], [ast.arg(n) for n in free], None, [], [], None, []),
        [inner, ast.Return(ast.Name(name, ast.Load()))], [], None, None,
    )  # fmt: skip
    module = ast.Module([outer], [])
    for node in all_nodes(module):
        if "lineno" in getattr(node, "_attributes", ()):
            node.lineno = node.end_lineno = like.__code__.co_firstlineno  # type: ignore[attr-defined]
            node.col_offset = node.end_col_offset = 0  # type: ignore[attr-defined]
    code = compile(module, like.__code__.co_filename, "exec", dont_inherit=True)
    scope = next(c for c in code.co_consts if isinstance(c, types.CodeType))
    made: types.FunctionType = types.FunctionType(scope, like.__globals__)(*free.values())
    made.__module__ = like.__module__
    made.__dict__["__tl_text__"] = ast.unparse(inner)
    return made


def _assigned(statement: ast.AST | None, name: str) -> ast.expr | None:
    """What an assignment gives a name: also one of several, `a, b = x, y`."""
    match statement:
        case ast.Assign(targets=[ast.Name()], value=value):
            return value
        case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=values)) if (
            len(names) == len(values)
            and all(isinstance(n, ast.Name) for n in names)
            and not any(isinstance(v, ast.Starred) for v in values)
        ):
            return next(
                v for n, v in zip(names, values, strict=True) if isinstance(n, ast.Name) and n.id == name
            )
    return None


def _is(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


@lru_cache(maxsize=16)
def _bound_names(fn: FunctionIR) -> frozenset[str]:
    """Every name that something in the function's body binds."""
    found: set[str] = set()
    for statement in fn.body:
        for node in all_nodes(statement):
            match node:
                case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
                    found.add(name)
                case ast.arg(arg=name) | ast.FunctionDef(name=name) | ast.ExceptHandler(name=str(name)):
                    found.add(name)
                case ast.Import(names=names) | ast.ImportFrom(names=names):
                    found |= {(a.asname or a.name).split(".")[0] for a in names}
                case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                    found.add(name)
                case ast.MatchMapping(rest=str(name)):
                    found.add(name)
    return frozenset(found)
