"""Expressions of handlers and helpers."""

from __future__ import annotations

import ast
import types

from timelapse.kernels.native.calls import Calls
from timelapse.kernels.native.emitter import Frame, node_of
from timelapse.kernels.native.expressions import arithmetic, compared, negated
from timelapse.kernels.native.values import NOT_CONSTANT, Env, Refused, SelfRef, Value
from timelapse.model.program import spec_of


class Evaluation(Calls):
    """Writes expressions."""

    def _variable(self, name: str, env: Env, frame: Frame) -> Value:
        found = env.get(name)
        if isinstance(found, Value):
            return found
        if found is None and name in frame.names:
            return self._const(frame.names[name])
        raise Refused(f"the name {name}", self._line)

    def _expr(self, node: ast.expr, env: Env, frame: Frame) -> Value:
        self._line = getattr(node, "lineno", self._line)
        match node:
            case ast.Constant(value=value):
                return self._const(value)
            case ast.Name(id=name):
                return self._variable(name, env, frame)
            case ast.Tuple(elts=parts):
                return Value("tuple", items=tuple(self._expr(p, env, frame) for p in parts))
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as number)):
                return self._const(-number)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return negated(self, self._expr(operand, env, frame))
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return self.temp("bool", f"not {self._truth(self._expr(operand, env, frame))}")
            case ast.BinOp(left=left, op=op, right=right):
                a = self._expr(left, env, frame)
                return arithmetic(self, op, a, self._expr(right, env, frame))
            case ast.BoolOp(op=op, values=values):
                return self._short_circuit(isinstance(op, ast.And), values, env, frame)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                return self._choice(self._truth(self._expr(test, env, frame)), body, orelse, env, frame)
            case ast.Compare():
                return self._comparison(node, env, frame)
            case ast.Attribute():
                return self._attribute(node, env, frame)
            case ast.Subscript():
                return self._subscript(node, env, frame)
            case ast.Call():
                return self._call_expr(node, env, frame)
            case _:
                raise Refused(f"the expression {type(node).__name__}", self._line)

    def _choice(self, test: str, body: ast.expr, orelse: ast.expr, env: Env, frame: Frame) -> Value:
        stem = self.name("c")
        self.line(f"if {test}:")
        self._indent += 1
        a = self._store(stem, self._expr(body, env, frame))
        self.line("pass")
        self._indent -= 1
        self.line("else:")
        self._indent += 1
        b = self._store(stem, self._expr(orelse, env, frame))
        self.line("pass")
        self._indent -= 1
        if a != b:
            raise Refused(f"a choice between {a.shape} and {b.shape}", self._line)
        return a

    def _short_circuit(self, both: bool, values: list[ast.expr], env: Env, frame: Frame) -> Value:
        stem = self.name("c")
        result = self._store(stem, self._expr(values[0], env, frame))
        for depth, value in enumerate(values[1:], 1):
            test = self._truth(result)
            self.line(f"if {test if both else f'not {test}'}:")
            self._indent += 1
            if self._store(stem, self._expr(value, env, frame)) != result:
                raise Refused("`and` or `or` of values of different types", self._line)
            self.line("pass")
            if depth == len(values) - 1:
                self._indent -= depth
        return result

    def _comparison(self, node: ast.Compare, env: Env, frame: Frame) -> Value:
        left = self._expr(node.left, env, frame)
        stem = self.name("c")
        last = len(node.ops) - 1
        for place, (op, right) in enumerate(zip(node.ops, node.comparators, strict=True)):
            if isinstance(op, ast.In | ast.NotIn):
                found = self._membership(left, right, env, frame)
                self.line(f"{stem}_bool = {'not ' if isinstance(op, ast.NotIn) else ''}{found}")
                if place != last:
                    raise Refused("a chain of comparisons with `in`", self._line)
            else:
                value = self._expr(right, env, frame)
                self.line(f"{stem}_bool = {compared(self, op, left, value)}")
                left = value
            if place != last:
                self.line(f"if {stem}_bool:")
                self._indent += 1
        self._indent -= last
        return Value("bool", f"{stem}_bool")

    def _membership(self, left: Value, right: ast.expr, env: Env, frame: Frame) -> str:
        state = self._state_of(right, env)
        if state is not None:
            return state.contains(left).code
        field = self._event_field(right, env)
        if field is not None and left.const is not NOT_CONSTANT and field[1] == left.kind == "str":
            return self._column(field[0], "bool", "contains", left.const).code
        if isinstance(right, ast.Tuple | ast.List | ast.Set):
            items = [self._expr(i, env, frame) for i in right.elts]
        else:
            items = list(self._expr(right, env, frame).items)
        if not items or any(
            i.kind != left.kind or i.kind not in ("int", "bool", "str", "bytes") for i in items
        ):
            raise Refused("`in` of this", self._line)
        return "(" + " or ".join(f"({left.code} == {i.code})" for i in items) + ")"

    def _attribute(self, node: ast.Attribute, env: Env, frame: Frame) -> Value:
        field = self._event_field(node, env)
        if field is not None:
            name, kind = field
            if name in ("ts", "seq"):
                return Value("int", f"{name}{self._event}[q{self._event}]")
            return self._column(name, kind)
        base = node.value
        if isinstance(base, ast.Name) and isinstance(env.get(base.id), SelfRef):
            return self._member(node.attr, frame)
        if isinstance(base, ast.Name) and base.id not in env:
            module = frame.names.get(base.id)
            if isinstance(module, types.ModuleType) and hasattr(module, node.attr):
                return self._const(getattr(module, node.attr))
        raise Refused(f"the attribute {node.attr}", self._line)

    def _member(self, name: str, frame: Frame) -> Value:
        if name == "now":
            return Value("int", f"ts{self._event}[q{self._event}]")
        if name in self._params:
            return self._param(name)
        spec = spec_of(self._program).states.get(name)
        if spec is not None:
            if not spec.kind.attribute_style:  # the name stands for the state, its value is `self.x.get()`
                raise Refused(f"self.{name} by itself", self._line)
            return self._state(name).get(None)
        found = self._member_object(name)
        if isinstance(found, property) and isinstance(found.fget, types.FunctionType):
            return self._call(found.fget, node_of(found.fget), [SelfRef()], frame.depth + 1)
        raise Refused(f"self.{name}", self._line)

    def _param(self, name: str) -> Value:
        value = self._params[name]
        kind = type(value).__name__
        if type(value) in (str, bytes):
            return self._const(value)
        if type(value) not in (int, float, bool) or (type(value) is int and abs(value) >= 2**63):
            raise Refused(f"the parameter {name}, which is {kind}", self._line)
        if (name, kind) not in self.unit.params:
            self.unit.params.append((name, kind))
        return Value(kind, f"p_{name}")

    def _subscript(self, node: ast.Subscript, env: Env, frame: Frame) -> Value:
        state = self._state_of(node.value, env)
        if state is not None:
            return state.get(self._expr(node.slice, env, frame))
        base = self._expr(node.value, env, frame)
        index = self._expr(node.slice, env, frame)
        if (
            base.kind == "tuple"
            and type(index.const) is int
            and -len(base.items) <= index.const < len(base.items)
        ):
            return base.items[index.const]
        raise Refused("this subscript", self._line)
