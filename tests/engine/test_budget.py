"""Loops that only a wrong start state makes endless: passes that run ahead give up, and the result is exact."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import timelapse as tl
from tests.engine.programs import A, B, Out
from tests.engine.test_validation import planted
from tests.patience import LONG
from timelapse.analysis.result import PassProgram
from timelapse.engine.driver import Driver
from timelapse.errors import HandlerError
from timelapse.kernels import budget
from timelapse.log import MemoryLog
from timelapse.run import replay, run_serial

KERNELS = pytest.mark.parametrize("kernel", ["python", "native"])


class Endless(tl.Program):
    """From a total above 100 on `steps` never ends; serially `check` raises before."""

    total: tl.Counter
    steps: tl.Counter[int]

    @tl.on(A)
    def add(self, e: A) -> None:
        self.total += e.v

    @tl.on(A)
    def check(self, e: A) -> None:
        if self.total > 100:  # type: ignore[operator]
            raise ValueError("too much")

    @tl.on(A)
    def step(self, e: A) -> None:
        gap = 100 - self.total  # type: ignore[operator]
        while gap != 0:
            gap -= 1
            self.steps[e.k] += 1
        self.emit(Out(k=e.k, v=self.steps[e.k]))


def events(*values: int) -> MemoryLog:
    return MemoryLog([A(k=i % 2, v=v, s="", ts=i) for i, v in enumerate(values)], [A, B])


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "SECONDS", 0.2)
    monkeypatch.setattr(budget, "ROUNDS", 5000)


@KERNELS
def test_an_event_after_the_one_that_fails_does_not_keep_the_run_waiting(
    kernel: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIMELAPSE_KERNEL", kernel)
    log = events(10, 20, 80, -50, 200, 1, 1)
    with pytest.raises(HandlerError, match="too much") as serial:
        run_serial(Endless, log)
    for slices in (2, 3):
        with pytest.raises(HandlerError, match="too much") as sliced:
            replay(Endless, log, slices=slices, spark=False, strategy="staged")
        assert str(sliced.value) == str(serial.value)


class Down(tl.Program):
    """Counts down from the total, which is never negative."""

    total: tl.Counter

    @tl.on(A)
    def add(self, e: A) -> None:
        self.total += e.v

    @tl.on(A)
    def down(self, e: A) -> None:
        left: Any = self.total
        rounds = 0
        while left != 0:
            left -= 1
            rounds += 1
        self.emit(Out(k=e.k, v=rounds))


def _subtract_twice(work: PassProgram) -> PassProgram:
    def add(self: Any, e: A) -> None:
        self.total._e_add((), e.v if e.v > 0 else 2 * e.v)

    function: Any = add
    handlers = tuple(
        dataclasses.replace(h, function=function) if h.name == "add" else h for h in work.handlers
    )
    return dataclasses.replace(work, handlers=handlers)


def test_a_wrong_prediction_that_makes_a_loop_endless_is_replaced(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The pass subtracts twice: the third slice would begin below zero."""
    monkeypatch.setenv("TIMELAPSE_KERNEL", "python")
    log = events(10, 80, -50, 5, -30, 20, 5, -3)
    serial = run_serial(Down, log)
    run = planted(Down(), log, 4, _subtract_twice, tmp_path / "run")
    assert run.digest == serial.digest
    assert run.state_digest == serial.state_digest
    assert run.certificate["fallback"]["is_bug"]


@KERNELS
def test_an_event_that_takes_long_by_right_runs_again_without_a_budget(
    kernel: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIMELAPSE_KERNEL", kernel)
    monkeypatch.setattr(budget, "SECONDS", 0.001)
    monkeypatch.setattr(budget, "ROUNDS", 50)
    # Slice 1 begins before slice 0 is judged, however quick that is: else its start is exact, and it has no budget.
    monkeypatch.setattr(Driver, "_look", lambda self: True)
    log = events(99, 0, 0, -200_000 if kernel == "python" else -100, 0, 0)
    run = replay(Endless, log, slices=3, spark=False, strategy="staged")
    assert run.digest == run_serial(Endless, log).digest
    found = run.certificate["fallback"]
    assert "spent its budget" in found["reason"]
    assert not found["is_bug"]


@pytest.mark.parametrize("catch", [Exception, BaseException])
def test_what_spends_it_is_interrupted_whatever_it_catches(catch: type[BaseException]) -> None:
    began = time.thread_time()

    def call() -> None:
        while time.thread_time() - began < 30:
            try:
                sum(range(100))
            except catch:
                if time.thread_time() - began > 20:
                    raise AssertionError("it cannot be interrupted") from None

    with pytest.raises(budget.Spent):
        budget.within(0.05, lambda: 1, call)
    assert not _watching()


def test_turns_that_change_or_rest_are_left_alone() -> None:
    turn: list[object] = [0]

    def call() -> str:
        end = time.thread_time() + 0.4
        while time.thread_time() < end:
            turn[0] = time.thread_time()
        turn[0] = None
        end = time.thread_time() + 0.2
        while time.thread_time() < end:
            pass
        turn[0] = "waiting costs no processor time"
        time.sleep(0.2)
        return "done"

    assert budget.within(0.05, lambda: turn[0], call) == "done"


def test_nothing_comes_once_it_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "_AGAIN", 0.0005)  # what it waits for otherwise would hide that it goes on

    def call(seconds: float) -> None:
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            pass

    spent = 0
    for i in range(300):  # about as long as the other thread waits for its turn: before, after, and just then
        try:
            budget.within(0.0005, lambda: 1, lambda seconds=(4 + i % 30 / 10) / 1000: call(seconds))  # type: ignore[misc]
        except budget.Spent:
            spent += 1
    for _ in range(100_000):
        pass
    assert spent
    assert not _watching()


@pytest.mark.parametrize("seconds", [0.01, 10])
def test_code_that_is_traced_goes_on_afterwards(seconds: float) -> None:
    """As with a debugger or a coverage tool. CPython 3.11 stands still for ever where a thread is marked as about to raise
    and has nothing to raise."""
    code = f"""
import sys, time
from timelapse.kernels import budget
def call():
    end = time.thread_time() + 0.2
    while time.thread_time() < end: pass
try:
    budget.within({seconds}, lambda: 1, call)
    print("done")
except budget.Spent:
    print("spent")
def traced(): return "on"
sys.settrace(lambda *_: None)
print(traced())
"""
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=LONG, check=True
    )
    assert found.stdout.split() == ["spent" if seconds < 1 else "done", "on"]


def test_what_comes_where_it_ends_leaves_nothing_watching(monkeypatch: pytest.MonkeyPatch) -> None:
    """As when the thread is told just before it calls `end`: Spent is raised before the first line of that."""
    real = budget._Watch.end
    late = [True]

    def end(self: Any) -> None:
        if late.pop() if late else False:
            raise budget.Spent
        real(self)

    monkeypatch.setattr(budget._Watch, "end", end)
    with pytest.raises(budget.Spent):
        budget.within(0.01, lambda: 1, lambda: None)
    assert not _watching()


def test_a_thread_is_told_only_inside_of_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not while `begin` or `end` run, however long the machine leaves them there."""

    def dawdle() -> None:
        end = time.thread_time() + 0.1
        while time.thread_time() < end:
            pass

    real = budget._Watch.end

    def end(self: Any) -> None:
        dawdle()
        real(self)

    monkeypatch.setattr(budget._Watch, "end", end)
    monkeypatch.setattr(budget, "_OURS", (*budget._OURS, end.__code__))
    assert budget.within(0.02, lambda: 1, lambda: 7) == 7
    assert not _watching()


def _watching() -> list[threading.Thread]:
    """The threads that still bound something, but for those that are just ending."""
    found = [t for t in threading.enumerate() if t.name == "timelapse-budget"]
    for thread in found:
        thread.join(LONG)
    return [t for t in found if t.is_alive()]


def test_a_thread_that_has_ended_is_watched_no_more() -> None:
    """Its clock is gone while the other thread was just about to look at it."""
    watches: list[budget._Watch] = []
    thread = threading.Thread(target=lambda: watches.append(budget._Watch(1.0, int, sys._getframe())))
    thread.start()
    thread.join()
    end = time.monotonic() + LONG
    while time.monotonic() < end:
        try:
            watches[0]._clock()
        except budget._Gone:
            break
    else:
        pytest.fail("a thread that has ended still has a clock")
    watches[0]._follow()


def test_nobody_is_asked_once_it_is_over() -> None:
    """The other thread may only begin then, and what it would ask may be closed."""
    asked: list[int] = []
    watch = budget._Watch(1.0, lambda: asked.append(1), sys._getframe())
    watch.end()
    watch._follow()
    assert asked == []
