"""Rows in the order of their hashes: what a stable sort gives, whatever the hashes are like."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from timelapse.kernels.native.memory import ordering
from timelapse.kernels.native.memory.ordering import Ints, columns_by_hash

ODD = st.sampled_from([0, 1, 2, 3, 2**63 - 1, 2**63, 2**64 - 2, 2**64 - 1])


def _expected(rows: Ints, h: ordering.U64, wanted: Ints) -> list[list[int]]:
    order = np.argsort(h, kind="stable")
    return [h[order].view(np.int64).tolist(), *rows[order][:, wanted].T.tolist()]


@given(st.lists(ODD | st.integers(0, 2**64 - 1), max_size=80), st.permutations([0, 1, 2]))
def test_few_rows(values: list[int], wanted: list[int]) -> None:
    """Also where hashes agree in the upper bits, or altogether."""
    h, some = np.array(values, np.uint64), np.array(wanted[:2], np.int64)
    rows: Ints = np.arange(3 * len(h), dtype=np.int64).reshape(len(h), 3)
    expected = _expected(rows, h, some)
    assert columns_by_hash(rows, h, some).tolist() == expected


@pytest.mark.parametrize("limit", [2**64 - 1, 2**40, 3])
def test_many_rows(limit: int) -> None:
    """Random hashes; hashes that differ in the lower bits alone, and few different ones: those are sorted otherwise."""
    h = np.random.default_rng(5).integers(0, limit, 50_000, dtype=np.uint64)
    rows: Ints = np.arange(3 * len(h), dtype=np.int64).reshape(len(h), 3)
    expected = _expected(rows, h, np.array([2, 0]))
    assert columns_by_hash(rows, h, np.array([2, 0])).tolist() == expected
