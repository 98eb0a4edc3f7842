"""Mean and spread per sensor in plain Python: a loop over dicts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq


def candidate(place: Path, **_: Any) -> Callable[[float], Any]:
    """What runs the program over the readings at `place` and returns the ids of deviations."""

    def run(ratio: float = 2.0) -> Any:
        mean: dict[int, float] = {}
        spread: dict[int, float] = {}
        limit = 2.0 * ratio
        found = []
        for path in sorted((place / "flat").glob("part-*.parquet")):
            for batch in pq.ParquetFile(path).iter_batches(columns=["id", "sensor", "value"]):
                for number, sensor, value in zip(*(column.to_pylist() for column in batch.columns)):
                    old, usual = mean.get(sensor, 0.0), spread.get(sensor, 1.0)
                    off = abs(value - old)
                    mean[sensor] = old + 0.1 * (value - old)
                    spread[sensor] = usual + 0.1 * (off - usual)
                    if off > limit * usual:
                        found.append(number)
        return np.array(found, np.int64)

    return run
