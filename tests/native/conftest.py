"""What holds for all tests of the compiler."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from timelapse.kernels.once import passes_once


@pytest.fixture(autouse=True)
def _each_pass_is_lowered_once() -> Iterator[None]:
    """As in a replay: these tests make hundreds of kernels of one pass, and none is about how long lowering takes."""
    with passes_once():
        yield
