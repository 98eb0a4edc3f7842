"""Progress of handlers that run as Python is told often enough, whatever they take."""

from __future__ import annotations

import pytest

from tests.engine.programs import A, B, Chained
from timelapse.analysis import analyse, final_pass
from timelapse.kernels.python import interpreted
from timelapse.kernels.python.interpreted import InterpretedKernel, next_size
from timelapse.kernels.source import Source
from timelapse.log import MemoryLog


def test_slow_events_are_told_of_one_by_one_and_fast_ones_together() -> None:
    size, sizes = 64, []
    for _ in range(6):
        size = next_size(size, 2.0 * size)
        sizes.append(size)
    assert sizes == [16, 4, 1, 1, 1, 1]
    for _ in range(8):
        size = next_size(size, 0.000_001 * size)
    assert size == 8192
    assert next_size(512, 0.3) == 512


@pytest.mark.parametrize("count", [0, 63, 64, 65, 300, 400])
def test_every_event_is_told_of_once(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interpreted, "next_size", lambda size, seconds: 64 + size % 3)
    log = MemoryLog([A(k=i % 3, v=0, s="x", ts=i) for i in range(count)], [A, B])
    told: list[int] = []
    work = final_pass(analyse(Chained()))
    source = Source(log, 0, count, {"A": A, "B": B}, work.columns)
    result = InterpretedKernel(Chained(), work, {}, final=True).run_source(source, told.append)
    assert sum(told) == result.events == count
