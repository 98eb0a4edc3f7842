"""Comparing runs: what another version of a program does differently."""

from timelapse.compare.conditions import Condition, figures_of
from timelapse.compare.differences import Change, Diff, EntityDiff, RecordDiff, diff
from timelapse.compare.labels import Labels
from timelapse.compare.score import Judgement, Score, Scores, judge

__all__ = [
    "Change", "Condition", "Diff", "EntityDiff", "Judgement", "Labels", "RecordDiff", "Score", "Scores", "diff",
    "figures_of", "judge",
]  # fmt: skip
