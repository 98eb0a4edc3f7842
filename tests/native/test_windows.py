"""Windows in compiled passes: slice by slice what the serial loop gives, to the last bit."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.depth import deep, some
from tests.native.fuzz.emulate import emulated
from tests.native.oracle import assert_equal
from tests.native.window_programs import windowed_log, windowed_program
from tests.tuned import tuned
from tests.writers.sources import load_source
from timelapse.analysis import analyse, final_pass
from timelapse.env import machine
from timelapse.kernels.base import Abandoned, PassResult
from timelapse.kernels.choose import SWITCH, SliceKernel, choice
from timelapse.kernels.native import build
from timelapse.kernels.native.lowering.lower import lowered
from timelapse.kernels.native.memory import blocks
from timelapse.kernels.python.timed import TimedKernel
from timelapse.kernels.source import Source
from timelapse.kernels.tuning import USUAL, KernelTuning, NativeTuning, TableTuning
from timelapse.log import MemoryLog
from timelapse.model.events import Event
from timelapse.program.program import Program, spec_of
from timelapse.run import replay, run_serial
from timelapse.run.tuning import Tuning
from timelapse.testing import assert_same


def slices(
    program: Program,
    events: Sequence[Event],
    cuts: Sequence[int],
    *,
    native: bool,
    left: list[int] | None = None,
    tuning: KernelTuning = USUAL,
) -> list[PassResult]:
    """What each slice gave, by the compiled kernel or by the serial loop."""
    work = final_pass(analyse(type(program)))
    kinds = list(spec_of(program).events)
    log = MemoryLog(events, kinds)
    classes = {c.__name__: c for c in kinds}
    made: Any = (
        SliceKernel(program, work, {}, 0, final=True, tuning=tuning) if native else TimedKernel(program)
    )
    assert made.compiled is native
    found = []
    for lo, hi in itertools.pairwise(cuts):
        source = Source(log, lo, hi, classes, work.columns)
        if not native:
            end = events[hi - 1].ts if hi else events[0].ts
            source = replace(source, columns={n: tuple(f.name for f in c.__fields__) for n, c in classes.items()},
                             begin=events[0].ts, end=end)  # fmt: skip
        found.append(made.run(source, lambda _: None))
        if found[-1].failure is not None:
            break
    if left is not None:
        left.append(made.parts[1].left)
    return found


def same_slices(
    program: Program,
    events: Sequence[Event],
    cuts: Sequence[int],
    left: list[int],
    tuning: KernelTuning = USUAL,
) -> bool:
    """Whether the compiled kernel went through; then each slice was what it should be. Adds how many events left it."""
    wanted = slices(program, events, cuts, native=False)
    try:
        found = slices(program, events, cuts, native=True, left=left, tuning=tuning)
    except Abandoned:
        return False
    for one, other in zip(found, wanted, strict=True):
        if other.failure is not None:
            other.failed_seq = other.failure.seq
        assert_equal(one, other)
    return True


@pytest.mark.parametrize(("piece", "seeds"), [(32768, (0, 20)), (4, (20, 45))])
def test_random_programs_with_windows_as_the_serial_loop(
    piece: int, seeds: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Run without compiling them; in pieces so small that logs are moved and shortened all the time."""
    monkeypatch.setenv(SWITCH, "native")
    monkeypatch.setattr(build, "_get", lambda text, *, compile_it: emulated(text))
    tuning = KernelTuning(native=NativeTuning(piece_events=piece))
    through = looked = 0
    left: list[int] = []
    for seed in some(range(*seeds)):
        program = load_source(windowed_program(seed))()
        if not spec_of(program).times:
            continue
        work = final_pass(analyse(type(program)))
        found = choice(program, work, final=True)
        assert found.compiled, (seed, found.reason)
        rng = random.Random(seed)
        for edges in (False, True):
            events = windowed_log(program, seed, 45, edges=edges)
            cuts = sorted([0, 45, rng.randint(1, 44), rng.randint(1, 44)])
            looked += 1
            try:
                through += same_slices(program, events, cuts, left, tuning)
            except Exception as error:
                raise AssertionError(f"seed {seed}, edges {edges}: {error!r}") from error
    assert looked > deep(25)
    assert through > 0.7 * looked
    assert sum(left) > deep(15)


SOURCE = """
import timelapse as tl

class Sent(tl.Event):
    user: int
    to: int
    text: str

class Score(tl.Record):
    user: int
    sent: int
    before: int
    others: int
    mean: float | None
    seen: bool
    low: float | None
    high: int

class P(tl.Program):
    w: int = 700

    sent: tl.Counter[int]
    words: tl.Counter[str]
    others: tl.SetOf[int, int]
    length: tl.Mean[int]
    seen: tl.Set[tuple[int, int]]
    low: tl.Min[int, float | None]
    high: tl.Max[str, int] = tl.state(default=-1)

    @tl.on(Sent)
    def note(self, e):
        low, high = self.low.last(self.w)[e.to], max(self.high.last(2)[e.text], self.high.last(self.w)[e.text])
        self.low.add(e.to, e.user / 7)
        self.high.add(e.text, e.to)
        if e.to % 11 == 0:
            del self.low[e.to]
        self.sent[e.user] += 1
        self.words[e.text] += 2
        if e.to % 5 == 0:
            self.others.discard(e.user, e.to + 1)
        self.others.add(e.user, e.to)
        self.length.add(e.user, e.to)
        if self.words.last(self.w)[e.text] > 40:
            self.reject("too often")
        mean, seen = self.length.last(self.w)[e.user], (e.to, e.user) in self.seen.last(3 * self.w)
        self.seen.add((e.user, e.to))
        self.emit(Score(user=e.user, sent=self.sent.last(self.w)[e.user], before=self.sent.ago(9)[e.user],
                        others=self.others.last(2 * self.w).count(e.user), mean=mean, seen=seen, low=low, high=high))
"""


@pytest.mark.parametrize("memory", ["", "10K"])
def test_machine_code_with_many_keys_and_long_windows(memory: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables and logs grow and move, logs are shortened; what is rejected leaves nothing in them. With a small budget they lie in files."""
    replay = tuned(Tuning(KernelTuning(native=NativeTuning(piece_events=500))))
    filed, plain = [], blocks._filed

    def noted(words: int) -> Any:
        filed.append(words)
        return plain(words)

    monkeypatch.setattr(blocks, "_filed", noted)
    if memory:
        monkeypatch.setenv(machine.MEMORY, memory)
    program: Any = load_source(SOURCE)
    sent = spec_of(program).events[0]
    rng, now, events = random.Random(5), 0, []
    for _ in range(3000):
        now += rng.choice((0, 1, 1, 5))
        user = rng.choice((rng.randrange(40), rng.randrange(2500)))
        made: Any = sent
        events.append(made(user=user, to=rng.randrange(60), text=rng.choice("abcdefgh"))._at(now, -1))
    reference = run_serial(program(), events)
    assert 50 < reference.rejected.num_rows < 2500
    monkeypatch.setenv(SWITCH, "native")
    for count in (1, 3):
        run = replay(program(), events, slices=count, spark=False)
        assert run.certificate["passes"] == {"final": "compiled"}
        assert_same(reference, run)
        assert (run.digest, run.state_digest) == (reference.digest, reference.state_digest)
    assert len(filed) > 20 if memory else not filed


SHARED = """
import timelapse as tl

class A(tl.Event):
    k: int
    m: int
    s: str
    items: list[int]

class Out(tl.Record):
    a: int
    b: int
    c: int
    first: int | None

class P(tl.Program):
    a: tl.Counter[int]
    b: tl.Counter[int]
    c: tl.Counter[int]
    plain: tl.Counter[int]
    first: tl.First[int, int | None]
    seen: tl.SetOf[int, int]

    @tl.on(A)
    def note(self, e):
        self.a[e.k] += e.m
        self.first.add(e.k, e.ts)
        if e.m > 0:
            self.b[e.k] += 1
            self.seen.add(e.k, e.m)
        else:
            self.c[e.k] -= 2
            self.plain[e.k] += 1
        if e.m * 2**62 % 3 == 1 and e.s == "a":
            self.c[e.k] = 0
        self.emit(Out(a=self.a.last(2)[e.k] + self.a.ago(5)[e.k], b=self.b.last(3)[e.k] + self.seen.last(2).count(e.k),
                      c=self.c.last(4)[e.k] - self.plain[e.k], first=self.first[e.k]))
        if self.b.last(9)[e.k] > 3:
            self.reject("often")
"""


def test_states_with_windows_share_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rejected events, such as leave, and rows that move while several logs are about them."""
    monkeypatch.setenv(SWITCH, "native")
    monkeypatch.setattr(build, "_get", lambda text, *, compile_it: emulated(text))
    program = load_source(SHARED)()
    unit = lowered(program, final_pass(analyse(type(program))), final=True)
    assert {"a", "b", "c", "plain", "first"} in map(set, unit.tables)
    left: list[int] = []
    for seed in range(3):
        tables = TableTuning(first_rows=4)
        tuning = KernelTuning(native=NativeTuning(piece_events=(3, 40)[seed % 2], tables=tables))
        events = windowed_log(program, seed, 60)
        for number, event in enumerate(events):  # more keys than the first table has rows
            made: Any = type(event)
            k = number if seed % 3 == 0 else number % (3 + seed)
            events[number] = made(k=k, m=event.m, s=event.s, items=event.items)._at(event.ts, -1)  # type: ignore[attr-defined]
        assert same_slices(program, events, (0, 20 + seed, 60), left, tuning)
    assert sum(left) > 3


MANY = """
import timelapse as tl

class A(tl.Event):
    items: list[int]

class Out(tl.Record):
    n: int
    low: int | None

class P(tl.Program):
    n: tl.Counter[int]
    low: tl.Min[int, int | None]

    @tl.on(A)
    def note(self, e):
        for i in e.items:
            self.n[i % 7] += 1
            self.low.add(i % 5, i)
        self.emit(Out(n=self.n.last(2)[1], low=self.low.last(3)[2]))
"""


def test_one_event_may_do_more_than_a_log_that_is_empty_has_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SWITCH, "native")
    monkeypatch.setattr(build, "_get", lambda text, *, compile_it: emulated(text))
    program = load_source(MANY)()
    made: Any = spec_of(program).events[0]
    events = [made(items=list(range(90 * now, 90 * now + 200)))._at(now, -1) for now in range(4)]
    assert same_slices(program, events, (0, 4), [])


BESIDE = """
import timelapse as tl

class A(tl.Event):
    k: int
    m: int

class Out(tl.Record):
    what: int
    v: int

class P(tl.Program):
    held: tl.Value[int, int] = tl.state(default=0)
    n: tl.Counter[int]
    often: tl.MapOf[int, int, int] = tl.state(default=0)
    seen: tl.SetOf[int, int]

    @tl.on(A)
    def go(self, e):
        if e.m * 2**62 % 3 == 1:
            self.held[e.k] += e.m
        self.n[e.k] -= 1
        self.n[e.k] += e.m
        self.often[e.k, e.m] = e.m
        if self.now % 3 == 2:
            self.seen.discard(e.k, e.m)
        else:
            self.seen.add(e.k, e.m)
        self.emit(Out(what=1, v=self.n.ago(2)[e.k]))
        self.emit(Out(what=2, v=self.n.last(3)[e.k]))
        self.emit(Out(what=3, v=1 if (e.k, e.m) in self.seen.last(3) else 0))
        self.emit(Out(what=4, v=self.seen.last(4).count(e.k)))
"""


def test_states_with_views_in_the_row_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is theirs is told by their own flag, also where an event runs as Python and a count becomes 0."""
    monkeypatch.setenv(SWITCH, "native")
    monkeypatch.setattr(build, "_get", lambda text, *, compile_it: emulated(text))
    program = load_source(BESIDE)
    (a,) = spec_of(program).events
    unit = lowered(program(), final_pass(analyse(program)), final=True)
    assert ("held", "n") in unit.tables
    for seed in range(6):
        rng, now, events = random.Random(seed), 0, []
        for _ in range(60):
            now += rng.choice((0, 0, 1, 1, 2))
            made: Any = a
            events.append(made(k=rng.randrange(3), m=rng.randrange(4))._at(now, -1))
        reference = run_serial(program(), events)
        run = replay(program(), events, slices=1, spark=False, cache=False)
        assert run.certificate["passes"] == {"final": "compiled"}
        assert_same(reference, run)
        assert (run.digest, run.state_digest) == (reference.digest, reference.state_digest)
