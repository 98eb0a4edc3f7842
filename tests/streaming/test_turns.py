"""What holds up all threads is shorter while a live run goes on, and only then: turns with Python's lock, searches for garbage."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.streaming.turns_main import CHECKS
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


def test_searches_pass_over_what_is_there() -> None:
    """While a live run goes on, and where somebody else has searches off."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.streaming.turns_main"], cwd=Path(__file__).parents[2], capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [check.__name__ for check in CHECKS]
