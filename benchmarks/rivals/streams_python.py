"""Streaming Ledger, Grep and Sum and Toll Processing in plain Python: loops over dicts."""

from __future__ import annotations

import hashlib
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

FIVE_MINUTES = 300_000_000


def _rows(place: Path, names: list[str]) -> Iterator[tuple[Any, ...]]:
    for path in sorted((place / "flat").glob("part-*.parquet")):
        for batch in pq.ParquetFile(path).iter_batches(columns=names):
            yield from zip(*(column.to_pylist() for column in batch.columns))


def _work(rounds: int, x: int) -> int:
    for _ in range(rounds):
        x = (x * x + 1) % 2_147_483_647
    return x


def _mark(rounds: int, x: int) -> int:
    return hashlib.pbkdf2_hmac("sha256", b"move", x.to_bytes(8, "little"), rounds)[0]


def _ledger(place: Path, opening: int, rounds: int, work: Callable[[int, int], int]) -> list[int]:
    moved: dict[int, int] = defaultdict(int)
    refused = []
    for number, source, target, amount in _rows(place, ["id", "source", "target", "amount"]):
        amount += work(rounds, amount) % 2
        if opening + moved[source] < amount:
            refused.append(number)
            continue
        moved[source] -= amount
        moved[target] += amount
    return refused


def _grepsum(place: Path, rounds: int) -> list[int]:
    cells: dict[int, int] = {}
    found = []
    for reads, target, value in _rows(place, ["reads", "target", "value"]):
        total = value + _work(rounds, value) % 2
        for cell in reads:
            total += cells.get(cell, 1)
        cells[target] = total % 1_000_003
        found.append(cells[target])
    return found


def _toll(place: Path, rounds: int) -> list[int]:
    where: dict[int, int] = {}
    latest: dict[tuple[int, int], int] = {}
    cars: dict[int, int] = defaultdict(int)
    speeds: dict[int, int] = defaultdict(int)
    reports: dict[int, int] = defaultdict(int)
    window: deque[tuple[int, int, int, int]] = deque()
    found = []
    for ts, vehicle, segment, speed in _rows(place, ["ts", "vehicle", "segment", "speed"]):
        while window and window[0][0] <= ts - FIVE_MINUTES:
            old, at, who, how = window.popleft()
            speeds[at] -= how
            reports[at] -= 1
            if latest[at, who] == old:
                cars[at] -= 1
        if latest.get((segment, vehicle), ts - FIVE_MINUTES) <= ts - FIVE_MINUTES:
            cars[segment] += 1
        latest[segment, vehicle] = ts
        window.append((ts, segment, vehicle, speed))
        speeds[segment] += speed
        reports[segment] += 1
        if where.get(vehicle) != segment:
            where[vehicle] = segment
            slow = speeds[segment] / reports[segment] < 60.0
            there = cars[segment]
            toll = 2 * (there - 3) ** 2 if slow and there > 3 else 0
            found.append(toll + _work(rounds, speed) % 2)
    return found


def candidate(
    place: Path, *, which: str, params: dict[str, Any] | None = None, **_: Any
) -> Callable[[float], Any]:
    """What runs the program `which` and returns what was refused, the sums, or the tolls."""
    given = params or {}
    rounds = given.get("rounds", 0)

    def run(ratio: float = 2.0) -> Any:
        if which == "ledger":
            found = _ledger(place, given["opening"], rounds, _work)
        elif which == "library":
            found = _ledger(place, given["opening"], rounds, _mark)
        else:
            found = {"grepsum": _grepsum, "toll": _toll}[which](place, rounds)
        return np.array(found, np.int64)

    return run
