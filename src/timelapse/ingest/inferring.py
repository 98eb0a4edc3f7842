"""What values of a column may be: the type that fits them, whether they are times, and what to say of them."""

from __future__ import annotations

import keyword
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

_ODD = 0.01
"""The share of values that may not fit a column's type."""
_MANY = 0.2
"""The share up to which values that are no numbers are told of a column of numbers."""
_FORMATS = (
    "%d.%m.%Y %H:%M:%S", "%d.%m.%Y %H:%M", "%d/%m/%Y %H:%M:%S", "%d/%m/%Y %H:%M", "%m/%d/%Y %H:%M:%S", "%m/%d/%Y %H:%M",
    "%Y/%m/%d %H:%M:%S", "%Y/%m/%d %H:%M", "%d/%b/%Y:%H:%M:%S %z", "%a, %d %b %Y %H:%M:%S %z",
)  # fmt: skip
_UNITS = (("s", 1), ("ms", 1_000), ("us", 1_000_000), ("ns", 1_000_000_000))
_EARLIEST, _LATEST = 946_684_800, 2_208_988_800
"""Seconds of the years 2000 and 2040: numbers between them, in some unit, are taken for times."""
_COMMA = re.compile(r"[+-]?\d+,\d+\Z")
_MAIL = re.compile(r"[^@\s]+@[^@\s]+\.[A-Za-z]{2,}\Z")


@dataclass
class Seen:
    """A column: its name in the files, the type that fits, whether values are missing, and what it may be.

    `unit`, `time_format`: how it is read as a time; `naive`: its times have no zone. `notes`: for people."""

    name: str
    type: str
    missing: bool = False
    time: bool = False
    unit: str | None = None
    time_format: str | None = None
    naive: bool = False
    example: str = ""
    notes: list[str] = field(default_factory=list)

    @property
    def field(self) -> str:
        """A name that Python takes."""
        last = self.name.replace("[]", "").replace(".", "_")
        plain = re.sub(r"\W", "_", last).strip("_") or "column"
        plain = f"c{plain}" if plain[0].isdigit() else plain
        return f"{plain}_" if keyword.iskeyword(plain) or plain in ("ts", "seq") else plain


def infer(name: str, values: Sequence[Any], *, typed: bool = False) -> Seen:
    """The type that all values have: texts as they would be read from CSV, others as they are.

    `typed`: texts are read as texts alone, and as times, as those of JSON are.
    """
    there = [v for v in values if v is not None and v != ""]
    seen = Seen(name, "str", missing=len(there) < len(values))
    if not there:
        seen.missing = True
        seen.notes.append("no values in the sample")
        return seen
    seen.example = str(there[0])[:40]
    if seen.missing:
        seen.notes.append(f"{1 - len(there) / len(values):.0%} missing")
    if all(isinstance(v, list) for v in there):
        inner = infer(name, [one for v in there for one in v], typed=typed)
        seen.type = f"list[{inner.type}]"
    elif typed and any(isinstance(v, str) for v in there) and _as_text(seen, there):
        pass
    elif all(isinstance(v, bool) for v in there) or all(str(v).lower() in ("true", "false") for v in there):
        seen.type = "bool"
    elif all(isinstance(v, datetime) or hasattr(v, "isoformat") for v in there):
        seen.type, seen.time = "tl.Time", True
        seen.naive = any(getattr(v, "tzinfo", UTC) is None for v in there)
    elif _nearly_all(seen, there, _whole, "whole numbers"):
        seen.type = "int"
        seen.unit = _unit([int(v) for v in there if _whole(v)])
        seen.time = seen.unit is not None
    elif _nearly_all(seen, there, _number, "numbers"):
        seen.type = "float"
    else:
        _texts(seen, [str(v) for v in there])
        others = [v for v in there if not _number(v)]
        if not seen.time and len(others) <= _MANY * len(there) and not any(str(v).isdigit() for v in others):
            seen.notes.append(
                f"{len(others):,} of {len(there):,} are no numbers, such as {str(others[0])[:40]!r}: taken as text; compute can cast it"
            )
    return seen


def _as_text(seen: Seen, values: Sequence[Any]) -> bool:
    """Whether values that look like numbers or truths are text nearly all: then a field of these types reads none of them."""
    plain = infer(seen.name, values)
    texts = sum(isinstance(v, str) for v in values)
    if plain.type not in ("int", "float", "bool") or texts <= _ODD * len(values):
        if plain.type in ("int", "float", "bool"):
            seen.notes.append(f"{texts:,} of {len(values):,} are text: bad rows")
        return False
    seen.type, seen.unit, seen.time = "str", plain.unit, plain.time
    sql = {"int": "bigint", "float": "double", "bool": "boolean"}[plain.type]
    seen.notes.append(
        f'{plain.type} as text: to read it so, make it {plain.type}, and compute = {{ {seen.field} = "cast({seen.name} as {sql})" }}'
        + (
            "; money? Annotated[Decimal, tl.scale(2)] is read from text: docs/semantics.md#decimals"
            if plain.type == "float"
            else ""
        )
    )
    return True


def _nearly_all(seen: Seen, values: Sequence[Any], fits: Callable[[Any], bool], what: str) -> bool:
    """Whether nearly all values fit; those that do not will be bad rows, and are noted."""
    others = [v for v in values if not fits(v)]
    if len(others) > _ODD * len(values):
        return False
    if others:
        seen.notes.append(
            f"{len(others):,} of {len(values):,} are no {what}, such as {str(others[0])[:40]!r}: bad rows"
        )
    return True


def _whole(value: Any) -> bool:
    if isinstance(value, int):
        return not isinstance(value, bool)
    return (
        isinstance(value, str)
        and re.fullmatch(r"[+-]?\d{1,18}", value) is not None
        and not re.match(r"0\d", value)
    )


def _number(value: Any) -> bool:
    return isinstance(value, float | int) or (
        isinstance(value, str)
        and re.fullmatch(r"[+-]?\d*\.?\d+([eE][+-]?\d+)?", value) is not None
        and not re.match(r"0\d", value)
    )


def _unit(values: Iterable[int]) -> str | None:
    """The unit in which all numbers are times of the years 2000 to 2040."""
    numbers = list(values)
    return next(
        (
            unit
            for unit, factor in _UNITS
            if all(_EARLIEST * factor <= v <= _LATEST * factor for v in numbers)
        ),
        None,
    )


def _texts(seen: Seen, texts: Sequence[str]) -> None:
    try:
        moments = [datetime.fromisoformat(t.strip()) for t in texts]
        seen.type, seen.time, seen.naive = "tl.Time", True, any(m.tzinfo is None for m in moments)
        return
    except ValueError:
        pass
    fitting = [form for form in _FORMATS if all(_fits(t, form) for t in texts)]
    if fitting:
        seen.type, seen.time, seen.time_format, seen.naive = (
            "tl.Time",
            True,
            fitting[0],
            "%z" not in fitting[0],
        )
        if len(fitting) > 1:
            seen.notes.append(f"day and month could be either way round: {' or '.join(fitting)}")
    elif all(_COMMA.match(t) for t in texts):
        read = f"compute = {{ {seen.field} = \"cast(replace({seen.field}, ',', '.') as double)\" }}"
        seen.notes.append(f"numbers with a comma: make it float, and {read}")
    elif sum(_MAIL.match(t) is not None for t in texts) * 2 > len(texts):
        seen.notes.append(f'looks like mail addresses: hash = ["{seen.field}"] keeps them out of the log')


def _fits(text: str, form: str) -> bool:
    try:
        datetime.strptime(text.strip(), form)  # noqa: DTZ007 only whether it can be read
    except ValueError:
        return False
    return True
