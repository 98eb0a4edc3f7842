"""A handler's exception as an error of the run: the event, the handler, the user's traceback."""

from __future__ import annotations

import traceback
from pathlib import Path

from timelapse.errors import HandlerError, Place
from timelapse.model.events import Event
from timelapse.model.program import Program, spec_of

_LONGEST = 500


_NOTES = str(Path("kinds", "past.py"))


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


def handler_error(
    program: Program, event: Event | str, handler: str, error: BaseException,
    place: tuple[int, int] | None = None,
) -> HandlerError:  # fmt: skip
    """The error of a run whose handler raised. The traceback's first frame is the calling loop.

    `event` is what was handled, as text where it is no event (a tick, a dated write); `place` its time and
    the seq of the log event that it comes from, where they are not those of the event.
    """
    if isinstance(event, Event):
        shown, (ts, seq) = repr(event), place or (event.ts, event.seq)
    else:
        assert place is not None
        shown, (ts, seq) = event, place
    frames = traceback.extract_tb(error.__traceback__)
    # The first frame is the loop that called the handler; the user's code comes after it. A dated write has none, and
    # may pass through who takes notes of it (kinds/past.py).
    user = [f for f in frames[1:] if f.name != "write" or not f.filename.endswith(_NOTES)] or frames
    text = "".join(traceback.format_list(user)) + "".join(traceback.format_exception_only(error))
    last = user[0] if user else None
    qualname = f"{spec_of(program).name}.{handler}"
    return HandlerError(
        f"{type(error).__name__}: {error} at {shown}",
        place=Place(last.filename if last else None, last.lineno if last else None, qualname),
        ts=ts, seq=seq, handler=handler, event=shown, user_traceback=text,
        event_type=type(event).__name__ if isinstance(event, Event) else "", cause=cause_of(error),
        reproducible=is_reproducible(error),
        hint="fix the handler, guard against such an event, or replay with --quarantine (quarantine=True)",
    )  # fmt: skip
