"""Questions while machine code is missing: what they go through as Python is bounded."""

from __future__ import annotations

from typing import Any

import pytest

import timelapse as tl
from tests.native.fuzz.emulate import emulated
from tests.trace.programs import Antispam, Friendship, Message
from tests.trace.test_event import messages
from timelapse.analysis import analyse, build_pass, final_pass
from timelapse.kernels import choose
from timelapse.kernels.native import build
from timelapse.kernels.tuning import USUAL, KernelTuning
from timelapse.kernels.walk import Moment, slower_start
from timelapse.log import MemoryLog
from timelapse.run import replay
from timelapse.trace import moments
from timelapse.trace.moments import Past


def test_the_compiler_is_waited_for_once_much_ran_as_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """A question that goes the same way again and again would else take as many times as long."""
    run = replay(Antispam, MemoryLog(messages(120, seed=2), [Message, Friendship]), slices=1, spark=False)
    compiled: list[bool] = []
    kernel = choose.SliceKernel.__init__

    def watched(self: choose.SliceKernel, *args: object, **given: object) -> None:
        kernel(self, *args, **given)  # type: ignore[arg-type]
        compiled.append(self.compiled)

    monkeypatch.setattr(choose.SliceKernel, "__init__", watched)
    monkeypatch.setattr(build, "_get", lambda text, *, compile_it: emulated(text) if compile_it else None)
    tuning = KernelTuning(flat_events=20, warm_events=40, cold_events=3 * 250)
    past, found = Past(run.with_tuning(tuning)), list[object]()

    def visit(moment: Moment) -> bool:
        found.append(moment.value("total", ()))
        return False

    for _ in range(4):
        past.walk(0, [120], visit)
    assert compiled == [False, False, True, True]
    assert len(set(map(repr, found))) == 1


def test_few_events_that_take_long_begin_again_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """An event may send thousands: their number does not tell whether the compiler is worth waiting for."""
    log = MemoryLog(messages(120, seed=2), [Message, Friendship])
    run = replay(Antispam, log, slices=1, spark=False)
    asked, found = list(range(0, 121, 5)), dict[bool, list[Any]]()
    kernel = choose.SliceKernel.__init__
    for slowly in (False, True):
        compiled: list[bool] = []

        def watched(self: choose.SliceKernel, *args: object, **given: object) -> None:
            kernel(self, *args, **given)  # type: ignore[arg-type]
            compiled.append(self.compiled)  # noqa: B023

        own: list[tuple[int, Any]] = []

        def visit(moment: Moment) -> bool:
            own.append((moment.seq, repr(moment.value("total", ()))))  # noqa: B023
            return False

        with monkeypatch.context() as patch:
            patch.setattr(choose.SliceKernel, "__init__", watched)
            patch.setattr(build, "_get", lambda text, *, compile_it: emulated(text) if compile_it else None)
            if slowly:
                patch.setattr(moments, "_PATIENCE", 0.0)
                patch.setattr(moments, "_COMPILER", 0.0)
            Past(run).walk(0, asked, visit)
        assert compiled == ([False, True] if slowly else [False])
        found[slowly] = own[-len(asked) :]
    assert found[True] == found[False]
    assert [seq for seq, _ in found[True]] == asked


class Cheap(tl.Record):
    what: int
    price: float | None


class Priced(tl.Event):
    what: int
    price: float


class Cheapest(tl.Program):
    lowest: tl.Min[int, float | None]

    @tl.on(Priced)
    def see(self, e: Priced) -> None:
        self.emit(Cheap(what=e.what, price=self.lowest.last(5)[e.what]))
        self.lowest.add(e.what, e.price)


def test_the_whole_program_is_waited_for_where_a_part_of_it_does_not_compile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of a window that nobody asks for the rows are found as Python: the serial loop would be all that is left."""
    program = Cheapest()
    whole = final_pass(analyse(program))
    cut = build_pass(analyse(program), "look", ["lowest"], ())
    assert not choose.choice(program, cut, final=False).compiled
    monkeypatch.setattr(build, "_get", lambda text, *, compile_it: None)
    assert slower_start(program, cut, whole, 10 * USUAL.cold_events)


def test_the_whole_program_is_not_lowered_where_a_part_of_it_is_taken_anyway(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    program, finals = Antispam(), list[bool]()
    whole, cut = final_pass(analyse(program)), build_pass(analyse(program), "look", ["total"], ())
    choice = choose.choice

    def watched(*args: Any, final: bool) -> choose.Choice:
        finals.append(final)
        return choice(*args, final=final)

    monkeypatch.setattr(choose, "choice", watched)
    assert not slower_start(program, cut, whole, 2_000_000)
    assert finals == [False]
