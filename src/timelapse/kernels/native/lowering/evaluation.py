"""Expressions of handlers and helpers."""

from __future__ import annotations

import ast
import types
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any, TypeVar

from timelapse.kernels.native.lowering.calls import Calls
from timelapse.kernels.native.lowering.comparisons import compared, equal, present
from timelapse.kernels.native.lowering.emitter import Frame
from timelapse.kernels.native.lowering.flow import Join
from timelapse.kernels.native.lowering.numbers import arithmetic, inverted, negated
from timelapse.kernels.native.lowering.values import NOT_CONSTANT, Env, Refused, Value, decimal_kind
from timelapse.model.decimals import scale_of
from timelapse.model.program import spec_of

T = TypeVar("T")

_ATOMS = (ast.Constant, ast.Name)


class Evaluation(Calls):
    """Writes expressions."""

    def _variable(self, name: str, env: Env, frame: Frame) -> Value:
        found = env.get(name)
        if isinstance(found, Value):
            return found
        if found is None and name in frame.names:
            return self._const(frame.names[name])
        if found is None and name in frame.locals:
            raise Refused(f"{name}, which is not set on every way, or to values of several types", self._line)
        raise Refused(f"the name {name}", self._line)

    def _expr(self, node: ast.expr, env: Env, frame: Frame) -> Value:
        """Write an expression; its value. What only Python can do with the event alone is a column."""
        self._line = getattr(node, "lineno", self._line)
        if isinstance(node, _ATOMS):
            return self._written_out(node, env, frame)
        return self._twice(lambda: self._tried(node, env, frame), env)

    def _twice(self, write: Callable[[], T], env: Env) -> T:
        """Write an expression. Lists that Python makes of the event become columns only where nothing else will do:
        of `len(e.text.split()) > 3` the whole is cheaper, as then no word has to be given a code."""
        if self._within:
            return write()
        mark, names = self._mark(), dict(env)
        self._within = True
        try:
            return write()
        except Refused:
            self._rollback(mark)
            env.clear()
            env.update(names)
            self._lists = True
            return write()
        finally:
            self._within = self._lists = False

    def _tried(self, node: ast.expr, env: Env, frame: Frame) -> Value:
        mark = self._mark()
        names = dict(env)
        try:
            return self._written_out(node, env, frame)
        except Refused as refusal:
            found = self._computed(node, names, frame, mark)
            if found is None:
                raise self._placed(refusal) from None
            env.clear()
            env.update(names)
            return found

    def _placed(self, refusal: Refused) -> Refused:
        refusal.line = refusal.line or self._line
        refusal.file = refusal.file or self._file
        return refusal

    def _written_out(self, node: ast.expr, env: Env, frame: Frame) -> Value:
        match node:
            case ast.Constant(value=value):
                return self._const(value)
            case ast.Name(id=name):
                return self._variable(name, env, frame)
            case ast.Tuple(elts=parts):
                if any(isinstance(p, ast.Starred) for p in parts):
                    raise Refused("a tuple with a star", self._line)
                items = tuple(self._fixed(self._expr(p, env, frame)) for p in parts)
                return Value("tuple", items=items, const=_known(items))
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as number)):
                return self._const(-number)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return self._unary(ast.Not(), self._bool(self._test(operand, env, frame)))
            case ast.UnaryOp(op=op, operand=operand):
                return self._unary(op, self._expr(operand, env, frame))
            case ast.BinOp(left=left, op=op, right=right):
                a = self._expr(left, env, frame)
                return arithmetic(self, op, a, self._expr(right, env, frame))
            case ast.BoolOp(op=op, values=values):
                return self._short_circuit(isinstance(op, ast.And), values, env, frame)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                self._no_names(body, orelse)
                code = self._test(test, env, frame)
                return self._choose(
                    code, lambda: self._expr(body, env, frame), lambda: self._expr(orelse, env, frame)
                )
            case ast.Compare():
                return self._comparison(node, env, frame)
            case ast.Attribute():
                return self._attribute(node, env, frame)
            case ast.Subscript():
                return self._subscript(node, env, frame)
            case ast.Call():
                return self._call_expr(node, env, frame)
            case ast.NamedExpr(target=ast.Name(id=name), value=value):
                env[name] = self._fixed(self._expr(value, env, frame))
                found = env[name]
                assert isinstance(found, Value)
                return found
            case ast.JoinedStr():
                raise Refused("an f-string", self._line)
            case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
                raise Refused("a comprehension whose result is kept", self._line)
            case _:
                raise Refused(f"the expression {type(node).__name__}", self._line)

    def _test(self, node: ast.expr, env: Env, frame: Frame) -> str:
        """A boolean expression for the truth of an expression: `and` and `or` need not give one type."""
        return self._twice(lambda: self._tested(node, env, frame), env)

    def _tested(self, node: ast.expr, env: Env, frame: Frame) -> str:
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            code = self._test(node.operand, env, frame)
            return {"True": "False", "False": "True"}.get(code, f"(not {code})")
        if isinstance(node, ast.BoolOp):
            both = isinstance(node.op, ast.And)
            return self._truth(self._short_circuit(both, node.values, env, frame, tests=True))
        mark, names = self._mark(), dict(env)
        try:
            if isinstance(node, ast.Compare) and len(node.ops) == 1:
                left = self._fixed(self._expr(node.left, env, frame))
                self._no_names(*node.comparators)
                return self._one_comparison(node.ops[0], left, node.comparators[0], env, frame)[0]
            return self._truth(self._expr(node, env, frame))
        except Refused:
            asked = ast.Call(ast.Name("bool", ast.Load()), [node], [])
            found = self._computed(
                ast.fix_missing_locations(ast.copy_location(asked, node)), names, frame, mark
            )
            if found is None or frame.names.get("bool") is not bool:
                raise
            return self._truth(found)

    def _unary(self, op: ast.unaryop, value: Value) -> Value:
        if isinstance(op, ast.Not):
            code = self._truth(value)
            if code in ("True", "False"):
                return self._const(code == "False")
            return self.temp("bool", f"not {code}")
        if isinstance(op, ast.USub):
            return negated(self, value)
        if isinstance(op, ast.Invert):
            return inverted(self, value)
        return arithmetic(self, ast.Add(), value, self._const(0)) if value.kind != "float" else value

    def _operated(self, node: ast.BinOp, a: Value, b: Value, env: Env, frame: Frame) -> Value:
        """`a op b`, as `a op= b` has it."""
        names: Env = {**env, ".left": a, ".right": b}
        made = ast.BinOp(ast.Name(".left", ast.Load()), node.op, ast.Name(".right", ast.Load()))
        return self._expr(ast.fix_missing_locations(ast.copy_location(made, node)), names, frame)

    def _no_names(self, *nodes: ast.expr) -> None:
        if any(isinstance(n, ast.NamedExpr) for node in nodes for n in ast.walk(node)):
            raise Refused("`:=` in what may be skipped", self._line)

    def _short_circuit(
        self, both: bool, values: list[ast.expr], env: Env, frame: Frame, *, tests: bool = False
    ) -> Value:
        """`and`, `or`; `tests`: only the truth of the result matters."""
        self._no_names(*values[1:])
        join = Join(self.name("v"))
        depth = 0
        for place, node in enumerate(values):
            if tests:
                value = self._bool(self._test(node, env, frame))
            else:
                value = self._fixed(self._expr(node, env, frame))
            test = self._truth(value)
            last = place == len(values) - 1
            if last or test == str(not both):
                self._moves([(join, value)])
                break
            if test == str(both):
                continue
            self.line(f"if {f'not {test}' if both else test}:")
            decided = value if both else _held(value)
            self._nested_lines(lambda v=decided: self._moves([(join, v)]))  # type: ignore[misc]
            self.line("else:")
            self._indent += 1
            self.line("pass")
            depth += 1
        self._indent -= depth
        return self._joined(join, f"`{'and' if both else 'or'}` of")

    def _comparison(self, node: ast.Compare, env: Env, frame: Frame) -> Value:
        self._no_names(*node.comparators)
        left = self._fixed(self._expr(node.left, env, frame))
        last = len(node.ops) - 1
        if last == 0:
            return self._bool(self._one_comparison(node.ops[0], left, node.comparators[0], env, frame)[0])
        join = Join(self.name("v"))
        for place, (op, right) in enumerate(zip(node.ops, node.comparators, strict=True)):
            code, value = self._one_comparison(op, left, right, env, frame)
            result = self._bool(code)
            if place == last:
                self._moves([(join, result)])
                break
            if value is None:
                raise Refused("a chain of comparisons with `in`", self._line)
            self.line(f"if not {result.code}:")
            self._nested_lines(lambda: self._moves([(join, self._const(False))]))
            self.line("else:")
            self._indent += 1
            self.line("pass")
            left = value
        self._indent -= last
        return self._joined(join, "a comparison of")

    def _bool(self, code: str) -> Value:
        if code in ("True", "False"):
            return self._const(code == "True")
        return self._fixed(Value("bool", code))

    def _one_comparison(
        self, op: ast.cmpop, left: Value, right: ast.expr, env: Env, frame: Frame
    ) -> tuple[str, Value | None]:
        """The code, and the right side's value."""
        if isinstance(op, ast.In | ast.NotIn):
            code = self._membership(left, right, env, frame)
            if isinstance(op, ast.NotIn):
                code = {"True": "False", "False": "True"}.get(code, f"(not {code})")
            return code, None
        value = self._fixed(self._expr(right, env, frame))
        return compared(self, op, left, value), value

    def _membership(self, left: Value, right: ast.expr, env: Env, frame: Frame) -> str:
        state = self._state_of(right, env)
        if state is not None:
            return state.contains(present(self, left)).code
        field = self._event_field(right, env)
        if field is not None and field[1] == "str" and type(left.const) is str:
            return self._column(field[0], "bool", "contains", left.const).code
        if isinstance(right, ast.List | ast.Set):
            return self._among(left, [self._fixed(self._expr(i, env, frame)) for i in right.elts])
        constants = self._constants(right, env, frame)
        if constants is not None:
            return self._among(left, constants)
        value = present(self, self._expr(right, env, frame))
        if value.kind == "tuple":
            return self._among(left, value.items)
        if value.kind == "list":
            return self._in_list(left, value)
        raise Refused(f"`in` of {value.text}", self._line)

    def _constants(self, node: ast.expr, env: Env, frame: Frame) -> list[Value] | None:
        """The elements of a global set that nobody changes, in an order of their own."""
        if isinstance(node, ast.Name) and node.id not in env:
            found = frame.names.get(node.id)
            if isinstance(found, frozenset) and len(found) <= 64:
                return [self._const(v) for v in sorted(found, key=repr)]
        return None

    def _among(self, left: Value, items: Sequence[Value]) -> str:
        """`left in (...)`: identical or equal to one of them."""
        if any("float" in v.shape for v in (left, *items)):
            raise Refused("`in` among floats", self._line)
        codes = [c for i in items if (c := equal(self, left, i)) != "False"]
        if "True" in codes:
            return "True"
        return f"({' or '.join(codes)})" if codes else "False"

    def _in_list(self, left: Value, value: Value) -> str:
        start, stop, element = value.items
        if "float" in (left.shape, element.kind) or left.is_compound:
            raise Refused(f"`in` of {value.text}", self._line)
        found = self.name("among")
        place = self.name("i")
        self.line(f"{found} = False")
        self.line(f"for {place} in range({start.code}, {stop.code}):")
        item = Value(element.kind, f"{value.code}[{place}]")
        self.line(f"    if {equal(self, left, item)}:")
        self.line(f"        {found} = True")
        self.line("        break")
        return found

    def _attribute(self, node: ast.Attribute, env: Env, frame: Frame) -> Value:
        base = node.value
        if self._is_event(base, env):
            return self._field(node)
        if self._is_self(base, env):
            return self._member(node.attr, frame)
        known = self._known_object(node, env, frame)
        if known is not NOT_CONSTANT:
            return self._const(known)
        value = present(self, self._expr(base, env, frame))
        if value.kind == "tuple" and value.cls is not None and node.attr in value.cls._fields:  # type: ignore[attr-defined]
            return value.items[value.cls._fields.index(node.attr)]  # type: ignore[attr-defined]
        raise Refused(f"the attribute {node.attr} of {value.text}", self._line)

    def _member(self, name: str, frame: Frame) -> Value:
        if name == "now":
            own = self._event not in self.unit.later and self._event not in self.unit.ticking
            return Value("int", self.now, origin=ast.Name("_f_ts", ast.Load()) if own else None)
        if name in self._params:
            return self._param(name)
        spec = spec_of(self._program).states.get(name)
        if spec is not None:
            if not spec.kind.attribute_style:  # the name stands for the state, its value is `self.x.get()`
                raise Refused(f"self.{name} by itself", self._line)
            return self._state(name).get(None)
        found = self._member_object(name)
        if isinstance(found, property) and isinstance(found.fget, types.FunctionType):
            return self._method_call(found.fget, [], {}, frame)
        if found is None:
            raise Refused(f"self.{name}", self._line)
        return self._const(found)

    def _param(self, name: str) -> Value:
        value = self._params[name]
        return self._parameter(name, value, ast.Name(self._object(value), ast.Load()))

    def _parameter(self, name: str, value: Any, origin: ast.expr) -> Value:
        kind = type(value).__name__
        if type(value) in (str, bytes) or value is None:
            return self._const(value)
        if isinstance(value, tuple) and (type(value) is tuple or hasattr(type(value), "_fields")):
            items = tuple(self._item(name, i, v, origin) for i, v in enumerate(value))
            return Value("tuple", items=items, cls=None if type(value) is tuple else type(value))
        if type(value) is Decimal and (places := scale_of(value)) is not None:
            kind = decimal_kind(places)  # another scale is other code
        elif type(value) not in (int, float, bool) or (type(value) is int and not -(2**63) <= value < 2**63):
            raise Refused(f"the parameter {name}, which is {kind}", self._line)
        if (name, kind) not in self.unit.params:
            self.unit.params.append((name, kind))
        return Value(kind, f"p_{name}", origin=origin)

    def _item(self, name: str, place: int, value: Any, origin: ast.expr) -> Value:
        """An item of a parameter that is a tuple: part of the machine code."""
        if isinstance(value, tuple):
            raise Refused(f"the parameter {name}, a tuple of tuples", self._line)
        return self._const(value)

    def _subscript(self, node: ast.Subscript, env: Env, frame: Frame) -> Value:
        state = self._state_of(node.value, env)
        if state is not None:
            return state.get(self._fixed(self._expr(node.slice, env, frame)))
        base = present(self, self._expr(node.value, env, frame))
        if isinstance(node.slice, ast.Slice):
            return self._part(base, node.slice, env, frame)
        index = self._expr(node.slice, env, frame)
        if base.kind == "list":
            return self._element(base, index)
        if base.kind == "tuple" and type(index.const) is int:
            if -len(base.items) <= index.const < len(base.items):
                return base.items[index.const]
        raise Refused(f"a subscript of {base.text}", self._line)

    def _part(self, base: Value, part: ast.Slice, env: Env, frame: Frame) -> Value:
        if base.kind == "list":
            return self._slice(base, part, env, frame)
        bounds = [
            b if b is None else self._expr(b, env, frame).const for b in (part.lower, part.upper, part.step)
        ]
        if base.kind == "tuple" and all(b is None or type(b) is int for b in bounds):
            return Value("tuple", items=base.items[slice(*bounds)])
        raise Refused(f"a slice of {base.text}", self._line)


def _known(items: Sequence[Value]) -> Any:
    """The tuple where all its items are known."""
    if any(i.const is NOT_CONSTANT for i in items):
        return NOT_CONSTANT
    return tuple(i.const for i in items)


def _held(value: Value) -> Value:
    """A value that is known to be true: there is one."""
    return _held(value.items[1]) if value.kind == "optional" else value


Written = Callable[[], Value]
