"""The order of times."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from timelapse.ids import INT64_MAX, INT64_MIN
from timelapse.tables.ordering import stable_order

EDGES = st.sampled_from([INT64_MIN, INT64_MIN + 1, -1, 0, 1, INT64_MAX - 1, INT64_MAX])


@given(st.lists(EDGES | st.integers(-5, 5) | st.integers(INT64_MIN, INT64_MAX), max_size=60))
def test_the_order_is_that_of_a_stable_sort(values: list[int]) -> None:
    own = np.asarray(values, np.int64)
    assert stable_order(own).tolist() == np.argsort(own, kind="stable").tolist()


@pytest.mark.parametrize("bits", [40, 52, 53, 54, 62])
def test_ranges_up_to_where_a_word_has_no_room(bits: int) -> None:
    rng = np.random.default_rng(bits)
    values = rng.integers(-(1 << bits), 1 << bits, 2000)
    values[::3] = values[0]
    assert stable_order(values).tolist() == np.argsort(values, kind="stable").tolist()
