"""States of which no key gets a value back that it has left."""

from __future__ import annotations

import timelapse as tl
from tests.trace.test_thin import Spreading
from timelapse.analysis import analyse
from timelapse.analysis.onward import onward_states


class Bid(tl.Event):
    who: int
    price: int
    note: str | None


class Onward(tl.Program):
    first: tl.Value[int, int | None]
    best: tl.Value[int, int] = tl.state(default=0)
    least: tl.Value[int, int | None]
    name: tl.Value[int, str | None]
    count: tl.Counter[int]
    down: tl.Counter
    last: tl.Value[int | None]

    @tl.on(Bid)
    def bid(self, e: Bid) -> None:
        if self.first[e.who] is None:
            self.first[e.who] = e.price
        if e.price > self.best[e.who]:
            self.best[e.who] = e.price
        known = self.least[e.who]
        if known is None or known > e.price:
            self.least[e.who] = e.price
        for text in ("a", "b"):
            if not (self.name[e.who] is not None):
                self.name[e.who] = text
        self.count[e.who] += 1
        self.count.add(e.price, 2)
        self.down -= 1
        if self.last is None or e.price < self.last:  # type: ignore[operator]
            self.last = e.price  # type: ignore[assignment]


class Back(tl.Program):
    """Of each it is not so, or not seen."""

    none: tl.Value[int, int | None]
    equal: tl.Value[int, int] = tl.state(default=0)
    both: tl.Value[int, int] = tl.state(default=0)
    gone: tl.Value[int, int] = tl.state(default=0)
    stale: tl.Value[int, int | None]
    other: tl.Value[int, int | None]
    plain: tl.Value[int, int] = tl.state(default=0)
    aside: tl.Value[int, int] = tl.state(default=0)
    moved: tl.Value[int, int] = tl.state(default=0)
    part: tl.Value[int, float] = tl.state(default=0.0)
    seven: tl.Value[int, int | None] = tl.state(default=7)
    again: tl.Value[int, int] = tl.state(default=9)
    beside: tl.Value[int, int] = tl.state(default=9)
    count: tl.Counter[int]
    seen: tl.Set[int]

    @tl.on(Bid)
    def bid(self, e: Bid) -> None:
        if self.none[e.who] is None:
            self.none[e.who] = len(e.note) if e.note else None
        if e.price >= self.equal[e.who]:
            self.equal[e.who] = e.price
        if e.price > self.both[e.who]:
            self.both[e.who] = e.price
        if e.price < self.both[e.who]:
            self.both[e.who] = e.price
        if e.price > self.gone[e.who]:
            self.gone[e.who] = e.price
        if e.price == 3:
            del self.gone[e.who]
        known = self.stale[e.who]
        for price in (5, e.price):
            if known is None:
                self.stale[e.who] = price
        if self.other[e.price] is None:
            self.other[e.who] = e.price
        self.plain[e.who] = e.price
        if e.price > self.aside[e.who] or e.price == 2:
            self.aside[e.who] = e.price
        price = e.price
        if price > self.moved[e.who]:
            price = 1
            self.moved[e.who] = price
        if e.price > self.part[e.who]:
            self.part[e.who] = e.price
        if self.seven[e.who] is None:
            self.seven[e.who] = e.price
        price = e.price
        if price < self.again[e.who]:
            for more in (1, 2):
                self.again[e.who] = price
                price += more
        who = e.who
        if e.price < self.beside[who]:
            while who < 9:
                self.beside[who] = e.price
                who += 1
        self.count[e.who] += e.price
        self.seen.add(e.who)


def test_what_goes_on() -> None:
    assert onward_states(analyse(Onward)) == set(analyse(Onward).spec.states)
    assert onward_states(analyse(Spreading)) == {"label", "busy"}


def test_what_may_come_back() -> None:
    assert onward_states(analyse(Back)) == frozenset()
