"""Fields of the event: columns of the log, or words of the queue where the event was sent."""

from __future__ import annotations

import ast
from collections.abc import Callable

from timelapse.kernels.native.lowering.code import Code
from timelapse.kernels.native.lowering.context import Context
from timelapse.kernels.native.lowering.records import record_columns, sent_word
from timelapse.kernels.native.lowering.unit import Column
from timelapse.kernels.native.lowering.values import Env, EventRef, Value, kind_of, optional
from timelapse.kernels.native.refused import Refused
from timelapse.model.events import Event, Field
from timelapse.model.types import ListType, OptionalType, ValueType


def is_event(node: ast.expr, env: Env) -> bool:
    """Whether a name stands for the event."""
    return isinstance(node, ast.Name) and isinstance(env.get(node.id), EventRef)


class Fields:
    """Reads the event."""

    def __init__(self, ctx: Context, code: Code) -> None:
        self._ctx, self._code = ctx, code

    def read(self, name: str) -> Value:
        """A field, the time or the seq of the event. Raises Refused."""
        ctx = self._ctx
        if ctx.derived is not None:
            return self._sent(ctx.derived, name)
        if name in ("ts", "seq"):
            origin = ast.Name(f"_f_{name}", ast.Load())
            if name == "ts" and (later := ctx.unit.later.get(ctx.event)) is not None:
                return Value("int", self._code.temp("int", f"{ctx.now} - {later.lag}").code, origin=origin)
            return Value("int", f"{name}{ctx.event}[q{ctx.event}]", origin=origin)
        for field in ctx.source_event.__fields__:
            if field.name == name:
                return self._value(field.name, field.type)
        raise Refused(f"the event's attribute {name}", ctx.line)

    def scalar_of(self, node: ast.expr, env: Env) -> tuple[str, str] | None:
        """Name and kind of the log's scalar field that an expression reads, if it does."""
        field = self._logged(node, env)
        kind = kind_of(field.type) if field is not None else None
        return None if field is None or kind is None else (field.name, kind)

    def _logged(self, node: ast.expr, env: Env) -> Field | None:
        """The event's field in the log that this reads, if it does."""
        if self._ctx.derived is None and isinstance(node, ast.Attribute) and is_event(node.value, env):
            for field in self._ctx.source_event.__fields__:
                if field.name == node.attr:
                    return field
        return None

    def column(
        self, field: str, kind: str, test: str = "", operand: str | bytes = "", part: str = ""
    ) -> Value:
        """The event's element of a column."""
        return self.of_column(Column(self._ctx.event, field, kind, test, operand, part))

    def of_column(self, column: Column) -> Value:
        """The event's element of a column."""
        columns = self._ctx.unit.columns
        if column not in columns:
            columns.append(column)
        return Value(column.kind, f"col{columns.index(column)}[q{self._ctx.event}]")

    def list_of(self, origin: ast.expr, column: Callable[[str, str], Column], element: str) -> Value:
        """A list of the event: `column` gives the column of a kind that is a part of it."""
        items = self.of_column(column(element, "items")).code.partition("[")[0]
        place = self.of_column(column("int", "offsets")).code.partition("[")[0]
        q = f"q{self._ctx.event}"
        bounds = (Value("int", f"{place}[{q}]"), Value("int", f"{place}[{q} + ONE]"))
        return Value("list", items, (*(self._code.fixed(b) for b in bounds), Value(element)), origin=origin)

    def _value(self, name: str, kind: ValueType) -> Value:
        if isinstance(kind, OptionalType):
            valid, inner = self.column(name, "bool", part="valid"), self._value(name, kind.inner)
            return Value("optional", items=optional(valid.code, inner).items, origin=inner.origin)
        if isinstance(kind, ListType):
            element = kind_of(kind.inner)
            if element is None:
                raise Refused(f"the field {name}, which is {kind.text}", self._ctx.line)
            origin, event = ast.Name(f"_f_{name}", ast.Load()), self._ctx.event
            return self.list_of(origin, lambda k, part: Column(event, name, k, part=part), element)
        found = kind_of(kind)
        if found is None:
            raise Refused(f"the field {name}, which is {kind.text}", self._ctx.line)
        column = self.column(name, found)
        return Value(column.kind, column.code, origin=ast.Name(f"_f_{name}", ast.Load()))

    def _sent(self, event: type[Event], name: str) -> Value:
        """A field of an event that was sent: words of the queue, which have names while its code runs."""
        if name in ("ts", "seq"):
            return Value("int", self._ctx.now if name == "ts" else self._ctx.root)
        columns = record_columns(event)
        for place, field in enumerate(event.__fields__):
            if field.name == name:
                at = 1 + columns.index(next(c for c in columns if c[0] == str(place)))
                number = self._ctx.sent.index(event)
                inner = Value(columns[at - 1][1], sent_word(number, at))
                if isinstance(field.type, OptionalType):
                    return optional(sent_word(number, at - 1), inner)
                return inner
        raise Refused(f"the event's attribute {name}", self._ctx.line)
