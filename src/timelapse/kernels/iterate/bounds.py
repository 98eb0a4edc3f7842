"""Integers that remember what was decided with them.

A handler that runs on a guessed state may well decide as it would on the right one: `if balance >= amount` has the
same result for every balance from `amount` on. So what it reads is given to it as an `Int`: a multiple of the stored
value plus a constant, that knows its value under the guess. Sums with constants stay such; every comparison notes
for which stored values it has the same result (`Read.low`, `Read.high`), as symbolic execution does for path
conditions (King, 1976), here with intervals only. Whatever needs the number itself (a key, a product of two reads, a
library) gets it, and notes that the stored value must not change at all.
"""

from __future__ import annotations

import math
from typing import Any

from timelapse.ids import INT64_MAX, INT64_MIN

ANY, PRESENT, ABSENT_KEY = 0, 1, 2
"""What an event needs of a key's presence: nothing, that it is there, that it is not."""
NOTHING, ADD, SET, DELETE = range(4)
"""What an event does to a key."""


class Read:
    """One key that an event has touched: what it held before the event, for what else the event would have done the
    same, and what the event did to it."""

    __slots__ = ("amount", "base", "effect", "high", "low", "needs")

    def __init__(self, base: Any) -> None:
        self.base = base
        """Before the event; ABSENT where the key was not there."""
        self.needs = ANY
        self.low = INT64_MIN
        self.high = INT64_MAX
        self.effect = NOTHING
        self.amount: Any = 0

    def pin(self) -> None:
        """The value itself has been used."""
        self.low = self.high = self.base


class Int:
    """`factor * stored + plus`, where what is stored is an integer. See the module's text."""

    __slots__ = ("factor", "plus", "read", "value")

    def __init__(self, read: Read, factor: int, plus: int) -> None:
        self.read, self.factor, self.plus = read, factor, plus
        self.value: int = factor * read.base + plus

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """Code that asks for integers takes it for one."""
        return int

    def plain(self) -> int:
        """The number; the stored value must stay what it is."""
        self.read.pin()
        return self.value

    # --- comparisons ----------------------------------------------------------------------------------

    def _above(self, limit: int) -> bool:
        """Whether it is greater than a limit, and for which stored values it would be the same."""
        read, room, factor = self.read, limit - self.plus, self.factor
        above = self.value > limit
        # factor * stored > room is stored > floor(room / factor), or the other way round where factor < 0.
        if factor > 0:
            edge = room if factor == 1 else room // factor
            if above:
                if edge >= read.low:
                    read.low = edge + 1
            elif edge < read.high:
                read.high = edge
        else:
            edge = -(room // -factor)
            if above:  # stored < ceil(room / factor)
                if edge <= read.high:
                    read.high = edge - 1
            elif edge > read.low:
                read.low = edge
        return above

    def _exceeds(self, other: Any) -> Any:
        """Whether it is greater than another number."""
        kind = type(other)
        if kind is int or kind is bool:
            return self._above(int(other))
        if kind is Int:
            return self._exceeds_read(other)
        if kind is float and math.isfinite(other):
            return self._above(math.floor(other))
        return self.plain() > other

    def _exceeds_read(self, other: Int) -> bool:
        """Between two of them a limit is set half way: both stay on their side of it."""
        if other.read is self.read:
            return bool(self._less(other) > 0)
        limit = (self.value + other.value) // 2
        greater = self.value > other.value
        other._above(limit if greater else limit - 1)
        self._above(limit)
        return greater

    def _less(self, other: Int) -> Any:
        """The difference of two that come from the same stored value."""
        return _made(self.read, self.factor - other.factor, self.plus - other.plus)

    def _below(self, other: Any) -> Any:
        """Whether it is less than another number."""
        kind = type(other)
        if kind is int or kind is bool:
            return not self._above(int(other) - 1)
        if kind is Int:
            return other._exceeds(self)
        if kind is float and math.isfinite(other):
            return not self._above(math.ceil(other) - 1)
        return self.plain() < other

    def __gt__(self, other: Any) -> Any:
        if type(other) is int:
            return self._above(other)
        return self._exceeds(other)

    def __lt__(self, other: Any) -> Any:
        if type(other) is int:
            return not self._above(other - 1)
        return self._below(other)

    def __ge__(self, other: Any) -> Any:
        if type(other) is int:
            return self._above(other - 1)
        if (type(other) is float and not math.isfinite(other)) or not isinstance(other, int | float):
            return self.plain() >= other
        return not self._below(other)

    def __le__(self, other: Any) -> Any:
        if type(other) is int:
            return not self._above(other)
        if (type(other) is float and not math.isfinite(other)) or not isinstance(other, int | float):
            return self.plain() <= other
        return not self._exceeds(other)

    def __eq__(self, other: object) -> bool:
        return self._same(other) if isinstance(other, int | float) else False

    def _same(self, other: Any) -> bool:
        value = other.value if type(other) is Int else other
        if self.value == value:
            if type(other) is Int and other.read is self.read:
                return bool(self._less(other) == 0)
            self.plain()
            if type(other) is Int:
                other.plain()
            return True
        if value != value:
            return bool(self.plain() == other)
        if self.value > value:
            self._exceeds(other)
        else:
            self._below(other)
        return False

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __bool__(self) -> bool:
        return self != 0

    # --- sums -------------------------------------------------------------------------------------------

    def __add__(self, other: Any) -> Any:
        kind = type(other)
        if kind is int or kind is bool:
            return Int(self.read, self.factor, self.plus + other)
        if kind is Int:
            if other.read is self.read:
                return _made(self.read, self.factor + other.factor, self.plus + other.plus)
            return Int(self.read, self.factor, self.plus + other.plain())
        return self.plain() + other

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        kind = type(other)
        if kind is int or kind is bool:
            return Int(self.read, self.factor, self.plus - other)
        if kind is Int:
            if other.read is self.read:
                return self._less(other)
            return Int(self.read, self.factor, self.plus - other.plain())
        return self.plain() - other

    def __rsub__(self, other: Any) -> Any:
        kind = type(other)
        if kind is int or kind is bool:
            return Int(self.read, -self.factor, other - self.plus)
        return other - self.plain()

    def __mul__(self, other: Any) -> Any:
        kind = type(other)
        if (kind is int or kind is bool) and other:
            return Int(self.read, self.factor * other, self.plus * other)
        if kind is int or kind is bool:
            return 0
        return self.plain() * (other.plain() if kind is Int else other)

    __rmul__ = __mul__

    def __neg__(self) -> Int:
        return Int(self.read, -self.factor, -self.plus)

    def __pos__(self) -> Int:
        return self

    def __abs__(self) -> Int:
        return -self if self < 0 else self

    # --- the number itself ------------------------------------------------------------------------------

    def __invert__(self) -> int:
        return ~self.plain()

    def __hash__(self) -> int:
        return hash(self.plain())

    def __index__(self) -> int:
        return self.plain()

    __int__ = __trunc__ = __floor__ = __ceil__ = __index__

    def __float__(self) -> float:
        return float(self.plain())

    def __complex__(self) -> complex:
        return complex(self.plain())

    def __round__(self, digits: Any = None) -> int:
        return round(self.plain(), digits)

    def __repr__(self) -> str:
        return repr(self.plain())

    __str__ = __repr__

    def __format__(self, form: str) -> str:
        return format(self.plain(), form)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.plain(), name)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.plain().__reduce_ex__(protocol)


def _made(read: Read, factor: int, plus: int) -> Any:
    return Int(read, factor, plus) if factor else plus


def _number_itself(name: str) -> None:
    def forward(self: Int, other: Any, *more: Any) -> Any:
        return _OPERATORS[name](self.plain(), plain(other), *more)

    def backward(self: Int, other: Any) -> Any:
        return _OPERATORS[name](plain(other), self.plain())

    setattr(Int, f"__{name}__", forward)
    setattr(Int, f"__r{name}__", backward)


_OPERATORS: dict[str, Any] = {
    "floordiv": lambda a, b: a // b,
    "truediv": lambda a, b: a / b,
    "mod": lambda a, b: a % b,
    "divmod": divmod,
    "pow": pow,
    "lshift": lambda a, b: a << b,
    "rshift": lambda a, b: a >> b,
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
}
for _name in _OPERATORS:
    _number_itself(_name)


def plain(value: Any) -> Any:
    """The value as handlers would see it without all this: keys and stored values are made of plain ones."""
    kind = type(value)
    if kind is Int:
        return value.plain()
    if kind is tuple or kind is list:
        return kind([plain(v) for v in value]) if any(type(v) in _HOLDERS for v in value) else value
    if isinstance(value, tuple) and hasattr(value, "_make"):
        return value._make([plain(v) for v in value])
    return value


_HOLDERS = (Int, tuple, list)
