"""Windowed spam in Numba by hand, one thread: arrays by user, hash tables for pairs, for each window a place that follows.

It knows how many users there are, and that they are numbered from 0.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba as nb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

HOURS, DAY = 2 * 3_600_000_000, 86_400_000_000
NAMES = ["ts", "kind", "a", "b", "has_email"]
SENT, NEAR, FAR, ANSWERS, FIRST, MONTH, MAIL, WEEK, LAST_DAY, LATELY, DISTINCT = range(11)
FRIENDS, WRITTEN, LATEST = 1, 2, 3
"""Words of a pair's row, after its key: friends or not, when a wrote to b, where that stands among those to strangers."""


@nb.njit(nogil=True, inline="always")  # type: ignore[untyped-decorator]
def _find(table: Any, key: Any) -> Any:
    """The row of a key, made if it is not there. Keys are not 0."""
    mask = np.uint64(len(table) - 1)
    x = np.uint64(key)
    x ^= x >> np.uint64(33)
    x *= np.uint64(0xFF51AFD7ED558CCD)
    x ^= x >> np.uint64(33)
    i = np.int64(x & mask)
    while table[i, 0] != 0 and table[i, 0] != key:
        i = (i + 1) & np.int64(mask)
    table[i, 0] = key
    return i


@nb.njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _block(times: Any, kinds: Any, a: Any, b: Any, mails: Any, users: Any, pairs: Any, log: Any, strange: Any,
           used: Any, found: Any, ratio: float) -> int:  # fmt: skip
    """Process a block. Returns how many scores there were."""
    count = 0
    messages, strangers, in_month, in_week, in_day, in_hours = used
    for j in range(len(times)):
        ts, s, r, mail = times[j], a[j], b[j], np.int64(mails[j])
        low, high = min(s, r), max(s, r)
        if kinds[j] == 0:
            pairs[_find(pairs, (low << 32) + high + 1), FRIENDS] = 1
            continue
        log[messages, 0], log[messages, 1], log[messages, 2] = ts, s, mail
        messages += 1
        while log[in_month, 0] <= ts - 30 * DAY:
            users[log[in_month, 1], MONTH] -= 1
            users[log[in_month, 1], MAIL] -= log[in_month, 2]
            in_month += 1
        while log[in_week, 0] <= ts - 7 * DAY:
            users[log[in_week, 1], WEEK] -= 1
            in_week += 1
        while log[in_day, 0] <= ts - DAY:
            users[log[in_day, 1], LAST_DAY] -= 1
            in_day += 1
        while in_hours < strangers and strange[in_hours, 0] <= ts - HOURS:
            users[strange[in_hours, 1], LATELY] -= 1
            users[strange[in_hours, 1], DISTINCT] -= pairs[strange[in_hours, 2], LATEST] == in_hours + 1
            in_hours += 1
        user = users[s]
        if user[SENT] == 0:
            user[FIRST] = ts
        user[SENT] += 1
        user[MONTH] += 1
        user[WEEK] += 1
        user[LAST_DAY] += 1
        user[MAIL] += mail
        there = _find(pairs, (s << 32) + r + 1)
        back = there if s == r else _find(pairs, (r << 32) + s + 1)
        if pairs[there if s <= r else back, FRIENDS] != 0:
            user[NEAR] += 1
        else:
            user[FAR] += 1
            user[LATELY] += 1
            user[DISTINCT] += pairs[there, LATEST] <= in_hours
            strange[strangers, 0], strange[strangers, 1], strange[strangers, 2] = ts, s, there
            strangers += 1
            pairs[there, LATEST] = strangers
        if pairs[back, WRITTEN] > ts - 7 * DAY:
            user[ANSWERS] += 1
        pairs[there, WRITTEN] = ts
        score = 0
        if user[SENT] > 5 and user[FAR] > ratio * user[NEAR]:
            score += 10
        if user[LATELY] > 7 and user[DISTINCT] >= 5:
            score += 10
        if user[MAIL] > 0.5 * user[MONTH]:
            score += 10
        if ts - user[FIRST] >= 7 * DAY and user[LAST_DAY] > 0.2 * user[WEEK]:
            score += 10
        if user[ANSWERS] < 0.1 * user[SENT]:
            score += 10
        found[count] = score
        count += 1
    used[:] = messages, strangers, in_month, in_week, in_day, in_hours
    return count


def candidate(place: Path, *, users: int, **_: Any) -> Callable[[float], Any]:
    """What runs the program over the events at `place` and returns every message's score."""
    events = sum(pq.ParquetFile(path).metadata.num_rows for path in (place / "flat").glob("part-*.parquet"))

    def run(ratio: float = 2.0) -> Any:
        by_user = np.zeros((users, 12), np.int64)
        pairs = np.zeros((1 << (4 * events - 1).bit_length(), 4), np.int64)
        log, strange = np.zeros((events, 3), np.int64), np.zeros((events, 3), np.int64)
        used = np.zeros(6, np.int64)
        results = []
        for path in sorted((place / "flat").glob("part-*.parquet")):
            with pq.ParquetFile(path, memory_map=True) as file:
                for group in range(file.num_row_groups):
                    table = file.read_row_group(group, columns=NAMES, use_threads=False)
                    columns = [table[n].cast(pa.int64()) if n == "ts" else table[n] for n in NAMES]
                    found = np.empty(table.num_rows, np.int64)
                    arrays = [c.to_numpy() for c in columns]
                    n = _block(*arrays, by_user, pairs, log, strange, used, found, ratio)
                    results.append(found[:n])
        return np.concatenate(results) if results else np.zeros(0, np.int64)

    return run
