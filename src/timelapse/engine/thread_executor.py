"""Runs tasks side by side in threads of this process: for passes that are machine code, which leaves the interpreter's lock alone.

Nothing is shipped and no worker process has to load what this one has loaded already. The tasks are the same as
anywhere else, and so are the files through which they talk.
"""

from __future__ import annotations

import contextvars
import threading
import time
from collections.abc import Sequence

from timelapse.engine.executor import Done, OwnProcess, Watch
from timelapse.engine.job import Job, Task, TaskResult
from timelapse.engine.tasks import execute

_STOP_SECONDS = 10.0
"""How long `cancel` waits for tasks to notice. They look after each piece of a batch, but not while they write."""


class _Stopped(BaseException):
    """The task was told to stop. No handler catches it as an error of its own."""


class ThreadExecutor(OwnProcess):
    """Runs up to `threads` tasks at a time. `text`: where, for people."""

    remote = True

    def __init__(self, threads: int, text: str) -> None:
        super().__init__(threads, text)
        self._running: list[_Running] = []

    @property
    def cores(self) -> int:
        return self._threads

    def close(self) -> None:
        """What still runs after an error is told to stop, and waited for."""
        self.cancel()
        super().close()

    def submit(self, tasks: Sequence[Task], done: Done, watch: Watch) -> None:
        self._running += [_Running(self._need(), task, done, watch) for task in tasks]

    def poll(self) -> None:
        for one in self._running:
            one.tell()
        self._running = [one for one in self._running if one.is_alive()]

    def cancel(self) -> None:
        deadline = time.monotonic() + _STOP_SECONDS
        for one in self._running:
            one.stop()
        for one in self._running:
            one.join(max(0.0, deadline - time.monotonic()))
        self._running = []


class _Running(threading.Thread):
    """One task. It sees the context variables of who submitted it, as it would in one thread."""

    def __init__(self, job: Job, task: Task, done: Done, watch: Watch) -> None:
        super().__init__(name=f"timelapse-task-{task.id}", daemon=True)
        self._job, self._task, self._done, self._watch = job, task, done, watch
        self._seen = contextvars.copy_context()
        self._events = self._told = 0
        self._ending = False
        self.start()

    def run(self) -> None:
        began = time.perf_counter()
        try:
            result: TaskResult | BaseException = self._seen.run(execute, self._job, self._task, self._report)
        except BaseException as error:
            result = error
        self._done(self._task, result, time.perf_counter() - began)

    def _report(self, events: int) -> None:
        if self._ending:
            raise _Stopped
        self._events += events

    def stop(self) -> None:
        """Have it end soon."""
        self._ending = True

    def tell(self) -> None:
        """Tell who watches how far it is, if that is further than before."""
        events = self._events
        if events != self._told:
            self._told = events
            self._watch(self._task, events)
