"""Writing a pass's code: lines, variables, columns, constants, and the states that it uses."""

from __future__ import annotations

import ast
import builtins
import types
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from timelapse.analysis.result import PassProgram
from timelapse.kernels.native.expressions import truth
from timelapse.kernels.native.layout import layout_of, mode_of
from timelapse.kernels.native.states import StateCode, state_code
from timelapse.kernels.native.unit import LEAVE, ROOM, Column, Unit
from timelapse.kernels.native.values import (
    NONE,
    NOT_CONSTANT,
    Env,
    EventRef,
    Refused,
    SelfRef,
    Value,
    constant,
)
from timelapse.model.events import Record
from timelapse.model.program import Program, params_of, spec_of
from timelapse.model.source import function_source
from timelapse.model.types import ScalarType

MAX_LINES = 3000
_STATUS = "(np.int64(j) << 32) | (u << 4)"
FIELD_KIND = {"int": "int", "Time": "int", "float": "float", "bool": "bool", "str": "str", "bytes": "bytes"}


REJECT = "  # reject"
"""Ends the lines that leave an event's code because it is rejected."""


@dataclass(frozen=True)
class Rejected:
    """A place that rejects: the event's type, and the record that it puts out, with its fields' names."""

    event: int
    record: type[Record] | None
    fields: list[str]


class Frame:
    """One function being written out: where its names come from and what it returns."""

    def __init__(self, number: int, function: types.FunctionType, depth: int) -> None:
        self.number = number
        self.depth = depth
        code = function.__code__
        self.locals = frozenset((*code.co_varnames, *code.co_cellvars))
        self.names: dict[str, Any] = {**vars(builtins), **function.__globals__}
        for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
            try:
                self.names[name] = cell.cell_contents
            except ValueError:
                self.names.pop(name, None)
        for name in self.locals:
            self.names.pop(name, None)
        self.result: Value | None = None


class Emitter:
    """The text written so far and what it refers to."""

    def __init__(self, program: Program, work: PassProgram, *, final: bool) -> None:
        self._program, self._work, self._final = program, work, final
        self.unit = Unit()
        self._lines: list[str] = []
        self._indent = 3
        self._names = 0
        self._frames = 0
        self._texts: dict[tuple[type, str | bytes], int] = {}
        self._event = 0
        self._handler = 0
        self._loops = 0
        self._rejections: list[Rejected] = []
        self._line = 0
        for empty in ("", b""):
            self._text(empty)
        self._states: dict[str, StateCode] = {}
        self._params = params_of(program)

    def line(self, text: str) -> None:
        if len(self._lines) >= MAX_LINES:
            raise Refused("the handlers are too long to be written out", self._line)
        self._lines.append("    " * self._indent + text)

    def name(self, stem: str) -> str:
        self._names += 1
        return f"{stem}{self._names}"

    def temp(self, kind: str, code: str) -> Value:
        name = self.name("x")
        self.line(f"{name} = {code}")
        return Value(kind, name)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Lines written inside stand under `head`."""
        self.line(head)
        self._indent += 1
        yield
        self.line("pass")
        self._indent -= 1

    @property
    def in_loop(self) -> bool:
        """Whether what is written now may run more than once for an event."""
        return self._loops > 0

    def leave(self) -> None:
        """Python handles this event: what it wrote is undone, and it starts again there."""
        self.line(f"return {_STATUS} | {LEAVE}")

    def exit_if(self, condition: str) -> None:
        with self.block(f"if {condition}:"):
            self.leave()

    def room_if(self, condition: str) -> None:
        """A buffer is full: the event starts again when there is room."""
        with self.block(f"if {condition}:"):
            self.line(f"return {_STATUS} | {ROOM}")

    def text(self, text: str | bytes) -> int:
        """The code of a constant string."""
        return self._text(text)

    def store(self, stem: str, value: Value) -> Value:
        """Assign to variables that are named after the stem and the value's shape."""
        return self._store(stem, value)

    def _text(self, text: str | bytes) -> int:
        key = (type(text), text)
        if key not in self._texts:
            self._texts[key] = len(self._texts)
            self.unit.texts.append(text)
        return self._texts[key]

    def _const(self, value: Any) -> Value:
        found = constant(value, self._text)
        if found is None:
            raise Refused(f"the value {value!r}"[:80], self._line)
        return found

    def _event_field(self, node: ast.expr, env: Env) -> tuple[str, str] | None:
        """Name and kind of the event's field that this reads, if it does."""
        if not (isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)):
            return None
        if not isinstance(env.get(node.value.id), EventRef):
            return None
        if node.attr in ("ts", "seq"):
            return node.attr, "int"
        event = self.unit.events[self._event]
        for field in event.__fields__:
            if field.name == node.attr:
                kind = FIELD_KIND.get(scalar(field.type))
                if kind is None:
                    raise Refused(f"the field {node.attr}, which is {field.type.text}", self._line)
                return node.attr, kind
        raise Refused(f"the event's attribute {node.attr}", self._line)

    def _column(self, field: str, kind: str, test: str = "", operand: str | bytes = "") -> Value:
        column = Column(self._event, field, kind, test, operand)
        if column not in self.unit.columns:
            self.unit.columns.append(column)
        return Value(kind, f"c{self.unit.columns.index(column)}[q{self._event}]")

    def _state_of(self, node: ast.expr, env: Env) -> StateCode | None:
        match node:
            case ast.Attribute(value=ast.Name(id=owner), attr=name) if isinstance(env.get(owner), SelfRef):
                if name in spec_of(self._program).states:
                    return self._state(name)
        return None

    def _state(self, name: str) -> StateCode:
        if name not in self._states:
            spec, work, unit = spec_of(self._program).states[name], self._work, self.unit
            mode = mode_of(name, work)
            layout = layout_of(spec, work, final=self._final)
            self._states[name] = state_code(spec, mode, layout, self, len(unit.states))
            if mode != "ignored":
                unit.states.append(name)
                unit.layouts[name] = layout
        return self._states[name]

    def _fixed(self, value: Value) -> Value:
        """A copy in new variables, which later assignments do not change."""
        if value.kind == "none" or value.const is not NOT_CONSTANT:
            return value
        if value.is_compound:
            return Value(value.kind, items=tuple(self._fixed(i) for i in value.items), cls=value.cls)
        return self.temp(value.kind, value.code)

    def _store(self, stem: str, value: Value) -> Value:
        """Assign to variables that are named after the stem and the value's shape."""
        if value.kind == "none":
            return NONE
        if value.is_compound:
            # All items are read before any is written: `a, b = b, a`.
            items = [self._store(f"{stem}_{i}", item) for i, item in enumerate(value.items)]
            return Value(value.kind, items=tuple(items), cls=value.cls)
        name = f"{stem}_{value.kind}"
        self.line(f"{name} = {value.code}")
        return Value(value.kind, name)

    def _truth(self, value: Value) -> str:
        return truth(value, str(self._text(b"" if value.kind == "bytes" else "")))

    def _call(
        self, function: types.FunctionType, node: ast.FunctionDef, args: Sequence[Any], depth: int
    ) -> Value:
        """Write a function out; its result."""
        raise TypeError("abstract")


def scalar(kind: Any) -> str:
    return kind.name if isinstance(kind, ScalarType) else ""


def tree_of(text: str) -> ast.FunctionDef:
    if not text:
        raise Refused("its source is not at hand")
    node = ast.parse(text).body[0]
    if not isinstance(node, ast.FunctionDef):
        raise Refused("it is not a plain function")
    return node


def node_of(function: types.FunctionType) -> ast.FunctionDef:
    """The definition of a helper: as the analysis wrote it, or its source."""
    text = function.__dict__.get("__tl_text__")
    if text is not None:
        return tree_of(text)
    try:
        node = function_source(function).node
    except (OSError, TypeError):
        node = None
    if not isinstance(node, ast.FunctionDef) or function.__defaults__ or function.__kwdefaults__:
        raise Refused(f"the function {function.__name__}, whose source is not at hand or has defaults")
    allowed = {"property", "staticmethod"}
    if any(not (isinstance(d, ast.Name) and d.id in allowed) for d in node.decorator_list):
        raise Refused(f"the decorated function {function.__name__}")
    return node
