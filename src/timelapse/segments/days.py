"""Names of days (UTC)."""

from __future__ import annotations

from datetime import date, timedelta

_EPOCH = date(1970, 1, 1)
_BEYOND = "day "


def day_text(day: int) -> str:
    """A day's name, from its number since 1970: ISO 8601, or the number outside the years 1 to 9999."""
    try:
        return (_EPOCH + timedelta(days=day)).isoformat()
    except OverflowError:
        return f"{_BEYOND}{day}"


def day_number(text: str) -> int:
    """The number since 1970 of a day that `day_text` names."""
    if text.startswith(_BEYOND):
        return int(text.removeprefix(_BEYOND))
    return (date.fromisoformat(text) - _EPOCH).days
