"""What stands under a key of a MapOf, listed, counted and taken out by compiled handlers: as the serial loop, to the last bit."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

import timelapse as tl
from tests.depth import deep
from tests.native.fuzz.emulate import emulated
from timelapse.analysis import analyse, final_pass
from timelapse.env import machine
from timelapse.kernels.choose import SWITCH, choice
from timelapse.kernels.native import build
from timelapse.testing import assert_same, check_replay

BIG = 2**62


class Put(tl.Event):
    a: int
    b: int
    s: str
    on: bool


class Ask(tl.Event):
    a: int
    s: str


class Seen(tl.Record):
    what: int
    n: int
    s: str | None
    x: float


class Maps(tl.Program):
    """Fields that come, go and come back, and whole keys that are cleared, listed in their order while they change."""

    plain: tl.MapOf[int, int, int] = tl.state(default=3)
    words: tl.MapOf[tuple[int, str], str, str | None]
    mixed: tl.MapOf[str, tuple[int, str, bool], tuple[float, int]] = tl.state(default=(0.5, 1))
    groups: tl.SetOf[int, int]
    sizes: tl.Counter[int]

    @tl.on(Put)
    def put(self, e: Put) -> None:
        if e.on:
            self.plain[e.a, e.b] += e.b
            self.words[(e.a, e.s), e.s + "x" if e.b > 6 else e.s] = None if e.b == 3 else e.s
            self.mixed.setdefault((e.s, (e.b, e.s, e.on)), (e.b / 3, e.a))
            self.groups.add(e.a, e.b)
        else:
            self.plain.pop((e.a, e.b))
            del self.words[(e.a, e.s), e.s]
            self.mixed.discard((e.s, (e.a, e.s, True)))
        if e.b == 6:
            self.plain.clear(e.a)
            self.mixed.clear(e.s)
        if e.b == 7:
            del self.groups[e.a]

    @tl.on(Put)
    def again(self, e: Put) -> None:
        for f, v in self.plain.fields(e.a):
            if f == e.b:
                del self.plain[e.a, f]
                self.plain[e.a, f + 1] = v
            if f == 4:
                self.plain.clear(e.a)
            for g, w in self.plain.fields(f):
                if g < f and g < 4:
                    self.plain[g, f] += w
                self.emit(Seen(what=0, n=g, s=None, x=v / (w + 1000)))
        if e.b == 5:
            self.plain.clear(1)
            self.reject(e.s)

    @tl.on(Ask)
    def ask(self, e: Ask) -> None:
        for n, (f, v) in enumerate(self.plain.fields(e.a), 1):
            self.emit(Seen(what=n, n=f, s="", x=v + self.plain[e.a, f]))
        for w, t in self.words.fields((e.a, e.s)):
            self.emit(Seen(what=2, n=self.words.count((e.a, e.s)), s=t, x=1.0 if w == "ab" else 2.5))
        for (n, s, on), (x, k) in reversed(self.mixed.fields(e.s)):
            self.emit(Seen(what=3, n=n + k, s=s, x=x if on else -x))
        for m in self.groups[e.a]:
            self.emit(Seen(what=4, n=m, s=None, x=self.groups.count(e.a)))
        total = sum(f * v for f, v in self.plain.fields(e.a))
        self.emit(Seen(what=total, n=self.plain.count(e.a), s="", x=0.0))
        if e.a == 3:
            n = self.plain.count(1) + 2
            self.sizes[1] += BIG * n * 4 // (BIG * n)  # only Python says what this is
            for f, v in self.plain.fields(1):
                self.plain[2, f] = v
            self.plain.clear(1)
            del self.groups[1]
        if e.a == 4:
            n = self.plain.count(0) + 2
            self.sizes[1] = BIG * n // BIG
            for f, v in self.plain.fields(0):
                self.plain[0, -f] = v
            self.words.clear((0, e.s))
            self.groups.add(0, 1)


def reason_of(program: type[tl.Program]) -> str:
    made = program()
    return choice(made, final_pass(analyse(made)), final=True).reason


@pytest.fixture
def emulate(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the compiler, which takes seconds for each program."""
    monkeypatch.setattr(build, "_get", lambda text, *, compile_it: emulated(text))


def events(count: int, seed: int) -> list[Any]:
    rng = random.Random(seed)
    words = ["", "a", "\xe9", "\U0001f600", "zz", "ab", "a\0"]
    found: list[Any] = []
    for ts in range(count):
        if rng.random() < 0.7:
            put = Put(
                a=rng.randrange(4), b=rng.randrange(8), s=rng.choice(words), on=rng.random() < 0.75, ts=ts
            )
            found.append(put)
        else:
            found.append(Ask(a=rng.choice((0, 1, 2, 2, 4)), s=rng.choice(words), ts=ts))
    return found


@pytest.mark.parametrize("seed", range(deep(2)))
def test_fields_are_listed_as_they_are(seed: int, emulate: None) -> None:
    assert reason_of(Maps) == ""
    reference = check_replay(Maps, events(60, seed), slices=(3,))
    assert reference.rejected_count > 0
    assert reference.counts["Seen"] > 50


def test_machine_code_lists_fields(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SWITCH, "native")
    given = events(3000, 5)
    run = tl.replay(Maps, given, slices=3, spark=False, strategy="chain")
    assert_same(tl.run_serial(Maps, given), run)


@pytest.mark.parametrize("strategy", ["chain", "staged"])
def test_fields_with_hardly_any_memory_and_in_the_middle_of_a_slice(
    strategy: str, emulate: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(machine.MEMORY, "1")
    given = events(40, 11)
    expected = tl.run_serial(Maps, given)
    run = tl.replay(Maps, given, slices=3, spark=False, strategy=strategy, out=tmp_path / "run")
    assert_same(expected, run)
    for at in (7, 20, 33):
        for name in ("plain", "words", "mixed", "groups", "sizes"):
            assert run.state(name, at=at).equals(expected.state(name, at=at)), (name, at)


def test_where_python_goes_on_it_has_the_same_fields(emulate: None) -> None:
    """A failure in the middle of what Python does; and quarantined, the fields are those from before."""
    given = events(30, 3)
    given.insert(20, Ask(a=3, s="", ts=19))
    check_replay(Maps, given, slices=(2,), strategies=("chain",), quarantine=True)


def test_thousands_of_fields_are_listed_and_cleared(monkeypatch: pytest.MonkeyPatch) -> None:
    """They take more room than there is at first, in lists and to be undone; nested ones lie behind each other."""

    class Many(tl.Program):
        x: tl.MapOf[int, int, int] = tl.state(default=0)
        n: tl.Counter[int]

        @tl.on(Put)
        def put(self, e: Put) -> None:
            self.x[e.a % 3, e.b * 7919 % 10007] += e.b
            if e.b % 500 == 499:
                for f, v in self.x.fields(0):
                    self.n[0] += f - v
                    if f % 100 == 0:
                        for g, w in self.x.fields(1):
                            self.n[g % 5] += f - w
            if e.b % 2500 == 2499:
                self.x.clear(e.a % 3)
                self.n[9] += self.x.count(e.a % 3)
                if e.on:
                    self.reject("not so")

    monkeypatch.setenv(SWITCH, "native")
    given = [Put(a=n, b=n, s="", on=n % 2000 < 1000, ts=n // 9) for n in range(6000)]
    run = tl.replay(Many, given, slices=2, spark=False)
    expected = tl.run_serial(Many, given)
    assert expected.rejected_count > 0
    assert_same(expected, run)
    assert reason_of(Many) == ""


def test_a_look_back_at_fields_says_why_it_does_not_compile() -> None:
    class Looks(tl.Program):
        x: tl.MapOf[int, int, int] = tl.state(default=0)

        @tl.on(Put)
        def put(self, e: Put) -> None:
            self.x[e.a, e.b] = 1
            if self.x.last(5)[e.a, 1]:
                self.x.clear(e.a)

    assert "x.clear(), of a state of which there are windows" in reason_of(Looks)
