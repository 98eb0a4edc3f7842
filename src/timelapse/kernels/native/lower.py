"""From a pass's handlers to the source of one flat function.

Handlers and the helpers that they call are written one after the other into the body of a loop over
events. What is not on the list below raises Refused, and the pass is interpreted. What can go wrong
while it runs (an integer outside int64, a zero divisor, `raise`) leaves the function with 1.

A slice's events come as columns per type and as one array that tells each event's type.
"""

from __future__ import annotations

import ast
import types
from collections.abc import Sequence
from typing import Any

from timelapse.kernels.native.emitter import REJECT, Frame, scalar, tree_of
from timelapse.kernels.native.evaluation import Evaluation
from timelapse.kernels.native.expressions import arithmetic
from timelapse.kernels.native.lookahead import look_ahead
from timelapse.kernels.native.states import StateCode
from timelapse.kernels.native.states.base import UNDO
from timelapse.kernels.native.unit import Unit
from timelapse.kernels.native.values import NONE, Env, EventRef, Refused, SelfRef, Value
from timelapse.kernels.native.wide import WIDTHS, wide

_MAX_DEPTH = 8


def without_idle_saves(body: list[str]) -> list[str]:
    """An event's code without the undo entries that nothing can need: no exit comes after them.

    Code after an exit inside of the same loop may have run before it.
    """
    exits = [n for n, line in enumerate(body) if line.lstrip().startswith("return ") or line.endswith(REJECT)]
    last = max(exits, default=-1)
    if last >= 0:
        loops = [n for n, line in enumerate(body[:last]) if line.lstrip().startswith(("for ", "while "))]
        for start in loops:
            depth = len(body[start]) - len(body[start].lstrip())
            end = next(
                (n for n in range(start + 1, len(body)) if len(body[n]) - len(body[n].lstrip()) <= depth),
                len(body),
            )
            last = max(last, end) if end > last else last
    return [line for n, line in enumerate(body) if n < last or not line.endswith(UNDO)]


class Lowering(Evaluation):
    """Writes one pass. Raises Refused."""

    def run(self) -> Unit:
        """Write everything."""
        unit, work = self.unit, self._work
        unit.events = list(dict.fromkeys(e for h in work.handlers for e in h.events))
        unit.handlers = [h.name for h in work.handlers]
        bodies: list[list[str]] = []
        for index, event in enumerate(unit.events):
            self._event, self._lines = index, []
            for handler in work.handlers:
                if event in handler.events:
                    self._handler = unit.handlers.index(handler.name)
                    try:
                        self._call(handler.function, tree_of(handler.text), [SelfRef(), EventRef()], 0)
                    except Refused as refusal:
                        raise Refused(f"{handler.name}: {refusal.reason}", refusal.line) from None
            bodies.append(self._lines or ["            pass"])
        self._lines = []
        unit.claims = {name: self._states[name].claims for name in unit.states}
        unit.finds = {name: self._states[name].finds for name in unit.states}
        bodies = [without_idle_saves(body) for body in bodies]
        unit.undo = max((sum(line.endswith(UNDO) for line in body) for body in bodies), default=0)
        unit.rejects = bool(self._rejections)
        unit.source = self._source([[*look_ahead(body, i), *body] for i, body in enumerate(bodies)])
        return unit

    def arguments(self) -> list[tuple[str, str]]:
        """Names and Numba types of the function's arguments."""
        unit = self.unit
        found = [("kind", "KINDS"), ("lo", "int64"), ("hi", "int64"), ("pos", "INTS"), ("counts", "INTS"),
                 ("emitted", "INTS"), ("undo", "TABLE"), ("refused", "TABLE")]  # fmt: skip
        for i in range(len(unit.events)):
            found += [(f"ts{i}", "RINTS"), (f"seq{i}", "RINTS")]
        for i, column in enumerate(unit.columns):
            found.append((f"c{i}", {"float": "RFLOATS", "bool": "RBOOLS"}.get(column.kind, "RINTS")))
        for i in range(len(unit.states)):
            found += [(f"t{i}", "TABLE"), (f"m{i}", "uint64"), (f"s{i}", "INTS")]
        found += [(f"p_{n}", {"float": "float64", "bool": "boolean"}.get(k, "int64")) for n, k in unit.params]
        for i, record in enumerate(unit.records):
            found.append((f"o{i}_place", "TABLE"))
            for j, field in enumerate(record.__fields__):
                kind = {"float": "FLOATS", "bool": "BOOLS"}.get(scalar(field.type), "INTS")
                found.append((f"o{i}_{j}", kind))
        return found

    def _source(self, bodies: list[list[str]]) -> str:
        unit = self.unit
        arguments = self.arguments()
        widths = sorted({layout.width for layout in unit.layouts.values() if layout.width > WIDTHS})
        lines = [
            *(wide(width) for width in widths),
            "SIGNATURE = (" + ", ".join(kind for _, kind in arguments) + ",)",
            "", "",
            f"def run({', '.join(name for name, _ in arguments)}):",
            "    u = np.int64(0)",
        ]  # fmt: skip
        for i in range(len(unit.events)):
            lines.append(f"    q{i} = np.uint64(pos[{i}])")
        lines += ["    for j in range(lo, hi):", "        k = kind[j]", "        ordinal = 0"]
        if unit.undo:
            lines.append("        u = np.int64(0)")
        for i, record in enumerate(unit.records):
            if record.__reads__:  # nothing in their rows says which event they are of
                lines.append(f"        emitted[{len(unit.records) + 1 + i}] = emitted[{i}]")
        for i, body in enumerate(bodies):
            lines.append(f"        {'if' if i == 0 else 'elif'} k == {i}:")
            if any(r.event == i for r in self._rejections):
                lines += ["            rejected = 0", "            while True:", *("    " + b for b in body)]
                lines += ["                break", *self._rejection(i)]
            else:
                lines += body
            lines.append(f"            q{i} += ONE")
        lines += [f"    pos[{i}] = q{i}" for i in range(len(unit.events))]
        return "\n".join([*lines, "    return 0", ""])

    def _rejection(self, event: int) -> list[str]:
        """After the code of an event that may be rejected: undo what it wrote, take out what it emitted."""
        unit = self.unit
        self._lines, self._event, self._indent = [], event, 3
        with self.block("if rejected != 0:"):
            with self.block("while u > 0:"):
                self.line("u -= 1")
                for i, layout in enumerate(unit.layouts.values()):
                    with self.block(f"{'if' if i == 0 else 'elif'} undo[u, 0] == {i}:"):
                        self.line(f"restore(undo, u, t{i}, {layout.place}, {layout.live})")
            own = f"seq{event}[q{event}]"
            for i in (n for n, cls in enumerate(unit.records) if not cls.__reads__):
                with self.block(f"while emitted[{i}] > 0 and o{i}_place[emitted[{i}] - 1, 1] == {own}:"):
                    self.line(f"emitted[{i}] -= 1")
            if self._final:
                self.line("ordinal = 0")
                for number, place in enumerate(self._rejections):
                    if place.event == event and place.record is not None:
                        with self.block(f"if rejected == {number + 1}:"):
                            self._write_record(place.record, place.fields)
                self.line(f"n = emitted[{len(unit.records)}]")
                for i, word in enumerate((f"ts{event}[q{event}]", own, f"{event}", "handler", "reason")):
                    self.line(f"refused[n, {i}] = {word}")
                self.line(f"emitted[{len(unit.records)}] = n + 1")
        return self._lines

    def _call(
        self, function: types.FunctionType, node: ast.FunctionDef, args: Sequence[Any], depth: int
    ) -> Value:
        """Write a function out; its result."""
        if depth > _MAX_DEPTH:
            raise Refused(f"{node.name} calls itself, or calls are nested too deeply", self._line)
        spec = node.args
        if spec.vararg or spec.kwarg or spec.kwonlyargs or len(args) != len(spec.posonlyargs + spec.args):
            raise Refused(f"the arguments of {node.name}", self._line)
        self._frames += 1
        frame = Frame(self._frames, function, depth)
        env: Env = {a.arg: v for a, v in zip(spec.posonlyargs + spec.args, args, strict=True)}
        outer = self._line
        left = self._block(node.body, env, frame)
        self._line = outer
        if left is not None and frame.result is not None and frame.result.kind != "none":
            raise Refused(f"{node.name} returns a value on some ways only", self._line)
        return NONE if frame.result is None else frame.result

    def _block(self, body: Sequence[ast.stmt], env: Env, frame: Frame) -> Env | None:
        """Write statements; the names after them, or None where all ways have returned."""
        for place, statement in enumerate(body):
            self._line = getattr(statement, "lineno", self._line)
            if isinstance(statement, ast.If):
                test = self._truth(self._expr(statement.test, env, frame))
                rest: list[ast.stmt] = []
                leaves = any(isinstance(n, ast.Return | ast.Raise) for n in ast.walk(statement))
                if leaves:
                    rest = list(body[place + 1 :])
                left = self._branches(test, [*statement.body, *rest], [*statement.orelse, *rest], env, frame)
                if left is None or leaves:
                    return left
                env = left
            elif isinstance(statement, ast.Return):
                value = NONE if statement.value is None else self._expr(statement.value, env, frame)
                self._return(value, frame)
                return None
            elif (call := self._rejecting(statement, env)) is not None:
                self._reject(call, env, frame)
                return None
            elif isinstance(statement, ast.Raise):
                self.leave()
                return None
            else:
                self._statement(statement, env, frame)
        return env

    def _rejecting(self, statement: ast.stmt, env: Env) -> ast.Call | None:
        """The call if the statement is `self.reject(...)`."""
        match statement:
            case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="reject")) as call):
                return call if isinstance(env.get(name), SelfRef) else None
        return None

    def _branches(
        self, test: str, yes: Sequence[ast.stmt], no: Sequence[ast.stmt], env: Env, frame: Frame
    ) -> Env | None:
        self.line(f"if {test}:")
        a = self._nested(yes, env, frame)
        self.line("else:")
        b = self._nested(no, env, frame)
        if a is None or b is None:
            return a if b is None else b
        return {n: v for n, v in a.items() if b.get(n) == v}

    def _nested(self, body: Sequence[ast.stmt], env: Env, frame: Frame) -> Env | None:
        self._indent += 1
        self.line("pass")
        left = self._block(body, dict(env), frame)
        self._indent -= 1
        return left

    def _return(self, value: Value, frame: Frame) -> None:
        stored = self._store(f"f{frame.number}_result", value)
        if frame.result is not None and frame.result.shape != stored.shape:
            raise Refused("a function returns values of different types", self._line)
        frame.result = stored

    def _statement(self, statement: ast.stmt, env: Env, frame: Frame) -> None:
        match statement:
            case ast.Pass() | ast.Expr(value=ast.Constant()):
                return
            case ast.Expr(value=ast.Call() as call):
                self._call_expr(call, env, frame)
            case ast.Assign(targets=[target], value=value):
                self._assign(target, self._fixed(self._expr(value, env, frame)), env, frame)
            case ast.AnnAssign(target=ast.Name() as target, value=ast.expr() as value):
                self._assign(target, self._fixed(self._expr(value, env, frame)), env, frame)
            case ast.AugAssign(target=ast.Name(id=name), op=op, value=value):
                old = self._variable(name, env, frame)
                result = arithmetic(self, op, self._fixed(old), self._expr(value, env, frame))
                env[name] = self._store(f"f{frame.number}_{name}", result)
            case ast.AugAssign(target=ast.Subscript() | ast.Attribute() as target, op=op, value=value):
                state, key = self._target(target, env, frame)
                calls = any(isinstance(n, ast.Call) for n in ast.walk(value))
                state.change(key, op, lambda: self._expr(value, env, frame), writes=calls)
            case ast.Delete(targets=[ast.Subscript() | ast.Attribute() as target]):
                state, key = self._target(target, env, frame)
                state.delete(key)
            case ast.Assert(test=test):
                self.exit_if(f"not {self._truth(self._expr(test, env, frame))}")
            case _:
                raise Refused(f"the statement {type(statement).__name__}", statement.lineno)

    def _assign(self, target: ast.expr, value: Value, env: Env, frame: Frame) -> None:
        match target:
            case ast.Name(id=name):
                env[name] = self._store(f"f{frame.number}_{name}", value)
            case ast.Tuple(elts=parts) if value.kind == "tuple" and len(parts) == len(value.items):
                for part, item in zip(parts, value.items, strict=True):
                    self._assign(part, item, env, frame)
            case ast.Subscript() | ast.Attribute():
                state, key = self._target(target, env, frame)
                state.set(key, value)
            case _:
                raise Refused("this assignment", self._line)

    def _target(self, target: ast.expr, env: Env, frame: Frame) -> tuple[StateCode, Value | None]:
        """The state, and the key's value if it has one, of `self.x[k]` or `self.x`."""
        if isinstance(target, ast.Subscript):
            state = self._state_of(target.value, env)
            if state is not None:
                return state, self._fixed(self._expr(target.slice, env, frame))
        state = self._state_of(target, env)
        if state is None or state.spec.key is not None or not state.attribute:
            raise Refused("an assignment to something that is not a state", self._line)
        return state, None
