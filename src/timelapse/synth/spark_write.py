"""Generating on Spark: one task per segment, which makes its blocks and writes its files by itself."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import msgspec
import pyarrow as pa

from timelapse.decoding import decoded
from timelapse.errors import Cancelled, LogError
from timelapse.progress import Progress
from timelapse.segments.manifest import SegmentEntry
from timelapse.store.parts import write_part
from timelapse.synth.network import Network
from timelapse.synth.write import STAGE, load_tables, segment_count, write_segment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_POLL_SECONDS = 0.1


def write_segments(
    network: Network, staging: Path, spark: SparkSession | None, master: str | None, progress: Progress
) -> list[SegmentEntry]:
    """Write all segments below `staging`, which every worker must see. Entries in log order.

    Raises Cancelled when the user stops it, LogError when Spark fails.
    """
    from timelapse.env.spark_session import session

    spark = session(spark, master=master)
    count = segment_count(network)
    if count == 0:
        return []
    ticks = staging / "progress"
    ticks.mkdir()

    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        tables = load_tables(staging / "tables")
        for batch in batches:
            for number in batch.column(0).to_pylist():
                made = 0

                def report(events: int, number: int = number) -> None:
                    nonlocal made
                    made += events
                    _tick(ticks / f"{number}.n", made)

                entry = write_segment(network, tables, number, staging / "segments", report)
                packed = msgspec.json.encode([number, msgspec.to_builtins(entry)])
                yield pa.RecordBatch.from_arrays([pa.array([packed], pa.binary())], ["entry"])

    frame = spark.range(0, count, 1, count).mapInArrow(work, "entry binary")
    rows = _collect(spark, frame, network, ticks, progress)
    entries: dict[int, SegmentEntry] = {}
    for row in rows:
        number, entry = decoded(row, tuple[int, SegmentEntry])
        entries[number] = entry
    if sorted(entries) != list(range(count)):
        raise LogError(f"Spark returned {len(entries)} of {count} segments", code="TL430")
    return [entries[number] for number in range(count)]


def _collect(
    spark: SparkSession, frame: Any, network: Network, ticks: Path, progress: Progress
) -> list[bytes]:
    """Collect in another thread, so that this one shows progress and can be interrupted."""
    tag = f"timelapse-{uuid4().hex[:12]}"
    rows: list[bytes] = []
    trouble: list[BaseException] = []

    def run() -> None:
        try:
            spark.sparkContext.addJobTag(tag)
            spark.sparkContext.setLocalProperty("spark.job.description", "timelapse: generate")
            rows.extend(bytes(row[0]) for row in frame.collect())
        except BaseException as error:
            trouble.append(error)

    thread = threading.Thread(target=run, name="timelapse-synth", daemon=True)
    thread.start()
    try:
        while thread.is_alive():
            thread.join(_POLL_SECONDS)
            progress.advance(STAGE, _done(ticks), network.events)
    except KeyboardInterrupt:
        spark.sparkContext.cancelJobsWithTag(tag)
        thread.join(10)
        raise Cancelled(
            "cancelled while generating; Spark's tasks were stopped and nothing was left",
            hint="run the same command again to start over",
        ) from None
    if trouble:
        lines = [line for line in str(trouble[0]).splitlines() if line.strip() and "\tat " not in line]
        raise LogError(
            "Spark failed while generating: " + "\n      ".join(lines[-8:]), code="TL430",
            hint="nothing was left; `timelapse doctor` checks the set-up",
        ) from trouble[0]  # fmt: skip
    return rows


def _tick(path: Path, made: int) -> None:
    """Say how far a task is. Only progress: a cancelled job's folder may be gone."""
    with suppress(OSError):
        write_part(path, str(made).encode())


def _done(ticks: Path) -> int:
    total = 0
    for path in ticks.glob("*.n"):
        try:
            total += int(path.read_text() or 0)
        except (OSError, ValueError):
            continue
    return total
