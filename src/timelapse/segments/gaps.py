"""Days that look as if something were missing: counted from the manifest, without reading events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, timedelta
from statistics import median

from timelapse.display import many

_FEW = 0.3
"""A day with less than this share of what the days around it have is a sudden drop."""
_WEEK = 7
_MOST, _APART = 20_000, 366
"""Of a log that spans more days than the first, the days are judged that lie together, with fewer than the second between two."""
_LEAST = 20
"""Events per day below which days differ by chance."""


def gaps_of(days: Mapping[str, Mapping[str, int]], types: Sequence[str]) -> list[str]:
    """What looks missing, one sentence each: types that end early or begin late, days with far fewer events than those around them.

    `days`: events per day (ISO dates, UTC) and type. The first and last day of the log, which may be parts of days, are not judged
    for drops.
    """
    found: list[str] = []
    if len(days) < 3:
        return found
    try:
        first, last = (date.fromisoformat(d) for d in (min(days), max(days)))
    except ValueError:
        return found
    if (
        last - first
    ).days > _MOST:  # years lie between some of them: what is missing there is told with the times
        days = _most_of(days)
        first, last = (date.fromisoformat(d) for d in (min(days), max(days)))
    every = [first + timedelta(days=n) for n in range((last - first).days + 1)]
    for name in types:
        counts = [days.get(d.isoformat(), {}).get(name, 0) for d in every]
        there = [n for n, count in enumerate(counts) if count]
        if not there or median([c for c in counts if c]) < _LEAST:
            continue
        if there[-1] < len(counts) - 1:
            left = many(len(counts) - 1 - there[-1], "day", "days")
            found.append(f"{name} ends on {every[there[-1]]}, {left} before the log does")
        if there[0] > 0:
            found.append(
                f"{name} begins on {every[there[0]]}, {many(there[0], 'day', 'days')} after the log does"
            )
        for n in range(max(1, there[0]), min(len(counts) - 1, there[-1] + 1)):
            around = [
                counts[k]
                for k in range(max(0, n - _WEEK), min(len(counts), n + _WEEK + 1))
                if k != n and counts[k]
            ]
            usual = median(around) if len(around) >= 3 else 0
            if usual >= _LEAST and counts[n] < _FEW * usual and (counts[n] or _others(days, every[n], name)):
                found.append(
                    f"{name} has {many(counts[n], 'event', 'events')} on {every[n]}, and about {usual:,.0f} on the days around it"
                )
    return found


def _most_of(days: Mapping[str, Mapping[str, int]]) -> dict[str, Mapping[str, int]]:
    """Of groups of days with a year or more between them the one that has most events."""
    groups: list[list[str]] = []
    for day in sorted(days):
        if not groups or (date.fromisoformat(day) - date.fromisoformat(groups[-1][-1])).days >= _APART:
            groups.append([])
        groups[-1].append(day)
    most = max(groups, key=lambda group: sum(sum(days[day].values()) for day in group))
    return {day: days[day] for day in most}


Emptied = Mapping[str, tuple[int, int]]
"""By day (ISO date): in how many events a field is empty, and of how many."""


def silent_fields(empties: Mapping[str, Mapping[str, Emptied]]) -> list[str]:
    """Fields, by type and name, that are empty in all events from a day on, one sentence each: where most had a value before."""
    found: list[str] = []
    for kind, fields in empties.items():
        for name, days in fields.items():
            told = [(day, *days[day]) for day in sorted(days) if days[day][1]]
            first = len(told)
            while first and told[first - 1][1] == told[first - 1][2]:
                first -= 1
            events = sum(count for _, _, count in told[first:])
            before = sum(count for _, _, count in told[:first])
            empty = sum(n for _, n, _ in told[:first])
            if first < len(told) and events >= _LEAST and before >= _LEAST and empty <= before / 2:
                share = f"in {100 * empty / before:.0f}% of them" if empty else "never"
                found.append(
                    f"{kind}.{name} is empty in all {events:,} events from {told[first][0]} on, and before that {share}"
                )
    return found


def _others(days: Mapping[str, Mapping[str, int]], day: date, name: str) -> bool:
    """Whether other types have events on a day: where none has, the day itself is missing, which is told once."""
    return any(count for other, count in days.get(day.isoformat(), {}).items() if other != name)
