"""Bytewax: one worker, the whole program as one stateful step under one key.

State belongs to one key, and this program has three kinds of keys (pairs, senders, addresses). Steps keyed one
after the other would see a key's items in the log's order only by luck. Under one key the order is that of the
input, and nothing runs in parallel.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import bytewax.operators as op
import numpy as np
import pyarrow.parquet as pq
from bytewax.dataflow import Dataflow
from bytewax.inputs import DynamicSource, StatelessSourcePartition
from bytewax.testing import TestingSink, run_main


class _Rows(StatelessSourcePartition[Any]):  # type: ignore[misc]
    def __init__(self, files: list[Path], names: list[str]) -> None:
        self._batches = (b for f in files for b in pq.ParquetFile(f).iter_batches(8192, columns=names))

    def next_batch(self) -> list[Any]:
        """The next rows, as pairs of key and row."""
        batch = next(self._batches, None)
        if batch is None:
            raise StopIteration
        return [("all", row) for row in zip(*(column.to_pylist() for column in batch.columns), strict=True)]


class _Source(DynamicSource[Any]):  # type: ignore[misc]
    def __init__(self, files: list[Path], names: list[str]) -> None:
        self._files, self._names = files, names

    def build(self, step_id: str, worker_index: int, worker_count: int) -> _Rows:
        """The only worker reads everything."""
        return _Rows(self._files, self._names)


class _State:
    def __init__(self) -> None:
        self.friends: set[tuple[int, int]] = set()
        self.to_friends: dict[int, int] = defaultdict(int)
        self.to_others: dict[int, int] = defaultdict(int)
        self.sent: dict[Any, int] = defaultdict(int)
        self.with_email: dict[Any, int] = defaultdict(int)


def candidate(place: Path, *, text: bool, **_: Any) -> Callable[[float], Any]:
    """What runs the program over the data set at `place` and returns the flagged messages' ids."""
    names = ["kind", "a", "b", "id", "ip", "text" if text else "has_email"]
    files = sorted((place / "flat").glob("part-*.parquet"))

    def run(ratio: float = 2.0) -> Any:
        def step(state: _State | None, row: Any) -> tuple[_State, list[int]]:
            state = state or _State()
            kind, a, b, number, ip, last = row
            pair = (a, b) if a < b else (b, a)
            if kind == 0:
                state.friends.add(pair)
                return state, []
            if pair in state.friends:
                state.to_friends[a] += 1
            else:
                state.to_others[a] += 1
            state.sent[ip] += 1
            if "@" in last if text else last:
                state.with_email[ip] += 1
            strangers = state.to_others[a] > ratio * state.to_friends[a]
            return state, [number] if strangers and state.with_email[ip] > 0.2 * state.sent[ip] else []

        found: list[tuple[str, int]] = []
        flow = Dataflow("antispam")
        rows = op.input("rows", flow, _Source(files, names))
        flagged = op.stateful_flat_map("program", rows, step)
        op.output("flagged", flagged, TestingSink(found))
        run_main(flow)
        return np.array([number for _, number in found], np.int64)

    return run
