"""A state in levels: what single keys hold, and the whole, is what one table after the other gives; rewriting is bounded."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import timelapse as tl
from tests.depth import deep
from timelapse.kernels.native.memory.layout import Layout
from timelapse.kernels.native.memory.strings import Interned
from timelapse.kernels.native.memory.touch import MappedRows, take
from timelapse.kinds.base import ABSENT, StateOptions, StateSpec
from timelapse.tables import merge, table
from timelapse.tables.apply import apply, empty
from timelapse.tables.levels import Levels, levels_of, whole
from timelapse.tables.lookup import LazyDict, MappedLevels
from timelapse.tables.rowhash import row_hashes
from timelapse.tables.table import make_effects, read_table, to_dict

VALUE: StateSpec = tl.Value.declare("s", (int, int | None), StateOptions(ABSENT), None)
Write = tuple[int, bool, int | None]
WRITES = st.lists(st.tuples(st.integers(0, 20), st.booleans(), st.none() | st.integers()), max_size=12)


def effects(writes: list[Write]) -> pa.Table:
    last = {key: (present, value) for key, present, value in writes}
    values = [v if there else None for there, v in last.values()]
    return make_effects(
        VALUE, "const", list(last), {"present": [there for there, _ in last.values()], "v": values}
    )


@pytest.mark.parametrize("clash", [False, True])
@settings(max_examples=deep(30))
@given(
    slices=st.lists(
        WRITES.map(lambda w: [(k, p, None if v is None else v % 2**60) for k, p, v in w]), max_size=6
    )
)
def test_levels_are_the_state(clash: bool, slices: list[list[Write]]) -> None:
    """In Python, in machine code and as a whole; keys that were removed are gone, also where keys share a hash."""
    with pytest.MonkeyPatch.context() as patch:
        if clash:
            patch.setattr(table, "row_hashes", lambda *args: row_hashes(*args) & np.uint64(2**63))
        changes = tuple(effects(writes) for writes in slices)
        state = empty(VALUE)
        for change in changes:
            state, _ = apply(VALUE, state, change)
    levels = Levels(VALUE, empty(VALUE), changes)
    expected = to_dict(VALUE, state)
    if clash:
        assert to_dict(VALUE, whole(levels)) == expected
        return
    assert to_dict(VALUE, whole(levels)) == expected
    lazy: dict[Any, Any] = LazyDict(MappedLevels(levels))
    strings = Interned()  # machine code is given its addresses
    mapped = MappedRows([(levels, Layout(1, VALUE.value, "exact", tracked=True))])
    for key in range(22):
        assert lazy.get(key, ABSENT) == expected.get(key, ABSENT)
        row, base = np.zeros((2, 4), np.int64), np.zeros((2, 3), np.int64)
        row[1, 1] = key
        found = take(mapped.strings(*strings.buffers), row, base, np.uint64(1), 1)
        assert found == (key in expected)
        if key in expected:
            value = expected[key]
            assert row[1].tolist() == [3, key, *([0, 0] if value is None else [1, value])]
            assert base[1].tolist() == [2, *row[1, 2:].tolist()]
        else:
            assert row[1].tolist() == [0, key, 0, 0]
            assert not base.any()
    assert dict(lazy.items()) == expected


def test_levels_are_merged_into_one_file(tmp_path: Path) -> None:
    """What several changes come to is what they do one after the other, with the keys that they remove."""
    first = effects([(k, True, k) for k in range(50)])
    second = effects([(k, k % 2 == 0, -k) for k in range(25, 75)])
    assert merge.together_to(VALUE, [first, second], tmp_path / "one.arrow")
    one = read_table(tmp_path / "one.arrow")
    assert to_dict(VALUE, whole(Levels(VALUE, empty(VALUE), (one,)))) == to_dict(
        VALUE, whole(Levels(VALUE, empty(VALUE), (first, second)))
    )
    gone = set(one.filter(pa.compute.invert(one.column("present"))).column("k0").to_pylist())
    assert gone == {k for k in range(25, 75) if k % 2}


@pytest.mark.parametrize("stops", [10, 100, 1000])
def test_rewriting_grows_with_the_logarithm(stops: int) -> None:
    """Of n stops, each row is rewritten about log n times, and lies in about log n levels."""
    chance = random.Random(stops)
    sizes = [chance.randrange(80, 120) for _ in range(stops)]
    base, later, written, most = 0, list[int](), 0, 0
    for size in sizes:
        later.append(size)
        rows = [base, *later]
        at = Levels(
            VALUE, pa.table({"h": np.zeros(base)}), tuple(pa.table({"h": np.zeros(n)}) for n in later)
        ).to_merge()
        if at < len(rows):
            together = sum(rows[at:])
            written += together
            base, later = (together, []) if at == 0 else (base, [*later[: at - 1], together])
        most = max(most, len(later) + (base > 0))
        assert all(
            rows[i] > 2 * sum(rows[i + 1 :])
            for rows in [[r for r in (base, *later) if r]]
            for i in range(len(rows) - 1)
        )
    assert written <= 1.5 * np.log2(stops) * sum(sizes)
    assert most <= 1 + np.log2(stops)


def test_levels_without_rows_are_not_looked_at() -> None:
    """An empty state has none."""
    assert levels_of(Levels(VALUE, empty(VALUE), (effects([]),))) == []
    assert MappedLevels(Levels(VALUE, empty(VALUE))).find(3) is ABSENT
