"""A handler's exception as an error of the run: the event, the handler, the user's traceback."""

from __future__ import annotations

import traceback

from timelapse.errors import HandlerError, Place
from timelapse.model.events import Event
from timelapse.model.program import Program, spec_of


def handler_error(program: Program, event: Event, handler: str, error: BaseException) -> HandlerError:
    """The error of a run whose handler raised. The traceback's first frame is the calling loop."""
    frames = traceback.extract_tb(error.__traceback__)
    # The first frame is the loop that called the handler; the user's code comes after it.
    user = frames[1:] or frames
    text = "".join(traceback.format_list(user)) + "".join(traceback.format_exception_only(error))
    last = user[0] if user else None
    qualname = f"{spec_of(program).name}.{handler}"
    return HandlerError(
        f"{type(error).__name__}: {error} at {event!r}",
        place=Place(last.filename if last else None, last.lineno if last else None, qualname),
        ts=event.ts, seq=event.seq, handler=handler, event=repr(event), user_traceback=text,
        hint="fix the handler, or guard against such an event",
    )  # fmt: skip
