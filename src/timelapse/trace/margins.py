"""How far a comparison of numbers was from its other result."""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Context, Decimal
from fractions import Fraction
from typing import Any

_EXACT = Context(prec=1_100, traps=[])
"""Keeps all digits of a difference: a float has up to 767."""

_SHORT = 24
"""Characters of a decimal that is shown whole."""

_NEGATED = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "==": "!=", "!=": "=="}


@dataclass(frozen=True)
class Margin:
    """What the left side would have to change by for the other result.

    `amount` is positive where it would have to grow, negative where it would have to fall (`up` says which where it
    is 0). `open`: any change that is larger than that, however little, will do; else exactly that does.
    """

    amount: int | float | Decimal
    up: bool
    open: bool
    outcome: bool

    @property
    def text(self) -> str:
        """`short by 2`, `over by 1.5`; where it held, how much there was to spare."""
        size: Any = self.amount.copy_abs() if isinstance(self.amount, Decimal) else abs(self.amount)
        whole = isinstance(size, int) or (isinstance(size, Decimal) and len(str(size)) < _SHORT)
        shown = f"{size:,}" if whole else f"{float(size):.6g}"
        more = "more than " if self.open else ""
        if self.outcome:
            return f"{more}{shown} {'more' if self.up else 'less'} would fail"
        return f"{'short' if self.up else 'over'} by {more}{shown}"

    def to_json(self) -> dict[str, Any]:
        amount = str(self.amount) if isinstance(self.amount, Decimal) else self.amount
        return {"amount": amount, "open": self.open, "text": self.text}


def margin_of(left: Any, op: str, right: Any, outcome: bool) -> Margin | None:
    """The margin of `left op right`; None where there is none to speak of (other types, NaN, infinities)."""
    if not (_number(left) and _number(right)) or op not in _NEGATED:
        return None
    wanted = _NEGATED[op] if outcome else op
    whole = isinstance(left, int)
    gap = Fraction(right) - Fraction(left)
    plain = _EXACT.subtract(Decimal(right), left) if isinstance(left, Decimal) else _plain(gap, whole)
    if wanted == "!=":
        return None
    if wanted == "==":
        exact = not whole or gap.denominator == 1
        return Margin(plain, gap > 0, False, outcome) if gap and exact else None
    up = wanted in (">", ">=")
    if not whole:
        return Margin(plain, up, wanted in ("<", ">"), outcome)
    steps = {
        ">": math.floor(gap) + 1, ">=": math.ceil(gap), "<": math.ceil(gap) - 1, "<=": math.floor(gap),
    }  # fmt: skip
    return Margin(steps[wanted], up, False, outcome)


def _number(value: Any) -> bool:
    if isinstance(value, bool):
        return False
    return isinstance(value, int) or (isinstance(value, float | Decimal) and math.isfinite(value))


def _plain(gap: Fraction, whole: bool) -> int | float:
    if whole:
        return int(gap)
    try:
        return float(gap)
    except OverflowError:
        return math.inf if gap > 0 else -math.inf
