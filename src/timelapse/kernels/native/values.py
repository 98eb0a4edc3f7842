"""What the compiler passes around: typed operands, and the refusal of what it does not compile."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from timelapse.ids import INT64_MAX, INT64_MIN

NOT_CONSTANT: Final[Any] = object()


class Refused(Exception):
    """The pass is not compiled: the reason, and the line of the user's file (0: unknown)."""

    def __init__(self, reason: str, line: int = 0) -> None:
        super().__init__(reason)
        self.reason = reason
        self.line = line


@dataclass(frozen=True)
class Value:
    """An operand: a name or literal of the generated code that may be repeated at no cost.

    `kind`: int, float, bool, str, bytes, tuple or none. Strings are codes. A tuple is its items.
    `const`: the Python value where it is known.
    """

    kind: str
    code: str = ""
    items: tuple[Value, ...] = ()
    const: Any = NOT_CONSTANT

    @property
    def shape(self) -> str:
        """The kind with the kinds of the items; values of one shape can share variables."""
        return f"{self.kind}({','.join(i.shape for i in self.items)})" if self.items else self.kind

    @property
    def words(self) -> list[str]:
        """The scalars that it consists of."""
        return [w for i in self.items for w in i.words] if self.kind == "tuple" else [self.code]


@dataclass(frozen=True)
class SelfRef:
    """The program."""


@dataclass(frozen=True)
class EventRef:
    """The event that is being handled."""


NONE = Value("none", const=None)

Bound = Value | SelfRef | EventRef
Env = dict[str, Bound]


def constant(value: Any, code_of_text: Any) -> Value | None:
    """A Python constant as an operand; None where it is of no supported type."""
    if value is None:
        return NONE
    if type(value) is bool:
        return Value("bool", repr(value), const=value)
    if type(value) is int and INT64_MIN < value <= INT64_MAX:
        return Value("int", f"({value})", const=value)
    if type(value) is float and value == value and abs(value) != float("inf"):
        return Value("float", f"({value!r})", const=value)
    if type(value) in (str, bytes):
        try:
            value.encode() if isinstance(value, str) else value
        except UnicodeEncodeError:
            return None
        return Value(type(value).__name__, str(code_of_text(value)), const=value)
    if type(value) is tuple:
        items = [constant(v, code_of_text) for v in value]
        if any(i is None for i in items):
            return None
        return Value("tuple", items=tuple(i for i in items if i is not None), const=value)
    return None
