"""Calls: helpers and methods written out, builtins, tests of text, `emit`."""

from __future__ import annotations

import ast
import inspect
import types
from typing import Any

from timelapse.kernels.native.emitter import FIELD_KIND, REJECT, Emitter, Frame, Rejected, node_of, scalar
from timelapse.kernels.native.expressions import as_float
from timelapse.kernels.native.values import NONE, Env, EventRef, Refused, SelfRef, Value
from timelapse.model.events import Record
from timelapse.model.types import OptionalType


class Calls(Emitter):
    """Writes calls."""

    def _expr(self, node: ast.expr, env: Env, frame: Frame) -> Value:
        """Write an expression; its value."""
        raise TypeError("abstract")

    def _member_object(self, name: str) -> Any:
        if name in self._work.members:
            return self._work.members[name]
        return inspect.getattr_static(type(self._program), name, None)

    def _call_expr(self, node: ast.Call, env: Env, frame: Frame) -> Value:
        self._line = node.lineno
        if any(isinstance(a, ast.Starred) for a in node.args):
            raise Refused("an argument with a star", self._line)
        match node.func:
            case ast.Attribute(value=ast.Name(id=owner), attr="emit") if isinstance(env.get(owner), SelfRef):
                return self._emit(node, env, frame)
            case ast.Attribute(value=ast.expr() as base, attr=name):
                state = self._state_of(base, env)
                if state is not None:
                    # An un-keyed delta is written as `_e_add((), n)`.
                    args = [self._fixed(self._expr(a, env, frame)) for a in node.args]
                    named = {
                        k.arg: self._fixed(self._expr(k.value, env, frame)) for k in node.keywords if k.arg
                    }
                    if len(named) != len(node.keywords):
                        raise Refused("an argument with stars", self._line)
                    return state.method(name, args, self._line, named)
                field = self._event_field(base, env)
                if field is not None:
                    return self._text_test(name, field, node, env, frame)
                if isinstance(base, ast.Name) and isinstance(env.get(base.id), SelfRef):
                    return self._method(name, node, env, frame)
            case ast.Name(id=name) if name not in env:
                return self._function(frame.names.get(name), name, node, env, frame)
        raise Refused("this call", self._line)

    def _text_test(self, name: str, field: tuple[str, str], node: ast.Call, env: Env, frame: Frame) -> Value:
        args = [self._expr(a, env, frame) for a in node.args]
        if name in ("startswith", "endswith") and field[1] == "str" and len(args) == 1 and not node.keywords:
            if type(args[0].const) is str:
                return self._column(field[0], "bool", name, args[0].const)
        raise Refused(f"the method {name} of a field", self._line)

    def _method(self, name: str, node: ast.Call, env: Env, frame: Frame) -> Value:
        found = self._member_object(name)
        args = self._arguments(node, env, frame)
        if isinstance(found, staticmethod):
            found, own = found.__func__, []
        else:
            own = [SelfRef()]
        if not isinstance(found, types.FunctionType) or name in ("reject", "send", "cancel"):
            raise Refused(f"self.{name}()", self._line)
        return self._call(found, node_of(found), [*own, *args], frame.depth + 1)

    def _arguments(self, node: ast.Call, env: Env, frame: Frame) -> list[Any]:
        if node.keywords:
            raise Refused("arguments by name", self._line)
        return [
            env[a.id] if isinstance(a, ast.Name) and isinstance(env.get(a.id), SelfRef | EventRef)
            else self._fixed(self._expr(a, env, frame))
            for a in node.args
        ]  # fmt: skip

    def _function(self, found: Any, name: str, node: ast.Call, env: Env, frame: Frame) -> Value:
        if found is len and len(node.args) == 1 and not node.keywords:
            field = self._event_field(node.args[0], env)
            if field is not None and field[1] in ("str", "bytes"):
                return self._column(field[0], "int", "length")
        if isinstance(found, types.FunctionType):
            return self._call(found, node_of(found), self._arguments(node, env, frame), frame.depth + 1)
        if node.keywords:
            raise Refused(f"{name} with arguments by name", self._line)
        args = [self._expr(a, env, frame) for a in node.args]
        kinds = [a.kind for a in args]
        if found in (min, max) and len(args) == 2 and kinds in (["int", "int"], ["float", "float"]):
            sign = "<" if found is min else ">"  # the first wins where they are equal
            a, b = args[0].code, args[1].code
            return self.temp(kinds[0], f"{b} if {b} {sign} {a} else {a}")
        if found is abs and kinds == ["int"]:
            self.exit_if(f"{args[0].code} == INT64_MIN")
            return self.temp("int", f"abs({args[0].code})")
        if found is abs and kinds == ["float"]:
            return self.temp("float", f"abs({args[0].code})")
        if found is float and kinds in (["int"], ["float"]):
            return self.temp("float", as_float(args[0]))
        if found is int and kinds in (["int"], ["bool"]):
            return self.temp("int", f"np.int64({args[0].code})")
        if found is bool and len(args) == 1:
            return self.temp("bool", self._truth(args[0]))
        raise Refused(f"the call of {name}", self._line)

    def _emit(self, node: ast.Call, env: Env, frame: Frame) -> Value:
        if len(node.args) != 1 or node.keywords or not self._is_made(node.args[0], env, frame):
            raise Refused("emit of something other than Record(...)", self._line)
        cls, codes = self._record(node.args[0], env, frame)
        if self._final:
            if self.in_loop:
                i = self._record_index(cls)
                self.room_if(f"emitted[{i}] >= o{i}_0.shape[0]")
            self._write_record(cls, codes)
        return NONE

    def _reject(self, node: ast.Call, env: Env, frame: Frame) -> None:
        """`self.reject(reason)`: what the event did is undone where its code ends."""
        given = [*node.args, *(k.value for k in node.keywords)]
        if len(given) > 1 or any(k.arg != "reason" for k in node.keywords):
            raise Refused("the arguments of self.reject()", self._line)
        cls: type[Record] | None = None
        codes: list[str] = []
        if given and self._is_made(given[0], env, frame):
            cls, codes = self._record(given[0], env, frame)
            reason = str(self._text(cls.__name__))
        elif given:
            value = self._expr(given[0], env, frame)
            if value.kind != "str":
                raise Refused(f"self.reject() of {value.text}", self._line)
            reason = value.code
        else:
            reason = str(self._text(""))
        if self.in_loop:
            self.leave()  # Python rejects it
            return
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
        self.line(f"break{REJECT}")

    def _is_made(self, node: ast.expr, env: Env, frame: Frame) -> bool:
        """Whether it is `Record(...)`."""
        match node:
            case ast.Call(func=ast.Name(id=name)) if name not in env:
                cls = frame.names.get(name)
                return isinstance(cls, type) and issubclass(cls, Record)
        return False

    def _record(self, made: ast.expr, env: Env, frame: Frame) -> tuple[type[Record], list[str]]:
        """A record's class and the codes of its fields."""
        assert isinstance(made, ast.Call)
        assert isinstance(made.func, ast.Name)
        name = made.func.id
        cls = frame.names[name]
        if cls.__new__ is not Record.__new__ or "__init__" in {n for c in cls.__mro__[:-1] for n in vars(c)}:
            raise Refused(f"emit of {name}", self._line)
        names = [f.name for f in cls.__fields__]
        given = dict(zip(names, made.args))
        given |= {k.arg: k.value for k in made.keywords if k.arg is not None}
        if sorted(given) != sorted(names) or len(made.args) + len(made.keywords) != len(names):
            raise Refused(f"the fields of {name}", self._line)
        order = [*names[: len(made.args)], *(k.arg for k in made.keywords if k.arg is not None)]
        values = {n: self._fixed(self._expr(given[n], env, frame)) for n in order}
        codes = []
        for field in cls.__fields__:
            inner = field.type.inner if isinstance(field.type, OptionalType) else field.type
            kind, value = FIELD_KIND.get(scalar(inner)), values[field.name]
            if kind == "float" and value.kind == "int":
                codes.append(as_float(value))
            elif kind is not None and kind == value.kind and not isinstance(field.type, OptionalType):
                codes.append(value.code)
            else:
                raise Refused(f"{name}.{field.name} of {value.kind}", self._line)
        return cls, codes

    def _record_index(self, cls: type[Record]) -> int:
        unit = self.unit
        if cls not in unit.records:
            unit.records.append(cls)
        return unit.records.index(cls)

    def _write_record(self, cls: type[Record], codes: list[str]) -> None:
        unit = self.unit
        i, e = self._record_index(cls), self._event
        unit.emits[cls] = unit.emits.get(cls, 0) + 1
        row = self.name("n")
        self.line(f"{row} = emitted[{i}]")
        for j, code in enumerate(codes):
            self.line(f"o{i}_{j}[{row}] = {code}")
        if not cls.__reads__:  # those are no outputs: their row is their place
            self.line(f"o{i}_place[{row}, 0] = ts{e}[q{e}]")
            self.line(f"o{i}_place[{row}, 1] = seq{e}[q{e}]")
            self.line(f"o{i}_place[{row}, 2] = ordinal")
            self.line("ordinal += 1")
        self.line(f"emitted[{i}] = {row} + 1")
