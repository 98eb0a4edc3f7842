"""Who waits for what a live run or a process brings about is told when that has failed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import timelapse as tl
from tests.patience import until
from timelapse.streaming.chain import Overtaken


class Put(tl.Event):
    who: int


class Counting(tl.Program):
    n: tl.Counter[int]

    @tl.on(Put)
    def put(self, e: Put) -> None:
        self.n[e.who] += 1


def test_a_run_that_fails_or_ends_is_waited_for_no_longer(tmp_path: Path) -> None:
    with tl.live(Counting, {Put: tl.Push()}, tmp_path / "out", trigger="10ms") as run:
        until(lambda: run.health.state == "running", run)
        second = tl.live(Counting, {Put: tl.Push()}, tmp_path / "out", trigger="10ms")
        with pytest.raises(Overtaken):
            until(lambda: False, second)
        until(lambda: second.health.state == "failed", second)
        run.stop()
        with pytest.raises(AssertionError, match="the live run ended before"):
            until(lambda: False, run)


def test_a_process_that_ends_is_waited_for_no_longer() -> None:
    with (
        subprocess.Popen([sys.executable, "-c", "raise SystemExit(3)"]) as process,
        pytest.raises(AssertionError, match="ended with 3"),
    ):
        until(lambda: False, process)
