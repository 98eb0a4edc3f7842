"""The row hash: what it must tell apart, and what it must not depend on."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from timelapse.tables import rowhash
from timelapse.tables.rowhash import ZERO, HashSum, alike, differ, hash_order, hash_sum, row_hashes

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


@pytest.mark.parametrize("name", TYPES)
@given(data=st.data())
def test_rows_are_hashed_block_by_block(name: str, data: st.DataObject) -> None:
    """How many rows are hashed at a time does not matter."""
    kind, values = TYPES[name]
    array = _array(data.draw(st.lists(st.none() | values, max_size=9)), kind)
    chunked = pa.chunked_array([array[:2], array[2:]])
    whole = row_hashes([array, array], len(array), 7, 1).tolist()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rowhash, "_BLOCK", 2)
        assert row_hashes([chunked, array], len(array), 7, 1).tolist() == whole


@given(
    st.lists(
        st.sampled_from([0, 1, 2, 3, 2**63, 2**64 - 1, 2**64 - 2]) | st.integers(0, 2**64 - 1), max_size=60
    )
)
def test_the_order_by_hash_is_the_stable_one(values: list[int]) -> None:
    """Also where hashes agree in the upper bits, or altogether."""
    h = np.array(values, np.uint64)
    assert hash_order(h).tolist() == np.argsort(h, kind="stable").tolist()


def test_the_order_by_hash_of_many_rows() -> None:
    """Random hashes; hashes that differ in the lower bits alone; few different ones."""
    random = np.random.default_rng(5)
    for limit in (2**64 - 1, 100_000, 3):
        h = random.integers(0, limit, 50_000, dtype=np.uint64)
        assert np.array_equal(hash_order(h), np.argsort(h, kind="stable"))


@pytest.mark.parametrize("name", TYPES)
@given(data=st.data())
def test_columns_differ_where_their_hashes_do(name: str, data: st.DataObject) -> None:
    """Element by element, nulls too; hashing may go on where it stopped."""
    kind, values = TYPES[name]
    pairs = data.draw(st.lists(st.tuples(st.none() | values, st.none() | values), max_size=9))
    a, b = (_array([p[i] for p in pairs], kind) for i in (0, 1))
    ha, hb = (row_hashes([x], len(x), 7, 1) for x in (a, b))
    assert differ(a, b).tolist() == (ha != hb).tolist()
    assert row_hashes([b], len(b), 0, 1, ha).tolist() == row_hashes([a, b], len(b), 7, 1).tolist()


def test_floats_differ_by_their_bits() -> None:
    a, b = [0.0, math.nan, 1.0, None], [-0.0, -math.nan, 1.0, 0.0]
    assert differ(pa.array(a), pa.array(b)).tolist() == [True, False, False, True]


@pytest.mark.parametrize("wrap", [lambda v: v, lambda v: [v], lambda v: {"x": v}])
def test_tables_are_alike_to_the_bit(wrap: Any) -> None:
    """Arrow takes both zeros for equal, and NaN for unequal, also inside of lists and structs."""
    one, zero, minus, nan = (
        pa.table({"t": ["a", "b"], "v": [wrap(1.0), wrap(v)]}) for v in (1.0, 0.0, -0.0, math.nan)
    )
    assert alike(zero, zero)
    assert alike(one, one)
    assert zero.equals(minus)
    assert not alike(zero, minus)
    assert not alike(zero, one)
    assert not nan.equals(nan.slice(0))
    assert alike(nan, nan)
    assert not alike(zero, zero.slice(1))
    assert not alike(zero, zero.rename_columns(["t", "w"]))
    coded = zero.set_column(0, "t", zero["t"].dictionary_encode())
    assert alike(coded, coded)


def test_values_of_two_types_differ() -> None:
    """Versions of a program may give a field another type."""
    whole, text = pa.array([1, None, 0, None]), pa.array(["1", None, "", "a"])
    assert differ(whole, pa.array([1.0, None, 0.0, 2.0])).tolist() == [True, False, True, True]
    assert differ(whole, text).tolist() == [True, False, True, True]
    assert differ(text, text.cast(pa.large_string())).tolist() == [False] * 4
    assert differ(text, text.cast(pa.binary())).tolist() == [True, False, True, True]
    assert differ(whole, pa.array([[1], None, [], [2]])).tolist() == [True, False, True, True]
    assert differ(whole, pa.nulls(4, pa.string())).tolist() == [True, False, True, False]


@pytest.mark.parametrize("seed", range(6))
def test_short_texts_hash_as_long_ones_do(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(seed)
    texts = [bytes(rng.integers(0, 256, int(rng.integers(0, 30)), np.uint8)) for _ in range(50)]
    array = pa.array(texts + [None, b""] * (seed % 2), pa.large_binary())
    for part in (array, array.slice(7, 20), array.slice(3, 0), pa.array([b"", b""], pa.large_binary())):
        short = [row_hashes([part], len(part), 5, lane).tolist() for lane in (0, 1)]
        monkeypatch.setattr("timelapse.tables.rowhash._SHORT_WORDS", -1)
        assert [row_hashes([part], len(part), 5, lane).tolist() for lane in (0, 1)] == short
        monkeypatch.undo()
