"""Work shared out among threads: what comes of it does not depend on how many there are."""

from __future__ import annotations

import threading
from functools import partial

import pytest

from tests.patience import LONG
from timelapse.tables.sharing import Beside, at_once, in_order


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_results_come_in_the_order_of_the_calls(threads: int) -> None:
    """Whatever their sizes, and whichever ends first."""
    gate = threading.Event()

    def call(at: int) -> int:
        if at == 2:
            gate.set()
        elif threads > 1 and at == 0:
            assert gate.wait(LONG)
        return at * at

    calls = [(size, partial(call, at)) for at, size in enumerate([1, 5, 9, 2])]
    assert at_once(calls, threads) == [0, 1, 4, 9]
    assert list(in_order(call, 4, threads)) == [0, 1, 4, 9]


@pytest.mark.parametrize("threads", [1, 3])
def test_the_first_error_in_order_is_raised(threads: int) -> None:
    """Of several that fail, whoever failed first."""

    def fail(at: int) -> int:
        raise ValueError(f"number {at}")

    with pytest.raises(ValueError, match="number 0"):
        at_once([(size, partial(fail, at)) for at, size in enumerate([1, 2, 3])], threads)


@pytest.mark.parametrize("threads", [1, 2])
def test_work_beside_is_done_in_order_and_its_errors_are_raised(threads: int) -> None:
    """A piece at a time; leaving the block waits. What is raised in the block itself comes first."""
    done: list[int] = []
    with Beside(threads) as beside:
        for at in range(4):
            beside.do(partial(done.append, at))
            assert done[:at] == list(range(at))
        beside.wait()
        assert done == [0, 1, 2, 3]

    def fail() -> None:
        raise ValueError("beside")

    with pytest.raises(ValueError, match="beside"), Beside(threads) as beside:
        beside.do(fail)
    with pytest.raises(KeyError), Beside(2) as beside:
        beside.do(fail)
        raise KeyError
