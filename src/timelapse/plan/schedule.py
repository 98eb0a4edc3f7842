"""Which pass may run over which slice, and when: the rules that the driver follows and the planner foretells with.

A slice's start is known, state by state, when the start of the slice before it is known and what that slice does to the
state is. What a slice does comes from the state's own pass (scan, chain) or, for the *leading* slices, from the
final pass itself: slice 0 starts empty, so its final pass can run at once, and what it changed is exact. The first
`lead` slices are run that way, one after the other, while the other cores are busy with passes over the later ones;
these slices need no other pass. The last slice needs none in any case: nobody starts from its end.

Of slices at the beginning it may be known beforehand what they change, from an earlier replay. Their starts are there, and that
of the slice behind them; the leading slices begin with this one.
"""

from __future__ import annotations

import functools
import heapq
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple


class Step(NamedTuple):
    """One pass over the slices `first` to `last`; `stage` is -1 for the final pass."""

    kind: Literal["pass", "chain", "guess", "repair", "final"]
    stage: int
    first: int
    last: int
    part: int = 0
    """Of a stage by key: whose share of the events."""


@dataclass(frozen=True)
class Shape:
    """What the rules need to know of a stage."""

    states: tuple[str, ...]
    """Whose effects its pass finds."""
    needs: frozenset[str]
    """Whose start values its pass must know."""
    chain: bool
    parts: int = 1
    """How many workers share out its events by key; then each goes through its events slice after slice."""
    repeated: float = 0.0
    """The share of its pass's work that each of them does: reading, and finding out which events are its own."""
    guess: float = 0.0
    """A chain whose slices are first run from guessed starts: what that takes, relative to its pass; 0: it is not."""
    repair: float = 0.0
    """What repairing them takes, relative to its pass."""

    def share(self, cores: int) -> float:
        """How long the whole pass takes, relative to one worker without a choice."""
        if self.parts == 1:
            return 1.0
        return (self.repeated + (1 - self.repeated) / self.parts) * -(-self.parts // cores)


class Schedule:
    """The state of a staged run: what is known, what may run. Holds no results."""

    def __init__(self, shapes: Sequence[Shape], slices: int, lead: int = 0, held: int = 0) -> None:
        """`lead` slices lead. `held`: of so many slices, from the first on, all that they change is known beforehand."""
        self.slices = slices
        self.held = min(held, slices - 1)
        self.lead = min(self.held + lead, slices - 1)
        """The first slice that does not lead."""
        self._shapes = shapes
        names = [name for shape in shapes for name in shape.states]
        self._known = dict.fromkeys(names, self.held)
        self._lowest = min(self._known.values(), default=slices - 1)
        self._effects: dict[str, set[int]] = {name: set() for name in names}
        self._ends: dict[int, list[int]] = {}
        """Of stages by key: how far the workers came that are through."""
        self._merging: set[str] = set()
        self._waiting = list(self._steps())
        self._guesses: dict[int, set[int]] = {}
        """Of stages with guesses: the slices whose guess is still to come."""
        for step in self._waiting:
            if step.kind == "guess":
                self._guesses.setdefault(step.stage, set()).add(step.first)
        self._failed = slices
        """The first slice whose effects will never be known, because a pass ahead of time failed there."""

    def _steps(self) -> Iterator[Step]:
        """All steps, the most urgent first: nothing waits longer than for the leading slices."""
        yield from (Step("final", -1, i, i) for i in range(self.held, self.lead))
        for index, shape in enumerate(self._shapes):
            if self.lead >= self.slices - 1:
                continue
            if shape.guess:
                yield from (Step("guess", index, i, i) for i in range(self.lead, self.slices - 1))
                yield Step("repair", index, self.lead, self.slices - 2)
            elif shape.chain:
                for part in range(shape.parts):
                    yield Step("chain", index, self.lead, self.slices - 2, part)
            else:
                yield from (Step("pass", index, i, i) for i in range(self.lead, self.slices - 1))
        yield from (Step("final", -1, i, i) for i in range(self.held))
        yield from (Step("final", -1, i, i) for i in range(self.lead, self.slices))

    def leads(self, at: int) -> bool:
        """Whether a slice is one of the leading ones."""
        return self.held <= at < self.lead

    def parts(self, stage: int) -> int:
        """How many workers share out a stage's events."""
        return self._shapes[stage].parts

    @property
    def seed(self) -> int:
        """The slice whose start guesses begin from: the first that is known early."""
        return self.held or min(1, self.lead)

    @property
    def known(self) -> int:
        """For how many slices the whole start state is known."""
        return 1 + self._lowest

    def ready(self) -> list[Step]:
        """The steps that may run now and were not taken, the most urgent first."""
        found: list[Step] = []
        blocked: set[tuple[str, int, bool]] = set()
        for step in self._waiting:
            # Steps of a kind and stage are in the order of their slices: what one waits for, later ones wait for too.
            sort = (step.kind, step.stage, step.first < self.held)
            if sort in blocked:
                continue
            if self._may_run(step):
                found.append(step)
            else:
                blocked.add(sort)
        return found

    def _may_run(self, step: Step) -> bool:
        if step.first > self._failed or (step.kind == "pass" and step.first >= self._failed):
            return False
        if step.kind == "final":
            return self.known > step.first
        shape = self._shapes[step.stage]
        if step.kind == "guess":
            return all(
                self._known[name] >= (self.seed if name in shape.states else step.first)
                for name in shape.needs
            )
        if step.kind == "repair" and any(at <= self._failed for at in self._guesses[step.stage]):
            return False
        # A chain finds what it needs at later slices by itself.
        return all(self._known[name] >= step.first for name in shape.needs)

    def following(self) -> Step | None:
        """The step that is taken next, whatever ends before: the most urgent of all that were not taken may run now."""
        step = next(iter(self._waiting), None)
        return step if step is not None and self._may_run(step) else None

    def take(self, step: Step) -> None:
        """Somebody runs it."""
        self._waiting.remove(step)

    def done(self, step: Step, failed: int | None = None) -> None:
        """It has run; `failed` is the slice at which it raised, if it did."""
        last = step.last if failed is None else failed - 1
        if failed is not None:
            self._failed = min(self._failed, failed)
        if step.kind == "guess":
            self._guesses[step.stage].discard(step.first)
            return
        if step.kind == "final":
            states: Sequence[str] = tuple(self._known) if self.leads(step.first) else ()
        else:
            states = self._shapes[step.stage].states
            ends = self._ends.setdefault(step.stage, [])
            ends.append(last)
            if step.kind == "chain":  # a slice's effects are known when every worker has found its part
                last = min(ends) if len(ends) == self._shapes[step.stage].parts else step.first - 1
        for name in states:
            self._effects[name].update(range(step.first, last + 1))

    def mergeable(self) -> list[tuple[str, int]]:
        """States with the slice whose effects can be applied next. They count as being merged from now on."""
        found = [
            (name, at)
            for name, at in self._known.items()
            if name not in self._merging and at < self.slices - 1 and at in self._effects[name]
        ]
        self._merging.update(name for name, _ in found)
        return found

    def merged(self, name: str) -> None:
        """The start after the slice that was handed out last is known."""
        self._merging.discard(name)
        self._known[name] += 1
        self._lowest = min(self._known.values())


def is_alone(running: int, ready: Sequence[Step]) -> bool:
    """Whether a step that may run now has the machine for itself: none runs, and no other may."""
    return not running and len(ready) == 1


# --- foretelling ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Times:
    """Seconds that things take; those of passes are for the whole log."""

    stages: tuple[float, ...]
    final: float
    task: float
    """What each task costs beside its work."""
    merge: float
    """Writing the whole state at the log's end once, with effects applied: what each merge does to what there is so far."""
    load: float = 0.0
    """What a final pass that starts from the state at the log's end takes over from it."""
    crowd: float = 1.0
    """How much slower a pass is beside others on the same machine: they share its memory and caches."""
    recall: float = 0.0
    """Taking over all rows of states that are looked back on."""
    reach: float = 1.0
    """The share of the log of which a slice takes them over."""
    alone: float = 1.0
    """What a final pass takes that runs alone, relative to one that does not: the other cores read ahead for it."""
    later: float = 1.0
    """What it takes for an event of a slice that does not begin empty, relative to one of the first slice."""
    handing: float | None = None
    """What it takes a task to go on into a slice with the state at the log's end, where one takes all slices if none has a pass ahead;
    None: each is a task of its own."""


@dataclass(frozen=True)
class Arrangement:
    """How the log is cut: each slice's share, how many slices lead, and the seconds foretold."""

    shares: tuple[float, ...]
    lead: int
    seconds: float


def foretell(shapes: Sequence[Shape], times: Times, shares: Sequence[float], lead: int, cores: int) -> float:
    """The seconds of a staged run: its own rules played through with the times of passes."""
    ends = list(itertools.accumulate(shares, initial=0.0))
    if times.handing is not None and 1 < len(shares) <= lead + 1:
        return times.task + times.final * times.alone + times.handing * sum(ends[1:-1])
    schedule = Schedule(shapes, len(shares), lead)
    states = max(1, sum(len(shape.states) for shape in shapes))
    crowd = times.crowd if cores > 1 and len(shares) > 1 else 1.0
    threads = merging(cores)
    running: list[tuple[float, int, Callable[[], None]]] = []
    counter = itertools.count()
    now, busy = 0.0, 0

    def after(seconds: float, call: Callable[[], None]) -> None:
        heapq.heappush(running, (now + seconds, next(counter), call))

    def finish(step: Step) -> None:
        nonlocal busy
        busy -= 1
        schedule.done(step)

    while True:
        for name, at in schedule.mergeable():
            after(times.merge * ends[at + 1] / states / threads, lambda name=name: schedule.merged(name))  # type: ignore[misc]
        ready = schedule.ready() if busy < cores else []
        slower = 1.0 if is_alone(busy, ready) else crowd
        ahead = times.alone if is_alone(busy, ready) else 1.0
        for step in ready[: cores - busy]:
            schedule.take(step)
            busy += 1
            whole, taken = times.final if step.stage < 0 else times.stages[step.stage], 0.0
            share = ends[step.last + 1] - ends[step.first]
            if step.stage >= 0 and shapes[step.stage].parts > 1:
                share *= shapes[step.stage].share(shapes[step.stage].parts)
            if step.kind in ("guess", "repair"):
                share *= shapes[step.stage].guess if step.kind == "guess" else shapes[step.stage].repair
            if step.stage < 0:
                taken = times.load * min(ends[step.first], _WHOLE * shares[step.first])
                taken += times.recall * min(ends[step.first], times.reach)
                whole *= ahead * (times.later if step.first else 1.0)
            after(times.task + taken + whole * share * slower, lambda step=step: finish(step))  # type: ignore[misc]
        if not running:
            return now
        now, _, call = heapq.heappop(running)
        call()
        # Even slices end together: what comes next is asked once for all of them.
        while running and running[0][0] == now:
            heapq.heappop(running)[2]()


def merging(cores: int) -> float:
    """Cores that merges have: half of them, as the others are busy with passes, up to eight."""
    return min(max(cores / 2, 1.0), 8.0)


_WHOLE = 8
"""Of a start state that is larger than so many of the slice's own, only what it uses is taken over (kernels/native/starting.py)."""
_PLAYED = 48
"""Up to this many slices the whole run is played through; beyond it slices are even and the shape hardly matters."""
_FIRST = (1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.75, 2.0, 2.5, 3.0, 4.0)
"""Sizes of the first slice that are tried, relative to the others."""


@functools.lru_cache(maxsize=1024)
def arrange(
    shapes: tuple[Shape, ...],
    times: Times,
    slices: int,
    cores: int,
    *,
    lead: int | None = None,
    even: bool = False,
) -> Arrangement:
    """The best cut of the log into so many slices: the size of the first and the number that lead are tried out.

    `lead` fixes that number, `even` the sizes.
    """
    if slices > _PLAYED:
        shares = (1 / slices,) * slices
        chosen, seconds = 1 if lead is None else lead, foretell_many(shapes, times, slices, cores)
        if lead is None and times.handing is not None:
            one = foretell(shapes, times, shares, slices - 1, cores)
            seconds, chosen = min((seconds, chosen), (one, slices - 1))
        return Arrangement(shares, chosen, seconds)
    leads = {*range(min(len(shapes) + 2, slices))} if lead is None else {lead}
    if lead is None and times.handing is not None:
        leads.add(slices - 1)
    best: Arrangement | None = None
    for first in (1.0,) if even or slices == 1 else _FIRST:
        rest = 1 / (first + slices - 1)
        shares = (first * rest, *(rest,) * (slices - 1))
        for count in sorted(leads):
            found = Arrangement(shares, count, foretell(shapes, times, shares, count, cores))
            if best is None or found.seconds < best.seconds * 0.999:
                best = found
    assert best is not None
    return best


def foretell_many(shapes: Sequence[Shape], times: Times, slices: int, cores: int) -> float:
    """The same for many even slices, by the cost law with its constants."""
    rounds = -(-slices // cores)
    stages = list(zip(times.stages, shapes, strict=True))
    scan = sum(t * (shape.guess if shape.chain else 1.0) for t, shape in stages)
    chain = sum(
        t * (shape.repair if shape.guess else shape.share(cores)) for t, shape in stages if shape.chain
    )
    ahead = -(-(slices - 1) // cores) / slices
    tasks = rounds * (1 + sum(not shape.chain or shape.guess > 0 for shape in shapes))
    crowd = times.crowd if cores > 1 else 1.0
    merges = (
        times.merge * (slices - 1) / 2 / max(1, sum(len(shape.states) for shape in shapes)) / merging(cores)
    )
    passes = times.final * rounds / slices + scan * ahead + chain * (slices - 1) / slices
    taken = times.load * rounds / slices + times.recall * min(1.0, times.reach)
    return passes * crowd + taken + tasks * times.task + merges


def cuts_at(fine: Sequence[int], shares: Sequence[float]) -> list[int]:
    """Of the boundaries of many even ranges those nearest to the shares' ends; none twice."""
    last = len(fine) - 1
    ends = [round(end * last) for end in itertools.accumulate(shares)]
    ends[-1] = last
    return [fine[0], *(fine[b] for a, b in itertools.pairwise([0, *ends]) if b > a)]
