"""A pass is rewritten once, for all slices and replays of a program that stays as it is."""

from __future__ import annotations

import sys
from typing import Any

import pytest

import timelapse as tl
from tests.writers.sources import load_source
from timelapse.kernels.choose import SWITCH
from timelapse.kernels.python.flat import rewrite

SOURCE = """
import timelapse as tl

BASE = 2

class Hit(tl.Event):
    who: int
    size: int

class Seen(tl.Record):
    who: int
    n: float

class Watch(tl.Program):
    least: float = 3
    n: tl.Counter[int]
    marked: tl.SetOf[int, int]

    @tl.on(Hit)
    def hit(self, e):
        self.n[e.who] += e.size * BASE
        if self.n[e.who] > self.least and e.size not in self.marked[e.who]:
            self.marked.add(e.who, e.size)
            self.emit(Seen(who=e.who, n=self.n[e.who] / BASE + self.least))
"""


@pytest.fixture
def rewritten(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The handlers that are rewritten, one after the other."""
    found: list[str] = []
    real = rewrite.handler

    def noted(work: Any, function: Any, event: Any, called: str) -> Any:
        found.append(called)
        return real(work, function, event, called)

    monkeypatch.setattr("timelapse.kernels.python.flat.written.handler", noted)
    monkeypatch.setenv(SWITCH, "python")
    return found


def same(program: tl.Program, events: list[tl.Event], **how: Any) -> None:
    run, plain = tl.replay(program, events, spark=False, **how), tl.run_serial(program, events)
    assert (run.digest, run.state_digest) == (plain.digest, plain.state_digest)


def test_a_pass_is_rewritten_once(rewritten: list[str]) -> None:
    cls = load_source(SOURCE, "Watch")
    module: Any = sys.modules[cls.__module__]
    events = [module.Hit(who=n % 3, size=n % 5, ts=n) for n in range(200)]
    same(cls(), events, slices=5, strategy="staged")
    once = len(rewritten)
    assert 0 < once < 5
    same(cls(), events, slices=5, strategy="staged")
    same(cls(), events, slices=3, strategy="staged")
    assert len(rewritten) == once
    module.BASE = 3  # the code that reads it is another one now
    same(cls(), events, slices=5, strategy="staged")
    again = len(rewritten)
    assert again > once
    same(cls(least=4), events, slices=5, strategy="staged")
    assert len(rewritten) > again
