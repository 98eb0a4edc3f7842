"""A pass without states whose slice runs in parts side by side gives what it gives in one."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import timelapse as tl
from tests.depth import deep
from tests.engine.logs import logs
from tests.engine.programs import A, B
from tests.native.oracle import assert_equal
from timelapse.analysis import analyse, final_pass
from timelapse.kernels.base import PassResult
from timelapse.kernels.choose import LEFT_TOO_OFTEN, SWITCH, SliceKernel
from timelapse.kernels.native.aside import AsideKernel
from timelapse.kernels.source import Source
from timelapse.kernels.tuning import USUAL, KernelTuning, NativeTuning
from timelapse.log import MemoryLog
from timelapse.model.events import Event

BIG = 1 << 62


class Seen(tl.Record):
    k: int
    s: str
    big: int


class Filter(tl.Program):
    """Texts, events that go to Python (an integer outside int64), rejections."""

    limit: int = 3

    @tl.on(A)
    def a(self, e: A) -> None:
        if e.v < 0:
            self.reject("negative")
        if e.k > self.limit:
            self.emit(Seen(k=e.k, s=e.s + "!", big=e.v))

    @tl.on(B)
    def b(self, e: B) -> None:
        for n in range(2 if e.on else 0):
            self.emit(Seen(k=n, s="b", big=(e.k + n + BIG) * 4 % 97))


class Failing(tl.Program):
    @tl.on(A)
    def a(self, e: A) -> None:
        if e.v == 0:
            raise ValueError(e.s)
        self.emit(Seen(k=e.k, s=e.s, big=e.v))


class Leaving(tl.Program):
    @tl.on(A)
    def a(self, e: A) -> None:
        x = e.k + 1
        for _ in range(e.k % 2 + 7):
            x *= 1024
        self.emit(Seen(k=e.k, s=e.s, big=x % 97))


def _run(
    program: type[tl.Program],
    events: list[Event],
    workers: int,
    *,
    quarantine: bool = False,
    tuning: KernelTuning = USUAL,
) -> tuple[PassResult, SliceKernel, list[int]]:
    work = final_pass(analyse(program))
    log = MemoryLog(events, [A, B])
    end = log.seq_after(log.count)
    classes = {c.__name__: c for c in (A, B) if c.__name__ in work.columns}
    told: list[int] = []
    kernel = SliceKernel(
        program(),
        work,
        {},
        0,
        final=True,
        workers=workers,
        quarantine=1000 if quarantine else None,
        tuning=tuning,
    )
    return kernel.run(Source(log, 0, end, classes, work.columns), told.append), kernel, told


@pytest.fixture(autouse=True)
def _compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SWITCH, "native")


@pytest.mark.parametrize("workers", [2, 3])
@settings(max_examples=deep(10))
@given(events=logs())
def test_parts_side_by_side(workers: int, events: list[Event]) -> None:
    one, _, _ = _run(Filter, events, 1)
    several, kernel, told = _run(Filter, events, workers)
    assert kernel.compiled
    assert kernel._aside is not None
    assert_equal(several, one)
    assert sum(told) == one.events


@settings(max_examples=deep(15))
@given(values=st.lists(st.integers(0, 3), max_size=30), quarantine=st.booleans())
def test_the_first_failure_in_log_order_is_the_failure(values: list[int], quarantine: bool) -> None:
    events: list[Event] = [A(k=i, v=v, s=str(i), ts=i // 2) for i, v in enumerate(values)]
    one, _, _ = _run(Failing, events, 1, quarantine=quarantine)
    several, _, _ = _run(Failing, events, 3, quarantine=quarantine)
    assert several.failed_seq == one.failed_seq
    assert several.quarantined == one.quarantined
    assert quarantine or (several.failure is None) == (0 not in values)
    if one.failure is None:
        assert_equal(several, one)


def test_where_most_events_leave_a_plain_loop_goes_on() -> None:
    """With what was told of progress taken back."""
    tuning = KernelTuning(native=NativeTuning(burst=100))
    events: list[Event] = [A(k=i, v=i, s="", ts=i) for i in range(3000)]
    several, kernel, told = _run(Leaving, events, 2, tuning=tuning)
    one, _, _ = _run(Leaving, events, 1, tuning=tuning)
    assert kernel._aside is None
    assert kernel.why_python == LEFT_TOO_OFTEN
    assert_equal(several, one)
    assert sum(told) == len(events)


def test_a_pass_with_states_runs_in_one(monkeypatch: pytest.MonkeyPatch) -> None:
    class Counting(tl.Program):
        n: tl.Counter[int]

        @tl.on(A)
        def a(self, e: A) -> None:
            self.n[e.k] += 1

    monkeypatch.setattr(AsideKernel, "run", None)
    _, kernel, _ = _run(Counting, [A(k=1, v=1, s="", ts=1)], 2)
    assert kernel.compiled
    assert kernel._aside is None
