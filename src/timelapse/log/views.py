"""A log as people see it: its events per day as a chart, its types as a card."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from timelapse.cards import Card, Table
from timelapse.charts import Band, Timeline
from timelapse.display import moment, size, span
from timelapse.ids import DAY
from timelapse.segments.days import day_number
from timelapse.segments.info import no_events_on

if TYPE_CHECKING:
    from timelapse.log.log import Log
    from timelapse.segments.info import LogInfo

_DAYS = 3_660


def days_chart(info: LogInfo, title: str = "Events per day") -> Timeline | None:
    """Events per day and type; None for a log of no or of more than ten years' days."""
    if info.ts_first is None or info.ts_last is None:
        return None
    first, last = info.ts_first // DAY, info.ts_last // DAY
    if last - first >= _DAYS:
        return None
    counts = {t.name: np.zeros(last - first + 1, np.int64) for t in info.types}
    for day, found in info.days.items():
        for name, n in found.items():
            counts[name][day_number(day) - first] += n
    bands = tuple(Band(n, f"c{min(i, 5) + 1}", c) for i, (n, c) in enumerate(counts.items()))
    return Timeline(title, first * DAY, DAY, bands)


def card(log: Log) -> Card:
    """What `timelapse log` tells, shorter."""
    info = log.info()
    facts = [
        ("events", f"{info.count:,}"),
        ("version", f"{info.version}, id {info.id}"),
        ("size", size(info.bytes)),
    ]
    if info.ts_first is not None and info.ts_last is not None:
        length = span(info.ts_last - info.ts_first)
        facts.insert(1, ("from", f"{moment(info.ts_first)} to {moment(info.ts_last)} UTC, {length}"))
    if log.left_out:
        facts.append(("left out", f"{len(log.left_out):,} events, counted here all the same"))
    if info.bad:
        facts.append(("bad rows", f"{info.bad:,}, in the quarantine"))
    if info.missing_days:
        facts.append(("warning", no_events_on(info.missing_days)))
    rows = tuple((t.name, ", ".join(f"{n}: {k}" for n, k in t.fields), f"{t.count:,}") for t in info.types)
    chart = days_chart(info)
    figures = [chart.figure(820, 190)] if chart is not None and len(info.days) > 2 else []
    return Card(
        f"Log {info.path}", "", facts, Table(("event type", "fields", "events"), rows, ("events",)), figures
    )
