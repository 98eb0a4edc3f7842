"""Lengths of time as people write them: "500ms", "5s", "10m", "2h", a number of seconds, a timedelta."""

from __future__ import annotations

import re
from datetime import timedelta

from timelapse.errors import UsageError

Span = str | int | float | timedelta
_UNITS = {
    "us": 1,
    "ms": 1000,
    "s": 1_000_000,
    "m": 60_000_000,
    "min": 60_000_000,
    "h": 3_600_000_000,
    "d": 86_400_000_000,
}
_TEXT = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*(us|ms|s|min|m|h|d)?\s*\Z")


def micros_of(given: Span, name: str) -> int:
    """A length of time in microseconds. `name` is the option that an error names. Raises UsageError (TL810)."""
    if isinstance(given, timedelta):
        found = given // timedelta(microseconds=1)
    elif isinstance(given, bool):
        found = -1
    elif isinstance(given, int | float):
        found = round(given * 1_000_000)
    else:
        text = _TEXT.match(given)
        found = -1 if text is None else round(float(text[1]) * _UNITS[text[2] or "s"])
    if not 0 <= found < 2**62:
        raise UsageError(
            f"{name} is {given!r}, which is no length of time",
            hint="for example 500ms, 5s, 10m, 2h",
            code="TL810",
        )
    return found
