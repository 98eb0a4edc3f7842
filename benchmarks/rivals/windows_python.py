"""Windowed spam in plain Python: dicts, one list of messages, and for each window a place in it that follows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

HOURS, DAY = 2 * 3_600_000_000, 86_400_000_000
NAMES = ["ts", "kind", "a", "b", "has_email"]


def _rows(place: Path) -> Iterator[tuple[int, int, int, int, bool]]:
    for path in sorted((place / "flat").glob("part-*.parquet")):
        for batch in pq.ParquetFile(path).iter_batches(columns=NAMES):
            ts, *others = batch.columns
            yield from zip(ts.cast(pa.int64()).to_pylist(), *(c.to_pylist() for c in others))


def candidate(place: Path, **_: Any) -> Callable[[float], Any]:
    """What runs the program over the events at `place` and returns every message's score."""

    def run(ratio: float = 2.0) -> Any:
        friends: set[tuple[int, int]] = set()
        sent: dict[int, int] = defaultdict(int)
        near: dict[int, int] = defaultdict(int)
        far: dict[int, int] = defaultdict(int)
        responses: dict[int, int] = defaultdict(int)
        first: dict[int, int] = {}
        written: dict[tuple[int, int], int] = {}
        messages: list[tuple[int, int, bool]] = []  # time, sender, e-mail
        strange: list[tuple[int, int, int]] = []  # time, sender, recipient
        latest: dict[tuple[int, int], int] = {}
        month: dict[int, int] = defaultdict(int)
        month_email: dict[int, int] = defaultdict(int)
        week: dict[int, int] = defaultdict(int)
        day: dict[int, int] = defaultdict(int)
        lately: dict[int, int] = defaultdict(int)
        distinct: dict[int, int] = defaultdict(int)
        in_month = in_week = in_day = in_hours = 0
        found = []
        for ts, kind, s, r, email in _rows(place):
            pair = (s, r) if s < r else (r, s)
            if kind == 0:
                friends.add(pair)
                continue
            messages.append((ts, s, email))
            sent[s] += 1
            month[s] += 1
            week[s] += 1
            day[s] += 1
            month_email[s] += email
            first.setdefault(s, ts)
            if pair in friends:
                near[s] += 1
            else:
                far[s] += 1
                lately[s] += 1
                if latest.get((s, r), -1) < in_hours:
                    distinct[s] += 1
                latest[s, r] = len(strange)
                strange.append((ts, s, r))
            if written.get((r, s), ts - 7 * DAY) > ts - 7 * DAY:
                responses[s] += 1
            written[s, r] = ts
            while messages[in_month][0] <= ts - 30 * DAY:
                _, who, mail = messages[in_month]
                month[who] -= 1
                month_email[who] -= mail
                in_month += 1
            while messages[in_week][0] <= ts - 7 * DAY:
                week[messages[in_week][1]] -= 1
                in_week += 1
            while messages[in_day][0] <= ts - DAY:
                day[messages[in_day][1]] -= 1
                in_day += 1
            while in_hours < len(strange) and strange[in_hours][0] <= ts - HOURS:
                _, who, whom = strange[in_hours]
                lately[who] -= 1
                distinct[who] -= latest[who, whom] == in_hours
                in_hours += 1
            score = 0
            if sent[s] > 5 and far[s] > ratio * near[s]:
                score += 10
            if lately[s] > 7 and distinct[s] >= 5:
                score += 10
            if month_email[s] > 0.5 * month[s]:
                score += 10
            if ts - first[s] >= 7 * DAY and day[s] > 0.2 * week[s]:
                score += 10
            if responses[s] < 0.1 * sent[s]:
                score += 10
            found.append(score)
        return np.array(found, np.int64)

    return run
