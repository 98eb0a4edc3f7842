"""`emit` and `reject`."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from timelapse.kernels.native.lowering.code import Code
from timelapse.kernels.native.lowering.comparisons import present
from timelapse.kernels.native.lowering.context import Context, Frame
from timelapse.kernels.native.lowering.flow import Rejected
from timelapse.kernels.native.lowering.numbers import as_float, fitting
from timelapse.kernels.native.lowering.records import LATER, record_columns
from timelapse.kernels.native.lowering.values import NONE, Env, Value, absent, kind_of, places_of
from timelapse.kernels.native.refused import Refused
from timelapse.model.events import Event, Field, Record
from timelapse.model.types import OptionalType

if TYPE_CHECKING:
    from timelapse.kernels.native.lowering.rules import Rules


class Emits:
    """Writes what puts out records."""

    def __init__(self, ctx: Context, code: Code, rules: Rules) -> None:
        self._ctx, self._code, self._rules = ctx, code, rules

    def emit(self, node: ast.Call, env: Env, frame: Frame) -> Value:
        """`self.emit(Record(...))`."""
        if len(node.args) != 1 or node.keywords or not self.is_made(node.args[0], env, frame):
            raise Refused("emit of something other than Record(...)", self._ctx.line)
        cls, codes = self.made(node.args[0], env, frame, Record)
        if self._ctx.final:
            self.write(cls, codes)
        return NONE

    def reject(self, node: ast.Call, env: Env, frame: Frame) -> None:
        """`self.reject(reason)`: what the event did is undone where its code ends."""
        if self._ctx.late or self._ctx.ticks:
            raise Refused("self.reject() in a handler with after=, or of ticks", self._ctx.line)
        given = [*node.args, *(k.value for k in node.keywords)]
        if len(given) > 1 or any(k.arg != "reason" for k in node.keywords):
            raise Refused("the arguments of self.reject()", self._ctx.line)
        cls: type[Record] | None = None
        codes: list[str] = []
        if given and self.is_made(given[0], env, frame):
            cls, codes = self.made(given[0], env, frame, Record)
            reason = str(self._ctx.text(cls.__name__))
        elif given:
            value = self._rules.expr(given[0], env, frame)
            if value.kind != "str":
                raise Refused(f"self.reject() of {value.text}", self._ctx.line)
            reason = value.code
        else:
            reason = str(self._ctx.text(""))
        if cls is not None and self._ctx.final:
            self._record_index(cls)
        number = len(self._ctx.rejections)
        names = [f"j{number}_{i}" for i in range(len(codes))]
        for name, code in zip(names, codes, strict=True):
            self._code.assign(name, code)
        self._ctx.rejections.append(Rejected(self._ctx.event, cls, names))
        self._code.assign("rejected", f"{number + 1}")
        self._code.assign("handler", f"{self._ctx.handler}")
        self._code.assign("reason", reason)
        self._code.reject()

    def is_made(self, node: ast.expr, env: Env, frame: Frame, base: type[Record | Event] = Record) -> bool:
        """Whether it is `Record(...)`, or `Event(...)`."""
        match node:
            case ast.Call(func=ast.Name(id=name)) if name not in env:
                cls = frame.names.get(name)
                return isinstance(cls, type) and issubclass(cls, base)
        return False

    def made(
        self, made: ast.expr, env: Env, frame: Frame, base: type[Record | Event]
    ) -> tuple[Any, list[str]]:
        """The class of a record, or event, and the codes of its fields."""
        assert isinstance(made, ast.Call)
        assert isinstance(made.func, ast.Name)
        name = made.func.id
        cls = frame.names[name]
        if cls.__new__ is not base.__new__ or "__init__" in {n for c in cls.__mro__[:-1] for n in vars(c)}:
            raise Refused(f"{'emit' if base is Record else 'self.send()'} of {name}", self._ctx.line)
        names = [f.name for f in cls.__fields__]
        if any(isinstance(a, ast.Starred) for a in made.args) or any(k.arg is None for k in made.keywords):
            raise Refused("an argument with stars", self._ctx.line)
        given = dict(zip(names, made.args))
        given |= {k.arg: k.value for k in made.keywords if k.arg is not None}
        if sorted(given) != sorted(names) or len(made.args) + len(made.keywords) != len(names):
            raise Refused(f"the fields of {name}", self._ctx.line)
        order = [*names[: len(made.args)], *(k.arg for k in made.keywords if k.arg is not None)]
        values = {n: self._code.fixed(self._rules.expr(given[n], env, frame)) for n in order}
        return cls, [code for f in cls.__fields__ for code in self._field_codes(name, f, values[f.name])]

    def _field_codes(self, record: str, field: Field, value: Value) -> list[str]:
        """The code of a field's value; of an optional one first that of whether there is a value."""
        if isinstance(field.type, OptionalType):
            kind = kind_of(field.type.inner)
            if value.kind == "none" and kind is not None:
                return ["False", absent(Value(kind)).code]
            held, inner = (
                (value.items[0].code, value.items[1]) if value.kind == "optional" else ("True", value)
            )
        else:
            kind, held, inner = kind_of(field.type), "", present(self._code, value)
        if kind == "float" and inner.kind == "int":
            code = as_float(inner)
        elif kind is not None and (places := places_of(kind)) is not None:
            code = fitting(self._code, inner, places, f"{record}.{field.name}").code
        elif kind is not None and kind == inner.kind:
            code = inner.code
        else:
            raise Refused(
                f"{record}.{field.name}, which is {field.type.text}, of {value.text}", self._ctx.line
            )
        return [held, code] if held else [code]

    def _record_index(self, cls: type[Record]) -> int:
        unit = self._ctx.unit
        if cls not in unit.records:
            unit.records.append(cls)
        return unit.records.index(cls)

    def write(self, cls: type[Record], codes: list[str]) -> None:
        """Put out a record with these fields."""
        unit = self._ctx.unit
        i, e = self._record_index(cls), self._ctx.event
        unit.emits[cls] = unit.emits.get(cls, 0) + 1
        arrays = [*(name for name, _ in record_columns(cls)), "place"]
        self._code.room_if(f"emitted[{i}] >= o{i}_{arrays[0]}.shape[0]")
        row = self._code.name("n")
        self._code.assign(row, f"emitted[{i}]")
        for (column, _), code in zip(record_columns(cls), codes, strict=True):
            self._code.assign(f"o{i}_{column}[{row}]", code)
        if not cls.__reads__:  # those are no outputs: their row is their place
            self._code.assign(f"o{i}_place[{row}, 0]", f"{self._ctx.now}")
            self._code.assign(f"o{i}_place[{row}, 1]", f"{self._ctx.root}")
            ordinal = f"ordinal + {LATER}" if e in unit.later else "ordinal"
            self._code.assign(f"o{i}_place[{row}, 2]", ordinal)
            self._code.assign("ordinal", "1", "+=")
        self._code.assign(f"emitted[{i}]", f"{row} + 1")
