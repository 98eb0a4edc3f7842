"""Programs that write and read every state kind, with values of every type, that reject, and that leave to Python."""

from __future__ import annotations

from typing import NamedTuple

import timelapse as tl
from tests.native.programs import BIG, A, B, Note, Out


class Point(NamedTuple):
    n: int
    x: float
    s: str | None


class Kinds(tl.Program):
    """Every operation of Value, First, Max and Min, with scalar values."""

    level: tl.Value[int, int] = tl.state(default=0)
    high: tl.Value[int, int] = tl.state(default=7)
    mean: tl.Value[str, float] = tl.state(default=-0.0)
    name: tl.Value[tuple[int, str], str] = tl.state(default="none")
    raw: tl.Value[bytes, bytes] = tl.state(default=b"")
    flag: tl.Value[bool, bool] = tl.state(default=True)
    when: tl.Value[int, tl.Time] = tl.state(default=3)
    single: tl.Value[float] = tl.state(default=0.5)
    best: tl.Max[int, int] = tl.state(default=1)
    top: tl.Max[str, float] = tl.state(default=0.0)
    low: tl.Min[int, float] = tl.state(default=9.0)
    least: tl.Min[bool] = tl.state(default=True)
    first: tl.First[int, str] = tl.state(default="")
    once: tl.First[float] = tl.state(default=1.0)

    @tl.on(A)
    def write(self, e: A) -> None:
        self.level[e.k] = e.v
        self.high.setdefault(e.k, e.v)
        if e.b:
            self.level[e.v] += e.k
            del self.high[e.v]
        self.mean[e.s] = e.x
        self.name[e.k, e.s] = e.s
        self.raw[e.raw] = e.raw
        self.flag[e.b] = e.v > 1
        self.when[e.k] = e.at
        if e.v == 3:
            self.raw.pop(e.raw)
            del self.name[e.k, "a"]
            del self.single
        else:
            self.single = e.x  # type: ignore[assignment]
        self.first.add(e.k, e.s)
        self.once.add(e.x)
        self.best.add(e.k, e.v)
        self.least.add(e.b)
        if e.x == e.x:
            self.top.add(e.s, e.x)
            self.low.add(e.v, e.x * 2.0)
        if e.v == 2:
            del self.best[e.k]

    @tl.on(B)
    def read(self, e: B) -> None:
        self.emit(Note(n=self.level[e.k] + self.best[e.k] + self.when[e.k], s=self.name[e.k, e.s]))
        self.emit(Out(n=self.high.get(e.k, 5), x=self.mean[e.s], b=self.flag[True], s=self.first[e.k], raw=self.raw[b"a"],
                      at=self.when.get(e.k)))  # fmt: skip
        self.emit(Out(1, self.single, e.k in self.low, "", b"", 0))  # type: ignore[arg-type]
        self.emit(Out(n=2, x=self.top[e.s], b=e.k in self.level, s=self.first.get(e.k, "z"), raw=b"", at=0))
        self.emit(Out(n=3, x=self.low[e.k], b=self.least.get(), s="", raw=b"", at=0))
        self.emit(Out(n=self.level.pop(e.k), x=self.once.get(), b=e.k not in self.best, s="", raw=b"", at=0))
        self.emit(Note(n=self.high.setdefault(e.k, 4), s=self.name.pop((e.k, e.s))))


class Folds(tl.Program):
    """Effects that compose: sums, idioms of maxima and minima, first writes; with deletions between."""

    total: tl.Value[int, int] = tl.state(default=5)
    peak: tl.Value[int, float] = tl.state(default=1.0)
    floor: tl.Value[int, int] = tl.state(default=2)
    always: tl.Value[int, int] = tl.state(default=0)
    seen: tl.Value[int, str] = tl.state(default="")
    best: tl.Max[int, float] = tl.state(default=0.0)
    worst: tl.Min[int, int] = tl.state(default=0)
    yes: tl.Max[int, bool] = tl.state(default=False)
    maybe: tl.Max[int, int | None]
    first: tl.First[int, float] = tl.state(default=0.0)
    n: tl.Counter[int]
    keys: tl.Set[int]

    @tl.on(A)
    def go(self, e: A) -> None:
        if e.b:
            self.total[e.k] += e.v
        elif e.v == 1:
            self.total[e.k] = e.v
        if e.x > self.peak[e.k]:
            self.peak[e.k] = e.x
        if e.v < self.floor[e.k]:
            self.floor[e.k] = e.v
        self.always[e.k] = max(self.always[e.k], e.v)
        self.seen.setdefault(e.k, e.s)
        if e.x == e.x:
            self.best.add(e.k, e.x)
        self.worst.add(e.k, e.v)
        self.yes.add(e.v, e.b)
        self.maybe.add(e.k, e.v)
        self.first.add(e.k, e.x)
        self.n[e.k] += e.v
        self.keys.add(e.v)

    @tl.on(B)
    def forget(self, e: B) -> None:
        if e.s == "a":
            del self.total[e.k]
            del self.peak[e.k]
            del self.best[e.k]
            del self.n[e.k]
        if e.s == "b":
            del self.floor[e.k]
            del self.seen[e.k]
            del self.always[e.k]
            del self.worst[e.k]
            del self.maybe[e.k]
            self.keys.discard(e.k)
        self.emit(Note(n=self.always[e.k] + self.worst.get(e.k), s=self.seen[e.k]))
        self.maybe.add(e.k + 1, self.always[e.k])


class Compound(tl.Program):
    """Optionals, tuples and NamedTuples; keys of many parts."""

    last: tl.Value[int, int | None]
    text: tl.Value[str, str | None]
    pair: tl.Value[int, tuple[int, float]] = tl.state(default=(1, -0.0))
    point: tl.Value[int, Point] = tl.state(default=Point(0, 0.5, None))
    deep: tl.Value[tuple[int, bool, str, bytes], tuple[int, tuple[str, bool]] | None]
    once: tl.First[int, Point | None]
    wide: tl.Set[tuple[int, int, int, int, str]]

    @tl.on(A)
    def write(self, e: A) -> None:
        if e.b:
            self.last[e.k] = e.v
            self.text[e.s] = None
            self.point[e.v] = (e.k, e.x, e.s)  # type: ignore[assignment]
            self.deep[e.k, e.b, e.s, e.raw] = (e.v, (e.s, e.b))
        else:
            self.last[e.k] = None
            self.text[e.s] = e.s
            self.point[e.v] = (e.v, -e.x, None)  # type: ignore[assignment]
            self.deep[e.k, True, e.s, b"a"] = None
        self.last[e.v] = self.last[e.k]
        self.text.setdefault("zz", self.text["a"])
        self.pair[e.k] = (e.v, e.x)
        self.once.add(e.k, self.point[e.k])
        self.point.setdefault(e.k + 1, self.point[e.k])
        self.wide.add((e.k, e.v, 1, 2, e.s))
        if e.v == 2:
            self.wide.discard((e.k, 2, 1, 2, "a"))
            del self.point[e.k]
            self.last.pop(e.k)

    @tl.on(B)
    def read(self, e: B) -> None:
        n, x = self.pair[e.k]
        self.emit(Out(n=n, x=x, b=(e.k, 1, 1, 2, e.s) in self.wide, s=e.s, raw=b"", at=0))
        n, x = self.pair.get(e.k, (5, 0.5))
        self.emit(Out(n=n, x=x, b=e.k in self.once, s="", raw=b"", at=0))
        self.deep[e.k, True, e.s, b"x"] = self.deep[e.k, True, e.s, b"a"]


class Rejecting(tl.Program):
    """Rejects after writes and emits, from helpers, with reasons and records."""

    balance: tl.Value[int, int] = tl.state(default=2)
    count: tl.Counter[int]
    names: tl.Set[str]
    last: tl.Value[int, str] = tl.state(default="")

    def take(self, k: int, n: int) -> int:
        if n > self.balance[k]:
            self.reject("too little")
        self.balance[k] -= n
        return n

    @tl.on(A)
    def move(self, e: A) -> None:
        self.count[e.k] += 1
        self.names.add(e.s)
        self.emit(Note(n=e.k, s=e.s))
        n = self.take(e.k, e.v)
        self.balance[e.v] += n
        self.last[e.k] = e.s
        if e.b and e.s == "b":
            self.reject(Note(n=e.v, s=e.s))
        self.emit(Note(n=n, s="moved"))

    @tl.on(A, B)
    def check(self, e: A | B) -> None:
        self.last[e.k] = "checked"
        if self.count[e.k] > 3:
            del self.count[e.k]
            self.reject(e.s)
        if e.s == "zz":
            self.reject()

    @tl.on(B)
    def note(self, e: B) -> None:
        self.names.discard(e.s)
        self.emit(Note(n=self.balance[e.k], s=self.last[e.k]))


class Leaving(tl.Program):
    """Leaves to Python in the middle of events, after writes and emits, and rejects there too."""

    n: tl.Counter[int]
    big: tl.Value[str, int] = tl.state(default=1)
    x: tl.Value[int, float] = tl.state(default=0.0)
    top: tl.Max[int, int] = tl.state(default=0)
    first: tl.First[str, str] = tl.state(default="")
    keys: tl.Set[tuple[int, str]]

    @tl.on(A)
    def go(self, e: A) -> None:
        self.n[e.k] += 1
        self.keys.add((e.v, e.s))
        self.first.add(e.s, "a")
        self.emit(Note(n=self.n[e.k], s=e.s))
        self.big[e.s] += e.v * BIG
        self.top.add(e.k, self.big[e.s])
        self.big[e.s] -= e.v * BIG
        self.x[e.k] += e.x / e.v if e.v != 3 else 1.0
        if self.n[e.k] > 2:
            self.emit(Note(n=1, s="after"))
            self.n[e.v] -= 2
            self.reject("often" if e.b else e.s)
        if e.k == 2:
            self.keys.discard((e.v, e.s))
        self.emit(Out(n=self.n[e.k], x=self.x[e.k], b=e.b, s=self.first[e.s], raw=b"", at=0))

    @tl.on(B)
    def read(self, e: B) -> None:
        self.n[e.k] = self.big[e.s] * BIG // BIG
        if self.n[e.k] * BIG * 4 > 3 and e.k != 1:
            del self.n[e.k]
            self.emit(Note(n=self.top[e.k], s=self.first[e.s]))


class Filtered(tl.Program):
    """Rejects by the event alone, after writes: deltas are undone too."""

    n: tl.Counter[int]
    keys: tl.Set[int]
    total: tl.Value[int, int] = tl.state(default=5)
    peak: tl.Max[int, int] = tl.state(default=0)
    first: tl.First[int, str] = tl.state(default="")

    @tl.on(A)
    def go(self, e: A) -> None:
        self.n[e.k] += e.v
        self.keys.add(e.v)
        self.total[e.k] += 1
        self.peak.add(e.k, e.v)
        self.first.add(e.v, e.s)
        if e.v == 2:
            del self.n[e.k]
            self.keys.discard(e.k)
            del self.peak[e.k]
        if e.s == "zz" or (e.b and e.k == 1):
            self.reject(e.s)


class Refusing(tl.Program):
    """Max takes no NaN."""

    best: tl.Max[int, float] = tl.state(default=0.0)

    @tl.on(A)
    def go(self, e: A) -> None:
        self.best.add(e.k, e.x if e.v == 1 else 0.5)
        self.emit(Note(n=e.v, s=e.s))
