"""Times as texts and numbers say them, in microseconds since 1970."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal, InvalidOperation
from functools import cached_property
from typing import Any
from zoneinfo import ZoneInfo

from timelapse.ids import INT64_MAX, INT64_MIN
from timelapse.ingest.amounts import Unfit, short

PER_UNIT = {"s": 1_000_000, "ms": 1_000, "us": 1}
_EXACT = Context(prec=MAX_PREC, Emin=MIN_EMIN, Emax=MAX_EMAX)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
WHOLE = re.compile(r"[+-]?[0-9]+\Z")
A_NUMBER = re.compile(
    r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?\Z|[+-]?(nan|inf|infinity)\Z", re.IGNORECASE
)
NO_ZONE = "has no zone: tz= (--tz) says which it is in"
_DATE, _CLOCK = "[1-9][0-9]{3}-[0-9]{2}-[0-9]{2}", r"[ T][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{3}([0-9]{3})?)?"
ISO_TIME = f"^{_DATE}({_CLOCK})?$"
ZONED_TIME = f"^{_DATE}{_CLOCK}(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])$"
"""What Arrow reads as Python does, without a zone and with one."""


@dataclass(frozen=True)
class Times:
    """How times are read (see Source)."""

    unit: str | None = None
    time_format: str | None = None
    year: int | None = None
    tz: str = "UTC"
    told: bool = True
    """Whether the user has said the zone. Otherwise times without one are not read: no zone is guessed."""

    @cached_property
    def zone(self) -> ZoneInfo:
        return ZoneInfo(self.tz)

    def of_text(self, text: str) -> int:
        """Microseconds of a text: by `time_format`, a number by `unit`, else ISO-8601. Raises Unfit."""
        text = text.strip(" \t")
        if self.time_format is None and A_NUMBER.match(text):
            if not WHOLE.match(text):
                return self.of_number(_decimal(text))
            if len(text) > 30:
                raise Unfit(f"{short(text)} is outside int64")
            return self.of_number(int(text))
        try:
            moment = self.read(text)
        except ValueError:
            how = (
                "an ISO-8601 time" if self.time_format is None else f"a time in the format {self.time_format}"
            )
            raise Unfit(f"{short(text)} is not {how}") from None
        return self.of_moment(moment)

    def of_moment(self, moment: datetime) -> int:
        """Microseconds of a moment; the zone that was said for one without. Raises Unfit where none was."""
        if moment.tzinfo is None:
            if not self.told:
                raise Unfit(f"{short(str(moment))} {NO_ZONE}")
            moment = moment.replace(tzinfo=self.zone)
        return (moment - _EPOCH) // _MICROSECOND

    def read(self, text: str) -> datetime:
        """The time that a text says, with a zone if it has one. Raises ValueError."""
        if self.time_format is None:
            return datetime.fromisoformat(text)
        if self.year is None:
            return datetime.strptime(text, self.time_format)  # noqa: DTZ007 the caller adds the zone
        # read with the year, so that 29 February exists
        return datetime.strptime(f"{self.year} {text}", f"%Y {self.time_format}")  # noqa: DTZ007

    def of_number(self, value: float | Decimal) -> int:
        """Microseconds of a number since 1970. Raises Unfit for fractions without a unit, and outside int64."""
        if isinstance(value, int):
            micros = value // 1000 if self.unit == "ns" else value * PER_UNIT[self.unit or "us"]
        else:
            if self.unit is None:
                raise Unfit(f"{value} is a fractional time: say its unit")
            try:
                exact = Decimal(repr(value)) if isinstance(value, float) else value
                if not exact.is_finite() or exact.adjusted() > 30:
                    raise ValueError
                micros = math.floor(exact_micros(exact, self.unit))
            except (InvalidOperation, ValueError, OverflowError):
                raise Unfit(f"{value} is not a time") from None
        return in_range(micros, "the time")


_BELOW = re.compile(r"[.,][0-9]{6}[0-9]*[1-9]")
_FINER = {
    "s": f"{_BELOW.pattern}|[eE]", "ms": "[.,][0-9]{3}[0-9]*[1-9]|[eE]", "us": "[.,][0-9]*[1-9]|[eE]",
    "ns": "[1-9][0-9]{0,2}$|[.,][0-9]*[1-9]|[eE]",
}  # fmt: skip


def may_be_finer(times: Times) -> str:
    """A regular expression that matches all texts of times with digits below a microsecond, and some others."""
    return _BELOW.pattern if times.unit is None else _FINER[times.unit]


def is_finer(value: Any, times: Times) -> bool:
    """Whether a value (of a text file, of JSON, of a column) is a time with digits below a microsecond: these are cut off."""
    if type(value) is int:
        return times.unit == "ns" and value % 1_000 != 0
    if isinstance(value, datetime):
        return bool(getattr(value, "nanosecond", 0))  # pandas has them
    try:
        if isinstance(value, str):
            value = value.strip(" \t")
            if times.time_format is not None:
                return False
            if not A_NUMBER.match(value):
                return _BELOW.search(value) is not None and isinstance(times.of_text(value), int)
            value = _decimal(value)
        if not isinstance(value, float | Decimal):
            return False
        exact = Decimal(repr(value)) if isinstance(value, float) else value
        return exact_micros(exact, times.unit) != times.of_number(exact)
    except (Unfit, InvalidOperation):
        return False  # it is a bad row


def exact_micros(value: Decimal, unit: str | None) -> Decimal:
    """Microseconds of a number of a unit, with all digits below."""
    return _EXACT.multiply(value, Decimal("0.001") if unit == "ns" else Decimal(PER_UNIT[unit or "us"]))


def _decimal(text: str) -> Decimal:
    try:
        return Decimal(text)
    except InvalidOperation:
        raise Unfit(f"{short(text)} is not a number") from None


def in_range(value: int, what: str) -> int:
    if not INT64_MIN <= value <= INT64_MAX:
        raise Unfit(f"{what} is {short(str(value))}, outside int64")
    return value
