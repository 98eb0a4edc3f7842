"""Mean and spread per sensor in Numba by hand, one thread: a hash table of the right size, a row group at a time.

`pipelined` decodes the next row group on another core meanwhile.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import Queue
from typing import Any

import numba as nb
import numpy as np
import pyarrow.parquet as pq

_ROW = np.dtype([("key", np.int64), ("mean", np.float64), ("spread", np.float64), ("", np.int64)])


@nb.njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _block(ids: Any, sensors: Any, values: Any, table: Any, found: Any, limit: float) -> int:
    """Process a block. Returns how many deviations there were; their ids are in `found`."""
    mask = np.uint64(len(table) - 1)
    count = 0
    for j in range(len(ids)):
        key, value = sensors[j], values[j]
        x = np.uint64(key)
        x ^= x >> np.uint64(33)
        x *= np.uint64(0xFF51AFD7ED558CCD)
        x ^= x >> np.uint64(33)
        i = np.int64(x & mask)
        while table[i].key != -1 and table[i].key != key:
            i = (i + 1) & np.int64(mask)
        row = table[i]
        row.key = key
        old, usual = row.mean, row.spread
        off = abs(value - old)
        row.mean = old + 0.1 * (value - old)
        row.spread = usual + 0.1 * (off - usual)
        if off > limit * usual:
            found[count] = ids[j]
            count += 1
    return count


def _groups(place: Path) -> Iterator[tuple[Any, ...]]:
    names = ["id", "sensor", "value"]
    for path in sorted((place / "flat").glob("part-*.parquet")):
        with pq.ParquetFile(path, memory_map=True) as file:
            for group in range(file.num_row_groups):
                table = file.read_row_group(group, columns=names, use_threads=False)
                yield tuple(table[name].to_numpy() for name in names)


def _ahead(made: Iterator[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
    """The same, made in another thread, at most two blocks ahead."""
    queue: Queue[tuple[Any, ...] | BaseException | None] = Queue(2)

    def work() -> None:
        try:
            for one in made:
                queue.put(one)
            queue.put(None)
        except BaseException as error:
            queue.put(error)

    threading.Thread(target=work, daemon=True).start()
    while (one := queue.get()) is not None:
        if isinstance(one, BaseException):
            raise one
        yield one


def candidate(place: Path, *, sensors: int, pipelined: bool = False, **_: Any) -> Callable[[float], Any]:
    """What runs the program over the readings at `place` and returns the ids of deviations."""
    size = 1 << (2 * sensors - 1).bit_length()

    def run(ratio: float = 2.0) -> Any:
        table = np.zeros(size, _ROW)
        table["key"], table["spread"] = -1, 1.0
        results = []
        for ids, which, values in _ahead(_groups(place)) if pipelined else _groups(place):
            found = np.empty(len(ids), np.int64)
            results.append(found[: _block(ids, which, values, table, found, 2.0 * ratio)])
        return np.concatenate(results) if results else np.zeros(0, np.int64)

    return run
