"""Tables and DataFrames beside files, of one type; and lists that are taken apart in what a user's function returns."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import timelapse as tl
from tests.cli.run_cli import cli
from tests.depth import deep
from timelapse.errors import IngestError
from timelapse.log import Log, Source

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Pay(tl.Event):
    id: int
    cents: int | None


class Item(tl.Event):
    order: int
    sku: str
    city: str | None


Rows = list[tuple[int, int, int]]
_TABLES: list[Callable[[pa.Table], Any]] = [lambda t: t, lambda t: t.to_pandas(), pl.from_arrow]


def _told(log: Log) -> list[tuple[Any, ...]]:
    return [(e.ts, *e._values()) for e in log.events()]


def _table(rows: Rows) -> pa.Table:
    ts, ids, cents = zip(*rows, strict=True) if rows else ((), (), ())
    return pa.table({n: pa.array(v, pa.int64()) for n, v in zip(("ts", "id", "cents"), (ts, ids, cents), strict=True)})  # fmt: skip


def _csv(path: Path, rows: Rows) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("ts,id,cents\n" + "".join(f"{ts},{id_},{cents}\n" for ts, id_, cents in rows))
    return path


def _mixed(rng: random.Random, folder: Path, ids: int) -> tuple[list[Any], list[Rows]]:
    """Sources of few times: tables and files in any order; and their rows in log order: those of tables in the order of the list, then files."""
    given: list[Any] = []
    front: list[Rows] = []
    behind: list[Rows] = []
    for number in range(rng.randrange(2, 6)):
        rows = [(rng.randrange(3), rng.randrange(ids), rng.randrange(3)) for _ in range(rng.randrange(1, 7))]
        if rng.random() < 0.5:
            front.append(rows)
            given.append(rng.choice(_TABLES)(_table(rows)))
        else:
            behind.append(rows)
            given.append(Source(_csv(folder / f"{9 - number}.csv", rows)))
    return given, [*front, *behind]


@pytest.mark.parametrize("seed", range(deep(12)))
def test_tables_stand_in_front_of_files(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    given, rows = _mixed(rng, tmp_path / "raw", 1000)
    log = Log.write(tmp_path / "log", {Pay: given})
    every = [row for own in rows for row in own]
    assert _told(log) == sorted(every, key=lambda row: row[0])
    assert sorted(s.position for s in log.manifest.ingests[0].sources) == list(range(len(given)))
    assert sum(s.rows for s in log.manifest.ingests[0].sources) == len(every)
    more = [(rng.randrange(3), 5000 + n, 0) for n in range(5)]
    tables = [one for one in given if not isinstance(one, Source)]
    files = [one for one in given if isinstance(one, Source)]
    if tables and files:  # whatever came when
        first = Log.write(tmp_path / "first", {Pay: tables})
        assert first.append({Pay: files}).id == log.id
    _csv(tmp_path / "raw" / "0.csv", more)
    assert _told(
        log.append({Pay: [pd.DataFrame(more, columns=["ts", "id", "cents"]), tmp_path / "raw" / "0.csv"]})
    )


@pytest.mark.parametrize("unique", [(), ("id",)])
@pytest.mark.parametrize("seed", range(3))
def test_spark_makes_the_same_of_them(
    seed: int, unique: tuple[str, ...], tmp_path: Path, spark: SparkSession
) -> None:
    rng = random.Random(f"{seed} {unique}")
    given, _ = _mixed(rng, tmp_path / "raw", 8 if unique else 1000)
    given += [
        _table([(1, 3, 9), (1, 7000, 1)]),
        Source(_csv(tmp_path / "raw" / "5x.csv", [(1, 3, 9), (0, 3, 9)])),
    ]
    options: dict[str, Any] = {"unique": unique}
    sources = [
        Source(one.data, **options) if isinstance(one, Source) else Source(one, **options) for one in given
    ]
    here = Log.write(tmp_path / "here", {Pay: sources})
    there = Log.write(tmp_path / "there", {Pay: sources}, spark, partitions=2)
    assert _told(there) == _told(here)
    assert there.id == here.id
    for told in ("rows", "duplicates", "conflicts", "position"):
        assert [getattr(s, told) for s in there.manifest.ingests[0].sources] == [
            getattr(s, told) for s in here.manifest.ingests[0].sources
        ], told
    more = [
        Source(_table([(0, 3, 9), (2, 8000, 1)]), **options),
        Source(_csv(tmp_path / "raw" / "zz.csv", [(1, 4, 4), (1, 3, 9)]), **options),
    ]
    here, there = here.append({Pay: more}), there.append({Pay: more}, spark)
    assert _told(there) == _told(here)

    def left_out(log: Log) -> list[tuple[str, str]]:  # on Spark rows of tables have no number
        return sorted((b["reason"], b["raw"]) for b in log.quarantine().to_pylist())

    assert left_out(there) == left_out(here)


def test_a_spark_frame_beside_files(tmp_path: Path, spark: SparkSession) -> None:
    frame = spark.createDataFrame([(1, 10, 1), (0, 11, 1)], "ts long, id long, cents long")
    other = spark.createDataFrame([(1, 5, 1)], "ts long, id long, cents long")
    file = _csv(tmp_path / "a.csv", [(1, 1, 1), (0, 2, 2)])
    log = Log.write(tmp_path / "log", {Pay: [Source(file), frame, other]}, spark)
    assert _told(log) == [(0, 11, 1), (0, 2, 2), (1, 10, 1), (1, 5, 1), (1, 1, 1)]


def test_a_definition_mixes_a_table_of_the_catalogue_and_files(tmp_path: Path, spark: SparkSession) -> None:
    spark.createDataFrame([(5, 1, 1), (6, 2, 2)], "ts long, id long, cents long").createOrReplaceTempView(
        "mixed"
    )
    (tmp_path / "events.py").write_text(
        "import timelapse as tl\nclass Pay(tl.Event):\n    id: int\n    cents: int | None\n"
    )
    path = tmp_path / "log.toml"
    unique = 'unique = ["id"]\n'
    text = 'events = "events.py"\nlog = "{}"\n[[source]]\ntype = "Pay"\nfiles = "raw/*.csv"\n{}[[source]]\ntype = "Pay"\ntable = "mixed"\n{}'
    _csv(tmp_path / "raw" / "1.csv", [(5, 3, 3)])
    for name, more in (("plain", ""), ("once", unique)):
        path.write_text(text.format(name, more, more))
        assert cli("ingest", path).code == 0
        assert [e.id for e in Log.open(tmp_path / name).events(Pay)] == [1, 3, 2]
    spark.createDataFrame(
        [(5, 1, 1), (6, 2, 2), (7, 9, 9)], "ts long, id long, cents long"
    ).createOrReplaceTempView("mixed")
    _csv(tmp_path / "raw" / "2.csv", [(5, 4, 4)])
    done = cli("ingest", path)
    assert done.code == 0, done.err
    assert [e.id for e in Log.open(tmp_path / "once").events(Pay)] == [1, 3, 4, 2, 9]
    path.write_text(text.format("plain", "", ""))
    done = cli("ingest", path)
    assert done.code == 0, done.err
    assert "the table mixed was not read again" in " ".join(done.out.split())
    assert [e.id for e in Log.open(tmp_path / "plain").events(Pay)] == [1, 3, 4, 2]


# --- lists beside a function ------------------------------------------------------------------------------

ORDERS = [
    {"ts": 5, "nr": 1, "to": {"city": "x"}, "basket": {"items": [{"sku": "a"}, {"sku": "b"}]}},
    {"ts": 5, "nr": 2, "basket": {"items": [{"sku": "z"}, {"sku": 7}, {"sku": "b"}]}},
    {"ts": 6, "nr": 3, "basket": {"items": []}},
    {"ts": 6, "nr": 4, "basket": None},
    {"ts": 7, "nr": 5, "basket": {"items": [{"sku": "q"}, 3]}},
    {"ts": 7, "nr": 6, "basket": {"items": 3}},
    {"ts": 7, "nr": -1, "basket": {"items": [{"sku": "left out"}]}},
    {"ts": 8, "nr": 0, "basket": {"items": [{"sku": "raises"}]}},
    {"ts": "no", "nr": 7, "basket": {"items": [{"sku": "a"}, {"sku": "b"}]}},
    {"ts": 3, "nr": 8, "basket": {"items": [{"sku": "early"}]}},
]


def clean(row: dict[str, Any]) -> Mapping[str, Any] | None:
    if row["nr"] < 0:
        return None
    return {**row, "order": 10 // row["nr"] * 0 + row["nr"], "sku2": "no"}


def test_lists_are_taken_apart_in_what_a_function_returns(tmp_path: Path, spark: SparkSession) -> None:
    (tmp_path / "orders.jsonl").write_text("".join(json.dumps(one) + "\n" for one in ORDERS))
    source = Source(
        tmp_path / "orders.jsonl",
        apply=clean,
        fields={"sku": "basket.items[].sku", "city": "to.city"},
        since=4,
        max_bad=0.9,
    )
    log = Log.write(tmp_path / "log", {Item: source})
    assert _told(log) == [(5, 1, "a", "x"), (5, 1, "b", "x"), (5, 2, "z", None), (5, 2, "b", None)]
    (told,) = log.manifest.ingests[0].sources
    # two rows without items; one left out and one of another time; of the bad ones two are items of one row
    assert (told.rows, told.skipped, told.filtered, told.bad) == (4, 2, 2, 6)
    assert told.read == 14
    assert [(b["line"], b["reason"]) for b in log.quarantine().to_pylist()] == [
        (2, "item 2: sku: must be str, not int 7"),
        (5, "item 2 of basket.items is int, and not an object"),
        (6, "basket.items is int, and not a list of objects"),
        (8, "clean: ZeroDivisionError: integer division or modulo by zero"),
        (9, "item 1: ts: 'no' is not an ISO-8601 time"),
        (9, "item 2: ts: 'no' is not an ISO-8601 time"),
    ]
    on_spark = Log.write(tmp_path / "spark", {Item: source}, spark)
    assert on_spark.id == log.id
    assert on_spark.quarantine().to_pylist() == log.quarantine().to_pylist()
    with pytest.raises(IngestError, match="one list of objects can be taken apart"):
        Log.write(tmp_path / "two", {Item: Source(tmp_path / "orders.jsonl", apply=clean, fields={"sku": "a[].b", "city": "c[].d"})})  # fmt: skip


def test_lists_in_tables_are_taken_apart_by_way_of_a_function(tmp_path: Path) -> None:
    rows = [{"ts": 5, "order": 1, "items": [{"sku": "a"}, {"sku": "b"}]}, {"ts": 6, "order": 2, "items": []}]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    log = Log.write(
        tmp_path / "log", {Item: Source(tmp_path / "a.parquet", apply=dict, fields={"sku": "items[].sku"})}
    )
    assert _told(log) == [(5, 1, "a", None), (5, 1, "b", None)]
    assert log.manifest.ingests[0].sources[0].skipped == 1
    many = [{**rows[0], "order": n} for n in range(300)]
    whole = Log.write(tmp_path / "many", {Item: Source(pa.Table.from_pylist(many), apply=dict, fields={"sku": "items[].sku"})})  # fmt: skip
    assert whole.count == 600


def test_a_function_gets_all_columns_of_a_frame(tmp_path: Path, spark: SparkSession) -> None:
    frame = spark.createDataFrame([(5, 1, "a b"), (6, 2, "c")], "ts long, order long, skus string")

    def split(row: dict[str, Any]) -> dict[str, Any]:
        return {**row, "items": [{"sku": one} for one in row["skus"].split()]}

    source = Source(frame, apply=split, fields={"sku": "items[].sku"})
    assert [row[2] for row in _told(Log.write(tmp_path / "log", {Item: source}, spark))] == ["a", "b", "c"]


def test_a_function_beside_a_time_window(tmp_path: Path) -> None:
    """Rows of other times are counted with those that the function leaves out: the sums agree."""
    _csv(tmp_path / "a.csv", [(1, 1, 1), (2, 2, 2), (3, 3, 3), (4, -4, 4)])
    log = Log.write(
        tmp_path / "log",
        {
            Pay: Source(
                tmp_path / "a.csv", since=2, before=4, apply=lambda row: row if row["id"] != "2" else None
            )
        },
    )
    (told,) = log.manifest.ingests[0].sources
    assert (told.read, told.rows, told.filtered, told.bad) == (4, 1, 3, 0)
