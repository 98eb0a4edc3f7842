"""Comparing runs: what another version of a program does differently.

Begin with `differences.py`. `match.py` finds which output of one run is which of the other, `records.py`
says what is gone, new and changed, `by_parts.py` does so part by part, as jobs. `causes.py` finds the
condition that differs. `labels.py` and `score.py` judge by labels, `sweeps.py` replays many settings,
`enforcing.py` makes a program that enforces its own flags.
"""

from timelapse.compare.causes import Cause
from timelapse.compare.conditions import Condition, figures_of
from timelapse.compare.differences import Diff, diff
from timelapse.compare.enforcing import Counterfactual, enforce, what_if
from timelapse.compare.labels import Labels
from timelapse.compare.records import Change, EntityDiff, RecordDiff
from timelapse.compare.score import Judgement, Score, Scores, judge
from timelapse.compare.sweeps import Point, Sweep, open_sweep, sweep

__all__ = [
    "Cause", "Change", "Condition", "Counterfactual", "Diff", "EntityDiff", "Judgement", "Labels", "Point",
    "RecordDiff", "Score", "Scores", "Sweep", "diff", "enforce", "figures_of", "judge", "open_sweep", "sweep", "what_if",
]  # fmt: skip
