"""Progress of Spark work that reports none itself: the stages that Spark says are running."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from timelapse.progress import Progress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_POLL_SECONDS = 0.3


@contextmanager
def watching(spark: SparkSession, progress: Progress, name: str) -> Iterator[None]:
    """Show Spark's running stages as stages of `progress` while the block runs. Counts are tasks."""
    try:
        tracker: Any = spark.sparkContext.statusTracker()
    except Exception:
        tracker = None  # Spark Connect has none: the block runs without progress
    done = threading.Event()
    began = time.perf_counter()
    progress.note(f"{name} ...")
    thread = threading.Thread(
        target=_watch, args=(tracker, progress, name, done), name="timelapse-watch", daemon=True
    )
    if tracker is not None:
        thread.start()
    try:
        yield
    finally:
        done.set()
        if tracker is not None:
            thread.join(5)
    progress.note(f"{name}: {time.perf_counter() - began:.1f} s")


def _watch(tracker: Any, progress: Progress, name: str, done: threading.Event) -> None:
    with suppress(Exception):  # Spark may be gone: who waits for its result is told
        _follow(tracker, progress, name, done)


def _follow(tracker: Any, progress: Progress, name: str, done: threading.Event) -> None:
    started: dict[int, tuple[str, float]] = {}
    finished: set[int] = set()
    while not done.wait(_POLL_SECONDS):
        active = set(tracker.getActiveStageIds())
        for stage in sorted(active - finished):
            info = tracker.getStageInfo(stage)
            if info is None or info.numTasks < 1:
                continue
            if stage not in started:
                label = f"{name}, step {len(started) + 1}"
                started[stage] = (label, time.perf_counter())
                progress.stage(label, 0)
            progress.advance(started[stage][0], info.numCompletedTasks, info.numTasks)
        _finish(progress, started, finished, set(started) - active)
    _finish(progress, started, finished, set(started))


def _finish(
    progress: Progress, started: dict[int, tuple[str, float]], finished: set[int], gone: set[int]
) -> None:
    for stage in sorted(gone - finished):
        label, since = started[stage]
        progress.finish(label, time.perf_counter() - since)
        finished.add(stage)
