"""Builtins and functions of `math` that give the same bits as Python's, inside their domains."""

from __future__ import annotations

import ast
import builtins
import math
from collections.abc import Callable, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

from timelapse.kernels.native.lowering.comparisons import present
from timelapse.kernels.native.lowering.numbers import (
    Writer,
    arithmetic,
    as_float,
    as_int,
    extreme,
    is_decimal,
)
from timelapse.kernels.native.lowering.values import Value, constant, decimal_kind, whole
from timelapse.kernels.native.refused import Refused

_INT_RANGE = "-9.2e18 < {x} < 9.2e18"
_DOMAINS: dict[Any, str] = {
    # Where Python raises, or its result is not the C library's. NaN leaves as well.
    math.sqrt: "{x} >= 0.0", math.log: "0.0 < {x} < np.inf", math.log2: "0.0 < {x} < np.inf",
    math.log10: "0.0 < {x} < np.inf", math.exp: "-700.0 < {x} < 700.0", math.sin: "-1e15 < {x} < 1e15",
    math.cos: "-1e15 < {x} < 1e15", math.tan: "-1e15 < {x} < 1e15", math.tanh: "{x} == {x}",
    math.atan: "{x} == {x}", math.log1p: "-1.0 < {x} < np.inf", math.expm1: "-700.0 < {x} < 700.0",
    math.asin: "-1.0 <= {x} <= 1.0", math.acos: "-1.0 <= {x} <= 1.0", math.sinh: "-700.0 < {x} < 700.0",
    math.cosh: "-700.0 < {x} < 700.0", math.fabs: "True",
}  # fmt: skip
_WHOLE = {math.floor: "np.floor", math.ceil: "np.ceil", math.trunc: "np.trunc"}
_TESTS = {
    math.isnan: "({x} != {x})", math.isinf: "(abs({x}) == np.inf)", math.isfinite: "(abs({x}) < np.inf)",
}  # fmt: skip


def builtin(
    out: Writer, found: Any, name: str, args: Sequence[Value], truth: Callable[[Value], str]
) -> Value:
    """The call of a builtin or of a function of `math`, by position. Raises Refused for any other."""
    if found is bool and len(args) == 1:
        code = truth(args[0])
        known = {"True": True, "False": False}
        return Value("bool", code, const=known[code]) if code in known else out.temp("bool", code)
    if found is len and len(args) == 1 and (counted := present(out, args[0])).kind in ("tuple", "list"):
        if counted.kind == "tuple":
            return whole(len(counted.items))
        return out.temp("int", f"{counted.items[1].code} - {counted.items[0].code}")
    if (
        found in (min, max)
        and len(args) == 1
        and (value := present(out, args[0])).kind == "tuple"
        and value.items
    ):
        return extreme(out, value.items, least=found is min)
    if found is sum and len(args) == 1 and (value := present(out, args[0])).kind == "tuple":
        return _sum(out, value.items)
    if found is tuple and len(args) == 1 and args[0].kind == "tuple":
        return Value("tuple", items=args[0].items)
    if found is Decimal and len(args) == 1:
        return _decimal(args[0])
    if not args or not all(_is_number(a) for a in args):
        raise Refused(f"the call of {name} with {' and '.join(a.text for a in args) or 'nothing'}")
    numbers = [present(out, a) for a in args]
    if found in (min, max) and len(numbers) >= 2:
        return extreme(out, numbers, least=found is min)
    if found is divmod and len(numbers) == 2:
        divisor = numbers[1]
        if type(divisor.const) not in (int, float) or divisor.const == 0:  # it raises another text than `//`
            out.exit_if(f"{divisor.code} == 0")
        pair = [arithmetic(out, op, *numbers) for op in (ast.FloorDiv(), ast.Mod())]
        return Value("tuple", items=tuple(pair))
    if found is pow and len(numbers) == 2:
        return arithmetic(out, ast.Pow(), *numbers)
    if len(numbers) == 1:
        return _of_one(out, found, name, numbers[0])
    if any(map(is_decimal, numbers)):
        raise Refused(f"the call of {name} with {' and '.join(a.text for a in numbers)}")
    if len(numbers) == 2 and found in (math.copysign, math.atan2):
        x, y = (as_float(n) for n in numbers)
        if found is math.atan2:
            out.exit_if(f"{x} != {x} or {y} != {y}")
        return out.temp("float", f"math.{found.__name__}({x}, {y})")
    raise Refused(f"the call of {name}")


def _decimal(value: Value) -> Value:
    """`Decimal(x)` of a constant, an int, or a decimal."""
    if type(value.const) in (str, int):
        try:
            made = constant(Decimal(value.const), None)
        except InvalidOperation:
            made = None
        if made is None:
            raise Refused(f"Decimal({value.const!r})")
        return made
    if value.kind == "int":
        return Value(decimal_kind(0), value.code, bound=value.bound)
    if is_decimal(value):
        return value
    raise Refused(f"Decimal() of {value.text}")


def _is_number(value: Value) -> bool:
    return (
        value.kind in ("int", "float", "bool")
        or is_decimal(value)
        or (value.kind == "optional" and _is_number(value.items[1]))
    )


def _sum(out: Writer, items: Sequence[Value]) -> Value:
    if any(i.kind == "float" for i in items):
        raise Refused("sum of floats")  # it starts from the integer 0
    total = whole(0)
    for item in items:
        total = arithmetic(out, ast.Add(), total, item)
    return total


def _of_one(out: Writer, found: Any, name: str, value: Value) -> Value:
    if is_decimal(value):
        if found is not abs:
            raise Refused(f"{name}() of {value.text}")
        out.exit_if(f"{value.code} == INT64_MIN")
        return out.temp(value.kind, f"abs({value.code})")
    if value.kind != "float":
        if found is abs:
            whole = as_int(value)
            out.exit_if(f"{whole} == INT64_MIN")
            return out.temp("int", f"abs({whole})")
        if found in (int, round, *_WHOLE):
            return value if value.kind == "int" else out.temp("int", as_int(value))
    x = as_float(value)
    if found is abs:
        return out.temp("float", f"abs({x})")
    if found is float:
        return value if value.kind == "float" else out.temp("float", x)
    if found in (int, round, *_WHOLE):
        out.exit_if(f"not ({_INT_RANGE.format(x=x)})")
        how = "np.rint" if found is round else _WHOLE.get(found, "np.trunc")
        return out.temp("int", f"np.int64({how}({x}))")
    if found in _TESTS:
        if value.kind != "float":
            return Value("bool", str(found is math.isfinite), const=found is math.isfinite)
        return out.temp("bool", _TESTS[found].format(x=x))
    if found in _DOMAINS:
        x = out.temp("float", x).code
        if found is not math.fabs:
            out.exit_if(f"not ({_DOMAINS[found].format(x=x)})")
        return out.temp("float", f"math.{found.__name__}({x})")
    known = getattr(builtins, getattr(found, "__name__", ""), None) is found
    raise Refused(f"the call of {name}" if not known else f"{name}() of {value.text}")
