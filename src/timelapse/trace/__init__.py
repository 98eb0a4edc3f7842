"""Looking into a run: one event under observation, why it put something out or not, a key through time."""

from timelapse.trace.event import event, events
from timelapse.trace.explanation import Explanation
from timelapse.trace.history import History, history
from timelapse.trace.steps import Branch, Condition, Emit, EventTrace, HandlerTrace, Read, Write
from timelapse.trace.why import why, why_not

__all__ = [
    "Branch", "Condition", "Emit", "EventTrace", "Explanation", "HandlerTrace", "History", "Read", "Write", "event",
    "events", "history", "why", "why_not",
]  # fmt: skip
