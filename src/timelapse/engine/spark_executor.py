"""Runs tasks on Spark: one row of `spark.range` is one task, which gets a descriptor and reads the
slice's columns by itself. Works with a session as it is: local, local-cluster, or a cluster whose
machines share the storage of the log and the run.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from timelapse.engine.job import Job, Task, TaskResult, task_bytes
from timelapse.engine.progress import Progress
from timelapse.engine.spark_shipping import job_id, pack, unpack
from timelapse.engine.tasks import Report, execute
from timelapse.errors import Cancelled, ReplayError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_POLL_SECONDS = 0.1
_REPORT_SECONDS = 0.3


class SparkExecutor:
    """Runs tasks on an existing SparkSession."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._job: Job | None = None
        self._data = b""
        self._key = ""
        self._tag = f"timelapse-{uuid.uuid4().hex[:12]}"

    @property
    def cores(self) -> int:
        context = self._context()
        return int(context.defaultParallelism) if context is not None else 2

    @property
    def text(self) -> str:
        context = self._context()
        return f"Spark {self._spark.version}, {context.master if context is not None else 'Connect'}"

    def start(self, job: Job) -> None:
        self._job = job
        self._data = pack(job)
        self._key = job_id(self._data)

    def close(self) -> None:
        self._job = None
        self._data = b""

    def run(self, stage: str, tasks: Sequence[Task], progress: Progress) -> list[TaskResult]:
        job = self._job
        if job is None:
            raise RuntimeError("the executor has no job: call start first")
        folder = job.scratch / "progress" / uuid.uuid4().hex
        folder.mkdir(parents=True)
        progress.stage(stage, sum(task.events for task in tasks))
        started = time.perf_counter()
        rows = self._collect(list(tasks), folder, stage, progress)
        progress.finish(stage, time.perf_counter() - started)
        by_id = {r.id: r for r in (msgspec.json.decode(row, type=TaskResult) for row in rows)}
        missing = [t.id for t in tasks if t.id not in by_id]
        if missing:
            raise ReplayError(f"Spark returned no result for {len(missing)} of {len(tasks)} tasks of {stage}")
        return [by_id[task.id] for task in tasks]

    def _collect(self, tasks: list[Task], folder: Path, stage: str, progress: Progress) -> list[bytes]:
        """Run the Spark job in a thread of its own, so that this one can show progress and be stopped."""
        runner = _runner(self._key, self._data, tasks, str(folder))
        answer: list[bytes] = []
        trouble: list[BaseException] = []

        def work() -> None:
            try:
                context = self._context()
                if context is not None:
                    context.addJobTag(self._tag)
                    context.setLocalProperty("spark.job.description", f"timelapse: {stage}")
                frame = self._spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(runner, "result binary")
                answer.extend(bytes(row[0]) for row in frame.collect())
            except BaseException as error:
                trouble.append(error)

        thread = threading.Thread(target=work, name="timelapse-spark", daemon=True)
        thread.start()
        total = sum(task.events for task in tasks)
        try:
            while thread.is_alive():
                thread.join(_POLL_SECONDS)
                progress.advance(stage, _done(folder), total)
        except KeyboardInterrupt:
            self._cancel()
            thread.join(10)
            raise Cancelled(
                f"cancelled during {stage}; Spark's tasks were stopped and nothing was published",
                hint="run the same command again to start over",
            ) from None
        if trouble:
            raise _explain(trouble[0], stage) from trouble[0]
        return answer

    def _context(self) -> Any:
        try:
            return self._spark.sparkContext
        except Exception:
            return None

    def _cancel(self) -> None:
        context = self._context()
        if context is not None:
            context.cancelJobsWithTag(self._tag)
        else:
            self._spark.interruptAll()


def _explain(error: BaseException, stage: str) -> ReplayError:
    text = str(error).strip()
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("at ")]
    shown = "\n      ".join(lines[-12:]) if lines else type(error).__name__
    return ReplayError(
        f"Spark failed during {stage}: {shown}",
        hint="nothing was published; `timelapse doctor` checks the set-up", code="TL507",
    )  # fmt: skip


def _done(folder: Path) -> int:
    """Events done, over all tasks of the stage."""
    total = 0
    for path in folder.glob("*.n"):
        try:
            total += int(path.read_text() or 0)
        except (OSError, ValueError):
            continue
    return total


def _runner(
    key: str, data: bytes, tasks: list[Task], folder: str
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for row in batch.column(0).to_pylist():
                task = tasks[row]
                result = execute(unpack(key, data), task, reporter(Path(folder) / f"{task.id}.n"))
                yield pa.RecordBatch.from_arrays([pa.array([task_bytes(result)], pa.binary())], ["result"])

    return run


def reporter(path: Path) -> Report:
    """Keeps a task's number of events done in a small file, written at most a few times a second."""
    done = 0
    last = 0.0

    def report(events: int) -> None:
        nonlocal done, last
        done += events
        now = time.monotonic()
        if now - last >= _REPORT_SECONDS:
            last = now
            try:
                partial = path.with_suffix(".p")
                partial.write_text(str(done))
                partial.replace(path)
            except OSError:  # only progress: the job's folder may be gone when it was cancelled
                pass

    return report
