"""Programs: parameters, states and handlers, declared as an ordinary class."""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, NoReturn, TypeVar

from timelapse.errors import DefinitionError, Place, TimelapseError, UsageError
from timelapse.kinds.base import State, StateAlias, StateSpec
from timelapse.model.events import Event, Record
from timelapse.model.types import Check

F = TypeVar("F", bound=Callable[..., Any])

RUNTIME_NAMES = ("emit", "reject", "now", "send", "cancel")
"""What every handler finds on `self` beside what the class declares."""


@dataclass(frozen=True, slots=True)
class Listens:
    """What `@tl.on` says of a handler."""

    events: tuple[type[Event], ...]


def on(*events: type[Event]) -> Callable[[F], F]:
    """Call the decorated method for each event of these types (exact type, not subclasses).

    Raises DefinitionError when something other than event classes is given.
    """
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

    def mark(function: F) -> F:
        function.__tl_listens__ = Listens(tuple(events))  # type: ignore[attr-defined]
        return function

    return mark


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


@dataclass(frozen=True)
class ProgramSpec:
    """What a program class declares, in order."""

    name: str
    params: Mapping[str, ParamSpec]
    states: Mapping[str, StateSpec]
    handlers: tuple[HandlerSpec, ...]

    @property
    def events(self) -> tuple[type[Event], ...]:
        """The event types that the program listens to, in the order of first mention."""
        return tuple(dict.fromkeys(e for h in self.handlers for e in h.events))

    def handlers_of(self, event: type[Event]) -> tuple[HandlerSpec, ...]:
        return tuple(h for h in self.handlers if event in h.events)


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
            from timelapse.model.declare import declare_program

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
                    hint="parameters: " + (", ".join(spec.params) or "none"), code="TL801",
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

    def emit(self, record: Record) -> None:
        """Put out a record. Only in handlers."""
        raise _outside("emit")

    def reject(self, reason: str | Record = "") -> NoReturn:
        """Stop this event and undo everything it did; a record given as the reason is put out.

        Only in handlers.
        """
        raise _outside("reject")


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
    """A program; a class stands for the program with its default parameters."""
    if isinstance(program, type) and issubclass(program, Program):
        return program()
    if isinstance(program, Program):
        return program
    raise UsageError(
        f"a tl.Program is needed, not {type(program).__name__}", hint="pass Antispam or Antispam(ratio=3.0)",
        code="TL802",
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


def bind(
    program: Program,
    states: Mapping[str, Any],
    runtime: Mapping[str, Any],
    members: Mapping[str, Any] | None = None,
) -> Any:
    """The `self` that handlers see: the program with live states, `now`, `emit` and `reject`.

    `states` maps names to state objects; `runtime` maps the names in RUNTIME_NAMES; `members`
    replaces methods of the class.
    The result's `__dict__["now"]` is the time of the step and is set by whoever runs it.
    """
    spec = spec_of(program)
    cls = type(program)
    namespace: dict[str, Any] = {"__setattr__": _guard, "__delattr__": _guard_delete, **(members or {})}
    plain = {}
    for name, live in states.items():
        # A delta object (kinds/effects.py) is only written through methods: never an attribute.
        if not _is_attribute(spec.states[name]) or not hasattr(live, "_read"):
            plain[name] = live
        else:
            namespace[name] = property(_reader(live), _writer(live), _deleter(live))
    meta: Any = type(cls)
    bound_class: Any = meta(cls.__name__, (cls,), namespace)
    bound = object.__new__(bound_class)
    bound.__dict__.update(params_of(program))
    bound.__dict__["__params__"] = params_of(program)
    bound.__dict__.update(plain)
    bound.__dict__.update(runtime)
    for live in states.values():
        if isinstance(live, State) and live.uses_now:
            live._now = lambda: bound.__dict__["now"]
    return bound


def _is_attribute(spec: StateSpec) -> bool:
    return spec.key is None and spec.kind.attribute_style


def _reader(live: Any) -> Callable[[Any], Any]:
    return lambda _self: live._read()


def _writer(live: Any) -> Callable[[Any, Any], None]:
    return lambda _self, value: live._write(value)


def _deleter(live: Any) -> Callable[[Any], None]:
    return lambda _self: live._delete()


def _guard(self: Any, name: str, value: Any) -> None:
    member = getattr(type(self), name, None)
    if isinstance(member, property) and member.fset is not None:
        member.fset(self, value)
        return
    raise AttributeError(f"self.{name} is not declared as a state: handlers keep nothing on self")


def _guard_delete(self: Any, name: str) -> None:
    member = getattr(type(self), name, None)
    if isinstance(member, property) and member.fdel is not None:
        member.fdel(self)
        return
    if name in self.__dict__ and hasattr(self.__dict__[name], "_delete"):
        self.__dict__[name]._delete()
        return
    raise AttributeError(f"self.{name} cannot be deleted")


__all__ = [
    "HandlerSpec", "Listens", "ParamSpec", "Program", "ProgramSpec", "Rejection", "StateAlias",
    "as_program", "bind", "on", "params_of", "rejection", "spec_of",
]  # fmt: skip
