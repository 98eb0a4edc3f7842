"""Moments: microseconds since 1970, and the ways in which people write them."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, time, timedelta

from timelapse.errors import UsageError
from timelapse.ids import INT64_MAX, INT64_MIN

Moment = int | str | datetime | date
"""A time as users give it: int64 microseconds since 1970, ISO 8601 text, a datetime or a date. UTC where no zone is said."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def time_text(ts: int) -> str:
    """Microseconds since 1970 as UTC text; the number itself outside the calendar."""
    try:
        second, micro = divmod(ts, 1_000_000)
        moment = datetime.fromtimestamp(second, UTC)
    except (OverflowError, ValueError, OSError):
        return f"{ts} us"
    return f"{moment:%Y-%m-%d %H:%M:%S}.{micro:06d}"


def iso_text(ts: int) -> str:
    """The same as an option takes it, as short as it can be."""
    return time_text(ts).removesuffix(".000000").removesuffix(" 00:00:00").replace(" ", "T")


def shown_time(given: object) -> str:
    """A time as UTC text, for errors; what is no number of microseconds as Python writes it."""
    return time_text(given) if type(given) is int else repr(given)


def read_time(text: str, name: str = "") -> int:
    """A moment as microseconds since 1970: `2026-10-03`, `2026-10-03T12:00` (UTC where it says nothing), or the number.

    `name` is the option or argument that an error names. Raises UsageError (TL841).
    """
    if re.fullmatch(r"(19|20|21)\d\d(0[1-9]|1[0-2])([0-2]\d|3[01])", text.strip()):
        raise _no_time(name, text, "may be a day, or microseconds since 1970")
    try:
        found = int(text.replace("_", ""))
    except ValueError:
        try:
            found = _of(datetime.fromisoformat(text.strip()))
        except ValueError:
            raise _no_time(name, text, "is no time") from None
    return _checked(found, name, text)


def micros(given: Moment, name: str = "") -> int:
    """A moment in any of its forms as microseconds since 1970. Raises UsageError (TL841), naming the argument."""
    if isinstance(given, str):
        return read_time(given, name)
    if isinstance(given, datetime):
        if given != given:  # the time that pandas has for none
            raise _no_time(name, given, "is no time")
        return _of(given)
    if isinstance(given, date):
        return _of(datetime.combine(given, time(), UTC))
    if isinstance(given, bool) or not hasattr(given, "__index__"):
        raise _no_time(name, given, "is no time")
    return _checked(int(given), name, given)  # NumPy's integers too


def _of(moment: datetime) -> int:
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - _EPOCH) // timedelta(microseconds=1)


def _checked(found: int, name: str, given: object) -> int:
    if not INT64_MIN <= found <= INT64_MAX:
        raise _no_time(name, given, "is outside what times can be (int64 microseconds)")
    return found


def _no_time(name: str, given: object, what: str) -> UsageError:
    return UsageError(
        f"{f'{name} ' if name else ''}{given!r} {what}", code="TL841",
        hint="write 2026-10-03T12:00 (UTC), a datetime, or microseconds since 1970",
    )  # fmt: skip
