"""Looking into a run: one event under observation, why it put something out or not, a key through time.

Begin with `why.py` and `ways.py`, which tries the quickest way first. `event.py` does one event again under
observation: `instrument.py` rewrites handlers, `recorder.py` is told, `steps.py` is what comes of it.
`focus.py` and `matter.py` find the events that matter, `thin.py` the same in arrays; `moments.py`,
`whole.py`, `through.py`, `few.py` and `timed.py` are ways through a log. `history.py` follows a key,
`critical.py` finds the critical path.
"""

from timelapse.trace.event import event, events
from timelapse.trace.explanation import Explanation
from timelapse.trace.history import History, history
from timelapse.trace.steps import Branch, Condition, Emit, EventTrace, HandlerTrace, Read, Write
from timelapse.trace.views import View
from timelapse.trace.why import why, why_not

__all__ = [
    "Branch", "Condition", "Emit", "EventTrace", "Explanation", "HandlerTrace", "History", "Read", "View", "Write",
    "event", "events", "history", "why", "why_not",
]  # fmt: skip
