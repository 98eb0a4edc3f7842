"""One tree of errors. Each has a code, a place, and a hint that says what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar


@dataclass(frozen=True, slots=True)
class Place:
    """Where something is: a file and a line, and what stands there (`Antispam.flag`)."""

    file: str | None = None
    line: int | None = None
    what: str | None = None

    def __str__(self) -> str:
        where = self.file or ""
        if self.line is not None:
            where = f"{where}:{self.line}" if where else f"line {self.line}"
        return " ".join(part for part in (where, self.what) if part)


def meant(name: str, known: Iterable[str]) -> str:
    """`did you mean Antispam? ` where one of the known names is close to a name, else nothing: for hints."""
    by_lower = {str(k).lower(): str(k) for k in known}
    close = difflib.get_close_matches(name.lower(), by_lower, 1, 0.6)
    return f"did you mean {by_lower[close[0]]}? " if close else ""


class TimelapseError(Exception):
    """Base of every error that Timelapse raises on purpose.

    `code` is stable (`TL106`); `place` says where, `hint` what to do about it.
    """

    code: ClassVar[str] = "TL000"

    def __init__(
        self, message: str, *, place: Place | None = None, hint: str | None = None, code: str | None = None
    ) -> None:
        self.message = message
        self.place = place or Place()
        self.hint = hint
        if code is not None:
            self.code = code  # type: ignore[misc]  # an instance may narrow its class's code
        super().__init__(message)

    def __str__(self) -> str:
        place = str(self.place)
        head = f"{self.code} {place}: {self.message}" if place else f"{self.code} {self.message}"
        return f"{head}\n      {self.hint}" if self.hint else head

    def __reduce__(self) -> tuple[object, ...]:
        # Errors cross process boundaries (Spark workers), so every field must survive.
        return (_rebuild, (type(self), self.message, self.place, self.hint, self.code))


def _rebuild(
    cls: type[TimelapseError], message: str, place: Place, hint: str | None, code: str
) -> TimelapseError:
    error = cls.__new__(cls)
    TimelapseError.__init__(error, message, place=place, hint=hint, code=code)
    return error


# --- TL1xx: what is refused when a class is defined ------------------------------------------


class DefinitionError(TimelapseError):
    """An event, record or program is declared in a way that cannot be replayed."""

    code = "TL100"


# --- TL2xx: values ----------------------------------------------------------------------------


class ValueError_(TimelapseError):
    """Base of errors about a value at run time."""

    code = "TL200"


class TypeMismatch(ValueError_):
    """A value is not of the declared type."""

    code = "TL201"


class IntRange(ValueError_):
    """An integer that would be stored lies outside int64."""

    code = "TL202"


class BadString(ValueError_):
    """A string holds lone surrogates and so has no UTF-8 form."""

    code = "TL203"


class NotANumber(ValueError_):
    """NaN where it is refused: in Max, Min and Quantiles, which have no place for it."""

    code = "TL204"


class TimeRange(ValueError_):
    """A time outside what is allowed: a write or event dated before now, a read beyond the declared history."""

    code = "TL205"


class InexactDecimal(ValueError_):
    """A decimal has more digits behind the point than its place holds. Nothing is rounded silently."""

    code = "TL209"


class LoopBound(ValueError_):
    """More derived events in one transaction than the program allows."""

    code = "TL206"


# --- TL3xx: analysis and plan -------------------------------------------------------------------


class PlanError(TimelapseError):
    """A plan that was asked for cannot be made, or is slower than allowed."""

    code = "TL350"


# --- TL3xx: analysis --------------------------------------------------------------------------


class AnalysisError(TimelapseError):
    """A pass was asked for that the analysis does not allow."""

    code = "TL300"


# --- TL4xx: the log -----------------------------------------------------------------------------


class LogError(TimelapseError):
    """A log cannot be written, opened, read or appended to."""

    code = "TL400"


class IngestError(LogError):
    """A source cannot be ingested."""

    code = "TL410"


# --- TL5xx: running -----------------------------------------------------------------------------


class ReplayError(TimelapseError):
    """A replay cannot start or go on."""

    code = "TL500"


class EventOrderError(ReplayError):
    """Events that were given as a list are not in log order."""

    code = "TL501"


class SilentLog(ReplayError):
    """A log is without events for longer than a program with ticks, or with timers that start themselves again, allows.

    `event` is the type of the event behind the gap, `ts` its time, `before` that of the event before it.
    """

    code = "TL510"
    event: str = ""
    ts: int = 0
    before: int = 0


class HandlerError(ReplayError):
    """A handler raised. Names the first failing event in log order.

    `event` is its text, `event_type` its type's name, `handler` the name, `cause` the exception's type and
    text, `user_traceback` the traceback in the user's code. `reproducible` is false where the machine's memory or
    stack came to an end.
    """

    code = "TL502"

    def __init__(
        self,
        message: str,
        *,
        place: Place | None = None,
        hint: str | None = None,
        code: str | None = None,
        ts: int = 0,
        seq: int = -1,
        handler: str = "",
        event: str = "",
        user_traceback: str = "",
        event_type: str = "",
        cause: str = "",
        reproducible: bool = True,
    ) -> None:
        super().__init__(message, place=place, hint=hint, code=code)
        self.ts = ts
        self.seq = seq
        self.handler = handler
        self.event = event
        self.user_traceback = user_traceback
        self.event_type = event_type
        self.cause = cause
        self.reproducible = reproducible
        self.taken: tuple[tuple[Any, ...], ...] = ()
        """What had been taken out before (rows of `Run.quarantined`), where this one was one too many."""
        self.before: tuple[tuple[Any, ...], ...] = ()
        """The same of the whole replay, in any case where it is one slice after the other."""

    def __reduce__(self) -> tuple[object, ...]:
        fields = dict(self.__dict__)
        fields["code"] = self.code
        return (_rebuild_handler_error, (fields,))


def _rebuild_handler_error(fields: dict[str, object]) -> HandlerError:
    keys = (
        "place",
        "hint",
        "code",
        "ts",
        "seq",
        "handler",
        "event",
        "user_traceback",
        "event_type",
        "cause",
        "reproducible",
    )
    return HandlerError(str(fields["message"]), **{k: fields[k] for k in keys})  # type: ignore[arg-type]


class TooManyQuarantined(ReplayError):
    """More events failed than may be taken out of the log. `reasons` has how many failed why, the most frequent first; `rows` all of them
    (program/failure.py)."""

    code = "TL514"
    reasons: tuple[tuple[str, int], ...] = ()
    rows: tuple[tuple[Any, ...], ...] = ()


class ImpureProgram(ReplayError):
    """A handler reads something that a replay cannot reproduce (a clock, randomness, the outside)."""

    code = "TL503"


class Cancelled(ReplayError):
    """The user stopped the job."""

    code = "TL504"


class RunError(TimelapseError):
    """A stored run cannot be opened or asked for something it does not hold."""

    code = "TL600"


class SetupError(TimelapseError):
    """The machine lacks something: Java, Spark, memory, a writable place."""

    code = "TL700"


class StorageError(TimelapseError):
    """A place that is not understood, full or taken; a stored file that was altered."""

    code = "TL930"


class SourceError(TimelapseError):
    """A live stream's source is not what it was, or does not give its rows."""

    code = "TL945"


class NoSpace(StorageError, OSError):
    """There is no room for what is to be written; whoever can do without it takes it as any other OSError."""

    code = "TL932"


class UsageError(TimelapseError):
    """A command or call was given something that does not make sense."""

    code = "TL800"
