"""Who wrote a key that is read from another state: guessed by the values that events gave that state, told as the serial loop tells it."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.native.fuzz.emulate import emulated
from tests.trace.ways import by_the_loop, without_few
from tests.writers.sources import load_source
from timelapse.kernels.choose import SWITCH
from timelapse.kernels.native import build
from timelapse.log import MemoryLog
from timelapse.program.program import spec_of
from timelapse.run import replay
from timelapse.trace import joined, passing
from timelapse.trace.whole import past_of

PROGRAM = """
import timelapse as tl

class Started(tl.Event):
    process: {process}
    {more}user: {user}

class Alert(tl.Event):
    process: {process}

class Out(tl.Record):
    n: int

class P(tl.Program):
    user: tl.Value[{process}, {user} | None]
    alerts: tl.Counter[{user}]

    @tl.on(Started)
    def start(self, e: Started) -> None:
        self.user[e.process] = {start}

    @tl.on(Alert)
    def alert(self, e: Alert) -> None:
        user = self.user[e.process]
        if user is not None:
            self.alerts[user] += 1

    @tl.every(5 * tl.SECOND)
    def tell(self) -> None:
        for _, n in self.alerts.last(7 * tl.SECOND).items():
            self.emit(Out(n=n))
"""


def made(process: str, user: str, sure: bool) -> tuple[Any, list[Any]]:
    """A program, and a log for it: processes begin again and again, with users who have others meanwhile. Not `sure`: the user
    is made of two fields."""
    start, more = ("e.user", "") if sure else ("(e.parent + e.user) % 4", f"parent: {user}\n    ")
    program = load_source(PROGRAM.format(process=process, user=user, start=start, more=more))()
    started: Any
    alert: Any
    started, alert = spec_of(program).events
    rng, events = random.Random(7), list[Any]()

    def drawn(kind: str, count: int) -> Any:
        number = rng.randrange(count)
        return number if kind == "int" else f"k{number}"

    for n in range(400):
        at = {"process": drawn(process, 9), "ts": n * 50_000}
        if rng.random() < 0.2:
            also = {} if sure else {"parent": drawn(user, 4)}
            events.append(started(**at, **also, user=drawn(user, 4)))
        else:
            events.append(alert(**at))
    return program, events


@pytest.mark.parametrize(
    ("process", "user", "sure"),
    [
        ("int", "int", True),
        ("str", "int", True),
        ("int", "str", True),
        ("str", "str", True),
        ("int", "int", False),
    ],
)
def test_keys_from_another_state_are_told_as_by_the_serial_loop(
    process: str, user: str, sure: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With one way through the log where the value is a field; where it is made of two, the guess is wrong at times and more are needed."""
    program, events = made(process, user, sure)
    run = replay(program, MemoryLog(events, spec_of(program).events), spark=False)
    keys = range(4) if user == "int" else [f"k{n}" for n in range(4)]
    times = [None, events[150].ts, events[301].ts]
    monkeypatch.setattr(build, "_get", lambda text, *, compile_it: emulated(text))
    for name, value in (("_TAIL", 1), ("_EVENLY", 1), ("_NEAR", 1), ("_LIKELY", 20)):
        monkeypatch.setattr(passing, name, value)
    ways, go = 0, passing.Passing.go

    def counting(*args: Any) -> None:
        nonlocal ways
        ways += 1
        go(*args)

    monkeypatch.setattr(passing.Passing, "go", counting)

    def told() -> list[str]:
        return [run.history("alerts", key, at=at, last=5).text for key in keys for at in times]

    with monkeypatch.context() as patch:
        patch.setenv(SWITCH, "native")
        without_few(patch)
        mine = told()
    with monkeypatch.context() as patch:
        by_the_loop(patch)
        assert mine == told()
    assert any("->" in text for text in mine)
    if sure:
        assert ways == len(mine)
    else:
        assert ways > len(mine)


def test_a_guess_is_who_wrote_a_key_where_a_field_gives_it() -> None:
    """The events that ask for what was given last, in order, before an event; none for a key that nobody has."""
    program, events = made("int", "int", True)
    run = replay(program, MemoryLog(events, spec_of(program).events), spark=False)
    owner: dict[int, int] = {}
    wanted: dict[int, list[int]] = {}
    for seq, event in enumerate(events):
        if hasattr(event, "user"):
            owner[event.process] = event.user
        elif event.process in owner:
            wanted.setdefault(owner[event.process], []).append(seq)
    past = past_of(run)
    for key in range(4):
        found = joined.joined(past, "alerts", key, 300)
        assert found.tolist() == [seq for seq in wanted[key] if seq < 300]
    assert not len(joined.joined(past, "alerts", 17, 300))
    assert not len(joined.joined(past, "user", 1, 300))


def test_where_a_field_tells_who_wrote_a_key_few_steps_are_stopped_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A stop takes as long as thousands of events."""
    program, events = made("int", "int", True)
    run = replay(program, MemoryLog(events, spec_of(program).events), spark=False)
    with monkeypatch.context() as patch:
        by_the_loop(patch)
        wanted = run.history("alerts", 1, last=3).text
    monkeypatch.setattr(build, "_get", lambda text, *, compile_it: emulated(text))
    monkeypatch.setenv(SWITCH, "native")
    monkeypatch.setattr(passing, "_NEAR", 4)
    without_few(monkeypatch)
    stops, go = list[int](), passing.Passing.go

    def counting(self: passing.Passing, of: Any) -> None:
        def counted(batch: passing.Stepped) -> Any:
            for stop in of(batch):
                stops.append(0)
                yield stop

        go(self, counted)

    monkeypatch.setattr(passing.Passing, "go", counting)
    assert run.history("alerts", 1, last=3).text == wanted
    assert 0 < len(stops) < len(events) // 2
