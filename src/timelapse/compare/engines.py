"""Where two runs are compared: in memory, in this process part by part, or on Spark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from timelapse.env.jobs import Here, Jobs
from timelapse.env.machine import memory_alone
from timelapse.env.master import wanted
from timelapse.errors import UsageError
from timelapse.frames.tables import Rows, rows_of
from timelapse.kernels.base import REJECTED_SCHEMA
from timelapse.run.request import Engine, check_engine
from timelapse.run.run import Run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SPARK_ROWS = 20_000_000
"""Outputs of both runs together from which on a session that is there is used."""
_PACKED = 256
"""How much larger than its file a table may be."""


@dataclass(frozen=True)
class Chosen:
    """`jobs` is None where both runs are tables in memory."""

    jobs: Jobs | None = None
    why: str = ""

    @property
    def text(self) -> str:
        """Where that is and why, with what has been submitted so far."""
        where = "this process" if self.jobs is None else self.jobs.text
        return f"{where}: {self.why}" if self.why else where


def choose(
    engine: Engine, spark: SparkSession | Literal[False] | None, runs: Sequence[Run], *, what: str = "a comparison"
) -> Chosen:  # fmt: skip
    """Where the outputs of these runs are read. Raises UsageError as `diff` does."""
    check_engine(engine)
    if engine == "local" and spark not in (None, False):
        raise UsageError(
            "engine local (--engine) was asked for, and a Spark session is given", hint="give one of them", code="TL810"
        )  # fmt: skip
    if engine == "spark" and spark is False:
        raise UsageError(
            "engine spark (--engine) was asked for, and Spark is ruled out",
            hint="give one of them",
            code="TL810",
        )
    in_memory = [run for run in runs if run.path is None]
    if engine == "spark" and in_memory:
        raise UsageError(
            f"{what} on Spark reads files, and a run of {in_memory[0].program} is in memory only",
            hint="replay with out= (--out), or leave engine= (--engine) out", code="TL842",
        )  # fmt: skip
    if in_memory:
        return Chosen()
    rows = sum(sum(run.counts.values()) + run.rejected_count for run in runs)
    if engine == "spark":
        return _on_spark(spark or None, "engine spark was asked for")
    if engine == "auto" and spark is not False and rows >= SPARK_ROWS and all(run.shared for run in runs):
        from timelapse.env.spark_session import existing

        if spark or existing() is not None or wanted() is not None:
            return _on_spark(spark, f"{rows:,} outputs, and a Spark session")
    need, may = _memory(runs), memory_alone()
    if need > may:
        return Chosen(
            Here(), f"outputs take about {need >> 20:,} MB, this process should take {may >> 20:,} MB"
        )
    return Chosen()


def _on_spark(spark: SparkSession | None, why: str) -> Chosen:
    from timelapse.env.spark_jobs import SparkJobs
    from timelapse.env.spark_session import session

    return Chosen(SparkJobs(session(spark)), why)


def rejected_of(run: Run) -> Rows:
    """The files of a run's rejected events."""
    return Rows.of(run, "rejected", REJECTED_SCHEMA, run.rejected_count)


def _memory(runs: Sequence[Run]) -> int:
    """The bytes that all outputs take in memory while they are compared, about."""
    known = [run.manifest.files for run in runs]
    files = sum(
        part.bytes
        for own in known
        for name, part in (own or {}).items()
        if name.startswith(("outputs/", "rejected/"))
    )
    if None not in known and _PACKED * files < memory_alone():
        return 0  # whatever their columns are
    rows = [rows for run in runs for rows in (*(rows_of(run, name) for name in run.counts), rejected_of(run))]
    return sum(2 * piece.bytes + 64 * piece.rows for own in rows for piece in own.pieces())
