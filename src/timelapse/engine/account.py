"""Where the seconds of a run went.

Unit: core-seconds, the time that a core was busy with a phase or waited. All phases together are the wall time of
the run times the cores it could use: what no phase accounts for is `idle`, so that nothing is hidden.
"""

from __future__ import annotations

from collections.abc import Mapping

PHASES = {
    "plan": "analysis, plan, preparing the job",
    "compile": "making machine code, or loading it",
    "load": "start states into a pass's tables",
    "read": "reading columns from files",
    "decode": "columns into what a pass reads",
    "kernel": "handlers",
    "write": "results and effects: sorting, hashing, files",
    "exchange": "start states from what slices changed",
    "spark": "tasks' time on Spark outside Timelapse: scheduling, shipping, starting workers",
    "publish": "putting the run in its place",
    "idle": "cores without work",
}
"""Phases in the order in which they are shown, with what they are."""


class Account:
    """Adds up phases."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}

    def add(self, phase: str, seconds: float) -> None:
        self._seconds[phase] = self._seconds.get(phase, 0.0) + seconds

    def task(self, seconds: Mapping[str, float], waited: float) -> None:
        """A task's own account, and how long it took for who waited for it: the rest is Spark's."""
        known = {phase: s for phase, s in seconds.items() if phase in PHASES}
        for phase, s in known.items():
            self.add(phase, s)
        inside = seconds.get("total", waited)
        # Phases that run side by side (reading ahead) can add up to more than the task took.
        self.add("write", max(0.0, inside - sum(known.values())))
        self.add("spark", max(0.0, waited - inside))

    def close(self, wall: float, cores: int) -> dict[str, float]:
        """Core-seconds by phase, in the order of PHASES, with what is left over as idle.

        Threads are timed by the clock. Where there were more of them than cores, they waited for each other, and
        their times add up to more than there was: then each phase gets its share of what there was.
        """
        there, used = wall * cores, sum(self._seconds.values())
        found = {**self._seconds, "idle": there - used}
        if used > there:
            found = {phase: seconds * there / used for phase, seconds in self._seconds.items()}
        return {phase: found[phase] for phase in PHASES if found.get(phase, 0.0) > 0}
