"""What the usual run leaves out is not what a deep run proves: pairs of values stay, and all of it at the depth of `make test-deep`."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest

from tests import depth
from timelapse.testing import oracle


@pytest.fixture(params=[1.0, 3.0])
def at(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> float:
    monkeypatch.setattr(depth, "DEPTH", request.param)
    found: float = request.param
    return found


def test_how_many_examples(at: float) -> None:
    usual = {1: 1, 2: 2, 3: 3, 8: 3, 12: 4, 100: 34}
    assert {n: depth.deep(n) for n in usual} == (usual if at < depth.FULL else {n: n for n in usual})
    assert depth.deep(5, 5) == 5
    assert depth.deep(3, 1) == (1 if at < depth.FULL else 3)


def test_cases_are_shared_out(at: float) -> None:
    cases = list(range(10))
    parts = [depth.some(iter(cases), 3, first) for first in range(3)]
    if at < depth.FULL:
        assert parts == [[0, 3, 6, 9], [1, 4, 7], [2, 5, 8]]
    else:
        assert parts == [cases] * 3


def test_pairs_are_covered(at: float) -> None:
    dimensions = ["abcdefg", [1, 2, 3], (True, False, None, "x")]
    product = list(itertools.product(*dimensions))
    found = depth.covering(*dimensions)
    assert len({*found}) == len(found)
    for one, other in itertools.combinations(range(3), 2):
        assert {(c[one], c[other]) for c in found} == {(c[one], c[other]) for c in product}
    assert found == product if at >= depth.FULL else len(found) < len(product) / 2


def test_values_meet_in_turn(at: float) -> None:
    first, second = [1, 3, 8], ["staged", "chain"]
    turns = [depth.in_turn(first, second, turn) for turn in range(7)]
    assert {len(found) for found in turns} == {3 if at < depth.FULL else 6}
    for found in (*turns, *(depth.in_turn([5], second, turn) for turn in range(3))):
        assert {s for _, s in found} == {*second}
    assert {n for n, _ in turns[0]} == {*first}
    assert set(itertools.chain(*turns)) == {*itertools.product(first, second)}


def test_programs_are_checked_with_each_value(at: float) -> None:
    all_of_them = [*itertools.product([1, 3], [None, "chain"])]
    assert oracle.every([1, 3], [None, "chain"], 5) == (
        all_of_them if at >= depth.FULL else [(1, "chain"), (3, None)]
    )


def test_the_command_tries_all() -> None:
    makefile = Path(__file__).parents[1] / "Makefile"
    assert re.findall(r"TIMELAPSE_DEPTH=(\d+) ", makefile.read_text()) == [str(depth.FULL)]
