"""Jobs (env/jobs.py) on Spark: a part is read on an executor, pieces go through the shuffle, and the driver gets what is left of each group."""

from __future__ import annotations

import pickle
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from timelapse.display import many
from timelapse.env.jobs import Piece
from timelapse.env.spark_failures import explained
from timelapse.env.spark_session import workers_python
from timelapse.env.spark_start import hush
from timelapse.errors import TimelapseError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_ROW = "part int, failed boolean, data binary"
"""`part`: a part's number, or a group's; `failed`: the data are an error of ours, pickled."""
_TASKS_PER_CORE = 4
_PARTS_PER_TASK = 16

Batches = Iterable[pa.RecordBatch]


class SparkJobs:
    """On a session as it is. Parts that follow one another share a task where there are many."""

    def __init__(self, spark: SparkSession) -> None:
        workers_python(spark)
        self._spark = spark
        self._jobs = 0
        self._tasks = 0

    @property
    def spread(self) -> int:
        context = self._context()
        return int(context.defaultParallelism) if context is not None else 2

    @property
    def text(self) -> str:
        context = self._context()
        where = f"{context.master}, application {context.applicationId}" if context is not None else "Connect"
        return f"Spark {self._spark.version}, {where}: {many(self._jobs, 'job', 'jobs')}, {many(self._tasks, 'task', 'tasks')}"

    def each(self, work: Callable[[int], bytes], parts: int, what: str) -> list[bytes]:
        if not parts:
            return []
        found = dict(self._collected(self._started(parts, lambda part: [(part, work(part))]), what))
        return [found[part] for part in range(parts)]

    def grouped(
        self, send: Callable[[int], Iterable[Piece]], parts: int, receive: Callable[[list[bytes]], bytes], groups: int, what: str
    ) -> list[bytes]:  # fmt: skip
        if not parts:
            return []
        self._tasks += groups
        sent = self._started(parts, send).repartitionById(groups, "part")
        return [data for _, data in self._collected(sent.mapInArrow(_receiver(receive), _ROW), what)]

    def _started(self, parts: int, send: Callable[[int], Iterable[Piece]]) -> DataFrame:
        """The pieces that the parts send, as a frame that is not run yet."""
        tasks = min(parts, max(_TASKS_PER_CORE * self.spread, parts // _PARTS_PER_TASK))
        self._tasks += tasks
        return self._spark.range(0, parts, 1, tasks).mapInArrow(_sender(send), _ROW)

    def _collected(self, frame: DataFrame, what: str) -> list[tuple[int, bytes]]:
        self._jobs += 1
        with self._described(what):
            rows = frame.collect()
        for row in rows:
            if row["failed"]:
                raise pickle.loads(bytes(row["data"]))  # noqa: S301 our own bytes, from our own task
        return [(row["part"], bytes(row["data"])) for row in rows]

    @contextmanager
    def _described(self, what: str) -> Iterator[None]:
        """Spark's UI says what it is; Ctrl-C ends it."""
        context = self._context()
        tag = f"timelapse-{uuid.uuid4().hex[:12]}"
        before = None if context is None else context.getLocalProperty("spark.job.description")
        if context is not None:
            context.addJobTag(tag)
            context.setLocalProperty("spark.job.description", f"timelapse: {what}")
        try:
            yield
        except KeyboardInterrupt:
            hush(self._spark)
            with suppress(Exception):
                self._spark.interruptAll() if context is None else context.cancelJobsWithTag(tag)
            raise
        except Exception as error:
            raise explained(error, what) from error
        finally:
            if context is not None:
                with suppress(Exception):  # where Spark is gone there is nothing to put back
                    context.removeJobTag(tag)
                    context.setLocalProperty("spark.job.description", before)

    def _context(self) -> Any:
        try:
            return self._spark.sparkContext
        except Exception:
            return None


def _sender(send: Callable[[int], Iterable[Piece]]) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    def run(batches: Batches) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for part in batch.column(0).to_pylist():
                try:
                    for group, data in send(part):
                        yield _row(group, data)
                except TimelapseError as error:
                    yield _row(0, pickle.dumps(error), failed=True)

    return run


def _receiver(receive: Callable[[list[bytes]], bytes]) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    def run(batches: Batches) -> Iterator[pa.RecordBatch]:
        pieces: list[bytes] = []
        group = 0
        for batch in batches:
            for row in batch.to_pylist():
                if row["failed"]:
                    yield _row(0, row["data"], failed=True)
                    return
                group = row["part"]
                pieces.append(row["data"])
        if pieces:
            try:
                yield _row(group, receive(pieces))
            except TimelapseError as error:
                yield _row(0, pickle.dumps(error), failed=True)

    return run


def _row(part: int, data: bytes, *, failed: bool = False) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [pa.array([part], pa.int32()), pa.array([failed]), pa.array([data], pa.binary())],
        ["part", "failed", "data"],
    )
