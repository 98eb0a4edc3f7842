"""`emit` and `reject`."""

from __future__ import annotations

import ast
from typing import Any

from timelapse.kernels.native.lowering.columns import Columns
from timelapse.kernels.native.lowering.comparisons import present
from timelapse.kernels.native.lowering.emitter import REJECT, Frame
from timelapse.kernels.native.lowering.flow import Rejected
from timelapse.kernels.native.lowering.numbers import as_float, fitting
from timelapse.kernels.native.lowering.values import NONE, Env, Refused, Value, absent, kind_of, places_of
from timelapse.model.events import Event, Field, Record
from timelapse.model.types import OptionalType


def record_columns(cls: type[Record | Event]) -> list[tuple[str, str]]:
    """The arrays, or words, that a record's fields go to: part of the name, kind. Before an optional's, its presence."""
    found: list[tuple[str, str]] = []
    for place, field in enumerate(cls.__fields__):
        inner = field.type.inner if isinstance(field.type, OptionalType) else field.type
        if isinstance(field.type, OptionalType):
            found.append((f"{place}v", "bool"))
        found.append((str(place), kind_of(inner) or "int"))
    return found


LATER = 1 << 40
"""Added to the ordinals of what later events put out (`Unit.later`)."""


class Records(Columns):
    """Writes what puts out records."""

    @property
    def root(self) -> str:
        """The seq of the log event that the step is of."""
        return f"seq{self._event}[q{self._event}]"

    def _emit(self, node: ast.Call, env: Env, frame: Frame) -> Value:
        if len(node.args) != 1 or node.keywords or not self._is_made(node.args[0], env, frame):
            raise Refused("emit of something other than Record(...)", self._line)
        cls, codes = self._record(node.args[0], env, frame, Record)
        if self._final:
            self._write_record(cls, codes)
        return NONE

    def _reject(self, node: ast.Call, env: Env, frame: Frame) -> None:
        """`self.reject(reason)`: what the event did is undone where its code ends."""
        if self._event in self.unit.later or self._event in self.unit.ticking:
            raise Refused("self.reject() in a handler with after=, or of ticks", self._line)
        given = [*node.args, *(k.value for k in node.keywords)]
        if len(given) > 1 or any(k.arg != "reason" for k in node.keywords):
            raise Refused("the arguments of self.reject()", self._line)
        cls: type[Record] | None = None
        codes: list[str] = []
        if given and self._is_made(given[0], env, frame):
            cls, codes = self._record(given[0], env, frame, Record)
            reason = str(self._text(cls.__name__))
        elif given:
            value = self._expr(given[0], env, frame)
            if value.kind != "str":
                raise Refused(f"self.reject() of {value.text}", self._line)
            reason = value.code
        else:
            reason = str(self._text(""))
        if cls is not None and self._final:
            self._record_index(cls)
        number = len(self._rejections)
        names = [f"j{number}_{i}" for i in range(len(codes))]
        for name, code in zip(names, codes, strict=True):
            self.line(f"{name} = {code}")
        self._rejections.append(Rejected(self._event, cls, names))
        self.line(f"rejected = {number + 1}")
        self.line(f"handler = {self._handler}")
        self.line(f"reason = {reason}")
        self._leave(self._levels[0], REJECT)

    def _is_made(self, node: ast.expr, env: Env, frame: Frame, base: type[Record | Event] = Record) -> bool:
        """Whether it is `Record(...)`, or `Event(...)`."""
        match node:
            case ast.Call(func=ast.Name(id=name)) if name not in env:
                cls = frame.names.get(name)
                return isinstance(cls, type) and issubclass(cls, base)
        return False

    def _record(
        self, made: ast.expr, env: Env, frame: Frame, base: type[Record | Event]
    ) -> tuple[Any, list[str]]:
        """The class of a record, or event, and the codes of its fields."""
        assert isinstance(made, ast.Call)
        assert isinstance(made.func, ast.Name)
        name = made.func.id
        cls = frame.names[name]
        if cls.__new__ is not base.__new__ or "__init__" in {n for c in cls.__mro__[:-1] for n in vars(c)}:
            raise Refused(f"{'emit' if base is Record else 'self.send()'} of {name}", self._line)
        names = [f.name for f in cls.__fields__]
        if any(isinstance(a, ast.Starred) for a in made.args) or any(k.arg is None for k in made.keywords):
            raise Refused("an argument with stars", self._line)
        given = dict(zip(names, made.args))
        given |= {k.arg: k.value for k in made.keywords if k.arg is not None}
        if sorted(given) != sorted(names) or len(made.args) + len(made.keywords) != len(names):
            raise Refused(f"the fields of {name}", self._line)
        order = [*names[: len(made.args)], *(k.arg for k in made.keywords if k.arg is not None)]
        values = {n: self._fixed(self._expr(given[n], env, frame)) for n in order}
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
            kind, held, inner = kind_of(field.type), "", present(self, value)
        if kind == "float" and inner.kind == "int":
            code = as_float(inner)
        elif kind is not None and (places := places_of(kind)) is not None:
            code = fitting(self, inner, places, f"{record}.{field.name}").code
        elif kind is not None and kind == inner.kind:
            code = inner.code
        else:
            raise Refused(f"{record}.{field.name}, which is {field.type.text}, of {value.text}", self._line)
        return [held, code] if held else [code]

    def _record_index(self, cls: type[Record]) -> int:
        unit = self.unit
        if cls not in unit.records:
            unit.records.append(cls)
        return unit.records.index(cls)

    def _write_record(self, cls: type[Record], codes: list[str]) -> None:
        unit = self.unit
        i, e = self._record_index(cls), self._event
        unit.emits[cls] = unit.emits.get(cls, 0) + 1
        arrays = [*(name for name, _ in record_columns(cls)), "place"]
        self.room_if(f"emitted[{i}] >= o{i}_{arrays[0]}.shape[0]")
        row = self.name("n")
        self.line(f"{row} = emitted[{i}]")
        for (column, _), code in zip(record_columns(cls), codes, strict=True):
            self.line(f"o{i}_{column}[{row}] = {code}")
        if not cls.__reads__:  # those are no outputs: their row is their place
            self.line(f"o{i}_place[{row}, 0] = {self.now}")
            self.line(f"o{i}_place[{row}, 1] = {self.root}")
            ordinal = f"ordinal + {LATER}" if e in unit.later else "ordinal"
            self.line(f"o{i}_place[{row}, 2] = {ordinal}")
            self.line("ordinal += 1")
        self.line(f"emitted[{i}] = {row} + 1")
