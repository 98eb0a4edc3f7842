"""What type a closed expression probably has.

A guess decides only what kind of column it becomes: whatever turns out to be of another type counts as
raised, and Python handles that event. So a wrong guess is slow, never wrong.
"""

from __future__ import annotations

import ast
import math
import re
import types
from collections.abc import Mapping
from typing import Any

from timelapse.code.source import function_source
from timelapse.model.events import Event
from timelapse.model.types import ListType, OptionalType, ScalarType

_STR = frozenset({
    "lower", "upper", "strip", "lstrip", "rstrip", "replace", "title", "capitalize", "casefold", "swapcase",
    "zfill", "ljust", "rjust", "center", "removeprefix", "removesuffix", "join", "expandtabs",
})  # fmt: skip
_INT = frozenset({"count", "find", "rfind", "index", "rindex", "start", "end", "bit_length", "bit_count"})
_BOOL = frozenset({"startswith", "endswith", "is_integer", "isdisjoint", "issubset", "issuperset"})
_LISTS = frozenset({"split", "rsplit", "splitlines", "partition", "rpartition"})
_RESULTS: dict[Any, str] = {
    len: "int", int: "int", float: "float", bool: "bool", str: "str", bytes: "bytes", ord: "int", chr: "str",
    any: "bool", all: "bool", isinstance: "bool",
}  # fmt: skip
_WHOLE = {math.floor, math.ceil, math.trunc, math.gcd, math.isqrt, math.factorial, math.comb}
_FLAGS = {math.isnan, math.isinf, math.isfinite, math.isclose}
_SCALARS = {"int": "int", "Time": "int", "float": "float", "bool": "bool", "str": "str", "bytes": "bytes"}
_MATCHES = {re.search, re.match, re.fullmatch}


class Guesses:
    """Guesses kinds: int, float, bool, str, bytes, `opt:` and `list:` of those, or "" where it cannot."""

    def __init__(self, objects: Mapping[str, Any], event: type[Event]) -> None:
        self._objects = objects
        self._locals: dict[str, str] = {"_f_ts": "int", "_f_seq": "int"}
        for field in event.__fields__:
            self._locals[f"_f_{field.name}"] = _of_type(field.type)
        self._depth = 0

    def kind(self, node: ast.expr) -> str:
        """The kind of a value."""
        match node:
            case ast.Constant(value=value):
                return _of_value(value)
            case ast.Name(id=name):
                if name in self._locals:
                    return self._locals[name]
                return _of_value(self._objects[name]) if name in self._objects else ""
            case ast.Compare() | ast.UnaryOp(op=ast.Not()):
                return "bool"
            case ast.JoinedStr():
                return "str"
            case ast.BoolOp(values=values):
                *first, last = [self.kind(v) for v in values]
                return _met(
                    [k.removeprefix("opt:") if isinstance(node.op, ast.Or) else k for k in first] + [last]
                )
            case ast.IfExp(body=body, orelse=orelse):
                return _met([self.kind(body), self.kind(orelse)])
            case ast.UnaryOp(operand=operand):
                found = self.kind(operand)
                return "int" if found == "bool" else found
            case ast.BinOp(left=left, op=op, right=right):
                return self._operated(op, self.kind(left), self.kind(right))
            case ast.Subscript(value=value, slice=index):
                return self._subscript(value, index)
            case ast.List() | ast.Tuple() | ast.Set():
                return _listed(_met([self.kind(e) for e in node.elts]))
            case ast.ListComp() | ast.SetComp() | ast.GeneratorExp():
                for generator in node.generators:
                    self._bind(generator.target, _inner(self.kind(generator.iter)))
                return _listed(self.kind(node.elt))
            case ast.Call():
                return self._call(node)
        return ""

    def _bind(self, target: ast.expr, kind: str) -> None:
        if isinstance(target, ast.Name):
            self._locals[target.id] = kind

    def _operated(self, op: ast.operator, a: str, b: str) -> str:
        numbers = {"int", "float", "bool"}
        if a in numbers and b in numbers:
            if isinstance(op, ast.Div):
                return "float"
            return "float" if "float" in (a, b) else "int"
        if a in ("str", "bytes") or (a.startswith("list:") and a == b):
            return a
        return b if b in ("str", "bytes") and isinstance(op, ast.Mult) else ""

    def _subscript(self, value: ast.expr, index: ast.expr) -> str:
        base = self.kind(value)
        if isinstance(index, ast.Slice):
            return base
        known = self._object(value)
        if isinstance(known, dict):
            return _met([_of_value(v) for v in known.values()])
        if base in ("str", "bytes"):
            return "str" if base == "str" else "int"
        return _inner(base)

    def _object(self, node: ast.expr) -> Any:
        return self._objects.get(node.id) if isinstance(node, ast.Name) else None

    def _call(self, node: ast.Call) -> str:
        args = [self.kind(a) for a in node.args]
        if isinstance(node.func, ast.Attribute):
            return self._method(node.func, node, args)
        found = self._object(node.func)
        if isinstance(found, types.FunctionType) and found not in _MATCHES and found.__module__ != "re":
            return self._helper(found, args)
        try:
            if found in _RESULTS:
                return _RESULTS[found]
            if found in _WHOLE:
                return "int"
            if found in _FLAGS:
                return "bool"
        except TypeError:
            return ""
        if found in (abs, pow):
            return "int" if args[:1] == ["bool"] else args[0] if args else ""
        if found is round:
            return "int" if len(args) == 1 else args[0]
        if found in (min, max, sum):
            inner = _inner(args[0]) if len(args) == 1 or found is sum else _met(args)
            return "int" if inner == "bool" and found is sum else inner
        if found in (sorted, list, tuple, set, frozenset, reversed) and args:
            return _listed(_inner(args[0]))
        if found is range:
            return "list:int"
        if found is re.sub:
            return "str"
        if found is re.findall:
            return "list:str"
        if isinstance(found, types.BuiltinFunctionType) and getattr(math, found.__name__, None) is found:
            return "float"
        return ""

    def _method(self, func: ast.Attribute, node: ast.Call, args: list[str]) -> str:
        name, base = func.attr, self.kind(func.value).removeprefix("opt:")
        if name in _STR:
            return base if base in ("str", "bytes") else "str" if name == "join" else ""
        if name in _INT:
            return "int"
        if name in _BOOL or name.startswith("is"):
            return "bool"
        if name in _LISTS:
            return _listed(base)
        if name == "encode":
            return "bytes"
        if name in ("decode", "hex", "sub", "group"):
            return "str"
        if name == "findall":
            return "list:str"
        known = self._object(func.value)
        if name == "get" and isinstance(known, dict):
            default = args[1] if len(args) > 1 else "none"
            return _met([*(_of_value(v) for v in known.values()), default])
        return ""

    def _helper(self, function: types.FunctionType, args: list[str]) -> str:
        annotated = function.__annotations__.get("return")
        for kind in (bool, int, float, str, bytes):
            if annotated in (kind, kind.__name__):
                return kind.__name__
        source = function_source(function, lambdas=True).node
        if source is None or self._depth > 4:
            return ""
        inner = Guesses.__new__(Guesses)
        inner._objects = function.__globals__
        inner._depth = self._depth + 1
        inner._locals = dict(zip([a.arg for a in source.args.args], args, strict=False))
        kinds: list[str] = []
        for part in ast.walk(source):
            match part:
                case ast.Assign(targets=[ast.Name(id=name)], value=value):
                    inner._locals.setdefault(name, inner.kind(value))
                case ast.For(target=target, iter=over):
                    inner._bind(target, _inner(inner.kind(over)))
                case ast.Return(value=value):
                    kinds.append("none" if value is None else inner.kind(value))
        return _met(kinds)


def _of_type(kind: Any) -> str:
    if isinstance(kind, OptionalType):
        inner = _of_type(kind.inner)
        return f"opt:{inner}" if inner else ""
    if isinstance(kind, ListType):
        return _listed(_of_type(kind.inner))
    return _SCALARS.get(kind.name, "") if isinstance(kind, ScalarType) else ""


def _of_value(value: Any) -> str:
    if value is None:
        return "none"
    if type(value) in (bool, int, float, str, bytes):
        return type(value).__name__
    if isinstance(value, tuple | list | frozenset | set):
        return _listed(_met([_of_value(v) for v in value]))
    return ""


def _listed(kind: str) -> str:
    return f"list:{kind}" if kind in ("int", "float", "bool", "str", "bytes") else ""


def _inner(kind: str) -> str:
    return kind.removeprefix("list:") if kind.startswith("list:") else "str" if kind == "str" else ""


def _met(kinds: list[str]) -> str:
    """What several kinds have in common."""
    some = {k.removeprefix("opt:") for k in kinds} - {"none"}
    if len(some) != 1:
        return ""
    maybe = "none" in kinds or any(k.startswith("opt:") for k in kinds)
    found = some.pop()
    return f"opt:{found}" if maybe and found and not found.startswith("list:") else found
