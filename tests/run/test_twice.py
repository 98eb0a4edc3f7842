"""The first events are processed twice: what keeps or draws something outside the states is found, however it hides."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import timelapse as tl
from tests.writers.sources import load_source
from timelapse.analysis import analyse
from timelapse.analysis.purity import purity_findings
from timelapse.analysis.result import Severity
from timelapse.kernels.choose import SWITCH
from timelapse.model.events import Event


@pytest.fixture(autouse=True)
def _the_whole_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    """As users have it: other tests do with less (tests/conftest.py)."""
    monkeypatch.setattr("timelapse.run.twice.SAMPLE", 256)


_TEXT = """
import collections
import contextvars
import functools
import itertools
import operator
import random
import timelapse as tl

class E(tl.Event):
    who: int

class Out(tl.Record, key="who"):
    who: int
    n: int

{helpers}

class P(tl.Program):
    total: tl.Counter[int]

    @tl.on(E)
    def go(self, e):
        {body}
        self.total[e.who] += x
        self.emit(Out(who=e.who, n=x))
"""

_FACTORY = """
def make():
    n = 0
    def bump():
        nonlocal n
        n += 1
        return n
    return bump
bump = make()
"""
_CLASS = """
class Ticket:
    def __init__(self):
        self.n = 0
    def take(self):
        self.n += 1
        return self.n
    __call__ = take
ticket = Ticket()
"""
_SEEN = [  # code, helpers, body
    ("TL106", _FACTORY, "x = bump()"),
    ("TL106", "n = 0\ndef f():\n    global n\n    n += 1\n    return n", "x = f()"),
    ("TL117", "ticket = itertools.count()", "x = next(ticket)"),
    ("TL117", "ticket = (n for n in range(1000))", "x = next(ticket)"),
    ("TL117", "ticket = iter(range(1000))\ndef f():\n    return next(ticket)", "x = f()"),
    ("TL117", _CLASS, "x = ticket.take()"),
    ("TL117", _CLASS, "x = ticket()"),
    ("TL117", _CLASS + "take = ticket.take\n", "x = take()"),
    ("TL117", "level = contextvars.ContextVar('level', default=1)", "x = level.get()"),
    ("TL117", "class C:\n    n = 0", "C.n += 1; x = C.n"),
    ("TL117", "def f(seen=[]):\n    seen.append(1)\n    return len(seen)", "x = f()"),
    ("TL115", "roll = functools.partial(random.randint, 1, 1000)\ndef f():\n    return roll()", "x = f()"),
    ("TL117", "kept = collections.defaultdict(int)", "kept[e.who]; x = len(kept)"),
    (
        "TL117",
        "class D(dict):\n    def __missing__(self, k):\n        self[k] = len(self)\n        return self[k]\nkept = D()",
        "x = kept[e.who]",
    ),
    (
        "TL106",
        "def f(p, e):\n    try:\n        p.reject('no')\n    except:\n        pass",
        "f(self, e); x = 1",
    ),
]
_HIDDEN = [  # what no reading of the code shows
    ("take", "take = getattr(itertools.count(), '__next__')", "x = take()"),
    ("draw", "kept = (random.Random(3),)", "x = int(kept[0].random() * 1000)"),
    ("dict", "kept = {'n': itertools.count()}\ndef f(name):\n    return next(kept[name])", "x = f('n')"),
]
_KEPT = [  # what an event leaves as it was when it is processed twice, and what the next events see
    ("setitem", "kept = {}", "operator.setitem(kept, e.who, 1); x = len(kept)"),
    ("dunder", "kept = {}", "dict.__setitem__(kept, e.who, 1); x = len(kept)"),
    (
        "partial",
        "def g(kept, k):\n    kept[k] = 1\n    return len(kept)\nf = functools.partial(g, {})",
        "x = f(e.who)",
    ),
    ("misses", "@functools.lru_cache\ndef f(n):\n    return n", "f(e.who); x = f.cache_info().misses"),
]
_FINE = [
    ("@functools.lru_cache\ndef f(n):\n    return n + 1", "x = f(e.who)"),
    ("@functools.cache\ndef f(n):\n    return n + 1", "x = f(e.who)"),
    ("names = {1: 'a', 2: 'bc'}", "x = len(names.get(e.who, ''))"),
    ("names = {1: 'a'}", "x = 1 if e.who in names else 2"),
    ("add = functools.partial(int.__add__, 3)", "x = add(e.who)"),
    ("def f(n):\n    total = 0\n    def more(k):\n        nonlocal total\n        total += k\n    more(n)\n    return total",
     "x = f(e.who)"),
    ("class Box:\n    def __init__(self, n):\n        self.n = n\n    def twice(self):\n        return 2 * self.n\nbox = Box(4)",
     "x = box.twice()"),
    ("def f(n):\n    try:\n        return 10 // n\n    except:\n        return 0", "x = f(e.who)"),
]  # fmt: skip


def _program(helpers: str, body: str) -> type[tl.Program]:
    return load_source(_TEXT.format(helpers=helpers, body=body))


def _events(program: type[tl.Program], count: int = 40) -> list[Event]:
    kind = sys.modules[program.__module__].E
    return [kind(who=n % 3, ts=n, seq=n) for n in range(count)]


@pytest.mark.parametrize(("code", "helpers", "body"), _SEEN)
def test_hidden_state_is_refused_where_it_shows_in_the_code(code: str, helpers: str, body: str) -> None:
    """With its line, before anything runs."""
    program = _program(helpers, body)
    assert [f.code for f in purity_findings(program) if f.severity is Severity.ERROR] == [code]
    with pytest.raises(tl.TimelapseError) as caught:
        tl.replay(program, _events(program), spark=False)
    assert caught.value.code == code
    assert caught.value.place is not None
    assert caught.value.place.line


@pytest.mark.parametrize(("name", "helpers", "body"), _HIDDEN)
@pytest.mark.parametrize("kernels", ["interpreted", "python", "native"])
def test_what_the_code_does_not_show_is_found_by_processing_twice(
    name: str, helpers: str, body: str, kernels: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TL113 names handler, event, the two results, and what is suspect."""
    monkeypatch.setenv(SWITCH, kernels)
    program = _program(helpers, body)
    with pytest.raises(
        tl.TimelapseError, match=r"P\.go did something else .* the first time and .* the second"
    ) as caught:
        tl.replay(program, _events(program), spark=False)
    assert caught.value.code == "TL113"
    assert caught.value.place is not None
    assert caught.value.place.line
    run = tl.replay(program, _events(program), spark=False, allow_impure=True)
    assert run.certificate["twice"] is None


@pytest.mark.parametrize(("name", "helpers", "body"), _KEPT)
def test_what_later_events_see_is_found_by_beginning_again(name: str, helpers: str, body: str) -> None:
    """Before slices that are run one after the other, or at once, see other things than the serial loop."""
    program = _program(helpers, body)
    with pytest.raises(
        tl.TimelapseError, match=r"after all of the first 40 events had been processed once"
    ) as caught:
        tl.replay(program, _events(program), spark=False, slices=4)
    assert caught.value.code == "TL113"


def test_states_that_differ_only_at_the_end_are_found() -> None:
    """A write that no output shows."""
    program = _program("kept = {}", "operator.setitem(kept, e.who, 1); x = 0; self.total[9] += len(kept)")
    with pytest.raises(
        tl.TimelapseError, match=r"leaves total\[9\] 117 the first time and 120 the second"
    ) as caught:
        tl.replay(program, _events(program), spark=False)
    assert caught.value.code == "TL113"


@pytest.mark.parametrize(("helpers", "body"), _FINE)
def test_what_keeps_nothing_is_let_through(helpers: str, body: str) -> None:
    """No finding, no difference, and the certificate says how many events were compared."""
    program = _program(helpers, body)
    assert purity_findings(program) == ()
    run = tl.replay(program, _events(program), spark=False)
    assert run.digest == tl.run_serial(program, _events(program)).digest
    assert run.certificate["twice"] == (40 if analyse(program).trusted else 32)


@pytest.mark.parametrize(
    ("helpers", "why"),
    [
        ("names = {1: [2]}", "what is in it can be changed"),
        ("names = other = {1: 2}", "known under more than one name"),
        ("def f(x):\n    return x\nnames = {1: 2}\ndef g():\n    return f(names)", "may hand it on"),
    ],
)
def test_a_container_that_may_be_changed_is_warned_of_precisely(helpers: str, why: str) -> None:
    """TL117 says what could not be shown."""
    (found,) = purity_findings(_program(helpers, "x = 1 if e.who in names else 2"))
    assert (found.code, found.severity) == ("TL117", Severity.WARNING)
    assert why in found.message


@pytest.mark.parametrize(
    ("helpers", "body", "events"),
    [("", "x = 1", 32), ("add = functools.partial(int.__add__, 3)", "x = add(e.who)", 256)],
)
def test_a_stored_log_compares_its_first_events(helpers: str, body: str, events: int, tmp_path: Path) -> None:
    """At most 256 of them; where no call is trusted, at most 32, which check analysis itself."""
    program = _program(helpers, body)
    log = tl.Log.from_events(tmp_path / "log", _events(program, 400), [sys.modules[program.__module__].E])
    assert tl.replay(program, log, spark=False).certificate["twice"] == events
