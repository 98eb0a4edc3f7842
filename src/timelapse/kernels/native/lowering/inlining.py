"""Functions written out: handlers, and what they call."""

from __future__ import annotations

import ast
import types
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from timelapse.analysis.result import PassHandler
from timelapse.code.source import function_source
from timelapse.kernels.native.lowering.code import Code
from timelapse.kernels.native.lowering.context import Context, Frame
from timelapse.kernels.native.lowering.form import Break
from timelapse.kernels.native.lowering.scopes import returns_in_place
from timelapse.kernels.native.lowering.values import NONE, Env, Value
from timelapse.kernels.native.refused import Refused

if TYPE_CHECKING:
    from timelapse.kernels.native.lowering.rules import Rules

_MAX_DEPTH = 12


class Functions:
    """Writes functions out, in place of their calls."""

    def __init__(self, ctx: Context, code: Code, rules: Rules) -> None:
        self._ctx, self._code, self._rules = ctx, code, rules
        self._number = 0
        """How many were written."""

    def handler(self, handler: PassHandler, given: list[Any]) -> None:
        """Write a handler out."""
        with self._code.taking.within(handler.function):
            self.call(handler.function, given, {}, 0, handler.text)

    def call(
        self, function: types.FunctionType, args: Sequence[Any], named: Mapping[str, Any], depth: int,
        text: str = "",
    ) -> Value:  # fmt: skip
        """Write a function out; its result."""
        node = node_of(function, text)
        if depth > _MAX_DEPTH:
            raise Refused(f"{node.name} calls itself, or calls are nested too deeply", self._ctx.line)
        self._number += 1
        frame = Frame(self._number, function, depth)
        env = self._bound(function, node, args, named)
        outer = self._ctx.line, self._ctx.file
        self._ctx.file = function.__code__.co_filename
        if not returns_in_place(node.body):
            frame.level = self._code.open()
        self._ctx.stack.append(frame)
        left = self._rules.block(node.body, env, frame)
        if left is not None:
            self._code.moves([(frame.result, NONE)])
        if frame.level is not None:
            if left is not None:
                self._code.add(Break())
            self._code.close(frame.level)
        self._ctx.stack.pop()
        self._ctx.line, self._ctx.file = outer
        return self._code.joined(frame.result, f"{node.name} returns") if frame.result.values else NONE

    def _bound(
        self,
        function: types.FunctionType,
        node: ast.FunctionDef,
        args: Sequence[Any],
        named: Mapping[str, Any],
    ) -> Env:
        """The parameters of a call."""
        spec, name = node.args, node.name
        if spec.vararg or spec.kwarg:
            raise Refused(f"{name} takes any number of arguments", self._ctx.line)
        places = [a.arg for a in (*spec.posonlyargs, *spec.args)]
        if len(args) > len(places):
            raise Refused(f"the arguments of {name}", self._ctx.line)
        env: Env = dict(zip(places, args, strict=False))
        allowed = {*places[len(spec.posonlyargs) :], *(a.arg for a in spec.kwonlyargs)}
        if set(named) & set(env) or not set(named) <= allowed:
            raise Refused(f"the arguments of {name}", self._ctx.line)
        env |= named
        defaults = function.__defaults__ or ()
        given = dict(zip(places[len(places) - len(defaults) :], defaults, strict=True))
        given |= function.__kwdefaults__ or {}
        for parameter in [*places, *(a.arg for a in spec.kwonlyargs)]:
            if parameter not in env:
                if parameter not in given:
                    raise Refused(f"the arguments of {name}", self._ctx.line)
                env[parameter] = self._ctx.const(given[parameter])
        return env

    def return_(self, value: Value, frame: Frame) -> None:
        """A value that a function returns."""
        self._code.moves([(frame.result, value)])
        if frame.level is not None:
            self._code.jump_behind(frame.level)


def node_of(function: types.FunctionType, text: str = "") -> ast.FunctionDef:
    """The definition of a function, with the lines of its file: as the analysis cut it, or its source.

    `text`: what to take where its source is not at hand. Decorators do not matter: this is the function
    that is called, whatever was made of it.
    """
    node = function.__dict__.get("__tl_tree__")
    if node is None:
        try:
            node = function_source(function, lambdas=True).node
        except (OSError, TypeError):
            node = None
    if node is None and text:
        node = ast.parse(text).body[0]
    if not isinstance(node, ast.FunctionDef):
        raise Refused(f"the function {function.__name__}, whose source is not at hand")
    return node
