"""Programs written in ordinary Python compile, and compiled they do what Python does."""

from __future__ import annotations

import pytest

from tests.native.agree import agree
from tests.writers.sources import load_source
from timelapse.analysis import analyse, final_pass
from timelapse.kernels.native.lowering.lower import Lowering
from timelapse.kernels.native.refused import Refused

HEAD = """
import math
import re
from typing import NamedTuple
import timelapse as tl

class E(tl.Event):
    k: int
    v: int
    o: int | None
    s: str
    t: str | None
    b: bool
    f: float
    g: float | None
    at: tl.Time
    xs: list[int]
    fs: list[float]
    ws: list[str]
    bs: list[bool]

class Out(tl.Record):
    n: int

class Wide(tl.Record):
    n: int | None
    x: float
    s: str | None
    g: float | None
    b: bool

class Point(NamedTuple):
    x: int
    y: float = 0.5
"""

PROGRAMS = {
    "loops": """
def first_above(xs, limit=3, *, other=-1):
    for i, x in enumerate(xs):
        if x > limit:
            return i * 10 + x
    return other

def collatz(n):
    steps = 0
    while n > 1:
        if n % 2:
            n = 3 * n + 1
        else:
            n //= 2
        steps += 1
        if steps > 20:
            break
    else:
        steps += 100
    return steps

class P(tl.Program):
    n: tl.Counter[int]
    pairs: tl.Counter[tuple[int, int]]

    @tl.on(E)
    def go(self, e):
        total = 0
        best = None
        for x in e.xs:
            if x < 0:
                continue
            if best is None or x > best:
                best = x
            total += x
        else:
            total += 1000
        for i in range(min(e.v, 6)):
            for j in range(i, 5, 2):
                if j == 4:
                    break
                if i == 3:
                    continue
                self.pairs[(i, j)] += 1
                total += j
        for i in range(10, max(e.v, -6), -3):
            total -= i
        for a, b in zip(e.xs, e.fs):
            if b > 0.5:
                total += a
        for x in reversed(e.xs):
            self.n[x] += 1
            if x == 2:
                break
        for kind in (1, 2, e.k):
            if kind == e.v:
                break
            if kind == 2:
                continue
            self.n[kind] += 7
        else:
            self.n[99] += 1
        for i, x in enumerate(e.xs[1:-1], 5):
            total += i * x
        self.emit(Out(n=total))
        self.emit(Out(n=first_above(e.xs)))
        self.emit(Out(first_above(e.xs, other=e.k, limit=1)))
        self.emit(Out(collatz(e.v)))
        if best is not None:
            self.emit(Out(n=best))
""",
    "lists": """
class P(tl.Program):
    n: tl.Counter[int]
    words: tl.Set[str]

    @tl.on(E)
    def go(self, e):
        if e.xs and e.xs[0] in e.xs[1:]:
            self.n[1] += len(e.xs)
        if len(e.xs) > 2:
            self.n[2] += e.xs[-1] - e.xs[1]
        if any(w == "a" or w == e.s for w in e.ws):
            self.n[3] += 1
        if all(x > 0 for x in e.xs if x != 2):
            self.n[4] += 1
        self.n[5] += sum(x * x for x in e.xs) + sum(e.xs) - sum(e.bs) + len([x for x in e.xs if x])
        self.n[6] += max(e.xs, default=-3) + min((x + 1 for x in e.xs), default=e.v)
        if e.fs:
            m = max(e.fs)
            if sum(e.fs) > 1.5 and m > 0.0:
                self.n[7] += 1
        for w in e.ws:
            self.words.add(w)
            if w in ("b", "x@y.z"):
                self.n[8] += 1
        if "a b" in e.ws and True in e.bs:
            self.n[9] += 1
        if len(sorted(e.xs)) > 1 and sorted(e.xs)[0] > -1:
            self.n[10] += 1
        if not e.ws or len({*e.ws}) == len(e.ws):
            self.n[11] += 1
        self.n[12] += sum(a * b for a, b in zip(e.xs, e.xs[1:]))
""",
    "optionals": """
def known(t, default="none"):
    return t if t is not None else default

class P(tl.Program):
    limit: int | None = None
    last: tl.Value[int, int | None]
    spot: tl.Value[int, Point] = tl.state(default=Point(1))
    n: tl.Counter[str]

    @tl.on(E)
    def go(self, e):
        before = self.last[e.k]
        if e.o is None:
            now = e.v
        elif e.o > 3 and e.o != e.v:
            now = None
        else:
            now = e.o
        self.last[e.k] = now
        self.n[known(e.t)] += 1
        if e.t:
            self.n["yes"] += 1
        if e.t == "a" or e.t in ("b", "é"):
            self.n["letter"] += 1
        if before == now:
            self.n["same"] += e.o or 5
        if self.limit is not None and e.v > self.limit:
            return
        self.emit(Wide(n=before, x=e.f, s=e.t, g=e.g, b=e.o is not None))
        self.emit(Wide(n=None, x=e.v, s="x", g=e.f if e.b else None, b=not e.g))
        self.emit(Wide(n=now and now + 1, x=e.g if e.g is not None else 0.0, s=None, g=e.v, b=now is None))

    @tl.on(E)
    def points(self, e):
        p = self.spot[e.k]
        q = Point(y=e.f, x=e.v)
        x, y = q
        if p == q or (p.x, e.v) < (x, 3):
            self.emit(Out(p[0] + q.x))
        nested = ((e.k, e.b), (e.v, e.s))
        (a, flag), (b, word) = nested
        if nested[0] != (1, True) and p.y != y and flag:
            self.n[word] += a - b
        self.spot[e.k] = q if e.b else Point(p.x)
""",
    "calls": """
class Base(tl.Program):
    n: tl.Counter[int]
    scale: int = 3

    def step(self, e, by=2, *, sign=1):
        self.n[e.k] += by * sign
        return self.n[e.k]

    @staticmethod
    def twice(v):
        return v + v

    @property
    def many(self):
        return self.n[0] > 2 or self.n[1] > 5

    @tl.on(E)
    def go(self, e):
        self.step(e)

class P(Base):
    def step(self, e, by=2, *, sign=1):
        got = super().step(e, by=by + 1, sign=sign)
        return got if got % 2 else -got

    @tl.on(E)
    def go(self, e):
        super().go(e)
        a = b = self.step(e, sign=-1, by=self.twice(e.v))
        a += 1
        del b
        c: int = divmod(a, 3)[1]
        (n := a - 1)
        assert n == a - 1
        if (m := self.scale * c) > 2 and not self.many:
            self.emit(Out(m + n))
        match e.k:
            case 1 | 2:
                self.emit(Out(n=1))
            case 3 if e.b:
                self.emit(Out(n=2))
            case _:
                self.emit(Out(n=round(e.f) + math.floor(e.f) + abs(-e.k)))
""",
    "texts": """
BAD = frozenset({"x@y.z", "ab"})
RANK = {"a": 1, "b": 2}
MAIL = re.compile(r"\\w+@(\\w+)")

def domain(text):
    parts = text.split("@")
    if len(parts) > 1:
        return parts[1]
    return ""

class P(tl.Program):
    prefix: str = "a"
    n: tl.Counter[str]
    seen: tl.Set[str]

    @tl.on(E)
    def go(self, e):
        text = e.s.lower().strip()
        if text.startswith(self.prefix) or "@" in text:
            self.n[text] += 1
        if MAIL.search(e.s) and not e.b:
            self.n["mail"] += 1
        if (found := domain(e.s)) and found not in self.seen:
            self.seen.add(found)
            self.n[found] += len(found)
        if e.s in BAD:
            self.n["bad"] += 1
        self.n["rank"] += RANK.get(e.s, 0)
        if e.t is not None and e.t.isalpha():
            self.n[e.t.upper()] += 1
        key = f"{e.k}:{e.s[:1]}"
        self.n[key] += 1
        if e.s.isdecimal() and int(e.s) > 3:
            self.n["int"] += 1
        if e.s < "b" and e.s.count("a") == 1:
            self.n["order"] += len(e.s.encode())
""",
    "rejects": """
class P(tl.Program):
    n: tl.Counter[int]

    def check(self, e, x):
        for y in e.xs:
            if y == x:
                self.reject("twice" if e.b else e.s)
            self.n[y] += 1

    @tl.on(E)
    def go(self, e):
        self.n[e.k] += 1
        self.emit(Out(n=self.n[e.k]))
        if e.v == 1:
            return self.reject(Out(n=e.k))
        for x in e.xs:
            self.check(e, x * 2)
            self.emit(Out(n=x))

    @tl.on(E)
    def late(self, e):
        if e.v == 3 and e.b:
            self.reject()
        self.n[e.v] -= 1
""",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_ordinary_python_compiles(name: str) -> None:
    """The same effects, outputs and rejections as interpreted; few events are left to Python."""
    ran, left = agree(HEAD + PROGRAMS[name])
    assert ran
    if name != "texts":  # int("a") raises
        assert left < 0.1 * ran


@pytest.mark.parametrize("name", PROGRAMS)
def test_at_the_edges(name: str) -> None:
    """The same with values at the limits: what Python alone can do is left to it."""
    for seed in range(3):
        agree(HEAD + PROGRAMS[name], edges=True, seed=seed, count=20)


REFUSALS = {
    "self.n[0] += int(self.n[1] ** 0.5)": "go: `**` of floats",
    "try:\n            self.n[0] += 1\n        except ValueError:\n            pass": "go: the statement `try`",
    "x = 1 if e.b else 1.5\n        self.n[0] += 1": "go: a choice between int and float",
    "x = 0\n        for f in e.fs:\n            x += f\n        self.n[0] += 1":
        "go: the loop changes x from int to float",
    "self.n[0] += hash(self.n[1])": "go: hash() of int",
    "x = [self.n[i] for i in range(3)]\n        self.n[0] += 1": "go: a comprehension whose result is kept",
    "self.n[0] += 4611686018427387904 * 16": "go: the integer 73786976294838206464, which is outside int64",
    "with open('x') as f:\n            pass": "go: the statement `with`",
}  # fmt: skip


@pytest.mark.parametrize("body", REFUSALS)
def test_what_is_not_compiled_says_why_and_where(body: str) -> None:
    """In the words of someone who does not know the compiler, with the line of the file."""
    source = (
        HEAD
        + f"\nclass P(tl.Program):\n    n: tl.Counter[int]\n    @tl.on(E)\n    def go(self, e):\n        {body}\n"
    )
    cls = load_source(source)
    with pytest.raises(Refused) as refused:
        Lowering(cls(), final_pass(analyse(cls)), final=True).run()
    assert refused.value.reason.startswith(REFUSALS[body])
    line = source.splitlines()[refused.value.line - 1].strip()
    assert line in [part.strip() for part in body.splitlines()]
