"""Costs of the simulation, from measured runs on one executor.

Tasks and merges share a machine with each other while they are measured. How much work each of them is, is found by playing the same
rule backwards that the simulation plays forwards (`simulate.pace`): what took a second beside another on the same core is half a second's
work.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from benchmarks.simulate import Costs, Curve, pace


@dataclass(frozen=True)
class TaskSeen:
    """A task of a measured run: what `benchmarks/rivals/replay_spark.py` notes of it."""

    kind: str
    stage: int
    first: int
    last: int
    events: int
    inside: float
    """Its own seconds."""
    load: float
    """Of them taking over start states."""
    waited: float
    """Seconds for who waited for it: with Spark's part."""
    rows: int
    """Rows that it says its slices change, over all states."""
    ended: float
    """When its result came, in seconds since the first was waited for."""
    cpu: float = 0.0
    """Processor seconds of a merge in the driver."""

    @property
    def began(self) -> float:
        return self.ended - self.inside

    @property
    def submitted(self) -> float:
        return self.ended - self.waited


@dataclass(frozen=True)
class RunSeen:
    """A measured run on one executor."""

    events: int
    slices: int
    seconds: float
    tasks: tuple[TaskSeen, ...]
    cpu: float | None = None
    """Processor seconds of all its processes but the workers of its executors."""
    cuts: tuple[int, ...] = ()
    """Where its slices begin and end; (): they are alike."""

    def before(self, slice_id: int) -> float:
        """Events before a slice."""
        if not self.cuts:
            return self.events / self.slices * slice_id
        return self.cuts[slice_id] - self.cuts[0]

    @property
    def works(self) -> int:
        """Tasks of the executor."""
        return sum(task.kind != "merge" for task in self.tasks)


def works_of(run: RunSeen, cores: int, crowd: float) -> list[float]:
    """For each task of a run the seconds of work that it is, where so many cores were shared by all of them."""
    times = sorted({time for task in run.tasks for time in (task.began, task.ended)})
    found = [0.0] * len(run.tasks)
    for a, b in itertools.pairwise(times):
        active = [n for n, task in enumerate(run.tasks) if task.began <= a and b <= task.ended]
        for n in active:
            found[n] += (b - a) * pace(len(active), cores, crowd)
    return found


def at_once(run: RunSeen) -> list[TaskSeen]:
    """Tasks for which the executor was free when they were submitted: no other ran until they did."""
    tasks = [task for task in run.tasks if task.kind != "merge"]
    return [
        task
        for task in tasks
        if not any(one.began < task.began and one.ended > task.submitted for one in tasks if one is not task)
    ]


def busy(run: RunSeen) -> float:
    """Seconds in which any of its tasks or merges ran, or one was on its way to an executor that was free."""
    sent = {id(task) for task in at_once(run)}
    spans = sorted((t.submitted if id(t) in sent else t.began, t.ended) for t in run.tasks)
    end, found = -math.inf, 0.0
    for began, ended in spans:
        found += max(0.0, ended - max(end, began))
        end = max(end, ended)
    return found


def costs_of(runs: Sequence[RunSeen], stages: int, states: int, cores: int, crowd: float = 1.0) -> Costs:
    """Costs from runs on one executor: of one slice, and of several. Medians, so that one bad moment does not count.

    Executor and driver shared `cores` cores; `crowd` is what was measured apart from these runs (`benchmarks/crowding.py`). What a task
    takes beside its work, and a run beside its tasks, is fitted to the time in which no task and no merge ran, and none was on its way. Raises ValueError where a
    kind of task is missing.
    """
    alone = [run for run in runs if run.slices == 1]
    several = [run for run in runs if run.slices > 1]
    if not alone or not several:
        raise ValueError("costs need a run in one slice and one in several")
    work = {id(run): works_of(run, cores, crowd) for run in runs}
    tasks = [(run, t, own) for run in several for t, own in zip(run.tasks, work[id(run)], strict=True)]
    finals = [(t, own * (1 - t.load / t.inside)) for _, t, own in tasks if t.kind == "final" and t.events]
    passes = tuple(
        _curve((t, own) for _, t, own in tasks if t.kind in ("pass", "chain") and t.stage == n and t.events)
        for n in range(stages)
    )
    one = _curve(
        (t, own)
        for run in alone
        for t, own in zip(run.tasks, work[id(run)], strict=True)
        if t.kind.startswith("final") and t.events
    )
    keys = _keys(alone, several)
    beside, task = _line(runs, [run.seconds - busy(run) for run in runs])
    start = statistics.median(t.waited - t.inside for run in runs for t in at_once(run))
    later = [(t, own) for t, own in finals if t.first]
    made = Costs(
        passes, _curve((t, own) for t, own in finals if not t.first), one, task, 0.0, 0.0, beside, keys, states,
        later=_curve(later) if later else None, start=max(0.0, start), crowd=crowd,
    )  # fmt: skip
    loads, merges = [], []
    for run, t, own in tasks:
        if t.kind == "final" and t.first:
            rows = min(made.rows(run.before(t.first)), made.rows(t.events))
            loads.append(own * t.load / t.inside / rows if rows else 0.0)
        if t.kind == "merge":
            rows = made.rows(run.before(t.last + 1)) / states
            merges.append(own / rows if rows else 0.0)
    single = statistics.median(run.seconds - sum(t.inside for t in run.tasks) for run in alone)
    known = _least([(run, run.cpu - sum(t.cpu for t in run.tasks)) for run in runs if run.cpu is not None])
    driver = max(0.0, _line(*zip(*known, strict=True))[1] - task) if known else 0.0
    return replace(
        made,
        load=statistics.median(loads) if loads else 0.0,
        merge=statistics.mean(merges) if merges else 0.0,
        single=max(0.0, single),
        driver=driver,
    )


def _curve(found: Iterable[tuple[TaskSeen, float]]) -> Curve:
    """By the events of a slice: of a task that takes several, one after the other, each has its price."""
    return Curve.of((t.events / (t.last - t.first + 1), work / t.events) for t, work in found)


def _least(spent: Iterable[tuple[RunSeen, float]]) -> list[tuple[RunSeen, float]]:
    """Of runs that are alike the one beside whose work least was spent: in the others Java compiled, or collected its garbage."""
    found: dict[tuple[int, int, int], tuple[RunSeen, float]] = {}
    for run, beside in spent:
        sort = run.events, run.slices, run.works
        if sort not in found or beside < found[sort][1]:
            found[sort] = run, beside
    return list(found.values())


def _line(runs: Sequence[RunSeen], extra: Sequence[float]) -> tuple[float, float]:
    """What a run takes, and each of its tasks, where these runs took so much: by least squares."""
    counts = [float(run.works) for run in runs]
    mx, my = statistics.mean(counts), statistics.mean(extra)
    spread = sum((x - mx) ** 2 for x in counts)
    task = sum((x - mx) * (y - my) for x, y in zip(counts, extra, strict=True)) / spread if spread else 0.0
    task = min(max(task, 0.0), max(my / mx, 0.0)) if mx else 0.0
    return max(0.0, my - task * mx), task


def heaps(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """a and b of rows = a * events ** b; through one point alone, b is 1."""
    sizes = sorted({events for events, _ in points})
    if len(sizes) < 2:
        events, rows = points[0] if points else (1.0, 0.0)
        return (rows / events if events else 0.0, 1.0)
    xs = [math.log(events) for events, _ in points]
    ys = [math.log(rows) for _, rows in points]
    mx, my = statistics.mean(xs), statistics.mean(ys)
    b = sum((x - mx) * (y - my) for x, y in zip(xs, ys, strict=True)) / sum((x - mx) ** 2 for x in xs)
    b = min(1.0, max(0.0, b))
    return math.exp(my - b * mx), b


def _keys(alone: Sequence[RunSeen], several: Sequence[RunSeen]) -> tuple[float, float]:
    """How rows grow: as in one pass over logs of two sizes; how many there are: as slices say, which count also what is undone again."""
    whole, first = (
        [(t.events, t.rows) for run in runs for t in run.tasks if _is_first(t)] for runs in (alone, several)
    )
    a, b = heaps(whole)
    return (statistics.median(rows / events**b for events, rows in first) if first else a), b


def _is_first(task: TaskSeen) -> bool:
    """Whether it tells what a first slice leaves; of several slices that a task took together, nobody knows."""
    return task.kind.startswith("final") and task.first == 0 == task.last and task.rows > 0
