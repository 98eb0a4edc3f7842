"""Tasks that are submitted before a core is free for them: which, what they are said to take, and the same bits."""

from __future__ import annotations

import queue
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest

from tests.engine.programs import A, B, Chained
from tests.engine.test_schedule import SHAPES, Recording, led
from tests.patience import LONG
from timelapse.engine import spark_executor
from timelapse.engine.executor import Done, Watch
from timelapse.engine.job import Task, TaskResult
from timelapse.engine.loop import Loop
from timelapse.engine.world import World
from timelapse.log import MemoryLog
from timelapse.plan.schedule import Schedule, Step
from timelapse.run import run_serial

T = TypeVar("T")


class Clock:
    """Tells what it is told."""

    time = 0.0

    def now(self) -> float:
        return self.time

    def wait(self, arrivals: queue.SimpleQueue[T], seconds: float) -> T:
        return arrivals.get_nowait()


class Queueing(Recording):
    """Two cores, and room for tasks that wait for one."""

    cores = 2
    queues = True

    def __init__(self) -> None:
        super().__init__()
        self.together: list[list[tuple[str, int]]] = []
        self.waiting: list[tuple[Task, Done, Watch]] = []
        self.slow = False

    def submit(self, tasks: Sequence[Task], done: Done, watch: Watch) -> None:
        self.together.append([(task.kind, task.first) for task in tasks])
        if self.slow:
            self.waiting += [(task, done, watch) for task in tasks]
        else:
            super().submit(list(tasks), done, watch)


class Told:
    """What the loop says of stages."""

    current = ""

    def __init__(self) -> None:
        self.seen: list[tuple[str, int]] = []

    def begin(self, task: Task) -> None:
        self.seen.append(("begin", task.id))

    def end(self, task: Task) -> None:
        self.seen.append(("end", task.id))

    def advance(self, task: Task, events: int) -> None:
        self.seen.append(("advance", task.id))


def looping() -> tuple[Loop, Queueing, Told, Clock]:
    executor, told, clock = Queueing(), Told(), Clock()
    executor.slow = True
    finished: Any = SimpleNamespace(result=lambda task: None)
    stages: Any = told
    return Loop(executor, stages, finished, World(clock=clock)), executor, told, clock


def test_what_comes_next_in_any_case_is_submitted_with_what_begins(tmp_path: Path) -> None:
    events = [A(k=i % 3, v=i % 2, s="a", ts=i) for i in range(24)]
    log, executor = MemoryLog(events, [A, B]), Queueing()
    run = led(Chained, log, 4, 0, tmp_path / "run", executor)
    assert executor.together[0] == [("pass", 0), ("pass", 1), ("pass", 2), ("pass", 0)]
    assert run.digest == run_serial(Chained, log).digest
    assert run.certificate["fallback"] is None


def test_nothing_is_submitted_early_that_something_more_urgent_may_still_overtake() -> None:
    schedule = Schedule(SHAPES[:1], 3, 1)
    first = schedule.following()
    assert first == Step("final", -1, 0, 0)
    schedule.take(first)
    second = schedule.following()
    assert second == Step("pass", 0, 1, 1)  # its start may be unknown, it needs none
    schedule.take(second)
    assert schedule.following() is None  # the final pass over slice 1 waits for the start of it
    schedule.done(first)
    for name, _ in schedule.mergeable():
        schedule.merged(name)
    assert schedule.following() == Step("final", -1, 1, 1)


def test_a_task_takes_the_time_since_a_core_was_free_for_it() -> None:
    loop, executor, told, clock = looping()
    tasks = [Task(number, "pass", "a", first=number, events=10) for number in (1, 2, 3)]
    loop.submit(tasks)
    assert (loop.free, loop.room, loop.running) == (0, 1, 3)
    assert told.seen == [("begin", 1), ("begin", 2)]
    clock.time = 10.0
    executor.waiting[0][1](tasks[0], TaskResult(1, seconds={"kernel": 10.0, "total": 10.0}), 10.0)
    assert loop.wait()[0] == tasks[0]
    assert told.seen[2:] == [("begin", 3), ("end", 1)]
    assert (loop.free, loop.room) == (0, 2)
    clock.time = 14.0
    executor.waiting[2][1](tasks[2], TaskResult(3, seconds={"kernel": 4.0, "total": 4.0}), 14.0)
    assert loop.wait()[0] == tasks[2]
    assert loop.free == 1
    assert loop.account.close(14.0, 2) == {"kernel": 14.0, "idle": 14.0}


@pytest.mark.parametrize(("remote", "rest"), [(True, "spark"), (False, "idle")])
def test_what_a_task_took_beside_its_work_is_sparks_only_where_it_ran_there(remote: bool, rest: str) -> None:
    loop, executor, _, clock = looping()
    executor.remote = remote
    task = Task(1, "pass", "a", first=1, events=10)
    loop.submit([task])
    clock.time = 5.0
    executor.waiting[0][1](task, TaskResult(1, seconds={"kernel": 2.0, "total": 3.0}), 5.0)
    loop.wait()
    found = loop.account.close(5.0, 1)
    assert (found["kernel"], found["write"], found[rest]) == (2.0, 1.0, 2.0)
    assert len(found) == 3


def test_a_task_that_is_heard_of_has_begun() -> None:
    """A cluster may have more cores than it said, and tell of them in another order."""
    loop, executor, told, _ = looping()
    tasks = [Task(number, "pass", "a", first=number, events=10) for number in (1, 2, 3, 4)]
    loop.submit(tasks)
    executor.waiting[3][2](tasks[3], 5)
    executor.waiting[2][1](tasks[2], TaskResult(3), 1.0)
    assert loop.wait()[0] == tasks[2]
    assert told.seen[2:] == [("begin", 4), ("advance", 4), ("begin", 3), ("end", 3)]


def test_java_is_asked_for_its_cores_once_in_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each look of the driver wants to know them."""
    asked: list[int] = []

    class Context:
        @property
        def defaultParallelism(self) -> int:
            asked.append(1)
            return 2 + len(asked)

    now = [100.0]
    monkeypatch.setattr(spark_executor, "workers_python", lambda spark: None)
    monkeypatch.setattr(spark_executor, "time", SimpleNamespace(monotonic=lambda: now[0]))
    session: Any = SimpleNamespace(sparkContext=Context())
    executor = spark_executor.SparkExecutor(session)
    assert [executor.cores for _ in range(50)] == [3] * 50
    now[0] += 1.5
    assert executor.cores == 4
    assert len(asked) == 2


_SEARCHES = """
import gc, sys, types, weakref
from timelapse.env.garbage import leave_out_modules
class Loop: pass
one = Loop(); one.it = one
gone = weakref.ref(one)
del one
leave_out_modules()
left_out = gc.get_freeze_count()
assert left_out > 1000 and gone() is None
more = [Loop() for _ in range(1000)]
leave_out_modules()
assert gc.get_freeze_count() <= left_out
sys.modules.update((f"made{n}", types.ModuleType(f"made{n}")) for n in range(100))
leave_out_modules()
assert gc.get_freeze_count() > left_out
"""


def test_searches_leave_out_what_modules_brought_once_they_are_many() -> None:
    found = subprocess.run(
        [sys.executable, "-c", _SEARCHES], capture_output=True, text=True, check=False, timeout=LONG
    )
    assert found.returncode == 0, found.stderr
