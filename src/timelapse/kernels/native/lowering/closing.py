"""Expressions over the event alone, closed: fields and objects by names of their own.

`_f_NAME` is a field of the event, `_gN` an object that handlers refer to (a constant, a helper, a
pattern). Closed expressions are pure: evaluating one once more, or for an event for which the handler
would not have come to it, changes nothing.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import math
import re
import types
from collections.abc import Callable, Mapping
from typing import Any

from timelapse.code.source import function_source
from timelapse.kernels.native.lowering.values import NOT_CONSTANT, Env, EventRef, SelfRef, Value
from timelapse.model.events import Event

_BUILTINS = {
    len, abs, min, max, sum, any, all, sorted, reversed, int, float, bool, str, bytes, ord, chr, round, divmod,
    enumerate, zip, range, tuple, list, set, frozenset, dict, isinstance, pow, map, filter,
}  # fmt: skip
_MODULES = (math, re)
_METHODS = frozenset({
    "lower", "upper", "strip", "lstrip", "rstrip", "replace", "title", "capitalize", "casefold", "swapcase",
    "zfill", "ljust", "rjust", "center", "removeprefix", "removesuffix", "join", "expandtabs", "startswith",
    "endswith", "isalnum", "isalpha", "isascii", "isdecimal", "isdigit", "isidentifier", "islower",
    "isnumeric", "isprintable", "isspace", "istitle", "isupper", "count", "find", "rfind", "index", "rindex",
    "encode", "decode", "hex", "split", "rsplit", "splitlines", "partition", "rpartition", "get", "keys",
    "values", "items", "search", "match", "fullmatch", "findall", "sub", "group", "groups", "start", "end",
    "span", "bit_length", "bit_count", "is_integer", "isdisjoint", "issubset", "issuperset", "union",
    "intersection", "difference", "copy",
})  # fmt: skip
_LOCAL_METHODS = frozenset({"append", "add", "extend", "sort", "discard", "update", "setdefault", "pop"})
_PLAIN = (str, bytes, int, float, bool, type(None), re.Pattern)
_EXPRESSIONS = (
    ast.Constant, ast.Name, ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.IfExp, ast.Call, ast.Attribute,
    ast.Subscript, ast.Slice, ast.Tuple, ast.List, ast.Set, ast.Dict, ast.JoinedStr, ast.FormattedValue,
    ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.comprehension, ast.keyword, ast.operator,
    ast.unaryop, ast.boolop, ast.cmpop, ast.expr_context, ast.Starred,
)  # fmt: skip
_STATEMENTS = (
    ast.Assign, ast.AnnAssign, ast.AugAssign, ast.Return, ast.If, ast.For, ast.Expr, ast.Pass, ast.Break,
    ast.Continue, ast.Raise, ast.Assert, ast.arguments, ast.arg, ast.FunctionDef, ast.NamedExpr,
)  # fmt: skip


class _Open(Exception):
    """The expression is not over the event alone."""


class Closing:
    """Closes expressions of one function, for one type of event. `fields`: those that it met.

    `now`: whether the time of the step is the event's own.
    """

    def __init__(
        self, names: Mapping[str, Any], env: Env, members: Mapping[str, Any], named: Callable[[Any], str],
        event: type[Event], *, now: bool = True,
    ) -> None:  # fmt: skip
        self._now = now
        self._names, self._env, self._members, self._named = names, env, members, named
        self._event = event
        self.fields: set[str] = set()

    def closed(self, node: ast.expr) -> ast.expr | None:
        """The expression closed, or None."""
        try:
            made: ast.expr = self._closed(node, frozenset())
        except _Open:
            return None
        return ast.fix_missing_locations(made)

    def _closed(self, node: Any, bound: frozenset[str]) -> Any:
        if isinstance(node, list):
            return [self._closed(n, bound) for n in node]
        if not isinstance(node, ast.AST):
            return node
        match node:
            case ast.Name(id=name):
                return node if name in bound else self._name(name)
            case ast.Attribute(value=ast.Name(id=name), attr=attr) if name not in bound and name in self._env:
                if isinstance(self._env[name], EventRef):
                    return self._field(attr)
                if isinstance(self._env[name], SelfRef):
                    return self._member(attr)
            case ast.Attribute() if (found := self._known(node, bound)) is not NOT_CONSTANT:
                return ast.Name(self._named(found), ast.Load())
            case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
                inner = bound | {
                    n.id for g in node.generators for n in ast.walk(g.target) if isinstance(n, ast.Name)
                }
                return self._copied(node, inner)
        if not isinstance(node, _EXPRESSIONS):
            raise _Open
        return self._copied(node, bound)

    def _copied(self, node: ast.AST, bound: frozenset[str]) -> ast.AST:
        made = type(node)(**{name: self._closed(value, bound) for name, value in ast.iter_fields(node)})
        return ast.copy_location(made, node)

    def _name(self, name: str) -> ast.expr:
        if name in self._env:
            value = self._env[name]
            return self._value(value) if isinstance(value, Value) else self._refuse()
        if name in self._names:
            return ast.Name(self._named(self._names[name]), ast.Load())
        return self._refuse()

    def _value(self, value: Value) -> ast.expr:
        if value.const is not NOT_CONSTANT:
            if value.cls is not None or isinstance(value.const, tuple):
                return ast.Name(self._named(value.const), ast.Load())
            return ast.Constant(value.const)
        if value.origin is not None:
            for node in ast.walk(value.origin):
                if isinstance(node, ast.Name) and node.id.startswith("_f_"):
                    self.fields.add(node.id[3:])
            found: ast.expr = value.origin
            return found
        if value.kind == "tuple" and value.cls is None:
            return ast.Tuple([self._value(i) for i in value.items], ast.Load())
        return self._refuse()

    def _field(self, name: str) -> ast.expr:
        if name not in ("ts", "seq") and all(f.name != name for f in self._event.__fields__):
            return self._refuse()
        self.fields.add(name)
        return ast.Name(f"_f_{name}", ast.Load())

    def _member(self, name: str) -> ast.expr:
        if name == "now" and self._now:
            return self._field("ts")
        if name not in self._members:
            return self._refuse()
        return ast.Name(self._named(self._members[name]), ast.Load())

    def _known(self, node: ast.expr, bound: frozenset[str]) -> Any:
        """What `module.name` stands for."""
        path: list[str] = []
        while isinstance(node, ast.Attribute):
            path.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name) or node.id in bound or node.id in self._env:
            return NOT_CONSTANT
        found = self._names.get(node.id, NOT_CONSTANT)
        for name in reversed(path):
            if not isinstance(found, types.ModuleType | type):
                return NOT_CONSTANT
            found = inspect.getattr_static(found, name, NOT_CONSTANT)
        return found

    def _refuse(self) -> ast.expr:
        raise _Open


def is_pure(node: ast.AST, objects: Mapping[str, Any]) -> bool:
    """Whether evaluating a closed expression changes nothing and depends on nothing else."""
    return all(_pure_part(part, objects.get, frozenset()) for part in ast.walk(node))


def _pure_part(part: ast.AST, resolve: Callable[[str], Any], seen: frozenset[types.CodeType]) -> bool:
    if isinstance(part, ast.Call):
        return isinstance(part.func, ast.Attribute | ast.Name)
    if isinstance(part, ast.Attribute):
        return part.attr in _METHODS
    if isinstance(part, ast.Name) and part.id.startswith("_g"):
        return is_harmless(resolve(part.id), seen)
    return isinstance(part, _EXPRESSIONS)


def is_harmless(value: Any, seen: frozenset[types.CodeType] = frozenset()) -> bool:
    """Whether a closed expression may use an object: plain data, or a function that only computes."""
    if type(value) in (tuple, frozenset, list, set):
        return len(value) <= 10_000 and all(is_harmless(v, seen) for v in value)
    if type(value) is dict:
        return len(value) <= 100_000 and all(is_harmless(v, seen) for v in (*value, *value.values()))
    if type(value) in _PLAIN:
        return True
    try:
        if value in _BUILTINS:
            return True
    except TypeError:
        return False
    if isinstance(value, types.BuiltinFunctionType):
        return any(getattr(m, value.__name__, None) is value for m in _MODULES)
    if isinstance(value, types.FunctionType):
        if value.__module__ == "re":
            return getattr(re, value.__name__, None) is value
        return value.__code__ in seen or _computes_only(value, seen | {value.__code__})
    return False


def _computes_only(function: types.FunctionType, seen: frozenset[types.CodeType]) -> bool:
    node = function_source(function, lambdas=True).node
    if not isinstance(node, ast.FunctionDef) or len(seen) > 8:
        return False
    names = {**vars(builtins), **function.__globals__}
    code = function.__code__
    if code.co_freevars or (function.__defaults__ and not all(map(is_harmless, function.__defaults__))):
        return False
    own = {*code.co_varnames, *code.co_cellvars}
    own |= {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    parameters = {a.arg for a in ast.walk(node.args) if isinstance(a, ast.arg)}
    for part in [p for s in node.body for p in ast.walk(s)]:
        match part:
            case ast.Name(id=name):
                if name not in own and not _known_module(names.get(name, _MISSING)):
                    if not is_harmless(names.get(name, _MISSING), seen) and not _is_error(names.get(name)):
                        return False
            case ast.Attribute(value=value, attr=attr):
                if isinstance(value, ast.Name) and value.id not in own and _known_module(names.get(value.id)):
                    if not is_harmless(getattr(names[value.id], attr, _MISSING), seen):
                        return False
                elif attr in _LOCAL_METHODS:
                    if not (isinstance(value, ast.Name) and value.id in own - parameters):
                        return False
                elif attr not in _METHODS or not isinstance(part.ctx, ast.Load):
                    return False
            case ast.Subscript(value=value, ctx=ast.Store() | ast.Del()):
                if not (isinstance(value, ast.Name) and value.id in own - parameters):
                    return False
            case ast.FunctionDef():
                return False
            case _ if not isinstance(part, (*_EXPRESSIONS, *_STATEMENTS)):
                return False
    return True


_MISSING = object()


def _known_module(value: Any) -> bool:
    return isinstance(value, types.ModuleType) and value in _MODULES


def _is_error(value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, Exception)
