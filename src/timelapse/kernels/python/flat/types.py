"""What is known of values before a handler runs: enough to leave out checks that cannot fail.

A type says what *every* value of an expression is; ANY says nothing. INT is an int of any size, INT64 one that
can be stored; CLEAN is a string that has a UTF-8 form. Types of event fields, parameters and what states hold are
certain, because those values have been checked when they were stored.
"""

from __future__ import annotations

from typing import Any

from timelapse.ids import INT64_MAX, INT64_MIN
from timelapse.model.types import DecimalType, ListType, OptionalType, ScalarType, TupleType, ValueType

Type = str | tuple[Any, ...]
"""A name below, or ("opt", T), ("list", T) for tuples of any length, ("tuple", (T, ...))."""

INT64, INT, FLOAT, BOOL, CLEAN, STR, BYTES, NONE, ANY = (
    "int64", "int", "float", "bool", "clean", "str", "bytes", "none", "any",
)  # fmt: skip
INTEGERS = (INT64, INT)
NUMBERS = (INT64, INT, FLOAT, BOOL)
SCALARS = (*NUMBERS, CLEAN, STR, BYTES, NONE)

_DECLARED = {"int": INT64, "Time": INT64, "float": FLOAT, "bool": BOOL, "str": CLEAN, "bytes": BYTES}


def declared(kind: ValueType | None) -> Type:
    """The type of values that were checked against a declaration."""
    if isinstance(kind, ScalarType):
        return _DECLARED.get(kind.name, kind.name)  # decimals: as they are stored, of just this scale
    if isinstance(kind, OptionalType):
        return optional(declared(kind.inner))
    if isinstance(kind, ListType):
        return ("list", declared(kind.inner))
    if isinstance(kind, TupleType) and kind.cls is None:
        return ("tuple", tuple(declared(item) for item in kind.items))
    return ANY


def optional(inner: Type) -> Type:
    """The same or None."""
    if inner in (ANY, NONE) or inner[0] == "opt":
        return inner
    return ("opt", inner)


def of_value(value: Any) -> Type:
    """The type of a constant."""
    kind = type(value)
    if kind is int:
        return INT64 if INT64_MIN <= value <= INT64_MAX else INT
    if kind is str:
        return CLEAN if value.isascii() else STR
    if kind is tuple:
        return ("tuple", tuple(of_value(v) for v in value))
    return {float: FLOAT, bool: BOOL, bytes: BYTES, type(None): NONE}.get(kind, ANY)


def join(one: Type | None, other: Type | None) -> Type | None:
    """The type of what may be one or the other. None stands for what never happens."""
    if one is None or one == other:
        return other
    if other is None:
        return one
    for pair in ((INTEGERS, INT), ((CLEAN, STR), STR)):
        if one in pair[0] and other in pair[0]:
            return pair[1]
    if one == NONE:
        return optional(other)
    if other == NONE:
        return optional(one)
    if "opt" in (one[0], other[0]):
        inner = join(one[1] if one[0] == "opt" else one, other[1] if other[0] == "opt" else other)
        return ANY if inner is None or inner == ANY else optional(inner)
    if one[0] == other[0] == "tuple" and len(one[1]) == len(other[1]):
        items = [join(a, b) for a, b in zip(one[1], other[1], strict=True)]
        return ("tuple", tuple(ANY if item is None else item for item in items))
    if one[0] == other[0] == "list":
        inner = join(one[1], other[1])
        return ("list", ANY if inner is None else inner)
    return ANY


def fits(kind: ValueType, known: Type) -> bool:
    """Whether every value of a known type is stored under a declaration as it is."""
    if isinstance(kind, ScalarType):
        return known == declared(kind)
    if isinstance(kind, OptionalType):
        inner = known[1] if known[0] == "opt" else known
        return known == NONE or (inner != ANY and fits(kind.inner, inner))
    if isinstance(kind, TupleType) and kind.cls is None:
        return (
            known[0] == "tuple"
            and len(known[1]) == len(kind.items)
            and all(fits(item, part) for item, part in zip(kind.items, known[1], strict=True))
        )
    if isinstance(kind, ListType):
        return known[0] == "list" and fits(kind.inner, known[1])
    return False


def guard(kind: ValueType, known: Type, name: str) -> str | None:
    """An expression over `name` that is true only where its value is stored as it is.

    None where it always is; "False" where that is not worth finding out. Where the expression is false, the
    ordinary check has the word: it may still accept the value, or turn it into another.
    """
    if fits(kind, known):
        return None
    if isinstance(kind, OptionalType):
        inner = guard(kind.inner, known[1] if known[0] == "opt" else known, name)
        return f"{name} is None or ({inner})" if inner is not None else f"{name} is None"
    if isinstance(kind, TupleType):
        if kind.cls is not None or len(kind.items) > 4:
            return "False"
        tests = []
        parts: tuple[Any, ...] = (ANY,) * len(kind.items)
        if known[0] == "tuple" and len(known[1]) == len(kind.items):
            parts = tuple(known[1])
        else:
            tests = [f"_tl_type({name}) is _tl_tuple", f"_tl_len({name}) == {len(kind.items)}"]
        own = [
            guard(item, part, f"{name}[{i}]")
            for i, (item, part) in enumerate(zip(kind.items, parts, strict=True))
        ]
        if "False" in own:
            return "False"
        return " and ".join([*tests, *(f"({test})" for test in own if test is not None)])
    if not isinstance(kind, ScalarType) or isinstance(kind, DecimalType):
        return "False"
    if kind.name in ("int", "Time"):
        limits = f"_tl_min <= {name} <= _tl_max"
        return limits if known == INT else f"_tl_type({name}) is _tl_int and {limits}"
    if kind.name == "str":
        return f"{name}.isascii()" if known == STR else f"_tl_type({name}) is _tl_str and {name}.isascii()"
    return f"_tl_type({name}) is _tl_{kind.name}"


GUARD_NAMES = {
    "_tl_type": type, "_tl_len": len, "_tl_int": int, "_tl_float": float, "_tl_bool": bool, "_tl_str": str,
    "_tl_bytes": bytes, "_tl_tuple": tuple, "_tl_sorted": sorted, "_tl_min": INT64_MIN, "_tl_max": INT64_MAX,
}  # fmt: skip
"""What the names in guards, and those of other builtins in generated code, mean."""
