"""Compiled passes' tables as Python sees them: values as words and back, states and deltas as handlers write them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import timelapse as tl
from tests.depth import deep
from tests.native.nodes import nodes
from tests.native.oracle import same
from timelapse.analysis import PassProgram
from timelapse.kernels.native.lowering.form import Break
from timelapse.kernels.native.lowering.idle import without_idle_saves
from timelapse.kernels.native.lowering.printing import printed
from timelapse.kernels.native.memory.gathering import effects_of
from timelapse.kernels.native.memory.layout import BoundedList, layout_of, stored_type
from timelapse.kernels.native.memory.strings import Interned
from timelapse.kernels.native.memory.table import NativeTable
from timelapse.kernels.native.memory.words import decode, encode, to_arrow, to_words
from timelapse.kernels.native.views import fill, live_state
from timelapse.kernels.python.stores import TrackedStore
from timelapse.kinds.base import ABSENT, StateSpec
from timelapse.kinds.effects import Journal, undo
from timelapse.model.types import ValueType
from timelapse.program.program import spec_of
from timelapse.tables.apply import changes_table
from timelapse.tables.table import effect_table, state_table, value_array


class Point(NamedTuple):
    n: int
    x: float | None


class States(tl.Program):
    count: tl.Counter[int]
    total: tl.Counter
    keys: tl.Set[tuple[int, str, bool, bytes]]
    number: tl.Value[int, int] = tl.state(default=3)
    text: tl.Value[str, str | None]
    real: tl.Value[int, float] = tl.state(default=-0.0)
    point: tl.Value[int, Point | None]
    pair: tl.Value[int, tuple[str, tuple[bytes, bool | None]]] = tl.state(default=("a", (b"", None)))
    single: tl.Value[tl.Time] = tl.state(default=1)
    best: tl.Max[int, float | None]
    least: tl.Min[int, int] = tl.state(default=0)
    first: tl.First[int, str] = tl.state(default="")
    texts: tl.ListOf[int, str] = tl.state(last=2)
    reals: tl.ListOf[float] = tl.state(last=3)


SPECS = spec_of(States()).states
NAMES = sorted(SPECS)
INTS = st.sampled_from([0, 1, 2, -1, 2**63 - 1, -(2**63)])
SCALARS: dict[str, Any] = {
    "int": INTS, "Time": INTS, "bool": st.booleans(), "str": st.sampled_from(["", "a", "é\0", "zz"]),
    "bytes": st.sampled_from([b"", b"a", b"\xff\0"]), "float": st.sampled_from([0.0, -0.0, 1.5, float("inf")]),
}  # fmt: skip


def values(kind: Any) -> st.SearchStrategy[Any]:
    """Values of a type."""
    if isinstance(kind, BoundedList):  # an empty one is not there
        return st.lists(values(kind.inner), min_size=1, max_size=kind.most).map(tuple)
    if hasattr(kind, "inner"):
        return st.none() | values(kind.inner)
    if hasattr(kind, "items"):
        make: Any = tuple if kind.cls is None else kind.cls._make
        return st.tuples(*(values(item) for item in kind.items)).map(make)
    found: st.SearchStrategy[Any] = SCALARS[kind.name]
    return found


def _table(spec: StateSpec, *, delta: bool) -> NativeTable:
    name = frozenset([spec.name])
    none: frozenset[str] = frozenset()
    work = PassProgram(
        "p", (spec.name,), name if delta else none, none if delta else name, none, (), {}, {}, none
    )
    return NativeTable(spec, layout_of(spec, work, final=False), Interned(["", b""]))


@pytest.mark.parametrize("name", ["point", "pair", "text", "real", "single"])
@settings(max_examples=deep(12), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_values_are_words_and_back(name: str, data: st.DataObject) -> None:
    """One by one, and as columns."""
    kind: ValueType | None = SPECS[name].value
    assert kind is not None
    interned = Interned(["", b""])
    found = data.draw(st.lists(values(kind), max_size=5))
    for value in found:
        assert repr(decode(encode(value, kind, interned), kind, interned)) == repr(value)
    column = value_array(kind, found)
    words = to_words(column, kind, interned)
    assert words.tolist() == [encode(v, kind, interned) for v in found]
    assert same(pa.table({"v": to_arrow(words, kind, interned)}), pa.table({"v": column}))


def _keys(spec: StateSpec) -> st.SearchStrategy[Any]:
    return st.just(()) if spec.key is None else values(spec.key)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=deep(12), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_an_exact_state_on_a_table(name: str, data: st.DataObject) -> None:
    """Puts, drops and reads, some undone, over some slices, from a loaded start: as over dicts."""
    spec = SPECS[name]
    kind = stored_type(spec)
    value: Any = st.just(True) if kind is None else values(kind)
    start = data.draw(st.dictionaries(_keys(spec), value, max_size=3))
    table = _table(spec, delta=False)
    table.load(state_table(spec, start.items()))
    ours: Journal = []
    theirs: Journal = []
    live = live_state(table, ours)
    tracked = TrackedStore(dict(start), theirs)
    for _ in range(4):
        table.begin()
        tracked.before = {}
        for _ in range(data.draw(st.integers(0, 4))):
            for key, new in data.draw(st.lists(st.tuples(_keys(spec), value | st.just(ABSENT)), max_size=3)):
                for store in (live, tracked):
                    put, drop = (store._put, store._drop) if store is live else (store.put, store.drop)
                    if new is ABSENT:
                        drop(key)
                    else:
                        put(key, new)
                assert repr(live._get(key, ABSENT)) == repr(tracked.get(key, ABSENT))
            if data.draw(st.booleans()):
                undo(ours)
                undo(theirs)
            ours.clear()
            theirs.clear()
        ((found, change),) = effects_of([[table]])
        expected, moved = changes_table(spec, tracked.before, tracked.data, ABSENT)
        assert same(found, expected)
        assert change == moved
        assert repr(sorted(table.present().items(), key=repr)) == repr(sorted(tracked.data.items(), key=repr))
        # What was undone need not count as written.
        assert {k: repr(v) for k, v in table.before().items()}.items() <= {
            k: repr(v) for k, v in tracked.before.items()
        }.items()


def test_rows_that_nobody_wrote_are_not_renewed() -> None:
    """In a table that lies in a file each row that is written anew is a page that the system writes."""
    spec = SPECS["number"]
    table = _table(spec, delta=False)
    table.load(state_table(spec, {1: 10, 2: 20}.items()))
    table.begin()
    base, none = table.hash.base, np.zeros(0, np.int64)
    written, other = (table.hash.find((key,), none, none.view(np.uint8)) for key in (1, 2))
    live_state(table, [])[1] = 11
    assert base[:, 1][[written, other]].tolist() == [10, 20]
    base[other, 1] = 99
    table.begin()
    assert table.hash.base is base
    assert base[:, 1][[written, other]].tolist() == [11, 99]


OPERATIONS = {
    "count": ["add", "set"], "total": ["add", "set"], "keys": ["set", "del"], "number": ["set", "del", "first", "add"],
    "text": ["set", "del", "first"], "real": ["up", "set", "del"], "point": ["set", "first", "del"], "pair": ["set", "first"],
    "single": ["down_always", "set"], "best": ["top", "del"], "least": ["bottom", "del"], "first": ["first"],
    "texts": ["append", "del"], "reals": ["append", "del"],
}  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=deep(12), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_a_delta_on_a_table(name: str, data: st.DataObject) -> None:
    """Effects, some undone: as a delta over dicts; also where a delta over dicts goes on from the table."""
    spec = SPECS[name]
    kind = stored_type(spec)
    value = None if kind is None else values(kind.inner if isinstance(kind, BoundedList) else kind)
    table = _table(spec, delta=True)
    ours: Journal = []
    theirs: Journal = []
    live = live_state(table, ours)
    delta: Any = spec.kind.delta(spec, theirs)
    for _ in range(data.draw(st.integers(0, 4))):
        for _ in range(data.draw(st.integers(0, 3))):
            effect = data.draw(st.sampled_from(OPERATIONS[name]))
            key = data.draw(_keys(spec))
            args = [] if effect == "del" or value is None else [data.draw(value)]
            for one in (live, delta):
                getattr(one, f"_e_{effect}")(key, *args)
        if data.draw(st.booleans()):
            undo(ours)
            undo(theirs)
        ours.clear()
        theirs.clear()
    expected = effect_table(delta)
    assert same(effects_of([[table]])[0][0], expected)
    other = spec.kind.delta(spec, None)
    fill(other, table)
    assert same(effect_table(other), expected)


def test_the_undo_log_is_kept_where_something_may_leave_after_a_write() -> None:
    """Not after the last exit, unless a loop leads back to it."""
    save = "u = save(undo, u, 0, t0, r1, 2, 1)"

    def kept(text: str) -> list[str]:
        return printed(without_idle_saves(nodes(text)), 0)

    body = f"a = 1\n{save}\nif a:\n    return 1\n{save}\nb = 2"
    assert kept(body) == [*printed(nodes(body), 0)[:4], "b = 2"]
    loop = f"for i in range(9):\n    if i:\n        return 1\n    {save}\n{save}"
    assert kept(loop) == printed(nodes(loop), 0)[:4]
    assert kept(save) == []
    rejecting = [*nodes(save), Break(rejects=True)]
    assert without_idle_saves(rejecting) == rejecting
