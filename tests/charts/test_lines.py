"""Lines against a setting: where ticks stand, and that what is written beside them can be read."""

from __future__ import annotations

import re
from html import unescape
from itertools import pairwise

import pytest

from timelapse.charts.lines import Line, LineChart, Spot


def _drawn(xs: list[float], ys: list[float], **options: object) -> str:
    spots = tuple(Spot(x, y, "p") for x, y in zip(xs, ys, strict=True))
    return LineChart("t", "the axis", "", (Line("a", spots),), **options).figure().body  # type: ignore[arg-type]


def _ticks(body: str, anchor: str) -> list[tuple[float, str]]:
    """(place, text) of the labels along the bottom ("middle") or the side ("end")."""
    found = re.findall(rf'<text x="([\d.]+)" y="([\d.]+)" text-anchor="{anchor}">([^<]*)</text>', body)
    return [
        (float(x if anchor == "middle" else y), unescape(text)) for x, y, text in found if text != "the axis"
    ]


def _across(body: str) -> list[str]:
    return [text for _, text in _ticks(body, "middle")]


@pytest.mark.parametrize(
    ("values", "ticks"),
    [
        (list(range(1, 11)), [str(n) for n in range(1, 11)]),
        ([3, 5], ["3", "4", "5"]),
        ([7, 8], ["7", "8"]),
        ([-1, 1], ["-1", "0", "1"]),
        ([0, 100], ["0", "20", "40", "60", "80", "100"]),
    ],
)
def test_an_integer_parameter_has_integer_ticks(values: list[int], ticks: list[str]) -> None:
    """At each of a few, at round ones of many; with numbers that are not whole, halves are fine."""
    xs = [float(v) for v in values]
    assert _across(_drawn(xs, [0.0] * len(xs), whole=(True, True))) == ticks
    assert "7.2" in _across(_drawn([7.0, 8.0], [0.0, 0.0]))


@pytest.mark.parametrize("most", [1.0, 2.0, 3.0, 4.0, 7.0])
def test_counts_have_integer_ticks(most: float) -> None:
    """No 0.5 outputs."""
    found = [text for _, text in _ticks(_drawn([1, 2], [0.0, most], whole=(True, True)), "end")]
    assert all(re.fullmatch(r"\d+", text) for text in found)
    assert float(found[-1]) >= most


@pytest.mark.parametrize(
    ("low", "high"), [(1, 20), (1_000_000, 1_000_012), (10**9, 2 * 10**9), (-(10**12), 10**12), (0, 1e-9)]
)
def test_ticks_do_not_stand_over_each_other(low: float, high: float) -> None:
    """However long their numbers are; there are two at least."""
    for whole in ((False, True), (low < high - 1, True)):
        found = _ticks(_drawn([low, high], [0, 1], whole=whole), "middle")
        assert len(found) >= 2
        for (x, text), (u, other) in pairwise(found):
            assert u - x >= 6.2 * (len(text) + len(other)) / 2


def test_names_do_not_stand_over_each_other() -> None:
    """Some are left out where all have no room."""
    names = [f"mode='number {n}'" for n in range(12)]
    found = _ticks(_drawn([float(n) for n in range(12)], [1.0] * 12, named=tuple(names)), "middle")
    assert found[0][1] == "mode='number …"
    assert all(u - x >= 6.2 * 14 for (x, _), (u, _) in pairwise(found))
