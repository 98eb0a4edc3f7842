"""Checks of what searches for garbage pass over, in a process of its own: `python -m tests.streaming.turns_main`.

In the tests' process a search goes through all tests that were collected, and takes a second.
"""

from __future__ import annotations

import gc
import sys
import tempfile
import weakref
from pathlib import Path

import timelapse as tl
from tests.patience import LONG
from timelapse.env.garbage import passed_over
from timelapse.streaming.turns import TURN


class Put(tl.Event):
    who: int


class Adding(tl.Program):
    total: tl.Counter[int]

    @tl.on(Put)
    def put(self, e: Put) -> None:
        self.total[e.who] += 1


def live_run() -> None:
    sys.setswitchinterval(0.004)
    push = tl.Push()
    with (
        tempfile.TemporaryDirectory() as place,
        tl.live(Adding, {Put: push}, Path(place), trigger="10ms", ahead=None) as run,
    ):
        # The second says that there is no more of the first one's time.
        push.send([Put(who=1, ts=ts) for ts in (1, 2)])
        run.until(lambda epoch: epoch.end_seq > 0, LONG)
        assert sys.getswitchinterval() == TURN
        assert gc.get_freeze_count()
        run.stop()
    assert sys.getswitchinterval() == 0.004
    assert not gc.get_freeze_count()


def what_is_there() -> None:
    class Ring:
        """In a cycle."""

        def __init__(self) -> None:
            self.me = self

    kept, gone = Ring(), weakref.ref(Ring())
    assert gone() is not None
    first, second = passed_over(), passed_over()
    first.__enter__()
    assert gone() is None, "what was garbage is collected before"
    second.__enter__()
    first.__exit__(None, None, None)
    old, new = weakref.ref(kept), weakref.ref(Ring())
    del kept
    gc.collect()
    assert old() is not None
    assert new() is None
    second.__exit__(None, None, None)
    gc.collect()
    assert old() is None


def as_somebody_else_has_them() -> None:
    gc.disable()
    with passed_over():
        assert not gc.get_freeze_count()
    gc.enable()
    gc.freeze()
    with passed_over():
        assert gc.get_freeze_count()
    assert gc.get_freeze_count()


CHECKS = (live_run, what_is_there, as_somebody_else_has_them)

if __name__ == "__main__":
    for check in CHECKS:
        check()
        print(check.__name__)
