"""Compiled passes return what interpreted ones return, to the last bit."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import timelapse as tl
from tests.depth import deep
from tests.native.oracle import INTS, compare, logs, passes
from tests.native.programs import A, B, Failing, Mixed, Note, Overflowing
from tests.native.state_programs import Compound, Filtered, Folds, Kinds, Leaving, Refusing, Rejecting
from timelapse.kernels.choose import choice
from timelapse.kernels.tuning import KernelTuning, NativeTuning
from timelapse.model.events import Event

PROGRAMS = [Mixed, Failing, Overflowing, Kinds, Folds, Compound, Rejecting, Leaving, Filtered, Refusing]
CUTS = st.lists(st.integers(0, 25), max_size=3).map(lambda c: sorted([0, *c, 25]))


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
@settings(max_examples=deep(12), deadline=None)
@given(events=logs(), cuts=CUTS)
def test_compiled_equals_interpreted(program: type[tl.Program], events: list[Event], cuts: list[int]) -> None:
    """Effects, changes, outputs, failures and progress, over consecutive slices with few keys."""
    with pytest.MonkeyPatch.context() as patch:
        compare(program, events, cuts, patch)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
@settings(max_examples=deep(8), deadline=None)
@given(events=logs(INTS), cuts=CUTS)
def test_compiled_equals_interpreted_at_the_edges(
    program: type[tl.Program], events: list[Event], cuts: list[int]
) -> None:
    """The same with integers at the limits, where slices go back to Python."""
    with pytest.MonkeyPatch.context() as patch:
        compare(program, events, cuts, patch)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_the_programs_of_these_tests_compile(program: type[tl.Program]) -> None:
    """All their passes: the comparisons above are not of Python with itself."""
    for work, final in passes(program):
        assert choice(program(), work, final=final).reason == ""


def test_small_values_run_compiled_to_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing falls back without need."""
    events: list[Event] = [
        A(i % 3, i % 4, "ab"[i % 2], i % 2 == 0, 0.5, b"x", i, ts=i) if i % 3 else B(i % 3, "a", ts=i)
        for i in range(200)
    ]
    assert compare(Mixed, events, [0, 50, 120, 200], monkeypatch) == len(passes(Mixed))


def test_tables_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many keys, more events than one call of the compiled function takes, state kept over slices."""
    tuning = KernelTuning(native=NativeTuning(piece_events=3_000))
    events: list[Event] = [
        A(i * 2654435761 % 100003, i % 4, f"w{i % 5003}", i % 2 == 0, 0.5, b"x", i, ts=i)
        for i in range(9_000)
    ]
    assert compare(Mixed, events, [0, 7_000, 9_000], monkeypatch, tuning) == len(passes(Mixed))


def test_an_event_that_leaves_int64_on_the_way_runs_in_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """And compiled code goes on after it, in this slice and the next."""
    events: list[Event] = [A(1, v, "a", True, 0.0, b"", 0, ts=i) for i, v in enumerate([1, 1, 8, 1, 0, 3])]
    assert compare(Overflowing, events, [0, 2, 4, 6], monkeypatch) == len(passes(Overflowing))


@pytest.mark.parametrize("program", [Leaving, Overflowing], ids=lambda p: p.__name__)
def test_many_events_that_leave_hand_the_rest_to_python(
    program: type[tl.Program], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the middle of a slice, with what was done so far, and what was there at its start."""
    events: list[Event] = [
        A(i % 3, 1 if i < 200 else i % 50, "ab"[i % 2], i % 2 == 0, 0.5, b"x", i, ts=i)
        if i % 3
        else B(i % 3, "a", ts=i)
        for i in range(700)
    ]
    assert compare(program, events, [0, 50, 400, 700], monkeypatch) < len(passes(program))


class Unsupported(tl.Program):
    best: tl.Max[int, str] = tl.state(default="")

    @tl.on(A)
    def go(self, e: A) -> None:
        self.best.add(e.k, e.s)
        self.emit(Note(n=e.k, s=e.s.upper()))


def test_what_is_not_compiled_says_why() -> None:
    """The handler and the reason; and it runs as Python."""
    work, _ = passes(Unsupported)[-1]
    found = choice(Unsupported(), work, final=True)
    assert not found.compiled
    assert found.reason == "go: the order of str (best)"
