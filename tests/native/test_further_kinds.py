"""Mean, SetOf, MapOf and Smoothed, compiled and interpreted: the same to the last bit."""

from __future__ import annotations

import pytest

from tests.native.agree import agree
from tests.native.fuzz.emulate import emulated
from tests.writers.sources import load_source
from timelapse.kernels.choose import SWITCH, choice
from timelapse.kernels.native import build
from timelapse.program.program import spec_of
from timelapse.testing import check_replay, random_log

HEAD = """
import timelapse as tl


class E(tl.Event):
    a: int
    b: int
    o: int | None
    s: str
    f: float
    on: bool


class Out(tl.Record):
    x: float | None
    y: float
    n: int
    yes: bool


class P(tl.Program):
    mean: tl.Mean[int]
    by_pair: tl.Mean[tuple[int, str]] = tl.state(default=-0.5)
    members: tl.SetOf[int, str]
    pairs: tl.SetOf[tuple[int, bool], tuple[int, str]]
    fields: tl.MapOf[int, int, int] = tl.state(default=2)
    names: tl.MapOf[str, tuple[int, bool], str | None]
    smooth: tl.Smoothed[int] = tl.state(alpha=0.3)

    @tl.on(E)
    def handle(self, e):
"""
EVERYTHING = (
    HEAD
    + """
        k = e.a % 4
        self.mean.add(k, e.b)
        if e.on:
            self.by_pair.add((k, e.s), e.a)
            self.pairs.add((k, e.on), (e.b, e.s))
        else:
            self.mean.remove(e.b % 4, 1)
            self.pairs.discard((k, True), member=(e.b, e.s))
        if e.b == 3:
            del self.mean[k]
            self.names.pop((e.s, (k, True)))
        if e.o is not None:
            self.names[e.s, (k, e.on)] = None if e.on else e.s
        self.fields[k, e.b % 3] += 1
        self.smooth.add(k, e.f)
        if e.s == "ab" and self.mean.count(k) > 2:
            self.reject("ab")
        self.emit(Out(
            x=self.mean[e.b % 4], y=self.by_pair[k, e.s] + self.smooth.get(k, 0.5),
            n=self.mean.sum(k) // 8 + self.fields[k, 1] // 8,
            yes=((k, True), (e.b, "a")) in self.pairs or (e.s, (k, True)) in self.names,
        ))
"""
)


DELTAS = (
    HEAD
    + """
        k = e.a % 4
        self.by_pair.add((k, e.s), e.a)
        self.by_pair.remove((e.b % 4, e.s), e.b)
        self.fields[k, e.b % 3] += 1
        if e.on:
            self.pairs.add((k, e.on), (e.b, e.s))
            self.names[e.s, (k, e.on)] = e.s
            self.fields.setdefault((k, 2), e.b)
        else:
            self.pairs.discard((k, True), member=(e.b, e.s))
            del self.by_pair[k, e.s]
            del self.names[e.s, (k, True)]
            del self.fields[k, 1]
"""
)


def test_the_final_pass_agrees() -> None:
    """Hardly an event is left to Python."""
    ran, left = agree(EVERYTHING, count=150)
    assert ran == 150
    assert left < ran // 4


def test_deltas_agree() -> None:
    """Sums modulo 2^64 too."""
    for edges in (False, True):
        ran, _ = agree(DELTAS, count=100, only_final=False, edges=edges)
        assert ran > 150


def test_the_limits_of_integers_agree() -> None:
    """Sums leave int64, divide beyond 2^53; floats are infinite and NaN."""
    ran, left = agree(EVERYTHING, count=100, edges=True, seed=5)
    assert 0 < left < ran


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("self.emit(Out(x=None, y=0.0, n=len(self.members[1]), yes=False))", "needs an index"),
        ("self.emit(Out(x=None, y=0.0, n=len(self.fields.fields(1)), yes=False))", "other than in a loop"),
        ("for f, _ in self.fields.items(): self.fields.clear(f[0])", "a read of every key"),
        ("self.mean.add(e.a, e.on)", "is given bool"),
    ],
)
def test_what_is_left_to_python_says_why(line: str, why: str) -> None:
    program = load_source(HEAD + f"        {line}\n")
    from timelapse.analysis import analyse, final_pass

    found = choice(program(), final_pass(analyse(program)), final=True)
    assert not found.compiled
    assert why in found.reason


UNUSED = """
import timelapse as tl

class A(tl.Event):
    k: int

class P(tl.Program):
    used: tl.Counter[int]
    values: tl.ListOf[int, str]
    newest: tl.ListOf[int, int] = tl.state(last=3)
    line: tl.ListOf[int]
    different: tl.Distinct[int, str]
    often: tl.Frequent[int, int]
    spread: tl.Quantiles[int]
    level: tl.Decayed[int] = tl.state(half_life=tl.HOUR)
    names: tl.MapOf[str, int, str | None]

    @tl.on(A)
    def note(self, e):
        self.used[e.k] += 1
"""


def test_states_that_no_handler_mentions_stay_empty_in_passes_that_find_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also those whose writes would not compile: declared, and not used yet."""
    monkeypatch.setenv(SWITCH, "native")
    monkeypatch.setattr(build, "_get", lambda text, *, compile_it: emulated(text))
    program = load_source(UNUSED)
    check_replay(program, random_log(spec_of(program).events), slices=(3,), strategies=("staged",))


BY_METHOD = """
import timelapse as tl


class E(tl.Event):
    a: int
    b: int
    s: str
    on: bool


class Out(tl.Record):
    n: int
    text: str | None


class P(tl.Program):
    counts: tl.Counter[int]
    pairs: tl.Counter[tuple[int, str]]
    amounts: tl.Sum[int, int]
    values: tl.Value[int, int] = tl.state(default=1)
    texts: tl.Value[tuple[int, bool], str | None]
    fields: tl.MapOf[int, int, int] = tl.state(default=2)
    names: tl.MapOf[str, tuple[int, bool], str | None]
    most: tl.Max[int, int] = tl.state(default=0)

    @tl.on(E)
    def handle(self, e):
        k = e.a % 4
        self.counts.set(k, self.counts[e.b % 4] + e.b)
        self.pairs.set((k, e.s), value=e.b)
        self.amounts.set(k, e.b)
        self.values.set(k, value=self.values[k] * 3 % 11)
        self.texts.set((k, e.on), None if e.b == 2 else e.s)
        self.fields.set((k, e.b % 3), self.fields[k, 1] + e.b)
        self.names.set(value=e.s, key=(e.s, (k, e.on)))
        self.most.add(k, e.b)
        if e.on:
            self.counts.discard(e.b % 4)
            self.pairs.discard((e.b % 4, e.s))
            self.amounts.discard(key=e.b % 4)
            self.values.discard(e.b % 4)
            self.texts.discard((e.b % 4, True))
            self.fields.discard((e.b % 4, 1))
            self.names.discard((e.s, (e.b % 4, False)))
            self.most.discard(e.b % 4)
        if e.s == "ab":
            self.reject("ab")
        n = self.counts[k] + self.pairs[k, e.s] + self.amounts[k] + self.values[k] + self.fields[k, 1] + self.most[k]
        self.emit(Out(n=n, text=self.texts[k, e.on] or self.names[e.s, (k, True)]))
"""


def test_writes_by_method_agree() -> None:
    """`x.set(k, v)` and `x.discard(k)` compile as `x[k] = v` and `del x[k]`, of every kind that has them."""
    ran, left = agree(BY_METHOD, count=150)
    assert ran == 150
    assert left == 0
    ran, _ = agree(
        BY_METHOD, count=100, edges=True, seed=5
    )  # what leaves int64 fails alike, and is taken out
    assert 20 < ran < 100
