"""Ticks that read every key: told on the states that a compiled pass leaves before their time, as the serial loop tells them."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.depth import deep, some
from tests.native.fuzz.emulate import emulated
from tests.native.window_programs import windowed_log, windowed_program
from tests.trace.test_whole import alike
from tests.trace.ways import by_the_loop, without_few
from tests.writers.sources import load_source
from timelapse.errors import RunError
from timelapse.kernels.choose import SWITCH
from timelapse.kernels.native import build
from timelapse.log import MemoryLog
from timelapse.moments import time_text
from timelapse.program.program import spec_of
from timelapse.run import Run, replay
from timelapse.trace import passing
from timelapse.trace.through import Through


def ticks(run: Run, depth: int) -> list[Any]:
    """Everything about some ticks: of what they put out, and of those that put nothing out."""
    found: list[Any] = []
    times = sorted(
        {row["ts"] for name in run.counts for row in run.stored(name).to_pylist() if row["phase"] == 0}
    )
    for ts in times[:: max(1, len(times) // 5)]:
        for name in run.counts:
            count = sum(row["ts"] == ts for row in run.stored(name).to_pylist())
            for place in range(1, min(count, 3) + 1):
                named = f"{name}@{time_text(ts).replace(' ', 'T')}#{place}"
                found.append(alike(run.why(named, depth=depth).to_json()))
        for handler in spec_of(run.need_program()).handlers:
            if handler.every is not None:
                try:
                    found.append(alike(run.why_not(f"{handler.name}@{ts}", depth=depth).to_json()))
                except RunError as error:
                    found.append(error.code)
    return found


@pytest.mark.parametrize("depth", [0, 2])
def test_random_ticks_are_told_as_by_the_serial_loop(depth: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With windows, `after=` and several ticks at one time; looking for writers too, by the events that matter."""
    monkeypatch.setattr(build, "_get", lambda text, *, compile_it: emulated(text))
    answered = _answers(monkeypatch)
    asked = 0
    for seed in some(range(72, 80)):
        program = load_source(windowed_program(seed, timed=True))()
        spec = spec_of(program)
        if not any(h.every is not None for h in spec.handlers):
            continue
        run = replay(program, MemoryLog(windowed_log(program, seed, 40), spec.events), spark=False)
        with monkeypatch.context() as patch:
            patch.setenv(SWITCH, "native")
            if not depth:
                without_few(patch)
            mine = ticks(run, depth)
        with monkeypatch.context() as patch:
            by_the_loop(patch)
            wanted = ticks(run, depth)
        assert json.dumps(mine, default=repr) == json.dumps(wanted, default=repr), seed
        asked += len(mine)
    assert asked > deep(15)
    assert answered() > (deep(10) if not depth else 0)


def _answers(patch: pytest.MonkeyPatch) -> Callable[[], int]:
    count, observed = 0, Through.observed

    def counting(*args: Any) -> Any:
        nonlocal count
        found = observed(*args)
        count += 1
        return found

    patch.setattr(Through, "observed", counting)
    return lambda: count


TICKING = """
import timelapse as tl

class Seen(tl.Event):
    who: int

class Out(tl.Record):
    who: int
    n: int

class P(tl.Program):
    owner: tl.Value[int, int] = tl.state(default=0)
    count: tl.Counter[int]
    asked: tl.Counter[int]

    @tl.on(Seen)
    def see(self, e: Seen) -> None:
        self.count[self.owner[e.who]] += 1
        self.owner[e.who] = (e.who + self.owner[e.who]) % 3

    @tl.every(5 * tl.SECOND)
    def tell(self) -> None:
        for who, n in self.count.last(7 * tl.SECOND).items():
            self.emit(Out(who=who, n=n))
            {writes}
"""


@pytest.mark.parametrize("writes", [False, True])
def test_ticks_that_write_nothing_are_left_out(writes: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """They may go over every key, which takes longer than all events; and who wrote a key is found without their statements."""
    monkeypatch.setattr(build, "_get", lambda text, *, compile_it: emulated(text))
    ways: list[passing.Passing] = []
    go = passing.Passing.go

    def noting(way: passing.Passing, *args: Any) -> None:
        ways.append(way)
        go(way, *args)

    monkeypatch.setattr(passing.Passing, "go", noting)
    program = load_source(TICKING.format(writes="self.asked[1] += n" if writes else "pass"))()
    event: Any = spec_of(program).events[0]
    events = [event(who=n % 5, ts=n * 300_000) for n in range(60)]
    run = replay(program, MemoryLog(events, [event]), spark=False)
    out = f"Out@{time_text(15_000_000).replace(' ', 'T')}"

    def told() -> str:
        return json.dumps([
            alike(run.why(out).to_json()), run.history("count", 1, at=13_000_000).to_json(), run.history("count", 2).to_json(),
        ])  # fmt: skip

    with monkeypatch.context() as patch:
        patch.setenv(SWITCH, "native")
        without_few(patch)
        mine = told()
    by_the_loop(monkeypatch)
    assert mine == told()
    assert len(ways) > 2
    assert [way for way in ways if way.kernel.unit.ticking and way.ticks] == (ways[:1] if writes else [])
    assert any(not way.kernel.unit.ticking for way in ways)
