"""Conditions on a log's events, for people who look into it: `sender == 512 and ts >= "2026-10-03"`.

An expression has the event's fields, `ts` and `seq`, constants, comparisons, `in`, `is None`, `and`, `or`, `not` and
brackets; nothing else is evaluated. It is applied to columns, by Arrow.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from timelapse.errors import UsageError, meant
from timelapse.moments import read_time
from timelapse.segments.types import EventType

_LONGEST = 1000
_COMPARISONS: dict[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Lt: lambda a, b: a < b, ast.LtE: lambda a, b: a <= b, ast.Gt: lambda a, b: a > b,
    ast.GtE: lambda a, b: a >= b, ast.Eq: lambda a, b: a == b, ast.NotEq: lambda a, b: a != b,
}  # fmt: skip


class Where:
    """A parsed condition. Raises UsageError (TL841 for times, TL808 else) for what is not one; `option` names it there."""

    def __init__(self, text: str, option: str = "--where") -> None:
        text = text.strip()
        if len(text) > _LONGEST:
            raise _bad(f"{option} {text[:40] + '...'!r}", f"it is longer than {_LONGEST} characters")
        self._option, self._said = option, f"{option} {text!r}"
        try:
            self._node = ast.parse(text, mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            raise _bad(self._said, "it does not parse") from None
        self.names = sorted({n.id for n in ast.walk(self._node) if isinstance(n, ast.Name)})
        """The fields that it asks for."""

    @property
    def values(self) -> tuple[tuple[str, bool], ...]:
        """What fields but `ts` and `seq` are compared with, as text: what may name a person. True where the field equals it, False
        where it is a part of the field (`"anna" in user`)."""
        found: dict[tuple[str, bool], None] = {}
        for node in ast.walk(self._node):
            if not isinstance(node, ast.Compare):
                continue
            named = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
            if named <= {"ts", "seq"} or not all(isinstance(op, ast.Eq | ast.In) for op in node.ops):
                continue
            within = any(isinstance(one, ast.Name) for one in node.comparators) and isinstance(
                node.ops[0], ast.In
            )
            for part in ast.walk(node):
                if (
                    isinstance(part, ast.Constant)
                    and isinstance(part.value, str | int)
                    and not isinstance(part.value, bool)
                ):
                    found[str(part.value), not within] = None
        return tuple(one for one in found if one[0])

    def values_of(self, name: str) -> list[str | int]:
        """The texts and whole numbers that stand in comparisons with a field."""
        return [
            part.value
            for node in ast.walk(self._node)
            if isinstance(node, ast.Compare) and any(isinstance(n, ast.Name) and n.id == name for n in ast.walk(node))
            for part in ast.walk(node)
            if isinstance(part, ast.Constant) and isinstance(part.value, str | int) and not isinstance(part.value, bool)
        ]  # fmt: skip

    def types(self, types: Mapping[str, EventType]) -> list[str]:
        """The types that have all the fields asked for. Raises UsageError where none has."""
        found = [name for name, kind in types.items() if set(self.names) <= _columns(kind).keys()]
        if not found:
            every = {n for kind in types.values() for n in _columns(kind)}
            unknown = next((n for n in self.names if n not in every), None)
            what = f"there is no field {unknown!r}" if unknown else "no event type has all these fields"
            hint = meant(unknown, every) if unknown else ""
            fields = "; ".join(f"{n}: {', '.join(_columns(k))}" for n, k in types.items())
            raise _bad(self._said, what, f"{hint}fields: {fields}")
        return found

    def keep(self, kind: EventType, table: pa.Table) -> pa.Table:
        """The rows for which it holds. Raises UsageError for types that cannot be compared."""
        try:
            return table.filter(_Reading(self._option, self._said, _columns(kind)).of(self._node))
        except pa.ArrowNotImplementedError:
            told = ", ".join(f"{f.name} is {f.type.text}" for f in kind.fields if f.name in self.names)
            raise _bad(self._said, f"what is compared differs in type: in {kind.name} {told}") from None
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowKeyError, OverflowError) as error:
            raise _bad(self._said, str(error).splitlines()[0]) from None


def _columns(kind: EventType) -> dict[str, pa.DataType]:
    """What fields are compared as. Times have no zone here: those of a log have none, those that come to a live run have."""
    own = {f.name: f.type.arrow for f in kind.fields}
    times = {name: _TIME for name, type_ in own.items() if pa.types.is_timestamp(type_)}
    return {"ts": _TIME, "seq": pa.int64(), **own, **times}


_TIME = pa.timestamp("us")


class _Reading:
    """From syntax to Arrow's expressions, for the columns of one event type."""

    def __init__(self, option: str, said: str, columns: Mapping[str, pa.DataType]) -> None:
        self._option, self._said, self._columns = option, said, columns

    def of(self, node: ast.expr) -> pc.Expression:
        if isinstance(node, ast.BoolOp):
            parts = [self.of(v) for v in node.values]
            whole = parts[0]
            for part in parts[1:]:
                whole = whole & part if isinstance(node.op, ast.And) else whole | part
            return whole
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return ~self.of(node.operand)
        if isinstance(node, ast.Compare):
            pairs = list(self._comparisons(node))
            whole = pairs[0]
            for pair in pairs[1:]:
                whole = whole & pair
            return whole
        if isinstance(node, ast.Name) and self._columns.get(node.id) == pa.bool_():
            return pc.field(node.id)
        raise _bad(self._said, f"{ast.unparse(node)!r} is not a comparison")

    def _comparisons(self, node: ast.Compare) -> Iterator[pc.Expression]:
        left = node.left
        for operator, right in zip(node.ops, node.comparators, strict=True):
            yield self._compare(left, operator, right)
            left = right

    def _compare(self, left: ast.expr, operator: ast.cmpop, right: ast.expr) -> pc.Expression:
        if isinstance(operator, ast.Is | ast.IsNot):
            if not (isinstance(right, ast.Constant) and right.value is None):
                raise _bad(self._said, "`is` is for None")
            given = self._operand(left, None)
            return given.is_null() if isinstance(operator, ast.Is) else given.is_valid()
        if isinstance(operator, ast.In | ast.NotIn):
            found = self._within(left, right)
            return found if isinstance(operator, ast.In) else ~found
        return _COMPARISONS[type(operator)](
            self._operand(left, self._kind(right)), self._operand(right, self._kind(left))
        )

    def _within(self, left: ast.expr, right: ast.expr) -> pc.Expression:
        """`field in (1, 2)`, or `"text" in field`."""
        if isinstance(right, ast.Tuple | ast.List | ast.Set):
            kind = self._kind(left)
            return self._operand(left, None).isin(
                pa.array([self._constant(v, kind) for v in right.elts], kind)
            )
        if isinstance(left, ast.Constant) and isinstance(left.value, str):
            return pc.match_substring(self._operand(right, None), left.value)
        raise _bad(self._said, f"{ast.unparse(right)!r} is neither a list of values nor a text field")

    def _kind(self, node: ast.expr) -> pa.DataType | None:
        return self._columns.get(node.id) if isinstance(node, ast.Name) else None

    def _operand(self, node: ast.expr, beside: pa.DataType | None) -> pc.Expression:
        if isinstance(node, ast.Name):
            return pc.field(node.id).cast(_TIME) if self._kind(node) == _TIME else pc.field(node.id)
        value = self._constant(node, beside)
        if beside is not None and pa.types.is_decimal(beside) and type(value) is int:
            value = Decimal(value)  # Arrow takes an integer for one of 19 digits
        return pc.scalar(
            pa.scalar(value, beside) if beside is not None and pa.types.is_timestamp(beside) else value
        )

    def _constant(self, node: ast.expr, beside: pa.DataType | None) -> Any:
        """A constant's value; beside a time, text and numbers are times."""
        try:
            value = ast.literal_eval(node)
        except ValueError:
            raise _bad(self._said, f"{ast.unparse(node)!r} is neither a field nor a constant") from None
        if beside is not None and pa.types.is_timestamp(beside) and isinstance(value, str):
            return read_time(value, self._option)
        if not isinstance(value, int | float | str | bytes | bool | None):
            raise _bad(self._said, f"{ast.unparse(node)!r} cannot be compared with")
        return value


def _bad(said: str, why: str, hint: str = "") -> UsageError:
    """`said`: the option and its condition."""
    return UsageError(
        f"{said}: {why}", code="TL808",
        hint=hint or """for example 'sender == 512 and ts >= "2026-10-03" and text is not None'""",
    )  # fmt: skip
