"""Arithmetic, comparison and truth with Python's meaning, or an exit to the interpreter.

`exit_if(condition)` leaves the compiled function; the slice then runs again as Python. So each rule
may give up on rare inputs: integers outside int64, zero divisors, integers beyond 2^53 where Python
compares or divides them exactly.
"""

from __future__ import annotations

import ast
from typing import Protocol

from timelapse.kernels.native.values import Refused, Value

_EXACT = "9007199254740992"
_COMPARE = {ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">="}


class Writer(Protocol):
    """Where generated statements go."""

    def temp(self, kind: str, code: str) -> Value:
        """Assign an expression to a new variable."""

    def exit_if(self, condition: str) -> None:
        """Leave the function where the condition holds."""


def truth(value: Value, empty_code: str) -> str:
    """A boolean expression for `bool(value)`; `empty_code` is the code of the empty string of its kind."""
    if value.kind == "bool":
        return value.code
    if value.kind in ("int", "float"):
        return f"({value.code} != 0)"
    if value.kind in ("str", "bytes"):
        return f"({value.code} != {empty_code})"
    if value.kind == "none":
        return "False"
    return "True" if value.items else "False"


def as_float(value: Value) -> str:
    return value.code if value.kind == "float" else f"np.float64({value.code})"


def arithmetic(out: Writer, op: ast.operator, a: Value, b: Value) -> Value:
    """`a op b` of numbers. Raises Refused for anything else."""
    kinds = (a.kind, b.kind)
    if not set(kinds) <= {"int", "float"}:
        raise Refused(f"{type(op).__name__} of {a.kind} and {b.kind}")
    if kinds == ("int", "int"):
        return _integers(out, op, a.code, b.code)
    x, y = as_float(a), as_float(b)
    if isinstance(op, ast.Add | ast.Sub | ast.Mult):
        sign = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*"}[type(op)]
        return out.temp("float", f"{x} {sign} {y}")
    if isinstance(op, ast.Div):
        out.exit_if(f"{y} == 0.0")
        return out.temp("float", f"{x} / {y}")
    raise Refused(f"{type(op).__name__} of floats")


def _integers(out: Writer, op: ast.operator, a: str, b: str) -> Value:
    if isinstance(op, ast.Add):
        total = out.temp("int", f"{a} + {b}")
        out.exit_if(f"(({total.code} ^ {a}) & ({total.code} ^ {b})) < 0")
        return total
    if isinstance(op, ast.Sub):
        total = out.temp("int", f"{a} - {b}")
        out.exit_if(f"(({a} ^ {b}) & ({total.code} ^ {a})) < 0")
        return total
    if isinstance(op, ast.Mult):
        out.exit_if(f"not (-9.2e18 < np.float64({a}) * np.float64({b}) < 9.2e18)")
        return out.temp("int", f"{a} * {b}")
    if isinstance(op, ast.Div):
        for side in (a, b):
            out.exit_if(f"not (-{_EXACT} <= {side} <= {_EXACT})")
        out.exit_if(f"{b} == 0")
        return out.temp("float", f"np.float64({a}) / np.float64({b})")
    if isinstance(op, ast.FloorDiv | ast.Mod):
        out.exit_if(f"{b} == 0 or {b} == -1")
        return out.temp("int", f"{a} // {b}" if isinstance(op, ast.FloorDiv) else f"{a} % {b}")
    bits = {ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^"}
    if type(op) in bits:
        return out.temp("int", f"{a} {bits[type(op)]} {b}")
    raise Refused(f"{type(op).__name__} of integers")


def negated(out: Writer, value: Value) -> Value:
    """`-value`."""
    if value.kind == "int":
        out.exit_if(f"{value.code} == INT64_MIN")
        return out.temp("int", f"-{value.code}")
    if value.kind == "float":
        return out.temp("float", f"-{value.code}")
    raise Refused(f"minus of {value.kind}")


def compared(out: Writer, op: ast.cmpop, a: Value, b: Value) -> str:
    """A boolean expression for `a op b`. Raises Refused where it is not supported."""
    sign = _COMPARE.get(type(op))
    if sign is None:
        raise Refused(f"the comparison {type(op).__name__}")
    if {a.kind, b.kind} == {"int", "float"}:
        whole = a if a.kind == "int" else b
        if not (isinstance(whole.const, int) and abs(whole.const) <= 2**53):
            out.exit_if(f"not (-{_EXACT} <= {whole.code} <= {_EXACT})")
        return f"({as_float(a)} {sign} {as_float(b)})"
    if a.kind != b.kind:
        raise Refused(f"comparing {a.kind} with {b.kind}")
    if a.kind in ("int", "float", "bool"):
        return f"({a.code} {sign} {b.code})"
    if sign not in ("==", "!="):
        raise Refused(f"the order of {a.kind} values")
    if a.kind in ("str", "bytes"):
        return f"({a.code} {sign} {b.code})"
    if a.kind == "tuple" and a.shape == b.shape and a.items:
        # Within tuples Python takes identical objects for equal, which matters to NaN alone.
        if any("float" in i.shape for i in a.items):
            raise Refused("comparing tuples that hold floats")
        same = " and ".join(f"({x} == {y})" for x, y in zip(a.words, b.words, strict=True))
        return f"({same})" if sign == "==" else f"(not ({same}))"
    raise Refused(f"comparing {a.shape} with {b.shape}")
