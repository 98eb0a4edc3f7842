"""Tasks under way: submits them, begins those again that hang, and hands over one result after the other."""

from __future__ import annotations

import queue
import statistics
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import NamedTuple, NoReturn

import msgspec

from timelapse.engine.account import Account
from timelapse.engine.executor import Executor
from timelapse.engine.job import Task, TaskResult
from timelapse.engine.resume import Finished
from timelapse.engine.stages import Stages
from timelapse.engine.world import REAL, World
from timelapse.errors import Cancelled

_POLL_SECONDS = 0.02
_MERGE_THREADS = 4
_SECOND = 1_000_000_000
"""Numbers of second attempts begin here: the driver counts its tasks from 1."""


class Work(NamedTuple):
    """What a task does, whoever does it, and how often."""

    kind: str
    number: int
    first: int
    last: int
    part: int

    @classmethod
    def of(cls, task: Task) -> Work:
        return cls(task.kind, task.index, task.first, task.last, task.part)


@dataclass
class _Open:
    """Work whose result is awaited: its task, and the attempts that run."""

    task: Task
    began: float
    attempts: set[int] = field(default_factory=set)


class Loop:
    """One job's tasks. Whoever uses it closes it.

    Of all attempts at the same work the first result counts; later ones, and those that come twice, are dropped.
    """

    def __init__(self, executor: Executor, stages: Stages, finished: Finished, world: World = REAL) -> None:
        self._executor = executor
        self._stages = stages
        self._finished = finished
        self._clock, self._straggling = world.clock, world.straggling
        self._queue: queue.SimpleQueue[tuple[Task, TaskResult | BaseException, float]] = queue.SimpleQueue()
        self._pool: ThreadPoolExecutor | None = None
        self._open: dict[Work, _Open] = {}
        self._busy: set[int] = set()
        """Tasks on the executor, those included whose work is done."""
        self._queued: list[Task] = []
        """Those among them that wait for a core."""
        self._merges: set[int] = set()
        self._took: dict[str, list[float]] = {}
        """By pass the seconds that its tasks took for an event."""
        self.account = Account()
        self.compiled: dict[str, bool] = {}
        """For each pass that ran: whether all its tasks ran compiled."""
        self.why_python: dict[str, str] = {}
        """Why not, of those where only trying has shown it."""
        self.again = 0
        """So many tasks were begun a second time."""

    @property
    def running(self) -> int:
        """Tasks whose result is awaited."""
        return len(self._open)

    @property
    def merging(self) -> int:
        """Merges whose result is awaited."""
        return len(self._merges)

    @property
    def free(self) -> int:
        """So many more tasks could run now."""
        return max(0, self._executor.cores - len(self._busy))

    @property
    def room(self) -> int:
        """So many more tasks may be submitted that begin when a core is free, without the time that it takes to hear of it and to submit them."""
        return max(0, self._executor.cores - len(self._queued)) if self._executor.queues else 0

    def submit(self, tasks: Sequence[Task]) -> None:
        """Start tasks on the executor. Those for which no core is free wait there."""
        if not tasks:
            return
        now = self._clock.now()
        for task in tasks:
            self._open[Work.of(task)] = _Open(task, now, {task.id})
        done = {task.id: result for task in tasks if (result := self._finished.result(task)) is not None}
        try:
            free = self.free
            for task in tasks:
                if task.id in done:
                    self._stages.begin(task)
                    self._done(task, done[task.id], 0.0)
                elif free:
                    self._stages.begin(task)
                    free -= 1
                else:
                    self._queued.append(task)
            self._start([task for task in tasks if task.id not in done])
        except KeyboardInterrupt:
            self._cancelled()

    def _start(self, tasks: Sequence[Task]) -> None:
        if tasks:
            self._busy |= {task.id for task in tasks}
            self._executor.submit(tasks, self._done, self._advance)

    def _advance(self, task: Task, events: int) -> None:
        self._begun(task)
        self._stages.advance(task, events)

    def _begun(self, task: Task) -> None:
        """A task runs: if it is one that waited for a core, it does no more."""
        if task in self._queued:
            self._queued.remove(task)
            self._open[Work.of(task)].began = self._clock.now()
            self._stages.begin(task)

    def here(self, task: Task) -> None:
        """Run a merge beside the other tasks. Most run in this process: a Spark job takes longer."""
        self._merges.add(task.id)

        def work() -> None:
            began = self._clock.now()
            try:
                result: TaskResult | BaseException = self._executor.merge(task)
            except BaseException as error:
                result = error
            self._done(task, result, self._clock.now() - began)

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
        while True:
            try:
                task, result, seconds = self._next()
            except KeyboardInterrupt:
                self._cancelled()
            if task.kind == "merge":
                if task.id not in self._merges:
                    continue
                self._merges.discard(task.id)
                if isinstance(result, BaseException):
                    self._failed(result)
                self._account_for(result, seconds)
                return task, result
            self._busy.discard(task.id)
            if not isinstance(result, BaseException):
                self._begun(task)
            while self._queued and len(self._busy) - len(self._queued) < self._executor.cores:
                self._begun(self._queued[0])
            work = Work.of(task)
            found = self._open.get(work)
            if found is None or task.id not in found.attempts:
                continue  # another attempt was first, or it comes a second time
            if isinstance(result, BaseException):
                found.attempts.discard(task.id)
                if found.attempts:
                    continue  # the other may do it
                self._failed(result)
            del self._open[work]
            self._ended(found.task, result, min(seconds, self._clock.now() - found.began))
            return found.task, result

    def _failed(self, error: BaseException) -> NoReturn:
        self._executor.cancel()
        raise error

    def _ended(self, task: Task, result: TaskResult, seconds: float) -> None:
        self._stages.end(task)
        if not result.seconds:  # it was done by a replay that was killed
            return
        name = "final" if task.kind.startswith("final") else task.name
        self.compiled[name] = self.compiled.get(name, True) and result.compiled
        if result.why_python:
            self.why_python.setdefault(name, result.why_python)
        self._took.setdefault(task.name, []).append(seconds / max(1, task.events))
        self._account_for(result, seconds)

    def _account_for(self, result: TaskResult, waited: float) -> None:
        """Without Spark, what a task took more than it knows of is the wait for a core or a thread: idle."""
        inside = result.seconds.get("total", waited)
        self.account.task(result.seconds, waited if self._executor.remote else inside)

    def _next(self) -> tuple[Task, TaskResult | BaseException, float]:
        while True:
            try:
                return self._clock.wait(self._queue, _POLL_SECONDS)
            except queue.Empty:
                self._executor.poll()
                self._start(self._stragglers())

    def _stragglers(self) -> list[Task]:
        """Tasks that hang, each as another attempt at the same, where there is room for them elsewhere."""
        room, now, when = self.free, self._clock.now(), self._straggling
        if not room or not self._executor.spreads:
            return []
        found = []
        for one in self._open.values():
            others = self._took.get(one.task.name, ())
            if one.task.again or len(one.attempts) > 1 or len(others) < when.others:
                continue
            usual = statistics.median(others) * max(1, one.task.events)
            if now - one.began > max(when.seconds, when.factor * usual):
                found.append(one)
        tasks = []
        for one in found[:room]:
            self.again += 1
            task = msgspec.structs.replace(one.task, id=_SECOND + one.task.id, again=1)
            one.attempts.add(task.id)
            tasks.append(task)
        return tasks

    def _cancelled(self) -> None:
        self._executor.cancel()
        raise Cancelled(
            f"cancelled during {self._stages.current}; its tasks were stopped and nothing was published",
            hint="run the same command again to start over",
        ) from None

    def close(self) -> None:
        """Wait for what runs in this process, and stop attempts whose work another one did."""
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
        if self._busy and not self._open:
            self._executor.cancel()
