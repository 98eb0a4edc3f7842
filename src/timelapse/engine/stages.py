"""Progress by stage, where tasks of several stages run at the same time."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from timelapse.engine.job import Task
from timelapse.progress import Progress


@dataclass
class _Stage:
    total: int
    began: float
    done: dict[int, int] = field(default_factory=dict)
    running: int = 0
    ended: float = 0.0


class Stages:
    """Tells a listener how far the stages are, from what is known of tasks. One thread calls it."""

    def __init__(
        self,
        listener: Progress,
        totals: Mapping[str, int],
        steps: Callable[[Task], int] = lambda task: task.events,
    ) -> None:
        """`totals`: how many steps each stage will process in all, as far as it is known. `steps`: those of a task,
        its events and ticks."""
        self._listener = listener
        self._totals = totals
        self._steps = steps
        self._stages: dict[str, _Stage] = {}

    @property
    def current(self) -> str:
        """The stages that have tasks under way, or else the one that began last."""
        running = [name for name, stage in self._stages.items() if stage.running]
        return " and ".join(running or list(self._stages)[-1:]) or "preparation"

    def begin(self, task: Task) -> None:
        """A task begins."""
        stage = self._stages.get(task.name)
        if stage is None:
            total = self._totals.get(task.name, self._steps(task))
            stage = self._stages[task.name] = _Stage(total, time.perf_counter())
            self._listener.stage(task.name, total)
        stage.running += 1

    def advance(self, task: Task, events: int) -> None:
        """So many events of a task are done."""
        stage = self._stages[task.name]
        if events != stage.done.get(task.id, 0):
            stage.done[task.id] = events
        self._listener.advance(task.name, min(sum(stage.done.values()), stage.total), stage.total)

    def end(self, task: Task) -> None:
        """A task has ended."""
        stage = self._stages[task.name]
        stage.running -= 1
        stage.done[task.id] = self._steps(task)
        stage.ended = time.perf_counter()
        if sum(stage.done.values()) >= stage.total and not stage.running:
            self._listener.finish(task.name, stage.ended - stage.began)

    def seconds(self) -> dict[str, float]:
        """For each stage the time from its first task's beginning to its last one's end."""
        return {name: stage.ended - stage.began for name, stage in self._stages.items()}
