"""What an append with `unique` reads of the log: no more than it needs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import timelapse as tl
from timelapse.ingest.unique import Rule, known_events
from timelapse.log.reader import Chunk, LogReader
from timelapse.log.types import event_types


class Pay(tl.Event):
    id: int
    shop: str | None
    amount: int


class Beat(tl.Event):
    pass


@dataclass(frozen=True)
class Watched(LogReader):
    """Keeps what is asked for."""

    def chunks(self, lo: int, hi: int, columns: Any) -> Iterator[Chunk]:
        for chunk in super().chunks(lo, hi, columns):
            ASKED.append((chunk.seq_lo, chunk.seq_hi, list(columns["Pay"])))
            yield chunk


ASKED: list[tuple[int, int, list[str]]] = []


@pytest.fixture
def log(tmp_path: Path) -> tl.Log:
    shops = ["a", None, "b"]
    events = [Pay(ts=n * 10, id=n // 2, shop=shops[n % 3], amount=n) for n in range(1000)]
    return tl.Log.from_events(tmp_path / "log", events, [Pay, Beat], block=100)


def known(log: tl.Log, fields: tuple[str, ...], rows: list[tuple[int, int, str | None]]) -> list[int]:
    """The amounts of the log's events that are looked at beside these: time, id, shop."""
    own = log.reader
    reader = Watched(own.root, own.types, own.segments, own.count, own._bases)
    kind = event_types([Pay])[0]
    ts, ids, shops = zip(*rows, strict=True) if rows else ((), (), ())
    table = pa.table(
        [
            pa.array(ids, pa.int64()),
            pa.array(shops, pa.large_string()),
            pa.array([0] * len(rows), pa.int64()),
        ],
        schema=kind.schema,
    )
    ASKED.clear()
    found, events = known_events(reader, kind, Rule(fields, "first"), np.asarray(ts, np.int64), table)
    assert events.schema == table.schema
    assert found.tolist() == [10 * n for n in events["amount"].to_pylist()]
    amounts: list[int] = events["amount"].to_pylist()
    return amounts


def test_other_fields_are_read_only_where_something_is_found(log: tl.Log) -> None:
    assert known(log, ("id",), [(1, 75, "a"), (2, 76, "a"), (3, 9999, "a")]) == [150, 151, 152, 153]
    narrow = [asked for asked in ASKED if asked[2] == ["id"]]
    whole = [asked for asked in ASKED if asked[2] != ["id"]]
    assert len(narrow) == 10
    assert [(lo, hi) for lo, hi, _ in whole] == [(150, 154)]


def test_all_fields_of_a_rule_narrow_what_is_found(log: tl.Log) -> None:
    assert known(log, ("shop", "id"), [(1, 75, "a"), (2, 76, "b")]) == [150, 152, 153]
    assert known(log, ("shop", "id"), [(1, 75, None)]) == []


def test_times_say_which_blocks_are_read(log: tl.Log) -> None:
    assert known(log, ("ts", "id"), [(1500, 75, "a"), (1520, 75, "a")]) == [150]
    assert [(lo, hi) for lo, hi, _ in ASKED] == [(150, 153), (150, 151)]


def test_nothing_is_read_for_no_rows(log: tl.Log) -> None:
    assert known(log, ("id",), []) == []
    assert not ASKED


def test_events_without_fields(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("ts\n1\n2\n3\n")
    (tmp_path / "b.csv").write_text("ts\n3\n4\n")
    log = tl.Log.write(tmp_path / "log", {Beat: tl.Source(tmp_path / "a.csv", unique=["ts"])})
    log = log.append({Beat: tl.Source(tmp_path / "b.csv", unique=["ts"])})
    assert [e.ts for e in log.events(Beat)] == [1, 2, 3, 4]
