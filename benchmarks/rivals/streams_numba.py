"""Streaming Ledger, Grep and Sum and Toll Processing in Numba by hand, one thread, a row group at a time.

It knows how many accounts, cells, segments and vehicles there are, and that they are numbered from 0: arrays, no tables.
It has no checks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numba as nb
import numpy as np
import pyarrow.parquet as pq

FIVE_MINUTES = 300_000_000


@nb.njit(nogil=True)  # type: ignore[untyped-decorator]
def work(rounds: int, x: int) -> int:
    """The user code."""
    for _ in range(rounds):
        x = (x * x + 1) % 2_147_483_647
    return x


@nb.njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _ledger(
    ids: Any, sources: Any, targets: Any, amounts: Any, moved: Any, found: Any, opening: int, rounds: int
) -> int:
    count = 0
    for j in range(len(ids)):
        amount = amounts[j] + work(rounds, amounts[j]) % 2
        if opening + moved[sources[j]] < amount:
            found[count] = ids[j]
            count += 1
            continue
        moved[sources[j]] -= amount
        moved[targets[j]] += amount
    return count


@nb.njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _grepsum(offsets: Any, reads: Any, targets: Any, values: Any, cells: Any, found: Any, rounds: int) -> int:
    for j in range(len(targets)):
        total = values[j] + work(rounds, values[j]) % 2
        for i in range(offsets[j], offsets[j + 1]):
            total += cells[reads[i]]
        found[j] = cells[targets[j]] = total % 1_000_003
    return len(targets)


@nb.njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _toll(
    times: Any, vehicles: Any, segments: Any, speeds: Any, where: Any, latest: Any, sums: Any, log: Any, used: Any, found: Any, rounds: int
) -> int:  # fmt: skip
    first, end = used
    count = 0
    for j in range(len(times)):
        ts, vehicle, segment, speed = times[j], vehicles[j], segments[j], speeds[j]
        while first < end and log[first, 0] <= ts - FIVE_MINUTES:
            at = sums[log[first, 1]]
            at[0] -= log[first, 3]
            at[1] -= 1
            at[2] -= latest[log[first, 1], log[first, 2]] == log[first, 0]
            first += 1
        here = sums[segment]
        here[2] += latest[segment, vehicle] <= ts - FIVE_MINUTES
        latest[segment, vehicle] = ts
        log[end, 0], log[end, 1], log[end, 2], log[end, 3] = ts, segment, vehicle, speed
        end += 1
        here[0] += speed
        here[1] += 1
        if where[vehicle] != segment:
            where[vehicle] = segment
            toll = 2 * (here[2] - 3) ** 2 if here[0] / here[1] < 60.0 and here[2] > 3 else 0
            found[count] = toll + work(rounds, speed) % 2
            count += 1
    used[0], used[1] = first, end
    return count


def _groups(place: Path, names: list[str]) -> Iterator[list[Any]]:
    for path in sorted((place / "flat").glob("part-*.parquet")):
        with pq.ParquetFile(path, memory_map=True) as file:
            for group in range(file.num_row_groups):
                table = file.read_row_group(group, columns=names, use_threads=False).combine_chunks()
                arrays: list[Any] = []
                for name in names:
                    column = table[name].chunk(0)
                    if name == "reads":
                        arrays += [column.offsets.to_numpy(), column.values.to_numpy()]
                    else:
                        arrays.append(column.to_numpy())
                yield arrays


def candidate(
    place: Path, *, which: str, keys: int, events: int, segments: int = 0, params: dict[str, Any] | None = None, **_: Any
) -> Callable[[float], Any]:  # fmt: skip
    """What runs the program `which` and returns what was refused, the sums, or the tolls."""
    given = params or {}
    rounds = given.get("rounds", 0)

    def parts() -> Iterator[Any]:
        if which == "ledger":
            moved = np.zeros(keys, np.int64)
            for arrays in _groups(place, ["id", "source", "target", "amount"]):
                found = np.empty(len(arrays[0]), np.int64)
                yield found[: _ledger(*arrays, moved, found, given["opening"], rounds)]
        elif which == "grepsum":
            cells = np.ones(keys, np.int64)
            for arrays in _groups(place, ["reads", "target", "value"]):
                found = np.empty(len(arrays[2]), np.int64)
                yield found[: _grepsum(*arrays, cells, found, rounds)]
        else:
            where, used = np.full(keys, -1), np.zeros(2, np.int64)
            latest, sums = np.zeros((segments, keys), np.int64), np.zeros((segments, 4), np.int64)
            log = np.empty((events, 4), np.int64)
            for arrays in _groups(place, ["ts", "vehicle", "segment", "speed"]):
                found = np.empty(len(arrays[0]), np.int64)
                yield found[: _toll(*arrays, where, latest, sums, log, used, found, rounds)]

    def run(ratio: float = 2.0) -> Any:
        found = list(parts())
        return np.concatenate(found) if found else np.zeros(0, np.int64)

    return run
