"""Deciding how and where a replay runs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple

from timelapse.engine.executor import Executor, LocalExecutor, task_switch
from timelapse.env.cores import usable_cores
from timelapse.env.master import local_cores, wanted
from timelapse.errors import UsageError
from timelapse.plan import Plan
from timelapse.plan.cost import Measured
from timelapse.run.conflicts import plan_of
from timelapse.run.request import Request

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

IN_PROCESS_EVENTS = 200_000
"""Logs up to this size are replayed in this process when no Spark session is there already."""
SPARK_START_SECONDS = 8.0
"""What it takes to start a local session and to run its first job (measured: 6 to 9 s)."""


class Settled(NamedTuple):
    """How and where a replay runs, and why there."""

    plan: Plan
    executor: Executor
    why: str


@dataclass(frozen=True)
class Planner:
    """Decides how and where a replay runs: one depends on the other."""

    request: Request
    measured: dict[str, Measured | None] = field(default_factory=dict)

    def plan(self, cores: int, threads: int) -> Plan:
        """The plan for so many tasks at once, and so many threads where a single task has the machine for itself."""
        asked = self.request
        source, settings = asked.source, asked.settings
        return plan_of(
            asked.program, asked.analysis, source.reader, source.counts, cores=cores, threads=threads,
            slices=settings.slices, force=settings.strategy, known=self.measured,
        )  # fmt: skip

    def settle(self, spark: SparkSession | Literal[False] | None) -> Settled:
        """The plan and who runs it: as for the replay before, where this is one of several of the same code."""
        asked = self.request
        several = asked.settings.several
        for analysis, plan, executor, why in () if several is None else several.settled:
            if analysis is asked.analysis:
                return Settled(plan, executor, why)
        found = self._settle(spark)
        if several is not None:
            several.settled.append((asked.analysis, *found))
        return found

    def _settle(self, spark: SparkSession | Literal[False] | None) -> Settled:
        from timelapse.env.spark_session import existing, session

        engine = self.request.settings.engine
        if engine == "local" or (engine == "spark" and spark is False):
            if spark not in (None, False) or engine == "spark":
                what = "and Spark is ruled out" if spark is False else "and a Spark session is given"
                raise UsageError(
                    f"engine {engine} (--engine) was asked for, {what}", hint="give one of them", code="TL810"
                )
            spark = False
        found = None if spark is False else spark if spark is not None else existing()
        if found is None and engine == "spark":
            self.request.settings.progress.note("starting Spark (a few seconds) ...")
            found = session()
        if found is None:
            here = self._here(asked=spark is not False)
            if here is not None:
                return here
            self.request.settings.progress.note("starting Spark (a few seconds) ...")
            found = session()
        from timelapse.engine.spark_executor import SparkExecutor

        executor = SparkExecutor(found, pinned=engine == "spark")
        plan = self.plan(executor.cores, executor.threads)
        if executor.pinned:
            return Settled(plan, executor, "engine spark was asked for")
        why = "tasks of the Spark session"
        if executor.threads > 1:
            why = _one_process(plan) or why
        return Settled(plan, executor, why)

    def _here(self, *, asked: bool) -> Settled | None:
        """What runs in this process, without Spark; None where a session is to be started. `asked`: whether it may be.

        One is where the replay would be faster by more than the start takes, or a master was named and has tasks to do.
        """
        settings, own, count = self.request.settings, usable_cores(), self.request.source.left
        master = wanted() if asked else None
        cores = None if master is None else local_cores(master)
        if cores is not None:
            plan = self.plan(cores, cores)
            why = "" if task_switch() == "spark" and plan.mode == "staged" else _one_process(plan)
            return None if not why else Settled(plan, LocalExecutor(threads=cores), why)
        local = LocalExecutor(threads=own)
        if not asked or count <= IN_PROCESS_EVENTS:
            plan = self.plan(1, own)
            if own > 1 and in_threads(plan):
                plan = self.plan(own, own)
            few = f"{count:,} events take less than Spark's start"
            return Settled(plan, local, few if count <= IN_PROCESS_EVENTS else "Spark was not asked for")
        plan = self.plan(own, own)
        if why := _one_process(plan) if own > 1 or plan.mode != "staged" else "":
            return Settled(plan, local, why)
        if settings.slices is None and settings.strategy is None:
            alone = self.plan(1, own)
            gain = (alone.ratio() - plan.ratio()) * plan.law.serial_seconds
            if gain < SPARK_START_SECONDS:
                why = f"slices on Spark would gain {max(0.0, gain):.1f} s, less than its start"
                return Settled(alone, local, why)
        return None


def _one_process(plan: Plan) -> str:
    """Why a plan has nothing for Spark on one machine to do; empty where it has."""
    if plan.mode == "by key":
        return "one compiled pass, whose events threads share out by key"
    if plan.mode != "staged":
        return "one pass in log order, which is a single task"
    return "all passes are machine code, which threads of one process run" if in_threads(plan) else ""


def in_threads(plan: Plan) -> bool:
    """Whether a plan's tasks can run side by side in this process: all of them machine code."""
    return plan.mode == "staged" and plan.unlocked
