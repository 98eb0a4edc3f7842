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
from tests.depth import deep
from tests.native.programs import A, Note
from timelapse.analysis import analyse, final_pass
from timelapse.engine.executor import LocalExecutor
from timelapse.kernels.native.memory import touch
from timelapse.kernels.native.memory.layout import Layout, can_be_mapped, layout_of
from timelapse.kernels.native.memory.strings import Interned
from timelapse.kernels.native.memory.table import NativeTable
from timelapse.kernels.native.memory.touch import Mapped, MappedRows, fetchable, take, text_hash
from timelapse.kernels.native.views import live_state
from timelapse.kinds.base import ABSENT, StateOptions, StateSpec
from timelapse.log import MemoryLog
from timelapse.model.types import INT, OptionalType
from timelapse.program.program import spec_of
from timelapse.run import replay, run_serial
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
    (spec(tl.Value, int, int | None), lambda k: k, lambda v: None if v % 3 else v, lambda v: [0, 0] if v is None else [1, v]),
    (spec(tl.Value, int, tuple[bool, float | None], default=(False, None)), lambda k: -k,
     lambda v: (v % 2 == 0, None if v % 3 else 0.5), lambda v: [int(v[0]), *([0, 0] if v[1] is None else [1, bits(v[1])])]),
]  # fmt: skip


def words(parts: tuple[Any, ...], pool: Interned) -> list[int]:
    return [pool.code(p) if isinstance(p, str | bytes) else int(p) for p in parts]


@pytest.mark.parametrize("clash", [False, True])
@pytest.mark.parametrize("kind", range(len(KINDS)))
@settings(max_examples=deep(12))
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
    assert fetchable(made, own.value)
    width, pool = len(key_names(own)), Interned(["", b""])
    layout = Layout(width, own.value, "exact", tracked=True)
    together = MappedRows([(made, layout)])
    for k in range(45):
        key = key_of(k)
        parts = key if isinstance(key, tuple) else (key,)
        row = np.zeros((3, 1 + width + 3), np.int64)
        base = np.zeros((3 if k % 2 else 0, 4), np.int64)
        row[1, 1 : 1 + width] = words(parts, pool)
        before = row.copy()
        found = take(together.strings(*pool.buffers), row, base, np.uint64(1), width)
        if key in state and not (clash and key_hash(parts) < 2**63):
            expected = words_of(state[key])
            before[1, 0] = 3
            if k % 2:
                assert base[1].tolist() == [2, *expected, *[0] * (3 - len(expected))]
            before[1, 1 + width : 1 + width + len(expected)] = expected
            assert found == 1
        else:
            assert found == 0
            assert not base.any()
        assert row.tolist() == before.tolist()


@pytest.mark.parametrize("kind", range(len(KINDS)))
def test_nothing_is_read_of_tables_without_rows(kind: int) -> None:
    """They describe no columns: whatever lies behind their words in memory would be taken for it."""
    own = KINDS[kind][0]
    width, some = len(key_names(own)), KINDS[kind][1](1)
    full, empty = state_table(own, [(some, KINDS[kind][2](1))]), state_table(own, [])
    layout = Layout(width, own.value, "exact", tracked=True)
    assert MappedRows([(empty, layout)]).words.tolist() == [0]
    alone = MappedRows([(full, layout)]).words
    assert len(MappedRows([(empty, layout), (full, layout)]).words) == len(alone)
    pool = Interned(["", b""])
    words_after = np.full(64, touch.TEXT, np.int64)  # what lies behind: as of a table of texts
    words_after[:1] = MappedRows([(empty, layout)]).strings(*pool.buffers)
    row, base = np.full((1, 1 + width + 3), -(2**60)), np.zeros((0, 4), np.int64)
    row[0, 0] = 0
    assert take(words_after, row, base, np.uint64(0), width) == 0


@given(st.text(st.characters(codec="utf-8"), max_size=30))
def test_the_hash_of_a_text(text: str) -> None:
    """As the rows of tables are hashed, wherever the bytes lie."""
    raw = np.frombuffer(b"x" + text.encode(), np.uint8)
    column = row_hashes([pa.array([text], pa.large_string())], 1, 0, 0)
    from timelapse.tables.loops import STEP, mixed
    from timelapse.tables.rowhash import LANE_SALTS

    found = np.array([text_hash(raw.ctypes.data + 1, len(raw) - 1, LANE_SALTS[0])], np.uint64)
    with np.errstate(over="ignore"):
        first = np.array([LANE_SALTS[0]], np.uint64)
        assert mixed(first * STEP + found).tolist() == column.tolist()


def test_which_tables_can_be_mapped() -> None:
    """Not those with values that are strings, or without keys; a null must mean None, or a key that is gone."""

    def mapped(own: StateSpec) -> bool:
        return can_be_mapped(own, Layout(1, own.value, "exact", tracked=True))

    assert not mapped(spec(tl.Value, int, str, default=""))
    assert not mapped(spec(tl.Value, int, tuple[int, str], default=(0, "")))
    assert mapped(spec(tl.Value, int, tuple[int, int | None], default=(0, 0)))
    assert mapped(spec(tl.Value, int, int | None))
    assert not mapped(spec(tl.Counter))
    assert not fetchable(state_table(spec(tl.Counter), [((), 1)]), INT)
    assert fetchable(state_table(spec(tl.Set, int), [(1, True)]), None)
    holes = pa.table({"h": pa.array([1], pa.uint64()), "k0": [1], "v": pa.array([None], pa.int64())})
    assert not fetchable(holes, INT)
    assert fetchable(holes, OptionalType(INT))
    assert fetchable(holes.append_column("present", pa.array([False])), INT)


class Busy(tl.Program):
    """States that are mapped (integers and strings as keys), and one that is not (a string as value)."""

    pairs: tl.Set[tuple[int, str]]
    n: tl.Counter[int]
    best: tl.Max[str, float] = tl.state(default=0.0)
    last: tl.Value[int, str] = tl.state(default="")

    @tl.on(A)
    def go(self, e: A) -> None:
        if (e.k, e.s) in self.pairs:
            self.pairs.discard((e.k, e.s))
        else:
            self.pairs.add((e.v, e.s))
        self.n[e.k] += self.n[e.v] % 5 + 1
        self.best.add(e.s, e.x)
        if self.best["a"] > 0.5 and e.k == 2 and self.last[e.v] != e.s:
            self.reject("again")
        self.last[e.k] = e.s
        self.emit(Note(n=self.n[e.v], s=self.last[e.v]))


@pytest.mark.parametrize("cores", [1, 2])
def test_a_chain_that_goes_on_from_files(monkeypatch: pytest.MonkeyPatch, cores: int) -> None:
    """Compiled, with hardly any memory, also with events decoded ahead: as the serial meaning."""
    events: list[tl.Event] = [
        A(i * i % 7, i % 5, "abcd"[i % 3] * (i % 4), True, i % 4, b"", 0, ts=i) for i in range(300)
    ]
    monkeypatch.setenv("TIMELAPSE_KERNEL", "native")
    monkeypatch.setenv("TIMELAPSE_MEMORY", "1")
    mapped: list[int] = []
    made = Mapped.__init__

    def counted(own: Mapped, table: pa.Table, *rest: Any) -> None:
        mapped.append(table.num_rows)
        made(own, table, *rest)

    monkeypatch.setattr(Mapped, "__init__", counted)
    monkeypatch.setattr(LocalExecutor, "threads", cores)
    log = MemoryLog(events, [A])
    run = replay(Busy, log, slices=6, spark=False, strategy="chain")
    assert 5 < len(mapped) < 5 * 3  # a level that stays is indexed once
    assert max(mapped) > 3
    reference = run_serial(Busy, log)
    assert (run.digest, run.state_digest) == (reference.digest, reference.state_digest)
    assert run.verify().ok
    assert run.table(Note).num_rows > 0
    assert run.rejected.num_rows > 0


@pytest.mark.parametrize("room", [None, 0, 8 << 12])
def test_keys_are_found_however_few_entries_an_index_has(room: int | None) -> None:
    """Also where some hundred rows share one, in pieces of any size, and where hashes are not spread evenly."""
    own = KINDS[0][0]
    for step in (1, 97):
        state = {step * k: k + 1 for k in range(5000)}
        made = state_table(own, state.items())
        if step > 1:  # most of them in one corner
            h = np.sort(np.asarray(made.column("h")) % np.uint64(2**59))
            h[-9:] |= np.uint64(2**63)
            made = made.set_column(0, "h", pa.array(h))
        pieces = [made.slice(a, b - a) for a, b in pairwise([0, 1, 700, 701, 4000, 5000])]
        mapped = touch.Mapped(pa.concat_tables(pieces), 1, own.value, room)
        assert len(mapped.index) <= (2**8 if room == 0 else 2**12) + 1
        wide = np.asarray(made.column("h"))
        wanted = [*wide.tolist(), *(int(h) + 1 for h in wide[::7] if h + np.uint64(1) not in wide)]
        known = set(wide.tolist())
        for h in wanted:
            row = np.zeros((1, 4), np.int64)
            row[0, 1] = (
                made.column("k0")[int(np.searchsorted(wide, np.uint64(h)))].as_py() if h in known else 0
            )
            found = touch._take(mapped.words, row, np.zeros((0, 0), np.int64), 0, 1, np.uint64(h), 2, 2)
            assert found == (1 if h in known else 0)


def test_a_mapped_table_as_python_sees_it() -> None:
    """Single keys, before and after all keys get rows; what was changed or removed in between stays so."""
    own = spec_of(Busy()).states["n"]
    made = NativeTable(own, layout_of(own, final_pass(analyse(Busy)), final=True), Interned())
    made.load(state_table(own, [(k, k + 1) for k in range(3000)]), key_by_key=True)
    assert made.mapped
    store: Any = live_state(made, None)
    assert (store[5], store[7], store[9999], made.rows) == (6, 8, 0, 2)
    store[7] += 10
    store[9999] = 3
    del store[11]
    assert made.rows == 4
    expected = {k: k + 1 for k in range(3000)} | {7: 18, 9999: 3}
    del expected[11]
    assert made.before() == {7: 8, 9999: ABSENT, 11: 12}
    assert made.present() == expected
    assert (made.mapped, made.rows, store[12], store[11]) == (False, 3001, 13, 0)
    assert made.before() == {7: 8, 9999: ABSENT, 11: 12}
