"""What pictures have in common: the steps of an axis, labels that have room, the legend."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from math import floor, log10

from timelapse.display import clean

CHARACTER = 6.2
"""Width of a character, about."""


def round_up(wish: float) -> float:
    """The smallest of ..., 0.1, 0.2, 0.5, 1, 2, 5, ... that is not below the wish."""
    power = 10.0 ** floor(log10(wish))
    return next(digit * power for digit in (1, 2, 5, 10) if digit * power >= wish * (1 - 1e-9))


def every(texts: Sequence[str], room: float) -> int:
    """Each how-manieth of evenly spaced labels has to be written so that they stand beside each other: 1, 2, 5, 10, ..."""
    widest = max(map(len, texts), default=0) * CHARACTER + 10
    wish = len(texts) / max(2, int(room / widest))
    return int(round_up(wish)) if wish > 1 else 1


def label(x: float, y: float, words: str, anchor: str) -> str:
    """A label."""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(clean(words))}</text>'


def legend(names: Sequence[tuple[str, str]], x: float, longest: int) -> list[str]:
    """Names with the class of their colour, up to `x` at the right; of each at most `longest` characters."""
    parts = []
    for name, css in reversed(names):
        shown = clean(name)
        shown = shown if len(shown) <= longest else f"{shown[: longest - 1]}…"
        x -= len(shown) * CHARACTER + 6
        parts.append(f'<text x="{x:.1f}" y="16">{escape(shown)}</text>')
        x -= 14
        parts.append(f'<rect class="{css}" x="{x:.1f}" y="7" width="10" height="10" rx="2"/>')
        x -= 12
    return parts
