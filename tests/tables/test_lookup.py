"""Keys of a state table that are looked up one by one: as if the table had been loaded."""

from __future__ import annotations

import random
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import timelapse as tl
from tests.depth import deep
from timelapse.kernels.python.starts import KEY_BYTES, bytes_of, starting
from timelapse.kinds.base import ABSENT, StateOptions, StateSpec
from timelapse.model.types import DecimalType
from timelapse.tables import lookup
from timelapse.tables.lookup import LazyDict, MappedTable
from timelapse.tables.scalarhash import key_hash
from timelapse.tables.table import key_arrays, key_hashes, state_table, to_dict, value_array

TEXT = st.text(st.characters(codec="utf-8"), max_size=20)
INTS = st.integers(-(2**63), 2**63 - 1)


def spec(kind: Any, *args: Any, default: Any = ABSENT) -> StateSpec:
    made: StateSpec = kind.declare("s", args, StateOptions(default), None)
    return made


KINDS: list[tuple[StateSpec, Callable[[int], Any], Callable[[int], Any]]] = [
    (spec(tl.Counter, int), lambda k: k * 7 - 3, lambda v: v + 1),
    (spec(tl.Set, tuple[int, str]), lambda k: (k % 3, "é" * k), lambda v: True),
    (spec(tl.Value, bytes, float, default=0.5), lambda k: b"\0" * k, lambda v: -0.0 if v else 1.5),
    (spec(tl.Value, bool, str, default=""), lambda k: k % 2 == 0, lambda v: f"v{v}"),
    (spec(tl.Counter), lambda k: (), lambda v: v + 1),
]


@given(
    a=st.lists(INTS, min_size=1, max_size=5), b=st.lists(TEXT, min_size=5, max_size=5),
    c=st.lists(st.binary(max_size=20), min_size=5, max_size=5), d=st.booleans(),
)  # fmt: skip
def test_the_hash_of_one_key_is_that_of_a_column(a: list[int], b: list[str], c: list[bytes], d: bool) -> None:
    """All types of key parts, alone and together."""
    keys = list(zip(a, b, c, [d] * len(a), strict=False))
    columns = key_arrays(spec(tl.Set, tuple[int, str, bytes, bool]), keys)
    assert [key_hash(k) for k in keys] == key_hashes(columns, len(keys)).tolist()
    for i in range(4):
        alone = [(k[i],) for k in keys]
        assert [key_hash(k) for k in alone] == key_hashes([columns[i]], len(keys)).tolist()
    amounts = [Decimal(n).scaleb(-2) for n in (0, 1, -1, 150, -(2**63), 2**63 - 1)]
    assert [key_hash((a,)) for a in amounts] == key_hashes(
        [value_array(DecimalType.of(2), amounts)], len(amounts)
    ).tolist()
    none = key_hashes([pa.array([None], pa.int64()), columns[0][:1]], 1).tolist()
    assert [key_hash((None, a[0]))] == none


@pytest.mark.parametrize("pieces", [1, 4])
@pytest.mark.parametrize("clash", [False, True])
@pytest.mark.parametrize("kind", range(len(KINDS)))
@settings(max_examples=deep(15))
@given(seed=st.integers(0, 10**6))
def test_a_lazy_dict_is_a_dict(kind: int, clash: bool, pieces: int, seed: int) -> None:
    """The same answers and the same end as the loaded dict; also where keys share hashes, from pieces."""
    own, key_of, value_of = KINDS[kind]
    rng = random.Random(seed)
    with pytest.MonkeyPatch.context() as patch:
        if clash:
            patch.setattr(lookup, "key_hash", lambda parts: key_hash(parts) >> 62 << 62)
            patch.setattr("timelapse.tables.table.row_hashes", _coarse)
        start = {key_of(k): value_of(rng.randrange(3)) for k in rng.sample(range(12), rng.randrange(12))}
        table = state_table(own, start.items())
        step = -(-table.num_rows // pieces) or 1
        table = pa.concat_tables([table[:0], *(table[i : i + step] for i in range(0, len(start), step))])
        eager, lazy = to_dict(own, table), LazyDict(MappedTable(own, table))
        for _ in range(rng.randrange(25)):
            key, value = key_of(rng.randrange(14)), value_of(rng.randrange(3))
            match rng.randrange(5):
                case 0:
                    eager[key] = lazy[key] = value
                case 1:
                    assert repr(eager.pop(key, None)) == repr(lazy.pop(key, None))
                case 2:
                    assert (key in eager) == (key in lazy)
                    if key in eager:
                        del eager[key], lazy[key]
                case 3:
                    assert eager.setdefault(key, value) == lazy.setdefault(key, value)
                case _:
                    assert repr(eager.get(key, 9)) == repr(lazy.get(key, 9))
        assert sorted(map(repr, eager.items())) == sorted(map(repr, lazy.items()))
        assert len(lazy) == len(eager)


def _coarse(*args: Any) -> Any:
    from timelapse.tables.rowhash import row_hashes

    return row_hashes(*args) >> 62 << 62


def test_what_is_not_there() -> None:
    """Missing keys raise as in a dict; a key that no table can hold is absent."""
    own = spec(tl.Value, str, int, default=0)
    lazy = LazyDict(MappedTable(own, state_table(own, [("a", 1)])))
    for wrong in ("b", "\ud800"):
        assert lazy.get(wrong) is None
        with pytest.raises(KeyError):
            lazy[wrong]
        with pytest.raises(KeyError):
            lazy.pop(wrong)
        with pytest.raises(KeyError):
            del lazy[wrong]
    assert lazy["a"] == 1
    assert lazy.held == 3
    assert list(lazy) == list(lazy.keys()) == ["a"]
    assert list(lazy.values()) == [1]


def test_when_a_state_is_looked_up() -> None:
    """Few events over many keys, or more keys than there is memory for; never keys that have no such hash."""
    own = spec(tl.Counter, int)
    table = state_table(own, [(i, 1) for i in range(1000)])
    assert type(starting(own, table, 0, None)) is dict
    assert type(starting(own, table, 11, None)) is dict
    assert type(starting(own, table, 5, None)) is LazyDict
    assert type(starting(own, table, 1000, 4 * 1000 * KEY_BYTES)) is dict
    lazy = starting(own, table, 1000, 1000 * KEY_BYTES - 1)
    assert type(lazy) is LazyDict
    assert (lazy[3], bytes_of([lazy, {1: 1}])) == (1, 2 * KEY_BYTES)


@pytest.mark.parametrize("at_once", [1, 3, 1 << 13])
def test_what_is_searched_is_checked_before(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a search rests on: where a key is found, and for one that is not there where it would be."""
    monkeypatch.setattr(lookup, "_AT_ONCE", at_once)
    own = spec(tl.Counter, int)
    table = state_table(own, ((k, k) for k in range(0, 400, 2)))
    hashes = np.asarray(table.column("h").chunk(0), np.uint64)
    needed: list[tuple[int, int]] = []
    mapped = MappedTable(own, table, lambda address, size: needed.append((address, size)))
    for key in range(-4, 404):
        needed.clear()
        assert mapped.find(key) == (key if key % 2 == 0 and 0 <= key < 400 else ABSENT)
        at = int(np.searchsorted(hashes, np.uint64(key_hash((key,)))))
        for place in range(max(at - 1, 0), min(at + 1, len(hashes))):
            address = hashes.ctypes.data + 8 * place
            assert any(first <= address and address + 8 <= first + size for first, size in needed)
