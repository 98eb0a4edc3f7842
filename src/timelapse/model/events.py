"""Events and records: immutable, typed rows.

Both are tuples underneath: one is made for every event of a replay, and a tuple subclass is the
cheapest immutable object with named fields that Python has. They are not sequences to users: they
do not iterate, and two of different classes are never equal.
"""

from __future__ import annotations

import sys
import typing
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, Self, dataclass_transform

import pyarrow as pa

from timelapse.errors import DefinitionError, Place, TypeMismatch, meant
from timelapse.model.types import INT, TIME, Check, ValueType, parse_field

_RESERVED = {"ts", "seq", "phase", "ordinal"}


class Field(typing.NamedTuple):
    """One declared field."""

    name: str
    type: ValueType


class RowMeta(type):
    """Turns annotated classes into tuple types. Private: users subclass Event and Record."""

    __fields__: tuple[Field, ...]

    def __new__(
        mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: Any
    ) -> RowMeta:
        namespace.setdefault("__slots__", ())
        # `class` statements set __qualname__. Without one, the class is being rebuilt from
        # another process and everything below follows as plain attributes.
        rebuilt = "__qualname__" not in namespace
        cls = super().__new__(mcs, name, bases, namespace)
        if rebuilt or namespace.get("__abstract__"):
            return cls
        _define(cls, namespace, options)
        return cls

    def __init__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: Any) -> None:
        super().__init__(name, bases, namespace)


def _define(cls: RowMeta, namespace: dict[str, Any], options: dict[str, Any]) -> None:
    place = Place(_file_of(cls), None, cls.__qualname__)
    fields: dict[str, Field] = {f.name: f for f in getattr(cls, "__fields__", ())}
    for name, annotation in _hints(cls, place).items():
        if typing.get_origin(annotation) is ClassVar:
            continue
        if name in _RESERVED:
            raise DefinitionError(
                f"the name {name!r} is taken: every event and record has it",
                place=place, hint="give the field another name", code="TL101",
            )  # fmt: skip
        if name.startswith("_"):
            raise DefinitionError(
                f"a field's name cannot start with an underscore: {name!r}",
                place=place, hint="rename the field", code="TL101",
            )  # fmt: skip
        if name in namespace and not isinstance(namespace[name], property):
            raise DefinitionError(
                f"the field {name!r} has a default",
                place=place,
                hint="events and records carry every field explicitly; use an optional field (`int | None`)",
                code="TL101",
            )
        try:
            fields[name] = Field(name, parse_field(annotation))
        except DefinitionError as error:
            raise DefinitionError(
                f"field {name!r}: {error.message}", place=place, hint=error.hint, code="TL102"
            ) from None
    cls.__fields__ = tuple(fields.values())
    for index, field in enumerate(cls.__fields__):
        setattr(cls, field.name, _getter(index, f"{field.name}: {field.type.text}"))
    checks = tuple(f.type.checker(f"{cls.__name__}.{f.name}") for f in cls.__fields__)
    cls.__checks__ = checks  # type: ignore[attr-defined]
    cls.__names__ = tuple(fields)  # type: ignore[attr-defined]
    cls._finish(options, place)  # type: ignore[attr-defined]


def _getter(index: int, doc: str) -> Any:
    from collections import _tuplegetter  # type: ignore[attr-defined]

    return _tuplegetter(index, doc)


def _file_of(cls: type) -> str | None:
    return getattr(sys.modules.get(cls.__module__), "__file__", None)


def _hints(cls: type, place: Place) -> dict[str, Any]:
    """The class's own annotations, with strings resolved, also for classes made inside functions."""
    own = cls.__dict__.get("__annotations__", {})
    scope: dict[str, Any] = dict(vars(sys.modules.get(cls.__module__, typing)))
    frame = sys._getframe(1)
    locals_: dict[str, Any] = {}
    while frame is not None:  # pragma: no branch
        if frame.f_globals.get("__name__") == cls.__module__:
            for key, value in frame.f_locals.items():
                locals_.setdefault(key, value)
        frame = frame.f_back  # type: ignore[assignment]
    resolved: dict[str, Any] = {}
    for name, annotation in own.items():
        if isinstance(annotation, str):
            try:
                annotation = eval(annotation, scope, locals_)  # noqa: S307 the user's own annotation
            except Exception as error:
                raise DefinitionError(
                    f"the annotation of {name!r} cannot be resolved: {annotation} ({error})",
                    place=place, hint="import the names it uses before the class", code="TL102",
                ) from None  # fmt: skip
        resolved[name] = annotation
    return resolved


def _bind(cls: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    """Arguments to checked values, in field order; errors name the field."""
    fields: tuple[Field, ...] = cls.__fields__
    if not args and tuple(kwargs) == cls.__names__:  # by far the most are written so
        return [check(value) for check, value in zip(cls.__checks__, kwargs.values(), strict=True)]
    if len(args) > len(fields):
        raise TypeMismatch(f"{cls.__name__} takes {len(fields)} fields, {len(args)} were given")
    values = list(args)
    for field in fields[len(args) :]:
        try:
            values.append(kwargs.pop(field.name))
        except KeyError:
            close = next((k for k in kwargs if k not in cls.__names__ and meant(k, [field.name])), None)
            raise TypeMismatch(
                f"{cls.__name__} needs the field {field.name!r}",
                hint=(f"{close}: did you mean {field.name}? " if close else "")
                + "fields: "
                + ", ".join(f"{f.name}: {f.type.text}" for f in fields),
            ) from None
    if kwargs:
        name = next(iter(kwargs))
        twice = any(f.name == name for f in fields)
        raise TypeMismatch(
            f"{cls.__name__} got {name!r} twice" if twice else f"{cls.__name__} has no field {name!r}",
            hint=meant("" if twice else name, [f.name for f in fields])
            + "fields: "
            + ", ".join(f"{f.name}: {f.type.text}" for f in fields),
        )
    return [check(value) for check, value in zip(cls.__checks__, values, strict=True)]


class _Row(tuple[Any, ...], metaclass=RowMeta):
    """What events and records share."""

    __abstract__ = True
    __slots__ = ()
    __fields__: ClassVar[tuple[Field, ...]] = ()
    __checks__: ClassVar[tuple[Check, ...]] = ()
    __names__: ClassVar[tuple[str, ...]] = ()
    __iter__ = None  # type: ignore[assignment]  # rows are not sequences to users
    __getitem__ = None  # type: ignore[assignment]
    __len__ = None  # type: ignore[assignment]

    @classmethod
    def _finish(cls, options: dict[str, Any], place: Place) -> None:
        if options:
            raise DefinitionError(
                f"unknown class option {next(iter(options))!r}",
                place=place,
                code="TL101",
                hint="a record takes key=; an event takes none",
            )

    @classmethod
    def _raw(cls, values: Iterable[Any]) -> Self:
        """Make a row from stored values, unchecked: for readers of typed columns."""
        return tuple.__new__(cls, values)

    @classmethod
    def _raw_maker(cls) -> Callable[[Iterable[Any]], Self]:
        import functools

        return functools.partial(tuple.__new__, cls)

    def _values(self) -> tuple[Any, ...]:
        """The declared fields' values, in order."""
        return tuple.__getitem__(self, slice(0, len(self.__fields__)))

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and tuple.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash((type(self).__qualname__, tuple.__hash__(self)))

    def __lt__(self, other: object) -> bool:
        raise TypeError(f"{type(self).__name__} has no order; compare its fields")

    __le__ = __gt__ = __ge__ = __lt__
    __add__ = __mul__ = __rmul__ = __contains__ = None  # type: ignore[assignment]

    def __reduce__(self) -> tuple[Any, ...]:
        return (_unreduce, (type(self), tuple.__getitem__(self, slice(None))))


def _unreduce(cls: type[_Row], values: tuple[Any, ...]) -> _Row:
    return cls._raw(values)


def _repr(name: str, fields: Iterable[tuple[str, Any]]) -> str:
    return f"{name}({', '.join(f'{k}={v!r}' for k, v in fields)})"


if typing.TYPE_CHECKING:

    def _place_field(*, default: int, kw_only: typing.Literal[True]) -> Any:
        """Tells type checkers that every event takes `ts=` and `seq=`, optional and by name only."""
else:
    _place_field = None


@dataclass_transform(kw_only_default=False, frozen_default=True, field_specifiers=(_place_field,))
class _EventMeta(RowMeta):
    pass


class Event(_Row, metaclass=_EventMeta):
    """Something that happened. Subclass it and annotate the fields.

    Fields are int, float, bool, str, bytes, `tl.Time`, optionals and lists of those; lists read as
    tuples. Every event also has `ts`, its time in int64 microseconds UTC, and `seq`, its place in
    the log (-1 until a log assigns one). Events are immutable and match handlers by exact type.

        class Message(tl.Event):
            sender: int
            text: str

        Message(sender=1, text="hi", ts=1_700_000_000_000_000)
    """

    __abstract__ = True
    __slots__ = ()
    if typing.TYPE_CHECKING:
        ts: int = _place_field(default=0, kw_only=True)
        seq: int = _place_field(default=-1, kw_only=True)

    def __new__(cls, *args: Any, ts: int = 0, seq: int = -1, **kwargs: Any) -> Self:
        if "__checks__" not in cls.__dict__:
            raise TypeError(f"{cls.__name__} has no fields of its own: subclass tl.Event")
        values = _bind(cls, args, kwargs)
        values.append(_TS_CHECK(ts))
        values.append(_SEQ_CHECK(seq))
        return tuple.__new__(cls, values)

    @classmethod
    def _finish(cls, options: dict[str, Any], place: Place) -> None:
        super()._finish(options, place)
        count = len(cls.__fields__)
        cls.ts = _getter(count, "event time, int64 microseconds UTC")
        cls.seq = _getter(count + 1, "place in the log; -1 before it has one")

    def _at(self, ts: int, seq: int) -> Self:
        """The same event at another place."""
        return tuple.__new__(type(self), (*tuple.__getitem__(self, _FIELDS), ts, seq))

    def __repr__(self) -> str:
        pairs = [(f.name, v) for f, v in zip(self.__fields__, self._values(), strict=True)]
        return _repr(type(self).__name__, [*pairs, ("ts", self.ts), ("seq", self.seq)])


class Record(_Row, metaclass=_EventMeta):
    """What a program puts out with `self.emit`. Subclass it and annotate the fields.

    `class Spam(tl.Record, key="message")` names the field (or fields, as a tuple) by which two
    runs' records are matched when they are compared.
    """

    __abstract__ = True
    __slots__ = ()
    __key__: ClassVar[tuple[str, ...]] = ()
    __reads__: ClassVar[str] = ""
    """For classes that are no outputs but hold what was read at events of this type (engine/reads.py)."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        if "__checks__" not in cls.__dict__:
            raise TypeError(f"{cls.__name__} has no fields of its own: subclass tl.Record")
        return tuple.__new__(cls, _bind(cls, args, kwargs))

    @classmethod
    def _finish(cls, options: dict[str, Any], place: Place) -> None:
        key = options.pop("key", cls.__key__)
        super()._finish(options, place)
        names = (key,) if isinstance(key, str) else tuple(key)
        known = [f.name for f in cls.__fields__]
        for name in names:
            if name not in known:
                raise DefinitionError(
                    f"key={name!r} is not a field", place=place,
                    hint=f"fields: {', '.join(known) or 'none'}", code="TL101",
                )  # fmt: skip
        cls.__key__ = names

    def __repr__(self) -> str:
        pairs = [(f.name, v) for f, v in zip(self.__fields__, self._values(), strict=True)]
        return _repr(type(self).__name__, pairs)


_FIELDS = slice(0, -2)
"""Of an event: what it has is followed by its place."""
_TS_CHECK = TIME.checker("ts")
_SEQ_CHECK = INT.checker("seq")


def arrow_schema(cls: type[Event | Record]) -> pa.Schema:
    """The Arrow schema of a class's declared fields (without `ts` and `seq`)."""
    return pa.schema([pa.field(f.name, f.type.arrow, nullable=f.type.nullable) for f in cls.__fields__])
