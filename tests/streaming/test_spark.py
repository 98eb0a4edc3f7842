"""Structured Streaming as a feeder: micro-batches are taken once, however often Spark gives them."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import timelapse as tl
from tests.patience import LONG
from tests.streaming.test_live import FAST, Hit, Mark, Plain, Watch, hits, lines, marks, put, whole
from timelapse.errors import IngestError, SourceError, UsageError
from timelapse.run import run_serial

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(autouse=True)
def _interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIMELAPSE_KERNEL", "interpreted")


def stream(
    spark: SparkSession, folder: Path, schema: str = "ts LONG, who LONG, size LONG", most: int = 1
) -> Any:
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", most).json(folder.as_uri())


def test_batches_that_come_again(tmp_path: Path, spark: SparkSession) -> None:
    """Two streams; the run is stopped between, and Spark's own record of its last batch is lost each time."""
    folder, out = tmp_path / "hits", tmp_path / "out"
    folder.mkdir()
    (tmp_path / "marks").mkdir()
    put(tmp_path / "marks" / "m.jsonl", lines(marks(3)))
    for number in range(3):
        for part in range(3):
            at = number * 3 + part
            put(folder / f"{at}.jsonl", lines(hits(30, at * 30)))
            time.sleep(0.02)
        frames = {Mark: stream(spark, tmp_path / "marks", "ts LONG, who LONG"), Hit: stream(spark, folder)}
        with tl.live(Watch, frames, out, once=True, lateness="1s", **FAST) as run:
            assert run.wait(LONG)
        last = run.last
        assert last is not None
        assert sum(p.rows for p in last.partitions) == (number + 1) * 90 + 3
        for commits in (out / "spark").glob("*/commits"):
            for done in sorted(p for p in commits.iterdir() if p.name.isdigit())[-1:]:
                done.unlink()
                (commits / f".{done.name}.crc").unlink(missing_ok=True)
    assert run.digest == whole(hits(270), marks(3))
    assert run.parity().same


def test_it_goes_on_as_files_come_and_names_what_fails(tmp_path: Path, spark: SparkSession) -> None:
    folder, out = tmp_path / "hits", tmp_path / "out"
    folder.mkdir()
    with tl.live(Plain, {Hit: stream(spark, folder)}, out, trigger="50ms", ahead=None) as run:
        for at in range(3):
            put(folder / f"{at}.jsonl", lines(hits(20, at * 20)))
            run.until(lambda e, n=at: e.end_seq >= n * 20 + 19)  # type: ignore[misc]
    with tl.live(Plain, {Hit: stream(spark, folder)}, out, once=True, ahead=None) as run:
        run.wait(LONG)
    assert run.digest == run_serial(Plain, hits(60)).digest
    from pyspark.sql.functions import expr

    broken = stream(spark, folder, most=100).withColumn(
        "size", expr("CAST(raise_error('out of order') AS BIGINT)")
    )
    with pytest.raises(SourceError, match="the streaming query has failed"):
        with tl.live(Plain, {Hit: broken}, tmp_path / "broken", ahead=None) as run:
            run.wait(LONG)


def test_values_inside_structs(tmp_path: Path, spark: SparkSession) -> None:
    from pyspark.sql.functions import struct

    folder = tmp_path / "hits"
    folder.mkdir()
    put(folder / "0.jsonl", lines(hits(40)))
    plain = stream(spark, folder)
    frame = plain.select("ts", struct("who", struct("size").alias("in.side"), "size").alias("body"))
    fields = {"who": "body.who", "size": "body.size"}
    source = tl.Source(frame, fields=fields)
    with tl.live(Plain, {Hit: source}, tmp_path / "out", once=True, ahead=None) as run:
        assert run.wait(LONG)
    assert run.digest == run_serial(Plain, hits(40)).digest


def test_an_epoch_does_not_wait_for_rows_that_spark_keeps_back(tmp_path: Path, spark: SparkSession) -> None:
    """Spark gives no further micro-batch before the one that was taken is committed: an epoch waited out its whole time."""
    folder = tmp_path / "hits"
    folder.mkdir()
    now = time.time()
    for at in range(3):
        put(folder / f"{at}.jsonl", lines(hits(20, at * 20)))
        os.utime(folder / f"{at}.jsonl", (now - 100 + at, now - 100 + at))  # Spark takes files by their times
    options: dict[str, Any] = {"trigger": "1h", "trigger_rows": 1_000, "once": True, "ahead": None}
    with tl.live(Plain, {Hit: stream(spark, folder)}, tmp_path / "out", **options) as run:
        assert run.wait(LONG)
    assert run.digest == run_serial(Plain, hits(60)).digest


def test_what_is_refused(tmp_path: Path, spark: SparkSession) -> None:
    folder = tmp_path / "hits"
    folder.mkdir()
    put(folder / "0.jsonl", lines(hits(20)))
    with pytest.raises(UsageError, match="streaming"):
        tl.live(Plain, {Hit: spark.range(3)}, tmp_path / "out")
    with pytest.raises(IngestError, match="size"):
        with tl.live(
            Plain, {Hit: stream(spark, folder, "ts LONG, who LONG")}, tmp_path / "out", **FAST
        ) as run:
            run.wait(LONG)
    import shutil

    with tl.live(Plain, {Hit: stream(spark, folder)}, tmp_path / "gone", once=True, **FAST) as run:
        run.wait(LONG)
    shutil.rmtree(tmp_path / "gone" / "spark")
    with pytest.raises(SourceError, match="checkpoint is gone"):
        with tl.live(Plain, {Hit: stream(spark, folder)}, tmp_path / "gone", once=True, **FAST) as run:
            run.wait(LONG)
