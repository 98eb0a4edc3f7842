"""Who runs tasks: the interface, and the executor that runs them one after the other in this process."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from timelapse.engine.job import Job, Task, TaskResult
from timelapse.engine.tasks import execute

Done = Callable[[Task, "TaskResult | BaseException", float], None]
"""Called for each task with its result, more than once if need be, or with what went wrong with the machinery, and the seconds it took
as seen from here. May be called from any thread."""
Watch = Callable[[Task, int], None]
"""Called from the driver's thread with a task and its number of events done so far."""


class Executor(Protocol):
    """Runs independent tasks, in any order and on any machine, as often as it likes: attempts at one task have nothing in common but
    what they read. With `Done` it is all that the driver knows of other processes and of the network between them.
    """

    @property
    def cores(self) -> int:
        """How many tasks run at a time."""

    @property
    def remote(self) -> bool:
        """Whether tasks run beside the driver, which then need not wait for one to go on."""

    @property
    def threads(self) -> int:
        """How many cores a task may use that runs alone."""

    @property
    def spreads(self) -> bool:
        """Whether a task that hangs may run better elsewhere: tasks run in several processes."""

    @property
    def queues(self) -> bool:
        """Whether tasks may be submitted before a core is free for them: it begins them by itself then, in the order in which they came."""

    @property
    def pinned(self) -> bool:
        """Whether all tasks run on it, also where threads of this process would be quicker."""

    @property
    def text(self) -> str:
        """What it is, for people."""

    def counted(self) -> dict[str, Any]:
        """What a cluster did since `start`: application, executors, jobs, tasks; empty for this process."""

    def start(self, job: Job) -> None:
        """The job whose tasks follow."""

    def submit(self, tasks: Sequence[Task], done: Done, watch: Watch) -> None:
        """Run the tasks. Returns at once, or when they are done. A handler's exception is part of its result."""

    def merge(self, task: Task) -> TaskResult:
        """Do a merge, wherever it is done best. May be called from any thread."""

    def poll(self) -> None:
        """Tell `watch` and `done` what is new."""

    def cancel(self) -> None:
        """Stop what runs; returns when it has stopped, or after some seconds."""

    def close(self) -> None:
        """Release what `start` took."""


class OwnProcess:
    """What executors share whose tasks run in this process. `threads` is how many cores it may use, `text` where it is, for people."""

    def __init__(self, threads: int, text: str) -> None:
        self._threads = threads
        self._text = text
        self._job: Job | None = None

    @property
    def threads(self) -> int:
        return self._threads

    @property
    def text(self) -> str:
        return self._text

    pinned = False
    spreads = False
    queues = False

    def counted(self) -> dict[str, Any]:
        return {}

    def start(self, job: Job) -> None:
        self._job = job

    def close(self) -> None:
        self._job = None

    def merge(self, task: Task) -> TaskResult:
        return execute(self._need(), task, lambda _: None)

    def _need(self) -> Job:
        if self._job is None:
            raise RuntimeError("the executor has no job: call start first")
        return self._job


class LocalExecutor(OwnProcess):
    """Runs tasks in this process, one by one: for small logs, for tests, and where there is a single task.

    `threads` is how many cores a task may use for itself.
    """

    cores = 1
    remote = False

    def __init__(self, threads: int = 1, text: str = "in process") -> None:
        super().__init__(threads, text)

    def submit(self, tasks: Sequence[Task], done: Done, watch: Watch) -> None:
        job = self._need()
        for task in tasks:
            began = time.perf_counter()
            events = 0

            def report(more: int, task: Task = task) -> None:
                nonlocal events
                events += more
                watch(task, events)

            result = execute(job, task, report)
            done(task, result, time.perf_counter() - began)

    def poll(self) -> None:
        """Nothing runs beside the driver."""

    def cancel(self) -> None:
        """Nothing runs beside the driver."""


def suitable(executor: Executor, *, staged: bool, unlocked: bool = False) -> Executor:
    """Who runs a plan best: threads of this process where that is what there is, and all passes leave the interpreter's lock alone.

    A single task runs by itself, and has the process's cores. A Spark session runs all its tasks.
    """
    if executor.pinned or executor.threads < 2 or not staged or not unlocked:
        return executor
    from timelapse.engine.thread_executor import ThreadExecutor

    return ThreadExecutor(executor.threads, f"{executor.text}, tasks in the driver")
