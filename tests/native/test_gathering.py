"""What a slice did to states that share tables: as for each state and worker alone, however it is shared out."""

from __future__ import annotations

import math
import struct
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import timelapse as tl
from tests.depth import deep
from tests.native.oracle import same
from timelapse.analysis import PassProgram
from timelapse.kernels.native.memory import gathering
from timelapse.kernels.native.memory.gathering import Effects, effects_of
from timelapse.kernels.native.memory.hashtable import HashTable, Image
from timelapse.kernels.native.memory.layout import beside, layout_of
from timelapse.kernels.native.memory.strings import Interned
from timelapse.kernels.native.memory.table import NativeTable
from timelapse.kernels.native.views import live_state
from timelapse.kinds.base import StateSpec
from timelapse.program.program import spec_of
from timelapse.tables.apply import NO_CHANGE, Change


class Point(NamedTuple):
    n: int
    x: float | None


class States(tl.Program):
    count: tl.Counter[str]
    keys: tl.Set[str]
    real: tl.Value[str, float] = tl.state(default=-0.0)
    text: tl.Value[str, str] = tl.state(default="")
    point: tl.Value[str, Point | None]


SPECS = spec_of(States()).states
NAN, OTHER_NAN = math.nan, struct.unpack("<d", struct.pack("<q", 0x7FF8000000000001))[0]
VALUES: dict[str, list[Any]] = {
    "count": [0, 1, -5], "keys": [True, False], "real": [0.0, -0.0, 1.5, NAN, OTHER_NAN], "text": ["", "a", "é"],
    "point": [None, Point(1, None), Point(1, 0.5)],
}  # fmt: skip
KEYS = [f"k{n}" for n in range(7)]
Step = tuple[str, str, Any]
"""A state, a key, what is done to it: a value, or None to take it out."""


def _work(states: list[str], *, delta: bool) -> PassProgram:
    names: frozenset[str] = frozenset(states)
    none: frozenset[str] = frozenset()
    return PassProgram(
        "p", tuple(states), names if delta else none, none if delta else names, none, (), {}, {}, none
    )


def _tables(states: list[str], interned: Interned, *, delta: bool, shared: bool) -> list[NativeTable]:
    work = _work(states, delta=delta)
    layouts = [layout_of(SPECS[name], work, final=not delta) for name in states]
    if not shared:
        return [NativeTable(SPECS[n], o, interned) for n, o in zip(states, layouts, strict=True)]
    together = beside(layouts)
    assert together is not None
    table = HashTable(together)
    return [NativeTable(SPECS[n], o, interned, table) for n, o in zip(states, together, strict=True)]


def _do(tables: list[NativeTable], states: list[str], steps: list[Step]) -> None:
    for name, key, value in steps:
        live: Any = live_state(tables[states.index(name)], None)
        if name == "keys":
            (live.add if value else live.discard)(key)
        elif value is None:
            del live[key]
        else:
            live[key] = value


def _begin(tables: list[NativeTable]) -> None:
    for table in {id(t.hash): t for t in tables}.values():
        table.begin()


def _steps(states: list[str]) -> st.SearchStrategy[list[Step]]:
    def step(name: str) -> st.SearchStrategy[Step]:
        values = st.sampled_from(VALUES[name]) | st.none()
        return st.tuples(st.just(name), st.sampled_from(KEYS), values)

    return st.lists(st.one_of([step(name) for name in states]), max_size=25)


@pytest.mark.parametrize(
    "states", [["count", "real"], ["keys", "text", "count"], ["point", "count"], ["keys"]]
)
@pytest.mark.parametrize(("workers", "threads"), [(1, 1), (1, 3), (3, 2)])
@settings(max_examples=deep(15), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_shared_tables_of_several_workers(
    states: list[str], workers: int, threads: int, data: st.DataObject
) -> None:
    """Two slices: as tables of each state alone, of one worker, gathered by one thread."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gathering, "WORTH_THREADS", -1)
        patch.setattr(gathering, "_PART", 64)
        interned = Interned([""])
        plain = _tables(states, interned, delta=False, shared=False)
        own = [_tables(states, interned, delta=False, shared=True) for _ in range(workers)]
        for _ in range(2):
            for tables in (plain, *own):
                _begin(tables)
            for step in data.draw(_steps(states)):
                _do(plain, states, [step])
                _do(own[KEYS.index(step[1]) % workers], states, [step])
            expected = [effects_of([[table]])[0] for table in plain]
            _assert_same(effects_of(own, threads), expected)


@pytest.mark.parametrize("states", [["count", "real"], ["keys", "text", "count"], ["point", "count"]])
@settings(max_examples=deep(15), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_what_a_slice_left_is_found_after_the_next_one_has_written(
    states: list[str], data: st.DataObject
) -> None:
    """And has had its tables grow: as if it had been found at once. Four slices, of which any are found at once, and the others behind the last one."""
    interned = Interned([""])
    plain = _tables(states, interned, delta=False, shared=False)
    own = _tables(states, interned, delta=False, shared=True)
    _begin(plain)
    _begin(own)
    later: list[tuple[dict[HashTable, Image], list[Effects]]] = []
    for number in range(4):
        more = [(states[-1], f"{number} {n}", 1) for n in range(data.draw(st.sampled_from([0, 700])))]
        for step in [*data.draw(_steps(states)), *more]:
            _do(plain, states, [step])
            _do(own, states, [step])
        expected = [effects_of([[table]])[0] for table in plain]
        if data.draw(st.booleans()):
            later.append(({table.hash: table.hash.turn() for table in own[:1]}, expected))
        else:
            _assert_same(effects_of([own]), expected)
        if data.draw(st.booleans()):
            own[0].hash.make_ready()
        _begin(plain)
        _begin(own)
    for images, expected in later:
        _assert_same(effects_of([own], 1, images), expected)


def _assert_same(found: list[Effects], expected: list[Effects]) -> None:
    for (table, change), (wanted, moved) in zip(found, expected, strict=True):
        assert same(table, wanted)
        assert table.schema == wanted.schema
        assert change == moved


@pytest.mark.parametrize("states", [["count", "keys"], ["real", "text"]])
@settings(max_examples=deep(15), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_deltas(states: list[str], data: st.DataObject) -> None:
    """Steps instead of values, and no change."""
    interned = Interned([""])
    plain = _tables(states, interned, delta=True, shared=False)
    own = _tables(states, interned, delta=True, shared=True)
    calls = {"count": ("add", 3), "keys": ("set",), "real": ("set", 0.5), "text": ("set", "a")}
    for name, key in data.draw(st.lists(st.tuples(st.sampled_from(states), st.sampled_from(KEYS)))):
        for tables in (plain, own):
            effect, *given_ = calls[name]
            live: Any = live_state(tables[states.index(name)], None)
            getattr(live, f"_e_{effect}")(key, *given_)
    expected = [effects_of([[table]])[0] for table in plain]
    assert {change for _, change in expected} == {None}
    _assert_same(effects_of([own], 2), expected)


def test_nan_is_one_value() -> None:
    """Another NaN in its place is no change; what stood beside it in the row is."""
    interned = Interned([""])
    tables = _tables(["real", "count"], interned, delta=False, shared=True)
    _begin(tables)
    _do(tables, ["real", "count"], [("real", "a", NAN), ("count", "a", 1)])
    (real, change), _ = effects_of([tables])
    assert real.num_rows == 1
    assert change is not None
    assert change.moved.rows == 1
    _begin(tables)
    _do(tables, ["real", "count"], [("real", "a", OTHER_NAN), ("count", "a", 2)])
    (real, change), (count, _) = effects_of([tables])
    assert (real.num_rows, count.num_rows) == (0, 1)
    assert change == NO_CHANGE


def test_what_nobody_wrote() -> None:
    (found,) = effects_of([_tables(["point"], Interned([""]), delta=False, shared=False)])
    assert found[0].num_rows == 0
    assert found[1] == Change(NO_CHANGE.moved, NO_CHANGE.content)
    assert found[0].schema.field("v").type == _value(SPECS["point"])


def _value(spec: StateSpec) -> pa.DataType:
    assert spec.value is not None
    return spec.value.arrow
