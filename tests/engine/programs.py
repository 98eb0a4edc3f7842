"""Programs for the engine's tests: each leans on one thing that time slicing could get wrong."""

from __future__ import annotations

from typing import NamedTuple

import timelapse as tl


class A(tl.Event):
    k: int
    v: int
    s: str


class B(tl.Event):
    k: int
    x: float
    on: bool
    tags: list[str]


FEW = [A(k=i % 3, v=i % 2, s="x", ts=i) for i in range(12)]


class Out(tl.Record, key="k"):
    k: int
    v: int


class Note(tl.Record):
    text: str
    x: float | None


class Point(NamedTuple):
    x: int
    name: str


def pair(a: int, b: int) -> tuple[int, int]:
    return (a, b) if a < b else (b, a)


class Chained(tl.Program):
    """Set -> counters -> outputs, through a helper method and tuple keys."""

    ratio: float = 1.0
    friends: tl.Set[tuple[int, int]]
    good: tl.Counter[int]
    bad: tl.Counter[int]
    words: tl.Counter[str]

    @tl.on(B)
    def befriend(self, e: B) -> None:
        if e.on:
            self.friends.add(pair(e.k, len(e.tags)))
        else:
            self.friends.discard(pair(e.k, len(e.tags)))

    def known(self, a: int, b: int) -> bool:
        return pair(a, b) in self.friends

    @tl.on(A)
    def count(self, e: A) -> None:
        if self.known(e.k, e.v):
            self.good[e.k] += 1
        else:
            self.bad[e.k] += e.v
        self.words[e.s] += 1

    @tl.on(A)
    def flag(self, e: A) -> None:
        if self.bad[e.k] > self.ratio * self.good[e.k]:
            self.emit(Out(k=e.k, v=self.words[e.s]))


class Idioms(tl.Program):
    """State that only seems to depend on itself."""

    seen: tl.Set[int]
    unique: tl.Counter
    best: tl.Value[int, int] = tl.state(default=0)
    low: tl.Value[str, int] = tl.state(default=0)
    first: tl.Value[int, str | None]
    origin: tl.First[str, int] = tl.state(default=-1)
    peak: tl.Max[int, float] = tl.state(default=-1.0)
    sums: tl.Value[int, int] = tl.state(default=10)

    @tl.on(A)
    def go(self, e: A) -> None:
        if e.k not in self.seen:
            self.seen.add(e.k)
            self.unique += 1
        if e.v > self.best[e.k]:
            self.best[e.k] = e.v
        self.low[e.s] = min(self.low[e.s], e.v)
        if e.k not in self.first:
            self.first[e.k] = e.s
        self.origin.add(e.s, e.k)
        self.sums[e.k] = self.sums[e.k] + e.v

    @tl.on(B)
    def other(self, e: B) -> None:
        self.peak.add(e.k, e.x)
        if e.on:
            self.seen.discard(e.k)
            del self.sums[e.k]

    @tl.on(A, B)
    def out(self, e: A | B) -> None:
        self.emit(Out(k=self.unique, v=self.sums[e.k]))  # type: ignore[arg-type]
        self.emit(Note(text=self.first[e.k] or "", x=self.peak.get(e.k, None)))


class Selfish(tl.Program):
    """State that depends on itself across keys, and floats that are added: chain."""

    balance: tl.Value[int, int] = tl.state(default=3)
    mean: tl.Value[int, float] = tl.state(default=0.0)
    moved: tl.Counter[int]

    @tl.on(A)
    def transfer(self, e: A) -> None:
        if self.balance[e.k] >= e.v:
            self.balance[e.k] -= e.v
            self.balance[e.v] += e.v
            self.moved[e.k] += 1
        else:
            self.emit(Out(k=e.k, v=self.balance[e.k]))

    @tl.on(B)
    def smooth(self, e: B) -> None:
        self.mean[e.k] += 0.1 * (e.x - self.mean[e.k])
        self.emit(Note(text=str(self.mean[e.k]), x=self.mean[e.k]))


class Rejecting(tl.Program):
    """Rejects before and after writes; what is counted depends on what is refused."""

    limit: int = 2
    open: tl.Counter[int]
    named: tl.Set[str]
    log: tl.Value[int, Point | None]

    @tl.on(A)
    def note(self, e: A) -> None:
        self.open[e.k] += 1
        self.log[e.k] = Point(e.v, e.s)
        self.emit(Out(k=e.k, v=self.open[e.k]))

    @tl.on(B)
    def name(self, e: B) -> None:
        for tag in e.tags:
            self.named.add(tag)
        if not e.on:
            self.reject("off")

    @tl.on(A)
    def refuse(self, e: A) -> None:
        if e.s in self.named:
            self.reject(Note(text=e.s, x=None))
        if e.v > self.limit:
            self.reject("too much")


class Cancelling(tl.Program):
    """Writes that cancel, single values, reads of every key."""

    n: tl.Counter[str]
    total: tl.Counter
    last: tl.Value[str] = tl.state(default="-")
    flags: tl.Set[bool]

    @tl.on(A)
    def go(self, e: A) -> None:
        self.n[e.s] += e.v
        self.n[e.s] -= e.v
        if e.v == 2:
            self.n[e.s] = 5
        elif e.v == 1:
            del self.n[e.s]
        self.total += e.v
        self.last = e.s  # type: ignore[assignment]

    @tl.on(B)
    def ask(self, e: B) -> None:
        self.flags.add(e.on)
        for word, count in self.n.top(2):
            self.emit(Note(text=f"{word}{count}{self.last}", x=float(self.total)))  # type: ignore[arg-type]
        if len(self.flags.items()) == 2:
            self.last = "both"  # type: ignore[assignment]


class Base(tl.Program):
    n: tl.Counter[int]

    @tl.on(A)
    def step(self, e: A) -> None:
        self.n[e.k] += 1

    @tl.on(A)
    def out(self, e: A) -> None:
        self.emit(Out(k=e.k, v=self.n[e.k]))


class Inherited(Base):
    """An override in its base's place, through super()."""

    twice: tl.Counter[int]

    def step(self, e: A) -> None:
        if e.v > 0:
            super().step(e)
        self.twice[e.k] += 2 * e.v

    @tl.on(B)
    def more(self, e: B) -> None:
        while self.n[e.k] < 2:
            self.n[e.k] += 1


ALL: tuple[type[tl.Program], ...] = (Chained, Idioms, Selfish, Rejecting, Cancelling, Inherited)
