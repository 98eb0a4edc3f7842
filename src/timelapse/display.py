"""Values, numbers and times as people read them. What comes from logs and programs is shown, never obeyed."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from decimal import Decimal

from timelapse.ids import DAY, HOUR, MINUTE, SECOND

# C0 and C1 controls, and the characters that reorder or hide what is around them.
_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]"
)


def clean(text: object) -> str:
    """The text with control characters written as escapes; tab and newline stay."""
    return _UNSAFE.sub(
        lambda m: f"\\u{ord(m[0]):04x}" if ord(m[0]) > 255 else f"\\x{ord(m[0]):02x}", str(text)
    )


def one_line(text: object, limit: int = 200) -> str:
    """The same on one line, cut when it is long."""
    whole = str(text)
    flat = clean(whole[: limit + 1].replace("\n", "\\n").replace("\t", "\\t"))
    return flat if len(flat) <= limit and len(whole) <= limit else flat[: limit - 1] + "…"


def written(value: object) -> str:
    """A value as Python writes it, amounts as numbers, also those in tuples: `('a', 1.50)`."""
    if isinstance(value, Decimal):
        return str(value)
    if type(value) is tuple:
        return f"({', '.join(map(written, value))}{',' if len(value) == 1 else ''})"
    return repr(value)


def moment(ts: int) -> str:
    """Microseconds since 1970 as `2026-10-01 00:14:07` (UTC)."""
    try:
        return datetime.fromtimestamp(ts // SECOND, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, ValueError, OSError):
        return f"{ts} us"


def date(day: int) -> str:
    """Days since 1970 as `2026-10-01`."""
    return moment(day * DAY)[:10]


def span(micros: int) -> str:
    """A length of time in its largest fitting unit: `31.0 days`."""
    for unit, name in ((DAY, "days"), (HOUR, "hours"), (MINUTE, "minutes")):
        if micros >= 2 * unit:
            return f"{micros / unit:,.1f} {name}"
    return f"{micros / SECOND:,.1f} s"


def took(seconds: float) -> str:
    """A duration of work: `0.42 s`, `1m52s`."""
    if seconds < 10:
        return f"{seconds:.2f} s"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}h{minutes % 60:02d}m" if minutes >= 60 else f"{minutes}m{rest:02d}s"


def foretold(seconds: float) -> str:
    """A predicted duration, perhaps of a small log: `4 ms`, `0.42 s`."""
    return f"{max(1, round(seconds * 1000))} ms" if seconds < 0.1 else took(seconds)


def size(count: float) -> str:
    """Bytes in decimal units."""
    for unit in ("bytes", "kB", "MB", "GB", "TB"):
        if count < 1000:
            return f"{count:,.0f} {unit}" if unit == "bytes" or count >= 100 else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:,.1f} PB"


def rate(events: int, seconds: float) -> str:
    """Events per second: `5.4 M events/s`."""
    each = events / seconds if seconds > 0 else 0.0
    if each >= 1e6:
        return f"{each / 1e6:.1f} M events/s"
    return f"{each / 1e3:.0f} k events/s" if each >= 1e4 else f"{each:,.0f} events/s"


def share(part: int, whole: int) -> str:
    """A percentage with as many digits as it needs."""
    if whole == 0:
        return "0%"
    percent = 100 * part / whole
    return f"{percent:.1f}%" if percent >= 0.1 or part == 0 else f"{percent:.4f}%"


def many(count: int, one: str, more: str) -> str:
    """A number of things: `1 slice boundary`, `2,000 slice boundaries`."""
    return f"{count:,} {one if count == 1 else more}"


def percent(value: float | None) -> str:
    """`12.5%` of a share; `-` of one that is not known."""
    return "-" if value is None else f"{100 * value:.1f}%"
