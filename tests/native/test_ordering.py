"""Rows in the order of their hashes: what a stable sort gives, whatever the hashes are like."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from timelapse.kernels.native.memory.ordering import U64, Ints, columns_of, drawer_bits

ODD = st.sampled_from([0, 1, 2, 3, 2**63 - 1, 2**63, 2**64 - 2, 2**64 - 1])


def _expected(rows: Ints, h: U64) -> list[list[int]]:
    order = np.argsort(h, kind="stable")
    return [h[order].view(np.int64).tolist(), *rows[order].T.tolist()]


def _found(rows: Ints, h: U64, threads: int) -> list[list[int]]:
    """By way of drawers."""
    bits = drawer_bits(len(h))
    drawer = (h >> np.uint64(64 - bits[0])).astype(np.int64)
    order = np.argsort(drawer, kind="stable")
    ends = np.concatenate([[0], np.cumsum(np.bincount(drawer, minlength=1 << bits[0]))]).astype(np.int64)
    drawers = np.ascontiguousarray(np.column_stack([h.view(np.int64), rows])[order])
    found: list[list[int]] = columns_of(drawers, ends, bits, threads).tolist()
    return found


@given(st.lists(ODD | st.integers(0, 2**64 - 1), max_size=80), st.integers(1, 3))
def test_few_rows(values: list[int], threads: int) -> None:
    """Also where hashes agree in the upper bits, or altogether."""
    h = np.array(values, np.uint64)
    rows: Ints = np.arange(3 * len(h), dtype=np.int64).reshape(len(h), 3)
    assert _found(rows, h, threads) == _expected(rows, h)


@pytest.mark.parametrize("limit", [2**64 - 1, 2**40, 3])
@pytest.mark.parametrize("threads", [1, 2])
def test_many_rows(limit: int, threads: int) -> None:
    """Random hashes; hashes that differ in the lower bits alone, and few different ones: those are sorted otherwise."""
    h = np.random.default_rng(5).integers(0, limit, 50_000, dtype=np.uint64)
    rows: Ints = np.arange(3 * len(h), dtype=np.int64).reshape(len(h), 3)
    assert _found(rows, h, threads) == _expected(rows, h)
