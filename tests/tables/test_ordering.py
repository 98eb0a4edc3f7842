"""The order of times."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.depth import deep
from timelapse.ids import INT64_MAX, INT64_MIN
from timelapse.tables.ordering import _cells, distinct, scattered, stable_order, taker
from timelapse.tables.rowhash import both_lanes

EDGES = st.sampled_from([INT64_MIN, INT64_MIN + 1, -1, 0, 1, INT64_MAX - 1, INT64_MAX])


@given(st.lists(EDGES | st.integers(-5, 5) | st.integers(INT64_MIN, INT64_MAX), max_size=60))
def test_the_order_is_that_of_a_stable_sort(values: list[int]) -> None:
    own = np.asarray(values, np.int64)
    wanted = np.argsort(own, kind="stable").tolist()
    assert [stable_order(own, threads).tolist() for threads in (1, 2)] == [wanted, wanted]


@pytest.mark.parametrize("bits", [40, 52, 53, 54, 62])
def test_ranges_up_to_where_a_word_has_no_room(bits: int) -> None:
    rng = np.random.default_rng(bits)
    values = rng.integers(-(1 << bits), 1 << bits, 2000)
    values[::3] = values[0]
    wanted = np.argsort(values, kind="stable").tolist()
    assert [stable_order(values, threads).tolist() for threads in (1, 2)] == [wanted, wanted]


TEXTS = st.lists(
    st.one_of(st.text(alphabet="ab\0é", max_size=9), st.text(max_size=40)), min_size=1, max_size=60
)


@given(TEXTS, st.booleans(), st.booleans(), st.randoms(use_true_random=False), st.integers(0, 3))
@settings(max_examples=deep(250), deadline=None)
def test_rows_are_taken_as_arrow_takes_them(
    texts: list[str], far: bool, rising: bool, chance: random.Random, first: int
) -> None:
    column = pa.array(["before"] * first + texts, pa.large_string()).slice(first)
    places = [chance.randrange(len(texts)) for _ in texts]
    if rising:
        places = list(range(places[0], len(texts)))
    found = taker(column, far=far)(np.asarray(places, np.int64))
    assert found.to_pylist() == [texts[at] for at in places]
    found.validate(full=True)


def test_scattered_short_texts_are_taken_in_cells_of_equal_width() -> None:
    short = pa.array([f"10.0.0.{n % 250}" for n in range(5000)], pa.large_string())
    assert _cells(short) is not None
    for other in (
        pa.array(["10.0.0.1", None], pa.large_string()),
        pa.array(["ends in zero\0"], pa.large_string()),
        pa.array(["x" * 33], pa.large_string()),
        pa.array(["a word of 20 letters", *["a"] * 9], pa.large_string()),  # cells would be mostly empty
    ):
        assert _cells(other) is None
    assert scattered(np.random.default_rng(3).permutation(200_000))
    assert not scattered(np.arange(5000))
    assert not scattered(np.arange(5000).reshape(5, 1000).T.ravel())  # five sorted runs, merged


def test_texts_that_repeat_are_taken_as_numbers_of_a_dictionary() -> None:
    rows = 40_000
    texts = [None if n % 7 == 0 else f"text {n % 900}" for n in range(rows)]
    column = pa.array(texts, pa.large_string())
    places = np.random.default_rng(5).permutation(rows)
    found = taker(column, far=True)(places)
    assert pa.types.is_dictionary(found.type)
    assert found.cast(column.type) == column.take(pa.array(places))
    for part in (found, found.slice(3, 20_000), pa.array([None, None], column.type).dictionary_encode()):
        for a, b in zip(
            both_lanes([part], len(part), 7), both_lanes([part.cast(column.type)], len(part), 7), strict=True
        ):
            assert (a == b).all()
    coded = column.dictionary_encode()
    assert pa.types.is_dictionary(taker(coded, far=True)(places).type)
    for way in (True, False):
        assert taker(coded, far=way)(places).cast(column.type) == column.take(pa.array(places))
    for other in (column, coded):
        assert not pa.types.is_dictionary(taker(other, far=False)(places).type)
    different = pa.array([f"text {n}" for n in range(rows)], pa.large_string())
    for other in (different, different.dictionary_encode()):
        found = taker(other, far=True)(places)
        assert found == different.take(pa.array(places))


def test_a_column_of_one_number_is_not_copied() -> None:
    column = pa.array([7] * 500, pa.int32())
    places = np.random.default_rng(5).permutation(500)[:300]
    found = taker(column, far=True)(places)
    assert found == column.take(pa.array(places))
    assert found.buffers()[1].address == column.buffers()[1].address
    assert taker(pa.array([7, 8, 7]), far=True)(np.asarray([2, 1])).to_pylist() == [7, 8]
    assert taker(pa.array([7, None, 7]), far=True)(np.asarray([1, 2])).to_pylist() == [None, 7]


@given(st.lists(st.integers(0, 2**64 - 1) | st.integers(0, 3) | st.just(2**64 - 1), max_size=40))
@settings(max_examples=deep(100))
def test_distinct_numbers_are_those_of_numpy(values: list[int]) -> None:
    given_ = np.array(values, np.uint64)
    found = distinct(given_)
    assert found.tolist() == sorted(set(values))
    assert found.dtype == np.uint64
    assert given_.tolist() == values
