"""Integers that remember what was decided with them: for every stored value within the bounds, the same decisions."""

from __future__ import annotations

import random
from typing import Any

import pytest

from timelapse.kernels.iterate.bounds import Int, Read, plain

_COMPARE: list[Any] = [
    lambda a, b: a > b, lambda a, b: a < b, lambda a, b: a >= b, lambda a, b: a <= b, lambda a, b: a == b,
    lambda a, b: a != b, lambda a, b: b > a, lambda a, b: b <= a, lambda a, b: b == a,
]  # fmt: skip
_CHANGE: list[Any] = [
    lambda a, n: a + n, lambda a, n: n - a, lambda a, n: a - n, lambda a, n: a * n, lambda a, n: -a,
    lambda a, n: abs(a), lambda a, n: max(a, n), lambda a, n: min(n, a), lambda a, n: +a,
]  # fmt: skip
_ITSELF: list[Any] = [
    lambda a: a // 3, lambda a: a % 4, lambda a: a / 7, lambda a: f"{a:03}", lambda a: [10, 20, 30][a % 3],
    lambda a: {1: "x"}.get(a, "y"), lambda a: a.bit_length(), lambda a: 2.5 * a, lambda a: int(a) ** 2, lambda a: a & 3,
    lambda a: round(a), lambda a: float(a), lambda a: divmod(a, 5), lambda a: range(9)[a % 9], lambda a: 7 // (abs(a) + 1),
]  # fmt: skip


def decisions(rng: random.Random, numbers: list[Any]) -> list[Any]:
    """A random program over the numbers: which way each of its conditions goes, and what it uses itself."""
    found: list[Any] = []
    for _ in range(rng.randrange(1, 6)):
        at = rng.randrange(len(numbers))
        for _ in range(rng.randrange(3)):
            numbers[at] = rng.choice(_CHANGE)(numbers[at], rng.randrange(-6, 7))
        which = rng.random()
        if which < 0.6:
            other = rng.choice(
                [rng.randrange(-9, 10), rng.randrange(-9, 10) + 0.5, float(rng.randrange(-9, 10))]
            )
            found.append(bool(rng.choice(_COMPARE)(numbers[at], other)))
        elif which < 0.8:
            found.append(bool(rng.choice(_COMPARE)(numbers[at], numbers[rng.randrange(len(numbers))])))
        elif which < 0.9:
            found.append(bool(numbers[at]))
        else:
            found.append(plain(rng.choice(_ITSELF)(numbers[at])))
    return found


@pytest.mark.parametrize("part", range(2))
def test_within_the_bounds_every_decision_is_the_same(part: int) -> None:
    wide = 0
    for seed in range(part * 1000, part * 1000 + 1000):
        rng = random.Random(seed)
        stored = [rng.randrange(-12, 13) for _ in range(2)]
        reads = [Read(v) for v in stored]
        program = rng.randrange(10**9)
        expected = decisions(random.Random(program), list(stored))
        assert decisions(random.Random(program), [Int(r, 1, 0) for r in reads]) == expected, seed
        for read, value in zip(reads, stored, strict=True):
            assert read.low <= value <= read.high, seed
        for _ in range(12):
            others = [rng.randrange(max(r.low, -30), min(r.high, 30) + 1) for r in reads]
            wide += others != stored
            assert decisions(random.Random(program), others) == expected, (seed, others)
    assert wide > 500


def test_code_that_asks_for_integers_takes_it_for_one() -> None:
    read = Read(5)
    number: Any = Int(read, 1, 0)
    assert isinstance(number, int)
    assert (read.low, read.high) != (5, 5)
    assert plain((number, (number, 1), [number])) == (5, (5, 1), [5])
    assert type(plain((number,))[0]) is int
    assert (read.low, read.high) == (5, 5)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf"), None, "a"])
def test_compared_with_what_is_no_number_that_it_could_be(value: Any) -> None:
    for compare in _COMPARE:
        number = Int(Read(5), 1, 0)
        try:
            expected = compare(5, value)
        except TypeError:
            with pytest.raises(TypeError):
                compare(number, value)
        else:
            assert bool(compare(number, value)) == expected
