"""Threads hand on Python's lock sooner while a live run goes on, and only then."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import timelapse as tl
from tests.streaming.test_asking import Adding, Put
from tests.streaming.test_live import FAST
from timelapse.streaming.turns import TURN, short_turns


@pytest.fixture(autouse=True)
def _given_back() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(0.004)
    yield
    sys.setswitchinterval(before)


def test_runs_that_overlap() -> None:
    first, second = short_turns(), short_turns()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert sys.getswitchinterval() == TURN
    second.__exit__(None, None, None)
    assert sys.getswitchinterval() == 0.004


def test_what_somebody_else_has_set_stays() -> None:
    with short_turns():
        sys.setswitchinterval(0.002)
    assert sys.getswitchinterval() == 0.002
    sys.setswitchinterval(0.0001)
    with short_turns():
        assert sys.getswitchinterval() == pytest.approx(0.0001)
    assert sys.getswitchinterval() == pytest.approx(0.0001)


def test_a_live_run(tmp_path: Path) -> None:
    push = tl.Push()
    with tl.live(Adding, {Put: push}, tmp_path, **FAST) as run:
        push.send([Put(who=1, size=1, ts=1)])
        assert sys.getswitchinterval() == TURN
        run.stop()
    assert sys.getswitchinterval() == 0.004
