"""Programs whose states depend on themselves across keys: what they read decides what they write elsewhere."""

from __future__ import annotations

from typing import NamedTuple

import timelapse as tl


class Move(tl.Event):
    source: int
    target: int
    amount: int


class Fill(tl.Event):
    key: int
    amount: int


class Refused(tl.Record):
    source: int
    short: int


class Bank(tl.Program):
    """A counter of transfers; the balance is asked through helpers, the refusal undoes both writes."""

    opening: int = 60
    moved: tl.Counter[int]
    refusals: tl.Counter

    def left(self, key: int) -> int:
        return self.opening + self.moved[key]

    @tl.on(Fill)
    def fill(self, e: Fill) -> None:
        self.moved[e.key] += e.amount

    @tl.on(Move)
    def move(self, e: Move) -> None:
        self.moved[e.source] -= e.amount
        self.moved.add(e.target, e.amount)
        if self.left(e.source) < 0:
            self.reject(Refused(source=e.source, short=-self.left(e.source)))


class Bold(tl.Program):
    """Balances as values; what is read is used in every way: compared, formatted, divided, as a key and an index."""

    balance: tl.Value[int, int] = tl.state(default=50)
    owner: tl.Value[int, str | None]
    rate: tl.Value[int, float] = tl.state(default=1.0)
    closed: tl.Set[int]
    peak: tl.Max[int, int] = tl.state(default=0)
    steps: tl.Counter[tuple[int, str]]
    total: tl.Counter

    @tl.on(Fill)
    def fill(self, e: Fill) -> None:
        self.balance[e.key] += e.amount
        self.closed.discard(e.key)
        if self.balance[e.key] % 7 == 3:
            self.owner[e.key] = f"{self.balance[e.key]:03d}"
        if e.amount == 0:
            del self.balance[e.key]

    @tl.on(Move)
    def move(self, e: Move) -> None:
        have, other = self.balance[e.source], self.balance[e.target]
        if e.source in self.closed or not have >= e.amount:
            self.closed.add(e.target)
            self.total += 1
            return
        self.balance[e.source] = have - e.amount
        self.balance[e.target] += e.amount
        if have > 2 * other or abs(have - 55) < 3 or (have != other and -have > -20):
            self.rate[e.target] = self.rate[e.source] * 1.5
            self.peak.add(e.target, max(have, other, 10))
        level = ("low", "mid", "high")[min(2, have // 40)]
        self.steps[have % 5, level] += 1 if self.owner[e.source] else 2
        self.emit(Refused(source=e.source, short=have))


class Place(NamedTuple):
    x: int
    name: str


class Wander(tl.Program):
    """Tuples, lists and groups as values."""

    place: tl.Value[int, Place] = tl.state(default=Place(0, ""))
    last: tl.ListOf[int, int] = tl.state(last=3)
    seen: tl.SetOf[int, int]
    means: tl.Mean[int]

    @tl.on(Move)
    def move(self, e: Move) -> None:
        here = self.place[e.source]
        if (e.source, here.x) not in self.seen and self.means.count(e.target) < 4:
            self.place[e.target] = Place(here.x + e.amount, here.name + "a")
            self.seen.add(e.target, here.x % 3)
            self.last.append(e.target, here.x)
        self.means.add(e.source, len(self.last[e.source]))


class Ranking(tl.Program):
    """Asks for every key: cannot be told key by key."""

    score: tl.Counter[int]

    @tl.on(Move)
    def move(self, e: Move) -> None:
        best = self.score.top(1)
        if not best or best[0][0] != e.source:
            self.score[e.source] += e.amount


class Fragile(tl.Program):
    """Fails where a balance is wrong, and where a guess is."""

    limit: int = 40
    moved: tl.Counter[int]

    @tl.on(Fill)
    def fill(self, e: Fill) -> None:
        self.moved[e.key] += e.amount

    @tl.on(Move)
    def move(self, e: Move) -> None:
        if self.moved[e.source] < e.amount - self.limit:
            raise ValueError(f"{e.source} has too little")
        if self.moved[e.source] > 0:
            self.moved[e.target] += e.amount
            self.moved[e.source] -= 1


class Mixed(tl.Program):
    """Every event reads what the one before wrote: nearly all run again."""

    cells: tl.Value[int, int] = tl.state(default=1)

    @tl.on(Move)
    def move(self, e: Move) -> None:
        self.cells[e.target] = (3 * self.cells[e.source] + self.cells[e.target] + e.amount) % 10_007


class Tell(tl.Event):
    key: int
    amount: int


class Relay(tl.Program):
    """What is decided travels in derived events, to the end or to a rejection of all."""

    moved: tl.Counter[int]

    @tl.on(Fill)
    def fill(self, e: Fill) -> None:
        self.moved[e.key] += e.amount

    @tl.on(Move)
    def move(self, e: Move) -> None:
        if self.moved[e.source] >= e.amount:
            self.moved[e.source] -= e.amount
            self.send(Tell(key=e.target, amount=e.amount))

    @tl.on(Tell)
    def tell(self, e: Tell) -> None:
        self.moved[e.key] += e.amount
        if self.moved[e.key] > 90:
            self.reject("too much")
        if e.amount > 20:
            self.send(Tell(key=self.moved[e.key] % 8, amount=e.amount // 2))
