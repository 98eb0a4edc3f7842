"""MapOf, SetOf and Mean by method, with what looks back on them."""

from __future__ import annotations

import random
from typing import Any

import pytest

import timelapse as tl
from timelapse.testing import check_replay


class Hit(tl.Event):
    k: int
    v: int


class Told(tl.Record, key="b"):
    a: int
    b: int


class ByMethod(tl.Program):
    """What MapOf, SetOf and Mean are told by method, with the pair, and by name."""

    lag: int = 0
    fields: tl.MapOf[int, tuple[int, int], int] = tl.state(default=-1)
    members: tl.SetOf[int, int]
    mean: tl.Mean[int] = tl.state(default=0.0)

    @tl.on(Hit)
    def go(self, e: Hit) -> None:
        at, pair = self.now + self.lag, (e.k, (e.v, e.v))
        if e.v % 3 == 0:
            self.fields.discard(pair, at=at)
            self.members.discard(member=e.v, key=e.k, at=at)
            self.mean.remove(e.k, value=e.v, at=at)
        else:
            self.fields.set(value=e.v, key=(e.k, (e.v, 0)), at=at)
            self.members.add(e.k, e.v, at=at)
            self.mean.add(key=e.k, value=e.v, at=at)
        self.fields.set(pair, e.v)
        self.fields.discard(key=(1, (e.v, 0)))
        self.tell(self.fields.last(3).get(pair), self.fields.ago(2)[e.k, (e.v, 0)])
        self.tell(self.fields.last(3).count(e.k), len(self.fields.ago(1).fields(e.k)))
        self.tell(self.fields.last(2).get((e.k, (1, 0))), int(pair in self.fields.last(1)))
        self.tell(len(self.members.last(3)[e.k]), self.members.ago(2).count(e.k))
        self.tell(self.mean.last(3).sum(e.k), self.mean.ago(2).count(e.k))

    def tell(self, a: int, b: int) -> None:
        self.emit(Told(a=a, b=b))


class Looked(tl.Program):
    """The same pairs under one look only, in the forms of log that are told apart by what looks back."""

    lag: int = 0
    fields: tl.MapOf[int, int, int] = tl.state(default=0)

    @tl.on(Hit)
    def go(self, e: Hit) -> None:
        self.fields.set((e.k, e.v), e.v, at=self.now + self.lag)
        if e.v == 2:
            self.fields.discard((e.k, 1), at=self.now + self.lag)
        self.emit(Told(a=self.fields.last(3)[e.k, 1], b=e.seq))


@pytest.mark.parametrize("program", [ByMethod, Looked])
@pytest.mark.parametrize("lag", [0, 1])
def test_grouped_kinds_by_method(program: Any, lag: int) -> None:
    """Dated and undated, under all that looks back: serial, in slices, and what looks into such runs."""
    chance = random.Random(5)
    events = [Hit(k=chance.randrange(2), v=chance.randrange(4), ts=n // 2) for n in range(24)]
    made = program(lag=lag)
    expected = check_replay(made, events, slices=(3,), strategies=("staged", "chain"))
    run = tl.replay(made, events, slices=3, spark=False, strategy="staged")
    assert run.verify().ok
    for at in (events[3].ts, events[11].ts, events[-1].ts + 1):
        assert run.state("fields", at=at).equals(expected.state("fields", at=at))
    for row in run.stored("Told").to_pylist()[-2:]:
        assert "fields.last(3 us)[" in run.why(f"Told@{row['ts']}#1").text
