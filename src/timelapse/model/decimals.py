"""Decimals with a declared scale: checked, made canonical, and as whole numbers of their smallest unit.

A decimal of scale s is stored as the int64 n that stands for n * 10**-s. Read back it has exactly s digits behind the
point and no negative zero, so neither its text nor a digest tells how it was computed. Nothing is ever rounded here: a
value with more digits is refused. All of it is done in contexts of its own, whatever that of the thread is.
"""

from __future__ import annotations

import decimal
import functools
import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final, ParamSpec, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from timelapse.errors import InexactDecimal, IntRange, TypeMismatch
from timelapse.ids import INT64_MAX, INT64_MIN

P = ParamSpec("P")
R = TypeVar("R")

MAX_SCALE: Final = 18
DIGITS: Final = 19
"""What int64 needs: the precision of columns."""
_EXACT: Final = decimal.Context(
    prec=200, rounding=decimal.ROUND_HALF_EVEN, Emin=decimal.MIN_EMIN, Emax=decimal.MAX_EMAX, capitals=1, clamp=0, flags=[],
    traps=[decimal.Inexact, decimal.InvalidOperation, decimal.Overflow],
)  # fmt: skip
"""Wide enough for whatever a slice adds up; what it cannot hold exactly raises."""
_USUAL: Final = decimal.Context(
    prec=28, rounding=decimal.ROUND_HALF_EVEN, Emin=-999999, Emax=999999, capitals=1, clamp=0, flags=[],
    traps=[decimal.InvalidOperation, decimal.DivisionByZero, decimal.Overflow],
)  # fmt: skip
_SHOWN: Final = 60


@dataclass(frozen=True, slots=True)
class Scale:
    """How many digits behind the point a decimal has (see `scale`)."""

    places: int


def scale(places: int) -> Scale:
    """The scale of a decimal, for annotations: `Money = Annotated[Decimal, tl.scale(2)]`.

    `places` is the number of digits behind the point, 0 to 18. Raises TypeMismatch for any other.
    """
    if type(places) is not int or not 0 <= places <= MAX_SCALE:
        raise TypeMismatch(
            f"a scale of {places!r}", hint=f"the number of digits behind the point: 0 to {MAX_SCALE}"
        )
    return Scale(places)


def usual_context() -> AbstractContextManager[decimal.Context]:
    """What handlers compute in, whatever the thread's context is: Python's own default (28 digits, half to even)."""
    return decimal.localcontext(_USUAL)


def in_usual_context(function: Callable[P, R]) -> Callable[P, R]:
    """A function that runs handlers, which compute in the usual context meanwhile."""

    @functools.wraps(function)
    def call(*args: P.args, **named: P.kwargs) -> R:
        with usual_context():
            return function(*args, **named)

    return call


def unscaled(value: Any, places: int, what: str) -> int:
    """The whole number that stands for a Decimal or int; of any size.

    Raises TypeMismatch for other types and what is not finite, InexactDecimal for more digits.
    """
    if type(value) is Decimal:
        try:
            found: Decimal = _EXACT.quantize(value, _units()[places])
            return int(found.scaleb(places, _EXACT))
        except (decimal.DecimalException, ValueError, OverflowError):
            raise _refused(value, places, what) from None
    if isinstance(value, int):
        whole: int = int(value) * 10**places
        return whole
    raise _mismatch(value, places, what)


def of_text(text: str) -> Decimal:
    """The decimal that a text says, with all its digits. Raises ValueError for what is no number."""
    found = text.strip()
    if not _NUMBER.match(found) or len(found) > 200:
        raise ValueError(text)
    return _EXACT.create_decimal(found)


_NUMBER: Final = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,4})?\Z")


def of_int(n: int, places: int) -> Decimal:
    """The decimal that a whole number stands for."""
    return Decimal(n).scaleb(-places, _EXACT)


class Units(int):
    """A whole number of the smallest unit that is shown as the amount that it stands for."""

    amount: Decimal

    def __repr__(self) -> str:
        return str(self.amount)


def shown_units(value: Any, places: int) -> Any:
    """A whole number as Units; all else (nothing, ABSENT) as it is."""
    if type(value) is not int:
        return value
    units = Units(value)
    units.amount = of_int(value, places)
    return units


def plus(a: Decimal, b: Decimal) -> Decimal:
    """The exact sum."""
    return _EXACT.add(a, b)


def checker(what: str, places: int) -> Callable[[Any], Any]:
    """A function that gives a Decimal or int as the canonical Decimal, or raises naming `what`."""
    unit, zero = _units()[places], of_int(0, places)
    most, least = of_int(INT64_MAX, places), of_int(INT64_MIN, places)
    quantize = _EXACT.quantize

    def check(value: Any) -> Any:
        if type(value) is not Decimal:
            if type(value) is not int:
                raise _mismatch(value, places, what)
            value = Decimal(value)
        try:
            found = quantize(value, unit)
            inside = least <= found <= most
        except decimal.DecimalException:
            raise _refused(value, places, what) from None
        if not inside:
            raise _outside(value, places, what)
        return found if found else zero

    return check


def parameter(what: str) -> Callable[[Any], Any]:
    """The same for a parameter without a scale of its own: any decimal that some scale holds, as it is written."""

    def check(value: Any) -> Any:
        if type(value) is int:
            value = Decimal(value)
        if type(value) is not Decimal:
            raise TypeMismatch(
                f"{what} must be Decimal, not {type(value).__name__} {_short(value)}", hint=_not_float(value)
            )
        exponent = value.as_tuple().exponent
        places = max(0, -exponent) if isinstance(exponent, int) else 0
        return checker(what, min(places, MAX_SCALE))(value)

    return check


def scale_of(value: Decimal) -> int | None:
    """The scale of a constant, where int64 holds it."""
    exponent = value.as_tuple().exponent
    if not isinstance(exponent, int) or not -MAX_SCALE <= exponent <= 0:
        return None
    return -exponent if INT64_MIN <= unscaled(value, -exponent, "it") <= INT64_MAX else None


def as_word(value: Any) -> Any:
    """A parameter as machine code takes it: a decimal, of a scale that `scale_of` gives, as a whole number."""
    return unscaled(value, scale_of(value) or 0, "a parameter") if isinstance(value, Decimal) else value


_UNITS: list[Decimal] = []


def _units() -> list[Decimal]:
    if not _UNITS:
        _UNITS.extend(Decimal(1).scaleb(-places, _EXACT) for places in range(MAX_SCALE + 1))
    return _UNITS


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."


def _not_float(value: Any) -> str | None:
    if isinstance(value, float):
        return 'a float is hardly ever the amount that was meant: write Decimal("0.10"), or round it yourself'
    return "bool is not a number here" if isinstance(value, bool) else None


def _mismatch(value: Any, places: int, what: str) -> TypeMismatch:
    return TypeMismatch(
        f"{what} must be Decimal[{places}], not {type(value).__name__} {_short(value)}",
        hint=_not_float(value),
    )


def _outside(value: Any, places: int, what: str) -> IntRange:
    return IntRange(
        f"{what} is {_short(value)}, outside what {places} digits behind the point leave of int64",
        hint=f"stored decimals lie between {of_int(INT64_MIN, places)} and {of_int(INT64_MAX, places)}",
    )


def _refused(value: Decimal, places: int, what: str) -> TypeMismatch | InexactDecimal | IntRange:
    if not value.is_finite():
        return TypeMismatch(f"{what} is {value}, which is no amount", hint="test with .is_finite() first")
    if value.adjusted() > DIGITS:
        return _outside(value, places, what)
    return InexactDecimal(
        f"{what} is {_short(value)}, which has more than {places} digits behind the point",
        hint=f"say how to round: value.quantize(Decimal({str(_units()[places])!r}))",
    )


# --- MessagePack ------------------------------------------------------------------------------------------

_CODE: Final = 1
"""The type of extension that stands for a decimal."""


def packable(value: Decimal) -> msgspec.msgpack.Ext:
    """A decimal as MessagePack can tell it from a text."""
    return msgspec.msgpack.Ext(_CODE, str(value).encode())


def unpackable(value: Any) -> Any:
    """What was decoded, with decimals again."""
    if isinstance(value, msgspec.msgpack.Ext) and value.code == _CODE:
        return Decimal(bytes(value.data).decode())
    return value


# --- columns ----------------------------------------------------------------------------------------------


def column_type(places: int) -> pa.DataType:
    """The type of a column: decimal128."""
    return pa.decimal128(DIGITS, places)


def is_column(kind: pa.DataType) -> bool:
    """Whether a column's type is that of decimals."""
    return bool(pa.types.is_decimal128(kind))


def to_words(column: pa.Array) -> npt.NDArray[np.int64]:
    """A column of decimals as whole numbers; what stands for a null does not matter."""
    rows, data = len(column), column.buffers()[1]
    if not rows or data is None:
        return np.zeros(rows, np.int64)
    halves = np.frombuffer(data, np.int64, 2 * rows, 16 * column.offset)
    return np.ascontiguousarray(halves[::2])


def to_column(
    words: npt.NDArray[np.int64], kind: pa.DataType, missing: npt.NDArray[np.bool_] | None = None
) -> pa.Array:
    """Whole numbers as a column of decimals; null where `missing`."""
    halves = np.empty((len(words), 2), np.int64)
    halves[:, 0], halves[:, 1] = words, np.asarray(words) >> 63
    made = pa.Array.from_buffers(kind, len(words), [None, pa.py_buffer(halves)])
    if missing is None or not missing.any():
        return made
    return pc.if_else(pa.array(~missing), made, pa.scalar(None, kind))


def to_list(column: pa.Array, places: int) -> list[Any]:
    """A column's values; None for nulls."""
    shift, exact = -places, _EXACT
    values: list[Any] = [Decimal(n).scaleb(shift, exact) for n in to_words(column).tolist()]
    if column.null_count:
        return [v if ok else None for v, ok in zip(values, column.is_valid().to_pylist(), strict=True)]
    return values
