"""A replay on machines that are not there: the driver's own schedule, played through with measured costs.

What may run when is decided by `timelapse.plan.schedule.Schedule`, the object that the driver itself asks. What things take was measured
on one executor (`Costs`). Added are what one machine cannot show: effects and start states that travel, tasks that take longer than others,
machines that die. The same seed gives the same run.
"""

from __future__ import annotations

import heapq
import itertools
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from timelapse.plan.schedule import Schedule, Shape, Step

MERGES = 4
"""Merges that the driver does at a time (engine/loop.py)."""
SHUFFLED_BYTES = 1 << 30
"""From this size on a merge is shared out among the executors (engine/exchange.py)."""
ROW_BYTES = 40
"""A row of a state or of its effects as it travels: hash, key, value."""


@dataclass(frozen=True)
class Costs:
    """Seconds, as they were measured on one executor with one core."""

    stages: tuple[float, ...]
    """Per event, of each pass that finds start states."""
    final: float
    """Per event, of the final pass."""
    one: float
    """Per event, of one pass over everything on one core: the single-thread line."""
    task: float
    """Of each task beside its work: shipped, scheduled, its result collected."""
    load: float
    """Per row of a start state that a final pass takes over."""
    merge: float
    """Per row of the state that a merge writes."""
    whole: float
    """Of each replay beside its tasks: analysis, plan, job, publishing."""
    keys: tuple[float, float] = (1.0, 1.0)
    """Rows that n events leave: a * n ** b (Heaps' law), over all states."""
    states: int = 1
    single: float | None = None
    """Of a replay in one pass beside its events; None: a run's and a task's."""
    driver: float = 0.0
    """Processor seconds that the driver and Spark's Java processes spend for each task beside it."""

    def rows(self, events: float) -> float:
        """Rows of all states after so many events."""
        a, b = self.keys
        return min(a * events**b, events * self.states) if events > 0 else 0.0


@dataclass(frozen=True)
class World:
    """The machines. `bandwidth`: bytes per second into each. What is 0 does not happen."""

    hosts: int
    cores: int = 1
    bandwidth: float = 1.25e9
    shared: int | None = None
    """Cores of one machine that the hosts and the driver are on, as where it is measured; None: each has its own."""
    straggling: float = 0.0
    """The share of tasks that take `slower` times as long."""
    slower: float = 4.0
    lifetime: float = 0.0
    """Mean seconds until a machine dies, exponentially distributed; 0: none does."""
    noticed: float = 60.0
    """Seconds until the driver knows: Spark's heartbeats."""
    replaced: float = 120.0
    """Seconds until another machine takes its place."""


@dataclass(frozen=True)
class Played:
    """What came of it."""

    seconds: float
    tasks: int
    """Attempts at tasks, those that were lost included."""
    lost: int
    straggled: int
    busy: float
    """The share of all cores' time that was spent in tasks."""


def one_pass(costs: Costs, events: float) -> float:
    """Seconds of one pass, slice after slice, on one core of one machine."""
    beside = costs.whole + costs.task if costs.single is None else costs.single
    return beside + costs.one * events


def play(
    shapes: Sequence[Shape], costs: Costs, world: World, events: float, shares: Sequence[float], lead: int = 0, seed: int = 0
) -> Played:  # fmt: skip
    """A staged run with slices of these shares of the log."""
    return _Play(shapes, costs, world, events, shares, lead, seed).run()


@dataclass
class _Active:
    """Work that is being done: what is left of it, in seconds of a core."""

    left: float
    call: Callable[[], None]


def _nothing() -> None:
    """Nobody waits for it."""


class _Play:
    def __init__(
        self, shapes: Sequence[Shape], costs: Costs, world: World, events: float, shares: Sequence[float], lead: int, seed: int
    ) -> None:  # fmt: skip
        if world.shared is not None and world.lifetime:
            raise ValueError("machines that share their cores do not die one by one")
        self._shapes, self._costs, self._world, self._events = shapes, costs, world, events
        self._schedule = Schedule(shapes, len(shares), lead)
        self._ends = [events * end for end in itertools.accumulate(shares, initial=0.0)]
        self._states = max(1, sum(len(shape.states) for shape in shapes))
        self._random = random.Random(seed)
        self._free = [host for host in range(world.hosts) for _ in range(world.cores)]
        self._dies = [self._next_death(0.0) for _ in range(world.hosts)]
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._active: list[_Active] = []
        self._count = itertools.count()
        self._now = self._spent = 0.0
        self._merging: list[Callable[[], None]] = []
        self._waiting: list[tuple[str, int]] = []
        self._merges = 0
        self._again: list[Step] = []
        self._tasks = self._lost = self._straggled = 0

    def run(self) -> Played:
        while True:
            self._waiting += self._schedule.mergeable()
            while self._waiting and self._merges < MERGES:
                self._merge(*self._waiting.pop(0))
            if self._free:
                self._begin()
            if self._active:
                self._share()
            elif self._queue:
                self._now, _, call = heapq.heappop(self._queue)
                call()
            else:
                break
        wall = self._costs.whole + self._now
        cores = self._world.hosts * self._world.cores
        busy = self._spent / (wall * cores) if wall else 0.0
        return Played(wall, self._tasks, self._lost, self._straggled, busy)

    def _work(self, seconds: float, call: Callable[[], None]) -> None:
        """So much work of one core, of the machine's where they are shared."""
        if self._world.shared is None:
            self._after(seconds, call)
        else:
            self._active.append(_Active(seconds, call))

    def _share(self) -> None:
        """Until the next piece of work is done: all that is active has an equal share of the cores, and one at most."""
        assert self._world.shared is not None
        rate = min(1.0, self._world.shared / len(self._active))
        first = min(self._active, key=lambda one: one.left)
        gone = first.left
        self._now += gone / rate
        for one in self._active:
            one.left -= gone
        self._active.remove(first)
        first.call()

    def _after(self, seconds: float, call: Callable[[], None]) -> None:
        heapq.heappush(self._queue, (self._now + seconds, next(self._count), call))

    def _begin(self) -> None:
        """As many steps as there are free cores: lost ones first, then those that may run."""
        while self._free and self._again:
            self._start(self._again.pop(0))
        for step in self._schedule.ready()[: len(self._free)] if self._free else ():
            self._schedule.take(step)
            self._start(step)

    # --- tasks --------------------------------------------------------------------------------------

    def _start(self, step: Step) -> None:
        host = self._free.pop(0)
        took = self.seconds_of(step)
        if self._world.straggling and self._random.random() < self._world.straggling:
            took *= self._world.slower
            self._straggled += 1
        self._tasks += 1
        if self._world.lifetime and self._now + took > self._dies[host]:
            self._die(host, step)
            return
        self._spent += took

        def done() -> None:
            self._free.append(host)
            self._schedule.done(step)

        if self._world.shared is not None and self._costs.driver:
            self._work(self._costs.driver, _nothing)
        self._work(took, done)

    def _die(self, host: int, step: Step) -> None:
        """The task is lost; the driver notices, and it runs again from its beginning wherever a core is free."""
        death = max(self._dies[host], self._now)
        self._lost += 1
        self._spent += death - self._now

        def noticed() -> None:
            self._again.append(step)

        def back() -> None:
            self._dies[host] = self._next_death(self._now)
            self._free.append(host)

        self._after(death - self._now + self._world.noticed, noticed)
        self._after(death - self._now + self._world.replaced, back)

    def _next_death(self, now: float) -> float:
        if not self._world.lifetime:
            return math.inf
        return now + self._random.expovariate(1 / self._world.lifetime)

    def seconds_of(self, step: Step) -> float:
        """A task's seconds: itself, what it takes over and sends, its events."""
        costs, world = self._costs, self._world
        first, last = self._ends[step.first], self._ends[step.last + 1]
        events = last - first
        if step.stage >= 0:
            shape = self._shapes[step.stage]
            share = shape.share(shape.parts) if shape.parts > 1 else 1.0
            share *= {"guess": shape.guess, "repair": shape.repair}.get(step.kind, 1.0)
            work = costs.stages[step.stage] * share * events
            moved = costs.rows(events) * ROW_BYTES * len(shape.states) / self._states
        else:
            rows = min(costs.rows(first), costs.rows(events))
            work = costs.final * events + costs.load * rows
            moved = rows * ROW_BYTES
        away = (world.hosts - 1) / world.hosts
        return costs.task + work + moved * away / world.bandwidth

    # --- merges -------------------------------------------------------------------------------------

    def _merge(self, state: str, at: int) -> None:
        costs, world = self._costs, self._world
        self._merges += 1
        rows = costs.rows(self._ends[at + 1]) / self._states
        took = costs.merge * rows
        if rows * ROW_BYTES > SHUFFLED_BYTES and world.hosts > 1:
            took = took / world.hosts + 2 * costs.task + rows * ROW_BYTES / (world.hosts * world.bandwidth)

        def merged() -> None:
            self._merges -= 1
            self._schedule.merged(state)

        self._work(took, merged)


# --- from measurements ----------------------------------------------------------------------------------


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


@dataclass(frozen=True)
class RunSeen:
    """A measured run on one executor."""

    events: int
    slices: int
    seconds: float
    tasks: tuple[TaskSeen, ...]
    cpu: float | None = None
    """Processor seconds of all its processes."""
    cuts: tuple[int, ...] = ()
    """Where its slices begin and end; (): they are alike."""

    def before(self, slice_id: int) -> float:
        """Events before a slice."""
        if not self.cuts:
            return self.events / self.slices * slice_id
        return self.cuts[slice_id] - self.cuts[0]


def costs_of(runs: Sequence[RunSeen], stages: int, states: int) -> Costs:
    """Costs from runs on one executor: of one slice, and of several. Medians, so that one bad moment does not count.

    What a task takes beside its work, and a run beside its tasks, is fitted to what runs took longer than all their tasks
    inside: the one core is always busy there, since further tasks wait for it. Raises ValueError where a kind of task is
    missing.
    """
    alone = [run for run in runs if run.slices == 1]
    several = [run for run in runs if run.slices > 1]
    if not alone or not several:
        raise ValueError("costs need a run in one slice and one in several")
    tasks = [task for run in several for task in run.tasks]
    passes = [
        _median([(t.inside - t.load) / t.events for t in tasks if t.kind in ("pass", "chain") and t.stage == n and t.events])
        for n in range(stages)
    ]  # fmt: skip
    finals = [t for t in tasks if t.kind == "final" and t.events]
    one = [t for run in alone for t in run.tasks if t.kind.startswith("final") and t.events]
    keys = heaps([point for run in runs for point in _first_rows(run)])
    whole, task = _beside(runs)
    made = Costs(
        tuple(passes), _median([(t.inside - t.load) / t.events for t in finals]), _median([t.inside / t.events for t in one]),
        task, 0.0, 0.0, whole, keys, states,
    )  # fmt: skip
    loads, merges = [], []
    for run in several:
        for t in run.tasks:
            if t.kind == "final" and t.first:
                rows = min(made.rows(run.before(t.first)), made.rows(t.events))
                loads.append(t.load / rows if rows else 0.0)
            if t.kind == "merge":
                rows = made.rows(run.before(t.last + 1)) / states
                merges.append(t.inside / rows if rows else 0.0)
    single = _median([run.seconds - sum(t.inside for t in run.tasks) for run in alone])
    known = [run for run in runs if run.cpu is not None]
    spent = (
        _line(known, [(run.cpu or 0.0) - sum(t.inside for t in run.tasks) for run in known])[1]
        if known
        else 0.0
    )
    driver = max(0.0, spent - task)
    return replace(made, load=_median(loads), merge=_mean(merges), single=max(0.0, single), driver=driver)


def _beside(runs: Sequence[RunSeen]) -> tuple[float, float]:
    """Seconds of a run beside its tasks, and of each task beside its work."""
    return _line(runs, [run.seconds - sum(t.inside for t in run.tasks if t.kind != "merge") for run in runs])


def _line(runs: Sequence[RunSeen], extra: Sequence[float]) -> tuple[float, float]:
    """What a run takes, and each of its tasks, where these runs took so much: by least squares."""
    counts = [float(sum(t.kind != "merge" for t in run.tasks)) for run in runs]
    mx, my = _mean(counts), _mean(extra)
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
    mx, my = _mean(xs), _mean(ys)
    b = sum((x - mx) * (y - my) for x, y in zip(xs, ys, strict=True)) / sum((x - mx) ** 2 for x in xs)
    b = min(1.0, max(0.0, b))
    return math.exp(my - b * mx), b


def _first_rows(run: RunSeen) -> list[tuple[float, float]]:
    """Events and rows that the first slice leaves; of several slices that a task took together, nobody knows."""
    return [
        (t.events, t.rows)
        for t in run.tasks
        if t.kind.startswith("final") and t.first == 0 == t.last and t.rows
    ]


def _median(values: Sequence[float]) -> float:
    if not values:
        raise ValueError("a kind of task was not measured")
    ordered, middle = sorted(values), len(values) // 2
    return ordered[middle] if len(values) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0
