"""Which event a window over a Max, Min or First shows: compiled and by the serial loop."""

from __future__ import annotations

import random
from typing import Any

import pytest

import timelapse as tl
from tests.native.fuzz.emulate import emulated
from tests.trace.ways import by_the_loop, without_few
from timelapse.kernels.choose import SWITCH
from timelapse.kernels.native import build
from timelapse.log import MemoryLog
from timelapse.run import Run, replay
from timelapse.trace import chosen as chosen_module
from timelapse.trace.whole import WholePast


class Offer(tl.Event):
    k: int
    v: int
    sold: bool


class Best(tl.Record):
    value: int
    least: int


class Market(tl.Program):
    """The best offers of the last ten microseconds. What `sold` takes back leaves the window."""

    best: tl.Max[int, int] = tl.state(default=0)
    least: tl.Min[int, int] = tl.state(default=0)

    @tl.on(Offer)
    def offer(self, e: Offer) -> None:
        if e.sold:
            del self.best[e.k]
        self.best.add(e.k, e.v)
        self.least.add(e.k, e.v)

    @tl.on(Offer)
    def tell(self, e: Offer) -> None:
        self.emit(Best(value=self.best.last(10)[e.k], least=self.least.last(10)[e.k]))


def offers(seed: int, count: int = 120) -> list[Offer]:
    rng = random.Random(seed)
    ts, made = 0, []
    for _ in range(count):
        ts += rng.choice((0, 0, 1, 2, 3))
        made.append(Offer(k=rng.randrange(3), v=rng.randrange(6), sold=rng.random() < 0.1, ts=ts))
    return made


def expected(log: list[Offer], seq: int, worst: bool) -> int:
    """The seq of the event whose value is shown at an event: of equals the earliest in the window."""
    shown: tuple[int, int] | None = None
    now = log[seq]
    for place, e in enumerate(log[: seq + 1]):
        if e.k != now.k or e.ts <= now.ts - 10:
            continue
        if e.sold and not worst:
            shown = None
        if shown is None or (e.v < shown[0] if worst else e.v > shown[0]):
            shown = (e.v, place)
    assert shown is not None
    return shown[1]


def told(run: Run, seq: int) -> dict[str, Any]:
    """By state: the event that the window is said to show, and the value."""
    found = run.why(seq).to_json()
    sides = {}
    for read in found["reads"]:
        assert len(read["sources"]) + read["written_here"] == 1, read
        assert not read["older"]
        source = read["sources"][0]["seq"] if read["sources"] else seq
        sides[read["state"].partition(".")[0]] = (source, read["value"])
    return sides


@pytest.mark.parametrize("compiled", [True, False])
def test_the_event_whose_value_is_shown(compiled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not who wrote the all-time value, nor who offered last; ties, deletions, several events at one time."""
    monkeypatch.setattr(build, "_get", lambda text, *, compile_it: emulated(text))
    walks: list[str] = []
    go, counted = WholePast._go, chosen_module._counted

    def going(*given: Any) -> Any:
        walks.append("all")
        return go(*given)

    def counting(*given: Any) -> Any:
        walks.append("more")
        return counted(*given)

    monkeypatch.setattr(WholePast, "_go", going)
    monkeypatch.setattr(chosen_module, "_counted", counting)
    log = offers(1)
    run = replay(Market, MemoryLog(log, [Offer]), spark=False)
    if compiled:
        monkeypatch.setenv(SWITCH, "native")
        without_few(monkeypatch)
    else:
        by_the_loop(monkeypatch)
    for seq in range(0, len(log), 3):
        sides = told(run, seq)
        for state, worst in (("best", False), ("least", True)):
            by = expected(log, seq, worst)
            assert sides[state] == (by, log[by].v), (seq, state)
    assert ("all" in walks) is compiled
    assert (walks.count("more") > 3) is compiled


def test_the_first_of_a_window() -> None:
    """A First has no second write: the window shows one that changed nothing."""

    class Earliest(tl.Program):
        first: tl.First[int, int] = tl.state(default=0)

        @tl.on(Offer)
        def tell(self, e: Offer) -> None:
            self.first.add(e.k, e.v)
            self.emit(Best(value=self.first.last(10)[e.k], least=0))

    log = [Offer(k=1, v=v, sold=False, ts=ts) for v, ts in ((7, 0), (8, 6), (9, 8), (5, 13), (6, 40))]
    run = replay(Earliest, MemoryLog(log, [Offer]), spark=False)
    assert [told(run, seq)["first"] for seq in range(5)] == [(0, 7), (0, 7), (0, 7), (1, 8), (4, 6)]
    assert "first.last(10 us)[1] = 8 <- Offer 1" in run.why(3).text
    assert "first.last(10 us)[1] = 6 <- this event" in run.why(4).text
    assert run.why(3, depth=2).cause.seen[0].sources[0].trace is not None
