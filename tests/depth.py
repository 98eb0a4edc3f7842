"""How much of what could be tried tests try: little enough in the usual run that it stays short.

A test says what a deep run tries, `make test-deep` (`TIMELAPSE_DEPTH=3`). The usual run tries a third of the random examples, and of
combinations so many that each value, and each pair of values, is among them. `TIMELAPSE_DEPTH=30` tries ten times as many examples as the deep run.
"""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

T = TypeVar("T")
U = TypeVar("U")

FULL = 3
"""The depth at which tests try all that they name."""
DEPTH = float(os.environ.get("TIMELAPSE_DEPTH", "1"))


def deep(examples: int, least: int = 3) -> int:
    """The number of examples to try, where a deep run tries `examples`. Not fewer than `least`, unless a deep run tries fewer."""
    return max(min(examples, least), math.ceil(examples * DEPTH / FULL))


def some(cases: Iterable[T], of: int = FULL, first: int = 0) -> list[T]:
    """Of cases that are much alike, those to try: all in a deep run, in the usual one every `of`-th. Tests that go over the same cases
    begin at different ones, so that each case is in one of them."""
    return [*cases] if DEPTH >= FULL else [*cases][first::of]


def covering(*dimensions: Sequence[Any]) -> list[tuple[Any, ...]]:
    """The combinations to try of a value of each dimension: all of them in a deep run.

    In the usual run so few that each pair of values of two dimensions is in one of them: a fault that needs three is for a deep run.
    """
    product = list(itertools.product(*map(range, map(len, dimensions))))
    chosen = product if DEPTH >= FULL else _pairwise(product)
    return [tuple(values[n] for values, n in zip(dimensions, one, strict=True)) for one in chosen]


def in_turn(first: Sequence[T], second: Sequence[U], turn: int) -> list[tuple[T, U]]:
    """The pairs to try of the values of two dimensions: all of them in a deep run.

    In the usual run so few that each value is in one: which values meet depends on the turn, and the test has several.
    """
    if DEPTH >= FULL:
        return [*itertools.product(first, second)]
    return [
        (first[n % len(first)], second[(n + turn) % len(second)]) for n in range(max(len(first), len(second)))
    ]


def _pairwise(product: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Each time the combination with the most pairs that are not covered yet; of equal ones the first."""
    pairs = {one: set(itertools.combinations(enumerate(one), 2)) for one in product}
    left: set[Any] = set().union(*pairs.values())
    chosen = []
    while left:
        best = max(product, key=lambda one: len(pairs[one] & left))
        left -= pairs[best]
        chosen.append(best)
    return sorted(chosen)
