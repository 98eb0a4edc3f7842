"""The contract of a store (kinds.base.Store), for every store that there is."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

import timelapse
import timelapse as tl
from timelapse.analysis.result import PassProgram
from timelapse.errors import UsageError
from timelapse.kernels.iterate.tracer import TracedStore, Untraceable
from timelapse.kernels.native.looking import _Noting
from timelapse.kernels.native.memory.layout import layout_of
from timelapse.kernels.native.memory.strings import Interned
from timelapse.kernels.native.memory.table import NativeTable
from timelapse.kernels.native.views import Foreign, NativeStore, OwnStore, Turn, _GroupedStore
from timelapse.kernels.python.rowlog import PythonLog
from timelapse.kernels.python.stores import NullStore, PlainStore, TrackedStore
from timelapse.kernels.python.windows import LoggedStore
from timelapse.kernels.takeout.noted import NotedStore, WideStore
from timelapse.kernels.takeout.steplog import NotedLoop
from timelapse.kinds import past
from timelapse.kinds.base import ABSENT, Store
from timelapse.kinds.effects import Journal, undo
from timelapse.program.program import spec_of
from timelapse.serial import DictStore
from timelapse.tables.effectlog import PRESENT
from timelapse.trace import focus, views
from timelapse.trace.focus import Unfocused


class Any_(tl.Event):
    k: int


class Out(tl.Record):
    k: int


class P(tl.Program):
    x: tl.Value[int, int | None]
    pairs: tl.SetOf[int, int]

    @tl.on(Any_)
    def go(self, e: Any_) -> None:
        self.x[e.k] = 1
        self.pairs.add(e.k, 1)


SPEC = spec_of(P).states["x"]


def _table() -> NativeTable:
    names = frozenset({"x"})
    work = PassProgram("p", ("x",), frozenset(), names, frozenset(), (), {}, {}, frozenset())
    return NativeTable(SPEC, layout_of(SPEC, work, final=False), Interned(["", b""]))


def _own(journal: Journal) -> OwnStore:
    turn = Turn()
    turn.key = 1
    return OwnStore(NativeStore(_table(), journal), turn, None)


def _logged(journal: Journal) -> LoggedStore:
    log = PythonLog(SPEC, PRESENT, journal, None)
    log.live = {"now": 0}
    return LoggedStore(TrackedStore({}, journal), log)


def _noted(journal: Journal) -> NotedStore:
    return NotedStore(NotedLoop(P(), None), SPEC, journal)


def _wide(journal: Journal) -> WideStore:
    return WideStore(NotedLoop(P(), None), SPEC, journal)


UNDONE: dict[type, Callable[[Journal], Store]] = {
    DictStore: DictStore,
    NotedStore: _noted,
    WideStore: _wide,
    TrackedStore: lambda journal: TrackedStore({}, journal),
    LoggedStore: _logged,
    NativeStore: lambda journal: NativeStore(_table(), journal),
    OwnStore: _own,
    _GroupedStore: lambda journal: _GroupedStore(_table(), None, None, journal),
    focus._Store: lambda journal: focus._Store("x", journal, []),
    TracedStore: lambda journal: TracedStore(SPEC, lambda key: ABSENT),
    PlainStore: lambda journal: PlainStore({}),
    past._Plain: lambda journal: past._Plain({}),
    views._Kept: lambda journal: views._Kept(),
}
"""Stores that keep what is put in."""
JOURNALLED: set[type] = {
    DictStore,
    NotedStore,
    TrackedStore,
    LoggedStore,
    NativeStore,
    OwnStore,
    _GroupedStore,
    focus._Store,
}
"""Those whose writes can be undone; the others are made anew for each event, or nothing is ever undone there."""
REFUSED: tuple[type[BaseException], ...] = (Foreign, Unfocused, Untraceable, TypeError, UsageError)
"""What says that a kernel is no good for what is asked."""
INDEXED: set[type] = {DictStore, TrackedStore, LoggedStore, PlainStore, past._Plain}
"""Stores under kinds that keep an index."""


def test_every_store_is_tested_here() -> None:
    """What has `put` and `drop` in the code is a store; each offers all operations, with the contract's arguments."""
    found = set()
    for path in Path(timelapse.__file__).parent.rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(text if "put" in text and "drop" in text else "")):
            writes_code = ("Rows", "StateCode")
            if isinstance(node, ast.ClassDef) and node.name not in ("Store", *writes_code):
                methods = {n.name for n in node.body if isinstance(n, ast.FunctionDef)}
                fields = {
                    n.attr
                    for n in ast.walk(node)
                    if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store)
                }
                if {"put", "drop"} <= methods | fields:
                    found.add(node.name)
    inherit = {NotedStore, WideStore}
    assert found == {cls.__name__ for cls in {*UNDONE, NullStore, past.ReadOnly, _Noting} - inherit}


def _store(cls: type) -> tuple[Any, Journal]:
    journal: Journal = []
    return UNDONE[cls](journal), journal


@pytest.mark.parametrize("cls", [*UNDONE, NullStore, past.ReadOnly], ids=lambda c: c.__name__)
def test_all_that_the_contract_names_is_there(cls: type) -> None:
    if cls is NullStore:
        store: Any = NullStore()
    elif cls is past.ReadOnly:
        store = past.ReadOnly({}.get, {}.items)
    else:
        store, _ = _store(cls)
    for name in ("get", "put", "drop", "items", "side"):
        wanted = len(inspect.signature(getattr(Store, name)).parameters) - 1
        try:
            given = inspect.signature(getattr(store, name))
        except ValueError:  # a method of dict
            continue
        given.bind(*range(wanted))
    assert issubclass(_Noting, NativeStore)  # it adds to what that does


@pytest.mark.parametrize("cls", [c for c in UNDONE if c is not _GroupedStore], ids=lambda c: c.__name__)
def test_keys_hold_what_was_put_in(cls: type) -> None:
    store, _ = _store(cls)
    assert store.get(1, "none") == "none"
    store.drop(1)
    store.put(1, 5)
    assert store.get(1, "none") == 5
    store.put(1, 7)
    assert store.get(1, "none") == 7
    _refusable(lambda: _equal(dict(store.items()), {1: 7}))
    store.drop(1)
    assert store.get(1, ABSENT) is ABSENT
    store.put(1, None)
    assert store.get(1, "none") is None


@pytest.mark.parametrize(
    "cls", [c for c in UNDONE if c in JOURNALLED - {_GroupedStore}], ids=lambda c: c.__name__
)
def test_writes_are_undone_together(cls: type) -> None:
    store, journal = _store(cls)
    beside: dict[Any, Any] = {"a": 1}
    store.put(1, 5)
    journal.clear()
    store.put(1, 6)
    _refusable(lambda: store.side(beside, "a", ABSENT))
    store.drop(1)
    _refusable(lambda: store.side(beside, "b", 2))
    undo(journal)
    assert store.get(1, ABSENT) == 5
    assert beside == {"a": 1}


@pytest.mark.parametrize("cls", [c for c in UNDONE if c in INDEXED], ids=lambda c: c.__name__)
def test_an_index_is_kept_beside(cls: type) -> None:
    store, _ = _store(cls)
    beside: dict[Any, Any] = {}
    store.side(beside, "a", 1)
    assert beside == {"a": 1}
    store.side(beside, "a", ABSENT)
    store.side(beside, "a", ABSENT)
    assert beside == {}


def _equal(one: object, other: object) -> None:
    assert one == other


def _refusable(ask: Callable[[], Iterable[Any] | None]) -> None:
    try:
        ask()
    except REFUSED as refusal:
        assert not isinstance(refusal, AttributeError)
