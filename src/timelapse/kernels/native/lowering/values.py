"""What the compiler passes around: typed operands, and the refusal of what it does not compile."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from decimal import Context, Decimal
from typing import Any, Final

from timelapse.ids import INT64_MAX, INT64_MIN
from timelapse.model.decimals import scale_of, unscaled
from timelapse.model.types import DecimalType, ScalarType, ValueType

NOT_CONSTANT: Final[Any] = object()


_KINDS = {"int": "int", "Time": "int", "float": "float", "bool": "bool", "str": "str", "bytes": "bytes"}


def kind_of(declared: ValueType) -> str | None:
    """The kind of operands of a scalar type; None for other types."""
    if isinstance(declared, DecimalType):
        return decimal_kind(declared.scale)
    return _KINDS.get(declared.name) if isinstance(declared, ScalarType) else None


def decimal_kind(places: int) -> str:
    """The kind of decimals of this scale."""
    return f"dec{places}"


def places_of(kind: str) -> int | None:
    """The scale of a kind of decimals; None for other kinds."""
    return int(kind[3:]) if kind.startswith("dec") else None


@dataclass(frozen=True)
class Value:
    """An operand: names or literals of the generated code that may be repeated at no cost.

    `kind`: int, float, bool, str, bytes, tuple, optional, list or none; dec2 for a decimal of scale 2, as the whole number of
    its smallest unit. Strings are codes. A tuple is
    its items, and `cls` its class if that is a NamedTuple. An optional is two items: a bool, true where
    there is a value, and the value, which means nothing where there is none. None where it is known to
    be None is of kind none. A list is a part of an event's column: its items are the first place in the
    array `code`, the place behind the last, and something of the elements' kind. `const`: the Python
    value where it is known. `origin`: how Python computes it from the event alone, if it does. `bound`: an integer's
    absolute value is no larger, if that is known (`steady.py`).
    """

    kind: str
    code: str = ""
    items: tuple[Value, ...] = ()
    const: Any = NOT_CONSTANT
    cls: type | None = None
    origin: Any = field(default=None, compare=False, repr=False)
    bound: int | None = field(default=None, compare=False, repr=False)

    @property
    def shape(self) -> str:
        """The kind with the kinds of the items; values of one shape can share variables."""
        name = self.kind if self.cls is None else f"{self.kind}:{self.cls.__qualname__}:{id(self.cls)}"
        return f"{name}({','.join(i.shape for i in self.items)})" if self.items else name

    @property
    def words(self) -> list[str]:
        """The scalars that it consists of, an optional's presence before its value."""
        if self.is_compound:
            return [w for i in self.items for w in i.words]
        return [] if self.kind == "none" else [self.code]

    @property
    def is_compound(self) -> bool:
        """Whether it consists of its items."""
        return self.kind in ("tuple", "optional")

    @property
    def text(self) -> str:
        """The type in words, for people."""
        if self.kind == "none":
            return "None"
        if self.kind == "optional":
            return f"{self.items[1].text} | None"
        if self.cls is not None:
            return self.cls.__name__
        if (places := places_of(self.kind)) is not None:
            return f"Decimal[{places}]"
        if self.kind == "list":
            return f"list[{self.items[2].text}]"
        return f"tuple[{', '.join(i.text for i in self.items)}]" if self.kind == "tuple" else self.kind


@dataclass(frozen=True)
class SelfRef:
    """The program."""


@dataclass(frozen=True)
class EventRef:
    """The event that is being handled."""


NONE = Value("none", const=None)

Bound = Value | SelfRef | EventRef
Env = dict[str, Bound]


def spelled(number: int) -> str:
    """A constant integer. It has a name in generated code: Numba compiles a function anew for each literal that it is given;
    these are numbers like others."""
    if number == INT64_MIN:
        return "INT64_MIN"
    return f"N{number}" if number >= 0 else f"M{-number}"


def number_of(name: str) -> int | None:
    """The integer that such a name stands for; None for others, which are defined elsewhere."""
    if name[:1] not in ("N", "M") or not name[1:].isdigit():
        return None
    return int(name[1:]) * (1 if name[0] == "N" else -1)


def whole(number: int) -> Value:
    """A constant integer as an operand."""
    return Value("int", spelled(number), const=number)


_ZERO = {"int": "0", "float": "0.0", "bool": "False", "str": "0", "bytes": "0"}


def optional(present: str, inner: Value) -> Value:
    """`inner` where the boolean expression `present` holds, else None."""
    return Value("optional", items=(Value("bool", present), inner))


def absent(shape: Value) -> Value:
    """Anything of this value's shape, to stand where there is no value."""
    if shape.kind == "optional":
        return optional("False", absent(shape.items[1]))
    if shape.kind == "tuple":
        return Value("tuple", items=tuple(absent(i) for i in shape.items), cls=shape.cls)
    return Value(shape.kind, "0" if places_of(shape.kind) is not None else _ZERO.get(shape.kind, ""))


def common(a: Value, b: Value) -> Value | None:
    """A value of the shape that both fit into; None if there is none. Its code means nothing.

    None and a T make an optional T, a decimal and a constant of its scale that decimal. Nothing else is converted: an
    int is no float.
    """
    if "list" in (a.kind, b.kind):  # a part of one column is no part of another
        return a if a == b else None
    if a.shape == b.shape and not _holds_list(a):
        return a
    for one, other in ((a, b), (b, a)):
        if places_of(one.kind) is not None and rescaled(other, one.kind) is not None:
            return Value(one.kind)
    if a.kind == "none":
        return b if b.kind == "optional" else optional("", b)
    if b.kind == "none":
        return a if a.kind == "optional" else optional("", a)
    if "optional" in (a.kind, b.kind):
        inner = common(*(v.items[1] if v.kind == "optional" else v for v in (a, b)))
        return None if inner is None else optional("", inner)
    if a.kind == b.kind == "tuple" and a.cls is b.cls and len(a.items) == len(b.items):
        items = [common(x, y) for x, y in zip(a.items, b.items, strict=True)]
        found = tuple(i for i in items if i is not None)
        return Value("tuple", items=found, cls=a.cls) if len(found) == len(items) else None
    return None


def rescaled(value: Value, kind: str) -> Value | None:
    """A constant int or Decimal as a decimal of this kind; None where it does not fit."""
    places = places_of(kind)
    if places is None or type(value.const) not in (int, Decimal):
        return None
    scaled = (
        value.const.scaleb(places, _WIDE) if isinstance(value.const, Decimal) else value.const * 10**places
    )
    if scaled != int(scaled) or not INT64_MIN < scaled <= INT64_MAX:
        return None
    return Value(kind, spelled(int(scaled)))


_WIDE = Context(prec=100)


def _holds_list(value: Value) -> bool:
    return value.kind == "list" or any(map(_holds_list, value.items))


def fitted(value: Value, shape: Value) -> Value:
    """The same value in a shape that `common` gave for it."""
    if shape.kind == "optional":
        inner = shape.items[1]
        if value.kind == "none":
            return optional("False", absent(inner))
        if value.kind != "optional":
            return optional("True", fitted(value, inner))
        return optional(value.items[0].code, fitted(value.items[1], inner))
    if value.kind != shape.kind and (found := rescaled(value, shape.kind)) is not None:
        return found
    if shape.kind == "tuple" and value.shape != shape.shape:
        items = tuple(fitted(v, s) for v, s in zip(value.items, shape.items, strict=True))
        return Value("tuple", items=items, cls=shape.cls)
    return value


def constant(value: Any, code_of_text: Any) -> Value | None:
    """A Python constant as an operand; None where it is of no supported type."""
    if value is None:
        return NONE
    if type(value) is bool:
        return Value("bool", repr(value), const=value)
    if type(value) is int and INT64_MIN <= value <= INT64_MAX:
        return whole(value)
    if type(value) is Decimal and (places := scale_of(value)) is not None:
        units = unscaled(value, places, "it")
        return Value(decimal_kind(places), spelled(units), const=value)
    if type(value) is float and value == value:
        code = f"({'-' if value < 0 else ''}np.inf)" if math.isinf(value) else f"({value!r})"
        return Value("float", code, const=value)
    if type(value) in (str, bytes):
        try:
            value.encode() if isinstance(value, str) else value
        except UnicodeEncodeError:
            return None
        return Value(type(value).__name__, str(code_of_text(value)), const=value)
    if isinstance(value, tuple) and (type(value) is tuple or hasattr(type(value), "_fields")):
        items = [constant(v, code_of_text) for v in value]
        if any(i is None for i in items):
            return None
        cls = None if type(value) is tuple else type(value)
        return Value("tuple", items=tuple(i for i in items if i is not None), const=value, cls=cls)
    return None
