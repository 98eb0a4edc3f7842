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
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from timelapse.plan.schedule import Schedule, Shape, Step

MERGES = 4
"""Merges that the driver does at a time (engine/loop.py)."""
SHUFFLED_BYTES = 1 << 30
"""From this size on a merge is shared out among the executors (engine/exchange.py)."""
SAME_SIZE = 1.4
"""Tasks that differ in their events by no more than this factor are of one size."""
ROW_BYTES = 40
"""A row of a state or of its effects as it travels: hash, key, value."""


@dataclass(frozen=True)
class Curve:
    """Seconds per event by the events of a task: as measured at some sizes, between them by the logarithm of the size, beyond them as at
    the nearest."""

    points: tuple[tuple[float, float], ...]
    """Events and seconds per event, by size."""

    def at(self, events: float) -> float:
        """Per event of a task over so many."""
        sizes, each = zip(*self.points, strict=True)
        return float(np.interp(math.log(max(events, 1.0)), np.log(sizes), each))

    @classmethod
    def of(cls, measured: Iterable[tuple[float, float]]) -> Curve:
        """Through what tasks took per event; sizes that are nearly the same are one, at their medians. Raises ValueError without any."""
        groups: list[list[tuple[float, float]]] = []
        for events, each in sorted(measured):
            if groups and events <= SAME_SIZE * groups[-1][0][0]:
                groups[-1].append((events, each))
            else:
                groups.append([(events, each)])
        if not groups:
            raise ValueError("a kind of task was not measured")
        return cls(
            tuple(
                (statistics.median(n for n, _ in group), statistics.median(each for _, each in group))
                for group in groups
            )
        )


Rate = float | Curve
"""Seconds per event."""


def per_event(rate: Rate, events: float) -> float:
    """Of a task over so many events."""
    return rate.at(events) if isinstance(rate, Curve) else rate


@dataclass(frozen=True)
class Costs:
    """Seconds, as they were measured on one executor with one core."""

    stages: tuple[Rate, ...]
    """Per event, of each pass that finds start states."""
    final: Rate
    """Per event, of the final pass over a slice that begins empty."""
    one: Rate
    """Per event, of one pass over everything on one core: the single-thread line."""
    task: float
    """Of each task beside its work, also where it waits on the executor until a core is free: taken up, its result collected."""
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
    later: Rate | None = None
    """Per event, of the final pass over a slice that does not begin empty, beside what it takes over; None: as of the others."""
    start: float = 0.0
    """From the moment at which a task is submitted until it runs, and until its end is known, where a core is free: nobody works meanwhile.
    It passes unseen where the task waits for a core."""
    crowd: float = 1.0
    """How many times as long work takes beside other work on the same machine, whose caches and memory they share. Between hosts it counts
    for nothing."""

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
    timeline: tuple[Done, ...] = ()
    """Tasks and merges in the order in which they ended, those that were lost left out."""


@dataclass(frozen=True)
class Done:
    """A task or a merge, and when it ran: seconds since the run began."""

    kind: str
    stage: int
    first: int
    last: int
    events: float
    began: float
    ended: float


def pace(active: int, cores: int, crowd: float) -> float:
    """How fast each of so many pieces of work gets on that share a machine, relative to one that has it for itself."""
    return min(1.0, cores / max(1, active)) / (crowd if active > 1 else 1.0)


def one_pass(costs: Costs, events: float) -> float:
    """Seconds of one pass, slice after slice, on one core of one machine."""
    beside = costs.whole + costs.task if costs.single is None else costs.single
    return beside + per_event(costs.one, events) * events


def play(
    shapes: Sequence[Shape], costs: Costs, world: World, events: float, shares: Sequence[float], lead: int = 0, seed: int = 0,
    inside: Sequence[int] = (),
) -> Played:  # fmt: skip
    """A staged run with slices of these shares of the log. `inside`: how many slices each of them is that a task takes together, where
    it is more than one."""
    return _Play(shapes, costs, world, events, shares, lead, seed, inside).run()


@dataclass
class _Active:
    """Work that is being done: what is left of it, in seconds of a core."""

    left: float
    call: Callable[[], None]


def _nothing() -> None:
    """Nobody waits for it."""


class _Play:
    def __init__(
        self, shapes: Sequence[Shape], costs: Costs, world: World, events: float, shares: Sequence[float], lead: int, seed: int,
        inside: Sequence[int],
    ) -> None:  # fmt: skip
        if world.shared is not None and world.lifetime:
            raise ValueError("machines that share their cores do not die one by one")
        self._shapes, self._costs, self._world, self._events = shapes, costs, world, events
        self._schedule = Schedule(shapes, len(shares), lead)
        self._inside = inside or (1,) * len(shares)
        self._ends = [events * end for end in itertools.accumulate(shares, initial=0.0)]
        self._stage_of = {name: at for at, shape in enumerate(shapes) for name in shape.states}
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
        self._queued: list[tuple[Step, float]] = []
        """Submitted, and waiting for a core; with when that was."""
        self._tasks = self._lost = self._straggled = 0
        self._timeline: list[Done] = []

    def run(self) -> Played:
        while True:
            self._waiting += self._schedule.mergeable()
            while self._waiting and self._merges < MERGES:
                self._merge(*self._waiting.pop(0))
            self._begin()
            if not self._advance():
                break
        wall = self._costs.whole + self._now
        cores = self._world.hosts * self._world.cores
        busy = self._spent / (wall * cores) if wall else 0.0
        return Played(wall, self._tasks, self._lost, self._straggled, busy, tuple(self._timeline))

    def _work(self, seconds: float, call: Callable[[], None]) -> None:
        """So much work of one core, of the machine's where they are shared."""
        if self._world.shared is None:
            self._after(seconds, call)
        else:
            self._active.append(_Active(seconds, call))

    def _advance(self) -> bool:
        """To what happens next: a piece of work is done, or something happens that is no work. False: nothing does.

        All that is active has an equal share of the cores, and one at most, and waits for the same memory.
        """
        shared, first = self._world.shared, min(self._active, key=lambda one: one.left, default=None)
        if first is None and not self._queue:
            return False
        rate = 1.0 if shared is None else pace(len(self._active), shared, self._costs.crowd)
        ends = math.inf if first is None else self._now + first.left / rate
        if first is None or (self._queue and self._queue[0][0] < ends):
            when, _, call = heapq.heappop(self._queue)
        else:
            when, call = ends, first.call
            self._active.remove(first)
        gone, self._now = (when - self._now) * rate, when
        for one in self._active:
            one.left -= gone
        call()
        return True

    def _after(self, seconds: float, call: Callable[[], None]) -> None:
        heapq.heappush(self._queue, (self._now + seconds, next(self._count), call))

    def _begin(self) -> None:
        """What the driver submits: for free cores steps that were lost, then those that may run; and those that come next in any case, which
        wait for a core."""
        while self._free and self._again:
            self._submitted()
            self._start(self._again.pop(0), self._now)
        while self._free and self._queued:
            self._start(*self._queued.pop(0))
        for step in self._schedule.ready()[: len(self._free)] if self._free else ():
            self._schedule.take(step)
            self._submitted()
            self._start(step, self._now)
        room = self._world.hosts * self._world.cores - len(self._queued)
        while room > 0 and (following := self._schedule.following()) is not None:
            self._schedule.take(following)
            self._submitted()
            self._queued.append((following, self._now))
            room -= 1

    def _submitted(self) -> None:
        if self._world.shared is not None and self._costs.driver:
            self._work(self._costs.driver, _nothing)

    # --- tasks --------------------------------------------------------------------------------------

    def _start(self, step: Step, submitted: float) -> None:
        """On a free core, as soon as it is there."""
        host = self._free.pop(0)
        late = max(0.0, submitted + self._costs.start - self._now)
        took = self.seconds_of(step)
        if self._world.straggling and self._random.random() < self._world.straggling:
            took *= self._world.slower
            self._straggled += 1
        self._tasks += 1
        if self._world.lifetime and self._now + late + took > self._dies[host]:
            self._die(host, step)
            return
        self._spent += took
        began, events = self._now + late, self._ends[step.last + 1] - self._ends[step.first]

        def done() -> None:
            self._free.append(host)
            self._schedule.done(step)
            self._note(step.kind, step.stage, step.first, step.last, events, began)

        if late:
            self._after(late, lambda: self._work(took, done))
        else:
            self._work(took, done)

    def _note(self, kind: str, stage: int, first: int, last: int, events: float, began: float) -> None:
        self._timeline.append(Done(kind, stage, first, last, events, began, self._now))

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
        each = events / sum(self._inside[step.first : step.last + 1])
        if step.stage >= 0:
            shape = self._shapes[step.stage]
            share = shape.share(shape.parts) if shape.parts > 1 else 1.0
            share *= {"guess": shape.guess, "repair": shape.repair}.get(step.kind, 1.0)
            work = per_event(costs.stages[step.stage], each) * share * events
            moved = costs.rows(events) * ROW_BYTES * len(shape.states) / self._states
        else:
            rows = min(costs.rows(first), costs.rows(events))
            rate = costs.final if step.first == 0 or costs.later is None else costs.later
            work = per_event(rate, each) * events + costs.load * rows
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

        began = self._now

        def merged() -> None:
            self._merges -= 1
            self._schedule.merged(state)
            self._note("merge", self._stage_of[state], at, at, 0, began)

        self._work(took, merged)
