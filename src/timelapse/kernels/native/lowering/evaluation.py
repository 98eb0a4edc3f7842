"""Expressions of handlers and helpers."""

from __future__ import annotations

import ast
import types
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from decimal import Decimal
from typing import TYPE_CHECKING, Any, TypeVar

from timelapse.kernels.native.lowering.calls import known_object
from timelapse.kernels.native.lowering.code import Code
from timelapse.kernels.native.lowering.columns import Columns
from timelapse.kernels.native.lowering.comparisons import compared, equal, present
from timelapse.kernels.native.lowering.context import Context, Frame
from timelapse.kernels.native.lowering.fields import Fields, is_event
from timelapse.kernels.native.lowering.flow import Join
from timelapse.kernels.native.lowering.form import Break
from timelapse.kernels.native.lowering.numbers import arithmetic, inverted, negated
from timelapse.kernels.native.lowering.stateful import States, is_self
from timelapse.kernels.native.lowering.trying import Trial
from timelapse.kernels.native.lowering.values import NOT_CONSTANT, Env, Value, decimal_kind
from timelapse.kernels.native.refused import Refused
from timelapse.model.decimals import scale_of

if TYPE_CHECKING:
    from timelapse.kernels.native.lowering.rules import Rules

T = TypeVar("T")

_ATOMS = (ast.Constant, ast.Name)
_NESTED = 100
"""So many parentheses of a condition, and it is held in a variable: Python reads 200 that are nested."""


class Expressions:
    """Writes expressions."""

    def __init__(
        self, ctx: Context, code: Code, fields: Fields, states: States, trial: Trial, columns: Columns, rules: Rules
    ) -> None:  # fmt: skip
        self._ctx, self._code, self._fields, self._states = ctx, code, fields, states
        self._trial, self._columns, self._rules = trial, columns, rules
        self._within = False
        """Whether an expression is being written."""
        self._lists = False
        """Whether lists that Python makes of the event may become columns (see `_twice`)."""

    def variable(self, name: str, env: Env, frame: Frame) -> Value:
        found = env.get(name)
        if isinstance(found, Value):
            return found
        if found is None and name in frame.names:
            return self._ctx.const(frame.names[name])
        if found is None and name in frame.locals:
            raise Refused(
                f"{name}, which is not set on every way, or to values of several types", self._ctx.line
            )
        raise Refused(f"the name {name}", self._ctx.line)

    def expr(self, node: ast.expr, env: Env, frame: Frame) -> Value:
        """Write an expression; its value. What only Python can do with the event alone is a column."""
        self._ctx.line = getattr(node, "lineno", self._ctx.line)
        if isinstance(node, _ATOMS):
            return self._written_out(node, env, frame)
        return self._twice(lambda: self._tried(node, env, frame), env)

    def _twice(self, write: Callable[[], T], env: Env) -> T:
        """Write an expression. Lists that Python makes of the event become columns only where nothing else will do:
        of `len(e.text.split()) > 3` the whole is cheaper, as then no word has to be given a code."""
        if self._within:
            return write()
        mark, names = self._trial.mark(), dict(env)
        self._within = True
        try:
            return write()
        except Refused:
            self._trial.back(mark)
            env.clear()
            env.update(names)
            self._lists = True
            return write()
        finally:
            self._within = self._lists = False

    def _tried(self, node: ast.expr, env: Env, frame: Frame) -> Value:
        mark = self._trial.mark()
        names = dict(env)
        try:
            return self._written_out(node, env, frame)
        except Refused as refusal:
            found = self._columns.computed(node, names, frame, mark, lists=self._lists)
            if found is None:
                raise self._placed(refusal) from None
            env.clear()
            env.update(names)
            return found

    def _placed(self, refusal: Refused) -> Refused:
        refusal.line = refusal.line or self._ctx.line
        refusal.file = refusal.file or self._ctx.file
        return refusal

    def _written_out(self, node: ast.expr, env: Env, frame: Frame) -> Value:
        match node:
            case ast.Constant(value=value):
                return self._ctx.const(value)
            case ast.Name(id=name):
                return self.variable(name, env, frame)
            case ast.Tuple(elts=parts):
                if any(isinstance(p, ast.Starred) for p in parts):
                    raise Refused("a tuple with a star", self._ctx.line)
                items = tuple(self._code.fixed(self.expr(p, env, frame)) for p in parts)
                return Value("tuple", items=items, const=_known(items))
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as number)):
                return self._ctx.const(-number)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return self._unary(ast.Not(), self._code.condition(self.test(operand, env, frame)))
            case ast.UnaryOp(op=op, operand=operand):
                return self._unary(op, self.expr(operand, env, frame))
            case ast.BinOp(left=left, op=op, right=right):
                a = self.expr(left, env, frame)
                return arithmetic(self._code, op, a, self.expr(right, env, frame))
            case ast.BoolOp(op=op, values=values):
                return self._short_circuit(isinstance(op, ast.And), values, env, frame)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                self._no_names(body, orelse)
                code = self.test(test, env, frame)
                return self._code.choose(
                    code, lambda: self.expr(body, env, frame), lambda: self.expr(orelse, env, frame)
                )
            case ast.Compare():
                return self._comparison(node, env, frame)
            case ast.Attribute():
                return self._attribute(node, env, frame)
            case ast.Subscript():
                return self._subscript(node, env, frame)
            case ast.Call():
                return self._rules.call_expr(node, env, frame)
            case ast.NamedExpr(target=ast.Name(id=name), value=value):
                env[name] = self._code.fixed(self.expr(value, env, frame))
                found = env[name]
                assert isinstance(found, Value)
                return found
            case ast.JoinedStr():
                raise Refused("an f-string", self._ctx.line)
            case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
                raise Refused("a comprehension whose result is kept", self._ctx.line)
            case _:
                raise Refused(f"the expression {type(node).__name__}", self._ctx.line)

    def test(self, node: ast.expr, env: Env, frame: Frame) -> str:
        """A boolean expression for the truth of an expression: `and` and `or` need not give one type."""
        code = self._twice(lambda: self._tested(node, env, frame), env)
        return code if code.count("(") < _NESTED else self._code.truth(self._code.condition(code))

    def _tested(self, node: ast.expr, env: Env, frame: Frame) -> str:
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            code = self.test(node.operand, env, frame)
            return {"True": "False", "False": "True"}.get(code, f"(not {code})")
        if isinstance(node, ast.BoolOp):
            both = isinstance(node.op, ast.And)
            return self._code.truth(self._short_circuit(both, node.values, env, frame, tests=True))
        mark, names = self._trial.mark(), dict(env)
        try:
            if isinstance(node, ast.Compare) and len(node.ops) == 1:
                left = self._code.fixed(self.expr(node.left, env, frame))
                self._no_names(*node.comparators)
                return self._one_comparison(node.ops[0], left, node.comparators[0], env, frame)[0]
            return self._code.truth(self.expr(node, env, frame))
        except Refused:
            asked = ast.Call(ast.Name("bool", ast.Load()), [node], [])
            made = ast.fix_missing_locations(ast.copy_location(asked, node))
            found = self._columns.computed(made, names, frame, mark, lists=self._lists)
            if found is None or frame.names.get("bool") is not bool:
                raise
            return self._code.truth(found)

    def _unary(self, op: ast.unaryop, value: Value) -> Value:
        if isinstance(op, ast.Not):
            code = self._code.truth(value)
            if code in ("True", "False"):
                return self._ctx.const(code == "False")
            return self._code.temp("bool", f"not {code}")
        if isinstance(op, ast.USub):
            return negated(self._code, value)
        if isinstance(op, ast.Invert):
            return inverted(self._code, value)
        return (
            arithmetic(self._code, ast.Add(), value, self._ctx.const(0)) if value.kind != "float" else value
        )

    def operated(self, node: ast.BinOp, a: Value, b: Value, env: Env, frame: Frame) -> Value:
        """`a op b`, as `a op= b` has it."""
        names: Env = {**env, ".left": a, ".right": b}
        made = ast.BinOp(ast.Name(".left", ast.Load()), node.op, ast.Name(".right", ast.Load()))
        return self.expr(ast.fix_missing_locations(ast.copy_location(made, node)), names, frame)

    def _no_names(self, *nodes: ast.expr) -> None:
        if any(isinstance(n, ast.NamedExpr) for node in nodes for n in ast.walk(node)):
            raise Refused("`:=` in what may be skipped", self._ctx.line)

    def _short_circuit(
        self, both: bool, values: list[ast.expr], env: Env, frame: Frame, *, tests: bool = False
    ) -> Value:
        """`and`, `or`; `tests`: only the truth of the result matters."""
        self._no_names(*values[1:])
        join = Join(self._code.name("v"))
        with ExitStack() as within:
            for place, node in enumerate(values):
                if tests:
                    value = self._code.condition(self.test(node, env, frame))
                else:
                    value = self._code.fixed(self.expr(node, env, frame))
                test = self._code.truth(value)
                last = place == len(values) - 1
                if last or test == str(not both):
                    self._code.moves([(join, value)])
                    break
                if test == str(both):
                    continue
                with self._code.when(f"not {test}" if both else test):
                    self._code.moves([(join, value if both else _held(value))])
                within.enter_context(self._code.otherwise())
        return self._code.joined(join, f"`{'and' if both else 'or'}` of")

    def _comparison(self, node: ast.Compare, env: Env, frame: Frame) -> Value:
        self._no_names(*node.comparators)
        left = self._code.fixed(self.expr(node.left, env, frame))
        last = len(node.ops) - 1
        if last == 0:
            return self._code.condition(
                self._one_comparison(node.ops[0], left, node.comparators[0], env, frame)[0]
            )
        join = Join(self._code.name("v"))
        with ExitStack() as within:
            for place, (op, right) in enumerate(zip(node.ops, node.comparators, strict=True)):
                code, value = self._one_comparison(op, left, right, env, frame)
                result = self._code.condition(code)
                if place == last:
                    self._code.moves([(join, result)])
                    break
                if value is None:
                    raise Refused("a chain of comparisons with `in`", self._ctx.line)
                with self._code.when(f"not {result.code}"):
                    self._code.moves([(join, self._ctx.const(False))])
                within.enter_context(self._code.otherwise())
                left = value
        return self._code.joined(join, "a comparison of")

    def _one_comparison(
        self, op: ast.cmpop, left: Value, right: ast.expr, env: Env, frame: Frame
    ) -> tuple[str, Value | None]:
        """The code, and the right side's value."""
        if isinstance(op, ast.In | ast.NotIn):
            code = self._membership(left, right, env, frame)
            if isinstance(op, ast.NotIn):
                code = {"True": "False", "False": "True"}.get(code, f"(not {code})")
            return code, None
        value = self._code.fixed(self.expr(right, env, frame))
        return compared(self._code, op, left, value), value

    def _membership(self, left: Value, right: ast.expr, env: Env, frame: Frame) -> str:
        state = self._states.of(right, env)
        if state is not None:
            return state.contains(present(self._code, left)).code
        field = self._fields.scalar_of(right, env)
        if field is not None and field[1] == "str" and type(left.const) is str:
            return self._fields.column(field[0], "bool", "contains", left.const).code
        if isinstance(right, ast.List | ast.Set):
            return self._among(left, [self._code.fixed(self.expr(i, env, frame)) for i in right.elts])
        constants = self._constants(right, env, frame)
        if constants is not None:
            return self._among(left, constants)
        value = present(self._code, self.expr(right, env, frame))
        if value.kind == "tuple":
            return self._among(left, value.items)
        if value.kind == "list":
            return self._in_list(left, value)
        raise Refused(f"`in` of {value.text}", self._ctx.line)

    def _constants(self, node: ast.expr, env: Env, frame: Frame) -> list[Value] | None:
        """The elements of a global set that nobody changes, in an order of their own."""
        if isinstance(node, ast.Name) and node.id not in env:
            found = frame.names.get(node.id)
            if isinstance(found, frozenset) and len(found) <= 64:
                return [self._ctx.const(v) for v in sorted(found, key=repr)]
        return None

    def _among(self, left: Value, items: Sequence[Value]) -> str:
        """`left in (...)`: identical or equal to one of them."""
        if any("float" in v.shape for v in (left, *items)):
            raise Refused("`in` among floats", self._ctx.line)
        codes = [c for i in items if (c := equal(self._code, left, i)) != "False"]
        if "True" in codes:
            return "True"
        return f"({' or '.join(codes)})" if codes else "False"

    def _in_list(self, left: Value, value: Value) -> str:
        start, stop, element = value.items
        if "float" in (left.shape, element.kind) or left.is_compound:
            raise Refused(f"`in` of {value.text}", self._ctx.line)
        found = self._code.name("among")
        place = self._code.name("i")
        self._code.assign(found, "False")
        item = Value(element.kind, f"{value.code}[{place}]")
        with (
            self._code.each(place, f"{start.code}, {stop.code}"),
            self._code.when(equal(self._code, left, item)),
        ):
            self._code.assign(found, "True")
            self._code.add(Break())
        return found

    def _attribute(self, node: ast.Attribute, env: Env, frame: Frame) -> Value:
        base = node.value
        if is_event(base, env):
            return self._fields.read(node.attr)
        if is_self(base, env):
            return self._member(node.attr, frame)
        known = known_object(node, env, frame)
        if known is not NOT_CONSTANT:
            return self._ctx.const(known)
        value = present(self._code, self.expr(base, env, frame))
        if value.kind == "tuple" and value.cls is not None and node.attr in value.cls._fields:  # type: ignore[attr-defined]
            return value.items[value.cls._fields.index(node.attr)]  # type: ignore[attr-defined]
        raise Refused(f"the attribute {node.attr} of {value.text}", self._ctx.line)

    def _member(self, name: str, frame: Frame) -> Value:
        if name == "now":
            own = not self._ctx.late and not self._ctx.ticks
            return Value("int", self._ctx.now, origin=ast.Name("_f_ts", ast.Load()) if own else None)
        if name in self._ctx.params:
            return self._param(name)
        spec = self._ctx.spec.states.get(name)
        if spec is not None:
            if not spec.kind.attribute_style:  # the name stands for the state, its value is `self.x.get()`
                raise Refused(f"self.{name} by itself", self._ctx.line)
            return self._states.named(name).get(None)
        found = self._ctx.member(name)
        if isinstance(found, property) and isinstance(found.fget, types.FunctionType):
            return self._rules.method(found.fget, [], {}, frame)
        if found is None:
            raise Refused(f"self.{name}", self._ctx.line)
        return self._ctx.const(found)

    def _param(self, name: str) -> Value:
        value = self._ctx.params[name]
        return self._parameter(name, value, ast.Name(self._columns.named(value), ast.Load()))

    def _parameter(self, name: str, value: Any, origin: ast.expr) -> Value:
        kind = type(value).__name__
        if type(value) in (str, bytes) or value is None:
            return self._ctx.const(value)
        if isinstance(value, tuple) and (type(value) is tuple or hasattr(type(value), "_fields")):
            items = tuple(self._item(name, i, v, origin) for i, v in enumerate(value))
            return Value("tuple", items=items, cls=None if type(value) is tuple else type(value))
        if type(value) is Decimal and (places := scale_of(value)) is not None:
            kind = decimal_kind(places)  # another scale is other code
        elif type(value) not in (int, float, bool) or (type(value) is int and not -(2**63) <= value < 2**63):
            raise Refused(f"the parameter {name}, which is {kind}", self._ctx.line)
        if (name, kind) not in self._ctx.unit.params:
            self._ctx.unit.params.append((name, kind))
        return Value(kind, f"p_{name}", origin=origin)

    def _item(self, name: str, place: int, value: Any, origin: ast.expr) -> Value:
        """An item of a parameter that is a tuple: part of the machine code."""
        if isinstance(value, tuple):
            raise Refused(f"the parameter {name}, a tuple of tuples", self._ctx.line)
        return self._ctx.const(value)

    def _subscript(self, node: ast.Subscript, env: Env, frame: Frame) -> Value:
        state = self._states.of(node.value, env)
        if state is not None:
            return state.get(self._code.fixed(self.expr(node.slice, env, frame)))
        base = present(self._code, self.expr(node.value, env, frame))
        if isinstance(node.slice, ast.Slice):
            return self._part(base, node.slice, env, frame)
        index = self.expr(node.slice, env, frame)
        if base.kind == "list":
            return self._rules.element(base, index)
        if base.kind == "tuple" and type(index.const) is int:
            if -len(base.items) <= index.const < len(base.items):
                return base.items[index.const]
        raise Refused(f"a subscript of {base.text}", self._ctx.line)

    def _part(self, base: Value, part: ast.Slice, env: Env, frame: Frame) -> Value:
        if base.kind == "list":
            return self._rules.part(base, part, env, frame)
        bounds = [
            b if b is None else self.expr(b, env, frame).const for b in (part.lower, part.upper, part.step)
        ]
        if base.kind == "tuple" and all(b is None or type(b) is int for b in bounds):
            return Value("tuple", items=base.items[slice(*bounds)])
        raise Refused(f"a slice of {base.text}", self._ctx.line)


def _known(items: Sequence[Value]) -> Any:
    """The tuple where all its items are known."""
    if any(i.const is NOT_CONSTANT for i in items):
        return NOT_CONSTANT
    return tuple(i.const for i in items)


def _held(value: Value) -> Value:
    """A value that is known to be true: there is one."""
    return _held(value.items[1]) if value.kind == "optional" else value
