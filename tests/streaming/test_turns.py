"""What holds up all threads is shorter while a live run goes on, and only then: turns with Python's lock, searches for garbage."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import timelapse as tl
from tests.patience import LONG
from tests.streaming.test_asking import Adding, Put
from tests.streaming.test_live import FAST
from timelapse.env.garbage import passed_over
from timelapse.streaming.turns import TURN, short_turns


@pytest.fixture(autouse=True)
def _given_back(passing_over: ExitStack) -> Iterator[None]:
    passing_over.close()
    before = sys.getswitchinterval()
    sys.setswitchinterval(0.004)
    frozen = gc.get_freeze_count() > 0  # what was there when the tests began
    gc.unfreeze()
    yield
    sys.setswitchinterval(before)
    gc.enable()
    if frozen:
        gc.freeze()
    passing_over.enter_context(passed_over())


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
        # The second says that there is no more of the first one's time.
        push.send([Put(who=1, size=1, ts=ts) for ts in (1, 2)])
        run.until(lambda epoch: epoch.end_seq > 0, LONG)
        assert sys.getswitchinterval() == TURN
        assert gc.get_freeze_count()
        run.stop()
    assert sys.getswitchinterval() == 0.004
    assert not gc.get_freeze_count()


def test_searches_that_pass_over_what_is_there() -> None:
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


def test_searches_as_somebody_else_has_them() -> None:
    gc.disable()
    with passed_over():
        assert not gc.get_freeze_count()
    gc.enable()
    gc.freeze()
    with passed_over():
        assert gc.get_freeze_count()
    assert gc.get_freeze_count()
