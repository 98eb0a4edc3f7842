"""Calls: helpers and methods written out, NamedTuples."""

from __future__ import annotations

import ast
import inspect
import types
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from timelapse.kernels.native.lowering.code import Code
from timelapse.kernels.native.lowering.context import Context, Frame
from timelapse.kernels.native.lowering.fields import Fields
from timelapse.kernels.native.lowering.functions import builtin
from timelapse.kernels.native.lowering.inlining import node_of
from timelapse.kernels.native.lowering.stateful import States, is_self
from timelapse.kernels.native.lowering.values import NOT_CONSTANT, Env, EventRef, SelfRef, Value
from timelapse.kernels.native.refused import Refused

if TYPE_CHECKING:
    from timelapse.kernels.native.lowering.rules import Rules

_FOLDS: dict[Any, str] = {any: "any", all: "all", sum: "sum", min: "min", max: "max", len: "len"}


class Calls:
    """Writes calls."""

    def __init__(self, ctx: Context, code: Code, fields: Fields, states: States, rules: Rules) -> None:
        self._ctx, self._code, self._fields, self._states, self._rules = ctx, code, fields, states, rules

    def call(self, node: ast.Call, env: Env, frame: Frame) -> Value:
        self._ctx.line = node.lineno
        if any(isinstance(a, ast.Starred) for a in node.args) or any(k.arg is None for k in node.keywords):
            raise Refused("an argument with stars", self._ctx.line)
        match node.func:
            case ast.Attribute(value=ast.Call(func=ast.Name(id="super"), args=[]), attr=name):
                return self._super(name, node, env, frame)
            case ast.Attribute(value=base, attr=name):
                if is_self(base, env):
                    if name == "emit":
                        return self._rules.emit(node, env, frame)
                    return self._method(name, node, env, frame)
                state = self._states.of(base, env)
                if state is not None:
                    # An un-keyed delta is written as `_e_add((), n)`.
                    args = [self._code.fixed(self._rules.expr(a, env, frame)) for a in node.args]
                    named = {
                        k.arg: self._code.fixed(self._rules.expr(k.value, env, frame))
                        for k in node.keywords
                        if k.arg
                    }
                    return state.method(name, args, self._ctx.line, named)
                found = known_object(node.func, env, frame)
                if found is not NOT_CONSTANT:
                    return self._function(found, ast.unparse(node.func), node, env, frame)
                field = self._fields.scalar_of(base, env)
                if field is not None:
                    return self._text_test(name, field, node, env, frame)
                raise Refused(f"the method {name}", self._ctx.line)
            case ast.Name(id=name) if name not in env:
                return self._function(frame.names.get(name), name, node, env, frame)
        raise Refused("this call", self._ctx.line)

    def _super(self, name: str, node: ast.Call, env: Env, frame: Frame) -> Value:
        owner = frame.names.get("__class__")
        mro = type(self._ctx.program).__mro__
        if owner not in mro:
            raise Refused("super() in this place", self._ctx.line)
        for cls in mro[mro.index(owner) + 1 :]:
            if name in vars(cls):
                return self._called(vars(cls)[name], f"super().{name}", node, env, frame)
        raise Refused(f"super().{name}", self._ctx.line)

    def _method(self, name: str, node: ast.Call, env: Env, frame: Frame) -> Value:
        if name == "send":
            return self._rules.send(node, env, frame)
        if name in ("reject", "cancel"):
            raise Refused(f"self.{name}()", self._ctx.line)
        return self._called(self._ctx.member(name), f"self.{name}", node, env, frame)

    def _called(self, found: Any, what: str, node: ast.Call, env: Env, frame: Frame) -> Value:
        """A call of what a class holds under a name."""
        args, named = self._arguments(node, env, frame)
        if isinstance(found, staticmethod) and isinstance(found.__func__, types.FunctionType):
            return self._rules.call(found.__func__, args, named, frame.depth + 1)
        if isinstance(found, types.FunctionType):
            return self.method(found, args, named, frame)
        raise Refused(f"{what}()", self._ctx.line)

    def method(
        self, function: types.FunctionType, args: Sequence[Any], named: Mapping[str, Any], frame: Frame
    ) -> Value:
        return self._rules.call(function, [SelfRef(), *args], named, frame.depth + 1)

    def _arguments(self, node: ast.Call, env: Env, frame: Frame) -> tuple[list[Any], dict[str, Any]]:
        def one(given: ast.expr) -> Any:
            if isinstance(given, ast.Name) and isinstance(env.get(given.id), SelfRef | EventRef):
                return env[given.id]
            return self._code.fixed(self._rules.expr(given, env, frame))

        args = [one(a) for a in node.args]
        return args, {k.arg: one(k.value) for k in node.keywords if k.arg is not None}

    def _function(self, found: Any, name: str, node: ast.Call, env: Env, frame: Frame) -> Value:
        if isinstance(found, types.FunctionType):
            args, named = self._arguments(node, env, frame)
            node_of(found)
            return self._rules.call(found, args, named, frame.depth + 1)
        if isinstance(found, type) and issubclass(found, tuple) and hasattr(found, "_fields"):
            return self._named_tuple(found, node, env, frame)
        fold = _FOLDS.get(found) if isinstance(found, types.BuiltinFunctionType) else None
        if fold is not None and len(node.args) == 1:
            if fold == "len":
                field = self._fields.scalar_of(node.args[0], env)
                if field is not None and field[1] in ("str", "bytes") and not node.keywords:
                    return self._fields.column(field[0], "int", "length")
            folded = self._rules.folded(fold, node, env, frame)
            if folded is not None:
                return folded
        if node.keywords:
            raise Refused(f"{name} with arguments by name", self._ctx.line)
        args = [self._code.fixed(self._rules.expr(a, env, frame)) for a in node.args]
        return builtin(self._code, found, name, args, self._code.truth)

    def _named_tuple(self, cls: Any, node: ast.Call, env: Env, frame: Frame) -> Value:
        if cls.__new__.__code__.co_filename != f"<string>" and "__new__" in vars(cls):  # noqa: F541
            if not cls.__new__.__code__.co_filename.startswith("<"):
                raise Refused(f"{cls.__name__}, which has a constructor of its own", self._ctx.line)
        args, named = self._arguments(node, env, frame)
        given = dict(zip(cls._fields, args, strict=False)) | named
        if len(args) + len(named) != len(given) or not set(given) <= set(cls._fields):
            raise Refused(f"the arguments of {cls.__name__}", self._ctx.line)
        for name, value in cls._field_defaults.items():
            given.setdefault(name, self._ctx.const(value))
        if len(given) != len(cls._fields) or not all(isinstance(v, Value) for v in given.values()):
            raise Refused(f"the arguments of {cls.__name__}", self._ctx.line)
        return Value("tuple", items=tuple(given[f] for f in cls._fields), cls=cls)

    def _text_test(self, name: str, field: tuple[str, str], node: ast.Call, env: Env, frame: Frame) -> Value:
        """`e.text.startswith(...)` and `endswith`: Arrow compares the same bytes."""
        if (
            name in ("startswith", "endswith")
            and field[1] == "str"
            and len(node.args) == 1
            and not node.keywords
        ):
            given = self._rules.expr(node.args[0], env, frame)
            options = given.items if given.kind == "tuple" else (given,)
            if options and all(type(o.const) is str for o in options):
                codes = [self._fields.column(field[0], "bool", name, o.const).code for o in options]
                return self._code.temp("bool", " or ".join(codes))
        raise Refused(f"the method {name}", self._ctx.line)


def known_object(node: ast.expr, env: Env, frame: Frame) -> Any:
    """What `module.name` or `Class.name` stands for, where nobody can change it."""
    path: list[str] = []
    while isinstance(node, ast.Attribute):
        path.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name) or node.id in env or node.id not in frame.names:
        return NOT_CONSTANT
    found = frame.names[node.id]
    for name in reversed(path):
        if not isinstance(found, types.ModuleType | type):
            return NOT_CONSTANT
        found = inspect.getattr_static(found, name, NOT_CONSTANT)
        if isinstance(found, staticmethod):
            found = found.__func__
    return found
