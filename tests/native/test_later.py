"""Ticks and handlers that are called later, in compiled passes: what the serial loop gives, to the last bit."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from tests.native.fuzz.emulate import emulated
from tests.native.window_programs import windowed_log, windowed_program
from tests.tuned import tuned
from tests.writers.sources import load_source
from timelapse.analysis import analyse, final_pass
from timelapse.errors import HandlerError
from timelapse.kernels.choose import SWITCH, choice
from timelapse.kernels.native import build
from timelapse.kernels.native.lowering.lower import lowered
from timelapse.kernels.tuning import KernelTuning, NativeTuning
from timelapse.program.program import spec_of
from timelapse.run import replay, run_serial
from timelapse.run.tuning import Tuning
from timelapse.testing import assert_same


@pytest.mark.parametrize(("piece", "seeds"), [(32768, (0, 7)), (3, (7, 15))])
def test_random_programs_as_the_serial_loop(
    piece: int, seeds: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Run without compiling them, also in small pieces; ticks and late handlers write, put out, reject, and leave."""
    monkeypatch.setenv(SWITCH, "native")
    monkeypatch.setattr(build, "_get", lambda text, *, compile_it: emulated(text))
    replay = tuned(Tuning(KernelTuning(native=NativeTuning(piece_events=piece))))
    through = looked = ticking = 0
    for seed in range(*seeds):
        program = load_source(windowed_program(seed, timed=True))()
        assert {u.what for u in spec_of(program).times} & {"after", "every"}
        found = choice(program, final_pass(analyse(type(program))), final=True)
        assert found.compiled, (seed, found.reason)
        ticking += bool(lowered(program, final_pass(analyse(type(program))), final=True).ticking)
        rng = random.Random(seed)
        events = windowed_log(program, seed, 45, edges=rng.random() < 0.3)
        slices = rng.choice((1, 3))
        try:
            reference = run_serial(program, events)
        except HandlerError as failed:
            with pytest.raises(HandlerError) as also:
                replay(program, events, slices=slices, spark=False, cache=False)
            assert also.value.message == failed.message
            assert (also.value.ts, also.value.seq) == (failed.ts, failed.seq)
            continue
        looked += 1
        try:
            run = replay(program, events, slices=slices, spark=False, cache=False)
            assert_same(reference, run)
            assert (run.digest, run.state_digest) == (reference.digest, reference.state_digest)
        except Exception as error:
            raise AssertionError(f"seed {seed}, {slices} slices: {error!r}") from error
        through += run.certificate["passes"] == {"final": "compiled"}
    assert looked > 4
    assert ticking > 1
    assert through > 0.6 * looked


LISTING = """
import timelapse as tl

class Seen(tl.Event):
    word: str
    user: int
    n: int

class Row(tl.Record):
    what: int
    word: str
    user: int
    count: int

class P(tl.Program):
    words: tl.Counter[tuple[str, int]]
    users: tl.Counter[int]
    named: tl.Counter[str]
    place: tl.Value[tuple[int, str], str | None]
    mean: tl.Mean[str]
    held: tl.Set[int]
    low: tl.Min[int, int | None]

    @tl.on(Seen)
    def note(self, e):
        self.words[e.word, e.user] += e.n
        self.users[e.user] += e.n
        self.named[e.word] += e.n
        self.place[e.user % 5, e.word] = e.word
        self.mean.add(e.word, e.user)
        self.low.add(e.user, e.n * e.user)
        if e.n < 0:
            self.held.discard(e.user)
        else:
            self.held.add(e.user)

    @tl.every(100)
    def look(self):
        for n, ((word, user), count) in enumerate(self.words.last(300).items()):
            self.emit(Row(what=n, word=word, user=user, count=count))
        for user, count in self.users.ago(150).top(4):
            self.emit(Row(what=-1, word="", user=user, count=count))
        for word, count in self.named.top(40):
            self.emit(Row(what=-2, word=word, user=self.now % 1000, count=count))
        for (five, word), held in self.place.items():
            if held is not None and held != word or five == 3:
                self.emit(Row(what=-3, word=word, user=five, count=0))
        self.users[-1] += sum(n for _, n in self.users.last(100).items() if n > 0)

    @tl.every(50)
    def shift(self):
        total = sum(int(100 * mean) for _, mean in self.mean.last(50).items())
        total += sum(int(10 * mean) for _, mean in self.mean.items())
        total += sum(user for user in self.held.last(70).items()) + sum(low for _, low in self.low.last(90).items())
        self.emit(Row(what=-4, word="", user=0, count=total))
        for user, _ in self.users.last(50).items():
            if user % 3 == 0:
                self.users[user] -= 1
"""


def test_ticks_list_keys_in_order_and_rank_them_in_machine_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """Texts of all sorts, lists and records that need more room than there was, two handlers at one tick."""
    monkeypatch.setenv(SWITCH, "native")
    replay = tuned(Tuning(KernelTuning(native=NativeTuning(piece_events=300))))
    program = load_source(LISTING)
    (seen,) = spec_of(program).events
    rng, now, events = random.Random(3), 0, []
    words = ["", "a", "ab", "b", "\x00", "\u00e9", "\ud7ff", "\uffff", "\U0001f600", "z" * 40, "z" * 41]
    words += [f"w{i}" for i in range(60)]
    for _ in range(2500):
        now += rng.choice((0, 0, 1, 1))
        made: Any = seen
        events.append(
            made(word=rng.choice(words), user=rng.randrange(40), n=rng.choice((1, 2, -1)))._at(now, -1)
        )
    reference = run_serial(program(), events)
    run = replay(program(), events, slices=1, spark=False, cache=False)
    assert run.certificate["passes"] == {"final": "compiled"}
    assert lowered(program(), final_pass(analyse(program)), final=True).ticking
    assert_same(reference, run)
    assert (run.digest, run.state_digest) == (reference.digest, reference.state_digest)


UNWRITTEN = """
import timelapse as tl

class A(tl.Event):
    k: int
    m: int

class Out(tl.Record):
    n: int

class P(tl.Program):
    others: tl.SetOf[int, int]

    @tl.on(A)
    def note(self, e):
        n = e.m * 2**62 % 3  # outside int64
        self.emit(Out(n=self.others.last(3).count(e.k) + n if (e.k, e.m) in self.others.last(2) else n))
"""


def test_a_window_of_a_state_that_nobody_writes_to_is_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SWITCH, "native")
    monkeypatch.setattr(build, "_get", lambda text, *, compile_it: emulated(text))
    program = load_source(UNWRITTEN)
    made: Any = spec_of(program).events[0]
    events = [made(k=1, m=3)._at(now, -1) for now in range(5)]
    run = replay(program(), events, slices=1, spark=False, cache=False)
    assert run.certificate["passes"] == {"final": "compiled"}
    assert_same(run_serial(program(), events), run)


APART = """
import timelapse as tl

class A(tl.Event):
    k: int

class P(tl.Program):
    seen: tl.Counter[int]

    @tl.on(A)
    def note(self, e):
        self.seen[e.k] += 1

    @tl.every(5)
    def look(self):
        for k, n in sorted(self.seen.items(), key=lambda pair: pair[1]):
            del self.seen[k]
"""


def test_a_tick_that_does_not_compile_runs_apart_and_says_why() -> None:
    program = load_source(APART)()
    work = final_pass(analyse(type(program)))
    assert lowered(program, work, final=True).ticks
    alone = {h.name: choice(program, replace(work, handlers=(h,)), final=True) for h in work.handlers}
    assert alone["note"].compiled
    assert not alone["look"].compiled
    assert alone["look"].reason.startswith("look: ")
