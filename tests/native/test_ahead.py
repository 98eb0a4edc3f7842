"""Reading ahead in a second thread: the same items and errors, bounded, and it ends when it should."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest

import timelapse as tl
from tests.native.oracle import assert_equal, passes
from tests.native.programs import A, B, Mixed, Overflowing
from timelapse.kernels.ahead import ahead
from timelapse.kernels.choose import SWITCH, SliceKernel
from timelapse.kernels.source import Source
from timelapse.kernels.tuning import KernelTuning, NativeTuning, TableTuning
from timelapse.log import MemoryLog
from timelapse.model.events import Event
from timelapse.segments.reader import Chunk


def _threads() -> list[str]:
    return [t.name for t in threading.enumerate() if t.name == "timelapse-decode"]


def test_items_come_in_order_from_another_thread() -> None:
    here = threading.get_ident()
    with ahead(lambda: ((n, threading.get_ident()) for n in range(100))) as items:
        found = list(items)
    assert [n for n, _ in found] == list(range(100))
    assert here not in {ident for _, ident in found}
    assert _threads() == []


@pytest.mark.parametrize("error", [ValueError("x"), KeyboardInterrupt()])
def test_an_error_comes_in_its_place(error: BaseException) -> None:
    """After the items before it; also one that is no Exception."""

    def make() -> Iterator[int]:
        yield 1
        yield 2
        raise error

    with pytest.raises(type(error)) as caught, ahead(make) as items:
        assert [next(items), next(items)] == [1, 2]
        next(items)
    assert caught.value is error
    assert _threads() == []


def test_an_error_before_the_first_item() -> None:
    def make() -> Iterator[int]:
        raise OSError("gone")

    with pytest.raises(OSError, match="gone"), ahead(make) as items:
        next(items)


def test_leaving_early_closes_the_iterator_and_ends_the_thread() -> None:
    """Though there is no end of items, and the queue is full."""
    made: list[int] = []
    closed: list[bool] = []

    def make() -> Iterator[int]:
        try:
            while True:
                made.append(len(made))
                yield made[-1]
        finally:
            closed.append(True)

    with pytest.raises(RuntimeError, match="enough"), ahead(make, depth=2) as items:
        assert next(items) == 0
        while len(made) < 4:
            time.sleep(0.001)
        time.sleep(0.02)
        raise RuntimeError("enough")
    assert closed == [True]
    assert made == [0, 1, 2, 3]  # one taken, two wait, one in hand
    assert _threads() == []


class _Reader:
    """A log in small chunks, which may fail at one of them."""

    def __init__(self, log: MemoryLog, step: int, bad: int = -1) -> None:
        self._log, self._step, self._bad = log, step, bad
        self.types, self.count = log.types, log.count

    def chunks(self, lo: int, hi: int, columns: Mapping[str, Sequence[str] | None]) -> Iterator[Chunk]:
        for start in range(lo, hi, self._step):
            if start == self._bad:
                raise OSError("the disk")
            yield from self._log.chunks(start, min(start + self._step, hi), columns)

    def events(self, *args: Any) -> Iterator[Event]:
        return self._log.events(*args)


SMALL = KernelTuning(native=NativeTuning(tables=TableTuning(first_rows=16)))


def _run(program: type[tl.Program], events: list[Event], *, prefetch: bool, bad: int = -1) -> list[Any]:
    found = []
    for work, final in passes(program):
        reader: Any = _Reader(MemoryLog(events, [A, B]), 7, bad)
        classes = {c.__name__: c for c in (A, B) if c.__name__ in work.columns}
        kernel = SliceKernel(program(), work, {}, 0, final=final, prefetch=prefetch, tuning=SMALL)
        told: list[int] = []
        for lo, hi in ((0, 30), (30, 100)):
            found.append(kernel.run(Source(reader, lo, hi, classes, work.columns), told.append))
            if found[-1].failure is not None:
                break
        else:
            assert sum(told) == sum(r.events for r in found[-2:])
    return found


@pytest.mark.parametrize("program", [Mixed, Overflowing])
def test_a_pass_that_reads_ahead_gives_the_same(
    program: type[tl.Program], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where events go back to Python on the way, while the other thread decodes; effects and new tables in two threads."""
    monkeypatch.setenv(SWITCH, "native")
    monkeypatch.setattr("timelapse.kernels.native.memory.gathering.WORTH_THREADS", -1)
    monkeypatch.setattr("timelapse.kernels.native.memory.gathering._PART", 4)
    monkeypatch.setattr("timelapse.kernels.native.memory.blocks.LARGE", 0)
    events: list[Event] = [
        A(i % 3, 9 * (i > 50), f"w{i % 11}", i % 2 == 0, 0.5, b"x", i, ts=i)
        if i % 5
        else B(i % 3, "w1", ts=i)
        for i in range(100)
    ]
    plain, early = _run(program, events, prefetch=False), _run(program, events, prefetch=True)
    for found, expected in zip(early, plain, strict=True):
        assert_equal(found, expected)
    assert _threads() == []


def test_a_log_that_cannot_be_read_fails_the_same_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SWITCH, "native")
    events: list[Event] = [A(i % 3, 1, "w", True, 0.5, b"x", i, ts=i) for i in range(100)]
    for prefetch in (False, True):
        with pytest.raises(OSError, match="the disk"):
            _run(Mixed, events, prefetch=prefetch, bad=21)
    assert _threads() == []
