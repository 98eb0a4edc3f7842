"""Event types as a log declares them, and whether a program's event classes fit them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa

from timelapse.errors import LogError, Place
from timelapse.model.events import Event, Field, RowMeta
from timelapse.model.types import (
    INT,
    TIME,
    DecimalType,
    ListType,
    OptionalType,
    Time,
    ValueType,
    scalar_named,
)
from timelapse.program.program import ProgramSpec

_MADE_IN = "timelapse.log.types"
"""The module that classes made for a log's types say they are of: fingerprints of programs over them have it, and runs keep those."""


class NotInLog(LogError):
    """A program listens to events that the log does not have, or that differ from the program's."""

    code = "TL402"


@dataclass(frozen=True)
class EventType:
    """An event type of a log: a name and fields in declared order (without `ts` and `seq`)."""

    name: str
    fields: tuple[Field, ...]

    @classmethod
    def of(cls, event: type[Event]) -> EventType:
        return cls(event.__name__, tuple(event.__fields__))

    @classmethod
    def parse(cls, name: str, fields: Iterable[Sequence[str]]) -> EventType:
        """From the manifest's texts: `("sender", "int | None")`."""
        return cls(name, tuple(Field(field, parse_type(text)) for field, text in fields))

    @property
    def texts(self) -> tuple[tuple[str, str], ...]:
        return tuple((f.name, f.type.text) for f in self.fields)

    @cached_property
    def schema(self) -> pa.Schema:
        """Arrow schema of the fields."""
        return pa.schema([pa.field(f.name, f.type.arrow, nullable=f.type.nullable) for f in self.fields])

    def event_class(self) -> type[Event]:
        """A new event class of this name and these fields."""
        fields = {f.name: _annotation(f.type) for f in self.fields}
        body = {"__annotations__": fields, "__qualname__": self.name, "__module__": _MADE_IN}
        made: type[Event] = RowMeta(self.name, (Event,), body)  # type: ignore[assignment]
        return made

    def field(self, name: str) -> Field | None:
        return next((f for f in self.fields if f.name == name), None)

    def __str__(self) -> str:
        return f"{self.name}({', '.join(f'{n}: {t}' for n, t in self.texts)})"


def _annotation(kind: ValueType) -> Any:
    """A field's type as a class says it."""
    if isinstance(kind, OptionalType):
        return _annotation(kind.inner) | None
    if isinstance(kind, ListType):
        return list[_annotation(kind.inner)]  # type: ignore[misc]
    if isinstance(kind, DecimalType):
        return kind.annotation
    return Time if kind == TIME else kind.python  # type: ignore[attr-defined]


def parse_type(text: str) -> ValueType:
    """The inverse of `ValueType.text` for field types. Raises LogError for an unknown text."""
    scalar = scalar_named(text)
    if scalar is not None:
        return scalar
    if text.endswith(" | None"):
        return OptionalType(parse_type(text.removesuffix(" | None")))
    if text.startswith("list[") and text.endswith("]"):
        return ListType(parse_type(text[5:-1]))
    raise LogError(f"unknown field type {text!r}", hint="the log was written by a later version of Timelapse")


def event_types(classes: Iterable[type[Event]]) -> tuple[EventType, ...]:
    """The types of event classes. Raises LogError when two share a name, which is what a log knows them by."""
    seen: dict[str, type[Event]] = {}
    for cls in classes:
        if not (isinstance(cls, type) and issubclass(cls, Event)):
            raise LogError(f"{cls!r} is not an event class", hint="subclass tl.Event")
        if seen.setdefault(cls.__name__, cls) is not cls:
            raise LogError(
                f"two event types are named {cls.__name__}", hint="rename one: a log knows them by name"
            )
    return tuple(EventType.of(cls) for cls in seen.values())


def readable_as(stored: ValueType, wanted: ValueType) -> bool:
    """Whether every stored value is a value of the wanted type, unchanged. Time and int are both int64."""
    if isinstance(wanted, OptionalType):
        return readable_as(stored.inner if isinstance(stored, OptionalType) else stored, wanted.inner)
    if isinstance(stored, ListType) and isinstance(wanted, ListType):
        return readable_as(stored.inner, wanted.inner)
    return stored == wanted or {stored, wanted} == {INT, TIME}


def heard(spec: ProgramSpec, types: Sequence[EventType]) -> tuple[type[Event], ...]:
    """The event types that a program hears from a log: all it listens to but those that only it sends."""
    names = {t.name for t in types}
    return tuple(e for e in spec.events if e.__name__ in names or e not in spec.sent)


def bind(
    types: Sequence[EventType], classes: Iterable[type[Event]], *, log: str = "the log"
) -> Mapping[str, type[Event]]:
    """The classes by the names under which the log holds them.

    The log may have more types and more fields. Raises NotInLog, listing every difference.
    """
    known = {t.name: t for t in types}
    bound: dict[str, type[Event]] = {}
    problems: list[str] = []
    for cls in classes:
        name = cls.__name__
        stored = known.get(name)
        if stored is None:
            problems.append(f"{name}: not a type of this log")
        elif bound.setdefault(name, cls) is not cls:
            problems.append(f"{name}: two different classes have this name")
        else:
            problems.extend(_differences(stored, cls))
    if problems:
        held = "; ".join(str(t) for t in types) or "no types"
        raise NotInLog(
            f"the program's events do not fit {log}: {'; '.join(problems)}",
            place=Place(what=log),
            hint=f"the log holds {held}",
        )
    return bound


def _differences(stored: EventType, cls: type[Event]) -> list[str]:
    found = []
    for field in cls.__fields__:
        held = stored.field(field.name)
        if held is None:
            found.append(f"{stored.name}.{field.name}: not a field in the log")
        elif not readable_as(held.type, field.type):
            found.append(
                f"{stored.name}.{field.name}: {held.type.text} in the log, {field.type.text} in the program"
            )
    return found
