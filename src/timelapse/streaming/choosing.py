"""Whether an epoch is processed as time slices, where, and by which plan: what is foretold to be quicker, as far as it was not measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from timelapse.analysis import analyse, final_pass
from timelapse.engine.executor import Executor, LocalExecutor
from timelapse.env.cores import usable_cores
from timelapse.env.master import wanted
from timelapse.kernels.once import passes_once
from timelapse.plan import Plan
from timelapse.plan.cost import Measured, cost_of
from timelapse.program.program import Program
from timelapse.run.conflicts import plan_of
from timelapse.run.planning import plan_here
from timelapse.run.request import Engine
from timelapse.streaming.arrivals import Taken
from timelapse.streaming.window import JournalEnd

if TYPE_CHECKING:
    from timelapse.engine.spark_executor import SparkExecutor

LEAST_ROWS = 100_000
"""An epoch of fewer rows is not looked at: slices have their price, whatever the program is."""
SMALL_SECONDS = 0.5
"""What takes the open kernel less is not planned: tasks alone take as long."""
_LEAST_SECONDS = 0.05
_MOVED = 1e-8
"""Seconds for each byte of states that go to slices as tables, and come back."""
_WORTH_IT = 0.9
_TRUST = 20.0
"""What was foretold is corrected by what was measured, by so many times at most."""
_FORGETS = 0.95
_RESTS = 64
"""So many epochs at most are not tried after slices did not work."""


@dataclass(frozen=True)
class Slicing:
    """Which epochs are processed as time slices, and how. `rows`: those of so many rows or more; 0: none; None: those of which it is foretold that they
    take less time so. `slices`, `strategy`: as `tl.replay` takes them. `engine`: "spark" is Spark's executors, on a session that is started where
    there is none; "local" this process; "auto" a session where there is one."""

    rows: int | None = None
    slices: int | None = None
    strategy: str | Mapping[str, str] | None = None
    engine: Engine = "auto"


IN_KERNEL = Slicing(0)
"""All epochs go through the open kernel."""


@dataclass(frozen=True)
class Way:
    """How rows are processed as slices: by whom, and by which plan."""

    executor: Executor
    plan: Plan


@dataclass
class _Speed:
    """How much longer than foretold something takes. Where it is not done for long, what was foretold counts again."""

    factor: float = 1.0
    foretold: float = 0.0
    measured: bool = False

    def took(self, seconds: float) -> None:
        if self.foretold > 0:
            found = min(_TRUST, max(1 / _TRUST, seconds / self.foretold))
            # What is slow once may have been started or compiled then.
            self.factor = (self.factor + found) / 2 if self.measured and found > self.factor else found
            self.measured, self.foretold = True, 0.0

    def forget(self) -> None:
        self.factor **= _FORGETS


@dataclass
class Choosing:
    """Chooses for the epochs of a program, one after the other."""

    program: Program
    slicing: Slicing
    shared: bool = True
    """Whether the run lies on a disk, which executors of other machines may see."""
    why: str = ""
    """Why the last epoch of many rows went where it went, for people."""
    kernel: _Speed = field(default_factory=_Speed)
    slices: _Speed = field(default_factory=_Speed)
    _sampled: dict[str, Measured | None] = field(default_factory=dict)
    _plans: dict[tuple[str, int], Plan] = field(default_factory=dict)
    _executors: dict[str, SparkExecutor] = field(default_factory=dict)
    _here: LocalExecutor = field(default_factory=lambda: LocalExecutor(threads=usable_cores()))
    _moved: float = 0.0
    _begun: bool = False
    _failed: int = 0
    _rest: int = 0

    def in_kernel(self, seconds: float) -> None:
        """The open kernel took the rows that were looked at last, and so long."""
        if self.kernel.foretold:
            self.kernel.took(seconds)
            self.slices.forget()

    def in_slices(self, seconds: float) -> None:
        """Slices did."""
        if self._begun:  # the first time tells how long workers take to start
            self.slices.took(max(_LEAST_SECONDS, seconds - self._moved))
        self._begun = True
        self.kernel.forget()
        self._failed, self.kernel.foretold = 0, 0.0

    def failed(self) -> None:
        """Slices did not work: some epochs are not tried, more each time."""
        self._failed += 1
        self._rest, self.kernel.foretold = min(_RESTS, 1 << self._failed), 0.0

    @passes_once()
    def way(self, taken: Taken, own: JournalEnd, *, compiled: bool, state_bytes: int) -> Way | None:
        """How an epoch's rows, which are `own`, are processed as slices; None where the open kernel takes them, which is `compiled`.

        `state_bytes`: what the program's states take. Raises SetupError where Spark is asked for and cannot be started.
        """
        self.kernel.foretold = self.slices.foretold = 0.0
        if self._rest and self.slicing.rows is None:
            self._rest -= 1
            self.why = "slices did not work a short while ago, and are tried again later"
            return None
        counts = {name: table.num_rows for name, table in taken.tables.items()}
        if self.slicing.rows is None:
            here = cost_of(final_pass(analyse(self.program)), counts, compiled=compiled).seconds
            self.kernel.foretold, expected = here, here * self.kernel.factor
            if expected < SMALL_SECONDS:
                how = "as machine code" if compiled else "as Python"
                self.why = f"the open kernel takes about {expected:.2f} s for {taken.rows:,} rows, {how}: slices would gain nothing"
                return None
        executor, plan = self._settled(own, counts)
        if self.slicing.rows is not None:
            self.why = f"it has {self.slicing.rows:,} rows or more, as was asked for"
            return Way(executor, plan)
        there = plan.ratio() * plan.law.serial_seconds
        self._moved = state_bytes * _MOVED
        if plan.mode == "chain":
            self.why = "in one process it would be a single task, which is what the open kernel is"
            if not compiled and self.slicing.engine != "local" and executor.cores < 2 and usable_cores() > 1:
                self.why = "handlers run as Python, which only processes of Spark do side by side, and no session is there: engine= (--engine) spark"
            return None
        if not self.kernel.measured:
            self.why = "the first one of so many rows, by which the open kernel is measured"
            return None
        slower = self.slices.factor if self.slices.measured else self.kernel.factor
        here, there = here * self.kernel.factor, there * slower + self._moved
        pays = there < _WORTH_IT * here
        self.why = f"for {taken.rows:,} rows slices are foretold to take {there:,.1f} s, the open kernel {here:,.1f} s"
        if pays:
            self.slices.foretold = plan.ratio() * plan.law.serial_seconds
        return Way(executor, plan) if pays else None

    def _settled(self, own: JournalEnd, counts: Mapping[str, int]) -> tuple[Executor, Plan]:
        asked, size = self.slicing, own.count.bit_length()

        def make(cores: int, threads: int, machines: int = 1) -> Plan:
            return plan_of(
                self.program, analyse(self.program), own, counts, cores=cores, threads=threads, slices=asked.slices, force=asked.strategy,
                known=self._sampled, machines=machines,
            )  # fmt: skip

        spark = self._spark()
        if spark is not None:
            if ("spark", size) not in self._plans:
                self._plans["spark", size] = make(spark.cores, spark.threads, spark.machines)
            return spark, self._plans["spark", size]
        cores = usable_cores()
        if ("local", size) not in self._plans:
            found = plan_here(make, cores, own.count, asked=False, forced=True)
            assert found is not None
            self._plans["local", size] = found[0]
        return self._here, self._plans["local", size]

    def _spark(self) -> SparkExecutor | None:
        """Spark's executors, where they are there or asked for."""
        from timelapse.env.spark_session import existing, session

        if self.slicing.engine == "local":
            return None
        found = existing()
        if found is None and (self.slicing.engine == "spark" or wanted() is not None):
            found = session()
        if found is None:
            return None
        key = f"spark {id(found)}"
        if key not in self._executors:
            from timelapse.engine.spark_executor import SparkExecutor

            self._executors[key] = SparkExecutor(found)
        executor = self._executors[key]
        return executor if self.shared or executor.is_local else None
