"""Writing a pass's code: lines, variables, columns, constants, and the states that it uses."""

from __future__ import annotations

import ast
import builtins
import types
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from timelapse.analysis.result import PassProgram
from timelapse.kernels.native.lowering.comparisons import truth
from timelapse.kernels.native.lowering.flow import Join, Level, Line, Moves, Rejected, is_simple
from timelapse.kernels.native.lowering.states import StateCode
from timelapse.kernels.native.lowering.values import (
    NOT_CONSTANT,
    Env,
    EventRef,
    Refused,
    SelfRef,
    Value,
    constant,
    kind_of,
    optional,
)
from timelapse.kernels.native.memory.layout import Layout, beside, layout_of
from timelapse.kernels.native.unit import ABROAD, HOPELESS, LEAVE, ROOM, SPENT, Column, Unit
from timelapse.kernels.native.windows import sliding_of, views_in
from timelapse.model.events import Event, Field
from timelapse.model.program import Program, params_of, spec_of
from timelapse.model.source import function_source
from timelapse.model.types import ListType, OptionalType, ScalarType, TupleType, ValueType

MAX_LINES, MAX_INDENT = 3000, 90  # of 100 that Python takes

SPEND = f"return left(j, u, {SPENT})"
"""Leaves an event that has spent its budget."""
LEAVE_ALL = f"return left(j, u, {ABROAD})"
"""Leaves an event that uses a key which is not under its own."""
GIVE_UP = f"return left(j, u, {HOPELESS})"
REJECT = "  # reject"
"""Ends the lines that leave an event's code because it is rejected."""


class Frame:
    """One function being written out: where its names come from and what it returns."""

    def __init__(self, number: int, function: types.FunctionType, depth: int) -> None:
        self.number = number
        self.depth = depth
        self.function = function
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
        self.result = Join(f"f{number}")
        self.level: Level | None = None
        """The loop to leave on `return`; None where what follows a return is never reached anyway."""


class Emitter:
    """The text written so far and what it refers to."""

    def __init__(
        self, program: Program, work: PassProgram, *, final: bool, tables: Sequence[tuple[str, ...]] = (),
        steady: Mapping[str, int] | None = None, counted: Collection[str] = (), indexed: Collection[str] = (),
    ) -> None:  # fmt: skip
        """`tables`: states that share a table. Others have one each. `steady`: counters of which that is known (steady.py).
        `counted`, `indexed`: SetOfs whose members are counted, or listed, by key."""
        self._program, self._work, self._final = program, work, final
        self._together = {name: table for table in tables for name in table}
        self._beside: dict[str, Layout] = {}
        """The layouts of states that share a table."""
        self._views = {} if work.timeless else sliding_of(program)
        for table in tables:
            alone = [self._layout(n) for n in table]
            self._beside |= dict(zip(table, beside(alone) or alone, strict=True))
        self._keys: dict[int, dict[str, set[tuple[str, ...]]]] = {}
        """For each type of event each state's keys, as they are spelt."""
        self.steady: Mapping[str, int] = steady or {}
        self.counted, self.indexed = frozenset(counted), frozenset(indexed)
        self.unit = Unit(steady=self.steady)
        self._lines: list[Line] = []
        self._indent = 3
        self._names = 0
        self._frames = 0
        self._texts: dict[tuple[type, str | bytes], int] = {}
        self._event = 0
        self._handler = 0
        self._rejections: list[Rejected] = []
        self._line = 0
        self._file = ""
        self._levels: list[Level] = []
        self._stack: list[Frame] = []
        self._jumps: set[tuple[int, int]] = set()
        self._loops = 0
        """How many loops, whose number of rounds is known only as they run, are being written."""
        for empty in ("", b""):
            self._text(empty)
        self._states: dict[str, StateCode] = {}
        self._params = params_of(program)
        self._filled: set[str] = set()
        """What `room_if` asked for in loops."""
        self._objects: dict[str, Any] = {}
        self._within = False
        """Whether an expression is being written."""
        self._lists = False
        """Whether lists that Python makes of the event may become columns (see `Evaluation._twice`)."""
        self._parts: dict[str, Any] | None = None
        self._sent: list[type[Event]] = []
        self._slides: list[tuple[int, str, int]] = []
        """Which event's code looks at which state's views, and their lags."""
        self._own: tuple[str, ...] | None = None
        """The words of the key by which the event is shared out; None where events are not, or this one has none."""

    @property
    def keeps(self) -> bool:
        """Whether rows are copied before they are written (memory/keeping.py)."""
        return self._work.keeps

    def _layout(self, name: str) -> Layout:
        """The row of a state in a table of its own."""
        views = views_in(self._work, self._views, name)
        extra = 0 if views is None else views.extra
        return layout_of(spec_of(self._program).states[name], self._work, final=self._final, extra=extra)

    # --- lines ------------------------------------------------------------------------------------

    def line(self, text: str) -> None:
        if len(self._lines) >= MAX_LINES or self._indent > MAX_INDENT:
            how = "long" if self._indent <= MAX_INDENT else "deeply nested"
            raise Refused(f"the handlers are too {how} to be written out", self._line)
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
        self.line(f"return left(j, u, {LEAVE})")

    def exit_if(self, condition: str) -> None:
        """Leave where the condition holds."""
        self.line(f"if {condition}:")
        self.line(f"    return left(j, u, {LEAVE})")

    def raises_if(self, condition: str, error: Exception, also: str = "") -> None:
        """Leave where the condition holds, as Python would raise this error; and where `also` does."""
        self.exit_if(f"{condition} or {also}" if also else condition)

    def give_up_if(self, condition: str) -> None:
        """Where the condition holds, the whole pass has to run as Python."""
        self.line(f"if {condition}:")
        self.line(f"    {GIVE_UP}")

    @property
    def now(self) -> str:
        """The time of the step."""
        return f"ts{self._event}[q{self._event}]"

    def uses_key(self, state: str, words: Sequence[str]) -> None:
        """Note a state's key. Where events are shared out: see to it that it is under the event's own."""
        self._keys.setdefault(self._event, {}).setdefault(state, set()).add(tuple(words))
        shared = self._work.by_key if self.unit.shared else None
        if shared is None or spec_of(self._program).states[state].key is None:
            return
        place = shared.states.get(state, -1)
        outer = spec_of(self._program).states[state].outer
        width = len(outer.items) if isinstance(outer, TupleType) else 1
        used = tuple(words) if place is None else tuple(words[place : place + width])
        if self._own is None or place == -1 or len(used) != len(self._own):
            raise Refused(f"{state}, which is not under the key of the event", self._line)
        for own, word in zip(self._own, used, strict=True):
            if own != word:
                self.line(f"if {own} != {word}:")
                self.line(f"    {LEAVE_ALL}")

    def round_begins(self) -> None:
        """Count a round of a loop against the event's budget. What is written need not be undone then."""
        self.unit.loops = True
        self.line("rounds -= 1")
        self.line("if rounds < 0:")
        self.line(f"    {SPEND}")

    def room_if(self, condition: str) -> None:
        """A buffer is full: the event starts again when there is room.

        There is always room where nothing fills the buffer in a loop (see `Unit`); then this is taken
        out again. A loop may leave none for what comes after it.
        """
        if self._loops:
            self._filled.add(condition.rpartition(" and ")[2])
        self.line(f"if {condition}:")
        self.line(f"    return left(j, u, {ROOM})")

    def _without_idle_room(self, body: list[str]) -> list[str]:
        """An event's code without the questions for room that have one answer."""
        kept: list[str] = []
        for line in body:
            if line.endswith(f"return left(j, u, {ROOM})") and _asked(kept[-1]) not in self._filled:
                kept.pop()
            else:
                kept.append(line)
        return kept

    def text(self, text: str | bytes) -> int:
        """The code of a constant string."""
        return self._text(text)

    def store(self, stem: str, value: Value) -> Value:
        """Assign to variables that are named after the stem and the value's shape."""
        if value.kind == "none":
            return value
        if value.is_compound:
            items = [self.store(f"{stem}_{i}", item) for i, item in enumerate(value.items)]
            return Value(value.kind, items=tuple(items), cls=value.cls)
        name = f"{stem}_{value.kind}"
        self.line(f"{name} = {value.code}")
        return Value(value.kind, name)

    def _moves(self, pairs: Sequence[tuple[Join | Value, Value]] = ()) -> Moves:
        """Assignments at this place; to joins, they are registered there."""
        moves = Moves(self._indent, list(pairs))
        for target, value in pairs:
            if isinstance(target, Join):
                target.values.append(value)
        self._lines.append(moves)
        return moves

    # --- loops of the generated code --------------------------------------------------------------

    def _open(self, *, user: bool = False) -> Level:
        """Begin a loop that goes on until it is left."""
        if len(self._levels) >= 15:
            raise Refused("loops and calls are nested too deeply", self._line)
        level = Level(len(self._levels) + 1, user=user)
        self._levels.append(level)
        self.line("while True:")
        self._indent += 1
        return level

    def _close(self, level: Level) -> None:
        """End a loop; jumps out of it to an outer one go on."""
        assert self._levels.pop() is level
        self._indent -= 1
        crossing = {pair for pair in self._jumps if pair[0] == level.number}
        if crossing:
            outer = level.number - 1
            self._jumps -= crossing
            targets = {target for _, target in crossing}
            self.line("if jump != 0:")
            if outer in targets:
                self.line(f"    if jump == {outer}:")
                self.line("        jump = 0")
            self.line("    break")
            self._jumps |= {(outer, target) for target in targets if target < outer}

    def _leave(self, level: Level, remark: str = "") -> None:
        """Jump behind a loop that is being written."""
        inner = self._levels[-1]
        if inner is not level:
            self.line(f"jump = {level.number}")
            self._jumps.add((inner.number, level.number))
        self.line(f"break{remark}")

    # --- trying -----------------------------------------------------------------------------------

    def _mark(self) -> Any:
        """Where the text stands, to return to with `_rollback`."""
        unit = self.unit
        kept = self._growing()
        states = {
            name: {k: list(v) if isinstance(v, list) else dict(v) if isinstance(v, dict) else v
                   for k, v in vars(state).items()}
            for name, state in self._states.items()
        }  # fmt: skip
        return (
            len(self._lines), self._indent, len(self._levels), set(self._jumps), self._loops, self._line,
            [(k, len(k)) for k in kept], dict(unit.emits), states, self._file,
        )  # fmt: skip

    def _growing(self) -> list[list[Any]]:
        """The lists that grow while code is written."""
        unit = self.unit
        return [
            unit.columns, unit.params, unit.records, unit.states, unit.tables, unit.raising, self._rejections, self._slides,
            self._sent,
            *(frame.result.values for frame in self._stack), *(level.outs for level in self._levels),
        ]  # fmt: skip

    def _rollback(self, mark: Any) -> None:
        """Forget what was written since."""
        unit = self.unit
        lines, self._indent, levels, self._jumps, self._loops, self._line, sizes, unit.emits, states, file = (
            mark
        )
        self._jumps = set(self._jumps)
        unit.emits = dict(unit.emits)
        self._file = file
        del self._lines[lines:], self._levels[levels:]
        for kept, size in sizes:
            del kept[size:]
        for name in list(self._states):
            if name in states:
                vars(self._states[name]).update(states[name])
            else:
                del self._states[name]
        for name in [n for n in unit.layouts if n not in unit.states]:
            del unit.layouts[name]

    # --- constants, fields, states ----------------------------------------------------------------

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

    def _is_event(self, node: ast.expr, env: Env) -> bool:
        return isinstance(node, ast.Name) and isinstance(env.get(node.id), EventRef)

    def _is_self(self, node: ast.expr, env: Env) -> bool:
        return isinstance(node, ast.Name) and isinstance(env.get(node.id), SelfRef)

    def _field_of(self, node: ast.expr, env: Env) -> Field | None:
        """The event's field that this reads, if it does."""
        if isinstance(node, ast.Attribute) and self._is_event(node.value, env):
            for field in self.unit.events[self._event].__fields__:
                if field.name == node.attr:
                    return field
        return None

    def _event_field(self, node: ast.expr, env: Env) -> tuple[str, str] | None:
        """Name and kind of the event's scalar field that this reads, if it does."""
        field = self._field_of(node, env)
        kind = kind_of(field.type) if field is not None else None
        return None if field is None or kind is None else (field.name, kind)

    def _field(self, node: ast.Attribute) -> Value:
        """The value of a field of the event."""
        if node.attr in ("ts", "seq"):
            origin = ast.Name(f"_f_{node.attr}", ast.Load())
            if node.attr == "ts" and (later := self.unit.later.get(self._event)) is not None:
                return Value("int", self.temp("int", f"{self.now} - {later.lag}").code, origin=origin)
            return Value("int", f"{node.attr}{self._event}[q{self._event}]", origin=origin)
        event = self.unit.events[self._event]
        for field in event.__fields__:
            if field.name == node.attr:
                return self._field_value(field.name, field.type)
        raise Refused(f"the event's attribute {node.attr}", self._line)

    def _field_value(self, name: str, kind: ValueType) -> Value:
        if isinstance(kind, OptionalType):
            valid, inner = self._column(name, "bool", part="valid"), self._field_value(name, kind.inner)
            return Value("optional", items=optional(valid.code, inner).items, origin=inner.origin)
        if isinstance(kind, ListType):
            element = kind_of(kind.inner)
            if element is None:
                raise Refused(f"the field {name}, which is {kind.text}", self._line)
            origin = ast.Name(f"_f_{name}", ast.Load())
            return self._list_of(origin, lambda k, part: Column(self._event, name, k, part=part), element)
        found = kind_of(kind)
        if found is None:
            raise Refused(f"the field {name}, which is {kind.text}", self._line)
        column = self._column(name, found)
        return Value(column.kind, column.code, origin=ast.Name(f"_f_{name}", ast.Load()))

    def _list_of(self, origin: ast.expr, column: Callable[[str, str], Column], element: str) -> Value:
        """A list of the event: `column` gives the column of a kind that is a part of it."""
        items = self._column_value(column(element, "items")).code.partition("[")[0]
        place = self._column_value(column("int", "offsets")).code.partition("[")[0]
        q = f"q{self._event}"
        bounds = (Value("int", f"{place}[{q}]"), Value("int", f"{place}[{q} + ONE]"))
        return Value("list", items, (*(self._fixed(b) for b in bounds), Value(element)), origin=origin)

    def _column(
        self, field: str, kind: str, test: str = "", operand: str | bytes = "", part: str = ""
    ) -> Value:
        return self._column_value(Column(self._event, field, kind, test, operand, part))

    def _column_value(self, column: Column) -> Value:
        if column not in self.unit.columns:
            self.unit.columns.append(column)
        return Value(column.kind, f"col{self.unit.columns.index(column)}[q{self._event}]")

    # --- values -----------------------------------------------------------------------------------

    def _fixed(self, value: Value) -> Value:
        """The same value as names and literals."""
        if value.kind in ("none", "list") or value.const is not NOT_CONSTANT:
            return value
        if value.is_compound:
            items = tuple(self._fixed(i) for i in value.items)
            return Value(value.kind, items=items, cls=value.cls, origin=value.origin)
        return value if is_simple(value) else self.temp(value.kind, value.code)

    def _present(self, value: Value) -> Value:
        """The value of an optional; where it is None only Python knows what follows."""
        if value.kind != "optional":
            return value
        if value.items[0].code != "True":
            self.exit_if(f"not {value.items[0].code}")
        return self._present(value.items[1])

    def _truth(self, value: Value) -> str:
        return truth(value, str(self._text(b"" if value.kind == "bytes" else "")))

    def _nested_lines(self, write: Callable[[], Any]) -> Any:
        """Write an indented block."""
        self._indent += 1
        self.line("pass")
        result = write()
        self._indent -= 1
        return result

    def _choose(self, test: str, yes: Callable[[], Value], no: Callable[[], Value]) -> Value:
        """`yes` where the test holds, else `no`."""
        if test in ("True", "False"):
            return yes() if test == "True" else no()
        join = Join(self.name("v"))
        self.line(f"if {test}:")
        self._nested_lines(lambda: self._moves([(join, yes())]))
        self.line("else:")
        self._nested_lines(lambda: self._moves([(join, no())]))
        return self._joined(join, "a choice between")

    def _joined(self, join: Join, what: str) -> Value:
        found = join.finish()
        if found is None:
            kinds = list(dict.fromkeys(v.text for v in join.values))
            raise Refused(f"{what} {' and '.join(kinds)}", self._line)
        return found

    def _call(
        self, function: types.FunctionType, args: Sequence[Any], named: Mapping[str, Any], depth: int
    ) -> Value:
        """Write a function out; its result."""
        raise TypeError("abstract")


def _asked(line: str) -> str:
    """What an `if` for room asks for."""
    return line.strip()[3:-1].rpartition(" and ")[2]


def scalar(kind: Any) -> str:
    return kind.name if isinstance(kind, ScalarType) else ""


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
