"""Runs tasks on Spark: one row of `spark.range` is one task, which gets a descriptor and reads the
slice's columns by itself. Works with a session as it is: local, local-cluster, or a cluster whose
machines share the storage of the log and the run.

Tasks that are submitted together are one Spark job. A task's result is also put into a file, so that the
next step need not wait for the slowest task of its job.
"""

from __future__ import annotations

import math
import os
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from timelapse.decoding import decoded
from timelapse.engine import exchange
from timelapse.engine.exchange import Batches
from timelapse.engine.executor import Done, Watch
from timelapse.engine.job import Job, Task, TaskResult, task_bytes
from timelapse.engine.spark_shipping import job_id, pack, unpack
from timelapse.engine.tasks import Report, execute
from timelapse.env.garbage import collected_rarely, leave_out_modules
from timelapse.env.spark_failures import explained
from timelapse.env.spark_session import workers_python
from timelapse.env.spark_start import hush
from timelapse.errors import ReplayError
from timelapse.program.program import spec_of
from timelapse.store.parts import write_part
from timelapse.tables.apply import Change

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_REPORT_SECONDS = 0.3
_CANCEL_SECONDS = 10.0
_COUNT_SECONDS = 1.0
"""How long a number of cores is good for: the driver asks at each look, and Java answers in 1 to 2 ms. Executors come and go more slowly."""
_LOOK_SECONDS = 0.1
"""How often it is looked how far tasks are. Whether they are done is looked at each time."""


class SparkExecutor:
    """Runs tasks on an existing SparkSession."""

    remote = True
    pinned = True
    spreads = True
    queues = True

    def __init__(self, spark: SparkSession) -> None:
        workers_python(spark)
        self._spark = spark
        self._cores, self._counted = 2, -math.inf
        self._heard = 0.0
        self._submitted = [0, 0]
        self._job: Job | None = None
        self._data = b""
        self._key = ""
        self._folder = Path()
        self._tag = f"timelapse-{uuid.uuid4().hex[:12]}"
        self._jobs: list[_SparkJob] = []

    @property
    def cores(self) -> int:
        now = time.monotonic()
        if now - self._counted >= _COUNT_SECONDS:
            context = self._context()
            self._cores = int(context.defaultParallelism) if context is not None else 2
            self._counted = now
        return self._cores

    @property
    def threads(self) -> int:
        """On one machine a task that runs alone has it for itself; elsewhere nobody can tell."""
        return self.cores if self.is_local else 1

    @property
    def machines(self) -> int:
        """On how many machines the executors are that are there; 1 where nobody can tell."""
        context = self._context()
        if context is None or self.is_local:
            return 1
        return max(1, len({host for name, host in _members(context) if name != "driver"}))

    @property
    def is_local(self) -> bool:
        """Whether all tasks run on the driver's machine."""
        context = self._context()
        return context is not None and context.master.startswith("local") and "cluster" not in context.master

    @property
    def text(self) -> str:
        context = self._context()
        return f"Spark {self._spark.version}, {context.master if context is not None else 'Connect'}"

    def counted(self) -> dict[str, Any]:
        jobs, tasks = self._submitted
        if not jobs:
            return {}
        context = self._context()
        # What was submitted: Spark's own numbers come later than a task's result.
        return {
            "application": "" if context is None else context.applicationId,
            "executors": None if context is None else _executors(context),
            "jobs": jobs,
            "tasks": tasks,
        }

    def start(self, job: Job) -> None:
        self._job = job
        self._submitted = [0, 0]
        self._tag = f"timelapse-{uuid.uuid4().hex[:12]}"
        self._data = pack(job)
        self._key = job_id(self._data)
        self._folder = job.scratch / "progress" / uuid.uuid4().hex
        self._folder.mkdir(parents=True)

    def close(self) -> None:
        self._job = None
        self._data = b""
        self._jobs = []

    def submit(self, tasks: Sequence[Task], done: Done, watch: Watch) -> None:
        if self._job is None:
            raise RuntimeError("the executor has no job: call start first")
        runner = _runner(self._key, self._data, list(tasks), str(self._folder))
        self._jobs.append(_SparkJob(tasks, done, watch, lambda job: self._collect(job, runner)))

    def _collect(self, job: _SparkJob, runner: Callable[[Iterable[int]], Iterator[bytes]]) -> list[bytes]:
        names = " and ".join(dict.fromkeys(task.name for task in job.tasks))
        try:
            context = self._context()
            if context is not None:
                context.addJobTag(self._tag)
                context.setLocalProperty("spark.jobGroup.id", self._tag)
                context.setLocalProperty("spark.job.description", self._described(job.tasks))
            count = len(job.tasks)
            self._submitted[0] += 1
            self._submitted[1] += count
            if context is not None:
                # Without a query to plan a job takes 60 ms less.
                return list(context.parallelize(range(count), count).mapPartitions(runner).collect())
            frame = self._spark.range(0, count, 1, count).mapInArrow(_over_batches(runner), "result binary")
            return [bytes(row[0]) for row in frame.collect()]
        except BaseException as error:
            raise explained(error, names) from error

    def merge(self, task: Task) -> TaskResult:
        job = self._job
        if job is None:
            raise RuntimeError("the executor has no job: call start first")
        merge = exchange.Merge.of(job, task)
        if not exchange.by_shuffle(merge, cluster=not self.is_local):
            return execute(job, task, lambda _: None)
        started = time.perf_counter()
        change = self._shuffled(job, task, merge)
        return exchange.report_of(job, task, change, started)

    def _shuffled(self, job: Job, task: Task, merge: exchange.Merge) -> Change:
        """Merge ranges of key hashes on the executors; what was found travels through Spark's shuffle."""
        parts = max(2, self.cores)
        folder = job.scratch / "exchange" / uuid.uuid4().hex
        folder.mkdir(parents=True)
        send, receive = _shuffle(self._key, self._data, task, parts, folder)
        try:
            context = self._context()
            if context is not None:
                context.addJobTag(self._tag)
                context.setLocalProperty("spark.jobGroup.id", self._tag)
                context.setLocalProperty("spark.job.description", self._described((task,)))
            self._submitted[0] += 1
            self._submitted[1] += 2 * parts
            sent = self._spark.range(0, parts, 1, parts).mapInArrow(send, exchange.PIECES)
            merged = sent.repartitionById(parts, "part").mapInArrow(receive, "result binary")
            rows = [bytes(row[0]) for row in merged.collect()]
        except Exception as error:
            raise explained(error, f"the exchange of {task.state}") from error
        return exchange.collect(merge, rows, parts, folder)

    def _described(self, tasks: Sequence[Task]) -> str:
        """What Spark's UI says of a job: program, log, pass and slices."""
        assert self._job is not None
        names = " and ".join(
            dict.fromkeys(f"{task.name} of {task.state}" if task.state else task.name for task in tasks)
        )
        first, last = min(task.first for task in tasks), max(task.last for task in tasks)
        slices = f"slice {first}" if first == last else f"slices {first} to {last}"
        return f"timelapse: {spec_of(self._job.program).name} over {_place(self._job.reader)}: {names}, {slices} of {self._job.slices}"

    def poll(self) -> None:
        try:
            names = {entry.name for entry in os.scandir(self._folder)}
        except OSError:
            return
        now = time.monotonic()
        look = now - self._heard >= _LOOK_SECONDS
        if look:
            self._heard = now
        for job in self._jobs:
            for task in job.open():
                if f"{task.id}.result" in names:
                    job.deliver(_read_result(self._folder / f"{task.id}.result"))
                elif look and f"{task.id}.n" in names:
                    events = _read_number(self._folder / f"{task.id}.n")
                    if events:
                        job.watch(task, events)
        self._jobs = [job for job in self._jobs if job.is_alive() or job.open()]

    def cancel(self) -> None:
        if isinstance(sys.exception(), KeyboardInterrupt):
            hush(self._spark)  # other cancellations are of single tasks: the run goes on
        context = self._context()
        deadline = time.monotonic() + _CANCEL_SECONDS
        while True:
            # Again and again: what was being submitted may only now have begun.
            with suppress(Exception):  # where Spark is gone nothing runs any more
                if context is not None:
                    context.cancelJobsWithTag(self._tag)
                else:
                    self._spark.interruptAll()
            for job in self._jobs:
                job.join(max(0.0, min(_REPORT_SECONDS, deadline - time.monotonic())))
            if not any(job.is_alive() for job in self._jobs) or time.monotonic() > deadline:
                return

    def _context(self) -> Any:
        try:
            return self._spark.sparkContext
        except Exception:
            return None


def _executors(context: Any) -> int | None:
    """How many executors the application has; on a local master the driver is the only one."""
    return max(1, len(found) - 1) if (found := _members(context)) else None


def _members(context: Any) -> list[tuple[str, str]]:
    """The application's driver and executors that are there, by id, and the machines that they are on; none where nobody can tell."""
    try:
        found = context._jsc.sc().statusStore().executorList(True)
        members = [found.apply(at) for at in range(found.size())]
        return [(one.id(), one.hostPort().rpartition(":")[0]) for one in members]
    except Exception:
        return []


def _place(reader: Any) -> str:
    return getattr(reader, "root", "events in memory")


class _SparkJob(threading.Thread):
    """A Spark job in a thread of its own, so that the driver can show progress, be stopped, and run others."""

    def __init__(
        self, tasks: Sequence[Task], done: Done, watch: Watch, collect: Callable[[_SparkJob], list[bytes]]
    ) -> None:
        super().__init__(name="timelapse-spark", daemon=True)
        self.tasks = tuple(tasks)
        self.watch = watch
        self._done = done
        self._collect = collect
        self._open = {task.id: task for task in tasks}
        self._lock = threading.Lock()
        self._began = time.perf_counter()
        self.start()

    def open(self) -> list[Task]:
        """The tasks without a result."""
        with self._lock:
            return list(self._open.values())

    def deliver(self, result: TaskResult | BaseException | None) -> None:
        """Hand over a task's first result; an error is that of all tasks that are open."""
        if result is None:
            return
        with self._lock:
            if isinstance(result, BaseException):
                gone, self._open = list(self._open.values()), {}
            else:
                task = self._open.pop(result.id, None)
                gone = [] if task is None else [task]
        for task in gone:
            self._done(task, result, time.perf_counter() - self._began)

    def run(self) -> None:
        try:
            for row in self._collect(self):
                self.deliver(decoded(row, TaskResult))
            left = self.open()
            if left:
                self.deliver(
                    ReplayError(f"Spark returned no result for {len(left)} of {len(self.tasks)} tasks")
                )
        except BaseException as error:
            self.deliver(error)


def _read_result(path: Path) -> TaskResult | None:
    try:
        return decoded(path.read_bytes(), TaskResult)
    except (OSError, msgspec.MsgspecError):
        return None  # not all of it is visible yet; Spark delivers it too


def _read_number(path: Path) -> int:
    try:
        return int(path.read_text() or 0)
    except (OSError, ValueError):
        return 0


def _runner(
    key: str, data: bytes, tasks: list[Task], folder: str
) -> Callable[[Iterable[int]], Iterator[bytes]]:
    def run(numbers: Iterable[int]) -> Iterator[bytes]:
        for number in numbers:
            task = tasks[number]
            with collected_rarely():  # the search that may follow is nothing to wait for
                result = task_bytes(execute(unpack(key, data), task, reporter(Path(folder) / f"{task.id}.n")))
                _publish(Path(folder) / f"{task.id}.result", result)
                leave_out_modules()
            yield result

    return run


def _over_batches(
    run: Callable[[Iterable[int]], Iterator[bytes]],
) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    """The same for Spark Connect, which has no other jobs than queries."""

    def over(batches: Batches) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for result in run(batch.column(0).to_pylist()):
                yield pa.RecordBatch.from_arrays([pa.array([result], pa.binary())], ["result"])

    return over


def _shuffle(
    key: str, data: bytes, task: Task, parts: int, folder: Path
) -> tuple[Callable[[Batches], Iterator[pa.RecordBatch]], Callable[[Batches], Iterator[pa.RecordBatch]]]:
    """What the two sides of the shuffle do: read and cut up, gather and merge."""

    def send(batches: Batches) -> Iterator[pa.RecordBatch]:
        merge = exchange.Merge.of(unpack(key, data), task)
        for batch in batches:
            for reader in batch.column(0).to_pylist():
                yield from exchange.send(merge, reader, parts, parts)

    def receive(batches: Batches) -> Iterator[pa.RecordBatch]:
        merge = exchange.Merge.of(unpack(key, data), task)
        for row in exchange.receive(merge, batches, parts, folder):
            yield pa.RecordBatch.from_arrays([pa.array([row], pa.binary())], ["result"])

    return send, receive


def _publish(path: Path, data: bytes) -> None:
    """Put a small file in its place, if the job still has one: everything that matters travels through Spark too."""
    with suppress(OSError):
        write_part(path, data)


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
            _publish(path, str(done).encode())

    return report
