"""A handler's exception as an error of the run: the event, the handler, the user's traceback."""

from __future__ import annotations

import os
import sysconfig
import traceback
from collections.abc import Iterable
from pathlib import Path
from types import FrameType

from timelapse.errors import HandlerError, Place, TooManyQuarantined, UsageError
from timelapse.ids import Phase
from timelapse.model.events import Event
from timelapse.moments import time_text
from timelapse.program.program import Program, spec_of

LONGEST = 500
_CHANGES = frozenset({"add", "append", "discard", "extend", "insert", "pop", "remove", "update"})
"""Methods by which sets and lists change: what states give has none of them."""


Quarantined = tuple[int, int, int, str, str, str, str | None, int | None]
"""An event that was taken out of the log, as a row of `Run.quarantined`: ts, phase, seq, event type, the handler that
raised, what, and where (file, line)."""

FEW_FAILURES = 1_000
SHARE_OF_FAILURES = 20
"""Where nobody says, so many events may be taken out of the log, or one in so many if that is more."""
_REASONS = 5

_NOTES = str(Path("kinds", "past.py"))
_PACKAGE = f"{Path(__file__).parents[1]}{os.sep}"
_LIBRARIES = tuple(sysconfig.get_path(name) + os.sep for name in ("stdlib", "purelib", "platlib"))
_OWN = tuple(
    f"{_PACKAGE}{room}{os.sep}" for room in ("cache", "engine", "log", "segments", "store", "tables")
)
"""Folders whose functions no handler calls: kinds and kernels call them."""


def is_reproducible(error: BaseException) -> bool:
    """Whether an exception would come again wherever the event is processed.

    Memory and stack depth are the machine's: an event that meets their end cannot be taken out of the log, as
    another machine would keep it.
    """
    return not isinstance(error, MemoryError | RecursionError) and not is_own(error)


def is_own(error: BaseException) -> bool:
    """Whether an exception comes from where Timelapse reads and keeps data, and so says nothing of the handler that asked for it."""
    for frame, _ in reversed(list(traceback.walk_tb(error.__traceback__))):
        file = frame.f_code.co_filename
        if file.startswith(_PACKAGE):
            return file.startswith(_OWN)
        if os.path.isabs(file) and not file.startswith(_LIBRARIES):
            return False
    return False


def cause_of(error: BaseException) -> str:
    """An exception as `Type: text`, valid as UTF-8 and of bounded length."""
    text = f"{type(error).__name__}: {error}".encode(errors="backslashreplace").decode()
    return text if len(text) <= LONGEST else text[: LONGEST - 3] + "..."


AGAIN = "fix the handler, guard against such an event, or replay with quarantine=True (--quarantine)"
"""What to do where a handler raises."""


def handler_error(
    program: Program, event: Event | str, handler: str, error: BaseException,
    place: tuple[int, int] | None = None, *, brief: bool = False,
) -> HandlerError:  # fmt: skip
    """The error of a run whose handler raised. The traceback's first frame is the calling loop.

    `event` is what was handled, as text where it is no event (a tick, a dated write); `place` its time and
    the seq of the log event that it comes from, where they are not those of the event. `brief`: without the traceback,
    which takes longer than most handlers.
    """
    if isinstance(event, Event):
        shown, (ts, seq) = repr(event), place or (event.ts, event.seq)
    else:
        assert place is not None
        shown, (ts, seq) = event, place
    frames, user = _user_frames(error)
    text = "" if brief else _traceback(error)
    file, line = (frames[user[0]][0].f_code.co_filename, frames[user[0]][1]) if user else (None, None)
    qualname = f"{spec_of(program).name}.{handler}"
    what, code = "", "TL502"
    hint = AGAIN
    if isinstance(error, AttributeError) and isinstance(error.obj, tuple) and error.name in _CHANGES:
        hint = (
            "what a state gives is a copy that does not change: write through the state, as in self.x.add(key, value) of a "
            f"SetOf, or assign a new value, instead of .{error.name}(...) on what was read"
        )
    if is_own(error):
        what, code = "Timelapse failed where the handler uses a state: ", "TL516"
        hint = "look whether files of the log or the run were removed; otherwise it is a bug in Timelapse: please report it with its traceback"
    return HandlerError(
        f"{what}{type(error).__name__}: {error} at {shown}",
        place=Place(file, line, qualname),
        ts=ts, seq=seq, handler=handler, event=shown, user_traceback=text,
        event_type=type(event).__name__ if isinstance(event, Event) else "", cause=cause_of(error),
        reproducible=is_reproducible(error),
        hint=hint, code=code,
    )  # fmt: skip


def with_traceback(failure: HandlerError) -> HandlerError:
    """The failure of a handler, with the traceback that one that was made `brief` is without."""
    if not failure.user_traceback and failure.__cause__ is not None:
        failure.user_traceback = _traceback(failure.__cause__)
    return failure


def _user_frames(error: BaseException) -> tuple[list[tuple[FrameType, int]], list[int]]:
    """The frames of an exception, and which of them are the user's.

    The first frame is the loop that called the handler; the user's code comes after it. A dated write has none, and
    may pass through who takes notes of it (kinds/past.py).
    """
    frames = list(traceback.walk_tb(error.__traceback__))
    codes = [frame.f_code for frame, _ in frames]
    user = [
        n for n, c in enumerate(codes) if n and (c.co_name != "write" or not c.co_filename.endswith(_NOTES))
    ]
    return frames, user or list(range(len(frames)))


def _traceback(error: BaseException) -> str:
    found, (_, user) = traceback.extract_tb(error.__traceback__), _user_frames(error)
    return "".join(traceback.format_list([found[n] for n in user]) + traceback.format_exception_only(error))


def quarantined_row(failure: HandlerError) -> Quarantined:
    """The row for an event whose handler raised."""
    place = failure.place
    return (
        failure.ts, Phase.LOG_EVENT, failure.seq, failure.event_type, failure.handler, failure.cause,
        place.file, place.line,
    )  # fmt: skip


def most_failures(given: int | None, events: int) -> int:
    """How many events may be taken out of a log of so many. Raises UsageError for a number that makes no sense."""
    if given is None:
        return max(FEW_FAILURES, events // SHARE_OF_FAILURES)
    if isinstance(given, bool) or not isinstance(given, int) or given < 1:
        raise UsageError(
            f"max_quarantined= (--max-quarantined) is {given!r}",
            hint="give a number of events, at least 1",
            code="TL810",
        )
    return given


def too_many(rows: Iterable[Quarantined], most: int) -> TooManyQuarantined:
    """The error for one more failing event than may be taken out: `rows` are those that failed so far."""
    found: dict[tuple[object, ...], list[Quarantined]] = {}
    rows = tuple(rows)
    count = len(rows)
    for row in rows:
        _, _, _, event, handler, error, file, line = row
        found.setdefault((event, handler, error.split(":", 1)[0], file, line), []).append(row)
    ranked = sorted(found.values(), key=lambda rows: (-len(rows), rows[0][2]))
    reasons = tuple((_reason(rows[0]), len(rows)) for rows in ranked)
    shown = "".join(f"\n  {n:,} times {text}" for text, n in reasons[:_REASONS])
    more = sum(n for _, n in reasons[_REASONS:])
    raised = TooManyQuarantined(
        f"{count:,} events failed so far, and at most {most:,} may be taken out of the log{shown}"
        + (f"\n  {more:,} times for other reasons" if more else ""),
        hint="mend the handler, or guard against such events; max_quarantined=N (--max-quarantined N) takes more of "
        "them out",
    )
    raised.reasons, raised.rows = reasons, rows
    return raised


def _reason(row: Quarantined) -> str:
    ts, _, seq, event, handler, error, file, line = row
    place = "" if file is None else f" ({Path(file).name}:{line})"
    return f"{handler}{place}: {' '.join(error.split())}; first at {event or 'an event'} seq {seq}, {time_text(ts)}"
