"""A wrong analysis is caught by the run itself, and the result is still right."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

import timelapse as tl
from tests.depth import deep
from tests.engine.logs import logs
from tests.engine.planned import replay_by
from tests.engine.programs import A, B, Chained, Rejecting, pair
from timelapse.analysis import analyse
from timelapse.analysis.result import PassProgram
from timelapse.engine.executor import LocalExecutor
from timelapse.errors import HandlerError
from timelapse.log import MemoryLog
from timelapse.plan import Plan, make_plan
from timelapse.run import Run, run_serial


def planted(
    program: tl.Program, log: Any, slices: int, fault: Callable[[PassProgram], PassProgram], out: Path,
    lead: int = 0,
) -> Run:  # fmt: skip
    """Replay by a plan whose passes were tampered with."""
    analysis = analyse(program)
    plan = make_plan(analysis, cores=2, slices=slices, force="staged")
    stages = tuple(dataclasses.replace(s, work=fault(s.work)) for s in plan.stages)
    wrong: Plan = dataclasses.replace(plan, stages=stages, lead=lead)
    return replay_by(wrong, program, log, LocalExecutor(), out, slices)


def _replace_handler(work: PassProgram, name: str, function: Any) -> PassProgram:
    handlers = tuple(
        dataclasses.replace(h, function=function) if h.name == name else h for h in work.handlers
    )
    return dataclasses.replace(work, handlers=handlers)


def forgets_removals(work: PassProgram) -> PassProgram:
    """As if the analysis had overlooked that friendships end."""

    def befriend(self: Any, e: B) -> None:
        if e.on:
            getattr(self.friends, "_e_set" if "friends" in work.delta else "add")(pair(e.k, len(e.tags)))

    return _replace_handler(work, "befriend", befriend)


def forgets_a_condition(work: PassProgram) -> PassProgram:
    """As if counting did not depend on friendship."""

    def count(self: Any, e: A) -> None:
        if "good" in work.targets:
            self.good._e_add(e.k, 1)
        if "words" in work.targets:
            self.words._e_add(e.s, 1)

    return _replace_handler(work, "count", count)


EVENTS = [
    B(k=1, x=0.0, on=True, tags=[], ts=1),
    A(k=1, v=2, s="a", ts=2),
    B(k=1, x=0.0, on=False, tags=[], ts=3),
    A(k=1, v=0, s="a", ts=4),
    A(k=1, v=2, s="b", ts=5),
    A(k=1, v=0, s="a", ts=6),
]


@pytest.mark.parametrize("fault", [forgets_removals, forgets_a_condition])
@pytest.mark.parametrize("slices", [2, 3, 6])
def test_a_planted_fault_is_caught_and_the_result_is_right(
    fault: Callable[[PassProgram], PassProgram], slices: int, tmp_path: Path
) -> None:
    """The validation finds the wrong prediction, runs on one by one, and says that it is a bug."""
    log = MemoryLog(EVENTS, [A, B])
    run = planted(Chained(), log, slices, fault, tmp_path / "run")
    assert run.certificate["fallback"]["is_bug"]
    assert run.certificate["fallback"]["from_slice"] <= slices
    assert run.digest == run_serial(Chained, log).digest
    assert run.verify().ok


@settings(max_examples=deep(15))
@given(events=logs())
def test_with_a_planted_fault_every_log_still_gives_the_serial_result(events: list[tl.Event]) -> None:
    """Whatever the log: outputs, rejections and state equal the serial meaning."""
    import tempfile

    log = MemoryLog(events, [A, B])
    reference = run_serial(Chained, log)
    for fault in (forgets_removals, forgets_a_condition):
        with tempfile.TemporaryDirectory() as folder:
            run = planted(Chained(), log, 4, fault, Path(folder) / "run")
            assert run.verify().ok
            assert (run.digest, run.state_digest) == (reference.digest, reference.state_digest)


def _raising(work: PassProgram) -> PassProgram:
    """As if a pass that runs ahead met a state that never was."""
    calls = 0
    original = next((h.function for h in work.handlers if h.name == "note"), None)
    if original is None:
        return work

    def note(self: Any, e: A) -> None:
        nonlocal calls
        calls += 1
        original(self, e)
        if calls > 1:
            raise KeyError("not so in the serial meaning")

    return _replace_handler(work, "note", note)


@pytest.mark.parametrize("slices", [3, 6])
def test_a_failure_ahead_of_time_is_not_reported(slices: int, tmp_path: Path) -> None:
    """An exception in a speculative pass only costs time: no error, no bug, the exact result."""
    log = MemoryLog(EVENTS, [A, B])
    run = planted(Rejecting(), log, slices, _raising, tmp_path / "run")
    reference = run_serial(Rejecting, log)
    assert run.digest == reference.digest
    assert run.state_digest == reference.state_digest
    fallback = run.certificate["fallback"]
    assert fallback is not None
    assert not fallback["is_bug"]


class FailsOnlyIfWrong(Chained):
    """Raises where a wrong start state would lead it."""

    @tl.on(A)
    def check(self, e: A) -> None:
        if self.good[e.k] > 0:
            raise ValueError("never in the serial meaning")


def test_a_failure_caused_by_a_wrong_start_is_not_reported(tmp_path: Path) -> None:
    """The final pass of a slice whose start was wrong fails: it runs again from the right one."""
    log = MemoryLog(EVENTS, [A, B])
    run = planted(FailsOnlyIfWrong(), log, 6, forgets_a_condition, tmp_path / "run")
    assert run.digest == run_serial(FailsOnlyIfWrong, log).digest
    assert run.certificate["fallback"]["is_bug"]


class FailsLate(Chained):
    @tl.on(A)
    def check(self, e: A) -> None:
        if self.bad[e.k] >= 2 and self.good[e.k] == 0 and e.ts > 3:
            raise ValueError("real")


def test_a_real_failure_after_a_wrong_prediction_is_reported(tmp_path: Path) -> None:
    """The first failing event in log order, found by the part that runs one by one."""
    log = MemoryLog(EVENTS, [A, B])
    with pytest.raises(HandlerError) as caught:
        planted(FailsLate(), log, 6, forgets_a_condition, tmp_path / "run")
    assert caught.value.seq == 3
    assert not (tmp_path / "run").exists()
