"""When `@tl.every` ticks: calendar boundaries, in a time zone.

A period that divides a day (`5 * tl.MINUTE`, `tl.HOUR`, `tl.DAY`) ticks at the wall-clock times that
are whole multiples of it from midnight. A period of n days ticks at local midnight of every n-th day,
counted from Monday 1970-01-05, so that weeks begin on Mondays. Where clocks are turned forward, the
boundaries that are skipped tick once, when the gap ends. Where they are turned back, a boundary
that comes twice ticks twice if the period is shorter than a day; a day begins once.
"""

from __future__ import annotations

import datetime
import functools
import importlib.resources
import zoneinfo
from pathlib import Path

from timelapse.errors import DefinitionError, TimeRange
from timelapse.ids import DAY

_MONDAY = 4 * DAY
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MICRO = datetime.timedelta(microseconds=1)


class Calendar:
    """The ticks of one period (microseconds) in one time zone (a name of the IANA database)."""

    def __init__(self, period: int, zone: str = "UTC") -> None:
        if type(period) is not int or period < 1 or (DAY % period and period % DAY):
            raise DefinitionError(
                f"ticks every {period!r} microseconds do not fall on calendar boundaries",
                hint="a period divides a day or is a number of whole days: 5 * tl.MINUTE, tl.HOUR, 7 * tl.DAY",
                code="TL122",
            )
        self.period = period
        self.zone = zone
        self._zone = None if zone == "UTC" else _zone(zone)

    def first(self, at: int) -> int:
        """The first tick at a time or after it."""
        if self._zone is None:
            origin = _MONDAY if self.period > DAY else 0
            return origin + -((origin - at) // self.period) * self.period
        day = self._local(at) // DAY - 1
        while True:
            found = [t for t in _ticks(self.zone, self.period, day) if t >= at]
            if found:
                return found[0]
            day += 1

    def after(self, at: int) -> int:
        """The first tick after a time."""
        return self.first(at + 1)

    def about(self, after: int, to: int) -> int:
        """How many ticks there are after one time, up to another: exactly in UTC, within a few in other zones."""
        if to <= after:
            return 0
        origin = _MONDAY if self.period > DAY else 0
        return (to - origin) // self.period - (after - origin) // self.period

    def _local(self, at: int) -> int:
        """The wall-clock time at a moment, as microseconds since 1970-01-01 00:00 on that clock."""
        return at + _offset(self.zone, at)


def _zone(name: str) -> zoneinfo.ZoneInfo:
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError, TypeError):
        raise DefinitionError(
            f"{name!r} is not a time zone", hint="a name such as Europe/Berlin, or UTC", code="TL122"
        ) from None


def zone_rules(name: str) -> bytes | None:
    """What the system, or the package `tzdata`, says of a zone: other bytes may give other ticks. None where it is not found."""
    places = [Path(folder, name) for folder in zoneinfo.TZPATH]
    found = next((path for path in places if path.is_file()), None)
    if found is not None:
        return found.read_bytes()
    try:
        return importlib.resources.files("tzdata.zoneinfo").joinpath(*name.split("/")).read_bytes()
    except (ImportError, OSError):
        return None


def _offset(zone: str, at: int) -> int:
    """How far the zone's clocks are ahead of UTC at a moment, in microseconds."""
    try:
        moment = _EPOCH + datetime.timedelta(microseconds=at)
        found = moment.astimezone(_zone(zone)).utcoffset()
    except OverflowError:
        raise TimeRange(
            f"the time {at} (microseconds since 1970) has no date in {zone}",
            hint="time zones are known for the years 1 to 9999",
        ) from None
    assert found is not None
    return found // _MICRO


@functools.lru_cache(maxsize=64)
def _ticks(zone: str, period: int, day: int) -> tuple[int, ...]:
    """The ticks of a local day (numbered from 1970-01-01), in order."""
    if period > DAY and (day - _MONDAY // DAY) % (period // DAY):
        return ()
    found: set[int] = set()
    for wall in range(day * DAY, (day + 1) * DAY, min(period, DAY)):
        moments = _moments(zone, wall)
        found.update(moments[:1] if period >= DAY else moments)
    return tuple(sorted(found))


def _moments(zone: str, wall: int) -> list[int]:
    """The moments at which the zone's clocks show a time; where they skip it, the end of the gap."""
    offsets = {_offset(zone, wall - DAY), _offset(zone, wall + DAY), *_around(zone, wall)}
    shown = sorted(t for t in {wall - o for o in offsets} if t + _offset(zone, t) == wall)
    if shown:
        return shown
    # Skipped: clocks show less before the gap and more after it. Search for the moment of the change.
    low, high = wall - max(offsets), wall - min(offsets)
    while low + _offset(zone, low) > wall:
        low -= DAY
    while high + _offset(zone, high) < wall:
        high += DAY
    while high - low > 1:
        middle = (low + high) // 2
        if middle + _offset(zone, middle) < wall:
            low = middle
        else:
            high = middle
    return [high]


def _around(zone: str, wall: int) -> set[int]:
    """The offsets that Python finds for a wall-clock time: before and after a change of the clocks."""
    return {
        _offset(zone, wall - _offset(zone, wall - o))
        for o in (_offset(zone, wall - DAY), _offset(zone, wall + DAY))
    }
