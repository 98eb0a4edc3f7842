"""Calendar boundaries, in zones whose clocks are changed."""

from __future__ import annotations

import datetime
import zoneinfo

import pytest

import timelapse as tl
from timelapse.errors import DefinitionError, TimeRange
from timelapse.program.calendar import Calendar

M, H, D = tl.MINUTE, tl.HOUR, tl.DAY


def ticks(period: int, zone: str, start: str, count: int) -> list[str]:
    """The first ticks at a local time or after it, as local times with their distance from UTC."""
    local = zoneinfo.ZoneInfo(zone)
    at = round(datetime.datetime.fromisoformat(start).replace(tzinfo=local).timestamp()) * tl.SECOND
    calendar, found = Calendar(period, zone), []
    at = calendar.first(at)
    for _ in range(count):
        found.append(f"{datetime.datetime.fromtimestamp(at / 1e6, local):%d %H:%M %z}")
        at = calendar.after(at)
    return found


@pytest.mark.parametrize(
    ("period", "zone", "start", "expected"),
    [
        (H, "UTC", "2026-03-01T10:20", ["01 11:00 +0000", "01 12:00 +0000"]),
        (H, "UTC", "2026-03-01T10:00", ["01 10:00 +0000", "01 11:00 +0000"]),
        # forward: 02:00 does not exist, 03:00 follows 01:00 after one hour
        (H, "Europe/Berlin", "2026-03-29T01:00", ["29 01:00 +0100", "29 03:00 +0200", "29 04:00 +0200"]),
        # two boundaries are skipped, and tick once
        (30 * M, "Europe/Berlin", "2026-03-29T01:30", ["29 01:30 +0100", "29 03:00 +0200", "29 03:30 +0200"]),
        # back: 02:00 comes twice
        (H, "Europe/Berlin", "2026-10-25T01:30", ["25 02:00 +0200", "25 02:00 +0100", "25 03:00 +0100"]),
        # a change of half an hour skips a boundary: it ticks when the gap ends
        (
            H,
            "Australia/Lord_Howe",
            "2026-10-04T01:00",
            ["04 01:00 +1030", "04 02:30 +1100", "04 03:00 +1100"],
        ),
        (D, "Europe/Berlin", "2026-03-28T12:00", ["29 00:00 +0100", "30 00:00 +0200"]),
        # midnight is skipped: the day begins when the gap ends
        (D, "America/Havana", "2026-03-07T12:00", ["08 01:00 -0400", "09 00:00 -0400"]),
        # midnight comes twice: the day begins once
        (D, "America/Havana", "2026-10-31T12:00", ["01 00:00 -0400", "02 00:00 -0500"]),
        # a whole day is skipped
        (D, "Pacific/Apia", "2011-12-29T00:00", ["29 00:00 -1000", "31 00:00 +1400"]),
        (7 * D, "Europe/Berlin", "2026-03-20T00:00", ["23 00:00 +0100", "30 00:00 +0200"]),  # Mondays
    ],
)
def test_boundaries(period: int, zone: str, start: str, expected: list[str]) -> None:
    """Whole multiples from local midnight; skipped ones at the end of the gap."""
    assert ticks(period, zone, start, len(expected)) == expected


def test_utc_needs_no_calendar() -> None:
    """UTC has no changes and no end: plain arithmetic, before 1970 too."""
    assert [Calendar(10 * tl.SECOND).first(t) for t in (-1, 0, 1, 10**7)] == [0, 0, 10**7, 10**7]
    assert Calendar(7 * D).first(0) == 4 * D
    assert Calendar(7 * D).first(-10 * D) == -10 * D
    assert Calendar(D).first(2**62) == -(-(2**62) // D) * D
    with pytest.raises(TimeRange, match="no date"):
        Calendar(D, "Europe/Berlin").first(2**62)


@pytest.mark.parametrize("period", [0, -H, 7 * H, D + 1, 1.5, True])
def test_what_is_no_calendar_period(period: object) -> None:
    """A period divides a day, or is a number of days."""
    with pytest.raises(DefinitionError) as caught:
        Calendar(period)  # type: ignore[arg-type]
    assert caught.value.code == "TL122"


def test_what_is_no_zone() -> None:
    """Names are those of the IANA database; nothing is read outside of it."""
    for name in ("Mars/Olympus", "../../etc/passwd", ""):
        with pytest.raises(DefinitionError, match="time zone"):
            Calendar(H, name)
