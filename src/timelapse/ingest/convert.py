"""Turning source columns into an event's typed columns, and finding the rows that do not fit.

Every conversion gives one array in *wire* form (Time as int64, else the field's Arrow type) and a reason for
every row that fails. The common case of a whole column is done by Arrow or NumPy; values that those do not
take are looked at one by one, by rules that agree, so where a block of rows happens to end changes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from datetime import datetime
from decimal import Decimal
from functools import partial
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from timelapse.errors import TimelapseError
from timelapse.ids import INT64_MAX
from timelapse.ingest import amounts
from timelapse.ingest.amounts import Unfit, no_way, short
from timelapse.ingest.texts import holds_only
from timelapse.ingest.times import A_NUMBER, ISO_TIME, NO_ZONE, PER_UNIT, WHOLE, ZONED_TIME, Times, in_range
from timelapse.model.types import TIME, DecimalType, ListType, OptionalType, ScalarType, ValueType

Reasons = dict[int, str]

NO_TEXT = "is no UTF-8 text"
_BOOLS = {"true": True, "false": False, "1": True, "0": False}


def wire_type(kind: ValueType) -> pa.DataType:
    """The Arrow type in which a field travels through Spark: Time as int64, strings with 32-bit offsets."""
    if isinstance(kind, OptionalType):
        return wire_type(kind.inner)
    if isinstance(kind, ListType):
        return pa.list_(pa.field("element", wire_type(kind.inner), nullable=True))
    assert isinstance(kind, ScalarType)
    return {"str": pa.string(), "bytes": pa.binary(), "Time": pa.int64()}.get(kind.name, kind.arrow)


def convert(
    name: str, column: pa.Array, kind: ValueType, times: Times, *, texts: bool, null: str = ""
) -> tuple[pa.Array, Reasons]:
    """One column as `kind`. `texts` says that it comes from a text file, where every value is a string.

    Raises IngestError when the column's type can never become `kind`.
    """
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    inner = kind.inner if isinstance(kind, OptionalType) else kind
    if texts:
        column = _nulls(column, kind, null)
    if is_text(column.type) and inner.text != "str":
        values, reasons = _from_text(name, column.cast(pa.string()), inner, times)
    else:
        values, reasons = _from_typed(name, column, inner, times)
    if not kind.nullable and values.null_count:
        missing = "is empty" if texts else "is null"
        for row in np.flatnonzero(np.asarray(values.is_null())).tolist():
            reasons.setdefault(row, f"{name} {missing}")
    return values, reasons


def is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _nulls(column: pa.Array, kind: ValueType, null: str) -> pa.Array:
    inner = kind.inner if isinstance(kind, OptionalType) else kind
    if not kind.nullable and inner.text in ("str", "bytes"):
        return column
    empty = pc.equal(column, null)
    if not kind.nullable and null:
        empty = pc.or_(empty, pc.equal(column, ""))
    return pc.if_else(empty, pa.scalar(None, column.type), column) if pc.any(empty).as_py() else column


# --- texts ----------------------------------------------------------------------------------------------


def _from_text(name: str, column: pa.Array, kind: ValueType, times: Times) -> tuple[pa.Array, Reasons]:
    if kind.text == "bytes":
        return column.cast(wire_type(kind)), {}
    done = _quickly(column, kind, times)
    if done is not None:
        return done, {}
    # Most rows of a block are as they should be: only pieces with others are gone through.
    parts = [column.slice(at, _PIECE) for at in range(0, len(column), _PIECE)]
    found = [_quickly(part, kind, times) for part in parts] if len(parts) > 1 else []
    if all(values is None for values in found):
        return _each_text(name, column, kind, times)
    odd = [at for at, values in enumerate(found) if values is None]
    parsed, failed = _each_text(name, pa.concat_arrays([parts[at] for at in odd]), kind, times)
    # Only the last piece may have fewer rows, and it is the last of the odd ones too.
    for n, at in enumerate(odd):
        found[at] = parsed.slice(n * _PIECE, _PIECE)
    reasons = {odd[row // _PIECE] * _PIECE + row % _PIECE: why for row, why in failed.items()}
    return pa.concat_arrays(found), reasons


_PIECE = 1024
"""Rows."""


def _quickly(column: pa.Array, kind: ValueType, times: Times) -> pa.Array | None:
    """All of these texts at once, as they are read one by one; None where some of them are not plain enough for that."""
    if isinstance(kind, DecimalType):
        return amounts.quick(column, kind)
    quick = _QUICK.get(kind.text)
    if quick is None or (kind == TIME and times.time_format is not None):
        return None
    return quick(column, times)


def _each_text(name: str, column: pa.Array, kind: ValueType, times: Times) -> tuple[pa.Array, Reasons]:
    parse = _text_parser(kind, times)
    # Log times and codes repeat: each distinct text is parsed once.
    coded = column.dictionary_encode()
    values: list[Any] = []
    failed: dict[int, str] = {}
    for code, text in enumerate(coded.dictionary.to_pylist()):
        try:
            values.append(parse(text))
        except Unfit as error:
            values.append(None)
            failed[code] = f"{name}: {error}"
    codes = coded.indices
    reasons: Reasons = {}
    if failed:
        for row, code in enumerate(codes.to_pylist()):
            if code in failed:
                reasons[row] = failed[code]
    return pa.array(values, type=wire_type(kind)).take(codes), reasons


def _quick_int(column: pa.Array, times: Times) -> pa.Array | None:
    # 18 digits cannot overflow; Arrow alone would also read hexadecimal
    if holds_only(column, b"-0123456789", 18):
        try:
            return column.cast(pa.int64())
        except pa.ArrowInvalid:
            return None
    return None


def _quick_time(column: pa.Array, times: Times) -> pa.Array | None:
    whole = _quick_int(column, times)
    if whole is not None:
        micros, bad = _scale(whole, times.unit)
        return micros if not bad.any() else None
    for pattern, kind, known in (
        (ISO_TIME, pa.timestamp("us"), times.told and times.tz == "UTC"),
        (ZONED_TIME, pa.timestamp("us", "UTC"), True),
    ):
        if known and pc.all(pc.match_substring_regex(column, pattern)).as_py() is not False:
            try:
                return column.cast(kind).cast(pa.int64())
            except pa.ArrowInvalid:
                return None
    return None


def _quick_float(column: pa.Array, times: Times) -> pa.Array | None:
    if holds_only(column, b"-.0123456789", 16):  # so few digits are read as float() reads them
        try:
            return column.cast(pa.float64())
        except pa.ArrowInvalid:
            return None
    return None


_QUICK: dict[str, Callable[[pa.Array, Times], pa.Array | None]] = {
    "int": _quick_int, "Time": _quick_time, "float": _quick_float,
}  # fmt: skip


def _text_parser(kind: ValueType, times: Times) -> Callable[[str | None], Any]:
    if isinstance(kind, ListType):
        check = value_checker(kind, times)

        def parse(text: str) -> Any:
            try:
                return check(msgspec.json.decode(text, type=amounts.list_of(kind)))
            except msgspec.DecodeError:
                raise Unfit(f"{short(text)} is not a JSON list") from None
    elif isinstance(kind, DecimalType):
        parse = partial(amounts.amount_of, check=kind.checker("it"))
    else:
        parse = {"int": _parse_int, "float": _parse_float, "bool": _parse_bool, "Time": times.of_text}[
            kind.text
        ]
    return lambda text: None if text is None else parse(text)


def _parse_int(text: str) -> int:
    text = text.strip(" \t")
    if not WHOLE.match(text):
        raise Unfit(f"{short(text)} is not a whole number")
    if len(text) > 30:
        raise Unfit(f"{short(text)} is outside int64")
    return in_range(int(text), "it")


def _parse_float(text: str) -> float:
    text = text.strip(" \t")
    if not A_NUMBER.match(text):
        raise Unfit(f"{short(text)} is not a number")
    value = float(text)
    if math.isinf(value) and "n" not in text.lower():
        raise Unfit(f"{short(text)} is beyond what a float holds")
    return value


def _parse_bool(text: str) -> bool:
    value = _BOOLS.get(text.strip(" \t").lower())
    if value is None:
        raise Unfit(f"{short(text)} is not true, false, 1 or 0")
    return value


# --- typed columns --------------------------------------------------------------------------------------


def _from_typed(name: str, column: pa.Array, kind: ValueType, times: Times) -> tuple[pa.Array, Reasons]:
    given, target = column.type, wire_type(kind)
    if pa.types.is_null(given):
        return pa.nulls(len(column), target), {}
    if isinstance(kind, ListType):
        return _lists(name, column, kind, times)
    if isinstance(kind, DecimalType):
        return amounts.from_column(name, column, kind)
    test, how = _TYPED[kind.text]
    if not test(given):
        raise no_way(name, given, kind)
    values, bad = how(column, times)
    reasons: Reasons = {}
    why = NO_ZONE if kind == TIME and without_zone(given) and not times.told else _TYPED_REASON[kind.text]
    for row in np.flatnonzero(bad).tolist():
        value = plain(column[row])
        reasons[row] = f"{name}: {_shown(value)} {why}"
        if kind == TIME and type(value) is int:
            try:
                times.of_number(value)
            except Unfit as error:  # as it is told of a text: numbers of CSV are read as either
                reasons[row] = f"{name}: {error}"
    return values, reasons


def plain(scalar: pa.Scalar) -> Any:
    """A scalar's Python value; its text where Python has none (a timestamp outside the years 1 to 9999)."""
    try:
        return scalar.as_py()
    except (OverflowError, ValueError):
        return repr(scalar)


Typed = tuple[pa.Array, npt.NDArray[np.bool_]]


def _none_bad(column: pa.Array) -> npt.NDArray[np.bool_]:
    return np.zeros(len(column), np.bool_)


def _masked(values: npt.NDArray[Any], column: pa.Array, bad: npt.NDArray[np.bool_]) -> Typed:
    """An array that is null where the column is, or where it is bad."""
    missing = np.asarray(column.is_null()) if column.null_count else _none_bad(column)
    bad = bad & ~missing
    return pa.array(values, mask=missing | bad), bad


def _int_from(column: pa.Array, times: Times) -> Typed:
    if pa.types.is_integer(column.type):
        if pa.types.is_uint64(column.type):
            values = np.asarray(pc.fill_null(column, 0))
            return _masked(values.astype(np.int64), column, values > np.uint64(INT64_MAX))
        return column.cast(pa.int64()), _none_bad(column)
    if pa.types.is_floating(column.type):
        floats = np.asarray(pc.fill_null(column, 0), dtype=np.float64)
        with np.errstate(invalid="ignore"):
            bad = ~((floats == np.trunc(floats)) & (np.abs(floats) <= 2.0**53))
        return _masked(np.where(bad, 0.0, floats).astype(np.int64), column, bad)
    return _one_by_one(column, pa.int64(), _decimal_to_int)


def _decimal_to_int(value: Decimal) -> int:
    if value != value.to_integral_value():
        raise Unfit("has a fraction")
    return in_range(int(value), "it")


def _one_by_one(column: pa.Array, target: pa.DataType, function: Callable[[Any], Any]) -> Typed:
    values: list[Any] = []
    bad = _none_bad(column)
    for row, value in enumerate(column.to_pylist()):
        try:
            values.append(None if value is None else function(value))
        except Unfit:
            values.append(None)
            bad[row] = True
    return pa.array(values, type=target), bad


def _text_from(column: pa.Array, times: Times) -> Typed:
    """Texts; of bytes those that are UTF-8: some writers of Parquet do not say that bytes are texts."""
    if is_text(column.type):
        return column.cast(pa.string()), _none_bad(column)
    column = column.cast(pa.binary())
    try:
        return column.cast(pa.string()), _none_bad(column)
    except pa.ArrowInvalid:
        return _one_by_one(column, pa.string(), decoded)


def decoded(data: bytes) -> str:
    """Bytes as text. Raises Unfit where they are not UTF-8."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise Unfit(f"{_shown(data)} {NO_TEXT}") from None


def _shown(value: Any) -> str:
    return repr(value[:40]) if isinstance(value, bytes) else short(str(value))


def _float_from(column: pa.Array, times: Times) -> Typed:
    if pa.types.is_decimal(column.type):
        return _one_by_one(column, pa.float64(), float)
    return column.cast(pa.float64(), safe=False), _none_bad(column)  # rounds whole numbers as float() does


def _same(target: pa.DataType) -> Callable[[pa.Array, Times], Typed]:
    def how(column: pa.Array, times: Times) -> Typed:
        return column.cast(target), _none_bad(column)

    return how


def _time_from(column: pa.Array, times: Times) -> Typed:
    kind = column.type
    if pa.types.is_integer(kind):
        whole, bad = _int_from(column, times)
        scaled, wide = _scale(whole, times.unit)
        return scaled, bad | wide
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return _one_by_one(column, pa.int64(), times.of_number)
    if pa.types.is_date(kind):
        column = column.cast(pa.timestamp("us" if pa.types.is_date32(kind) else "ms")).cast(
            pa.timestamp("us")
        )
        kind = column.type
    if kind.tz is None and not times.told:
        return pa.nulls(len(column), pa.int64()), np.asarray(column.is_valid())
    if kind.tz is None and times.tz != "UTC":
        column = pc.assume_timezone(column, times.tz, ambiguous="earliest", nonexistent="earliest")
    scaled, bad = _scale(column.cast(pa.int64()), kind.unit)
    return scaled, bad


def _scale(column: pa.Array, unit: str | None) -> Typed:
    """Whole numbers of a unit to microseconds; bad where that leaves int64. Nanoseconds round down."""
    if unit in (None, "us"):
        return column, _none_bad(column)
    values = np.asarray(pc.fill_null(column, 0))
    if unit == "ns":
        return _masked(values // 1000, column, _none_bad(column))
    factor = PER_UNIT[unit or "us"]
    bad = (values > INT64_MAX // factor) | (values < -(INT64_MAX // factor))
    return _masked(np.where(bad, 0, values) * factor, column, bad)


def without_zone(kind: pa.DataType) -> bool:
    """Whether a column's type says times without a zone: of a day, or of a clock on some wall."""
    return bool(pa.types.is_date(kind) or (pa.types.is_timestamp(kind) and kind.tz is None))


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def is_bytes(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind)
        or pa.types.is_binary_view(kind)
    )  # fmt: skip


def _is_time(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) or pa.types.is_date(kind)) or _is_number(kind)


_TYPED: Mapping[str, tuple[Callable[[pa.DataType], bool], Callable[[pa.Array, Times], Typed]]] = {
    "int": (_is_number, _int_from),
    "float": (_is_number, _float_from),
    "bool": (pa.types.is_boolean, _same(pa.bool_())),
    "str": (lambda kind: is_text(kind) or is_bytes(kind), _text_from),
    "bytes": (is_bytes, _same(pa.binary())),
    "Time": (_is_time, _time_from),
}
_TYPED_REASON = {
    "int": "is not a whole number in int64", "Time": "is not a time in int64 microseconds",
    "float": "is not a float", "bool": "is not a bool", "str": NO_TEXT, "bytes": "are not bytes",
}  # fmt: skip


def _lists(name: str, column: pa.Array, kind: ListType, times: Times) -> tuple[pa.Array, Reasons]:
    if not (pa.types.is_list(column.type) or pa.types.is_large_list(column.type)):
        raise no_way(name, column.type, kind)
    check = value_checker(kind, times)
    values: list[Any] = []
    reasons: Reasons = {}
    for row, scalar in enumerate(column):
        try:
            value = plain(scalar)
            values.append(None if value is None else check(value))
        except Unfit as error:
            values.append(None)
            reasons[row] = f"{name}: {error}"
    return pa.array(values, type=wire_type(kind)), reasons


def value_checker(kind: ValueType, times: Times) -> Callable[[Any], Any]:
    """A function from a Python value (of JSON, or of a list column) to the wire value. Raises Unfit."""
    if isinstance(kind, OptionalType):
        inner = value_checker(kind.inner, times)
        return lambda value: None if value is None else inner(value)
    if isinstance(kind, ListType):
        item = value_checker(kind.inner, times)

        def items(value: Any) -> Any:
            if not isinstance(value, list | tuple):
                raise Unfit(f"{short(str(value))} is not a list")
            return [item(v) for v in value]

        return items
    if kind == TIME:
        return lambda value: _time_value(value, times)
    if isinstance(kind, DecimalType):
        return partial(amounts.amount_of, check=kind.checker("it"))
    checked = kind.checker("it")
    is_str = kind.text == "str"

    def scalar(value: Any) -> Any:
        try:
            return checked(decoded(value) if is_str and isinstance(value, bytes) else value)
        except TimelapseError as error:
            raise Unfit(error.message.removeprefix("it ")) from None

    return scalar


def _time_value(value: Any, times: Times) -> int:
    if isinstance(value, str):
        return times.of_text(value)
    if isinstance(value, datetime):
        return times.of_moment(value)
    if isinstance(value, int | float | Decimal) and not isinstance(value, bool):
        return times.of_number(value)
    raise Unfit(f"{short(str(value))} is not a time")
