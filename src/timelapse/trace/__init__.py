"""Looking into a run: one event under observation, why it put something out, who wrote what it read."""

from timelapse.trace.event import event, events
from timelapse.trace.steps import Branch, Condition, Emit, EventTrace, HandlerTrace, Read, Write

__all__ = ["Branch", "Condition", "Emit", "EventTrace", "HandlerTrace", "Read", "Write", "event", "events"]
