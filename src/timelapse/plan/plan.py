"""A plan: which passes run over the slices, in which order, and why. Printable and checkable."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import Literal

from timelapse.analysis.result import ByKey, Dependency, PassProgram
from timelapse.errors import Place, PlanError
from timelapse.plan.cost import (
    AGAIN_SECONDS,
    COMPILED_COMPUTED_SHARE,
    COMPUTED_SHARE,
    RECORD_SECONDS,
    SHARING_SHARE,
    SWEEP_SECONDS,
    THREAD_TASK_SECONDS,
    TYPICAL_CONFLICTS,
    TYPICAL_EVENTS,
    Law,
    PassCost,
)
from timelapse.plan.schedule import Arrangement, Shape, Times, arrange
from timelapse.plan.strategy import Choice, Strategy
from timelapse.program.program import ProgramSpec

Mode = Literal["staged", "chain", "by key"]
_POWERS = tuple(1 << n for n in range(17))
_NEAR = 3
"""Of so many numbers of slices sizes of the first slice are tried."""


@dataclass(frozen=True)
class Stage:
    """One pass over the slices: the components whose start states it finds."""

    index: int
    """Its place in the plan, from 0: the pass's index."""
    level: int
    """1 for states that depend on no others, and so on."""
    strategy: Strategy
    choices: tuple[Choice, ...]
    """Its components, in order of declaration."""
    work: PassProgram
    cost: float
    """Its work, relative to that of the final pass."""
    parts: int = 1
    """By key: how many workers share out its events."""

    @property
    def states(self) -> tuple[str, ...]:
        return tuple(name for choice in self.choices for name in choice.states)

    @property
    def name(self) -> str:
        """What progress calls it."""
        return self.work.name


@dataclass(frozen=True)
class Plan:
    """How a program is replayed.

    `staged`: the passes in order, each over all slices (but the last), then the final pass over all slices in
    parallel. `chain`: only the final pass, slice after slice. `by key`: the same, with events shared out by key among
    threads. All give the same bits.
    """

    program: str
    mode: Mode
    reason: str
    """Why this mode."""
    stages: tuple[Stage, ...]
    final: PassProgram
    law: Law
    cores: int
    spec: ProgramSpec
    dependencies: tuple[Dependency, ...]
    lead: int | None = None
    """How many slices run one after the other at the beginning, while passes run ahead; None: what is fastest."""
    costs: tuple[PassCost, ...] = ()
    """What each stage's pass costs, and last the final pass."""
    threads: int = 1
    """How many cores a run slice after slice can use."""
    events: int = 0
    """Of the log; 0 where it is not known."""
    conflicts: float = TYPICAL_CONFLICTS
    """The share of events that decide otherwise on a guessed state, where slices are guessed and repaired."""
    whole: ByKey | None = None
    """How the events of the whole program can be shared out by key, where they can."""
    not_whole: str = ""
    """Why they cannot."""
    reach: float = 1.0
    """The share of the log's time that its windows look back at most, where it is known."""
    machines: int = 1
    """On how many machines the cores are; 1 where nobody can tell."""
    most: int | None = None
    """Into so many slices at most: with more of them passes that are compiled would have too few events each for that."""

    @property
    def last(self) -> PassProgram:
        """The final pass as it runs."""
        return replace(self.final, by_key=self.whole) if self.mode == "by key" else self.final

    @property
    def shapes(self) -> tuple[Shape, ...]:
        """What the schedule needs to know of the stages."""
        return tuple(
            Shape(
                stage.states, stage.work.exact, stage.strategy is not Strategy.SCAN, stage.parts,
                self._repeated(stage), *self._repair(stage),
            )
            for stage in self.stages
        )  # fmt: skip

    def _repair(self, stage: Stage) -> tuple[float, float]:
        """What guessing and repairing take, relative to the stage's pass."""
        if stage.strategy is not Strategy.ITERATE:
            return 0.0, 0.0
        seconds = stage.cost * self.law.serial_seconds
        events = self.events or TYPICAL_EVENTS
        if not seconds:
            return 1.0, 0.1
        repair = (SWEEP_SECONDS + self.conflicts * AGAIN_SECONDS) * events / seconds + self.conflicts
        return 1 + RECORD_SECONDS * events / seconds, repair

    def _repeated(self, stage: Stage) -> float:
        """The share of a pass by key that every worker does."""
        if stage.parts == 1 or not self.costs:
            return 0.0
        cost = self.costs[stage.index]
        shared = stage.work.by_key
        computed = shared is not None and not all(key.plain for key in shared.keys.values())
        if cost.compiled and cost.seconds:
            return COMPILED_COMPUTED_SHARE if computed else cost.decode / cost.seconds
        return COMPUTED_SHARE if computed else SHARING_SHARE

    def arrange(
        self, slices: int, cores: int | None = None, *, apart: bool = False, even: bool = False
    ) -> Arrangement:
        """How to cut the log into so many slices, and how many of them lead. `apart`: no task takes several. `even`: slices of one size."""
        law = self.law
        task = THREAD_TASK_SECONDS if self.threads > 1 and self.unlocked else law.task_seconds
        logs = self.final.logs
        kept = [law.kept * sum(n in logs for n in stage.states) / max(1, len(logs)) for stage in self.stages]
        crowd = law.crowd if (cores or self.cores) > self.machines else 1.0
        times = Times(
            tuple((stage.cost + more) * law.serial_seconds for stage, more in zip(self.stages, kept, strict=True)),
            (1 + law.kept) * law.serial_seconds, task,
            law.merge_seconds if self.stages else 0.0, law.load_seconds if self.stages else 0.0, crowd,
            law.recalled * law.serial_seconds, self.reach, law.one_by_one(0, self.threads), law.later(self.events),
            None if apart or not self.hands_on else law.hand_seconds,
        )  # fmt: skip
        return arrange(self.shapes, times, slices, cores or self.cores, lead=self.lead, even=even)

    @property
    def hands_on(self) -> bool:
        """Whether slices of which one runs after the other are a single task: all cores are this machine's and read ahead for it."""
        return 1 < self.threads >= self.cores and self.unlocked and not self.spec.times

    @property
    def unlocked(self) -> bool:
        """Whether all passes are machine code: side by side on one machine they can be threads of one process."""
        return bool(self.costs) and all(cost.compiled for cost in self.costs)

    def ratio(self, mode: Mode | None = None, slices: int | None = None) -> float:
        """Foretold time relative to the serial loop, in this plan's mode or another."""
        if (mode or self.mode) == "chain":
            return self.law.one_by_one(slices or 1, self.threads)
        if (mode or self.mode) == "by key":
            return self.law.by_key(slices or 1, self.threads)
        seconds = self.arrange(slices or self.slices()).seconds
        return seconds / self.law.serial_seconds if self.law.serial_seconds else 1.0

    def slices(self, cores: int | None = None) -> int:
        """The number of slices that is foretold to be fastest: each has its price, so it may be fewer than there are cores."""
        cores = cores or self.cores
        # What is tried for some cores is tried for more cores too, so that these are not slower.
        fewer = [n + more for n in _POWERS if 1 < n < cores for more in (0, 1)]
        tried = {*fewer, cores, cores + 1, 2 * cores}
        if self.most is not None:
            tried = {min(n, self.most) for n in tried}
        # Sizes of the first slice are tried for the few numbers that are best with even slices.
        near = sorted(tried, key=lambda n: (self.arrange(n, cores, even=True).seconds, n))[:_NEAR]
        return min(near, key=lambda n: (self.arrange(n, cores).seconds, n))

    def phases(self) -> dict[str, float]:
        """Foretold core-seconds by phase of all passes, over the whole log."""
        found = {"read and decode": 0.0, "kernel": 0.0, "write": 0.0}
        shares = [1.0] * len(self.costs) if self.mode == "staged" else [*[0.0] * len(self.stages), 1.0]
        scale = self.law.serial_seconds / (self.costs[-1].seconds or 1.0) if self.costs else 0.0
        for cost, share in zip(self.costs, shares, strict=True):
            found["read and decode"] += cost.decode * share * scale
            found["kernel"] += cost.kernel * share * scale
            found["write"] += cost.write * share * scale
        return found

    @property
    def choices(self) -> tuple[Choice, ...]:
        """All components, in the order of the stages."""
        return tuple(choice for stage in self.stages for choice in stage.choices)

    def stage_of(self, state: str) -> Stage:
        """The stage that finds a state's start values."""
        return next(stage for stage in self.stages if state in stage.states)

    def verify(self) -> None:
        """Check that the plan is sound, whatever made it. Raises PlanError (TL359) if it is not."""
        self._verify_cover()
        ready: set[str] = set()
        for index, stage in enumerate(self.stages):
            _expect(stage.index == index, f"stage {index} calls itself {stage.index}")
            self._verify_stage(stage, ready)
            ready.update(stage.states)
        every = frozenset(self.spec.states)
        _expect(self.final.exact == every, "the final pass does not keep every state")
        _expect(not self.final.delta, "the final pass collects deltas")
        _expect(not self.final.ignored, "the final pass ignores a state")

    def _verify_cover(self) -> None:
        names = [name for stage in self.stages for name in stage.states]
        _expect(len(names) == len(set(names)), "a state is in two stages")
        _expect(set(names) == set(self.spec.states), "the stages do not hold exactly the program's states")
        levels = [stage.level for stage in self.stages]
        _expect(levels == sorted(levels), "levels do not rise")

    def _verify_stage(self, stage: Stage, ready: set[str]) -> None:
        own, work, what = set(stage.states), stage.work, f"stage {stage.index + 1} ({stage.work.name})"
        _expect(set(work.targets) == own, f"{what} targets {sorted(work.targets)}, not {sorted(own)}")
        for d in self.dependencies:
            if d.target not in own or d.source in ready:
                continue
            same = any(d.target in c.states and d.source in c.states for c in stage.choices)
            _expect(same, f"{what}: {d.target} depends on {d.source}, which is not known yet")
            _expect(
                stage.strategy is not Strategy.SCAN, f"{what}: scan, but {d.target} depends on {d.source}"
            )
        known = ready if stage.strategy is Strategy.SCAN else ready | own
        _expect(work.exact <= known, f"{what} needs {sorted(work.exact - known)}, which is not known yet")
        if stage.strategy is Strategy.SCAN:
            _expect(work.delta == own, f"{what}: the deltas are not those of its states")
            _expect(all(c.blocked is None for c in stage.choices), f"{what} cannot be a scan")
        else:
            _expect(not work.delta, f"{what}: a chain collects deltas")
            _expect(own <= work.exact, f"{what}: a chain does not keep its states")
        if stage.strategy is Strategy.BY_KEY:
            shared = set() if work.by_key is None else set(work.by_key.states)
            _expect(own <= shared, f"{what}: it does not say by which key")
        _expect(not (work.delta & work.exact), f"{what}: a state is exact and a delta")
        _expect(not (work.ignored & (work.delta | work.exact)), f"{what} ignores a state that it needs")

    def text(self) -> str:
        """The plan for people: stages, their states, strategies and reasons, what each pass reads."""
        lines = [f"plan of {self.program}: {self.mode}, {self.reason}"]
        for stage in self.stages:
            lines.append(f"stage {stage.index + 1}  level {stage.level}  {stage.strategy}")
            width = max(len(", ".join(c.states)) for c in stage.choices)
            for choice in stage.choices:
                at = place_text(choice.place)
                names = ", ".join(choice.states)
                lines.append(f"  {names:<{width}}  {choice.because}{f'  [{at}]' if at else ''}")
                if choice.rewrite is not None:
                    lines.append(f"  {'':<{width}}  rewrite: {choice.rewrite}")
            lines.append(f"  pass: {pass_text(stage.work)}")
        lines.append("final")
        lines.append(f"  pass: {pass_text(self.final)}")
        return "\n".join(lines) + "\n"


def _expect(holds: bool, message: str) -> None:
    if not holds:
        raise PlanError(
            f"the plan is not sound: {message}",
            hint="this is a bug in Timelapse: please report it",
            code="TL359",
        )


def place_text(place: Place) -> str:
    """`rules.py:31`."""
    file = PurePath(place.file).name if place.file else ""
    if place.line is None:
        return file
    return f"{file}:{place.line}" if file else f"line {place.line}"


def pass_text(work: PassProgram) -> str:
    """What a pass reads, and from which states."""
    read = [f"{name}({', '.join(fields)})" for name, fields in columns_of(work)]
    text = f"reads {', '.join(read) or 'nothing'}"
    needed = sorted(work.exact - set(work.targets))
    if needed and work.delta:
        text += f"; with {', '.join(needed)}"
    if work.rejects:
        text += f"; may reject {', '.join(sorted(work.rejects))}"
    return text


def columns_of(work: PassProgram) -> Sequence[tuple[str, tuple[str, ...]]]:
    """The event types that a pass reads, in the order of its handlers, with the fields."""
    names = dict.fromkeys(event.__name__ for handler in work.handlers for event in handler.events)
    return [(name, tuple(work.columns.get(name, ()))) for name in names]
