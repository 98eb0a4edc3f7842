"""What is asked of a replay: which program, over which log, and how."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from timelapse.analysis import Analysis
from timelapse.cache.group import Group
from timelapse.engine.executor import Executor
from timelapse.errors import UsageError
from timelapse.plan import Plan
from timelapse.program.program import Program
from timelapse.progress import Progress, Silent
from timelapse.run.earlier import Earlier
from timelapse.run.source import Source
from timelapse.run.tuning import USUAL, Tuning
from timelapse.segments.reader import EventReader

if TYPE_CHECKING:
    from timelapse.run.interrupted import Interrupted
    from timelapse.run.remembered import Remembered

Engine = Literal["auto", "local", "spark"]
"""Where a replay runs."""
Resume = bool | Literal["auto"]
"""Whether a replay goes on with one that was killed: if it can ("auto"), or it must."""


def check_engine(engine: str) -> None:
    """Raise UsageError (TL810) for an engine that there is not."""
    if engine not in get_args(Engine):
        raise UsageError(f"engine= (--engine) is {engine!r}", hint="one of auto, local, spark", code="TL810")


@dataclass(frozen=True)
class Several:
    """A replay is one of several over a log, of programs that may differ in their last rules only.

    Then what the last rules read of the states is recorded by the first of them, whatever that costs. `decoded` is a
    folder for what they share beyond the cache, as long as they take. `settled`: for each analysis how, where and why there programs
    with it are replayed, which the first of them decides. `group`: all of them, where they are known to find the same states.
    `times`: about so many of them there are, whose passes are about the same: the compiler is worth waiting for with fewer events.
    `tuning`: the thresholds of all of them.
    """

    decoded: Path | None = None
    group: Group | None = None
    times: int = 1
    settled: list[tuple[Analysis, Plan, Executor, str]] = field(default_factory=list)
    tuning: Tuning = USUAL


@dataclass(frozen=True)
class Settings:
    """How a program is replayed, as `tl.replay` describes it. `several` says that others follow."""

    slices: int | None = None
    strategy: str | Mapping[str, str] | None = None
    progress: Progress = field(default_factory=Silent)
    allow_impure: bool = False
    overwrite: bool = False
    cache: bool = True
    quarantine: bool = False
    max_quarantined: int | None = None
    until: int | None = None
    resumable: bool = False
    engine: Engine = "auto"
    resume: Resume = "auto"
    several: Several | None = None
    lead: int | None = None
    """How many slices of a staged run lead (plan/schedule.py); None: as is foretold to be quickest."""

    tuning: Tuning = USUAL

    @property
    def tuned(self) -> Tuning:
        """The thresholds, for as many replays of about the same passes as there are."""
        if self.several is None:
            return self.tuning
        own = self.several.tuning
        return replace(own, kernels=replace(own.kernels, times=self.several.times))

    @property
    def reuses(self) -> bool:
        """Whether what earlier replays found may be used, and what this one finds be kept."""
        return self.cache and self.strategy is None and not self.allow_impure and not self.quarantine


@dataclass(frozen=True)
class Request:
    """One replay, checked: the program is analysed, the log has what it needs."""

    program: Program
    analysis: Analysis
    source: Source
    settings: Settings = field(default_factory=Settings)
    twice: int | None = None
    """How many events were processed twice and compared (run/twice.py); None where that was not asked for."""

    earlier: Earlier | None = None
    """The run that it starts from."""
    remembered: Remembered | None = None
    """What the last replay of the program made, where the log has another version since: `earlier`, or why nothing is taken over."""
    interrupted: Interrupted | None = None
    """What a killed replay of the same left; None where nothing is looked for, or left for the next one."""

    @property
    def begun(self) -> Earlier | None:
        """The run whose slices are not run again; None where all are."""
        return None if self.earlier is None or self.earlier.reason else self.earlier

    def started(self) -> dict[str, Any] | None:
        """For the certificate: the run that it starts from, or would have."""
        if self.remembered is not None:
            return self.remembered.describe()
        return None if self.earlier is None else self.earlier.describe()

    def over(self, reader: EventReader) -> Request:
        """The same over a part of its log."""
        return replace(self, source=replace(self.source, reader=reader))
