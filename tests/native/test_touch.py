"""Keys that machine code takes over from a mapped state table: those that are there, with their values."""

from __future__ import annotations

import struct
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import timelapse as tl
from timelapse.kernels.native.strings import Interned
from timelapse.kernels.native.touch import Mapped, fetchable, take, text_hash
from timelapse.kinds.base import ABSENT, StateOptions, StateSpec
from timelapse.tables import table
from timelapse.tables.rowhash import row_hashes
from timelapse.tables.scalarhash import key_hash
from timelapse.tables.table import key_names, state_table


def spec(kind: Any, *args: Any, default: Any = ABSENT) -> StateSpec:
    made: StateSpec = kind.declare("s", args, StateOptions(default), None)
    return made


def bits(x: float) -> int:
    found: int = struct.unpack("<q", struct.pack("<d", x))[0]
    return found


Make = Callable[[int], Any]
KINDS: list[tuple[StateSpec, Make, Make, Callable[[Any], list[int]]]] = [
    (spec(tl.Counter, int), lambda k: 7 * k - 2**62, lambda v: v + 1, lambda v: [v]),
    (spec(tl.Set, tuple[int, str]), lambda k: (k % 3, "é" * k), lambda v: True, lambda v: []),
    (spec(tl.Value, bytes, float, default=0.5), lambda k: b"\0" * k, lambda v: [-0.0, 1.5, float("nan")][v % 3],
     lambda v: [bits(v)]),
    (spec(tl.Value, tuple[bool, int], bool, default=False), lambda k: (k % 2 == 0, k), lambda v: v % 2 == 0,
     lambda v: [int(v)]),
    (spec(tl.Max, str, tl.Time, default=0), lambda k: f"{k}@" * (k % 4), lambda v: v, lambda v: [v]),
]  # fmt: skip


def words(parts: tuple[Any, ...], pool: Interned) -> list[int]:
    return [pool.code(p) if isinstance(p, str | bytes) else int(p) for p in parts]


@pytest.mark.parametrize("clash", [False, True])
@pytest.mark.parametrize("kind", range(len(KINDS)))
@settings(max_examples=25)
@given(there=st.sets(st.integers(0, 40), max_size=40), cuts=st.lists(st.integers(0, 40), max_size=4))
def test_keys_are_taken_over(kind: int, clash: bool, there: set[int], cuts: list[int]) -> None:
    """From a table in several pieces; also where keys share their hashes; others leave the row as it is."""
    own, key_of, value_of, words_of = KINDS[kind]
    state = {key_of(k): value_of(k) for k in sorted(there)}
    with pytest.MonkeyPatch.context() as patch:
        if clash:  # keys that share a hash lie beside the right one: they must not be taken for it
            patch.setattr(table, "row_hashes", lambda *args: row_hashes(*args) | np.uint64(2**63))
        made = state_table(own, state.items())
    edges = sorted({0, made.num_rows, *(min(c, made.num_rows) for c in cuts)})
    pieces = [made.slice(a, b - a) for a, b in pairwise(edges)]
    made = pa.concat_tables([made[:0], *pieces])
    assert fetchable(made)
    mapped, pool = Mapped(made, len(key_names(own))), Interned(["", b""])
    width = len(key_names(own))
    for k in range(45):
        key = key_of(k)
        parts = key if isinstance(key, tuple) else (key,)
        row = np.zeros((3, 1 + width + 2), np.int64)
        row[1, 1 : 1 + width] = words(parts, pool)
        before = row.copy()
        found = take(mapped.strings(*pool.buffers), row, np.uint64(1), width)
        if key in state and not (clash and key_hash(parts) < 2**63):
            expected = words_of(state[key])
            before[1, 0] = 3
            before[1, 1 + width : 1 + width + len(expected)] = expected
            assert found == 1
        else:
            assert found == 0
        assert row.tolist() == before.tolist()


@given(st.text(st.characters(codec="utf-8"), max_size=30))
def test_the_hash_of_a_text(text: str) -> None:
    """As the rows of tables are hashed, wherever the bytes lie."""
    raw = np.frombuffer(b"x" + text.encode(), np.uint8)
    column = row_hashes([pa.array([text], pa.large_string())], 1, 0, 0)
    from timelapse.tables.rowhash import LANE_SALTS, STEP, mix

    found = np.array([text_hash(raw.ctypes.data + 1, len(raw) - 1)], np.uint64)
    with np.errstate(over="ignore"):
        first = np.array([LANE_SALTS[0]], np.uint64)
        assert mix(first * STEP + found).tolist() == column.tolist()


def test_which_tables_can_be_mapped() -> None:
    """Not those with values that are strings or compound, or that may be None."""
    assert not fetchable(state_table(spec(tl.Value, int, str, default=""), [(1, "a")]))
    assert not fetchable(state_table(spec(tl.Value, int, tuple[int, int], default=(0, 0)), [(1, (2, 3))]))
    assert not fetchable(state_table(spec(tl.Value, int, int | None), [(1, None)]))
    assert not fetchable(state_table(spec(tl.Counter), [((), 1)]))
    assert fetchable(state_table(spec(tl.Set, int), [(1, True)]))
