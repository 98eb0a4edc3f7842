"""The types of fields, keys and state values: parsed from annotations, checked, mapped to Arrow.

A type is a small immutable tree. `check` gives the value as it is stored (a list becomes a tuple, an
int in a float place becomes that float) or raises; two values that pass and are equal as stored are
equal to the last bit, but for -0.0 and 0.0, which stay distinct.
"""

from __future__ import annotations

import types as pytypes
import typing
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any, Union, get_args, get_origin

import pyarrow as pa

import timelapse.model.decimals as decimals
from timelapse.errors import BadString, DefinitionError, IntRange, TypeMismatch
from timelapse.ids import INT64_MAX, INT64_MIN

_TIME_MARK = "timelapse.Time"
Time = Annotated[int, _TIME_MARK]
"""A time: int64 microseconds since 1970 UTC. An int in handlers, a timestamp in tables."""

Check = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class ValueType:
    """Base of all types. `text` is the type as a user writes it."""

    @property
    def text(self) -> str:
        raise TypeError("abstract")

    @property
    def arrow(self) -> pa.DataType:
        raise TypeError("abstract")

    def checker(self, what: str) -> Check:
        """A function that returns the value as stored, or raises naming `what`."""
        raise TypeError("abstract")

    @property
    def nullable(self) -> bool:
        return False


@dataclass(frozen=True, slots=True)
class ScalarType(ValueType):
    """int, float, bool, str, bytes or Time; or a decimal, which has a class of its own."""

    name: str

    @property
    def text(self) -> str:
        return self.name

    @property
    def arrow(self) -> pa.DataType:
        return _ARROW[self.name]

    @property
    def python(self) -> type:
        return _PYTHON[self.name]

    def checker(self, what: str) -> Check:
        return _SCALAR_CHECKS[self.name](what)


@dataclass(frozen=True, slots=True)
class DecimalType(ScalarType):
    """`Annotated[Decimal, tl.scale(n)]`, in short `Decimal[n]`: a Decimal in handlers, an int64 of its smallest unit below."""

    scale: int

    @classmethod
    def of(cls, scale: int) -> DecimalType:
        return cls(f"Decimal[{scale}]", scale)

    @property
    def arrow(self) -> pa.DataType:
        return decimals.column_type(self.scale)

    @property
    def python(self) -> type:
        return Decimal

    @property
    def annotation(self) -> Any:
        """The type as a class says it."""
        return Annotated[Decimal, decimals.Scale(self.scale)]

    def checker(self, what: str) -> Check:
        return decimals.checker(what, self.scale)


@dataclass(frozen=True, slots=True)
class OptionalType(ValueType):
    """`T | None`."""

    inner: ValueType

    @property
    def text(self) -> str:
        return f"{self.inner.text} | None"

    @property
    def arrow(self) -> pa.DataType:
        return self.inner.arrow

    @property
    def nullable(self) -> bool:
        return True

    def checker(self, what: str) -> Check:
        inner = self.inner.checker(what)

        def check(value: Any) -> Any:
            return None if value is None else inner(value)

        return check


@dataclass(frozen=True, slots=True)
class ListType(ValueType):
    """`list[T]`: any length; read as a tuple."""

    inner: ValueType

    @property
    def text(self) -> str:
        return f"list[{self.inner.text}]"

    @property
    def arrow(self) -> pa.DataType:
        return pa.list_(pa.field("item", self.inner.arrow, nullable=self.inner.nullable))

    def checker(self, what: str) -> Check:
        inner = self.inner.checker(f"an element of {what}")

        def check(value: Any) -> Any:
            if not isinstance(value, tuple | list):
                raise _mismatch(what, self.text, value)
            return tuple([inner(v) for v in value])

        return check


@dataclass(frozen=True, slots=True)
class TupleType(ValueType):
    """`tuple[A, B]`, or a NamedTuple class: fixed length, mixed types."""

    items: tuple[ValueType, ...]
    names: tuple[str, ...]
    cls: type | None = None

    @property
    def text(self) -> str:
        if self.cls is not None:
            return self.cls.__qualname__
        return f"tuple[{', '.join(t.text for t in self.items)}]"

    @property
    def arrow(self) -> pa.DataType:
        return pa.struct(
            [pa.field(n, t.arrow, nullable=t.nullable) for n, t in zip(self.names, self.items, strict=True)]
        )

    def checker(self, what: str) -> Check:
        checks = [t.checker(f"item {i} of {what}") for i, t in enumerate(self.items)]
        count, cls = len(checks), self.cls
        make: Callable[[list[Any]], Any] = tuple if cls is None else cls._make  # type: ignore[attr-defined]

        def check(value: Any) -> Any:
            if not isinstance(value, tuple) or len(value) != count:
                raise _mismatch(what, self.text, value)
            return make([c(v) for c, v in zip(checks, value, strict=True)])

        if cls is None and self.items == (INT, INT):  # the commonest composite key, on every access

            def check_pair(value: Any) -> Any:
                if type(value) is tuple and len(value) == 2:
                    a, b = value
                    if (
                        type(a) is int
                        and type(b) is int
                        and INT64_MIN <= a <= INT64_MAX
                        and INT64_MIN <= b <= INT64_MAX
                    ):
                        return value
                return check(value)

            return check_pair
        return check


INT = ScalarType("int")
FLOAT = ScalarType("float")
BOOL = ScalarType("bool")
STR = ScalarType("str")
BYTES = ScalarType("bytes")
TIME = ScalarType("Time")

_PYTHON: dict[str, type] = {
    "int": int, "float": float, "bool": bool, "str": str, "bytes": bytes, "Time": int,
}  # fmt: skip
_ARROW: dict[str, pa.DataType] = {
    "int": pa.int64(),
    "float": pa.float64(),
    "bool": pa.bool_(),
    "str": pa.large_string(),
    "bytes": pa.large_binary(),
    "Time": pa.timestamp("us", tz="UTC"),
}


def _show(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _mismatch(what: str, expected: str, value: object) -> TypeMismatch:
    hint = None
    if isinstance(value, bool) and expected in ("int", "Time", "float"):
        hint = "bool is not int here; write int(...) if a number is meant"
    elif type(value).__module__ == "numpy":
        hint = f"convert it: {expected}(...)"
    return TypeMismatch(f"{what} must be {expected}, not {type(value).__name__} {_show(value)}", hint=hint)


def _check_int(what: str) -> Check:
    def check(value: Any) -> Any:
        if type(value) is not int:
            raise _mismatch(what, "int", value)
        if not INT64_MIN <= value <= INT64_MAX:
            raise IntRange(f"{what} is {_show(value)}, outside int64")
        return value

    return check


def _check_float(what: str) -> Check:
    def check(value: Any) -> Any:
        if type(value) is float:
            return value
        if type(value) is not int:
            raise _mismatch(what, "float", value)
        try:
            return float(value)
        except OverflowError:
            raise IntRange(f"{what} is {_show(value)}, outside what a float can hold") from None

    return check


def _check_exact(python: type, name: str) -> Callable[[str], Check]:
    def outer(what: str) -> Check:
        def check(value: Any) -> Any:
            if type(value) is not python:
                raise _mismatch(what, name, value)
            return value

        return check

    return outer


def _check_str(what: str) -> Check:
    def check(value: Any) -> Any:
        if type(value) is not str:
            raise _mismatch(what, "str", value)
        if not value.isascii():
            try:
                value.encode()
            except UnicodeEncodeError:
                raise BadString(
                    f"{what} holds a lone surrogate: {_show(value)}",
                    hint="such a string has no UTF-8 form; clean it with "
                    "text.encode('utf-8', 'replace').decode()",
                ) from None
        return value

    return check


_SCALAR_CHECKS: dict[str, Callable[[str], Check]] = {
    "int": _check_int,
    "float": _check_float,
    "bool": _check_exact(bool, "bool"),
    "str": _check_str,
    "bytes": _check_exact(bytes, "bytes"),
    "Time": _check_int,
}
_SCALARS: dict[object, ScalarType] = {int: INT, float: FLOAT, bool: BOOL, str: STR, bytes: BYTES}
_NAMED = {t.name: t for t in (INT, FLOAT, BOOL, STR, BYTES, TIME)}


def scalar_named(name: str) -> ScalarType | None:
    """The scalar type of this name, as `text` gives it; None where there is none."""
    if name.startswith("Decimal[") and name.endswith("]") and name[8:-1].isdecimal():
        return DecimalType.of(int(name[8:-1]))
    return _NAMED.get(name)


def parse_field(annotation: object) -> ValueType:
    """The type of an event's or record's field.

    Raises DefinitionError for anything but scalars, optionals and lists of them.
    """
    return _parse(annotation, tuples=False)


def parse_value(annotation: object) -> ValueType:
    """The type of a state's value: scalars, optionals, tuples, NamedTuples of those."""
    return _parse(annotation, tuples=True)


def parse_key(annotation: object) -> ValueType:
    """The type of a state's key: int, str, bool, bytes, Time, a decimal, or a tuple of them."""
    parsed = _parse(annotation, tuples=True)
    parts = parsed.items if isinstance(parsed, TupleType) else (parsed,)
    if isinstance(parsed, TupleType) and (parsed.cls is not None or not parts):
        raise DefinitionError(
            f"a state cannot be keyed by {parsed.text}", hint="use a plain tuple of int, str, bool or bytes"
        )
    for part in parts:
        if not isinstance(part, ScalarType) or part.name == "float":
            raise DefinitionError(
                f"a state cannot be keyed by {part.text}",
                hint="keys are int, str, bool, bytes, decimals, or tuples of them"
                + ("; round a float to an int first" if part.text == "float" else ""),
            )
    return parsed


def _parse(annotation: object, *, tuples: bool) -> ValueType:
    if annotation in _SCALARS:
        return _SCALARS[annotation]
    origin, args = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        if args[0] is int and _TIME_MARK in args[1:]:
            return TIME
        if args[0] is Decimal:
            found = [a for a in args[1:] if isinstance(a, decimals.Scale)]
            if len(found) == 1:
                return DecimalType.of(found[0].places)
            annotation = Decimal
        else:
            return _parse(args[0], tuples=tuples)
    if annotation is Decimal:
        raise DefinitionError(
            "Decimal needs a scale: how many digits behind the point are kept",
            hint="Annotated[Decimal, tl.scale(2)], under a name of its own: Money = Annotated[Decimal, tl.scale(2)]",
        )
    if origin in (Union, pytypes.UnionType):
        rest = [a for a in args if a is not type(None)]
        if len(rest) == 1 and len(rest) < len(args):
            return OptionalType(_parse(rest[0], tuples=tuples))
    if origin is list and len(args) == 1 and not tuples:
        return ListType(_parse(args[0], tuples=tuples))
    if tuples and origin is tuple and args and Ellipsis not in args:
        items = tuple(_parse(a, tuples=True) for a in args)
        return TupleType(items, tuple(f"f{i}" for i in range(len(items))))
    if (
        tuples
        and isinstance(annotation, type)
        and issubclass(annotation, tuple)
        and hasattr(annotation, "_fields")
    ):
        hints = typing.get_type_hints(annotation, include_extras=True)
        names = tuple(annotation._fields)
        return TupleType(tuple(_parse(hints[n], tuples=True) for n in names), names, annotation)
    shown = getattr(annotation, "__name__", None) or str(annotation)
    allowed = (
        "int, float, bool, str, bytes, tl.Time, Annotated[Decimal, tl.scale(n)] and optionals of those"
        + (", tuples and NamedTuples of those" if tuples else ", lists of those")
    )
    raise DefinitionError(f"the type {shown} is not supported", hint=f"supported: {allowed}")
