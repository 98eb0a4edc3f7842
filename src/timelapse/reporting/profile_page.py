"""A log's profile as one HTML file that needs nothing else (reporting/page.py says how it is kept safe)."""

from __future__ import annotations

from datetime import date

import numpy as np

from timelapse.charts import Band, Timeline
from timelapse.display import moment
from timelapse.ids import DAY
from timelapse.reporting.page import Report, rendered
from timelapse.segments.profile import FieldProfile, Profile

_EPOCH = date(1970, 1, 1)
_MOST_DAYS = 3_660


def profile_page(profile: Profile) -> Report:
    """The page of a profile."""
    title = f"Profile of {profile.log}"
    span = ""
    if profile.ts_first is not None and profile.ts_last is not None:
        span = f"{moment(profile.ts_first)} to {moment(profile.ts_last)} UTC"
    html = rendered(
        "profile.html", title, profile=profile, span=span,
        chart_of_days=_timeline(_by_type(profile), "Events per day"),
        types=[
            {"kind": kind, "fields": [{"field": f, "chart": _empty_days(f), "about": _about(f)} for f in kind.fields]}
            for kind in profile.types
        ],
    )  # fmt: skip
    return Report(title, html)


def _by_type(profile: Profile) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {kind.name: {} for kind in profile.types}
    for day, own in profile.days.items():
        for name, count in own.items():
            if name in found:
                found[name][day] = count
    return found


def _empty_days(one: FieldProfile) -> Timeline | None:
    """How many events have the field, and how many do not, per day; None where all have it."""
    if not one.empty:
        return None
    return _timeline(
        {
            "with a value": {d.day: d.events - d.empty for d in one.days},
            "empty": {d.day: d.empty for d in one.days},
        },
        f"{one.name} per day",
    )


def _timeline(counts: dict[str, dict[str, int]], title: str) -> Timeline | None:
    try:
        days = sorted({date.fromisoformat(d) for own in counts.values() for d in own})
    except ValueError:  # outside the years 1 to 9999
        return None
    if not days or (days[-1] - days[0]).days >= _MOST_DAYS:
        return None
    first = (days[0] - _EPOCH).days
    bands = []
    for number, (name, own) in enumerate(counts.items()):
        values = np.zeros((days[-1] - days[0]).days + 1, np.int64)
        for day, count in own.items():
            values[(date.fromisoformat(day) - days[0]).days] = count
        bands.append(Band(name, f"c{min(number, 5) + 1}", values))
    return Timeline(title, first * DAY, DAY, tuple(bands))


def _about(one: FieldProfile) -> list[tuple[str, str]]:
    """Facts of a field."""
    facts: list[tuple[str, str]] = [("distinct", about_distinct(one.distinct, one.distinct_error))]
    if one.least:
        facts += [("least", one.least), ("greatest", one.most)]
    if one.mean is not None:
        facts.append(("mean", f"{one.mean:.6g}"))
    if one.quantiles:
        note = f" (within {100 * one.rank_error:.1f}% of the rank)" if one.rank_error else ""
        facts.append(("quantiles", ", ".join(f"{q}: {v:.6g}" for q, v in one.quantiles.items()) + note))
    return facts


def about_distinct(count: int, error: float) -> str:
    """A number of distinct values, saying when it is an estimate."""
    return f"{count:,}" if not error else f"about {count:,} (standard error {100 * error:.1f}%)"
