"""Keys that are fields of events are told in arrays; stops follow the events that are left of a log."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import timelapse as tl
from tests.native.fuzz.emulate import emulated
from tests.trace.ways import by_the_loop, without_few
from timelapse.kernels.choose import SWITCH
from timelapse.kernels.native import build
from timelapse.log import MemoryLog
from timelapse.model.events import Event
from timelapse.run import replay
from timelapse.trace import history, thin
from timelapse.trace.columns import Columns
from timelapse.trace.knowledge import Key
from timelapse.trace.moments import Past
from timelapse.trace.passing import Passing


class Pair(tl.Event):
    a: int
    b: int
    s: str
    when: tl.Time
    sure: bool


class Seen(tl.Program):
    """Reads of many kinds, under keys that are fields and under others."""

    one: tl.Counter[int]
    two: tl.Counter[tuple[int, str]]
    set_: tl.SetOf[int, int]
    map_: tl.MapOf[str, int, int | None]
    mean: tl.Mean[int]
    at: tl.Counter[tl.Time]
    sure: tl.Counter[bool]
    made: tl.Counter[int]
    out: tl.Counter[int]

    @tl.on(Pair)
    def write(self, e: Pair) -> None:
        self.one[e.a] += 1
        self.two[e.a, e.s] += 1
        self.set_.add(e.a, e.b)
        self.map_[e.s, e.a] = e.b
        self.mean.add(e.a, e.b)
        self.at[e.when] += 1
        self.sure[e.sure] += 1
        self.made[e.a % 3] += 1

    @tl.on(Pair)
    def read(self, e: Pair) -> None:
        if self.one[e.b] > 1 and self.two[e.b, e.s] > 0:
            self.out[e.a] += 1
        if (e.b, e.a) in self.set_ or self.set_.count(e.b) > 2 or self.map_[e.s, e.b] == 3:
            self.out[e.a] += 2
        if self.mean[e.b] or self.at[e.when] > 2 or self.sure[e.sure] > 9 or self.made[e.b % 3] > 4:
            self.out[e.a] += 3


def _pairs(count: int) -> list[Event]:
    rng = np.random.default_rng(4)
    drawn = rng.integers(0, 6, (count, 4)).tolist()
    return [
        Pair(a=a, b=b, s="xyz"[c % 3], when=d, sure=d > 2)._at(n * tl.SECOND, n)
        for n, (a, b, c, d) in enumerate(drawn)
    ]


def test_keys_that_are_fields_are_those_that_the_events_give() -> None:
    events = _pairs(80)
    past = Past(replay(Seen, MemoryLog(events, [Pair]), spark=False))
    known = past.stepwise
    asks: tuple[Key, ...] = known.part(frozenset({"out"})).asks[Pair]
    columns = Columns(past.reader, 0, 80, {"Pair": ["a", "b", "s", "when", "sure"]})
    seqs = np.arange(3, 70, 2)
    plain = 0
    for asked in asks:
        if asked.plain is not None:
            plain += 1
            wanted = {known.place(asked, events[seq]) for seq in seqs.tolist()}
            assert asked.stored(columns.values("Pair", seqs, asked.plain)) == wanted, asked
    told = {asked.spec.name for asked in asks if asked.plain is not None}
    assert {"one", "two", "set_", "map_", "mean"} <= told
    assert told.isdisjoint({"at", "sure", "made"})
    assert plain > 5


class Told(tl.Event):
    of: int
    to: int


class Answers(tl.Program):
    """Who answered within the last minute, and how often in all: `answered` depends on pairs, which depend on one another."""

    waiting: tl.Counter[tuple[int, int]]
    answered: tl.Counter[int]

    @tl.on(Told, after=tl.MINUTE)
    def leave(self, e: Told) -> None:
        if self.waiting[e.of, e.to] > 0:
            self.waiting[e.of, e.to] -= 1

    @tl.on(Told)
    def tell(self, e: Told) -> None:
        if self.waiting[e.to, e.of] > 0:
            self.answered[e.to] += 1
        self.waiting[e.of, e.to] += 1


def test_what_others_depend_on_is_gone_through_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the events of a key and of the pairs that it depends on happen again, and tell what all would."""
    monkeypatch.setattr(build, "_get", lambda text, *, compile_it: emulated(text))
    rng = np.random.default_rng(5)
    events: list[Event] = [
        Told(of=int(a), to=int(b))._at(n * 7 * tl.SECOND, n)
        for n, (a, b) in enumerate(rng.integers(0, 9, (300, 2)))
    ]
    run = replay(Answers, MemoryLog(events, [Told]), spark=False)
    ways: list[int | None] = []
    begin = Passing.__init__

    def counting(
        self: Passing, past: Any, hi: int, end: int, left: Any = None, *args: Any, **given: Any
    ) -> None:
        begin(self, past, hi, end, left, *args, **given)
        ways.append(None if left is None else len(left.seqs))

    with monkeypatch.context() as patch:
        patch.setenv(SWITCH, "native")
        without_few(patch)
        patch.setattr(thin, "LEAST", 0)
        patch.setattr(Passing, "__init__", counting)
        mine = [history(run, "answered", key, last=50).text for key in range(9)]
    with monkeypatch.context() as patch:
        by_the_loop(patch)
        assert mine == [history(run, "answered", key, last=50).text for key in range(9)]
    assert ways
    assert all(left is not None and 0 < left < 100 for left in ways)


class Vote(tl.Event):
    of: int
    score: float


class Lowest(tl.Program):
    """A window shows one of several values."""

    lowest: tl.Min[int, float | None]

    @tl.on(Vote)
    def vote(self, e: Vote) -> None:
        self.lowest.add(e.of, e.score)
        self.lowest.last(tl.HOUR)[e.of]


def test_stops_follow_the_events_that_are_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """A key that was written long ago and is often tried since is told in two ways through what is left."""
    monkeypatch.setattr(build, "_get", lambda text, *, compile_it: emulated(text))
    events: list[Event] = [
        Vote(of=n % 4, score=float(max(3000 - 3 * n, 2000) + n % 5))._at(n * tl.SECOND, n)
        for n in range(3000)
    ]
    run = replay(Lowest, MemoryLog(events, [Vote]), spark=False)
    stops: list[int] = []
    pass_ = Past._pass

    def counting(self: Past, slice_id: int, reader: Any, own: Any, *args: Any, **given: Any) -> None:
        stops.append(len(own))
        pass_(self, slice_id, reader, own, *args, **given)

    from timelapse.trace import matter, writers

    with monkeypatch.context() as patch:
        patch.setenv(SWITCH, "native")
        without_few(patch)
        patch.setattr(thin, "LEAST", 0)
        patch.setattr(matter, "_MOST", 16)
        patch.setattr(matter, "_BACK", (1 << 62, 64))
        for name, value in (("_STOPS", 16), ("_EVENLY", 64), ("_CLOSER", 64), ("_LEAST", 4)):
            patch.setattr(writers, name, value)
        patch.setattr(Past, "_pass", counting)
        mine = history(run, "lowest", 0, last=2).text
    with monkeypatch.context() as patch:
        by_the_loop(patch)
        assert mine == history(run, "lowest", 0, last=2).text
    assert len(stops) == 2, stops
