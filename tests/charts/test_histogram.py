"""Histograms: every value is in one column, edges are round, there are not too many columns."""

from __future__ import annotations

import decimal
import re

import numpy as np
import pytest

from timelapse.charts.histogram import MOST, bins, histogram

RNG = np.random.default_rng(3)
SETS = {
    "one": np.array([5]), "equal": np.array([7.5] * 9), "normal": RNG.normal(20, 3, 5_000),
    "far": np.array([*RNG.integers(0, 100, 500), 10**15]), "zeros": np.array([0] * 995 + [1, 2, 3, 4, 900]),
    "ends": np.array([-(2**63), 0, 1, 2**63 - 1]), "large": 10**17 + np.arange(50), "tiny": np.linspace(1e-9, 3e-9, 99),
}  # fmt: skip


@pytest.mark.parametrize("name", SETS)
def test_every_value_is_in_one_column(name: str) -> None:
    """Also what lies far out; each column has its name and its mark."""
    values = np.sort(SETS[name])
    found = bins(values)
    assert found is not None
    counts = found.count(values)
    assert sum(counts) == len(values)
    assert len(counts) == len(found.names()) <= MOST + 4
    inner = counts[found.low : len(counts) - found.high]
    for (a, b), count in zip(zip(found.edges, found.edges[1:], strict=False), inner, strict=True):
        assert count == int(((values >= a) & (values < b)).sum()) or name in ("ends", "tiny")
    drawn = histogram("<b>", found, [("a", "c1", values)])
    assert drawn.body.count("<title>") == len(counts)
    assert "<b>" not in drawn.markup(style=False)


def test_few_values_far_out_do_not_hide_the_rest() -> None:
    """They are gathered in a column that is called so."""
    found = bins(np.sort(SETS["far"]))
    assert found is not None
    assert found.high
    assert len(found.edges) > 5
    assert found.names()[-1].endswith("and more")


def test_infinitely_far_apart() -> None:
    """No picture, and no error."""
    assert bins(np.array([-1.7e308, 1.7e308])) is None
    assert bins(np.array([], np.float64)) is None


def test_two_sets_lie_over_each_other() -> None:
    """In the same columns: the first as columns, the second as an outline, with both numbers at each place."""
    a, b = np.array([0, 0, 1, 4]), np.array([1, 1, 1, 2, 9])
    found = bins(a, b)
    assert found is not None
    assert (found.count(a), found.count(b)) == ([2, 1, 0, 0, 1, *[0] * 5], [0, 3, 1, *[0] * 6, 1])
    drawn = histogram("x", found, [("A", "c1", a), ("B", "c2", b)])
    assert "<title>0: A 2, B 0</title>" in drawn.body
    assert "<title>1: A 1, B 3</title>" in drawn.body
    assert "<title>9: A 0, B 1</title>" in drawn.body
    (outline,) = re.findall(r'class="outline c2" d="([^"]+)"', drawn.body)
    heights = [float(y) for y in re.findall(r"V([0-9.]+)", outline)]
    assert min(heights) == 24  # three, the most of all, reaches the top
    assert drawn.body.count('class="c1"') == 3 + 1  # columns with something in them, and the legend's


def test_amounts_are_shown_with_all_their_digits() -> None:
    """Whatever decimal context a user's module has set."""
    found = bins(np.array([123_456, 123_457, 123_459]), places=2)
    assert found is not None
    with decimal.localcontext(prec=3):
        assert found.text(123_457) == "1,234.57"
