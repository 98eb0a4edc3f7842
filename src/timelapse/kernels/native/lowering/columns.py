"""Columns that are computed before the compiled function runs: what Python does with the event alone."""

from __future__ import annotations

import ast
import types
from typing import Any

from timelapse.kernels.native.computed import Computed
from timelapse.kernels.native.lowering.closing import Closing, is_pure
from timelapse.kernels.native.lowering.code import Code
from timelapse.kernels.native.lowering.context import Context, Frame
from timelapse.kernels.native.lowering.fields import Fields
from timelapse.kernels.native.lowering.guess import Guesses
from timelapse.kernels.native.lowering.trying import Mark, Trial
from timelapse.kernels.native.lowering.unit import Column
from timelapse.kernels.native.lowering.values import Env, Value, optional

_KINDS = ("int", "float", "bool", "str", "bytes")


class Columns:
    """Makes columns of expressions."""

    def __init__(self, ctx: Context, code: Code, fields: Fields, trial: Trial) -> None:
        self._ctx, self._code, self._fields, self._trial = ctx, code, fields, trial
        self._objects: dict[str, Any] = {}
        """What computed columns refer to, by the names that it has in them."""
        self._parts: dict[str, Any] | None = None

    def named(self, value: Any) -> str:
        """The name under which computed columns know an object."""
        for name, known in self._objects.items():
            if known is value:
                return name
        name = f"_g{len(self._objects)}"
        self._objects[name] = value
        return name

    def computed(
        self, node: ast.expr, env: Env, frame: Frame, mark: Mark, *, lists: bool = False
    ) -> Value | None:
        """The expression as a column, in place of what was written since `mark`; None if it cannot be one.

        `lists`: whether it may be a list that Python makes of the event.
        """
        ctx = self._ctx
        if ctx.ticks or ctx.derived is not None:
            return None  # there is no event, or none of the log's
        event = ctx.source_event
        closing = Closing(frame.names, env, self._program_parts(), self.named, event, now=not ctx.late)
        closed = closing.closed(node)
        if closed is None or not closing.fields or not is_pure(closed, self._objects):
            return None
        kind = Guesses(self._objects, event).kind(closed)
        maybe = kind.startswith("opt:")
        kind = kind.removeprefix("opt:")
        is_list = kind.startswith("list:")
        if kind.removeprefix("list:") not in _KINDS or (
            is_list and not (lists and self._is_sequence(closed))
        ):
            return None
        self._trial.back(mark)
        names = sorted({n.id for n in ast.walk(closed) if isinstance(n, ast.Name)} & set(self._objects))
        computed = Computed(
            ast.unparse(closed), tuple(sorted(closing.fields)), kind, maybe,
            tuple((n, self._objects[n]) for n in names),
        )  # fmt: skip
        self._code.exit_if(
            self._fields.of_column(Column(self._ctx.event, "", "bool", part="raised", computed=computed)).code
        )
        if is_list:
            return self._fields.list_of(closed, lambda kind, part: Column(self._ctx.event, "", kind, part=part, computed=computed),
                                 kind.removeprefix("list:"))  # fmt: skip
        value = self._fields.of_column(Column(self._ctx.event, "", kind, computed=computed))
        found = Value(value.kind, value.code, origin=closed)
        if not maybe:
            return found
        valid = self._fields.of_column(Column(self._ctx.event, "", "bool", part="valid", computed=computed))
        return Value("optional", items=optional(valid.code, found).items, origin=closed)

    def _is_sequence(self, node: ast.expr) -> bool:
        """Whether what is made, of several values, is no set or iterator: those are not read by position."""
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            return self._objects.get(node.func.id) not in (set, frozenset, reversed)
        return not isinstance(node, ast.Set | ast.SetComp | ast.GeneratorExp)

    def _program_parts(self) -> dict[str, Any]:
        """What `self.X` stands for in an expression over the event alone: parameters and plain functions."""
        if self._parts is None:
            found: dict[str, Any] = {}
            for cls in reversed(type(self._ctx.program).__mro__[:-1]):
                for name, value in vars(cls).items():
                    if isinstance(value, staticmethod) and isinstance(value.__func__, types.FunctionType):
                        found[name] = value.__func__
            self._parts = {**found, **self._ctx.params}
        return self._parts
