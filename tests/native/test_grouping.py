"""States that are used under the same keys share a table, and stay what each would be in a table of its own."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import timelapse as tl
from tests.depth import deep
from tests.native.oracle import INTS, compare, logs, passes
from tests.native.programs import A, B, Note
from timelapse.analysis import PassProgram, analyse, final_pass
from timelapse.kernels.native.lowering.lower import lowered
from timelapse.kernels.native.memory.hashtable import HashTable
from timelapse.kernels.native.memory.layout import Layout, beside
from timelapse.model.events import Event
from timelapse.model.types import INT, TupleType
from timelapse.program.program import as_program


class Together(tl.Program):
    """Six states by `e.k`, two by `e.s`, two without a key, one by another key, one of another key type."""

    seen: tl.Set[int]
    n: tl.Counter[int]
    m: tl.Counter[int]
    last: tl.Value[int, float] = tl.state(default=-0.0)
    best: tl.Max[int, int] = tl.state(default=1)
    once: tl.First[int, bool] = tl.state(default=True)
    words: tl.Counter[str]
    longest: tl.Max[str, int] = tl.state(default=0)
    total: tl.Counter
    high: tl.Max[int] = tl.state(default=0)
    other: tl.Counter[int]
    flags: tl.Counter[bool]

    @tl.on(A)
    def count(self, e: A) -> None:
        if e.b:
            self.n[e.k] += e.v
            if e.k in self.seen and e.v == 2:
                self.seen.discard(e.k)
        else:
            self.m[e.k] += 1
            self.seen.add(e.k)
            self.last[e.k] = e.x
        self.best.add(e.k, e.v)
        self.once.add(e.k, e.b)
        self.words[e.s] += 1
        self.longest.add(e.s, self.words[e.s])
        self.total += 1
        self.high.add(e.v)
        self.other[e.v] += 1
        self.flags[e.b] += 1
        if self.m[e.k] > 2 and e.v == 1:
            del self.n[e.k]
            self.reject("often")
        if self.n[e.k] > 5:
            self.last.pop(e.k)
        self.emit(Note(n=self.n[e.k] - self.m[e.k] + self.best[e.k], s=e.s))

    @tl.on(B)
    def look(self, e: B) -> None:
        if e.k in self.seen or self.once[e.k]:
            self.emit(Note(n=self.total + self.high.get(), s=e.s))
        del self.m[e.k]


class Scans(tl.Program):
    """States that depend on nothing, of every form of delta."""

    seen: tl.Set[int]
    n: tl.Counter[int]
    best: tl.Max[int, float] = tl.state(default=0.0)

    @tl.on(A)
    def count(self, e: A) -> None:
        self.n[e.k] += e.v
        if e.x == e.x:
            self.best.add(e.k, e.x)
        if e.b:
            self.seen.add(e.k)
        if e.v == 2:
            self.seen.discard(e.k)
            del self.n[e.k]

    @tl.on(B)
    def look(self, e: B) -> None:
        if e.k in self.seen:
            self.emit(Note(n=self.n[e.k], s=str(self.best[e.k] > 0.0)))


CUTS = st.lists(st.integers(0, 25), max_size=3).map(lambda c: sorted([0, *c, 25]))


@pytest.mark.parametrize("program", [Together, Scans])
@settings(max_examples=deep(10), deadline=None)
@given(events=logs() | logs(INTS), cuts=CUTS)
def test_compiled_equals_interpreted(program: type[tl.Program], events: list[Event], cuts: list[int]) -> None:
    """Every pass, over consecutive slices, from loaded starts and from such as are taken over key by key."""
    with pytest.MonkeyPatch.context() as patch:
        compare(program, events, cuts, patch)


def _tables(program: type[tl.Program], work: PassProgram, *, final: bool) -> list[set[str]]:
    unit = lowered(as_program(program), work, final=final)
    return [set(names) for names in unit.tables]


def test_which_states_share_a_table() -> None:
    """Those of the same keys in every event, as many as fit into a line of the processor's caches."""
    found = _tables(Together, final_pass(analyse(Together)), final=True)
    assert {"words", "longest"} in found
    assert {"total", "high"} in found
    assert {"other"} in found
    assert {"flags"} in found
    assert sorted(len(t) for t in found) == [1, 1, 2, 2, 6]


def test_passes_that_collect_effects_share_too() -> None:
    """A scan's set, counter and maximum, by their deltas."""
    found = [_tables(Scans, work, final=False) for work, final in passes(Scans) if work.delta and not final]
    assert found == [[{"seen", "n", "best"}]]


class Apart(tl.Program):
    """Under the same key in one event, under different ones in another; the same key type, never in one event."""

    one: tl.Counter[int]
    two: tl.Counter[int]
    three: tl.Counter[int]

    @tl.on(A)
    def both(self, e: A) -> None:
        self.one[e.k] += 1
        self.two[e.k] += self.one[e.k] % 3

    @tl.on(B)
    def apart(self, e: B) -> None:
        self.two[e.k + 1] += 1
        self.three[e.k] += 1
        self.emit(Note(n=self.one[e.k] + self.two[e.k], s=e.s))


def test_states_of_different_keys_do_not_share() -> None:
    found = _tables(Apart, final_pass(analyse(Apart)), final=True)
    assert {"two"} in found
    assert {"one", "three"} in found


def test_a_row_is_no_longer_than_a_line() -> None:
    one = Layout(1, INT, "exact", tracked=True)
    six = beside([one] * 6)
    assert six is not None
    assert [layout.place for layout in six] == [2, 3, 4, 5, 6, 7]
    assert len({flag for layout in six for flag in (layout.present, layout.touched)}) == 12
    assert HashTable(six).slots.shape[1] == 8
    assert beside([one] * 7) is None
    assert beside([one, Layout(2, INT, "exact", tracked=True)]) is None
    assert beside([one, Layout(1, INT, "count", tracked=False)]) is None
    assert beside([one, Layout(1, TupleType((INT,) * 6, ("",) * 6), "exact", tracked=True)]) is None
    assert beside([one, Layout(1, INT, "exact", tracked=False)]) is None
