"""Plans: which passes find the state at the start of every slice, with which strategy, and why."""

from timelapse.plan.make import make_plan
from timelapse.plan.plan import Plan, Stage
from timelapse.plan.strategy import Choice, Strategy

__all__ = ["Choice", "Plan", "Stage", "Strategy", "make_plan"]
