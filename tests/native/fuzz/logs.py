"""Logs for random handlers: few keys and many ties; or values at the edges."""

from __future__ import annotations

import math
import random
from typing import Any

import timelapse as tl
from timelapse.model.events import Event
from timelapse.model.types import ListType, OptionalType, ScalarType, ValueType
from timelapse.program.program import spec_of

_INTS = (
    2**63 - 1,
    -(2**63),
    2**53,
    2**53 + 1,
    -(2**53) - 1,
    2**62,
    -(2**62),
    2**32,
    2**31 - 1,
    -(2**31),
    255,
)
_FLOATS = (
    float("nan"), float("inf"), float("-inf"), -0.0, 5e-324, -5e-324, 2.2e-308, 1e308, -1e308, 2.0**53,
    2.0**53 + 2, 2.0**63, -(2.0**63), 0.1, 1e16, 1.5, -2.5,
)  # fmt: skip
_STRINGS = (
    "", "a", "b", "é", "e\u0301", "a\0b", "\0", "\U0001f600", "z" * 70, "a@b.c", "A", "ß", "İ", "9", "٣",
    " a ", "zz", "none", "ﬀ",
)  # fmt: skip
_BYTES = (b"", b"x", b"ab", b"\xff\0", b"\0", b"a", b"q" * 40)


def _scalar(kind: str, rng: random.Random, edges: float) -> Any:
    odd = rng.random() < edges
    if kind in ("int", "Time"):
        return rng.choice(_INTS) if odd else 9 if rng.random() < 0.02 else rng.randrange(-2, 5)
    if kind == "float":
        value = rng.choice(_FLOATS) if odd else rng.choice((0.0, 0.5, 1.0, -1.5, 2.0, 3.25, -0.0))
        # Fields of a log share no object, and within tuples Python takes one and the same NaN for equal.
        return float("nan") if math.isnan(value) else value
    if kind == "bool":
        return rng.random() < 0.5
    if kind == "str":
        return rng.choice(_STRINGS if odd else _STRINGS[:6])
    return rng.choice(_BYTES if odd else _BYTES[:3])


def _value(kind: ValueType, rng: random.Random, edges: float) -> Any:
    if isinstance(kind, OptionalType):
        return None if rng.random() < 0.3 else _value(kind.inner, rng, edges)
    if isinstance(kind, ListType):
        count = 60 if edges and rng.random() < 0.02 else rng.choice((0, 0, 1, 2, 3))
        return tuple(_value(kind.inner, rng, edges) for _ in range(count))
    assert isinstance(kind, ScalarType)
    return _scalar(kind.name, rng, edges)


def random_log(program: type[tl.Program], seed: int, count: int, edges: float) -> list[Event]:
    """Events in log order, many at one time. `edges`: the share of values at the edges."""
    rng = random.Random(seed)
    types: tuple[Any, ...] = spec_of(program).events
    now, events = rng.choice((0, 3)), []
    for _ in range(count):
        now += rng.choice((0, 0, 0, 1, 2))
        cls = rng.choice(types)
        events.append(cls(**{f.name: _value(f.type, rng, edges) for f in cls.__fields__}, ts=now))
    return events
