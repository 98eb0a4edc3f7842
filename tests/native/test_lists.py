"""ListOf, Decayed and the number of a SetOf's members, compiled and as Python: the same to the last bit."""

from __future__ import annotations

import random

import numpy as np
import pytest

import timelapse as tl
from tests.native.agree import agree, events_of
from tests.writers.sources import load_source
from timelapse.analysis import analyse, final_pass
from timelapse.kernels.choose import SWITCH, choice
from timelapse.program.program import spec_of
from timelapse.testing import check_replay

HEAD = """
import timelapse as tl


class E(tl.Event):
    a: int
    b: int
    s: str
    f: float
    on: bool
    ws: list[str]


class Out(tl.Record):
    n: int
    x: float
    s: str | None
    yes: bool


class P(tl.Program):
    words: tl.ListOf[int, str] = tl.state(last=3)
    numbers: tl.ListOf[tuple[int, str], int] = tl.state(last=5)
    floats: tl.ListOf[float] = tl.state(last=2)
    flags: tl.ListOf[int, bool] = tl.state(last=4)
    long: tl.ListOf[int, int]
    left: tl.Decayed[int] = tl.state(half_life=7)
    whole: tl.Decayed = tl.state(half_life=3)
    members: tl.SetOf[int, str]
    pairs: tl.SetOf[tuple[int, bool], tuple[int, str]]

    @tl.on(E)
    def handle(self, e):
"""
EVERYTHING = (
    HEAD
    + """
        k = e.a % 3
        before = self.words[k]
        self.words.append(k, e.s)
        self.numbers.append((k, e.s), e.b)
        self.floats.append(e.f)
        self.flags.append(k, e.on)
        if e.b == 2:
            del self.words[k]
            self.flags.pop(k)
        self.left.add(k, e.f)
        if not e.on:
            self.left.add(k, e.b)
        self.whole.add(e.a)
        if e.b % 4 == 3:
            del self.left[k]
        for w in e.ws:
            if e.on:
                self.members.add(k, w)
            else:
                self.members.discard(k, w)
        self.pairs.add((k, e.on), (e.b % 4, e.s))
        if e.b == 0:
            self.pairs.discard((k, not e.on), (1, e.s))
        total = 0
        for n in self.numbers.tail((k, e.s), 3):
            total += n
        last = self.numbers.pop((k, e.s)) if e.b == 1 else e.a
        total += e.a if last is None else last
        both = 0.0
        for x in self.floats.get():
            both += x
        if e.s == "ab" and self.members.count(k) > 1:
            self.reject("ab")
        self.emit(Out(
            n=len(set(before)) + 10 * len(self.words[k]) + 100 * self.members.count(k) + 10000 * self.pairs.count((k, True))
            + 1000 * len(set(self.flags[k])) + total,
            x=self.left[k] + self.whole.get() + both, s=before[-1] if len(before) > 1 else None,
            yes=(k in self.words) == (e.s in self.words[k]) or k in self.left or self.flags.count(k) == 2 or (0, "b") in self.numbers,
        ))
"""
)


def test_the_final_pass_agrees() -> None:
    ran, left = agree(EVERYTHING, count=150)
    assert ran == 150
    assert left < ran // 4


DELTAS = (
    HEAD
    + """
        k = e.a % 3
        self.words.append(k, e.s)
        self.words.append(k, "z")
        self.numbers.append((k, e.s), e.b)
        self.floats.append(e.f)
        if e.b == 2:
            del self.words[k]
        if e.on:
            self.flags.append(k, e.b > 1)
            self.words.append(value=e.s, key=1)
        else:
            del self.numbers[k, "a"]
"""
)


@pytest.mark.parametrize("edges", [False, True])
def test_what_is_done_to_lists_that_a_pass_does_not_know_agrees(edges: bool) -> None:
    ran, left = agree(DELTAS, count=100, only_final=False, edges=edges)
    assert ran >= 200
    assert left == 0


def test_lists_that_a_pass_does_not_know_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rejection that another state decides takes back what was appended; a product that leaves int64 goes on as Python."""
    monkeypatch.setenv(SWITCH, "native")
    lines = """
        self.members.add(e.b % 4, e.s)
        if e.b * 2**62 % 3 == 1 and ((e.a % 4, "a") in self.members):
            self.reject("no")
"""
    program = load_source(DELTAS + lines)
    (event,) = spec_of(program).events
    events = events_of(event, 60, 4)
    assert check_replay(program, events, slices=(3,)).rejected_count
    run = tl.replay(program, events, slices=3, spark=False)
    assert set(run.certificate["passes"].values()) == {"compiled"}


def test_values_at_the_limits_agree() -> None:
    """Sums leave int64, so that Python goes on with lists and counts where they are; floats are infinite and NaN."""
    ran, left = agree(EVERYTHING, count=80, edges=True, seed=5)
    assert 0 < left < ran


def test_slices_begin_with_the_lists_and_counts_of_those_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SWITCH, "native")
    program = load_source(EVERYTHING)
    (event,) = spec_of(program).events
    check_replay(program, events_of(event, 60, 3), slices=(3,), strategies=("chain",))


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("self.long.append(e.a, e.b)", "a ListOf without tl.state(last=n)"),
        ("self.emit(Out(n=self.members.count(e.s), x=0.0, s=None, yes=False))", "a key of"),
        ("self.words.append(e.a, e.b)", "is given int"),
        ("self.left.add(e.a, e.on)", "is given bool"),
    ],
)
def test_what_is_left_to_python_says_why(line: str, why: str) -> None:
    program = load_source(HEAD + f"        {line}\n")
    found = choice(program(), final_pass(analyse(program)), final=True)
    assert not found.compiled
    assert why in found.reason


def test_what_is_left_of_a_total_is_what_python_computes() -> None:
    """With the C library's `pow`: for 2.0 a compiler likes to take `exp2`, which rounds otherwise now and then."""
    from timelapse.kernels.native.memory.arithmetic import bits
    from timelapse.kernels.native.memory.primitives import faded
    from timelapse.kinds.smoothed import _decay

    rng = random.Random(1)
    row = np.ones((1, 4), np.int64)
    for _ in range(20_000):
        half, since = rng.randrange(1, 10 ** rng.randrange(1, 14)), rng.randrange(10 ** rng.randrange(1, 15))
        row[0, 2], row[0, 3] = bits(total := rng.uniform(-3, 9)), 5
        assert faded(row, 0, 2, 5 + since, half) == total * _decay(since, half), (half, since)


def test_events_under_one_key_are_not_shared_out_where_members_are_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(SWITCH, "native")
    program = load_source(
        HEAD
        + "        self.members.add(e.a, e.s)\n        self.emit(Out(n=self.members.count(e.a), x=0.0, s=None, yes=e.on))\n"
    )
    (event,) = spec_of(program).events
    events = events_of(event, 50, 2)
    run = tl.replay(program, events, spark=False, cache=False)
    expected = tl.run_serial(program, events)
    assert (run.digest, run.state_digest) == (expected.digest, expected.state_digest)
