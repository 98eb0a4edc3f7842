"""Columns that are computed before the compiled function runs: what Python does with the event alone."""

from __future__ import annotations

import ast
import types
from typing import Any

from timelapse.kernels.native.computed import Computed
from timelapse.kernels.native.lowering.closing import Closing, is_pure
from timelapse.kernels.native.lowering.comparisons import present
from timelapse.kernels.native.lowering.emitter import Frame
from timelapse.kernels.native.lowering.guess import Guesses
from timelapse.kernels.native.lowering.iteration import Iteration
from timelapse.kernels.native.lowering.values import Env, EventRef, Refused, SelfRef, Value, optional
from timelapse.kernels.native.unit import Column

_KINDS = ("int", "float", "bool", "str", "bytes")


class Columns(Iteration):
    """Makes columns of expressions."""

    def _text_test(self, name: str, field: tuple[str, str], node: ast.Call, env: Env, frame: Frame) -> Value:
        """`e.text.startswith(...)` and `endswith`: Arrow compares the same bytes."""
        if (
            name in ("startswith", "endswith")
            and field[1] == "str"
            and len(node.args) == 1
            and not node.keywords
        ):
            given = self._expr(node.args[0], env, frame)
            options = given.items if given.kind == "tuple" else (given,)
            if options and all(type(o.const) is str for o in options):
                codes = [self._column(field[0], "bool", name, o.const).code for o in options]
                return self.temp("bool", " or ".join(codes))
        raise Refused(f"the method {name}", self._line)

    def _object(self, value: Any) -> str:
        """The name under which computed columns know an object."""
        for name, known in self._objects.items():
            if known is value:
                return name
        name = f"_g{len(self._objects)}"
        self._objects[name] = value
        return name

    def _computed(self, node: ast.expr, env: Env, frame: Frame, mark: Any) -> Value | None:
        """The expression as a column, in place of what was written since `mark`; None if it cannot be one."""
        if self._event in self.unit.ticking:
            return None  # there is no event
        event = self.unit.events[self._event]
        later = self._event in self.unit.later
        closing = Closing(frame.names, env, self._program_parts(), self._object, event, now=not later)
        closed = closing.closed(node)
        if closed is None or not closing.fields or not is_pure(closed, self._objects):
            return None
        kind = Guesses(self._objects, event).kind(closed)
        maybe = kind.startswith("opt:")
        kind = kind.removeprefix("opt:")
        is_list = kind.startswith("list:")
        if kind.removeprefix("list:") not in _KINDS or (
            is_list and not (self._lists and self._is_sequence(closed))
        ):
            return None
        self._rollback(mark)
        names = sorted({n.id for n in ast.walk(closed) if isinstance(n, ast.Name)} & set(self._objects))
        computed = Computed(
            ast.unparse(closed), tuple(sorted(closing.fields)), kind, maybe,
            tuple((n, self._objects[n]) for n in names),
        )  # fmt: skip
        self.exit_if(
            self._column_value(Column(self._event, "", "bool", part="raised", computed=computed)).code
        )
        if is_list:
            return self._list_of(closed, lambda kind, part: Column(self._event, "", kind, part=part, computed=computed),
                                 kind.removeprefix("list:"))  # fmt: skip
        value = self._column_value(Column(self._event, "", kind, computed=computed))
        found = Value(value.kind, value.code, origin=closed)
        if not maybe:
            return found
        valid = self._column_value(Column(self._event, "", "bool", part="valid", computed=computed))
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
            for cls in reversed(type(self._program).__mro__[:-1]):
                for name, value in vars(cls).items():
                    if isinstance(value, staticmethod) and isinstance(value.__func__, types.FunctionType):
                        found[name] = value.__func__
            self._parts = {**found, **self._params}
        return self._parts


__all__ = ["Columns", "EventRef", "SelfRef", "present"]
