"""What the tasks of a replay took: noted where the driver's loop is handed their results."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from timelapse.engine.job import Task, TaskResult
from timelapse.engine.loop import Loop
from timelapse.engine.spark_executor import SparkExecutor


@contextmanager
def tasks_seen() -> Iterator[list[dict[str, Any]]]:
    """Notes every task that ends meanwhile, as `simulate.TaskSeen` has it."""
    seen: list[dict[str, Any]] = []
    began = time.perf_counter()
    plain, plain_merge = Loop._done, SparkExecutor.merge
    merges: dict[int, float] = {}

    def merge(self: SparkExecutor, task: Task) -> TaskResult:
        before = time.thread_time()
        result = plain_merge(self, task)
        merges[task.id] = time.thread_time() - before
        return result

    def done(self: Loop, task: Task, result: TaskResult | BaseException, seconds: float) -> None:
        if isinstance(result, TaskResult):
            rows = sum(row.rows for report in result.reports for row in report.moved.values())
            seen.append({
                "kind": task.kind, "stage": task.index, "first": task.first, "last": task.last, "events": task.events,
                "inside": result.seconds.get("total", 0.0), "load": result.seconds.get("load", 0.0), "waited": seconds,
                "rows": rows, "ended": time.perf_counter() - began, "cpu": merges.get(task.id, 0.0),
            })  # fmt: skip
        plain(self, task, result, seconds)

    Loop._done, SparkExecutor.merge = done, merge  # type: ignore[method-assign]
    try:
        yield seen
    finally:
        Loop._done, SparkExecutor.merge = plain, plain_merge  # type: ignore[method-assign]
