"""Deltas: what a slice does to a state it does not know, against the state's meaning."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import timelapse as tl
from timelapse.kinds.base import ABSENT, StateOptions, StateSpec
from timelapse.kinds.effects import Journal, undo
from timelapse.serial import DictStore
from timelapse.tables.apply import apply, changes_table, empty
from timelapse.tables.table import effect_table, state_table, to_dict

Op = tuple[str, Any, Any]
KEYS = st.sampled_from([1, 2, 3])
INTS = st.one_of(st.integers(-4, 4), st.sampled_from([2**63 - 1, -(2**63), 2**62]))
SMALL = st.integers(-4, 4)
FLOATS = st.sampled_from([0.0, -0.0, 1.5, -1.5, math.inf, -math.inf, 2.0**53])
EDGE_STRINGS = st.sampled_from(["", "a", "é", "\x00", "a" * 9, "\U0001f600"])


def spec_of(kind: Any, key: Any, value: Any = None, default: Any = ABSENT) -> StateSpec:
    args = (key,) if value is None else (key, value)
    spec: StateSpec = kind.declare("s", args, StateOptions(default), None)
    return spec


def meaning(spec: StateSpec, start: dict[Any, Any], ops: list[Op]) -> dict[Any, Any]:
    """The state after the operations, by the kind's own Python."""
    store = DictStore([])
    store.data.update(start)
    state: Any = spec.kind(spec, store)
    for effect, key, value in ops:
        _serial_op(spec, state, effect, key, value)
    return store.data


def _serial_op(spec: StateSpec, state: Any, effect: str, key: Any, value: Any) -> None:
    if effect == "set" and spec.kind is tl.Set:
        state.add(key)
    elif effect == "del" and spec.kind is tl.Set:
        state.discard(key)
    elif effect == "set" and spec.kind is tl.Last:
        state.add(key, value)
    elif effect == "set":
        state[key] = value
    elif effect == "del":
        del state[key]
    elif effect == "add" and spec.kind is tl.Counter:
        state.add(key, value)
    elif effect == "add":
        state[key] += value
    elif effect == "first" and spec.kind is tl.Value:
        state.setdefault(key, value)
    elif effect in ("first", "top", "bottom"):
        state.add(key, value)
    elif effect == "up":
        if value > state[key]:
            state[key] = value
    elif effect == "up_always":
        state[key] = max(state[key], value)
    elif effect == "down":
        if value < state[key]:
            state[key] = value
    elif effect == "down_always":
        state[key] = min(state[key], value)
    else:
        raise AssertionError(effect)


def delta_ops(spec: StateSpec, ops: list[Op], journal: Journal | None = None) -> Any:
    delta: Any = spec.kind.delta(spec, journal)
    for effect, key, value in ops:
        _delta_op(spec, delta, effect, key, value)
    return delta


def _delta_op(spec: StateSpec, delta: Any, effect: str, key: Any, value: Any) -> None:
    method = getattr(delta, f"_e_{effect}")
    if effect == "del" or (spec.kind is tl.Set and effect == "set"):
        method(key)
    else:
        method(key, value)


def check(spec: StateSpec, before: list[Op], ops: list[Op], cut: int) -> None:
    """Effects found ahead of time, applied slice by slice, give the state that the meaning gives."""
    start = meaning(spec, {}, before)
    expected = meaning(spec, dict(start), ops)
    table = state_table(spec, start.items())
    for part in (ops[:cut], ops[cut:]):
        old = to_dict(spec, table)
        table, change = apply(spec, table, effect_table(delta_ops(spec, part)))
        new = to_dict(spec, table)
        touched = {key: old.get(key, ABSENT) for key in [*old, *new, *(k for _, k, _ in part)]}
        assert changes_table(spec, touched, new, ABSENT)[1] == change
    assert _bits(to_dict(spec, table)) == _bits(expected)


def _bits(values: dict[Any, Any]) -> dict[Any, str]:
    return {k: f"{type(v).__name__} {v!r}" for k, v in values.items()}


def ops_of(effects: list[str], values: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Op]]:
    return st.lists(st.tuples(st.sampled_from(effects), KEYS, values), max_size=12)


CASES: dict[str, tuple[StateSpec, list[str], st.SearchStrategy[Any]]] = {
    "counter": (spec_of(tl.Counter, int), ["add", "set"], SMALL),
    "set": (spec_of(tl.Set, int), ["set", "del"], st.none()),
    "value-int-add": (spec_of(tl.Value, int, int, 3), ["set", "del", "first", "add"], SMALL),
    "value-int-up": (spec_of(tl.Value, int, int, 1), ["set", "del", "first", "up", "up_always"], INTS),
    "value-int-down": (spec_of(tl.Value, int, int, 1), ["set", "del", "first", "down", "down_always"], INTS),
    "value-float-up": (spec_of(tl.Value, int, float, 0.0), ["set", "del", "up", "up_always"], FLOATS),
    "value-float-down": (spec_of(tl.Value, int, float, -0.0), ["set", "del", "down"], FLOATS),
    "value-str": (spec_of(tl.Value, int, str, ""), ["set", "del", "first", "up"], EDGE_STRINGS),
    "value-optional": (
        spec_of(tl.Value, int, int | None), ["set", "del", "first"], st.one_of(st.none(), INTS)
    ),
    "value-tuple": (
        spec_of(tl.Value, int, tuple[int, str], (0, "")), ["set", "del", "first"],
        st.tuples(SMALL, EDGE_STRINGS),
    ),
    "max-int": (spec_of(tl.Max, int, int, 0), ["top", "del"], INTS),
    "max-float": (spec_of(tl.Max, int, float, 0.0), ["top", "del"], FLOATS),
    "min-str": (spec_of(tl.Min, int, str, ""), ["bottom", "del"], EDGE_STRINGS),
    "min-bytes": (spec_of(tl.Min, int, bytes, b""), ["bottom", "del"], st.binary(max_size=3)),
    "max-bool": (spec_of(tl.Max, int, bool, False), ["top", "del"], st.booleans()),
    "first": (spec_of(tl.First, int, str, ""), ["first"], EDGE_STRINGS),
    "last": (spec_of(tl.Last, int, str | None), ["set"], st.one_of(st.none(), EDGE_STRINGS)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
@given(data=st.data())
def test_effects_found_without_the_state_give_the_state(name: str, data: st.DataObject) -> None:
    """For each kind: deltas of two slices, applied to a known start, equal the operations one by one."""
    spec, effects, values = CASES[name]
    before = data.draw(ops_of(effects, values))
    ops = data.draw(ops_of(effects, values))
    check(spec, before, ops, data.draw(st.integers(0, len(ops))))


@pytest.mark.parametrize("name", CASES)
@given(data=st.data())
def test_undoing_a_delta_leaves_no_trace(name: str, data: st.DataObject) -> None:
    """Operations taken back through the journal are as if they had not been."""
    spec, effects, values = CASES[name]
    kept, undone = data.draw(ops_of(effects, values)), data.draw(ops_of(effects, values))
    journal: Journal = []
    delta = delta_ops(spec, kept, journal)
    journal.clear()
    for effect, key, value in undone:
        _delta_op(spec, delta, effect, key, value)
    undo(journal)
    start = empty(spec)
    expected, _ = apply(spec, start, effect_table(delta_ops(spec, kept)))
    got, _ = apply(spec, start, effect_table(delta))
    assert _bits(to_dict(spec, got)) == _bits(to_dict(spec, expected))


@given(st.lists(st.sampled_from([2**63 - 1, -(2**63), 2**62, -1, 1]), max_size=6))
def test_sums_that_leave_int64_and_come_back_are_exact(steps: list[int]) -> None:
    """A slice's sum may need 65 bits although every state in the log is in range."""
    spec = spec_of(tl.Counter, int)
    start = -(2**63)
    total = start
    kept = [("set", 1, start)]
    ops: list[Op] = []
    for n in steps:
        if -(2**63) <= total + n < 2**63:
            ops.append(("add", 1, n))
            total += n
    check(spec, kept, ops, 0)


def test_keys_with_equal_hashes_stay_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """When all key hashes collide, keys are still told apart by comparing them."""
    import numpy as np

    from timelapse.tables import table

    monkeypatch.setattr(table, "key_hashes", lambda columns, rows: np.zeros(rows, np.uint64))
    spec = spec_of(tl.Counter, tuple[int, str])
    start = state_table(spec, [((1, "a"), 5), ((1, "b"), 6)])
    delta: Any = spec.kind.delta(spec, None)
    delta._e_add((1, "b"), 1)
    delta._e_add((2, "a"), 9)
    after, _ = apply(spec, start, effect_table(delta))
    assert to_dict(spec, after) == {(1, "a"): 5, (1, "b"): 7, (2, "a"): 9}


def test_unkeyed_states_have_one_row() -> None:
    """A state without a key is a table with at most one row and no key column."""
    spec: StateSpec = tl.Counter.declare("total", (), StateOptions(), None)
    delta: Any = spec.kind.delta(spec, None)
    delta._e_add((), 2)
    delta._e_add((), 3)
    after, _ = apply(spec, empty(spec), effect_table(delta))
    assert to_dict(spec, after) == {(): 5}
    assert after.column_names == ["h", "v"]
