"""What random handlers are made of: features, types, states, and the events and records of every program."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

FEATURES: dict[str, float] = {
    # Expressions
    "mul": 0.7, "floordiv": 0.6, "truediv": 0.5, "bits": 0.4, "shift": 0.25, "power": 0.25, "minmax": 0.6,
    "abs": 0.4, "chain": 0.5, "choice": 0.6, "short": 0.6, "bool_number": 0.2, "edges": 0.4, "cast": 0.4,
    "floats": 0.7, "float_floor": 0.25, "float_power": 0.1, "float_int": 0.2, "math": 0.25, "round": 0.15,
    "divmod": 0.15, "walrus": 0.2, "three_args": 0.3, "mixed_choice": 0.05, "now": 0.5,
    # Text
    "strings": 0.7, "bytes": 0.5, "string_order": 0.2, "contains": 0.3, "prefix": 0.3, "text_methods": 0.2,
    "text_slices": 0.15, "format": 0.08, "concat": 0.1, "constant_set": 0.4, "length": 0.4,
    # Compound values
    "tuples": 0.6, "tuple_order": 0.2, "nested": 0.3, "points": 0.4, "optionals": 0.5, "unsafe": 0.08,
    "lists": 0.4, "list_index": 0.4, "list_sums": 0.4, "generators": 0.3, "list_in": 0.3,
    # Statements
    "range": 0.5, "for_list": 0.4, "for_tuple": 0.4, "while": 0.4, "break": 0.5, "loop_else": 0.3, "return": 0.6,
    "augmented": 0.7, "unpack": 0.5, "several_targets": 0.3, "assert": 0.2, "raise": 0.25, "match": 0.1,
    "delete": 0.3, "retype": 0.04, "try": 0.03, "enumerate": 0.2, "zip": 0.15,
    # Calls
    "helpers": 0.6, "defaults": 0.5, "keywords": 0.5, "methods": 0.6, "properties": 0.4, "static": 0.2,
    "super": 0.2, "closures": 0.15, "recursion": 0.02,
    # States and outputs
    "reject": 0.4, "reject_record": 0.5, "emit_local": 0.2, "record_optionals": 0.4, "list_out": 0.1,
    "pop": 0.3, "get": 0.4, "top": 0.05, "odd_reads": 0.03,
}  # fmt: skip
"""Each program has every feature with this probability: what is refused then spoils few of them."""

ANNOTATION = {
    "int": "int", "float": "float", "bool": "bool", "str": "str", "bytes": "bytes", "int?": "int | None",
    "float?": "float | None", "str?": "str | None", "pair": "tuple[int, int]", "mixed": "tuple[str, bool]",
    "triple": "tuple[int, str, bytes]", "quad": "tuple[int, int, bool, str]", "point": "Point",
    "nested": "tuple[tuple[int, int], float]", "pair?": "tuple[int, int] | None",
}  # fmt: skip
PARTS = {
    "pair": ("int", "int"), "mixed": ("str", "bool"), "triple": ("int", "str", "bytes"),
    "quad": ("int", "int", "bool", "str"), "nested": ("pair", "float"), "point": ("int", "float"),
}  # fmt: skip

NEEDS = {
    "float": "floats", "str": "strings", "bytes": "bytes", "int?": "optionals", "float?": "optionals",
    "str?": "optionals", "pair": "tuples", "mixed": "tuples", "triple": "tuples", "quad": "nested",
    "nested": "nested", "point": "points", "pair?": "nested",
}  # fmt: skip
"""The feature without which a type is not used."""

DEFAULT = {
    "int": ("0", "-1", "7"), "float": ("0.0", "-0.0", "1.5"), "bool": ("False", "True"), "str": ('""', '"a"'),
    "bytes": ('b""', 'b"x"'), "pair": ("(0, 0)",), "mixed": ('("a", True)',), "point": ("Point(1, -0.0)",),
    "nested": ("((0, 1), 0.5)",),
}  # fmt: skip

COMMON = {"i": "int", "s": "str", "x": "float", "oi": "int?"}
"""Fields that both event types have."""

EVENTS = {
    "A": {**COMMON, "j": "int", "y": "float", "on": "bool", "t": "str", "raw": "bytes", "at": "int", "os": "str?",
          "ox": "float?", "items": "ints", "xs": "floats", "words": "strs"},
    "B": COMMON,
}  # fmt: skip

PRELUDE = """\
from __future__ import annotations

import math
from typing import NamedTuple

import timelapse as tl

WORDS = ("a", "é", "")
NUMBERS = frozenset({1, 2, 5})
BIG = 2**62
LIMIT = 3


class Point(NamedTuple):
    n: int
    x: float


class A(tl.Event):
    i: int
    j: int
    x: float
    y: float
    on: bool
    s: str
    t: str
    raw: bytes
    at: tl.Time
    oi: int | None
    os: str | None
    ox: float | None
    items: list[int]
    xs: list[float]
    words: list[str]


class B(tl.Event):
    i: int
    s: str
    x: float
    oi: int | None


class Out(tl.Record):
    n: int
    x: float
    on: bool
    s: str
    raw: bytes
    at: tl.Time


class Note(tl.Record):
    n: int
    o: int | None
    s: str | None
    x: float | None


class Rows(tl.Record):
    items: list[int]


def pair(a: int, b: int) -> tuple[int, int]:
    return (a, b) if a < b else (b, a)


def clip(n: int, low: int = -3, *, high: int = 5) -> int:
    if n < low:
        return low
    return high if n > high else n


"""


class Helper(NamedTuple):
    """What can be called: the text before its arguments, their names and types, how many have defaults."""

    text: str
    result: str
    arguments: list[tuple[str, str]]
    defaults: int = 0
    by_name: bool = False
    """Whether the last argument is taken by name only."""


@dataclass(frozen=True)
class StateVar:
    """A declared state."""

    name: str
    kind: str
    key: str | None
    value: str | None
    default: str = ""

    @property
    def declaration(self) -> str:
        parts = [ANNOTATION[t] for t in (self.key, self.value) if t is not None and self.kind != "Counter"]
        if self.kind == "Counter" and self.key is not None:
            parts = [ANNOTATION[self.key]]
        inner = f"[{', '.join(parts)}]" if parts else ""
        default = f" = tl.state(default={self.default})" if self.default else ""
        return f"    {self.name}: tl.{self.kind}{inner}{default}"
