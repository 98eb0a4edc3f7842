"""Truth and comparison with Python's meaning, or an exit to the interpreter."""

from __future__ import annotations

import ast
from decimal import Decimal

from timelapse.kernels.native.lowering.numbers import (
    EXACT,
    Writer,
    aligned,
    as_float,
    as_int,
    is_decimal,
    is_exact,
)
from timelapse.kernels.native.lowering.values import Value
from timelapse.kernels.native.refused import Refused

_SIGNS = {ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">="}
_NUMBERS = ("int", "float", "bool")
_TEXTS = ("str", "bytes")


def truth(value: Value, empty_code: str) -> str:
    """A boolean expression for `bool(value)`; `empty_code` is the code of the empty string of its kind."""
    if isinstance(value.const, bool | int | float | str | bytes | Decimal):
        return str(bool(value.const))
    if value.kind == "bool":
        return value.code
    if value.kind in ("int", "float") or is_decimal(value):
        return f"({value.code} != 0)"
    if value.kind in _TEXTS:
        return f"({value.code} != {empty_code})"
    if value.kind == "none":
        return "False"
    if value.kind == "list":
        return f"({value.items[1].code} > {value.items[0].code})"
    if value.kind == "optional":
        present, inner = value.items
        held = truth(inner, empty_code)
        return present.code if held == "True" else f"({present.code} and {held})"
    return "True" if value.items else "False"


def compared(out: Writer, op: ast.cmpop, a: Value, b: Value) -> str:
    """A boolean expression for `a op b`. Raises Refused where it is not supported."""
    if isinstance(op, ast.Is | ast.IsNot):
        return _negated(_same(a, b), isinstance(op, ast.IsNot))
    sign = _SIGNS.get(type(op))
    if sign is None:
        raise Refused(f"the comparison {type(op).__name__}")
    if sign in ("==", "!="):
        return _negated(equal(out, a, b), sign == "!=")
    a, b = present(out, a), present(out, b)
    if _is_number(a) and _is_number(b):
        return _numbers(out, sign, a, b)
    if a.kind == b.kind == "tuple":
        return _ordered(sign, a, b)
    raise Refused(f"the order of {a.text} and {b.text}")


def present(out: Writer, value: Value) -> Value:
    """The value of an optional; where it is None Python raises."""
    if value.kind != "optional":
        return value
    out.exit_if(_negated(value.items[0].code, True))
    return present(out, value.items[1])


def _negated(code: str, yes: bool) -> str:
    if not yes:
        return code
    if code.startswith("(not ") and code.endswith(")") and code.count("(") == 1:
        return code[5:-1]
    return {"True": "False", "False": "True"}.get(code, f"(not {code})")


def _same(a: Value, b: Value) -> str:
    """`a is b`, for None, True and False."""
    for x, y in ((a, b), (b, a)):
        if y.kind == "none":
            return _negated(x.items[0].code, True) if x.kind == "optional" else str(x.kind == "none")
        if isinstance(y.const, bool):
            if x.kind == "optional":
                return f"({x.items[0].code} and {_same(x.items[1], y)})"
            if x.kind != "bool":
                return "False"
            return x.code if y.const else _negated(x.code, True)
    raise Refused(f"`is` of {a.text} and {b.text}")


def _is_number(value: Value) -> bool:
    return value.kind in _NUMBERS or is_decimal(value)


def _numbers(out: Writer, sign: str, a: Value, b: Value) -> str:
    if is_decimal(a) or is_decimal(b):
        x, y, _ = aligned(out, a, b)
        return f"({x.code} {sign} {y.code})"
    if "float" not in (a.kind, b.kind):
        if a.kind == b.kind == "bool" and sign in ("==", "!="):
            return f"({a.code} {sign} {b.code})"
        return f"({as_int(a)} {sign} {as_int(b)})"
    for whole in (a, b):
        if whole.kind == "int" and not is_exact(whole):
            out.exit_if(f"not (-{EXACT} <= {whole.code} <= {EXACT})")
    return f"({as_float(a)} {sign} {as_float(b)})"


def equal(out: Writer, a: Value, b: Value) -> str:
    """A boolean expression for `a == b`."""
    if a.kind == "optional" or b.kind == "optional":
        (p, x), (q, y) = (
            (v.items[0].code, v.items[1]) if v.kind == "optional" else (str(v.kind != "none"), v)
            for v in (a, b)
        )
        if "none" in (x.kind, y.kind):
            return _negated(q if x.kind == "none" else p, True)
        same = equal(out, x, y)
        if "True" in (p, q):
            return f"({q if p == 'True' else p} and {same})"
        return f"({p} == {q} and (not {p} or {same}))"
    if _is_number(a) and _is_number(b):
        return _numbers(out, "==", a, b)
    if a.kind == b.kind and a.kind in _TEXTS:
        return f"({a.code} == {b.code})"
    if a.kind == b.kind == "tuple":
        if len(a.items) != len(b.items):
            return "False"
        parts = [_item_equal(out, x, y) for x, y in zip(a.items, b.items, strict=True)]
        return f"({' and '.join(parts)})" if parts else "True"
    if a.kind == b.kind == "none":
        return "True"
    if "list" in (a.kind, b.kind):
        raise Refused("comparing lists")
    return "False"  # of types whose values are never equal


def _item_equal(out: Writer, a: Value, b: Value) -> str:
    """Within tuples Python takes identical objects for equal, which matters to NaN alone."""
    for value in (a, b):
        if "float" in value.shape:
            if value.kind != "float":
                raise Refused("comparing tuples that hold floats")
            out.exit_if(f"{value.code} != {value.code}")
    return equal(out, a, b)


def _ordered(sign: str, a: Value, b: Value) -> str:
    """Tuples: the first items that differ decide."""
    pairs = list(zip(a.items, b.items, strict=False))
    if any(x.kind not in ("int", "bool") or y.kind not in ("int", "bool") for x, y in pairs):
        raise Refused(f"the order of {a.text} and {b.text}")
    n, m = len(a.items), len(b.items)
    code = str({"<": n < m, "<=": n <= m, ">": n > m, ">=": n >= m}[sign])
    for x, y in reversed(pairs):
        first = f"{as_int(x)} {sign[0]} {as_int(y)}"
        code = f"({first} or ({as_int(x)} == {as_int(y)} and {code}))"
    return code
