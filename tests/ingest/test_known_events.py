"""What an append with `unique` reads of the log: no more than it needs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import timelapse as tl
from timelapse.ingest import on_spark
from timelapse.ingest.once_on_spark import events_at, keys_of, once
from timelapse.ingest.unique import Before, Rule, known_events
from timelapse.segments.reader import Chunk, LogReader
from timelapse.segments.types import event_types


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
            ASKED.append((chunk.seq_lo, chunk.seq_hi, list(columns["Pay"] or ["all"])))
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
    found = known_events(reader, kind, Rule(fields, "first"), np.asarray(ts, np.int64), table)
    assert found.column_names == ["seq", "ts", *table.column_names, "_file", "_late"]
    amounts: list[int] = found["amount"].to_pylist()
    assert found["seq"].to_pylist() == amounts
    assert found["ts"].to_pylist() == [10 * n for n in amounts]
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


def test_on_spark_tasks_read_the_same(log: tl.Log) -> None:
    """What a task reads to find keys, and then of what was found: the rule's fields, and blocks with such events."""
    own, kind = log.reader, event_types([Pay])[0]
    reader = Watched(own.root, own.types, own.segments, own.count, own._bases)
    ASKED.clear()
    found = pa.Table.from_batches(list(keys_of(reader, kind, Rule(("shop", "ts"), "first"), 120, 250)))
    assert [(lo, hi) for lo, hi, _ in ASKED] == [(120, 200), (200, 250)]
    assert {tuple(names) for _, _, names in ASKED} == {("shop",)}
    assert found["r"].to_pylist() == list(range(120, 250))
    assert found.slice(0, 3).to_pylist() == [
        {"s": 0, "r": n, "k0": ["a", None, "b"][n % 3], "k1": n * 10} for n in (120, 121, 122)
    ]
    ASKED.clear()
    found_at = list(events_at(reader, kind, np.asarray([3, 90, 91, 555, 999])))
    assert [files.tolist() for files, _ in found_at] == [[-1] * 3, [-1], [-1]]
    whole = [batch for _, batch in found_at]
    assert [batch.rows.tolist() for batch in whole] == [[3, 90, 91], [555], [999]]
    assert [batch.columns[2].to_pylist() for batch in whole] == [[3, 90, 91], [555], [999]]
    assert [(lo, hi) for lo, hi, _ in ASKED] == [(3, 92), (555, 556), (999, 1000)]
    assert list(events_at(reader, kind, np.zeros(0, np.int64))) == []


def test_an_append_on_spark_reads_no_more_than_it_needs(
    log: tl.Log, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counted where the tasks read: one event of the log comes again, another in conflict."""
    asked = tmp_path / "asked"

    @dataclass(frozen=True)
    class Telling(LogReader):  # travels to the workers by value
        def chunks(self, lo: int, hi: int, columns: Any) -> Iterator[Chunk]:
            with asked.open("a") as file:
                for name, own in columns.items():
                    file.write(f"{lo} {hi} {name} {'all' if own is None else ','.join(own)}\n")
            return LogReader.chunks(self, lo, hi, columns)

    def told(spark: Any, whole: Any, prepared: Any, before: Before) -> Any:
        own = before.reader
        reader = Telling(**{f: getattr(own, f) for f in own.__dataclass_fields__})
        return once(spark, whole, prepared, replace(before, reader=reader))

    monkeypatch.setattr(on_spark, "once", told)
    (tmp_path / "pay.csv").write_text("ts,id,shop,amount\n5550,277,a,555\n6600,330,b,7\n99999,7777,,1\n")
    grown = log.append({Pay: tl.Source(tmp_path / "pay.csv", unique=["ts", "id"])}, spark)
    entry = grown.manifest.ingests[-1].sources[0]
    assert (entry.rows, entry.duplicates, entry.conflicts) == (1, 1, 1)
    read = sorted(line.split() for line in asked.read_text().splitlines())
    narrow = [line for line in read if line[3] == "id"]
    assert {tuple(line) for line in narrow} == {("555", "1000", "Pay", "id")}
    blocks = {(int(line[0]) // 100, int(line[1]) // 100) for line in read if line[3] == "all"}
    assert blocks == {(5, 5), (6, 6)}
    assert {line[3] for line in read} == {"id", "all"}


def test_events_without_fields(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("ts\n1\n2\n3\n")
    (tmp_path / "b.csv").write_text("ts\n3\n4\n")
    log = tl.Log.write(tmp_path / "log", {Beat: tl.Source(tmp_path / "a.csv", unique=["ts"])})
    log = log.append({Beat: tl.Source(tmp_path / "b.csv", unique=["ts"])})
    assert [e.ts for e in log.events(Beat)] == [1, 2, 3, 4]
