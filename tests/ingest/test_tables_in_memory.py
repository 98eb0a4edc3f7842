"""Tables in memory are sources: pandas, Polars, Arrow, and what offers Arrow's stream."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import timelapse as tl
from timelapse.errors import IngestError, UsageError
from timelapse.log import Log, Source


class Txn(tl.Event):
    user: int
    city: str
    amount: float | None
    n: int | None


class Login(tl.Event):
    user: int


COLUMNS: dict[str, list[Any]] = {
    "ts": [30, 10, 20, 20, 20], "user": [1, 2, 3, 1, 2], "city": ["a", "b", "c", "a", "é"],
    "amount": [1.5, None, 2.5, 0.0, -1.0], "n": [1, 2, None, 4, 5], "other": [1, 2, 3, 4, 5],
}  # fmt: skip


class Streamed:
    """Something of another library that offers Arrow's stream."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return pa.table(COLUMNS).__arrow_c_stream__(requested_schema)


def _polars(categories: bool = False) -> Any:
    polars = pytest.importorskip("polars", reason="Polars comes with `make bench-install`")
    frame = polars.DataFrame(COLUMNS)
    return frame.with_columns(polars.col("city").cast(polars.Categorical)) if categories else frame


TABLES: dict[str, Callable[[], Any]] = {
    "pandas": lambda: pd.DataFrame(COLUMNS, index=[5, 4, 3, 2, 1]), "arrow": lambda: pa.table(COLUMNS),
    "batch": lambda: pa.record_batch(COLUMNS), "stream": Streamed, "polars": _polars,
    "categories": lambda: _polars(categories=True), "arrow of categories": lambda: pa.table(_polars(categories=True)),
}  # fmt: skip


def told(log: Log) -> list[tuple[Any, ...]]:
    return [(e.ts, e.user, e.city, e.amount, e.n) for e in log.events(Txn)]


WANTED = [
    (10, 2, "b", None, 2), (20, 3, "c", 2.5, None), (20, 1, "a", 0.0, 4), (20, 2, "é", -1.0, 5), (30, 1, "a", 1.5, 1),
]  # fmt: skip


@pytest.mark.parametrize("kind", TABLES)
def test_a_table_is_a_source(tmp_path: Path, kind: str) -> None:
    """Rows of the same time keep their order; a missing number of pandas is None."""
    log = Log.write(tmp_path / "log", {Txn: TABLES[kind]()})
    assert told(log) == WANTED


def test_tables_beside_files_and_on_spark(tmp_path: Path, spark: SparkSession) -> None:
    """The log is the same, to its id."""
    logins = tmp_path / "logins.csv"
    logins.write_text("ts,user\n20,7\n5,8\n")
    here = Log.write(tmp_path / "here", {Txn: pd.DataFrame(COLUMNS), Login: logins})
    there = Log.write(tmp_path / "there", {Txn: pd.DataFrame(COLUMNS), Login: logins}, spark)
    frame = Log.write(
        tmp_path / "frame", {Txn: pa.table(COLUMNS), Login: spark.read.csv(str(logins), header=True)}
    )
    coded = pl.DataFrame(COLUMNS).with_columns(pl.col("city").cast(pl.Categorical))
    views = Log.write(tmp_path / "views", {Txn: coded, Login: logins}, spark)
    assert told(here) == WANTED
    assert here.id == there.id == frame.id == views.id


def test_order_by_sorts_rows_of_the_same_time(tmp_path: Path) -> None:
    log = Log.write(tmp_path / "log", {Txn: Source(pa.table(COLUMNS), order_by=["city"])})
    assert [e.city for e in log.events(Txn) if e.ts == 20] == ["a", "c", "é"]
    with pytest.raises(IngestError, match="order_by: there is no column 'town'"):
        Log.write(tmp_path / "b", {Txn: Source(pa.table(COLUMNS), order_by=["town"])})


def test_an_append_of_a_table(tmp_path: Path) -> None:
    log = Log.write(tmp_path / "log", {Txn: pd.DataFrame(COLUMNS)})
    later = pd.DataFrame({**COLUMNS, "ts": [40, 50, 60, 70, 80]})
    assert log.append({Txn: later}).count == 10


def test_bad_rows_of_a_table_are_named(tmp_path: Path) -> None:
    table = pd.DataFrame({"ts": [1, 2, 3], "user": ["1", "x", "3"], "city": "c"})
    log = Log.write(tmp_path / "log", {Txn: table}, max_bad=0.5)
    (bad,) = log.quarantine().to_pylist()
    assert (bad["file"], bad["line"], bad["type"]) == ("DataFrame for Txn", 2, "Txn")
    assert log.info().ingests[0].sources[0].source["from"] == "pandas table"


def test_columns_that_are_missing_doubled_or_mixed_are_errors(tmp_path: Path) -> None:
    doubled = pd.DataFrame([[1, 2, 2]], columns=["ts", "user", "user"])
    with pytest.raises(IngestError, match=r"column|Duplicate"):
        Log.write(tmp_path / "log", {Login: doubled})
    with pytest.raises(IngestError, match="needs the column 'user'"):
        Log.write(tmp_path / "log", {Login: pd.DataFrame({"ts": [1]})})
    with pytest.raises(IngestError, match="cannot be read as Arrow"):
        Log.write(tmp_path / "log", {Login: pd.DataFrame({"ts": [1, 2], "user": [1, "a"]})})
    with pytest.raises(IngestError, match="dict is no source"):
        Log.write(tmp_path / "log", {Login: {"ts": [1]}})  # type: ignore[dict-item]
    assert not (tmp_path / "log").exists()


class Seen(tl.Event):
    user: int
    at: tl.Time | None


def test_times_without_a_zone_mean_the_same_on_spark(tmp_path: Path, spark: SparkSession) -> None:
    """Not times in the session's zone: what was said, or an error."""
    clock = pd.Timestamp("2026-10-01 02:00")
    frame = pd.DataFrame({"ts": [clock], "user": [1], "at": [clock]})
    for given in (frame, pa.Table.from_pandas(frame), pl.from_pandas(frame)):
        with pytest.raises(IngestError, match="have no zone"):
            Log.write(tmp_path / "none", {Seen: given}, spark)
        logs = [
            Log.write(tmp_path / f"{n}", {Seen: given}, how, tz="Europe/Berlin", overwrite=True)
            for n, how in enumerate((None, spark))
        ]
        assert [[(e.ts, e.at) for e in log.events(Seen)] for log in logs] == [[(MIDNIGHT, MIDNIGHT)]] * 2
        assert logs[0].id == logs[1].id


MIDNIGHT = 1_790_812_800_000_000
"""02:00 in Berlin on 1 October 2026."""


def test_types_that_spark_does_not_have(tmp_path: Path, spark: SparkSession) -> None:
    day = pa.array([0, 86_400_000], pa.date64())
    columns = {"ts": [1, 2], "user": pa.array([1, 2**63 - 1], pa.uint64()), "at": day}
    for user in (pa.uint64(), pa.uint8(), pa.uint32(), pa.decimal256(40, 0)):
        few = pa.array([1, 2], pa.int64()).cast(user)
        given = pa.table({**columns, "user": columns["user"] if user == pa.uint64() else few})
        here, there = (
            Log.write(tmp_path / f"{n}", {Seen: given}, how, tz="UTC", overwrite=True)
            for n, how in enumerate((None, spark))
        )
        assert (here.id, here.count) == (there.id, 2), user


def test_spark_false_is_never_spark(tmp_path: Path, spark: SparkSession) -> None:
    log = Log.write(tmp_path / "log", {Txn: pd.DataFrame(COLUMNS)}, False)
    assert told(log) == WANTED
    later = pd.DataFrame({**COLUMNS, "ts": [40, 50, 60, 70, 80]})
    assert log.append({Txn: later}, False).count == 10
    with pytest.raises(UsageError, match=r"need Spark, and Log\.write"):
        Log.write(tmp_path / "b", {Login: spark.createDataFrame([(1, 2)], "ts long, user long")}, False)
    with pytest.raises(UsageError, match=r"need Spark, and Log\.write"):
        Log.write(tmp_path / "b", {Txn: pd.DataFrame(COLUMNS)}, False, partitions=2)


@pytest.mark.parametrize("table", [pa.table({"n": [1]}), pl.DataFrame({"n": [1]}), pd.DataFrame({"n": [1]})])
def test_a_table_in_the_place_of_an_option_is_named(table: Any) -> None:
    """`tl.Source(Login, table)`: the table is compared with what the option may be."""
    with pytest.raises(IngestError, match=r"format= is a (Table|DataFrame)") as caught:
        Source("raw/logins.csv", table)
    assert caught.value.code == "TL411"
