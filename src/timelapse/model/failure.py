"""A handler's exception as an error of the run: the event, the handler, the user's traceback."""

from __future__ import annotations

import traceback

from timelapse.errors import HandlerError, Place
from timelapse.model.events import Event
from timelapse.model.program import Program, spec_of

_LONGEST = 500


def is_reproducible(error: BaseException) -> bool:
    """Whether an exception would come again wherever the event is processed.

    Memory and stack depth are the machine's: an event that meets their end cannot be taken out of the log, as
    another machine would keep it.
    """
    return not isinstance(error, MemoryError | RecursionError)


def cause_of(error: BaseException) -> str:
    """An exception as `Type: text`, valid as UTF-8 and of bounded length."""
    text = f"{type(error).__name__}: {error}".encode(errors="backslashreplace").decode()
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."


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
        event_type=type(event).__name__, cause=cause_of(error),
        hint="fix the handler, guard against such an event, or replay with --quarantine (quarantine=True)",
    )  # fmt: skip
