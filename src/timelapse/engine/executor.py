"""Who runs tasks: the interface, and the executor that runs them one after the other in this process."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Protocol

from timelapse.engine.job import Job, Task, TaskResult
from timelapse.engine.progress import Progress
from timelapse.engine.tasks import execute


class Executor(Protocol):
    """Runs independent tasks, in any order and on any machine."""

    @property
    def cores(self) -> int:
        """How many tasks run at a time."""

    @property
    def text(self) -> str:
        """What it is, for people."""

    def start(self, job: Job) -> None:
        """The job whose tasks follow."""

    def run(self, stage: str, tasks: Sequence[Task], progress: Progress) -> list[TaskResult]:
        """Run the tasks; results in the order of tasks.

        Raises Cancelled when the user stops it, ReplayError when the machinery fails. A handler's
        exception is part of its task's result.
        """

    def close(self) -> None:
        """Release what `start` took."""


class LocalExecutor:
    """Runs tasks in this process, one by one: for small logs and for tests."""

    cores = 1
    text = "in process"

    def __init__(self) -> None:
        self._job: Job | None = None

    def start(self, job: Job) -> None:
        self._job = job

    def close(self) -> None:
        self._job = None

    def run(self, stage: str, tasks: Sequence[Task], progress: Progress) -> list[TaskResult]:
        job = self._job
        if job is None:
            raise RuntimeError("the executor has no job: call start first")
        total = sum(task.events for task in tasks)
        done = 0

        def report(events: int) -> None:
            nonlocal done
            done += events
            progress.advance(stage, done, total)

        progress.stage(stage, total)
        started = time.perf_counter()
        results = [execute(job, task, report) for task in tasks]
        progress.finish(stage, time.perf_counter() - started)
        return results
