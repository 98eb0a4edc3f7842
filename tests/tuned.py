"""Replays with other thresholds, and caches that are asked for small logs too."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from timelapse.cache.store import Store
from timelapse.cache.tuning import CacheTuning
from timelapse.kernels.tuning import FindingTuning, KernelTuning, NativeTuning
from timelapse.moments import micros
from timelapse.program.program import as_program
from timelapse.run import Run
from timelapse.run.request import Settings
from timelapse.run.start import replay_as
from timelapse.run.tuning import Tuning


def tuned(tuning: Tuning) -> Callable[..., Run]:
    """`tl.replay` with other thresholds."""

    def replay(
        program: Any, log: Any, out: Any = None, slices: int | None = None, spark: Any = None, *,
        start_from: Any = None, until: Any = None, **asked: Any,
    ) -> Run:  # fmt: skip
        end = None if until is None else micros(until, "until=")
        settings = Settings(slices, until=end, tuning=tuning, **asked)
        return replay_as(as_program(program), log, out, spark, settings, start_from)

    return replay


def tune_cache(place: Path, **thresholds: Any) -> None:
    """Set thresholds of the cache in a folder. Small logs are worth looking up and keeping there, unless said otherwise."""
    Store(place).tune(CacheTuning(**{"least_events": 0, **thresholds}))


def finding(**thresholds: Any) -> Tuning:
    """A replay's thresholds, with others of how compiled code finds events from which something fails late."""
    return Tuning(KernelTuning(native=NativeTuning(finding=FindingTuning(**thresholds))))
