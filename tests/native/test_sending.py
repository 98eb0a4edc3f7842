"""Compiled handlers that send events, and that go over the members of a SetOf: as the serial loop, to the last bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import timelapse as tl
from tests.depth import deep
from tests.native.fuzz import compare
from tests.native.fuzz.compare import Tally, check, replayed
from tests.native.fuzz.emulate import emulated
from tests.native.fuzz.sending import random_senders
from tests.writers.sources import load_source
from timelapse.analysis import analyse, final_pass
from timelapse.env import machine
from timelapse.errors import HandlerError
from timelapse.kernels.base import PassResult
from timelapse.kernels.choose import SWITCH, choice
from timelapse.kernels.native import build
from timelapse.kernels.native.kernel import NativeKernel
from timelapse.testing import assert_same, check_replay


@pytest.fixture(autouse=True)
def _compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SWITCH, "native")


@pytest.fixture
def emulate(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the compiler, which takes seconds for each program."""
    monkeypatch.setattr(build, "_get", lambda text, *, compile_it: emulated(text))


BIG = 2**62


def reason_of(program: Any) -> str:
    """Why the final pass is not compiled."""
    return choice(program(), final_pass(analyse(program)), final=True).reason


# --- random programs ------------------------------------------------------------------------------


@pytest.mark.parametrize(("emulating", "count", "size"), [(True, deep(10), 4), (False, deep(1), 3)])
def test_random_programs_mean_what_they_mean_as_python(
    emulating: bool, count: int, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compare, "random_handlers", random_senders)
    tally = Tally()
    for seed in range(count):
        check(seed, monkeypatch, tally, emulate=emulating, size=size)
    assert tally.compiled > 0.6 * tally.passes, tally.text
    assert tally.stayed > 0.9 * tally.runs, tally.text
    assert tally.failures < 0.3 * tally.runs, tally.text


def test_random_replays_are_the_serial_meaning(emulate: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every slicing, and the same failure where a handler raises."""
    monkeypatch.setattr(compare, "random_handlers", random_senders)
    for seed in range(100, 100 + deep(1)):
        replayed(seed, monkeypatch)


# --- what is sent ---------------------------------------------------------------------------------


class Begin(tl.Event):
    n: int
    word: str
    x: float


class Step(tl.Event):
    n: int
    word: str
    x: float
    on: bool
    raw: bytes
    at: tl.Time
    maybe: int | None
    text: str | None


class Other(tl.Event):
    n: int


class Seen(tl.Record):
    what: str
    n: int
    x: float
    on: bool
    raw: bytes
    at: tl.Time
    maybe: int | None
    text: str | None


class Chains(tl.Program, loop=400):
    """Each event sends others, of two types, from handlers, helpers and loops."""

    limit: int = 3

    total: tl.Counter[str]
    steps: tl.Counter[int]
    last: tl.Value[int, float] = tl.state(default=0.0)

    @tl.on(Begin)
    def begin(self, e: Begin) -> None:
        self.total[e.word] += 1
        for i in range(e.n):
            self.more(i, e.word, e.x)
        if e.n > 1:
            self.send(Other(e.n))
        self.emit(Seen(what="begin", n=e.n, x=e.x, on=False, raw=b"", at=e.ts, maybe=None, text=e.word))

    def more(self, n: int, word: str, x: float) -> None:
        odd = n % 2 == 1
        made = 7 if odd else None
        self.send(
            Step(
                n,
                word,
                on=odd,
                raw=b"r" if odd else b"",
                x=x + n,
                at=self.now + n,
                maybe=made,
                text=word or None,
            )
        )

    @tl.on(Step)
    def step(self, s: Step) -> None:
        self.steps[s.n] += 1
        self.last[s.n] = s.x
        self.emit(Seen(what=s.word, n=s.n, x=s.x, on=s.on, raw=s.raw, at=s.at, maybe=s.maybe, text=s.text))
        if s.n > self.limit:
            self.more(s.n - 2, "again", s.x * 2)
            self.send(Other(n=s.n - 1))

    @tl.on(Other, Begin)
    def other(self, e: Other | Begin) -> None:
        self.total["other"] += self.steps[e.n]
        self.emit(Seen(what="other", n=e.seq, x=0.0, on=e.n > 2, raw=b"o", at=e.ts, maybe=e.n, text=None))


def begins(*numbers: int) -> list[Any]:
    words = ["", "a", "é", "zz"]
    return [
        Begin(n=n, word=words[i % 4], x=0.5 * i - 1, ts=i // 2) if n >= 0 else Other(n=-n, ts=i // 2)
        for i, n in enumerate(numbers)
    ]


def test_events_follow_in_order_with_all_they_hold(emulate: None) -> None:
    """Also those of the log that are of a type that is sent; positions of records go on through a transaction."""
    assert reason_of(Chains) == ""
    check_replay(Chains, begins(3, 0, -2, 9, 1, -5, 6, 2, 8), slices=(3,))


def test_a_loop_is_bounded_at_the_same_event(emulate: None) -> None:
    events = begins(3, 2, 60, 1)
    with pytest.raises(HandlerError) as serial:
        tl.run_serial(Chains, events)
    with pytest.raises(HandlerError) as compiled:
        tl.replay(Chains, events, spark=False)
    assert str(compiled.value) == str(serial.value)
    assert "more than 400 events derive from one event" in str(serial.value)


class Fails(tl.Program):
    """A derived event may leave int64, or divide by zero."""

    sums: tl.Counter[int]
    members: tl.SetOf[int, int]

    @tl.on(Begin)
    def begin(self, e: Begin) -> None:
        self.sums[e.n] += 1
        self.members.add(e.n % 2, e.n)
        self.send(Other(n=e.n))
        self.send(Other(n=e.n * 2))

    @tl.on(Other)
    def other(self, e: Other) -> None:
        self.members.add(e.n % 3, e.n)
        self.members.discard(e.n % 3, e.n - 1)
        for m in self.members[e.n % 3]:
            self.sums[m] += BIG // (e.n - 5)
        self.emit(
            Seen(what="", n=e.n, x=float(self.sums[1]), on=True, raw=b"", at=0, maybe=self.sums[0], text=None)
        )


@pytest.mark.parametrize("numbers", [(1, 2, 4, 5, 1), (4, 6, 8, 6, 6, 6, 1), (1, 7, -5), (-5, 1)])
def test_what_derives_fails_as_it_does_serially(numbers: tuple[int, ...], emulate: None) -> None:
    """The failure names the derived event; quarantine takes out the one that it stems from."""
    events = begins(*numbers)
    with pytest.raises(HandlerError) as serial:
        tl.run_serial(Fails, events)
    assert reason_of(Fails) == ""
    for slices in (1, 2):
        with pytest.raises(HandlerError) as replayed_:
            tl.replay(Fails, events, slices=slices, spark=False)
        assert str(replayed_.value) == str(serial.value)
        assert replayed_.value.event == serial.value.event
    check_replay(Fails, events, slices=(1, 3), quarantine=True)


class Floods(tl.Program, loop=100_000):
    """One event has thousands of others follow, each of which writes and puts out."""

    heard: tl.Counter[int]
    near: tl.SetOf[int, int]

    @tl.on(Other)
    def flood(self, e: Other) -> None:
        self.near.add(e.n, e.n)
        if e.n < 3000:
            self.send(Other(n=e.n + 1))
            if e.n % 300 == 7:
                self.send(Other(n=e.n + 1500))
        self.heard[e.n % 1999] += 1
        self.emit(Seen(what="", n=e.n, x=0.0, on=True, raw=b"", at=0, maybe=None, text=None))


def test_there_is_room_for_whatever_one_event_brings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each thing that is full only that grows: tables are not made larger because the queue is."""
    assert reason_of(Floods) == ""
    events = [Other(n=n, ts=ts) for ts, n in enumerate((2999, 1400, 0, 2500))]
    rows: list[int] = []
    real = NativeKernel.end

    def end(kernel: NativeKernel, result: PassResult) -> None:
        rows.extend(len(table.slots) for table in kernel._hashes)
        real(kernel, result)

    monkeypatch.setattr(NativeKernel, "end", end)
    run = tl.replay(Floods, events, spark=False)
    expected = tl.run_serial(Floods, events)
    assert_same(expected, run)
    assert run.counts["Seen"] > 5000
    assert rows
    assert max(rows) <= 1 << 14


class Odd(tl.Record):
    n: int


class Refuses(tl.Program, loop=50):
    """What follows from an event may reject all of it, with a record or without; so may the event itself."""

    sums: tl.Counter[int]
    near: tl.SetOf[int, int]
    kept: tl.Value[int, str] = tl.state(default="-")

    @tl.on(Begin)
    def begin(self, e: Begin) -> None:
        self.sums[0] += e.n
        self.kept[e.n] = e.word
        self.emit(Odd(n=e.n))
        for i in range(e.n):
            self.send(Other(n=i))
        if e.n == 6:
            self.reject("six")

    @tl.on(Begin)
    def last(self, e: Begin) -> None:
        self.near.add(e.n, self.sums[0])

    @tl.on(Other)
    def other(self, e: Other) -> None:
        self.near.add(e.n, self.sums[0])
        self.emit(Odd(n=100 * e.n))
        for m in self.near[e.n]:
            self.sums[m % 5] += 1
            if m % 7 == 3:
                for k in (1, 2):
                    if self.sums[1] % 3 == k:
                        self.reject(Odd(n=-m))
        if e.n == 3 and self.sums[2] % 2:
            self.reject(self.kept[2])
        self.check(e.n)

    @tl.on(Other)
    def again(self, e: Other) -> None:
        if e.n > 4 and self.sums[0] % 3:
            self.send(Other(n=e.n - 3))

    def check(self, n: int) -> None:
        if n == 9:
            self.reject()


@pytest.mark.parametrize("slices", [1, 3])
def test_what_derives_rejects_all(slices: int, emulate: None) -> None:
    import random

    assert reason_of(Refuses) == ""
    rng = random.Random(slices)
    events = begins(*[rng.choice((0, 1, 2, 3, 4, 5, 6, 8, 10, -1, -3, -9)) for _ in range(50)])
    reference = check_replay(Refuses, events, slices=(slices,))
    found = reference.rejected.to_pylist()
    assert len({(row["event"], row["handler"], row["reason"]) for row in found}) > 4, found


def test_machine_code_rejects_what_derives() -> None:
    events = begins(*[n % 11 for n in range(600)])
    run = tl.replay(Refuses, events, slices=2, spark=False, strategy="chain")
    assert_same(tl.run_serial(Refuses, events), run)
    assert run.rejected_count > 100


# --- members --------------------------------------------------------------------------------------


class Pair(tl.Event):
    a: int
    b: int
    s: str
    on: bool


class Ask(tl.Event):
    a: int
    s: str


class Listed(tl.Record):
    what: int
    n: int
    s: str
    on: bool


class Groups(tl.Program):
    """Members that come, go and come back, listed in their order while they change."""

    plain: tl.SetOf[int, int]
    words: tl.SetOf[tuple[int, str], str]
    mixed: tl.SetOf[str, tuple[int, str, bool]]
    sizes: tl.Counter[int]

    @tl.on(Pair)
    def put(self, e: Pair) -> None:
        if e.on:
            self.plain.add(e.a, e.b)
            self.words.add((e.a, e.s), e.s + "x" if e.b > 6 else e.s)
            self.mixed.add(e.s, (e.b, e.s, e.on))
        else:
            self.plain.discard(e.a, e.b)
            self.words.discard((e.a, e.s), e.s)
            self.mixed.discard(e.s, (e.a, e.s, True))

    @tl.on(Pair)
    def again(self, e: Pair) -> None:
        for m in self.plain[e.a]:
            if m == e.b:
                self.plain.discard(e.a, m)
                self.plain.add(e.a, m + 1)
            for n in self.plain[m]:
                if n < m and n < 4:
                    self.plain.add(n, m)
                self.emit(Listed(what=0, n=n, s="", on=n in (m,)))
            for n, k in zip(self.plain[m], self.plain[e.a]):
                self.sizes[m] += n - k
        if e.b == 5:
            self.reject(e.s)

    @tl.on(Ask)
    def ask(self, e: Ask) -> None:
        for n, m in enumerate(self.plain[e.a], 1):
            self.emit(Listed(what=n, n=m, s="", on=(e.a, m) in self.plain))
        for w in self.words[e.a, e.s]:
            self.emit(Listed(what=2, n=0, s=w, on=False))
        for n, s, on in reversed(self.mixed[e.s]):
            self.emit(Listed(what=3, n=n, s=s, on=on))
        self.emit(
            Listed(what=sum(self.sizes[m] for m in self.plain[e.a]), n=self.plain.count(e.a), s="", on=True)
        )
        if e.a == 3:
            n = self.plain.count(1) + 2
            self.sizes[1] += BIG * n * 4 // (BIG * n)  # only Python says what this is
            for m in self.plain[1]:
                self.plain.discard(1, m)
        if e.a == 4:
            n = self.plain.count(0) + 2
            self.sizes[1] = BIG * n // BIG
            for m in self.plain[0]:
                self.plain.add(m, -m)


def pairs(count: int, seed: int) -> list[Any]:
    import random

    rng = random.Random(seed)
    words = ["", "a", "é", "\U0001f600", "zz", "ab", "a\0"]
    found: list[Any] = []
    for ts in range(count):
        if rng.random() < 0.7:
            pair = Pair(
                a=rng.randrange(4), b=rng.randrange(8), s=rng.choice(words), on=rng.random() < 0.7, ts=ts
            )
            found.append(pair)
        else:
            found.append(Ask(a=rng.choice((0, 1, 2, 2, 4)), s=rng.choice(words), ts=ts))
    return found


@pytest.mark.parametrize("seed", range(deep(1)))
def test_members_are_listed_as_they_are(seed: int, emulate: None) -> None:
    assert reason_of(Groups) == ""
    reference = check_replay(Groups, pairs(50, seed), slices=(3,))
    assert reference.rejected_count > 0
    assert reference.counts["Listed"] > 100


def test_machine_code_lists_members_and_leaves_in_the_middle() -> None:
    events = begins(*[n for n in (1, 2, 4, 6, 8, 3, 9, -4) for _ in range(40) if n != 5])
    assert reason_of(Fails) == ""
    run = tl.replay(Fails, events, slices=3, spark=False, strategy="chain", quarantine=True)
    assert_same(tl.run_serial(Fails, events, quarantine=True), run)


@pytest.mark.parametrize("strategy", ["chain", "staged"])
def test_members_with_hardly_any_memory_and_in_the_middle_of_a_slice(
    strategy: str, emulate: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(machine.MEMORY, "1")
    events = pairs(40, 11)
    expected = tl.run_serial(Groups, events)
    run = tl.replay(Groups, events, slices=3, spark=False, strategy=strategy, out=tmp_path / "run")
    assert_same(expected, run)
    for at in (7, 20, 33):
        for name in ("plain", "words", "sizes"):
            assert run.state(name, at=at).equals(expected.state(name, at=at)), (name, at)


def test_where_python_goes_on_it_has_the_same_members() -> None:
    """A failure in the middle of what Python does; and quarantined, the members are those from before."""
    events = pairs(30, 3)
    events.insert(20, Ask(a=3, s="", ts=19))
    check_replay(Groups, events, slices=(2,), strategies=("chain",), quarantine=True)


def test_thousands_of_members() -> None:
    """Their lists take more room than there is at first; nested ones lie behind each other."""

    class Many(tl.Program):
        x: tl.SetOf[int, int]
        n: tl.Counter[int]

        @tl.on(Other)
        def add(self, e: Other) -> None:
            self.x.add(e.n % 3, e.n * 7919 % 10007)
            if e.n % 500 == 499:
                for m in self.x[0]:
                    self.n[0] += m
                    if m % 100 == 0:
                        for k in self.x[1]:
                            self.n[k % 5] += m - k

    events = [Other(n=n, ts=n // 9) for n in range(6000)]
    run = tl.replay(Many, events, slices=2, spark=False)
    assert_same(tl.run_serial(Many, events), run)
    assert reason_of(Many) == ""


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("self.send(made)", "self.send() of something other than Event(...)"),
        ("self.send(Has(items=e.items))", "Has.items, which is list[int]"),
        ("for m in self.x.last(5)[e.n]: self.send(Small(n=m))", "self.send beside self.x.last(5)"),
        ("self.emit(Out(n=len(self.x[e.n])))", "needs an index"),
        ("for m in self.y[e.n]: self.emit(Out(n=m))", "needs an index"),
    ],
)
def test_what_does_not_compile_says_why(body: str, why: str) -> None:
    program = load_source(f"""
import timelapse as tl

class Ping(tl.Event):
    n: int
    items: list[int]

class Has(tl.Event):
    items: list[int]

class Small(tl.Event):
    n: int

class Out(tl.Record):
    n: int

class P(tl.Program):
    x: tl.SetOf[int, int]
    y: tl.MapOf[int, int, int] = tl.state(default=0)

    @tl.on(Ping)
    def ping(self, e):
        made = e.n
        {body}

    @tl.on(Has, Small)
    def has(self, e):
        self.x.add(1, 2)
""")
    assert why in reason_of(program)
