"""Tasks under way: submits them, and hands over one result after the other."""

from __future__ import annotations

import queue
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from timelapse.engine.account import Account
from timelapse.engine.executor import Executor
from timelapse.engine.job import Job, Task, TaskResult
from timelapse.engine.resume import Finished
from timelapse.engine.stages import Stages
from timelapse.errors import Cancelled

_POLL_SECONDS = 0.02
_MERGE_THREADS = 4


class Loop:
    """One job's tasks. Whoever uses it closes it."""

    def __init__(self, job: Job, executor: Executor, stages: Stages, finished: Finished) -> None:
        self._job = job
        self._executor = executor
        self._stages = stages
        self._finished = finished
        self._queue: queue.SimpleQueue[tuple[Task, TaskResult | BaseException, float]] = queue.SimpleQueue()
        self._pool: ThreadPoolExecutor | None = None
        self.account = Account()
        self.compiled: dict[str, bool] = {}
        """For each pass that ran: whether all its tasks ran compiled."""
        self.why_python: dict[str, str] = {}
        """Why not, of those where only trying has shown it."""
        self.running = 0
        """Tasks on the executor."""
        self.merging = 0
        """Merges."""

    @property
    def free(self) -> int:
        """So many more tasks could run now."""
        return max(0, self._executor.cores - self.running)

    def submit(self, tasks: Sequence[Task]) -> None:
        """Start tasks on the executor."""
        if not tasks:
            return
        self.running += len(tasks)
        for task in tasks:
            self._stages.begin(task)
        done = {task.id: result for task in tasks if (result := self._finished.result(task)) is not None}
        try:
            for task in tasks:
                if task.id in done:
                    self._done(task, done[task.id], 0.0)
            left = [task for task in tasks if task.id not in done]
            if left:
                self._executor.submit(left, self._done, self._stages.advance)
        except KeyboardInterrupt:
            self._cancelled()

    def here(self, task: Task) -> None:
        """Run a merge beside the other tasks. Most run in this process: a Spark job takes longer."""
        self.merging += 1

        def work() -> None:
            began = time.perf_counter()
            try:
                result: TaskResult | BaseException = self._executor.merge(task)
            except BaseException as error:
                result = error
            self._done(task, result, time.perf_counter() - began)

        if not self._executor.remote:
            work()
            return
        if self._pool is None:
            self._pool = ThreadPoolExecutor(_MERGE_THREADS, thread_name_prefix="timelapse-merge")
        self._pool.submit(work)

    def _done(self, task: Task, result: TaskResult | BaseException, seconds: float) -> None:
        self._queue.put((task, result, seconds))

    def wait(self) -> tuple[Task, TaskResult]:
        """The next result. Raises what went wrong with the machinery, and Cancelled on Ctrl-C."""
        try:
            task, result, seconds = self._next()
        except KeyboardInterrupt:
            self._cancelled()
        if isinstance(result, BaseException):
            self._executor.cancel()
            raise result
        if task.kind == "merge":
            self.merging -= 1
        else:
            self.running -= 1
            self._stages.end(task)
            if not result.seconds:  # it was done by a replay that was killed
                return task, result
            name = "final" if task.kind.startswith("final") else task.name
            self.compiled[name] = self.compiled.get(name, True) and result.compiled
            if result.why_python:
                self.why_python.setdefault(name, result.why_python)
        self.account.task(result.seconds, seconds)
        return task, result

    def _next(self) -> tuple[Task, TaskResult | BaseException, float]:
        while True:
            try:
                return self._queue.get(timeout=_POLL_SECONDS)
            except queue.Empty:
                self._executor.poll()

    def _cancelled(self) -> None:
        self._executor.cancel()
        raise Cancelled(
            f"cancelled during {self._stages.current}; its tasks were stopped and nothing was published",
            hint="run the same command again to start over",
        ) from None

    def close(self) -> None:
        """Wait for what runs in this process."""
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
