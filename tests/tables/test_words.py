"""Sorting words: NumPy's sort is the oracle, over words of every distribution that takes a way of its own."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from timelapse.tables.words import _MANY, _WINDOW, sorted_words

U64 = npt.NDArray[np.uint64]
N = 3 * _MANY + 77


def _even(rng: np.random.Generator) -> U64:
    return rng.integers(0, 1 << 63, N, np.uint64)


def _small(rng: np.random.Generator) -> U64:
    return rng.integers(0, 300, N, np.uint64)


def _some_groups(rng: np.random.Generator) -> U64:
    """Groups around the half of a window, and much larger ones, between others."""
    words = _even(rng)
    at = 0
    for group, size in enumerate(
        [_WINDOW // 2 - 1, _WINDOW // 2, _WINDOW // 2 + 1, _WINDOW, 3 * _WINDOW, N // 5]
    ):
        words[at : at + size] = (np.uint64(group * 4099) << np.uint64(47)) + rng.integers(
            0, 1 << 47, size, np.uint64
        )
        at += size
    return rng.permutation(words)


def _one_group(rng: np.random.Generator) -> U64:
    words = rng.integers(0, 1 << 20, N, np.uint64)
    words[5] = np.uint64((1 << 64) - 1)
    return words


def _runs(rng: np.random.Generator) -> U64:
    return np.concatenate([np.sort(part) for part in np.array_split(_even(rng), 5)])


def _nearly(rng: np.random.Generator) -> U64:
    words = np.sort(_even(rng)) // np.uint64(2)
    words += rng.integers(0, 1 << 50, N, np.uint64)
    return words


@pytest.mark.parametrize("make", [_even, _small, _some_groups, _one_group, _runs, _nearly])
@pytest.mark.parametrize("count", [0, 1, 2, _WINDOW + 1, _MANY - 1, _MANY, _MANY + 1, N - 50, N])
def test_words_are_sorted_as_numpy_sorts_them(make: object, count: int) -> None:
    assert callable(make)
    for seed in range(3):
        words = make(np.random.default_rng(seed))[:count]
        wanted = np.sort(words)
        assert np.array_equal(sorted_words(words.copy()), wanted)


def test_small_groups_are_not_all_sorted_again() -> None:
    """The groups of one test lie on both sides of half a window: else the ways are not both gone."""
    counts = np.bincount((_some_groups(np.random.default_rng(0)) >> np.uint64(48)).astype(np.int64))
    assert counts.max() > _WINDOW
    assert 0 < np.median(counts[counts > 0]) <= _WINDOW // 2
