"""Generated code of many events at once, over their columns: those parts of it that look at nothing else (lowering/decided.py).

It computes what machine code computes. Where that is not sure, it says so: `Unknown`.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from timelapse.ids import INT64_MIN
from timelapse.kernels.native.lowering.form import Assign, Break, If, Leave, Node, Return, parsed
from timelapse.kernels.native.lowering.values import number_of
from timelapse.model.decimals import as_word

Array = npt.NDArray[Any]
Bools = npt.NDArray[np.bool_]
Env = dict[str, Any]

_LIMIT = 9.2e18
_INT, _FLOAT, _BOOL = np.dtype(np.int64), np.dtype(np.float64), np.dtype(np.bool_)
_OPERATORS: dict[type[ast.operator], tuple[Callable[[Any, Any], Any], tuple[np.dtype[Any], ...]]] = {
    ast.Add: (operator.add, (_INT, _FLOAT)),
    ast.Sub: (operator.sub, (_INT, _FLOAT)),
    ast.Mult: (operator.mul, (_INT, _FLOAT)),
    ast.Div: (operator.truediv, (_FLOAT,)),
    ast.Mod: (operator.mod, (_INT,)),
    ast.FloorDiv: (operator.floordiv, (_INT,)),
    ast.BitAnd: (operator.and_, (_INT, _BOOL)),
    ast.BitOr: (operator.or_, (_INT, _BOOL)),
    ast.BitXor: (operator.xor, (_INT, _BOOL)),
}
"""With the types for which machine code gives the same."""
_COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}  # fmt: skip
_WORDS: dict[str, Callable[..., Any]] = {
    "plus": operator.add,
    "minus": operator.sub,
    "times": operator.mul,
    "plus_left": lambda total, a, b: ((total ^ a) & (total ^ b)) < 0,
    "minus_left": lambda total, a, b: ((a ^ b) & (total ^ a)) < 0,
    "times_left": lambda a, b: ~(np.abs(a.astype(_FLOAT) * b.astype(_FLOAT)) < _LIMIT),
}
"""Functions of words (memory/arithmetic.py)."""
_TAKES = {0: np.int64(1), 1: np.int64(INT64_MIN), 3: np.int64(1)}
"""What generated code is told of events that may be taken out (unit.py, `TAKES`), if any may."""


class Unknown(Exception):
    """It is not known what machine code would do; why."""


@dataclass(frozen=True)
class Left:
    """Events are left at one place: which, and by which handler, as generated code numbers them (below 0: it raises)."""

    where: Bools
    handler: int
    _number: int
    _env: Env

    def word(self, place: int, at: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """A word of the error's text, of events by place."""
        found = _typed(self._env.get(f"j{self._number - 1}_{place}"))
        if found.dtype == _FLOAT:
            raise Unknown("a word is no whole number")
        whole = found.astype(np.int64)
        return whole[at] if whole.ndim else np.full(len(at), whole)


class Columnwise:
    """Follows code of one event type. `names`: columns by the names that it has for them. `params`: the program's parameters."""

    def __init__(self, names: Mapping[str, Array], params: Mapping[str, Any]) -> None:
        self._columns, self._params = names, params
        self._left = list[Left]()

    def leaving(self, body: Sequence[Node], which: Bools) -> list[Left]:
        """Where events are left, of those that are asked for. Raises Unknown, also where one is left to Python."""
        self._left = []
        if which.any():
            self._block(body, {}, which)
        return self._left

    def _block(self, body: Sequence[Node], env: Env, here: Bools) -> tuple[Env, Bools] | None:
        """What variables hold after statements, and of which events they do; None where all leave."""
        for node in body:
            match node:
                case Assign(target=name, code=code, op="="):
                    try:
                        env[name] = self._value(parsed(code), env)
                    except Unknown:  # it may not be needed
                        env.pop(name, None)
                case If():
                    after = self._branches(node, env, here)
                    if after is None:
                        return None
                    env, here = after
                case Break(rejects=True):
                    handler, number = (_typed(env.get(name)) for name in ("handler", "rejected"))
                    if handler.ndim or number.ndim:
                        raise Unknown("several places leave at one")
                    self._left.append(Left(here, int(handler), int(number), env))
                    return None
                case Leave() | Return():
                    raise Unknown("an event runs as Python")
                case _:
                    raise Unknown("a statement")
        return env, here

    def _branches(self, node: If, env: Env, here: Bools) -> tuple[Env, Bools] | None:
        test = self._value(parsed(node.test), env)
        if test.dtype != _BOOL:
            raise Unknown("a test")
        yes, no = here & test, here & ~test
        a = self._block(node.body, dict(env), yes) if yes.any() else None
        b = self._block(node.orelse or [], dict(env), no) if no.any() else None
        if a is None or b is None:
            return a or b
        merged = dict[str, Any]()
        for name, value in a[0].items():
            other = b[0].get(name)
            if value is other:
                merged[name] = value
            elif other is not None and other.dtype == value.dtype:
                merged[name] = np.where(test, value, other)
        return merged, a[1] | b[1]

    def _value(self, node: ast.expr, env: Env) -> Any:
        """An array, or one value for all."""
        match node:
            case ast.Constant(value=bool() | int() | float() as value):
                return _word(value)
            case ast.Name(id=name):
                return self._named(name, env)
            case ast.Subscript(value=ast.Name(id="takes"), slice=place):
                return _TAKES[int(self._value(place, env))]
            case ast.Subscript(value=ast.Name(id=name), slice=ast.Name()) if name in self._columns:
                return self._columns[name]
            case ast.BinOp(left=a, op=op, right=b) if type(op) in _OPERATORS:
                compute, types = _OPERATORS[type(op)]
                return compute(*self._alike([a, b], env, types))
            case ast.Compare(left=a, ops=[op], comparators=[b]) if type(op) in _COMPARISONS:
                return _COMPARISONS[type(op)](*self._alike([a, b], env, (_INT, _FLOAT, _BOOL)))
            case ast.BoolOp(op=op, values=values):
                found = self._alike(values, env, (_BOOL,))
                return (np.logical_and if isinstance(op, ast.And) else np.logical_or).reduce(
                    np.broadcast_arrays(*found)
                )
            case ast.UnaryOp(op=ast.Not(), operand=a):
                return np.logical_not(*self._alike([a], env, (_BOOL,)))
            case ast.UnaryOp(op=ast.USub(), operand=a):
                return operator.neg(*self._alike([a], env, (_INT, _FLOAT)))
            case ast.IfExp(test=test, body=a, orelse=b):
                (holds,) = self._alike([test], env, (_BOOL,))
                return np.where(holds, *self._alike([a, b], env, (_INT, _FLOAT, _BOOL)))
            case ast.Call(func=ast.Name(id=name), args=args) if name in _WORDS:
                return _WORDS[name](*self._alike(args, env, (_INT,)))
            case ast.Call(func=ast.Attribute(value=ast.Name(id="np"), attr="int64"), args=[a]):
                (found,) = self._alike([a], env, (_INT, _BOOL))
                return found.astype(_INT)
            case ast.Call(func=ast.Attribute(value=ast.Name(id="np"), attr="float64"), args=[a]):
                (found,) = self._alike([a], env, (_INT, _FLOAT))
                return found.astype(_FLOAT)
        raise Unknown("an expression")

    def _named(self, name: str, env: Env) -> Any:
        if name in env:
            return env[name]
        number = number_of(name)
        if number is not None:
            return np.int64(number)
        if name in ("TRUE", "FALSE"):
            return np.bool_(name == "TRUE")
        if name == "INT64_MIN":
            return np.int64(INT64_MIN)
        if name.startswith("p_"):
            return _word(as_word(self._params[name[2:]]))
        raise Unknown("a variable")

    def _alike(self, nodes: Sequence[ast.expr], env: Env, types: Sequence[np.dtype[Any]]) -> list[Any]:
        """Values of one type, of those."""
        found = [self._value(node, env) for node in nodes]
        if found[0].dtype not in types or any(value.dtype != found[0].dtype for value in found):
            raise Unknown("types")
        return found


def _word(value: Any) -> Any:
    match value:
        case bool():
            return np.bool_(value)
        case int() if -(1 << 63) <= value < 1 << 63:
            return np.int64(value)
        case float():
            return np.float64(value)
    raise Unknown("a constant")


def _typed(value: Any) -> Any:
    if value is None:
        raise Unknown("a variable")
    return value


class _Names(dict[str, Any]):
    """What expressions over columns are written with: columns, parameters, numbers."""

    def __init__(self, columns: Mapping[str, Any], params: Mapping[str, Any]) -> None:
        super().__init__(columns)
        self._given = params

    def __missing__(self, name: str) -> Any:
        number = number_of(name)
        if number is not None:
            return np.int64(number)
        if name == "ONE":
            return np.uint64(1)
        if name.startswith("p_"):
            return as_word(self._given[name[2:]])
        raise KeyError(name)


def computed(code: str, columns: Mapping[str, Any], params: Mapping[str, Any]) -> Array:
    """An expression over columns (lowering/touches.py, `AsArrays`): an array, or one value for all."""
    return np.asarray(eval(code, {"np": np}, _Names(columns, params)))  # noqa: S307 (the compiler's own code)


def without_signs(values: Array, count: int) -> float:
    """The sum of the sizes of values: an array, or one value for so many events."""
    sizes = values.astype(_FLOAT)
    sizes = np.abs(sizes, out=sizes)
    return float(np.sum(sizes)) if sizes.ndim else float(sizes) * count
