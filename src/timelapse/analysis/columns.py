"""Which fields of an event code reads."""

from __future__ import annotations

import ast
import types
from collections.abc import Callable, Iterable
from functools import lru_cache

from timelapse.analysis.ir import FunctionIR
from timelapse.code.scope import Scope
from timelapse.code.source import all_nodes, function_source
from timelapse.model.events import Event

Body = Callable[[FunctionIR], ast.AST]
"""The (cut) syntax tree of an analysed function."""

EVERYTHING = "*"
_DYNAMIC = {"eval", "exec", "locals", "vars", "_getframe", "currentframe", "stack"}
"""Names through which a helper may reach its parameters without naming them."""


def fields_read(fn: FunctionIR, param: str, body: Body) -> frozenset[str]:
    """Attributes read of a parameter, through the functions it is passed to; `*` where it escapes."""
    return _fields(fn, param, body, set())


def _fields(fn: FunctionIR, param: str, body: Body, seen: set[tuple[FunctionIR, str]]) -> frozenset[str]:
    if (fn, param) in seen:
        return frozenset()
    seen.add((fn, param))
    if fn.opaque is not None:
        return frozenset({EVERYTHING})
    found: set[str] = set()
    scope = Scope.of(fn.function, fn.receiver)
    for use, call in _uses(body(fn), param):
        if call is None:
            found.add(use)
            continue
        callee = getattr(call, "_tl_callee", None)
        if isinstance(callee, FunctionIR):
            own = [p for p in callee.params if p != callee.receiver]
            given = [a for a in call.args if not (isinstance(a, ast.Name) and a.id == fn.receiver)]
            name = _parameter(own, given, call, param)
            found |= _fields(callee, name, body, seen) if name is not None else {EVERYTHING}
        else:
            found |= _of_helper(scope, call, param)
    return frozenset(found)


def _uses(tree: ast.AST, param: str) -> Iterable[tuple[str, ast.Call | None]]:
    """Each use of a name: an attribute that is read, or the call that it is handed to, or `*`."""
    handled: set[int] = set()
    for node in all_nodes(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == param:
            handled.add(id(node.value))
            yield node.attr, None
        elif isinstance(node, ast.Call):
            for argument in (*node.args, *(k.value for k in node.keywords)):
                if isinstance(argument, ast.Name) and argument.id == param:
                    handled.add(id(argument))
                    yield EVERYTHING, node
    for node in all_nodes(tree):
        if isinstance(node, ast.Name) and node.id == param and id(node) not in handled:
            yield EVERYTHING, None


def _parameter(params: list[str], given: list[ast.expr], call: ast.Call, name: str) -> str | None:
    """The one parameter that receives a name; None where that is not plain."""
    if any(isinstance(a, ast.Starred) for a in given) or any(k.arg is None for k in call.keywords):
        return None
    places = [i for i, a in enumerate(given) if isinstance(a, ast.Name) and a.id == name]
    named = [k.arg for k in call.keywords if isinstance(k.value, ast.Name) and k.value.id == name]
    if len(places) + len(named) != 1:
        return None
    if named:
        return named[0] if named[0] in params else None  # it may be taken by **kwargs
    return params[places[0]] if places[0] < len(params) else None


def _of_helper(scope: Scope, call: ast.Call, name: str) -> frozenset[str]:
    target = scope.resolve(call.func)
    if not isinstance(target, types.FunctionType):
        return frozenset({EVERYTHING})
    param = _parameter(_params_of(target), list(call.args), call, name)
    return frozenset({EVERYTHING}) if param is None else _of_function(target, param, 0)


def _params_of(function: types.FunctionType) -> list[str]:
    """The parameters that can be filled by place or by name."""
    return list(function.__code__.co_varnames[: function.__code__.co_argcount])


@lru_cache(maxsize=1024)
def _of_function(function: types.FunctionType, param: str, depth: int) -> frozenset[str]:
    """Attributes that a plain function reads of one of its parameters."""
    source = function_source(function, lambdas=True)
    if source.node is None or depth > 5 or _DYNAMIC & set(_all_names(function.__code__)):
        return frozenset({EVERYTHING})
    found: set[str] = set()
    scope = Scope.of(function)
    body = ast.Module(list(source.node.body), [])
    for use, call in _uses(body, param):
        target = scope.resolve(call.func) if call is not None else None
        if call is None:
            found.add(use)
        elif isinstance(target, types.FunctionType):
            name = _parameter(_params_of(target), list(call.args), call, param)
            found |= _of_function(target, name, depth + 1) if name is not None else {EVERYTHING}
        else:
            found.add(EVERYTHING)
    return frozenset(found)


def _all_names(code: types.CodeType) -> Iterable[str]:
    """The global names that a code object and those inside it use."""
    yield from code.co_names
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            yield from _all_names(const)


def columns_of(event: type[Event], attributes: Iterable[str]) -> tuple[str, ...]:
    """The declared fields among the attributes, in declared order; all where the event escapes."""
    names = [f.name for f in event.__fields__]
    wanted = set(attributes)
    if any(a not in names and a not in ("ts", "seq") for a in wanted):
        return tuple(names)
    return tuple(n for n in names if n in wanted)
