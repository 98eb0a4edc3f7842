"""Deciding how and where a replay runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, NamedTuple

from timelapse.engine.executor import Executor, LocalExecutor
from timelapse.env.cores import usable_cores
from timelapse.env.master import local_cores, wanted
from timelapse.errors import UsageError
from timelapse.plan import Plan
from timelapse.plan.cost import Measured
from timelapse.run.conflicts import plan_of
from timelapse.run.request import Request
from timelapse.run.tuning import USUAL, Tuning

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TASKS = "timelapse.engine.tasks"
"""What workers import that run tasks."""


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

    def plan(self, cores: int, threads: int, machines: int = 1) -> Plan:
        """The plan for so many tasks at once on so many machines, and so many threads where a single task has the machine for itself."""
        asked = self.request
        source, settings = asked.source, asked.settings
        found = plan_of(
            asked.program, asked.analysis, source.reader, source.counts, cores=cores, threads=threads,
            slices=settings.slices, force=settings.strategy, known=self.measured, machines=machines,
            tuning=settings.tuned,
        )  # fmt: skip
        return found if settings.lead is None else replace(found, lead=settings.lead)

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
        from timelapse.env.spark_session import existing
        from timelapse.env.spark_start import is_starting

        engine = self.request.settings.engine
        if engine == "local" or (engine == "spark" and spark is False):
            if spark not in (None, False) or engine == "spark":
                what = "and Spark is ruled out" if spark is False else "and a Spark session is given"
                raise UsageError(
                    f"engine {engine} (--engine) was asked for, {what}", hint="give one of them", code="TL810"
                )
            spark = False
        found, why = None, ""
        if engine == "spark" and not spark and is_starting():
            why = "engine spark was asked for"
        elif engine == "spark":
            found, why = spark or existing(), "engine spark was asked for"
        elif spark:
            found, why = spark, "the Spark session that was given"
        elif spark is None and wanted() is not None:
            found, why = existing(), f"Spark on {wanted()} was asked for"
        elif spark is None:
            found = existing()
            why = "" if found is None else "the Spark session that is active; engine local does without"
        if found is None:
            if not why:
                here = self._here(asked=spark is not False)
                if here is not None:
                    return here
                why = "slices on Spark gain more than its start takes"
            self.request.settings.progress.note("starting Spark (a few seconds) ...")
            found = self._started()
        from timelapse.engine.spark_executor import SparkExecutor

        executor = SparkExecutor(found)
        return Settled(self.plan(executor.cores, executor.threads, executor.machines), executor, why)

    def _started(self) -> SparkSession:
        """A session that is started now. Where its cores are known, the plan is made meanwhile: what it takes is kept."""
        from timelapse.env.spark_session import session
        from timelapse.env.spark_start import begin

        begin(None, TASKS)
        own = local_cores(wanted() or "local[*]")
        if own is not None:
            self.plan(own, own)
        return session()

    def _here(self, *, asked: bool) -> Settled | None:
        """What runs in this process, without Spark; None where a session is to be started. `asked`: whether it may be: it
        is where the replay would be faster by more than the start takes, or slices were asked for that run as Python."""
        settings, own, count = self.request.settings, usable_cores(), self.request.source.left
        forced = settings.slices is not None or settings.strategy is not None
        found = plan_here(self.plan, own, count, asked=asked, forced=forced, tuning=settings.tuned)
        return None if found is None else Settled(found[0], LocalExecutor(threads=own), found[1])


def plan_here(
    make: Callable[[int, int], Plan],
    own: int,
    count: int,
    *,
    asked: bool,
    forced: bool,
    tuning: Tuning = USUAL,
) -> tuple[Plan, str] | None:
    """The plan of what runs in this process, and why it does; None where a session is to be started.

    `own`: this machine's cores, `count`: the log's events, `forced`: slices or strategies are given.
    """
    start = tuning.spark_start_seconds
    if not asked or count <= tuning.in_process_events:
        plan = make(1, own)
        if own > 1 and in_threads(plan):
            plan = make(own, own)
        few = f"{count:,} events take less than Spark's start of {start:.0f} s"
        return plan, few if count <= tuning.in_process_events else "Spark is ruled out"
    plan = make(own, own)
    if why := _one_process(plan) if own > 1 or plan.mode != "staged" else "":
        return plan, f"{why}; {_predicted(plan, start)}"
    if not forced:
        alone = make(1, own)
        gain = (alone.ratio() - plan.ratio()) * plan.law.serial_seconds
        if gain < start:
            return (
                alone,
                f"slices on Spark would gain {max(0.0, gain):.1f} s, less than its start of {start:.0f} s",
            )
    return None


def _predicted(plan: Plan, start: float) -> str:
    seconds = plan.ratio() * plan.law.serial_seconds
    return f"{seconds:.1f} s are predicted, Spark's start takes {start:.0f}"


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
