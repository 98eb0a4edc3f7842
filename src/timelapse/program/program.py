"""Programs: parameters, states and handlers, declared as an ordinary class."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, TypeVar

from timelapse.errors import DefinitionError, Place, TimelapseError, UsageError, meant
from timelapse.ids import DAY, INT64_MAX
from timelapse.kinds.base import StateAlias, StateSpec
from timelapse.model.events import Event, Record
from timelapse.model.types import Check
from timelapse.program.calendar import Calendar
from timelapse.program.pending import HANDLED, is_hidden

if TYPE_CHECKING:
    from rich.console import RenderableType

    from timelapse.cards import Card

F = TypeVar("F", bound=Callable[..., Any])

RUNTIME_NAMES = ("emit", "reject", "now", "send", "cancel")
"""What every handler finds on `self` beside what the class declares."""


def runtime(name: str) -> Callable[[F], F]:
    """Whoever runs handlers gives them functions of its own: they have the same name in what Python says of a call."""

    def named(function: F) -> F:
        function.__qualname__ = f"Program.{name}"
        return function

    return named


Span = int | str
"""A length of time: microseconds, or the name of the parameter that holds them."""

LOOP = 1000
"""Derived events that one transaction may have, where the program does not say."""
GAP = 400 * DAY
"""How long a log may be without an event where there are ticks and the program does not say (microseconds)."""


@dataclass(frozen=True, slots=True)
class Listens:
    """What `@tl.on` or `@tl.every` says of a handler."""

    events: tuple[type[Event], ...]
    after: Span | None = None
    every: Span | None = None
    zone: str = "UTC"


def on(*events: type[Event], after: Span | None = None) -> Callable[[F], F]:
    """Call the decorated method for each event of these types (exact type, not subclasses).

    With `after` it is called that long after each such event of the log, with that event, rejected or not: a
    number of microseconds (`2 * tl.HOUR`), or the name of the parameter that holds it (`after="lag"`).
    Raises DefinitionError when something other than event classes is given.
    """
    with _placed(sys._getframe(1)):
        return _marked(_listens(events, after))


def _listens(events: tuple[type[Event], ...], after: Span | None) -> Listens:
    if not events:
        raise DefinitionError("@tl.on needs an event type", hint="@tl.on(Message)", code="TL105")
    for event in events:
        if not (isinstance(event, type) and issubclass(event, Event) and event is not Event):
            what = "without parentheses" if callable(event) and not isinstance(event, type) else repr(event)
            raise DefinitionError(
                f"@tl.on takes event types, not {what}",
                hint="name subclasses of tl.Event: @tl.on(Message), @tl.on(Message, Friendship)",
                code="TL105",
            )
    if len(set(events)) != len(events):
        raise DefinitionError("@tl.on names an event type twice", hint="name each type once", code="TL105")
    if after is not None:
        _check_span("@tl.on(after=...)", after)
    return Listens(events, after)


def every(period: Span, tz: str = "UTC") -> Callable[[F], F]:
    """Call the decorated method (`def tick(self):`) at calendar boundaries, before everything else at that time.

    `period` is a part of a day (`5 * tl.MINUTE`) or a number of days, in microseconds or as the name of the
    parameter that holds them; `tz` is the zone whose clocks count (a name of the IANA database). The first
    tick is not before the first event of the log, the last not after its last (or `until=`).
    See timelapse.program.calendar for what happens when clocks are changed.
    """
    with _placed(sys._getframe(1)):
        _check_span("@tl.every", period)
        Calendar(period if isinstance(period, int) else DAY, tz)
    return _marked(Listens((), None, period, tz))


@contextmanager
def _placed(frame: types.FrameType) -> Iterator[None]:
    """What is wrong with a decorator is said with the line that it stands on."""
    try:
        yield
    except DefinitionError as error:
        name = frame.f_code.co_name
        what = None if name.startswith("<") else name
        error.place = Place(frame.f_code.co_filename, frame.f_lineno, what)
        raise


def _marked(listens: Listens) -> Callable[[F], F]:
    def mark(function: F) -> F:
        if hasattr(function, "__tl_listens__"):
            raise DefinitionError(
                "a handler listens twice", code="TL105",
                place=Place(function.__code__.co_filename, function.__code__.co_firstlineno, function.__qualname__),
                hint="name all event types in one @tl.on; write a second method for ticks or another after=",
            )  # fmt: skip
        function.__tl_listens__ = listens  # type: ignore[attr-defined]
        return function

    return mark


def _check_span(what: str, span: object) -> None:
    if isinstance(span, str) and span.isidentifier():
        return
    if type(span) is not int or not 0 < span <= INT64_MAX:
        raise DefinitionError(
            f"{what} takes a length of time, not {span!r}", code="TL122",
            hint="a number of microseconds such as 2 * tl.HOUR, or a parameter's name in quotes",
        )  # fmt: skip


@dataclass(frozen=True)
class ParamSpec:
    """One parameter: its name, type and default (`required` when it has none)."""

    name: str
    text: str
    check: Check = field(compare=False, repr=False)
    default: Any = None
    required: bool = False


@dataclass(frozen=True)
class HandlerSpec:
    """One handler: its method's name, the event types it listens to, the function that runs."""

    name: str
    events: tuple[type[Event], ...]
    function: types.FunctionType = field(compare=False, repr=False)
    place: Place = field(default_factory=Place, compare=False)
    after: Span | None = None
    """Called so long after each event."""
    every: Span | None = None
    """Called at the boundaries of this period, with no event, in the zone `zone`."""
    zone: str = "UTC"


@dataclass(frozen=True)
class TimeUse:
    """One place where a program reaches into another time.

    `what` is after, every, derive (an event that is handled right after this one), send (with another time, or a
    timer), cancel, dated (a write with at=), past (a read with at=), last or ago;
    `state` the state's name where there is one. `text` is the length of time of a view as it is written
    in `function`, whose `self` is called `receiver`.
    """

    what: str
    place: Place = field(default_factory=Place, compare=False)
    state: str = ""
    text: str = ""
    receiver: str = ""
    function: types.FunctionType | None = field(default=None, compare=False, repr=False)

    @property
    def text_of_what(self) -> str:
        """As it is written in a program."""
        shown = {
            "after": "@tl.on(after=)", "every": "@tl.every", "derive": "self.send",
            "send": "self.send(after=, at= or key=)", "cancel": "self.cancel",
            "dated": f"self.{self.state}: a write with at=", "past": f"self.{self.state}.get(at=)",
        }  # fmt: skip
        return shown.get(self.what, f"self.{self.state}.{self.what}({self.text})")


@dataclass(frozen=True)
class ProgramSpec:
    """What a program class declares, in order."""

    name: str
    params: Mapping[str, ParamSpec]
    states: Mapping[str, StateSpec]
    handlers: tuple[HandlerSpec, ...]
    times: tuple[TimeUse, ...] = ()
    """Where the program reaches into another time, in the order of the text."""
    loop: int = LOOP
    """How many derived events one transaction may have."""
    sent: frozenset[type[Event]] = frozenset()
    """Event types that the program's code names beside `self.send`: a log need not have them."""
    gap: int = GAP
    """How long a log may be without an event where the program has ticks (microseconds)."""

    @property
    def serial_only(self) -> TimeUse | None:
        """The first use of another time that slices know nothing of: such programs run one event after the other.
        None where there is none."""
        return next((u for u in self.times if u.what not in HANDLED or is_hidden(u)), None)

    @property
    def declared(self) -> dict[str, StateSpec]:
        """The states that the program declares: without what slices carry beside them (program/pending.py)."""
        return {name: state for name, state in self.states.items() if not name.startswith("~")}

    @property
    def events(self) -> tuple[type[Event], ...]:
        """The event types that the program listens to, in the order of first mention."""
        return tuple(dict.fromkeys(e for h in self.handlers for e in h.events))

    def handlers_of(self, event: type[Event]) -> tuple[HandlerSpec, ...]:
        """Those called for an event of this type when it comes, in order."""
        return tuple(h for h in self.handlers if event in h.events and h.after is None)


class ProgramMeta(type):
    """Checks a program's declarations when its class statement ends."""

    def __new__(
        mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: Any
    ) -> ProgramMeta:
        # `class` statements set __qualname__. Without one, the class is bound to a run (`bind`) or
        # being rebuilt from another process, and carries its declarations already.
        declared = "__qualname__" in namespace and bool(bases)
        cls = super().__new__(mcs, name, bases, namespace)
        if declared:
            inherited = getattr(cls, "__spec__", None)
            options.setdefault("loop", getattr(inherited, "loop", LOOP))
            options.setdefault("gap", getattr(inherited, "gap", GAP))
            from timelapse.program.declare import declare_program

            cls.__spec__ = declare_program(cls, options)  # type: ignore[attr-defined]
        return cls

    def __init__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: Any) -> None:
        super().__init__(name, bases, namespace)


class Program(metaclass=ProgramMeta):
    """Base of all programs. Subclass it; declare parameters, states and handlers.

        class Busy(tl.Program):
            '''Senders of many messages.'''
            limit: int = 10
            sent: tl.Counter[int]

            @tl.on(Message)
            def count(self, m):
                self.sent[m.sender] += 1
                if self.sent[m.sender] == self.limit:
                    self.emit(Heavy(sender=m.sender))

    Handlers run in the order of definition, base classes first; an override takes its base's
    place. Declarations are checked when the class is defined (DefinitionError).
    """

    __spec__: ClassVar[ProgramSpec]

    # What the runtime supplies; declared for type checkers and for reading.
    now: int

    def __init__(self, **params: Any) -> None:
        spec = _spec(type(self))
        values: dict[str, Any] = {}
        for name, value in params.items():
            known = spec.params.get(name)
            if known is None:
                raise UsageError(
                    f"{spec.name} has no parameter {name!r}",
                    hint=f"{meant(name, spec.params)}parameters: {', '.join(spec.params) or 'none'}", code="TL801",
                )  # fmt: skip
            values[name] = known.check(value)
        for name, known in spec.params.items():
            if name not in values:
                if known.required:
                    raise UsageError(
                        f"{spec.name} needs the parameter {name!r} ({known.text})",
                        hint=f"{spec.name}({name}=...)", code="TL801",
                    )  # fmt: skip
                values[name] = known.default
        object.__setattr__(self, "__params__", values)
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise AttributeError(f"programs are immutable: make another one, {type(self).__name__}({name}=...)")

    def __repr__(self) -> str:
        params = ", ".join(f"{k}={v!r}" for k, v in params_of(self).items())
        return f"{type(self).__name__}({params})"

    def __rich__(self) -> RenderableType:
        return _card(self).rich()

    def _repr_html_(self) -> str:
        return _card(self).html()

    def emit(self, record: Record) -> None:
        """Put out a record. Only in handlers."""
        raise _outside("emit")

    def reject(self, reason: str | Record = "") -> NoReturn:
        """Stop this event and undo everything it did; a record given as the reason is put out.

        Only in handlers.
        """
        raise _outside("reject")

    def send(self, event: Event, *, after: int | None = None, at: int | None = None, key: Any = None) -> None:
        """Have an event handled right after this one, or at a later time; log and derived events look alike.

        `after` (microseconds from now) or `at` (a time not before now) make it a dated event, with a time of its
        own. With a `key` it is a timer: sending the same event type with the same key again replaces it as long
        as it is pending. Only in handlers.
        """
        raise _outside("send")

    def cancel(self, event: type[Event], *, key: Any) -> None:
        """Take back the pending timer of this event type and key. Nothing happens if there is none.

        Only in handlers.
        """
        raise _outside("cancel")


def _card(program: Program) -> Card:
    """What a program declares: parameters, states, handlers in their order."""
    from timelapse.cards import Card, Table

    spec = spec_of(program)
    values = params_of(program)
    doc = (type(program).__dict__.get("__doc__") or "").strip().splitlines()
    rows = [("state", name, state.text, "") for name, state in spec.declared.items()]
    rows += [
        (
            "handler",
            h.name,
            ", ".join(e.__name__ for e in h.events),
            f"line {h.place.line}" if h.place.line else "",
        )
        for h in spec.handlers
    ]
    facts = [(f"{name}: {param.text}", repr(values[name])) for name, param in spec.params.items()]
    return Card(spec.name, doc[0] if doc else "", facts, Table(("", "name", "of", ""), tuple(rows)))


def _outside(name: str) -> TimelapseError:
    return UsageError(
        f"self.{name} works only in handlers that a run calls",
        hint="to try handlers out, use timelapse.testing.Harness", code="TL802",
    )  # fmt: skip


def _spec(cls: type[Program]) -> ProgramSpec:
    spec = cls.__dict__.get("__spec__") or getattr(cls, "__spec__", None)
    if spec is None:
        raise UsageError("tl.Program is only a base: subclass it", code="TL802")
    return spec  # type: ignore[no-any-return]


def spec_of(program: Program | type[Program]) -> ProgramSpec:
    """The declarations of a program or program class."""
    return _spec(program if isinstance(program, type) else type(program))


def params_of(program: Program) -> dict[str, Any]:
    """A program's parameter values, in order of declaration."""
    values: dict[str, Any] = program.__params__  # type: ignore[attr-defined]
    return {name: values[name] for name in spec_of(program).params}


def as_program(program: Program | type[Program]) -> Program:
    """A program; a class stands for the program with its default parameters.

    Raises UsageError TL802 for anything else, DefinitionError TL105 for a program without handlers.
    """
    if isinstance(program, type) and issubclass(program, Program):
        return as_program(program())
    if isinstance(program, Program):
        if not spec_of(program).handlers:
            raise _idle(type(program))
        return program
    raise UsageError(
        f"a tl.Program is needed, not {type(program).__name__}", hint="pass Antispam or Antispam(ratio=3.0)",
        code="TL802",
    )  # fmt: skip


def _idle(cls: type[Program]) -> DefinitionError:
    """A program without handlers."""
    file = getattr(sys.modules.get(cls.__module__), "__file__", None) or cls.__module__
    return DefinitionError(
        f"{cls.__qualname__} has no handlers: no event would change or put out anything",
        place=Place(file, None, cls.__qualname__), code="TL105",
        hint="write @tl.on(EventType) above the methods that take events, @tl.every(PERIOD) above those that run by the clock",
    )  # fmt: skip


class Rejection(BaseException):
    """Carries `self.reject` from a handler to the loop. Not an Exception: handlers must not catch it."""

    def __init__(self, reason: str, record: Record | None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.record = record


def rejection(reason: str | Record = "") -> Rejection:
    """What `self.reject(reason)` raises."""
    if isinstance(reason, Record):
        return Rejection(type(reason).__name__, reason)
    if not isinstance(reason, str):
        raise UsageError(f"reject takes a string or a record, not {type(reason).__name__}", code="TL802")
    return Rejection(reason, None)


__all__ = [
    "HandlerSpec", "Listens", "ParamSpec", "Program", "ProgramSpec", "Rejection", "StateAlias",
    "TimeUse", "as_program", "every", "on", "params_of", "rejection", "spec_of",
]  # fmt: skip
