"""Arithmetic with Python's meaning, or an exit to the interpreter.

`exit_if(condition)` leaves the compiled function; Python goes on from there. So each rule may give up
on rare inputs: integers outside int64, zero divisors, integers beyond 2^62 where Python divides them
exactly.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Protocol

from timelapse.kernels.native.lowering.values import (
    NOT_CONSTANT,
    Value,
    constant,
    decimal_kind,
    places_of,
    spelled,
    whole,
)
from timelapse.kernels.native.refused import Refused
from timelapse.model.decimals import MAX_SCALE, unscaled

EXACT = "9007199254740992"
_SMALL = 2**62
_WORDS = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%", ast.Pow: "**",
    ast.LShift: "<<", ast.RShift: ">>", ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^", ast.MatMult: "@",
}  # fmt: skip

_DIVIDES: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Div: operator.truediv, ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod,
}  # fmt: skip


class Writer(Protocol):
    """Where generated statements go."""

    def temp(self, kind: str, code: str) -> Value:
        """Assign an expression to a new variable."""

    def exit_if(self, condition: str) -> None:
        """Leave the function where the condition holds."""

    def raises_if(self, condition: str, error: Exception, also: str = "") -> None:
        """The same where Python would raise this error, and where `also` holds."""


def as_float(value: Value) -> str:
    """A number's code as a float's."""
    if value.kind == "float":
        return value.code
    if type(value.const) is int and abs(value.const) <= 2**53:
        return f"({float(value.const)!r})"
    return f"np.float64({value.code})"


def as_int(value: Value) -> str:
    """The code of an int or bool as an int's."""
    if value.kind == "int":
        return value.code
    return spelled(int(value.const)) if isinstance(value.const, bool) else f"np.int64({value.code})"


def bound_of(value: Value) -> int | None:
    """What an integer's absolute value does not exceed; None if that is not known."""
    return abs(value.const) if type(value.const) is int else value.bound


def is_exact(value: Value) -> bool:
    """Whether an integer is known to be a float without rounding."""
    bound = bound_of(value)
    return bound is not None and bound <= 2**53


def _bounded(value: Value, bound: int | None) -> Value:
    return value if bound is None else replace(value, bound=bound)


def _sum_bound(x: Value, y: Value) -> int | None:
    """A bound of a sum or a difference that cannot leave int64."""
    a, b = bound_of(x), bound_of(y)
    return a + b if a is not None and b is not None and a + b < _SMALL else None


def _product_bound(x: Value, y: Value) -> int | None:
    a, b = bound_of(x), bound_of(y)
    return a * b if a is not None and b is not None and a * b < _SMALL else None


def by_zero(op: ast.operator, *, floats: bool) -> Exception:
    """What Python raises where a divisor is zero."""
    one, zero = (1.0, 0.0) if floats else (1, 0)
    try:
        _DIVIDES[type(op)](one, zero)
    except ZeroDivisionError as error:
        return error.with_traceback(None)
    raise TypeError(op)


def arithmetic(out: Writer, op: ast.operator, a: Value, b: Value) -> Value:
    """`a op b` of numbers. Raises Refused for anything else."""
    a, b = _number(out, op, a, b, a), _number(out, op, a, b, b)
    if is_decimal(a) or is_decimal(b):
        return _decimals(out, op, a, b)
    if a.kind == b.kind == "bool" and isinstance(op, ast.BitAnd | ast.BitOr | ast.BitXor):
        return out.temp("bool", f"{a.code} {_WORDS[type(op)]} {b.code}")
    if "float" not in (a.kind, b.kind):
        return _integers(out, op, _int(out, a), _int(out, b))
    x, y = as_float(a), as_float(b)
    if isinstance(op, ast.Add | ast.Sub | ast.Mult):
        return out.temp("float", f"{x} {_WORDS[type(op)]} {y}")
    if isinstance(op, ast.Div | ast.FloorDiv | ast.Mod):
        if type(b.const) not in (int, float) or b.const == 0:
            out.raises_if(f"{y} == 0.0", by_zero(op, floats=True))
        return out.temp("float", f"{x} {_WORDS[type(op)]} {y}")
    raise Refused(f"`{_WORDS[type(op)]}` of floats")


def is_decimal(value: Value) -> bool:
    return places_of(value.kind) is not None


def aligned(out: Writer, a: Value, b: Value) -> tuple[Value, Value, int]:
    """Two numbers, of which at least one is a decimal, as integers of one unit, and its scale. Raises Refused for a float."""
    if "float" in (a.kind, b.kind):
        raise Refused(f"{a.text} with {b.text}")
    places = max(places_of(a.kind) or 0, places_of(b.kind) or 0)
    return units(out, a, places), units(out, b, places), places


def units(out: Writer, value: Value, places: int) -> Value:
    """A decimal, int or bool as an integer of a unit that is not larger than its own."""
    own = places_of(value.kind)
    found = _int(out, value) if own is None else _units(value, own)
    more = places - (own or 0)
    return _product(out, found, whole(10**more)) if more > 0 else found


def fitting(out: Writer, value: Value, places: int, what: str) -> Value:
    """What is stored of a decimal or int where decimals have this scale, as an integer. Python has to say what is wrong
    with one that has more digits."""
    own = places_of(value.kind)
    if own is None and value.kind != "int":
        raise Refused(f"{what}, which is Decimal[{places}], of {value.text}")
    if own is None or own <= places:
        return units(out, value, places)
    step = 10 ** (own - places)
    out.exit_if(f"{value.code} % {step} != 0")
    return _bounded(out.temp("int", f"{value.code} // {step}"), value.bound)


def _units(value: Value, places: int) -> Value:
    """The integer that a decimal is kept as."""
    known = unscaled(value.const, places, "it") if isinstance(value.const, Decimal) else NOT_CONSTANT
    return Value("int", value.code, const=known, bound=value.bound)


def _decimals(out: Writer, op: ast.operator, a: Value, b: Value) -> Value:
    """Sums align the scales, products add them; what Python would round leaves int64 long before."""
    if isinstance(op, ast.Add | ast.Sub):
        x, y, places = aligned(out, a, b)
        return _decimal(_integers(out, op, x, y), places)
    if isinstance(op, ast.Mult) and "float" not in (a.kind, b.kind):
        p, q = places_of(a.kind) or 0, places_of(b.kind) or 0
        if p + q <= MAX_SCALE:
            return _decimal(_integers(out, op, units(out, a, p), units(out, b, q)), p + q)
    raise Refused(f"`{_WORDS[type(op)]}` of {a.text} and {b.text}")


def _decimal(whole: Value, places: int) -> Value:
    """An integer as a decimal."""
    return Value(decimal_kind(places), whole.code, bound=bound_of(whole))


def _number(out: Writer, op: ast.operator, a: Value, b: Value, value: Value) -> Value:
    while value.kind == "optional":  # Python raises where it is None
        out.exit_if(f"not {value.items[0].code}")
        value = value.items[1]
    if value.kind not in ("int", "float", "bool") and not is_decimal(value):
        raise Refused(f"`{_WORDS[type(op)]}` of {a.text} and {b.text}")
    return value


def _int(out: Writer, value: Value) -> Value:
    if value.kind == "int":
        return value
    if isinstance(value.const, bool):
        return whole(int(value.const))
    return out.temp("int", f"np.int64({value.code})")


def _folded(op: ast.operator, x: int, y: int) -> Value:
    """Numba would fold it too, and fail where it is outside int64."""
    value = x + y if isinstance(op, ast.Add) else x - y if isinstance(op, ast.Sub) else x * y
    found = constant(value, None)
    if found is None:
        raise Refused(f"the integer {value}, which is outside int64")
    return found


def _integers(out: Writer, op: ast.operator, x: Value, y: Value) -> Value:
    a, b = x.code, y.code
    if type(x.const) is int and type(y.const) is int and isinstance(op, ast.Add | ast.Sub | ast.Mult):
        return _folded(op, x.const, y.const)
    # Numba takes it for granted that `+` and `-` never leave int64, and drops tests of whether they did.
    if isinstance(op, ast.Add):
        total = _bounded(out.temp("int", f"plus({a}, {b})"), bound := _sum_bound(x, y))
        if bound is None:
            out.exit_if(_beyond(total.code, a, y.const) or f"plus_left({total.code}, {a}, {b})")
        return total
    if isinstance(op, ast.Sub):
        total = _bounded(out.temp("int", f"minus({a}, {b})"), bound := _sum_bound(x, y))
        less = -y.const if type(y.const) is int else NOT_CONSTANT
        if bound is None:
            out.exit_if(_beyond(total.code, a, less) or f"minus_left({total.code}, {a}, {b})")
        return total
    if isinstance(op, ast.Mult):
        return _product(out, x, y)
    if isinstance(op, ast.Div):
        large = [side.code for side in (x, y) if not is_exact(side)]
        for code in large:
            out.exit_if(f"not (-{_SMALL} <= {code} <= {_SMALL})")
        if type(y.const) is not int or y.const == 0:
            out.raises_if(f"{b} == 0", by_zero(op, floats=False))
        quotient = f"{as_float(x)} / {as_float(y)}"
        if large:  # Python's is the float nearest to the exact quotient
            exact = " and ".join(f"-{EXACT} <= {code} <= {EXACT}" for code in large)
            quotient = f"{quotient} if {exact} else nearest_quotient({as_int(x)}, {as_int(y)})"
        return out.temp("float", quotient)
    if isinstance(op, ast.FloorDiv | ast.Mod):
        if y.const == -1:
            return negated(out, x) if isinstance(op, ast.FloorDiv) else whole(0)
        if not (type(y.const) is int and y.const not in (0, -1)):
            out.raises_if(f"{b} == 0", by_zero(op, floats=False), f"{b} == -1")
        return out.temp("int", f"{a} {_WORDS[type(op)]} {b}")
    if isinstance(op, ast.BitAnd | ast.BitOr | ast.BitXor):
        return out.temp("int", f"{a} {_WORDS[type(op)]} {b}")
    if isinstance(op, ast.LShift):
        out.exit_if(f"not (0 <= {b} <= 62)")
        result = out.temp("int", f"{a} << {b}")
        out.exit_if(f"({result.code} >> {b}) != {a}")
        return result
    if isinstance(op, ast.RShift):
        out.exit_if(f"{b} < 0")
        return out.temp("int", f"{a} >> min({b}, 63)")
    if isinstance(op, ast.Pow):
        return _power(out, x, y)
    raise Refused(f"`{_WORDS[type(op)]}` of integers")


def _beyond(total: str, a: str, n: object) -> str:
    """The overflow test of adding a constant."""
    if type(n) is not int:
        return ""
    return f"{total} < {a}" if n >= 0 else f"{total} > {a}"


def _product(out: Writer, x: Value, y: Value) -> Value:
    bound = _product_bound(x, y)
    if bound is None:
        out.exit_if(f"times_left({x.code}, {y.code})")
    return _bounded(out.temp("int", f"{x.code} * {y.code}"), bound)


def _power(out: Writer, a: Value, b: Value) -> Value:
    if type(b.const) is not int or not 0 <= b.const <= 16:
        raise Refused("`**` with an exponent that is no small constant")
    result = whole(1)
    for place in range(b.const):
        result = a if place == 0 else _product(out, result, a)
    return result


def negated(out: Writer, value: Value) -> Value:
    """`-value`."""
    value = _number(out, ast.Sub(), value, value, value)
    if value.kind == "float":
        return out.temp("float", f"-{value.code}")
    value = value if is_decimal(value) else _int(out, value)
    bound = bound_of(value)
    if bound is None:
        out.exit_if(f"{value.code} == INT64_MIN")
    return _bounded(out.temp(value.kind, f"-{value.code}"), bound)


def inverted(out: Writer, value: Value) -> Value:
    """`~value`."""
    value = _number(out, ast.BitXor(), value, value, value)
    if value.kind == "float" or is_decimal(value):
        raise Refused(f"`~` of {value.text}")
    return out.temp("int", f"~{_int(out, value).code}")


def extreme(out: Writer, values: Sequence[Value], *, least: bool) -> Value:
    """`min(...)` or `max(...)` of numbers of one kind; the first wins where they are equal."""
    found = [_number(out, ast.Sub(), v, v, v) for v in values]
    if any(map(is_decimal, found)) and "float" not in {v.kind for v in found}:
        places = max(places_of(v.kind) or 0 for v in found)
        found = [_decimal(units(out, v, places), places) for v in found]
    if len({v.kind for v in found}) > 1:
        raise Refused(f"{'min' if least else 'max'} of {' and '.join(v.text for v in found)}")
    best, *rest = found
    for value in rest:
        a, b = value, best
        best = out.temp(a.kind, f"{a.code} if {a.code} {'<' if least else '>'} {b.code} else {b.code}")
        ends = bound_of(a), bound_of(b)
        best = _bounded(best, max(ends) if None not in ends else None)  # type: ignore[type-var]
    return best
