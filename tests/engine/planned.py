"""Replays by a plan that the test has made."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import timelapse as tl
from timelapse.analysis import analyse
from timelapse.engine.executor import Executor
from timelapse.plan import Plan
from timelapse.run import Run
from timelapse.run.request import Request, Settings
from timelapse.run.source import open_source
from timelapse.run.start import run_plan
from timelapse.run.tuning import USUAL, Tuning


def replay_by(
    plan: Plan, program: tl.Program, log: Any, executor: Executor, out: Path, slices: int, *, quarantine: bool = False,
    tuning: Tuning = USUAL,
) -> Run:  # fmt: skip
    """Replay by this plan and no other, without the cache."""
    settings = Settings(slices=slices, cache=False, quarantine=quarantine, tuning=tuning)
    return run_plan(
        Request(program, analyse(program), open_source(log, program), settings), plan, executor, out
    )
