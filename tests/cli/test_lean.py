"""What keeps short commands short."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from timelapse.cli.lean import with_little_collecting


@pytest.fixture(autouse=True)
def _as_it_was() -> Iterator[None]:
    before, enabled = gc.get_threshold(), gc.isenabled()
    yield
    gc.set_threshold(*before)
    (gc.enable if enabled else gc.disable)()


def test_garbage_is_searched_for_rarely() -> None:
    gc.set_threshold(700, 10, 10)
    with_little_collecting()
    assert gc.get_threshold() == (100_000, 10, 10)
    with_little_collecting()
    assert gc.get_threshold() == (100_000, 10, 10)


def test_what_the_user_has_made_rarer_or_switched_off_stays() -> None:
    gc.set_threshold(500_000, 5, 5)
    with_little_collecting()
    assert gc.get_threshold() == (500_000, 5, 5)
    gc.disable()
    gc.set_threshold(700, 10, 10)
    with_little_collecting()
    assert gc.get_threshold() == (700, 10, 10)
