"""The compiled loops give what NumPy's give, to the last bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import timelapse as tl
from timelapse.kernels.native.memory.loops import CompiledLoops
from timelapse.program.program import spec_of
from timelapse.tables import loops
from timelapse.tables.apply import apply, empty
from timelapse.tables.loops import NumpyLoops
from timelapse.tables.table import make_effects

BOTH: tuple[loops.Loops, ...] = (NumpyLoops(), CompiledLoops())
WORDS = st.integers(0, 2**64 - 1)
HASHES = st.lists(st.integers(0, 40) | WORDS, max_size=60)


@given(
    st.lists(WORDS, max_size=50),
    st.lists(WORDS, min_size=50, max_size=50),
    st.lists(WORDS, min_size=1, max_size=2),
)
def test_fold(h: list[int], words: list[int], salts: list[int]) -> None:
    """Of some columns of a wider array, as blocks are."""
    found = [np.array([[0, *h]] * len(salts), np.uint64) for _ in BOTH]
    for one, loop in zip(found, BOTH, strict=True):
        loop.fold(one[:, 1:], np.array(words[: len(h)], np.uint64), np.array([salts], np.uint64).T)
    assert found[0].tolist() == found[1].tolist()


@given(HASHES, HASHES)
def test_places(have: list[int], want: list[int]) -> None:
    a, b = np.array(sorted(have), np.uint64), np.array(sorted(want), np.uint64)
    (place, twice), (other, again) = (loop.places(a, b) for loop in BOTH)
    assert twice is again is (len({*have}) < len(have) or len({*want}) < len(want))
    if not twice:
        rows = {h: i for i, h in enumerate(sorted(have))}
        assert place.tolist() == other.tolist() == [rows.get(h, -1) for h in sorted(want)]


@given(st.sets(st.integers(0, 60)), st.sets(st.integers(0, 60)), st.data())
def test_merged_and_gather(have: set[int], want: set[int], data: st.DataObject) -> None:
    a, b = np.array(sorted(have), np.uint64), np.array(sorted(want), np.uint64)
    stays = np.array(data.draw(st.lists(st.booleans(), min_size=len(b), max_size=len(b))), np.bool_)
    place, _ = BOTH[0].places(a, b)
    left = {h for h in have if h not in want} | {
        h for h, there in zip(sorted(want), stays, strict=True) if there
    }
    for loop in BOTH:
        index = loop.merged(a, b, place, stays)
        found = loop.gather(a.view(np.int64), b.view(np.int64) + 100, index)
        assert found.tolist() == [h + 100 if h in want else h for h in sorted(left)]


class Kept(tl.Program):
    """States whose merged rows have every kind of column."""

    n: tl.Counter[tuple[str, int]]
    v: tl.Value[bool, float] = tl.state(default=0.0)


KEYS = st.tuples(st.sampled_from(["", "a", "b\0"]), st.integers(-3, 3))


@pytest.mark.parametrize("twice", [False, True])
@given(changes=st.lists(st.dictionaries(KEYS, st.integers(-2, 2)), max_size=4))
def test_what_a_slice_does_to_a_state(twice: bool, changes: list[dict[tuple[str, int], int]]) -> None:
    """`twice`: as if two keys had one hash, which no test can arrange otherwise."""
    spec = spec_of(Kept()).states["n"]
    found = []
    for loop in BOTH:
        before = loops.loops()
        loops.use(Clashing(loop) if twice else loop)
        try:
            table, totals = empty(spec), []
            for change in changes:
                columns: dict[str, list[Any]] = {
                    "n": list(change.values()),
                    "reset": [v == 2 for v in change.values()],
                }
                table, moved = apply(spec, table, make_effects(spec, "count", list(change), columns))
                totals.append(moved)
        finally:
            loops.use(before)
        found.append((table.to_pydict(), totals))
    assert found[0] == found[1]
    expected: dict[tuple[str, int], int] = {}
    for change in changes:
        for key, n in change.items():
            expected[key] = n if n == 2 else expected.get(key, 0) + n
    held = found[0][0]
    rows = dict(zip(zip(held["k0"], held["k1"], strict=True), held["v"], strict=True))
    assert rows == {key: n for key, n in expected.items() if n}
    assert held["h"] == sorted(held["h"])


class Clashing(NumpyLoops):
    """Says of all tables that a hash is there twice."""

    def __init__(self, inner: loops.Loops) -> None:
        self.fold, self.gather = inner.fold, inner.gather  # type: ignore[method-assign]

    def places(self, have: loops.U64, want: loops.U64) -> tuple[loops.I64, bool]:
        return super().places(have, want)[0], True
