"""Deciding how and where a replay runs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from timelapse.engine.executor import Executor, LocalExecutor
from timelapse.env.cores import usable_cores
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

    def settle(self, spark: SparkSession | Literal[False] | None) -> tuple[Plan, Executor]:
        """The plan and who runs it: as for the replay before, where this is one of several of the same code."""
        asked = self.request
        several = asked.settings.several
        for analysis, plan, executor in () if several is None else several.settled:
            if analysis is asked.analysis:
                return plan, executor
        found = self._settle(spark)
        if several is not None:
            several.settled.append((asked.analysis, *found))
        return found

    def _settle(self, spark: SparkSession | Literal[False] | None) -> tuple[Plan, Executor]:
        """A local session is started where the replay would be faster by more than the start takes."""
        from timelapse.env.spark_session import existing, session

        settings, own = self.request.settings, usable_cores()
        local = LocalExecutor(threads=own)
        found = None if spark is False else spark if spark is not None else existing()
        if found is None:
            if spark is False or self.request.source.reader.count <= IN_PROCESS_EVENTS:
                plan = self.plan(1, own)
                return (self.plan(own, own) if own > 1 and in_threads(plan) else plan), local
            plan = self.plan(own, own)
            if plan.mode != "staged" or (own > 1 and in_threads(plan)):
                return plan, local
            if settings.slices is None and settings.strategy is None:
                alone = self.plan(1, own)
                if (alone.ratio() - plan.ratio()) * plan.law.serial_seconds < SPARK_START_SECONDS:
                    return alone, local
            settings.progress.note("starting Spark (a few seconds) ...")
            found = session()
        from timelapse.engine.spark_executor import SparkExecutor

        executor = SparkExecutor(found)
        return self.plan(executor.cores, executor.threads), executor


def in_threads(plan: Plan) -> bool:
    """Whether a plan's tasks can run side by side in this process: all of them machine code."""
    return plan.mode == "staged" and plan.unlocked
