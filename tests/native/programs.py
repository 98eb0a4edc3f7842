"""Programs that compile, for comparison with the interpreted kernel."""

from __future__ import annotations

import timelapse as tl

BASE = 3
BIG = 2**61


class A(tl.Event):
    k: int
    v: int
    s: str
    b: bool
    x: float
    raw: bytes
    at: tl.Time


class B(tl.Event):
    k: int
    s: str


class Out(tl.Record):
    n: int
    x: float
    b: bool
    s: str
    raw: bytes
    at: tl.Time


class Note(tl.Record):
    n: int
    s: str


def pair(a: int, b: int) -> tuple[int, int]:
    return (a, b) if a < b else (b, a)


def grade(n: int) -> int:
    if n > 2:
        return 2
    if n < 0:
        return -1
    m = n
    m += BASE
    return m


class Mixed(tl.Program):
    """Every supported operation of Counter and Set, tuple, string, bool and bytes keys, helpers."""

    limit: int = 1
    ratio: float = 0.5
    word: str = "a"
    friends: tl.Set[tuple[int, int]]
    words: tl.Counter[str]
    odd: tl.Counter[tuple[str, bool, bytes]]
    flags: tl.Set[bool]
    total: tl.Counter
    seen: tl.Set[bytes]
    times: tl.Counter[tl.Time]

    @property
    def many(self) -> bool:
        return self.total > self.limit  # type: ignore[operator]

    def known(self, a: int, b: int) -> bool:
        return pair(a, b) in self.friends

    def note(self, e: A, n: int) -> None:
        if n > BASE:
            return
        self.words[e.s] += n

    @tl.on(A)
    def write(self, e: A) -> None:
        self.friends.add(pair(e.k, e.v))
        if e.b and e.v != 2:
            self.friends.discard((e.k, 1))
        self.note(e, grade(e.v))
        self.odd.add((e.s, e.b, e.raw))
        self.odd.add((e.s, e.b, e.raw), -e.v)
        if e.v == 1:
            del self.words[e.s]
        elif e.v == 2:
            self.words[e.s] = 7
        else:
            self.total -= e.v
        self.total += 2
        self.flags.add(e.b)
        if "a" in e.s or e.s.startswith("é") or e.s.endswith("z"):
            self.seen.add(e.raw)
        self.times[e.at] += len(e.s) + len(e.raw)

    @tl.on(A, B)
    def either(self, e: A | B) -> None:
        if e.s == self.word or e.s in ("b", "é"):
            self.total += 1
        self.words[e.s] -= 1

    @tl.on(B)
    def early(self, e: B) -> None:
        n, m = self.words[e.s], e.k
        n, m = m, n
        if not self.many:
            self.emit(Note(n=n, s=e.s))
            return
        if 0 <= m < 5 or n == e.seq:
            self.emit(Note(n=m, s="few"))
        else:
            m = min(m, n)
        self.emit(Note(m + max(n, self.limit), e.s))

    @tl.on(A)
    def out(self, e: A) -> None:
        strangers = self.words[e.s] > self.ratio * self.total  # type: ignore[operator]
        if strangers or (self.known(e.k, e.v) and e.raw in self.seen):
            self.emit(Out(n=self.now % 7 + e.ts, x=e.x, b=strangers, s=e.s, raw=e.raw, at=e.at))
        if e.k in self.times and True in self.flags:
            self.emit(Out(n=abs(self.times[e.at]), x=e.v, b=e.b, s="", raw=b"", at=e.v))


class Failing(tl.Program):
    """Raises, divides by zero, leaves int64."""

    n: tl.Counter[int]

    @tl.on(A)
    def go(self, e: A) -> None:
        self.n[e.k] += e.v
        self.emit(Note(n=e.k, s=e.s))
        if e.s == "zz" and self.n[e.k] > 2:
            raise ValueError("too many")

    @tl.on(B)
    def divide(self, e: B) -> None:
        if e.k * 3 // (self.n[e.k] + 1) > 1:
            self.emit(Note(n=1, s="large"))


class Overflowing(tl.Program):
    """Sums that leave int64 on the way."""

    n: tl.Counter[int]
    big: tl.Counter[int]

    @tl.on(A)
    def go(self, e: A) -> None:
        self.n[e.k] += e.v * BIG
        self.n[e.k] -= e.v * BIG
        if self.n[e.k] == 0:
            self.big[0] += e.k
