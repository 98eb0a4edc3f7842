"""How far a comparison of numbers was from its other result."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

_NEGATED = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "==": "!=", "!=": "=="}


@dataclass(frozen=True)
class Margin:
    """What the left side would have to change by for the other result.

    `amount` is positive where it would have to grow, negative where it would have to fall (`up` says which where it
    is 0). `open`: any change that is larger than that, however little, will do; else exactly that does.
    """

    amount: int | float
    up: bool
    open: bool
    outcome: bool

    @property
    def text(self) -> str:
        """`short by 2`, `over by 1.5`; where it held, how much there was to spare."""
        size = abs(self.amount)
        shown = f"{size:,}" if isinstance(size, int) else f"{size:.6g}"
        more = "more than " if self.open else ""
        if self.outcome:
            return f"{more}{shown} {'more' if self.up else 'less'} would fail"
        return f"{'short' if self.up else 'over'} by {more}{shown}"

    def to_json(self) -> dict[str, Any]:
        return {"amount": self.amount, "open": self.open, "text": self.text}


def margin_of(left: Any, op: str, right: Any, outcome: bool) -> Margin | None:
    """The margin of `left op right`; None where there is none to speak of (other types, NaN, infinities)."""
    if not (_number(left) and _number(right)) or op not in _NEGATED:
        return None
    wanted = _NEGATED[op] if outcome else op
    whole = isinstance(left, int)
    gap = Fraction(right) - Fraction(left)
    if wanted == "!=":
        return None
    if wanted == "==":
        exact = not whole or gap.denominator == 1
        return Margin(_plain(gap, whole), gap > 0, False, outcome) if gap and exact else None
    up = wanted in (">", ">=")
    if not whole:
        return Margin(_plain(gap, False), up, wanted in ("<", ">"), outcome)
    steps = {
        ">": math.floor(gap) + 1, ">=": math.ceil(gap), "<": math.ceil(gap) - 1, "<=": math.floor(gap),
    }  # fmt: skip
    return Margin(steps[wanted], up, False, outcome)


def _number(value: Any) -> bool:
    if isinstance(value, bool):
        return False
    return isinstance(value, int) or (isinstance(value, float) and math.isfinite(value))


def _plain(gap: Fraction, whole: bool) -> int | float:
    if whole:
        return int(gap)
    try:
        return float(gap)
    except OverflowError:
        return math.inf if gap > 0 else -math.inf
