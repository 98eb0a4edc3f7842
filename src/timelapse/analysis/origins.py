"""From which fields of an event the parts of a key can come.

For `pair(e.a, e.b)` both parts are one of `a` and `b`, whichever order the helper finds. So the events that can touch
a key are found by comparing columns, without running anything. What is not followed can be anything: that finds too
many events, never too few.
"""

from __future__ import annotations

import ast
import builtins
import types
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from timelapse.code.source import all_nodes, function_source
from timelapse.model.events import Event

_DEEP = 6
"""Calls of helpers within helpers that are followed."""


@dataclass(frozen=True)
class Origins:
    """What a plain value can be: one of these fields of the event, or one of these constants."""

    fields: frozenset[str]
    constants: tuple[Any, ...] = ()

    def __or__(self, other: Origins) -> Origins:
        return Origins(self.fields | other.fields, (*self.constants, *other.constants))


Part = Origins | None
"""None: anything."""
_Value = Part | tuple["_Value", ...]


def origins(
    key: ast.expr, width: int | None, params: Mapping[str, Any], names: Mapping[str, Any]
) -> list[Part]:
    """For each part of a key over `self` and `e` what it can be; `width`: of a tuple key (None: one plain value).

    `names` are the globals of the function that the key stands in.
    """
    value = _Reader(params, names, 0).value(key, {})
    if width is None:
        return [None if isinstance(value, tuple) else value]
    if not isinstance(value, tuple) or len(value) != width:
        return [None] * width
    return [None if isinstance(part, tuple) else part for part in value]


class _Reader:
    def __init__(self, params: Mapping[str, Any], names: Mapping[str, Any], depth: int) -> None:
        self._params, self._names, self._depth = params, names, depth

    def value(self, node: ast.expr, local: Mapping[str, _Value]) -> _Value:
        """What an expression can be; `local` has what local names can be (self and e are no locals of a key)."""
        match node:
            case ast.Constant(value=value):
                return Origins(frozenset(), (value,))
            case ast.Name(id=name) if name in local:
                return local[name]
            case ast.Attribute(value=ast.Name(id="e"), attr=field) if not self._depth:
                return Origins(frozenset({field}))
            case ast.Attribute(value=ast.Name(id="self"), attr=name) if (
                not self._depth and name in self._params
            ):
                return Origins(frozenset(), (self._params[name],))
            case ast.Attribute(
                value=ast.Call(func=ast.Name(id=made), args=[], keywords=given), attr=field
            ) if _is_event(self._names.get(made)):  # of an event that is sent
                return next((self.value(k.value, local) for k in given if k.arg == field), None)
            case ast.Tuple(elts=items) if not any(isinstance(i, ast.Starred) for i in items):
                return tuple(self.value(i, local) for i in items)
            case ast.IfExp(body=body, orelse=other):
                return _either(self.value(body, local), self.value(other, local))
            case ast.BoolOp(values=values):
                return _any([self.value(v, local) for v in values])
            case ast.Subscript(value=of, slice=ast.Constant(value=int(at))):
                whole = self.value(of, local)
                return whole[at] if isinstance(whole, tuple) and -len(whole) <= at < len(whole) else None
            case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name not in local:
                if any(isinstance(a, ast.Starred) for a in args):
                    return None
                return self._call(name, [self.value(a, local) for a in args])
        return None

    def _call(self, name: str, args: list[_Value]) -> _Value:
        called = self._names.get(name, getattr(builtins, name, None))
        if called in (min, max):
            items = list(args[0]) if len(args) == 1 and isinstance(args[0], tuple) else args
            return None if len(args) == 1 and not isinstance(args[0], tuple) else _any(items)
        if called is sorted and len(args) == 1 and isinstance(args[0], tuple):
            return (_any(list(args[0])),) * len(args[0])
        if called is tuple and len(args) == 1 and isinstance(args[0], tuple):
            return args[0]
        if isinstance(called, types.FunctionType) and self._depth < _DEEP:
            return self._helper(called, args)
        return None

    def _helper(self, function: types.FunctionType, args: list[_Value]) -> _Value:
        """What a helper can return, whichever way it takes."""
        node = function_source(function, lambdas=True).node
        if not isinstance(node, ast.FunctionDef) or node.decorator_list or function.__closure__:
            return None
        given = node.args
        if (
            given.vararg
            or given.kwarg
            or given.kwonlyargs
            or len(args) != len(given.posonlyargs + given.args)
        ):
            return None
        found: dict[str, _Value] = {}
        for parameter, value in zip(given.posonlyargs + given.args, args, strict=True):
            found[parameter.arg] = value
        inside = _Reader(self._params, function.__globals__, self._depth + 1)
        returned: list[_Value] = []
        return _any(returned) if inside._body(node.body, found, returned) and returned else None

    def _body(self, body: list[ast.stmt], local: dict[str, _Value], returned: list[_Value]) -> bool:
        """Follow statements, both ways of every test. False: there is one that is not followed."""
        for statement in body:
            match statement:
                case ast.Return(value=ast.expr() as value):
                    returned.append(self.value(value, local))
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    self._assign(name, self.value(value, local), local)
                case ast.Assign(targets=[ast.Tuple(elts=names)], value=value):
                    whole = self.value(value, local)
                    for at, target in enumerate(names):
                        if not isinstance(target, ast.Name):
                            return False
                        fits = isinstance(whole, tuple) and len(whole) == len(names)
                        self._assign(
                            target.id, whole[at] if fits and isinstance(whole, tuple) else None, local
                        )
                case ast.If(body=then, orelse=other):
                    if not (self._body(then, local, returned) and self._body(other, local, returned)):
                        return False
                case ast.Expr(value=ast.Constant()) | ast.Pass() | ast.Raise():
                    pass
                case _:
                    return False
            if any(isinstance(n, ast.NamedExpr) for n in all_nodes(statement)):
                return False
        return True

    @staticmethod
    def _assign(name: str, value: _Value, local: dict[str, _Value]) -> None:
        """A name may still be what it was: the assignment may be in a branch that was not taken."""
        local[name] = _either(local[name], value) if name in local else value


def _is_event(found: object) -> bool:
    return isinstance(found, type) and issubclass(found, Event)


def _either(a: _Value, b: _Value) -> _Value:
    if isinstance(a, tuple) and isinstance(b, tuple):
        return tuple(_either(x, y) for x, y in zip(a, b, strict=True)) if len(a) == len(b) else None
    if isinstance(a, Origins) and isinstance(b, Origins):
        return a | b
    return None


def _any(values: list[_Value]) -> _Value:
    found: _Value = values[0] if values else None
    for value in values[1:]:
        found = _either(found, value)
    return found


__all__ = ["Origins", "Part", "origins"]
