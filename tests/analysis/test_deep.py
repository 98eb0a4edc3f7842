"""Deeply nested code: analysed, replayed, explained and traced as any other."""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import timelapse as tl
from tests.depth import some
from tests.writers.sources import load_source
from timelapse.checks.driver import check
from timelapse.depth import roomy
from timelapse.kernels.choose import SWITCH
from timelapse.model.events import Event

_TEXT = """
import timelapse as tl

class Txn(tl.Event):
    user: int
    a: int
    b: int

class Out(tl.Record, key="user"):
    user: int
    v: int

def one_more(v):
    return v + 1 if v < 1000 else v

class P(tl.Program):
    total: tl.Counter[int]
    least: int = 5

    @tl.on(Txn)
    def go(self, e):
        {body}
        self.total[e.user] += x
        if self.total[e.user] > self.least:
            self.emit(Out(user=e.user, v=self.total[e.user]))
"""


def _sum(terms: int) -> str:
    return "x = " + " + ".join(f"e.a * {n}" for n in range(terms))


def _elif(branches: int, test: str = "e.a") -> str:
    more = "".join(f"        elif {test} == {n}:\n            x = {n + 1}\n" for n in range(branches))
    return f"if {test} == -1:\n            x = 1\n{more}        else:\n            x = 3"


def _calls(number: int) -> str:
    return "x = " + "one_more(" * number + "e.a" + ")" * number


def _test(parts: int) -> str:
    return "x = 1 if " + " and ".join(f"e.a != {n + 3}" for n in range(parts)) + " else 2"


def _choice(choices: int) -> str:
    return "x = e.a" + "".join(f" if e.b == {n} else {n}" for n in range(choices))


_BODIES = {
    "sum of 300": _sum(300),
    "sum of 600": _sum(600),
    "elif of 250": _elif(250),
    "elif of 1,000": _elif(1_000),
    "elif of 90 on a state": _elif(90, "self.total[e.b]"),
    "calls": _calls(100),
    "and": _test(1_000),
    "choices": _choice(200),
    "not": f"x = 1 if {'not ' * 401}e.a else 2",
    "not of a state": f"if {'not ' * 301}self.total[e.b]: x = 1\n        else: x = 2",
}


def _events(program: type[tl.Program], count: int) -> list[Event]:
    chance = random.Random(3)
    kind = sys.modules[program.__module__].Txn
    return [
        kind(user=chance.randrange(5), a=chance.randrange(9), b=chance.randrange(9), ts=n, seq=n)
        for n in range(count)
    ]


@pytest.mark.parametrize("name", some(_BODIES, 2))
def test_deep_code_is_replayed_explained_and_traced(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One pass, in slices, and as rewritten Python: the serial result; `explain`, `why`, `check` and `diff` answer."""
    program = load_source(_TEXT.format(body=_BODIES[name]))
    events = _events(program, 60)
    serial = tl.run_serial(program, events)
    run = tl.replay(program, events, spark=False)
    assert run.digest == serial.digest
    assert tl.replay(program, events, slices=3, spark=False).digest == serial.digest
    with monkeypatch.context() as patch:
        patch.setenv(SWITCH, "python")
        assert tl.replay(program, events, spark=False).digest == serial.digest
    assert "total" in str(tl.explain(program))
    assert "go" in str(run.why(_last(run)))
    other = tl.replay(program(least=9), events, spark=False)
    assert "Diff" in repr(tl.diff(run, other))


@pytest.mark.parametrize("name", ["sum of 300", "elif of 250"])
def test_deep_code_is_checked(name: str, tmp_path: Path) -> None:
    """`check` replays and traces it."""
    program = load_source(_TEXT.format(body=_BODIES[name]))
    kind = sys.modules[program.__module__].Txn
    log = tl.Log.from_events(tmp_path / "log", _events(program, 60), [kind])
    assert check(program, log, sample=5, spark=False, warm_up=False) is not None


def _last(run: tl.Run) -> int:
    return int(run.table("Out").column("seq")[-1].as_py())


def test_room_is_made_only_where_it_is_needed() -> None:
    """The call is repeated with a large stack where the usual one ends; the limit is restored; errors come through."""
    limit, threads = sys.getrecursionlimit(), set()

    def deep(levels: int) -> int:
        threads.add(threading.current_thread().name)
        return 0 if levels == 0 else 1 + deep(levels - 1)

    call: Callable[[int], int] = roomy(deep)
    assert call(10) == 10
    assert threads == {threading.current_thread().name}
    assert call(20_000) == 20_000
    assert sys.getrecursionlimit() == limit
    with pytest.raises(RecursionError):
        call(10_000_000)
    assert sys.getrecursionlimit() == limit
    with pytest.raises(TypeError):
        call("x")  # type: ignore[arg-type]
