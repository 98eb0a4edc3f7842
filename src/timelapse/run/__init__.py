"""Runs: what a replay gave, kept as a directory or in memory."""

from timelapse.run.reference import run_serial
from timelapse.run.run import Run
from timelapse.run.start import replay
from timelapse.run.verify import Verification

__all__ = ["Run", "Verification", "replay", "run_serial"]
