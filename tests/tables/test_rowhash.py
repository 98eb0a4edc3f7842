"""The row hash: what it must tell apart, and what it must not depend on."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from timelapse.tables.rowhash import ZERO, HashSum, hash_sum, row_hashes

TYPES = {
    "int": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "float": (pa.float64(), st.floats(allow_nan=False)),
    "bool": (pa.bool_(), st.booleans()),
    "str": (pa.large_string(), st.text(max_size=20).filter(lambda s: s.isprintable() or True)),
    "bytes": (pa.large_binary(), st.binary(max_size=20)),
    "list": (pa.list_(pa.int64()), st.lists(st.integers(0, 2), max_size=4)),
    "lists of text": (pa.list_(pa.large_string()), st.lists(st.sampled_from(["", "a", "b"]), max_size=3)),
    "struct": (
        pa.struct([("a", pa.int64()), ("b", pa.large_string())]),
        st.fixed_dictionaries({"a": st.integers(0, 2), "b": st.sampled_from(["", "x"])}),
    ),
}


def _array(values: list[Any], kind: pa.DataType) -> pa.Array:
    clean = [v.encode("utf-8", "replace").decode() if isinstance(v, str) else v for v in values]
    return pa.array(clean, kind)


@pytest.mark.parametrize("name", TYPES)
@given(data=st.data())
def test_equal_values_hash_equal_and_others_do_not(name: str, data: st.DataObject) -> None:
    """Within one column, hashes are equal exactly where the values are equal."""
    kind, values = TYPES[name]
    array = _array(data.draw(st.lists(st.none() | values, min_size=2, max_size=8)), kind)
    shown = [repr(v) for v in array.to_pylist()]
    h = row_hashes([array], len(array), 7, 0)
    for i in range(len(array)):
        for j in range(len(array)):
            assert (h[i] == h[j]) == (shown[i] == shown[j])


@pytest.mark.parametrize("name", TYPES)
@given(data=st.data())
def test_a_row_hashes_the_same_wherever_it_stands(name: str, data: st.DataObject) -> None:
    """Slices of arrays (offsets), other neighbours and chunks do not matter: sums add up."""
    kind, values = TYPES[name]
    array = _array(data.draw(st.lists(st.none() | values, min_size=1, max_size=8)), kind)
    cut = data.draw(st.integers(0, len(array)))
    whole = hash_sum([array], len(array), 3)
    parts = hash_sum([array[:cut]], cut, 3) + hash_sum([array[cut:]], len(array) - cut, 3)
    assert whole == parts
    alone = [int(row_hashes([array[i : i + 1]], 1, 3, 1)[0]) for i in range(len(array))]
    assert [int(x) for x in row_hashes([array], len(array), 3, 1)] == alone


@given(st.permutations(list(range(6))))
def test_the_sum_does_not_depend_on_order(order: list[int]) -> None:
    """Rows in any order give the same sum."""
    rows = pa.array([5, 4, 3, 2, 1, 1])
    assert hash_sum([rows], 6, 1) == hash_sum([rows.take(pa.array(order))], 6, 1)


def test_minus_zero_differs_and_nan_is_one_value() -> None:
    """-0.0 is kept apart from 0.0; every NaN is the same."""
    other_nan = np.array([0x7FF8000000000001], np.uint64).view(np.float64)[0]
    h = row_hashes([pa.array([0.0, -0.0, math.nan, other_nan])], 4, 0, 0)
    assert h[0] != h[1]
    assert h[2] == h[3]


@pytest.mark.parametrize("pair", [("a", "a\x00"), ("", "\x00"), ("a" * 8, "a" * 8 + "\x00"), ("ab", "ba")])
def test_padding_does_not_make_strings_equal(pair: tuple[str, str]) -> None:
    """Strings are padded to words inside; length counts."""
    h = row_hashes([pa.array(pair, pa.large_string())], 2, 0, 0)
    assert h[0] != h[1]


def test_columns_are_not_interchangeable() -> None:
    """(1, 2) and (2, 1) differ, and so do seeds and lanes."""
    a, b = pa.array([1, 2]), pa.array([2, 1])
    h = row_hashes([a, b], 2, 0, 0)
    assert h[0] != h[1]
    assert row_hashes([a], 2, 0, 0)[0] != row_hashes([a], 2, 1, 0)[0]
    assert row_hashes([a], 2, 0, 0)[0] != row_hashes([a], 2, 0, 1)[0]


def test_sums_wrap_and_zero_is_neutral() -> None:
    """Lanes are modulo 2^64."""
    big = HashSum(2**64 - 1, 2**64 - 1, 1)
    assert big + HashSum(1, 2, 1) == HashSum(0, 1, 2)
    assert big + ZERO == big
