"""Threads that work for long give way to others that wake up."""

from __future__ import annotations

import ctypes
import os
import platform
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import timelapse as tl
from tests.streaming.test_asking import Adding, Put
from tests.streaming.test_live import FAST
from timelapse.env import scheduler
from timelapse.env.scheduler import come_soon, give_way
from timelapse.streaming.serve.app import Server

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() not in scheduler._SETATTR, reason="Linux alone has it"
)


def in_thread(work: Callable[[], None]) -> None:
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


def asked_for(thread: int = 0) -> int:
    """Nanoseconds that a thread asks for at a time (this one if none is given), as the system has them; 0 where it keeps none."""
    found = scheduler._Attributes()
    number = scheduler._SETATTR[platform.machine()] + 1
    assert (
        ctypes.CDLL(None).syscall(
            number, thread, ctypes.byref(found), ctypes.sizeof(scheduler._Attributes), 0
        )
        == 0
    )
    return int(found.runtime)


def test_a_thread_and_what_it_begins() -> None:
    before, there = asked_for(), os.sched_getscheduler(0)
    seen: list[tuple[int, int, int]] = []

    def look() -> None:
        nice = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
        seen.append((os.sched_getscheduler(0), asked_for(), nice))

    def work() -> None:
        give_way()
        look()
        in_thread(look)
        code = "import os; print(os.sched_getscheduler(0))"
        assert int(subprocess.check_output([sys.executable, "-c", code])) == os.SCHED_BATCH

    in_thread(work)
    nice = os.getpriority(os.PRIO_PROCESS, 0)
    kept = before and scheduler._LONG  # before 6.12 the system has no such length
    assert seen == [(os.SCHED_BATCH, kept, nice)] * 2
    assert (os.sched_getscheduler(0), asked_for()) == (there, before)


def test_a_thread_that_answers() -> None:
    before = asked_for()
    seen: list[tuple[int, int]] = []

    def work() -> None:
        come_soon()
        in_thread(lambda: seen.append((os.sched_getscheduler(0), asked_for())))

    in_thread(work)
    assert seen == [(os.SCHED_OTHER, before and scheduler._SHORT)]
    assert asked_for() == before


@pytest.mark.parametrize("ask", [give_way, come_soon])
def test_a_policy_that_somebody_has_set_stays(ask: Callable[[], None]) -> None:
    seen: list[int] = []

    def work() -> None:
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
        ask()
        seen.append(os.sched_getscheduler(0))

    in_thread(work)
    assert seen == [os.SCHED_IDLE]


def test_a_live_run(tmp_path: Path) -> None:
    """Threads that process epochs and write what is pushed give way, the server's comes soon, and the one that reads is as it was."""
    push, seen = tl.Push(), list[int]()
    before = asked_for()
    with tl.live(Adding, {Put: push}, tmp_path, idle=None, **FAST) as run:
        run.follow(lambda *_: seen.append(os.sched_getscheduler(0)))
        push.send([Put(who=1, size=n, ts=1_000 + n) for n in range(9)])
        run.until(lambda e: e.end_seq >= 8)
        server = Server(run, "127.0.0.1:0")
        threads = {t.name: t.native_id or 0 for t in threading.enumerate()}
        assert os.sched_getscheduler(threads["timelapse-push"]) == os.SCHED_BATCH
        assert asked_for(threads["timelapse-serve"]) == (before and scheduler._SHORT)
        server.close()
        run.stop()
    assert set(seen) == {os.SCHED_BATCH}
    assert (os.sched_getscheduler(0), asked_for()) == (os.SCHED_OTHER, before)
