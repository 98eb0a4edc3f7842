"""Plain Python: a loop over dicts, one row after the other."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq


def candidate(place: Path, *, text: bool, **_: Any) -> Callable[[float], Any]:
    """What runs the program over the data set at `place` and returns the flagged messages' ids."""
    names = ["kind", "a", "b", "id", "ip", "text" if text else "has_email"]

    def run(ratio: float = 2.0) -> Any:
        friends: set[tuple[int, int]] = set()
        to_friends: dict[int, int] = defaultdict(int)
        to_others: dict[int, int] = defaultdict(int)
        sent: dict[int | str, int] = defaultdict(int)
        with_email: dict[int | str, int] = defaultdict(int)
        found = []
        for path in sorted((place / "flat").glob("part-*.parquet")):
            for batch in pq.ParquetFile(path).iter_batches(columns=names):
                for kind, a, b, number, ip, last in zip(*(column.to_pylist() for column in batch.columns)):
                    pair = (a, b) if a < b else (b, a)
                    if kind == 0:
                        friends.add(pair)
                        continue
                    if pair in friends:
                        to_friends[a] += 1
                    else:
                        to_others[a] += 1
                    sent[ip] += 1
                    if "@" in last if text else last:
                        with_email[ip] += 1
                    if to_others[a] > ratio * to_friends[a] and with_email[ip] > 0.2 * sent[ip]:
                        found.append(number)
        return np.array(found, np.int64)

    return run
