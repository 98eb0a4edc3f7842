"""Turning source columns into decimals: from text, JSON numbers, whole numbers and decimals of any precision, exactly."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from timelapse.errors import IngestError, Place, TimelapseError
from timelapse.model.decimals import of_text
from timelapse.model.events import Field
from timelapse.model.types import DecimalType, ListType, OptionalType, ValueType


class Unfit(ValueError):
    """A value does not fit its field; the text says why."""


def short(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "...")


ROUND = "give the column as text or as a decimal; or round it yourself"


def how_to_round(table: object, column: str, scale: int) -> str:
    """How a table's column of floats is rounded, in the words of its library; empty for libraries that are not known."""
    name = json.dumps(column, ensure_ascii=False)
    ways = {
        "pandas": f'df[{name}] = df[{name}].map("{{:.{scale}f}}".format, na_action="ignore")',
        "polars": f"df.with_columns(pl.col({name}).round({scale}).cast(pl.Decimal(18, {scale})))",
        "pyarrow": f"table.set_column(table.column_names.index({name}), {name}, "
        f"pc.round(table[{name}], {scale}).cast(pa.decimal128(18, {scale})))",
        "pyspark": f'df.withColumn({name}, df[{name}].cast("decimal(18,{scale})"))',
    }
    return ways.get(type(table).__module__.partition(".")[0], "")


def refuse_floats(
    table: object, fields: Iterable[tuple[Field, str]], floats: Mapping[str, str], what: str
) -> None:
    """Raise IngestError (TL413) for a decimal field whose column is of floats. `floats`: these columns' types."""
    for own, column in fields:
        kind = own.type.inner if isinstance(own.type, OptionalType) else own.type
        if isinstance(kind, DecimalType) and column in floats:
            how = how_to_round(table, column, kind.scale)
            raise IngestError(
                _hardly(own.name, floats[column], kind), place=Place(what=what), code="TL413", hint=f"{ROUND}: {how}" if how else ROUND
            )  # fmt: skip


def _hardly(name: str, given: object, kind: ValueType) -> str:
    return f"the column for {name} is {given}, and {name} is {kind.text}: a float is hardly ever the amount that was meant"


def no_way(name: str, given: pa.DataType, kind: ValueType) -> IngestError:
    return IngestError(
        f"the column for {name} is {given}, which cannot become {kind.text}",
        place=Place(what=name), code="TL413", hint="cast the column, or map another one with fields= (--map)",
    )  # fmt: skip


def quick(column: pa.Array, kind: DecimalType) -> pa.Array | None:
    # 18 digits cannot overflow
    digits = 18 - kind.scale
    whole = f"[0-9]{{1,{digits}}}" if digits else "0"
    pattern = rf"^-?{whole}(\.[0-9]{{1,{kind.scale}}})?$" if kind.scale else f"^-?{whole}$"
    if pc.all(pc.match_substring_regex(column, pattern)).as_py() is not False:
        return column.cast(kind.arrow)
    return None


def list_of(kind: ListType) -> Any:
    """What a JSON list is decoded to: numbers with a fraction never by way of a float where decimals are wanted."""
    inner = kind.inner.inner if isinstance(kind.inner, OptionalType) else kind.inner
    return list[Decimal | None] if isinstance(inner, DecimalType) else Any


def amount_of(value: Any, check: Callable[[Any], Any]) -> Decimal:
    """A text, an int or a Decimal as the decimal that is stored. Raises Unfit."""
    if isinstance(value, str):
        try:
            value = of_text(value)
        except ValueError:
            raise Unfit(f"{short(value)} is not a number") from None
    try:
        return check(value)  # type: ignore[no-any-return]
    except TimelapseError as error:
        raise Unfit(error.message.removeprefix("it ")) from None


def from_column(name: str, column: pa.Array, kind: DecimalType) -> tuple[pa.Array, dict[int, str]]:
    """Decimals of any precision and whole numbers, where they fit exactly."""
    given = column.type
    if pa.types.is_floating(given):
        raise IngestError(
            _hardly(name, given, kind), place=Place(what=name), code="TL413", hint=ROUND
        )  # fmt: skip
    if not (pa.types.is_decimal(given) or pa.types.is_integer(given)):
        raise no_way(name, given, kind)
    narrow = pa.types.is_decimal(given) and given.scale <= kind.scale
    if narrow and given.precision - given.scale + kind.scale <= 18:  # nothing can be outside
        return column.cast(kind.arrow), {}
    check = kind.checker("it")
    values: list[Any] = []
    reasons: dict[int, str] = {}
    for row, value in enumerate(column.to_pylist()):
        try:
            values.append(None if value is None else amount_of(value, check))
        except Unfit as error:
            values.append(None)
            reasons[row] = f"{name}: {error}"
    return pa.array(values, type=kind.arrow), reasons
