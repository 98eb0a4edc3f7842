"""Plans: which passes find the state at the start of every slice, with which strategy, and why.

Begin with `make.py`, which makes a `plan.py`. `strategy.py` has the strategies, `cost.py` what passes cost,
`schedule.py` when each step may run: the driver and the planner ask the same object. `scale.py` plays a
plan through for any number of machines.
"""

from timelapse.plan.make import make_plan
from timelapse.plan.plan import Plan, Stage
from timelapse.plan.strategy import Choice, Strategy

__all__ = ["Choice", "Plan", "Stage", "Strategy", "make_plan"]
