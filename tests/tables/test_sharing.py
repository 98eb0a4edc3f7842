"""Work shared out among threads: what comes of it does not depend on how many there are."""

from __future__ import annotations

import threading
from functools import partial

import pytest

from timelapse.tables.sharing import at_once, in_order


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_results_come_in_the_order_of_the_calls(threads: int) -> None:
    """Whatever their sizes, and whichever ends first."""
    gate = threading.Event()

    def call(at: int) -> int:
        if at == 2:
            gate.set()
        elif threads > 1 and at == 0:
            assert gate.wait(5)
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
