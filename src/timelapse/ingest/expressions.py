"""Small expressions over a source's columns, in Spark SQL's words: `round(price * 100)`, `coalesce(a, b)`.

They are parsed by sqlglot (dialect "spark") and evaluated with Arrow, in the tasks that read the rows: the same in
this process and on Spark. What is not among the functions below is an error before anything is read. As in Spark's
ANSI mode, what cannot be computed is an error: of its row alone, which goes to the quarantine.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from timelapse.errors import IngestError, Place

Value = Any
"""An Arrow array of all rows, or a scalar that is the same in all."""


class Expression:
    """A parsed expression. `columns`: those that it reads, in the order in which they occur."""

    def __init__(self, text: str, tree: Any) -> None:
        self.text = text
        self._tree = tree
        self.columns = tuple(dict.fromkeys(_name(c) for c in tree.find_all(exp.Column)))

    def of(self, columns: Mapping[str, pa.Array], rows: int) -> tuple[pa.Array, dict[int, str]]:
        """Its value in each row, null where it cannot be computed, and why for these rows."""
        reasons: dict[int, str] = {}
        parts = list(_parts(self._tree, columns, 0, rows, reasons))
        kinds = {p.type for p in parts if not pa.types.is_null(p.type)}
        if (
            len(kinds) > 1
        ):  # the parts are of one expression over columns of one type each: only null may differ
            parts = [p.cast(pa.string()) for p in parts]
            kinds = {pa.string()}
        kind = kinds.pop() if kinds else pa.null()
        whole = [pa.nulls(len(p), kind) if pa.types.is_null(p.type) else p for p in parts]
        return pa.concat_arrays(whole) if whole else pa.nulls(0, kind), reasons


@lru_cache(maxsize=512)
def expression(text: str, what: str) -> Expression:
    """Parse an expression; `what` names it in errors. Raises IngestError (TL411)."""
    try:
        tree = sqlglot.parse_one(text, read="spark")
        _check(tree, text, what)
    except SqlglotError as error:
        said = str(error).split("\n", 1)[0]
        raise _wrong(what, f"{text!r} cannot be read: {said}") from None
    except RecursionError:
        raise _wrong(
            what, f"{text[:40] + '...'!r} cannot be read: it is nested too deeply, or too long"
        ) from None
    return Expression(text, tree)


def _wrong(what: str, message: str) -> IngestError:
    return IngestError(
        message, place=Place(what=what), code="TL411",
        hint="expressions over columns: + - * / %, comparisons, and, or, not, case, cast, and " + ", ".join(FUNCTIONS),
    )  # fmt: skip


def _name(column: exp.Column) -> str:
    return ".".join(part.name for part in column.parts)


def _check(node: Any, text: str, what: str) -> None:
    """Raise IngestError for what is not evaluated here."""
    if isinstance(node, exp.Cast):  # the dialect's CAST is sqlglot's TryCast, a subclass
        _target(node, what)
        _check(node.this, text, what)
        return
    if isinstance(node, exp.Column):
        return
    if type(node) not in _NODES:
        shown = node.sql(dialect="spark")
        raise _wrong(what, f"{text!r}: {shown} is not known here")
    for name, kind in _CONSTANT.get(type(node), {}).items():
        if (own := node.args.get(name)) is not None and not _is_constant(own, kind):
            said = "whole number" if kind is int else "text"
            raise _wrong(what, f"{text!r}: {own.sql(dialect='spark')} is to be a constant {said}")
    if isinstance(node, exp.RegexpExtract):
        _check_pattern(node, text, what)
    for child in node.iter_expressions():
        if not isinstance(child, exp.Identifier | exp.DataType | exp.Var):
            _check(child, text, what)


def _is_constant(node: Any, kind: type) -> bool:
    inner = node.this if kind is int and isinstance(node, exp.Neg) else node
    return isinstance(inner, exp.Literal) and (
        inner.is_string if kind is str else not inner.is_string and inner.this.isdecimal()
    )


def _check_pattern(node: Any, text: str, what: str) -> None:
    """Raise IngestError for a pattern that is none, or has no such group."""
    group = node.args.get("group")
    try:
        groups = re.compile(node.expression.this).groups
    except re.error as error:
        raise _wrong(what, f"{text!r}: {node.expression.this!r} is no pattern: {error}") from None
    if not 0 <= (number := 1 if group is None else _whole(group)) <= groups:
        raise _wrong(
            what, f"{text!r}: {node.expression.this!r} has no group {number}: it has {groups} in brackets"
        )


def _parts(
    tree: Any, columns: Mapping[str, pa.Array], first: int, rows: int, reasons: dict[int, str]
) -> list[pa.Array]:
    """The values of rows, halved where some row has none until those rows are found."""
    own = {name: column.slice(first, rows) for name, column in columns.items()}
    try:
        found = _value(tree, own)
    except (
        pa.ArrowInvalid,
        pa.ArrowNotImplementedError,
        pa.ArrowTypeError,
        OverflowError,
        ValueError,
    ) as error:
        if rows <= 1:
            reasons[first] = str(error).split("\n", 1)[0][:200]
            return [pa.nulls(rows)]
        half = rows // 2
        return [
            *_parts(tree, columns, first, half, reasons),
            *_parts(tree, columns, first + half, rows - half, reasons),
        ]
    if isinstance(found, pa.Scalar):
        return [pa.repeat(found, rows)]
    return [found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found]


def _value(node: Any, columns: Mapping[str, pa.Array]) -> Value:
    if isinstance(node, exp.Column):
        return columns[_name(node)]
    return _NODES[type(node)](node, lambda n: _value(n, columns))


Evaluate = Callable[[Any], Value]

# --- types ----------------------------------------------------------------------------------------------


def _is_text(value: Value) -> bool:
    return bool(
        pa.types.is_string(value.type)
        or pa.types.is_large_string(value.type)
        or pa.types.is_string_view(value.type)
    )


def _number(value: Value) -> Value:
    """A value to compute with; texts as numbers with fractions, as Spark takes them."""
    if _is_text(value):
        return _of_text(pc.utf8_trim_whitespace(value.cast(pa.string())), pa.float64())
    return pc.cast(value, pa.int64()) if pa.types.is_boolean(value.type) else value


def _of_text(value: Value, kind: pa.DataType) -> Value:
    """Texts as another type. Raises ValueError for a number that is too large for a float, of which Arrow makes infinity."""
    made = pc.cast(value, kind)
    if pa.types.is_floating(kind):
        said = pc.match_substring(value, "n", ignore_case=True)  # inf, infinity
        if pc.any(pc.and_not(pc.is_inf(made), said)).as_py():
            raise ValueError("a number is beyond what a float holds")
    return made


def _text(value: Value) -> Value:
    return value.cast(pa.string())


def _truth(value: Value) -> Value:
    if _is_text(value):
        return _cast_boolean(value)
    return value.cast(pa.bool_())


def _cast_boolean(value: Value) -> Value:
    return pc.cast(pc.utf8_lower(pc.utf8_trim_whitespace(_text(value))), pa.bool_())


def _alike(left: Value, right: Value) -> tuple[Value, Value]:
    """Two values in one type: a text beside a number is a number."""
    if pa.types.is_null(left.type) or pa.types.is_null(right.type):
        kind = right.type if pa.types.is_null(left.type) else left.type
        return left.cast(kind), right.cast(kind)
    if _is_text(left) and _is_text(right):
        return _text(left), _text(right)
    numbers = [
        pa.types.is_integer(v.type) or pa.types.is_floating(v.type) or pa.types.is_decimal(v.type)
        for v in (left, right)
    ]
    if any(numbers):
        return _number(left), _number(right)
    if _is_text(left):
        return left.cast(right.type), right
    return (left, right.cast(left.type)) if _is_text(right) else (left, right)


def _together(values: list[Value]) -> list[Value]:
    """Several values in one type, as the branches of CASE and COALESCE need it."""
    kinds = {v.type for v in values if not pa.types.is_null(v.type)}
    if len(kinds) == 1:
        kind = kinds.pop()
    elif not kinds:
        kind = pa.string()
    elif all(pa.types.is_integer(k) or pa.types.is_floating(k) for k in kinds):
        kind = pa.float64() if any(pa.types.is_floating(k) for k in kinds) else pa.int64()
    else:
        kind = pa.string()
    return [v.cast(kind) for v in values]


def _target(node: Any, what: str) -> pa.DataType:
    name = node.to.this.value if hasattr(node.to.this, "value") else str(node.to.this)
    if name == "DECIMAL":
        sizes = [int(p.name) for p in node.to.expressions] or [10, 0]
        return pa.decimal128(sizes[0], sizes[1] if len(sizes) > 1 else 0)
    found = {
        "BIGINT": pa.int64(), "INT": pa.int64(), "SMALLINT": pa.int64(), "TINYINT": pa.int64(), "DOUBLE": pa.float64(),
        "FLOAT": pa.float64(), "TEXT": pa.string(), "VARCHAR": pa.string(), "BOOLEAN": pa.bool_(),
    }.get(name)  # fmt: skip
    if found is None:
        raise _wrong(
            what,
            f"cast to {name.lower()} is not known: bigint, double, decimal(p, s), string and boolean are; times are read by ts, unit and time_format",
        )
    return found


def _cast(node: Any, value: Evaluate) -> Value:
    given, kind = value(node.this), _target(node, "")
    if pa.types.is_boolean(kind):
        return _truth(given) if not _is_text(given) else _cast_boolean(given)
    if _is_text(given) and not pa.types.is_string(kind):
        return _of_text(pc.utf8_trim_whitespace(_text(given)), kind)
    if pa.types.is_integer(kind) and (pa.types.is_floating(given.type) or pa.types.is_decimal(given.type)):
        given = pc.trunc(given)
    return pc.cast(given, kind)


# --- operations -----------------------------------------------------------------------------------------


def _arithmetic(function: Callable[[Value, Value], Value]) -> Callable[[Any, Evaluate], Value]:
    def how(node: Any, value: Evaluate) -> Value:
        return function(_number(value(node.this)), _number(value(node.expression)))

    return how


def _divide(left: Value, right: Value) -> Value:
    if pc.any(pc.equal(right, pa.scalar(0, right.type))).as_py():
        raise ValueError("division by zero")
    if pa.types.is_decimal(left.type) or pa.types.is_decimal(right.type):
        return pc.divide(left, right)
    return pc.divide(pc.cast(left, pa.float64(), safe=False), pc.cast(right, pa.float64(), safe=False))


def _remainder(left: Value, right: Value) -> Value:
    """With the sign of the first, as in Spark."""
    if pc.any(pc.equal(right, pa.scalar(0, right.type))).as_py():
        raise ValueError("division by zero")
    if pa.types.is_integer(left.type) and pa.types.is_integer(right.type):
        return pc.subtract_checked(left, pc.multiply_checked(pc.divide(left, right), right))
    left, right = pc.cast(left, pa.float64(), safe=False), pc.cast(right, pa.float64(), safe=False)
    return pc.subtract(left, pc.multiply(pc.trunc(pc.divide(left, right)), right))


def _compare(function: str) -> Callable[[Any, Evaluate], Value]:
    def how(node: Any, value: Evaluate) -> Value:
        return pc.call_function(function, list(_alike(value(node.this), value(node.expression))))

    return how


def _logic(function: Callable[[Value, Value], Value]) -> Callable[[Any, Evaluate], Value]:
    return lambda node, value: function(_truth(value(node.this)), _truth(value(node.expression)))


def _is(node: Any, value: Evaluate) -> Value:
    given = value(node.this)
    if isinstance(node.expression, exp.Null):
        return pc.is_null(given)
    return pc.fill_null(pc.equal(_truth(given), _truth(value(node.expression))), False)


def _in(node: Any, value: Evaluate) -> Value:
    given, found = value(node.this), None
    for one in node.expressions:
        same = pc.equal(*_alike(given, value(one)))
        found = same if found is None else pc.or_kleene(found, same)
    return found


def _between(node: Any, value: Evaluate) -> Value:
    given = value(node.this)
    low = pc.greater_equal(*_alike(given, value(node.args["low"])))
    return pc.and_kleene(low, pc.less_equal(*_alike(given, value(node.args["high"]))))


def _case(node: Any, value: Evaluate) -> Value:
    subject = None if node.this is None else value(node.this)
    tests, results = [], []
    for branch in node.args["ifs"]:
        test = value(branch.this)
        tests.append(_truth(test) if subject is None else pc.equal(*_alike(subject, test)))
        results.append(value(branch.args["true"]))
    default = node.args.get("default")
    return _chosen(tests, [*results, pa.scalar(None) if default is None else value(default)])


def _if(node: Any, value: Evaluate) -> Value:
    other = node.args.get("false")
    return _chosen(
        [_truth(value(node.this))],
        [value(node.args["true"]), pa.scalar(None) if other is None else value(other)],
    )


def _chosen(tests: list[Value], results: list[Value]) -> Value:
    results = _together(results)
    found = results.pop()
    for test, result in zip(reversed(tests), reversed(results), strict=True):
        found = pc.if_else(pc.fill_null(test, False), result, found)
    return found


def _coalesce(node: Any, value: Evaluate) -> Value:
    return pc.coalesce(*_together([value(node.this), *map(value, node.expressions)]))


def _nullif(node: Any, value: Evaluate) -> Value:
    given = value(node.this)
    same = pc.fill_null(pc.equal(*_alike(given, value(node.expression))), False)
    return pc.if_else(same, pa.scalar(None, given.type), given)


def _round(node: Any, value: Evaluate) -> Value:
    digits = node.args.get("decimals")
    places = 0 if digits is None else _whole(digits)
    return pc.round(_number(value(node.this)), ndigits=places, round_mode="half_towards_infinity")


def _one(
    function: Callable[[Value], Value], prepared: Callable[[Value], Value]
) -> Callable[[Any, Evaluate], Value]:
    return lambda node, value: function(prepared(value(node.this)))


def _trim(node: Any, value: Evaluate) -> Value:
    how = {"LEADING": pc.utf8_ltrim, "TRAILING": pc.utf8_rtrim}.get(
        str(node.args.get("position") or ""), pc.utf8_trim
    )
    characters = node.expression
    return how(_text(value(node.this)), characters=" " if characters is None else characters.this)


def _substring(node: Any, value: Evaluate) -> Value:
    start, length = _whole(node.args["start"]), node.args.get("length")
    first = start - 1 if start > 0 else start
    stop = None if length is None else first + _whole(length)
    return pc.utf8_slice_codeunits(_text(value(node.this)), first, stop if stop != 0 or first >= 0 else None)


def _concat(node: Any, value: Evaluate) -> Value:
    return _joined([value(one) for one in node.expressions])


def _joined(values: list[Value]) -> Value:
    return pc.binary_join_element_wise(*map(_text, values), pa.scalar("", pa.string()))


def _whole(node: Any) -> int:
    """A constant whole number."""
    return -int(node.this.this) if isinstance(node, exp.Neg) else int(node.this)


def _extract(node: Any, value: Evaluate) -> Value:
    """The group of the first match, as Spark: an empty text where nothing matches. Python's syntax."""
    group = node.args.get("group")
    number = 1 if group is None else _whole(group)
    pattern = re.compile(node.expression.this)

    def one(text: str | None) -> str | None:
        if text is None:
            return None
        found = pattern.search(text)
        return "" if found is None else found[number] or ""

    given = _text(value(node.this))
    return (
        pa.array([one(t) for t in given.to_pylist()], pa.string())
        if not isinstance(given, pa.Scalar)
        else pa.scalar(one(given.as_py()))
    )


def _replace(node: Any, value: Evaluate) -> Value:
    old, new = node.args["expression"], node.args.get("replacement")
    return pc.replace_substring(
        _text(value(node.this)),
        old.this,
        "" if new is None else new.this,
    )


def _literal(node: Any, value: Evaluate) -> Value:
    if node.is_string:
        return pa.scalar(node.this, pa.string())
    whole = node.this.isdecimal()
    return pa.scalar(int(node.this), pa.int64()) if whole else pa.scalar(float(node.this), pa.float64())


_NODES: dict[type, Callable[[Any, Evaluate], Value]] = {
    exp.Literal: _literal,
    exp.Null: lambda node, value: pa.scalar(None),
    exp.Boolean: lambda node, value: pa.scalar(bool(node.this)),
    exp.Paren: lambda node, value: value(node.this),
    exp.Cast: _cast,
    exp.TryCast: _cast,
    exp.Add: _arithmetic(pc.add_checked),
    exp.Sub: _arithmetic(pc.subtract_checked),
    exp.Mul: _arithmetic(pc.multiply_checked),
    exp.Div: _arithmetic(_divide),
    exp.Mod: _arithmetic(_remainder),
    exp.Neg: _one(pc.negate_checked, _number),
    exp.EQ: _compare("equal"), exp.NEQ: _compare("not_equal"), exp.LT: _compare("less"), exp.LTE: _compare("less_equal"),
    exp.GT: _compare("greater"), exp.GTE: _compare("greater_equal"),
    exp.And: _logic(pc.and_kleene), exp.Or: _logic(pc.or_kleene),
    exp.Not: _one(pc.invert, _truth),
    exp.Is: _is, exp.In: _in, exp.Between: _between, exp.Case: _case, exp.If: _if,
    exp.Coalesce: _coalesce, exp.Nullif: _nullif,
    exp.Round: _round, exp.Floor: _one(pc.floor, _number), exp.Ceil: _one(pc.ceil, _number), exp.Abs: _one(pc.abs_checked, _number),
    exp.Lower: _one(pc.utf8_lower, _text), exp.Upper: _one(pc.utf8_upper, _text), exp.Length: _one(pc.utf8_length, _text),
    exp.Trim: _trim, exp.Substring: _substring, exp.Concat: _concat,
    exp.DPipe: lambda node, value: _joined([value(node.this), value(node.expression)]),
    exp.RegexpExtract: _extract, exp.Replace: _replace,
}  # fmt: skip

_CONSTANT: dict[type, dict[str, type]] = {
    exp.Round: {"decimals": int}, exp.Substring: {"start": int, "length": int}, exp.Trim: {"expression": str},
    exp.RegexpExtract: {"expression": str, "group": int}, exp.Replace: {"expression": str, "replacement": str},
}  # fmt: skip
"""What of these is the same in all rows."""

FUNCTIONS = (
    "coalesce", "nullif", "if", "round", "floor", "ceil", "abs", "lower", "upper", "length", "trim", "substring", "concat",
    "replace", "regexp_extract",
)  # fmt: skip
"""The functions that expressions may call."""
