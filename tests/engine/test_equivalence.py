"""Replay equals the serial meaning, whatever the slices and strategies."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import timelapse as tl
from tests.depth import deep
from tests.engine.logs import logs
from tests.engine.programs import ALL, A, B
from timelapse.errors import HandlerError
from timelapse.log import MemoryLog
from timelapse.run import Run, replay, run_serial


def assert_equal(run: Run, reference: Run) -> None:
    """Outputs, rejections, final state and the state at every slice boundary."""
    found = run.verify()
    assert found.ok, found.text
    assert run.digest == reference.digest
    assert run.state_digest == reference.state_digest
    assert found.boundaries == run.slices or not run.events


def memory(events: Sequence[tl.Event]) -> MemoryLog:
    return MemoryLog(events, [A, B])


@pytest.mark.parametrize("program", ALL, ids=lambda p: p.__name__)
@settings(max_examples=deep(24))
@given(events=logs(), slices=st.sampled_from([1, 2, 3, 7, 1000]), strategy=st.sampled_from([None, "chain"]))
def test_replay_equals_the_serial_meaning(
    program: type[tl.Program], events: list[tl.Event], slices: int, strategy: str | None
) -> None:
    """In process: 1, 2, 3, 7 slices and one per event; the planner's choice and chain forced."""
    log = memory(events)
    run = replay(program, log, slices=slices, spark=False, strategy=strategy)
    assert_equal(run, run_serial(program, log))


class Failing(tl.Program):
    n: tl.Counter[int]

    @tl.on(A)
    def count(self, e: A) -> None:
        self.n[e.k] += 1

    @tl.on(B)
    def fail(self, e: B) -> None:
        if self.n[e.k] > 2:
            raise ValueError(f"too many of {e.k}")


@given(events=logs(), slices=st.sampled_from([1, 2, 3, 7, 1000]))
def test_a_failing_handler_is_reported_as_the_serial_meaning_reports_it(
    events: list[tl.Event], slices: int
) -> None:
    """The first failing event in log order, whichever slice finds a failure first."""
    log = memory(events)
    try:
        expected = run_serial(Failing, log)
    except HandlerError as error:
        with pytest.raises(HandlerError) as caught:
            replay(Failing, log, slices=slices, spark=False)
        assert (caught.value.seq, caught.value.handler) == (error.seq, error.handler)
        assert caught.value.event == error.event
        assert "too many of" in caught.value.user_traceback
    else:
        assert replay(Failing, log, slices=slices, spark=False).digest == expected.digest
